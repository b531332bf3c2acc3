/** The description of the API: well formed, whole, and the same as the interface where that says something. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { ApiDocument, DocumentSchema } from "../../src/docs/openapi-document.ts";
import { Document } from "../support/api-document.ts";
import { EXTRA_CREATE_FIELDS, type Fields, INTERFACE, NOT_MOUNTED, REFUSED_FIELDS } from "../support/interface.ts";
import { ROUTES } from "../support/routes.ts";

const made = ROUTES.find(({ operation }) => operation === "openapi")?.handler({} as never);
// As a client gets it.
const document = new Document(JSON.parse(JSON.stringify(made)) as ApiDocument);
const { operations, whole } = document;

/** What OpenAPI 3.1.0 asks of the objects that this document uses, nothing beside it but `x-…` fields. */
function shapes() {
  const reference = z.strictObject({ $ref: z.string().startsWith("#/components/") });
  const schema = z.record(z.string(), z.unknown());
  const media = z.strictObject({ schema, example: z.unknown().optional() });
  const content = z.record(z.string().regex(/^[a-z]+\/[a-z0-9.+-]+$/), media);
  const header = z.strictObject({ description: z.string(), schema, example: z.unknown().optional() });
  const headers = z.record(z.string(), z.union([reference, header]));
  const parameter = z.strictObject({
    name: z.string(),
    in: z.enum(["path", "query", "header"]),
    required: z.boolean().optional(),
    description: z.string(),
    schema,
    example: z.unknown().optional(),
  });
  const parameters = z.array(z.union([reference, parameter]));
  const response = z.strictObject({ description: z.string().min(1), headers, content });
  const operation = z.strictObject({
    operationId: z.string(),
    tags: z.array(z.string()).length(1),
    summary: z.string(),
    description: z.string(),
    security: z.array(z.record(z.enum(["apiKey", "bearer", "token"]), z.array(z.string()).optional())),
    "x-hearth-auth": z.string(),
    "x-hearth-scope": z.string().nullable(),
    parameters,
    requestBody: z.strictObject({ required: z.boolean(), content }).optional(),
    responses: z.record(z.string().regex(/^[1-5]\d\d$/), z.union([reference, response])),
  });
  const item = z.strictObject({
    parameters,
    get: operation.optional(),
    put: operation.optional(),
    post: operation.optional(),
    delete: operation.optional(),
    patch: operation.optional(),
  });
  const name = z.string().regex(/^[a-zA-Z0-9._-]+$/);
  return z.strictObject({
    openapi: z.literal("3.1.0"),
    info: z.strictObject({ title: z.string(), version: z.string(), description: z.string() }),
    servers: z.array(z.strictObject({ url: z.string(), description: z.string() })),
    tags: z.array(z.strictObject({ name: z.string(), description: z.string().min(1) })),
    security: z.array(z.record(z.string(), z.array(z.string()))),
    paths: z.record(z.string().startsWith("/"), item),
    components: z.strictObject({
      schemas: z.record(name, schema),
      responses: z.record(name, response),
      parameters: z.record(name, parameter),
      headers: z.record(name, header),
      securitySchemes: z.record(name, z.record(z.string(), z.string())),
    }),
  });
}

/** Every schema of the document, with the place where it stands. */
function schemasOf(node: unknown, path: string): [string, DocumentSchema][] {
  if (typeof node !== "object" || node === null) return [];
  return Object.entries(node).flatMap(([key, value]): [string, DocumentSchema][] => {
    if (key === "example" || key === "examples" || key === "default" || key === "enum") return [];
    const inner = schemasOf(value, `${path}/${key}`);
    if (key === "schema") return [[`${path}/${key}`, value as DocumentSchema], ...inner];
    if (key === "schemas") return [...Object.entries(value as Record<string, DocumentSchema>), ...inner];
    return inner;
  });
}

/** Every property of every object, however deep, by its path. */
function propertiesOf(schema: DocumentSchema, path: string): [string, DocumentSchema][] {
  const { properties = {}, items, anyOf = [] } = schema;
  return [
    ...Object.entries(properties).flatMap(([name, inner]): [string, DocumentSchema][] => [
      [`${path}.${name}`, inner],
      ...propertiesOf(inner, `${path}.${name}`),
    ]),
    ...[...(items === undefined ? [] : [items]), ...anyOf].flatMap((inner) => propertiesOf(inner, path)),
  ];
}

describe("the description of the API", () => {
  it("has the form of OpenAPI 3.1", () => {
    expect(shapes().safeParse(whole).error?.issues).toBeUndefined();
  });

  it("leads somewhere with every reference", () => {
    const refs = [...JSON.stringify(whole).matchAll(/"\$ref":"([^"]+)"/g)].map(([, ref]) => ref ?? "");
    expect(refs.length).toBeGreaterThan(100);
    for (const ref of refs) expect(document.at(ref)).toBeTypeOf("object");
  });

  it("keeps nothing in components that nothing points to", () => {
    const text = JSON.stringify(whole);
    const names = (["schemas", "responses", "parameters", "headers"] as const).flatMap((kind) =>
      Object.keys(whole.components[kind]).map((name) => `#/components/${kind}/${name}`),
    );
    expect(names.filter((name) => !text.includes(`"${name}"`))).toEqual([]);
  });

  it("names each operation once and declares the parameters of its path, no more", () => {
    const names = operations.map(({ operationId }) => operationId);
    expect(new Set(names).size).toBe(names.length);
    for (const operation of operations) {
      const wanted = [...operation.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      const declared = document.parameters(operation).filter((one) => one.in === "path");
      expect(declared.map(({ name }) => name)).toEqual(wanted);
      expect(declared.filter(({ required }) => !required)).toEqual([]);
    }
  });

  it("says of every field and parameter what it means", () => {
    const named = Object.entries(whole.components.schemas).flatMap(([name, schema]) => propertiesOf(schema, name));
    const inPlace = schemasOf(whole.paths, "").flatMap(([path, schema]) => propertiesOf(schema, path));
    const silent = [...named, ...inPlace].filter(
      ([, schema]) => schema.description === undefined && schema.$ref === undefined,
    );
    expect(silent.map(([path]) => path)).toEqual([]);
    expect(Object.values(whole.components.parameters).filter(({ description }) => !description)).toEqual([]);
  });

  it("has an example answer of everything that answers JSON, but for the guides and itself", () => {
    const without = operations.filter(({ responses }) =>
      Object.entries(responses).some(
        ([status, response]) =>
          status < "400" &&
          !("$ref" in response) &&
          response.content["application/json"] !== undefined &&
          response.content["application/json"].example === undefined,
      ),
    );
    expect(without.map(({ operationId }) => operationId).sort()).toEqual([
      "containersExamples",
      "containersHelp",
      "functionsExamples",
      "functionsHelp",
      "iccExamples",
      "iccHelp",
      "nightlyExamples",
      "nightlyHelp",
      "ociExamples",
      "ociHelp",
      "openapi",
      "projectSchema",
    ]);
  });
});

describe("the schemas of the description", () => {
  const examples = operations.flatMap((operation) => {
    const bodies = Object.values(operation.requestBody?.content ?? {});
    const answers = Object.keys(operation.responses).flatMap((status) =>
      Object.values(document.response(operation, status)?.content ?? {}),
    );
    return [...bodies, ...answers]
      .filter(({ example }) => example !== undefined)
      .map(({ schema, example }) => ({ name: operation.operationId, schema, example: example as object }));
  });

  it("are JSON Schema that makes a validator", () => {
    const all = [...schemasOf(whole, "")];
    expect(all.length).toBeGreaterThan(60);
    for (const [, schema] of all) expect(document.validator(schema)).toBeDefined();
  });

  it("accept their examples, which have no field that they do not name", () => {
    expect(examples.length).toBeGreaterThan(40);
    for (const { name, schema, example } of examples) {
      expect([name, document.validator(schema).safeParse(example).error]).toEqual([name, undefined]);
      expect([name, document.unknownFields(schema, example)]).toEqual([name, []]);
    }
  });

  it("refuse an example without a required field, and one with a field of another type", () => {
    for (const { name, schema, example } of examples) {
      const validator = document.validator(schema);
      const { properties = {}, required = [] } = document.schema(schema);
      for (const field of required) {
        const { [field]: _, ...rest } = example as Record<string, unknown>;
        expect([name, field, validator.safeParse(rest).success]).toEqual([name, field, false]);
      }
      for (const field of Object.keys(properties)) {
        // Neither a text, a number, a flag, a list, an object nor null.
        const wrong = validator.safeParse({ ...example, [field]: Symbol("wrong") });
        expect([name, field, wrong.success]).toEqual([name, field, false]);
      }
    }
  });

  it("tell apart the codes that an operation has from those that it has not", () => {
    const list = document.operation("GET", "/api/functions");
    const { schema } = document.response(list, 403)?.content["application/json"] ?? { schema: {} };
    const [example] = (whole.components.schemas.Error?.examples ?? []) as readonly object[];
    const validator = document.validator(schema);
    expect(validator.safeParse({ ...example, error_code: "FORBIDDEN" }).success).toBe(true);
    expect(validator.safeParse({ ...example, error_code: "NAME_TAKEN" }).success).toBe(false);
    expect(validator.safeParse({ ...example, error_code: "FORBIDDEN", hint: 7 }).success).toBe(false);
  });
});

/** Fields that the interface shows with a value only. */
const NULLABLE = new Set(["exit_code", "pid", "ip_address", "started_at", "cpu_limit_percent"]);

describe("the description and the interface", () => {
  const typesOf = (schema: DocumentSchema): string[] =>
    schema.anyOf?.flatMap(typesOf) ??
    [schema.type ?? (schema.const === undefined ? "anything" : typeof schema.const)].flat();

  /** A request may allow more (null, to clear); an answer has just what is said. */
  const differences = (wanted: Fields, described: DocumentSchema, isExact: boolean) =>
    Object.entries(wanted).filter(([name, type]) => {
      const types = typesOf(document.schema(described).properties?.[name] ?? {});
      const isThere = type.split(" or ").every((one) => types.includes(one));
      return !(isThere && (!isExact || types.length === type.split(" or ").length));
    });

  const built = Object.entries(INTERFACE).filter(([name]) => !NOT_MOUNTED.includes(name));
  const rows = built.map(([name, row]) => {
    const [method = "", path = ""] = name.split(" ");
    return {
      name,
      row,
      operation: document.operation(method, path.replace(/:(\w+)/g, "{$1}").replace(/\*$/, "{path}")),
    };
  });

  it("name the same fields of bodies, of the same types, and require the same", () => {
    for (const { name, row, operation } of rows) {
      const schema = operation.requestBody?.content["application/json"]?.schema;
      expect([name, schema === undefined]).toEqual([name, row.body === undefined]);
      if (schema === undefined || row.body === undefined) continue;
      const taken = Object.fromEntries(Object.entries(row.body).filter(([field]) => !(field in REFUSED_FIELDS)));
      expect([name, differences(taken, schema, false)]).toEqual([name, []]);
      if (row.required !== undefined) expect([name, document.schema(schema).required]).toEqual([name, row.required]);
      const extras = Object.keys(document.schema(schema).properties ?? {}).filter(
        (field) => !(field in (row.body ?? {})),
      );
      expect(extras.filter((field) => !(field in EXTRA_CREATE_FIELDS))).toEqual([]);
    }
  });

  it("name the same parameters of queries", () => {
    for (const { row, operation } of rows) {
      for (const [field, type] of Object.entries(row.query ?? {})) {
        const parameter = document.parameters(operation).find((one) => one.in === "query" && one.name === field);
        expect([operation.operationId, parameter?.required, typesOf(parameter?.schema ?? {})]).toEqual([
          operation.operationId,
          row.required_query === field,
          [type],
        ]);
      }
    }
  });

  it("name the same fields of answers, always there, of the same types", () => {
    for (const { name, row, operation } of rows) {
      if (row.answer === undefined) continue;
      const schema = document.response(operation, 200)?.content["application/json"]?.schema ?? {};
      // What is not there is null: of a container that does not run, or without a quota. A handler that was ended has
      // no exit code; the interface shows one that exited.
      const exact = Object.fromEntries(Object.entries(row.answer).filter(([field]) => !NULLABLE.has(field)));
      expect([name, differences(exact, schema, true), differences(row.answer, schema, false)]).toEqual([name, [], []]);
      const { required = [] } = document.schema(schema);
      expect(Object.keys(row.answer).filter((field) => !required.includes(field))).toEqual([]);
    }
  });

  it("agree on credentials", () => {
    for (const { name, row, operation } of rows) {
      expect([name, operation["x-hearth-auth"]]).toEqual([name, row.public ? "public" : "tenant"]);
    }
  });

  it("agree on limits, defaults and what is left out", () => {
    const { CreateFunction, RollbackFunction, Invocation } = whole.components.schemas;
    expect(CreateFunction?.properties?.memory_limit_mb?.anyOf?.[0]?.minimum).toBe(256);
    expect(CreateFunction?.properties?.runtime?.default).toBe("shell");
    expect(CreateFunction?.properties?.source_code?.type).toBe("null");
    expect(CreateFunction?.properties?.cluster_id?.type).toBe("null");
    // `{ version }` exactly.
    expect(RollbackFunction?.additionalProperties).toBe(false);
    expect(Invocation?.properties?.status?.enum).toContain("success");
    const format = document
      .parameters(document.operation("GET", "/api/functions/help"))
      .find(({ name }) => name === "format");
    expect(format?.schema.enum).toContain("markdown");
    for (const guide of ["help", "examples", "health"]) {
      const { content } = document.response(document.operation("GET", `/api/functions/${guide}`), 200) ?? {};
      expect(Object.keys(content ?? {})).toEqual(["application/json", "text/markdown"]);
    }
  });
});
