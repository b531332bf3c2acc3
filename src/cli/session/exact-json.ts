/** Answers for people and programs: each number of a result is printed as the function wrote it. */

/** What a number has that a double may not give back: 16 digits, an exponent, a zero at its end or many at its start, -0. */
const ODD = /\d[\d.]{15}|\d[eE]|\.\d*0(?!\d)|-0(?![\d.])|0\.0{6}/;

type Reviver = (this: unknown, key: string, value: unknown, context: { readonly source?: string }) => unknown;
/** ECMAScript 2026, which the types of TypeScript lack. */
const { parse, rawJSON } = JSON as unknown as {
  parse(text: string, reviver: Reviver): unknown;
  rawJSON(text: string): object;
};

/** Parses JSON. A number that would change is an object that `JSON.stringify` writes as the number was written. */
export function parseExactly(json: string): unknown {
  const value: unknown = JSON.parse(json);
  if (!ODD.test(json)) return value;
  return parse(json, (_key, one, { source = "" }) =>
    typeof one === "number" && String(one) !== source ? rawJSON(source) : one,
  );
}
