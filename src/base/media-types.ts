/** Media types: the one of JSON, and the choice between several by the header Accept (RFC 9110 §12.5.1). */

export const JSON_TYPE = "application/json";

interface Wish {
  readonly type: string;
  readonly q: number;
}

/**
 * The offered type that `accept` weighs most; where several weigh the same the one that it names more exactly, then the
 * one that is offered first. That one too where it wants none of them: an answer in another form beats a refusal.
 */
export function preferredType<const Offered extends string>(
  accept: string | null,
  offered: readonly [Offered, ...Offered[]],
): Offered {
  const wishes = (accept ?? "").split(",").map(wishOf);
  let best = { type: offered[0], q: 0, exactness: 0 };
  for (const type of offered) {
    // What names the type more exactly says how much it is wanted, also where a wildcard says more.
    const patterns = ["*/*", `${type.split("/", 1)[0]}/*`, type];
    const found = patterns.map((pattern) => wishes.find((wish) => wish.type === pattern));
    const exactness = found.findLastIndex((wish) => wish !== undefined);
    const q = found[exactness]?.q ?? 0;
    if (q > best.q || (q === best.q && q > 0 && exactness > best.exactness)) best = { type, q, exactness };
  }
  return best.type;
}

/** Parameters other than `q` are passed over; a weight that is none weighs nothing. */
function wishOf(text: string): Wish {
  const [type = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => /^q\s*=/.test(parameter))?.replace(/^q\s*=\s*/, "");
  const q = weight === undefined ? 1 : /^(0(\.\d{0,3})?|1(\.0{0,3})?)$/.test(weight) ? Number(weight) : 0;
  return { type, q };
}
