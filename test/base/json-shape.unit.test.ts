/** Bounds on the shape of a JSON body: its depth and its number of values, whatever its strings hold. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { parseJson } from "../../src/http/input.ts";

const { json_depth_max: depth_max, json_values_max: values_max } = LIMITS;

/** The refusal of a text; null where it is parsed. */
function refusal(text: string): AppError | null {
  try {
    parseJson(Buffer.from(text));
    return null;
  } catch (thrown) {
    if (thrown instanceof AppError) return thrown;
    throw thrown;
  }
}

const nested = (depth: number, open: string, close: string) => `${open.repeat(depth)}1${close.repeat(depth)}`;

describe("a JSON body", () => {
  it("is refused above its depth, in lists and in objects", () => {
    for (const [open, close] of [
      ["[", "]"],
      ['{"a":', "}"],
    ] as const) {
      expect(refusal(nested(depth_max, open, close))).toBe(null);
      expect(refusal(nested(depth_max + 1, open, close))).toMatchObject({
        code: "INVALID_ARGUMENT",
        message: `the body is nested too deeply (limit ${depth_max} levels)`,
        details: { expected: [`<= ${depth_max} levels`] },
      });
    }
    expect(refusal(`[${"[],".repeat(1_000)}[]]`)).toBe(null);
  });

  it("is refused above its number of values of any kind", () => {
    for (const value of ["1", "[]", "{}", '"x"', '{"a":1}']) {
      expect(refusal(`[${`${value},`.repeat(values_max)}1]`), value).toMatchObject({
        code: "INVALID_ARGUMENT",
        message: `the body has too many values (limit ${values_max} values)`,
      });
    }
    expect(refusal(`[${"1,".repeat(values_max - 3)}1]`)).toBe(null);
    const fields = Array.from({ length: values_max + 1 }, (_, i) => `"${i}":1`);
    expect(refusal(`{${fields}}`)).toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("may hold anything in its strings, wherever their quotes and backslashes stand", () => {
    const many = '{"a":[1,2]},'.repeat(values_max);
    for (const unit of ["x", '"', "\\", '\\"', `${"x".repeat(300)}"`, `${"\\".repeat(301)}"`, "é\n", many]) {
      for (const padding of [0, 1, 126, 127, 128, 129, 255]) {
        const text = "p".repeat(padding) + unit.repeat(unit === many ? 1 : 500);
        const body = { [text]: text, list: [text, nested(500, "[", "]")] };
        expect(parseJson(Buffer.from(JSON.stringify(body)))).toEqual(body);
      }
    }
  });

  it("is counted again behind a long string", () => {
    const string = JSON.stringify('\\"'.repeat(1_000));
    expect(refusal(`[${string},${nested(depth_max, "[", "]")}]`)).toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(refusal(`["${"x".repeat(1_000)}",${nested(depth_max, "[", "]")}]`)).toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  it("that ends inside a string is no JSON", () => {
    for (const end of ["", "\\", '\\"', "x".repeat(500)]) {
      expect(refusal(`["${"x".repeat(500)}${end}`)).toMatchObject({ code: "INVALID_JSON" });
    }
  });
});
