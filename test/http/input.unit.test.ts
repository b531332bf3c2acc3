/** Schemas to refusals: which complaint is 422, which 400, and what the text says of the value. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { AppError } from "../../src/base/errors.ts";
import { queryLimit, queryNumber } from "../../src/base/schema.ts";
import { checkPath, parseJson, parseQuery, validate } from "../../src/http/input.ts";

const schema = z
  .object({
    name: z
      .string()
      .min(1)
      .max(10)
      .regex(/^[a-z]+$/, "expected lower-case letters"),
    memory_limit_mb: z.int().min(256).max(1_024).default(256),
    share: z.number().positive().optional(),
    runtime: z.enum(["shell", "nodejs"]).default("shell"),
    environment: z.record(z.string().regex(/^[A-Z]+$/, "expected capitals"), z.string().max(8)).default({}),
    nested: z.object({ on: z.boolean() }).optional(),
    either: z.union([z.string(), z.array(z.string())]).optional(),
    min_instances: z.int().default(0),
    max_instances: z.int().default(1),
  })
  .refine((input) => input.min_instances <= input.max_instances, {
    message: "min_instances is above max_instances",
    path: ["min_instances"],
  });

function refusal(input: unknown): AppError {
  try {
    validate(schema, input);
  } catch (thrown) {
    if (thrown instanceof AppError) return thrown;
    throw thrown;
  }
  throw new Error(`accepted: ${JSON.stringify(input)}`);
}

describe("a body", () => {
  it("is refused with 422 where a field is missing or of another JSON type", () => {
    const wrong: [unknown, string][] = [
      [{}, "name: expected string, received nothing"],
      [{ name: 5 }, "name: expected string, received number"],
      [{ name: null }, "name: expected string, received null"],
      [{ name: "a", memory_limit_mb: "256" }, "memory_limit_mb: expected number, received string"],
      [{ name: "a", memory_limit_mb: null }, "memory_limit_mb: expected number, received null"],
      [{ name: "a", runtime: 7 }, "runtime: expected shell or nodejs, received number"],
      [{ name: "a", environment: [] }, "environment: expected object, received array"],
      [{ name: "a", environment: { A: 1 } }, "environment.A: expected string, received number"],
      [{ name: "a", nested: { on: "yes" } }, "nested.on: expected boolean, received string"],
      [{ name: "a", either: 5 }, "either: expected string or array, received number"],
      [{ name: "a", either: ["b", 5] }, "either.1: expected string, received number"],
      [[], "the body: expected object, received array"],
      [null, "the body: expected object, received null"],
      ["text", "the body: expected object, received string"],
    ];
    for (const [input, text] of wrong) {
      expect(refusal(input)).toMatchObject({ code: "UNPROCESSABLE_ENTITY", message: text });
    }
  });

  it("is refused with 400 where the type is right and the value is not", () => {
    const wrong: [unknown, string][] = [
      [{ name: "" }, 'name: expected at least 1 characters, received "" (and 1 more)'],
      [{ name: "A1" }, 'name: expected lower-case letters, received "A1"'],
      [{ name: "a", memory_limit_mb: 255 }, "memory_limit_mb: expected at least 256, received 255"],
      [{ name: "a", memory_limit_mb: 256.5 }, "memory_limit_mb: expected integer, received 256.5"],
      [{ name: "a", share: 0 }, "share: expected more than 0, received 0"],
      [{ name: "a", runtime: "ruby" }, 'runtime: expected shell or nodejs, received "ruby"'],
      [{ name: "a", environment: { a: "x" } }, "environment.a: invalid name: expected capitals, received string"],
      [{ name: "a", min_instances: 2 }, "min_instances: min_instances is above max_instances, received 2"],
    ];
    for (const [input, text] of wrong) {
      expect(refusal(input)).toMatchObject({ code: "INVALID_ARGUMENT", message: text });
    }
  });

  it("is refused with values for programs, and none where only a sentence says what is wrong", () => {
    const wrong: [unknown, string[] | null][] = [
      [{ name: "" }, [">= 1 characters"]],
      [{ name: "x".repeat(11) }, ["<= 10 characters"]],
      [{ name: "A1" }, ["/^[a-z]+$/"]],
      [{ name: "a", memory_limit_mb: 255 }, [">= 256"]],
      [{ name: "a", memory_limit_mb: 1_025 }, ["<= 1024"]],
      [{ name: "a", memory_limit_mb: 256.5 }, ["integer"]],
      [{ name: "a", share: 0 }, ["> 0"]],
      [{ name: "a", runtime: "ruby" }, ["shell", "nodejs"]],
      [{ name: "a", either: 5 }, ["string", "array"]],
      [{ name: "a", min_instances: 2 }, null],
    ];
    for (const [input, expected] of wrong) expect([input, refusal(input).details?.expected]).toEqual([input, expected]);
  });

  it("is refused with a hint where the shape, or a value that is near, helps", () => {
    const wrong: [unknown, string | null][] = [
      [{ name: "a", environment: [] }, 'send an object of names and values, as in {"NAME": "value"}'],
      [{ name: "a", nested: "on" }, "send an object with on"],
      [{ name: "a", either: 5 }, "send an array of strings"],
      [{ name: "a", runtime: "Nodejs22" }, "send 'nodejs' instead"],
      [{ name: "a", runtime: "shel" }, "send 'shell' instead"],
      [{ name: "a", runtime: "bash" }, "send 'shell' instead"],
      [{ name: "a", runtime: "ruby" }, null],
      [{ name: "a", runtime: `shell${"x".repeat(100)}` }, null],
      [{ name: "a", nested: { on: "yes" } }, null],
      [{ name: "a", environment: { A: 1 } }, null],
      [{ name: 5 }, null],
    ];
    for (const [input, hint] of wrong) expect([input, refusal(input).hint]).toEqual([input, hint]);
    expect(refusal([]).hint).toMatch(/^send an object with name, memory_limit_mb, .* …$/);
  });

  it("is refused with 422 where both kinds of mistake occur", () => {
    expect(refusal({ name: "A", memory_limit_mb: "x" })).toMatchObject({
      code: "UNPROCESSABLE_ENTITY",
      message: "memory_limit_mb: expected number, received string (and 1 more)",
      details: { expected: ["number"], received: "string" },
    });
  });

  it("never has the values of environment or payload in the refusal, nor long texts", () => {
    const secret = refusal({ name: "a", environment: { A: "topsecret" } });
    expect(JSON.stringify([secret.message, secret.details])).not.toContain("topsecret");
    const short = z.object({ value: z.string().max(3), value_base64: z.string().max(3) });
    for (const field of ["value", "value_base64"]) {
      const input = { value: "a", value_base64: "b", [field]: "topsecret" };
      expect(() => validate(short, input)).toThrow(`${field}: expected at most 3 characters, received string`);
    }
    expect(refusal({ name: "x".repeat(500) }).message).toBe(
      "name: expected at most 10 characters, received a string of 500 characters",
    );
    expect(refusal({ name: "a", environment: { "a\n\u0000é": "" } }).message).toContain("environment.a???:");
  });
});

describe("parseJson", () => {
  it("never has passwords and refresh tokens in the refusal", () => {
    const fields = ["password", "current_password", "new_password", "refresh_token"];
    for (const field of fields) {
      const asked = () => validate(z.object({ [field]: z.string().min(100) }), { [field]: "topsecret" });
      expect(asked).toThrow(`${field}: `);
      expect(asked).not.toThrow(/topsecret/);
    }
  });

  it("takes an empty body as an empty object", () => {
    expect(parseJson(Buffer.alloc(0))).toEqual({});
  });

  it("refuses what is no JSON, without quoting it", () => {
    for (const text of ['{"password": secret}', '{"a":', "", "secret", "{'a':1}", '{"a":1}}'].filter((t) => t !== "")) {
      const parse = () => parseJson(Buffer.from(text));
      expect(parse).toThrow(expect.objectContaining({ code: "INVALID_JSON" }));
      expect(parse).not.toThrow(/secret/);
    }
  });

  it.each([
    ["hello", "unexpected text in the place of a value"],
    ["payload=x", "unexpected text in the place of a value"],
    ['{"a": True}', "unexpected text in the place of a value"],
    ["[1,]", "unexpected text in the place of a value"],
    ["{'a':1}", "unexpected text at byte 1"],
    ['{"é":1,}', "unexpected text at byte 8"],
    ['{"a":1}}', "unexpected text at byte 7"],
    ['{"a":1', "unexpected end"],
    ['{"a":', "unexpected end"],
    ['{"a', "unexpected end"],
    ["nul", "unexpected end"],
  ])("says what is wrong with %s", (text, fault) => {
    expect(() => parseJson(Buffer.from(text))).toThrow(`invalid JSON in the body: ${fault}`);
  });

  it("refuses invalid UTF-8", () => {
    const cut = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xc3]), Buffer.from('"}')]);
    expect(() => parseJson(cut)).toThrow(expect.objectContaining({ code: "INVALID_JSON" }));
  });

  it("survives very deep nesting", () => {
    const deep = Buffer.from("[".repeat(200_000));
    expect(() => parseJson(deep)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });
});

describe("a query", () => {
  const query = z.object({ limit: queryLimit(100, 1_000), page: queryNumber(0, 50).optional() });
  const read = (text: string) => validate(query, parseQuery(`/x?${text}`), "INVALID_ARGUMENT");

  it("has its numbers parsed, its limit defaulted and clamped", () => {
    expect(read("")).toEqual({ limit: 100 });
    expect(read("limit=7&page=3")).toEqual({ limit: 7, page: 3 });
    expect(read("limit=99999")).toEqual({ limit: 1_000 });
    expect(read("limit=1000&other=x&flag")).toEqual({ limit: 1_000 });
  });

  it("is refused with 400 where a number is zero, negative, a fraction, text, repeated or out of range", () => {
    for (const text of [
      "limit=0",
      "limit=-1",
      "limit=1.5",
      "limit=ten",
      "limit=",
      "limit=1e3",
      "limit=1&limit=2",
      "page=51",
    ]) {
      expect(() => read(text), text).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    }
  });

  it("is refused with the expected type for programs where a number is text", () => {
    const details = { expected: ["integer"], received: '"1d"' };
    expect(() => read("limit=1d")).toThrow(expect.objectContaining({ details: expect.objectContaining(details) }));
  });

  it("keeps repeated names as arrays and decodes values", () => {
    expect({ ...parseQuery("/x?a=1&a=2&a=3&b=%2Fy+z&__proto__=q") }).toMatchObject({ a: ["1", "2", "3"], b: "/y z" });
    expect({ ...parseQuery("/x") }).toEqual({});
  });
});

describe("checkPath", () => {
  it("refuses a malformed percent-encoding in the path, not in the query", () => {
    for (const path of ["/a/%", "/a/%zz", "/a/%c3", "/%e0%80%80"]) {
      expect(() => checkPath(path), path).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    }
    for (const path of ["/a/b", "/a/%2Fb", "/%c3%a9", "/a?x=%zz"]) expect(() => checkPath(path)).not.toThrow();
  });
});
