/** Fields of bodies: unknown ones are refused with the nearest known name, nulls of optional ones are absent. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { AppError } from "../../src/base/errors.ts";
import { bodyFields } from "../../src/http/body-fields.ts";
import { parseJson, validate } from "../../src/http/input.ts";
import { nameOf, ROUTES } from "../support/routes.ts";

const item = z
  .object({
    name: z.string(),
    memory_limit_mb: z.int().default(512),
    environment: z.record(z.string(), z.string()).default({}),
    volumes: z.array(z.string()).default([]),
    command: z.array(z.string()).nullish(),
    ports: z.array(z.object({ port: z.int(), protocol: z.string().optional() })).default([]),
    either: z.union([z.string(), z.array(z.object({ inside: z.int() }))]).optional(),
  })
  .transform((value) => value);
const schema = z.object({ items: z.array(item), limits: z.object({ memory_mb: z.int().nullable() }).partial() });
const checkFields = bodyFields(schema);

function read(body: object): z.output<typeof schema> {
  const sent = parseJson(Buffer.from(JSON.stringify(body)));
  checkFields(sent);
  return validate(schema, sent);
}

const one = (fields: object) => ({ items: [{ name: "a", ...fields }], limits: {} });

function refusal(body: object): AppError {
  try {
    read(body);
  } catch (thrown) {
    if (thrown instanceof AppError) return thrown;
    throw thrown;
  }
  throw new Error(`accepted: ${JSON.stringify(body)}`);
}

describe("an unknown field of a body", () => {
  it("is refused with 422, by its path and with the nearest known name", () => {
    const wrong: [string, string][] = [
      ["memory_mb", "memory_limit_mb"],
      ["enviroment", "environment"],
      ["env", "environment"],
      ["comand", "command"],
      ["mounts", "volumes"],
      ["Name", "name"],
    ];
    for (const [field, meant] of wrong) {
      expect(refusal(one({ [field]: 1 }))).toMatchObject({
        code: "UNPROCESSABLE_ENTITY",
        message: `unknown field 'items.0.${field}', did you mean '${meant}'?`,
        details: { expected: [meant], received: field },
      });
    }
  });

  it("is refused at any depth: in lists, in objects inside of them, in an alternative", () => {
    const wrong: [object, string][] = [
      [{ ...one({}), itmes: [] }, "unknown field 'itmes', did you mean 'items'?"],
      [
        one({ ports: [{ port: 1, protcol: "tcp" }] }),
        "unknown field 'items.0.ports.0.protcol', did you mean 'protocol'?",
      ],
      [one({ either: [{ inside: 1, insde: 2 }] }), "unknown field 'items.0.either.0.insde', did you mean 'inside'?"],
      [{ items: [], limits: { memory: 1 } }, "unknown field 'limits.memory', did you mean 'memory_mb'?"],
    ];
    for (const [body, message] of wrong) expect(refusal(body).message).toBe(message);
  });

  it("is refused with all known names where none is near, and counted where there are more", () => {
    const { message, details } = refusal({ ...one({ wholly: 1, different: 2 }), zzzzzzzz: 3 });
    expect([message, details?.expected]).toEqual([
      "unknown field 'items.0.wholly' (and 2 more)",
      ["name", "memory_limit_mb", "environment", "volumes", "command", "ports", "either"],
    ]);
  });

  it("is refused with the example of the route, and on a call with the place of the payload", () => {
    const call = ROUTES.find(({ operation }) => operation === "invokeFunctionByName");
    const refused = (body: object) => {
      try {
        call?.checkFields(body);
      } catch (error) {
        return error;
      }
    };
    const details = { example: '{"payload":"world"}' };
    const hint = `send the payload of the call as the field 'payload', as in ${details.example}`;
    const unnamed = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`n${i}`, i]));
    for (const body of [{ name: "world" }, { name: "world", environment: {} }, unnamed]) {
      expect(refused(body)).toMatchObject({ code: "UNPROCESSABLE_ENTITY", hint, details });
    }
    expect(refused({ payload: 1, name: "world" })).toMatchObject({ hint: "remove the field", details });
    expect(refused({ input: 1 })).toMatchObject({ hint: "send 'payload' instead", details });
  });

  it("is counted up to a bound", () => {
    const fields = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`nothing${i}`, 1]));
    expect(refusal(one(fields)).message).toBe("unknown field 'items.0.nothing0' (and at least 99 more)");
  });

  it("is refused where it is __proto__, unprintable or very long, and shown short and printable", () => {
    const sent = parseJson(Buffer.from('{"items":[],"limits":{},"__proto__":{"polluted":true}}'));
    expect(() => checkFields(sent)).toThrow("unknown field '__proto__'");
    expect(Object.hasOwn({}, "polluted")).toBe(false);
    const { message } = refusal({ items: [], limits: {}, [`\u0000é${"x".repeat(5_000)}`]: 1 });
    expect(message).toMatch(/^unknown field '\?\?x{62}'$/);
  });

  it("does not exist in a map: variables may have any name", () => {
    expect(read(one({ environment: { comand: "x", __proto: "y" } })).items[0]?.environment).toEqual({
      comand: "x",
      __proto: "y",
    });
  });

  it("is refused by every route with a JSON body", () => {
    const routes = ROUTES.filter(({ method, upload }) => ["POST", "PUT", "PATCH"].includes(method) && upload === null);
    expect(routes.length).toBeGreaterThan(20);
    for (const route of routes) {
      const check = () => route.checkFields({ nobody_knows: 1 });
      expect(check, nameOf(route)).toThrow(expect.objectContaining({ code: "UNPROCESSABLE_ENTITY" }));
    }
  });
});

describe("a null in a body", () => {
  it("is the same as no field where the field is optional and null means nothing else", () => {
    const nothing = read(one({}));
    expect(read(one({ memory_limit_mb: null, environment: null, volumes: null, ports: null, either: null }))).toEqual(
      nothing,
    );
    expect(read(one({ ports: [{ port: 1, protocol: null }] })).items[0]?.ports).toEqual([{ port: 1 }]);
  });

  it("is kept where it means something, and refused where the field is required", () => {
    expect(read({ items: [], limits: { memory_mb: null } }).limits).toEqual({ memory_mb: null });
    expect(read(one({ command: null })).items[0]?.command).toBe(null);
    expect(refusal(one({ name: null }))).toMatchObject({
      code: "UNPROCESSABLE_ENTITY",
      message: "items.0.name: expected string, received null",
    });
  });

  it("is accepted for every optional field of every route", () => {
    for (const route of ROUTES) {
      const { body, example } = route;
      if (body === null) continue;
      const properties = Object.keys(z.toJSONSchema(body, { io: "input", unrepresentable: "any" }).properties ?? {});
      const given = Object.keys((example.body ?? {}) as object);
      for (const field of properties.filter((name) => !given.includes(name))) {
        const sent = { ...structuredClone(example.body ?? {}), [field]: null };
        route.checkFields(sent);
        expect([nameOf(route), field, body.safeParse(sent).error?.issues]).toEqual([nameOf(route), field, undefined]);
      }
    }
  });
});

describe("a map in a body", () => {
  it("is refused by the number of its entries before the schema looks at each", () => {
    const named = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 1]));
    checkFields(one({ environment: named(256) }));
    expect(() => checkFields(one({ environment: named(257) }))).toThrow(
      "items.0.environment: must not have more than 256 entries, received object",
    );
    expect(refusal(one({ environment: named(257) }))).toMatchObject({
      code: "INVALID_ARGUMENT",
      details: { expected: ["<= 256 entries"], received: "object" },
    });
  });
});
