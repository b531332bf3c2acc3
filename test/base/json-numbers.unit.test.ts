/** Numbers of JSON that doubles do not keep: how they are found, and how they pass. */
import { describe, expect, it } from "vitest";
import { checkNumbers, exactValue, hasOddNumber, keepNumbers } from "../../src/base/json-numbers.ts";
import { JsonText, jsonOf } from "../../src/base/json-text.ts";
import { json } from "../../src/cli/output/text.ts";
import { parseExactly } from "../../src/cli/session/exact-json.ts";

const ODD = ["9007199254740993", "1.0", "-0", "1e3", "1E400", "0.10", "0.0000001", "123456789012.3456789", "1e400"];
const EVEN = [
  "0",
  "-1",
  "12.5",
  "900719925474099",
  "0.1",
  "-0.5",
  "0.00001",
  "0.0000012",
  "1000",
  "100.5",
  "123456789012.34",
];

const texts = (number: string) => [number, ` ${number}\n`, `[1,${number}]`, `{"a":{"b\\"":[true,${number}]}}`];

describe("a number that is written otherwise than its double", () => {
  it.each(ODD)("%s is found, wherever it stands", (number) => {
    for (const text of texts(number)) expect([text, hasOddNumber(Buffer.from(text))]).toEqual([text, true]);
  });

  it.each(EVEN)("%s is none", (number) => {
    for (const text of texts(number)) expect([text, hasOddNumber(Buffer.from(text))]).toEqual([text, false]);
  });

  it.each(['"1.0"', '["a\\\\","1.0","\\"1.0"]', `{"1.0":"${"x".repeat(300)}1e400"}`, '"é€1.0"', "{}", ""])(
    "%s has none: it is a string",
    (text) => expect(hasOddNumber(Buffer.from(text))).toBe(false),
  );
});

it.each(["1e400", "-1e309", `[${"9".repeat(400)}]`, '{"a":[0,1E+999]}'])("%s is too large", (text) => {
  expect(() => checkNumbers(Buffer.from(text), "the body")).toThrow(/^the body has a number that is too large: -?[19]/);
});

it.each(["1.7976931348623157e308", "1e-400", '"1e400"', "9".repeat(308)])("%s is not too large", (text) => {
  expect(() => checkNumbers(Buffer.from(text), "the body")).not.toThrow();
});

describe("a value", () => {
  it.each(ODD.flatMap(texts))("%j is written as it was read", (text) => {
    const answer = jsonOf({
      before: [1],
      result: exactValue(Buffer.from(text)),
      after: "x",
      more: [exactValue(Buffer.from(text))],
    });
    expect(answer).toBe(`{"before":[1],"result":${text},"after":"x","more":[${text}]}`);
  });

  it("without such numbers is what JSON.parse makes of it", () => {
    expect(exactValue(Buffer.from('{ "a": [1, 2.5] }'))).toEqual({ a: [1, 2.5] });
    expect(jsonOf({ result: { a: 1 } })).toBe('{"result":{"a":1}}');
    expect(jsonOf(undefined)).toBe(undefined);
  });

  it("has doubles where others write it", () => {
    expect(JSON.stringify([new JsonText("[1.0]")])).toBe("[[1]]");
  });
});

describe("fields of a body", () => {
  const kept = (text: string, ...paths: string[][]) => {
    const value = JSON.parse(text);
    keepNumbers(Buffer.from(text), value, paths);
    return jsonOf(value);
  };

  it.each([
    ['{ "payload" : { "a" : [ 1.0 , "x 1.0" ] } , "n" : 2.0 }', '{"payload":{"a":[1.0,"x 1.0"]},"n":2}'],
    ['{"payload":1.0}', '{"payload":1.0}'],
    ['{"n":[{"payload":1.0}],"payload":9007199254740993}', '{"n":[{"payload":1}],"payload":9007199254740993}'],
    ['{"payload":1.0,"payload":[2]}', '{"payload":[2]}'],
    ['{"payload":[2],"payload":1.0}', '{"payload":1.0}'],
    ['{"p\\u0061yload":1.0}', '{"payload":1.0}'],
    ['{"\\"payload":1.0,"payload":"1.0"}', '{"\\"payload":1,"payload":"1.0"}'],
    ["[1.0]", "[1]"],
    ["1.0", "1"],
    ['{"__proto__":{"payload":1.0}}', '{"__proto__":{"payload":1}}'],
  ])("%s becomes %s", (text, expected) => {
    expect(kept(text, ["payload"])).toBe(expected);
  });

  it.each([
    [
      '{"functions":[{"smoke":{"payload":1.0}},{"smoke":null},3.0,{"smoke":{"payload":[2.0]}}]}',
      '{"functions":[{"smoke":{"payload":1.0}},{"smoke":null},3,{"smoke":{"payload":[2.0]}}]}',
    ],
    ['{"functions":{"a":{"smoke":{"payload":1.0}}}}', '{"functions":{"a":{"smoke":{"payload":1}}}}'],
    ['{"functions":[{"smoke":{"payload":1.0},"smoke":null}]}', '{"functions":[{"smoke":null}]}'],
    ['{"functions":[{"smoke":{"payload":1.0}}],"functions":[]}', '{"functions":[]}'],
    ['{"functions":[{"smoke":{"payload":1.0},"smoke":{}}]}', '{"functions":[{"smoke":{}}]}'],
  ])("of each item: %s becomes %s", (text, expected) => {
    expect(kept(text, ["functions", "*", "smoke", "payload"])).toBe(expected);
  });
});

it("the command line prints numbers as they came", () => {
  const text = '{"result":{"a":9007199254740993,"b":[1.0]},"duration_ms":3}';
  expect(json(parseExactly(text), 0)).toBe(text);
  expect(parseExactly('{"a":1}')).toEqual({ a: 1 });
});
