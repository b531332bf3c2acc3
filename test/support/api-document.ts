/** The description of the API as a test reads it: references followed, schemas turned back into validators. */
import { z } from "zod";
import type {
  ApiDocument,
  DocumentOperation,
  DocumentParameter,
  DocumentResponse,
  DocumentSchema,
} from "../../src/docs/openapi-document.ts";

export interface Described extends DocumentOperation {
  readonly method: string;
  readonly path: string;
}

export class Document {
  readonly whole: ApiDocument;
  readonly operations: readonly Described[];

  constructor(whole: ApiDocument) {
    this.whole = whole;
    this.operations = Object.entries(whole.paths).flatMap(([path, item]) =>
      Object.entries(item)
        .filter(([method]) => method !== "parameters")
        .map(([method, operation]) => ({ ...(operation as DocumentOperation), method: method.toUpperCase(), path })),
    );
  }

  operation(method: string, path: string): Described {
    const found = this.operations.find((one) => one.method === method && one.path === path);
    if (found === undefined) throw new Error(`${method} ${path} is not described`);
    return found;
  }

  /** What a reference leads to. Throws when that is nothing. */
  at(ref: string): unknown {
    const found = ref
      .slice("#/".length)
      .split("/")
      .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[key], this.whole);
    if (found === undefined) throw new Error(`${ref} leads nowhere`);
    return found;
  }

  schema(schema: DocumentSchema): DocumentSchema {
    return schema.$ref === undefined ? schema : (this.at(schema.$ref) as DocumentSchema);
  }

  parameters({ parameters }: DocumentOperation): DocumentParameter[] {
    return parameters.map((one) => ("$ref" in one ? (this.at(one.$ref) as DocumentParameter) : one));
  }

  response(operation: DocumentOperation, status: number | string): DocumentResponse | undefined {
    const response = operation.responses[status];
    return response !== undefined && "$ref" in response ? (this.at(response.$ref) as DocumentResponse) : response;
  }

  /** The codes that an operation may answer with at a status. */
  codes(operation: DocumentOperation, status: number): readonly unknown[] {
    const parts = this.response(operation, status)?.content["application/json"]?.schema.allOf as
      | DocumentSchema[]
      | undefined;
    return parts?.flatMap(({ properties }) => properties?.error_code?.enum ?? []) ?? [];
  }

  /** What the document says as a validator of its own, made by the library from the JSON Schema. */
  validator(schema: DocumentSchema): z.ZodType {
    const $defs = Object.fromEntries(this.#schemasOf(schema));
    const text = JSON.stringify({ ...schema, $defs });
    return z.fromJSONSchema(JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/")));
  }

  /** The schemas that a schema names, and those that they name: all of them would make each validator slow. */
  #schemasOf(schema: DocumentSchema): Map<string, DocumentSchema> {
    const found = new Map<string, DocumentSchema>();
    const left = [schema];
    for (let one = left.pop(); one !== undefined; one = left.pop()) {
      for (const [, name = ""] of JSON.stringify(one).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
        const named = this.whole.components.schemas[name];
        if (named === undefined || found.has(name)) continue;
        found.set(name, named);
        left.push(named);
      }
    }
    return found;
  }

  /** Fields of `value` that the schema does not name, as paths. */
  unknownFields(schema: DocumentSchema, value: unknown, path = ""): string[] {
    return this.#walk(schema, value, path).unknown;
  }

  /** Required fields of `value` that the schema names, as paths; the first item stands for a list. */
  fields(schema: DocumentSchema, value: unknown): string[] {
    return this.#walk(schema, value, "").known;
  }

  #walk(schema: DocumentSchema, value: unknown, path: string): { known: string[]; unknown: string[] } {
    const found = { known: [] as string[], unknown: [] as string[] };
    const add = (inner: typeof found) => {
      found.known.push(...inner.known);
      found.unknown.push(...inner.unknown);
    };
    const { properties, required = [], additionalProperties, items, anyOf } = this.schema(schema);
    if (anyOf !== undefined && value !== null) add(this.#walk(anyOf[0] ?? {}, value, path));
    if (items !== undefined && Array.isArray(value)) {
      for (const item of value) add(this.#walk(items, item, `${path}[]`));
    }
    if (properties !== undefined && typeof value === "object" && value !== null) {
      for (const [name, inner] of Object.entries(value)) {
        const property = properties[name];
        if (property === undefined) {
          if (additionalProperties === undefined || additionalProperties === false)
            found.unknown.push(`${path}.${name}`);
          continue;
        }
        if (required.includes(name)) found.known.push(`${path}.${name}`);
        add(this.#walk(property, inner, `${path}.${name}`));
      }
    }
    return { known: [...new Set(found.known)].sort(), unknown: found.unknown };
  }
}
