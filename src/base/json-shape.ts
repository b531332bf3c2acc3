/**
 * The bound on what a JSON text costs: its depth and its number of values, counted in its bytes before it is
 * parsed. 8 MiB of `{},` or of short fields would hold the event loop for seconds; 8 MiB of one string take 20 ms.
 */
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** A call of indexOf costs as much as so many turns of a loop: a string with many quotes in it is read byte by byte. */
const NEAR_BYTES = 128;

/**
 * Throws INVALID_ARGUMENT, which names `what`, for JSON above `json_depth_max` or `json_values_max`. Text that is no JSON
 * passes, or is refused in the same way.
 */
export function checkShape(text: Buffer, what = "the body"): void {
  // A shorter text has neither.
  if (text.length <= LIMITS.json_depth_max) return;
  let depth = 0;
  let values = 1;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (byte === QUOTE) at = stringEnd(text, at + 1);
    else if (byte === COMMA) values++;
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      values++;
      if (++depth > LIMITS.json_depth_max)
        throw refusal(what, "is nested too deeply", `<= ${LIMITS.json_depth_max} levels`);
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) depth--;
    else continue;
    if (values > LIMITS.json_values_max)
      throw refusal(what, "has too many values", `<= ${LIMITS.json_values_max} values`);
  }
}

/** Returns the position of the quote that ends a string, or the text's end. `at` is behind the opening quote. */
export function stringEnd(text: Buffer, at: number): number {
  while (at < text.length) {
    for (const near = at + NEAR_BYTES; at < near; at++) {
      const byte = text[at];
      if (byte === QUOTE) return at;
      if (byte === BACKSLASH) at++;
    }
    const quote = text.indexOf(QUOTE, at);
    if (quote < 0) break;
    let begin = quote;
    while (begin > at && text[begin - 1] === BACKSLASH) begin--;
    if ((quote - begin) % 2 === 0) return quote;
    at = quote + 1;
  }
  return text.length;
}

function refusal(what: string, problem: string, expected: string): AppError {
  return new AppError("INVALID_ARGUMENT", `${what} ${problem} (limit ${expected.slice(3)})`, {
    details: { expected: [expected], received: null },
    hint: "send a large payload as a string",
  });
}
