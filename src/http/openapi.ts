/**
 * The description of the API (OpenAPI 3.1), made from the routes themselves: what is validated is what is described.
 * A route that is mounted is in it, and nothing else.
 */
import { z } from "zod";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { JSON_TYPE, type Route } from "./route.ts";

type Json = Readonly<Record<string, unknown>>;

export interface DescribedApi {
  readonly title: string;
  readonly version: string;
  readonly description: string;
  /** What a tag, the second part of a path, stands for. */
  readonly tags: Readonly<Record<string, string>>;
}

/** Answered to every request with a credential (the disk or the memory for answers may be full), and with a body. */
const CREDENTIAL_ERRORS: readonly ErrorCode[] = ["TWO_CREDENTIALS", "UNAUTHORIZED", "RATE_LIMITED", "CAPACITY_FULL"];
const BODY_ERRORS: readonly ErrorCode[] = [
  "INVALID_JSON",
  "INVALID_ARGUMENT",
  "UNPROCESSABLE_ENTITY",
  "BODY_TOO_LARGE",
];

export const errorSchema = z
  .object({
    error: z.string().describe("What is wrong, for people."),
    error_code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]),
    request_id: z.string().describe("As in the X-Request-Id header and in the log."),
    details: z
      .object({
        expected: z.array(z.string()).nullable(),
        received: z.string().nullable(),
        example: z.string().nullable(),
        state: z.string().nullable(),
        exit_code: z.int().nullable(),
      })
      .nullable(),
    hint: z.string().nullable().describe("What the caller can do about it."),
    retry_after: z.int().nullable().describe("Seconds, as in the Retry-After header."),
  })
  .meta({ id: "Error" });

/** Every code that a route may be refused with. */
export function errorsOf({ auth, scope, params, query, body, errors }: Route): ErrorCode[] {
  const codes = new Set<ErrorCode>(["INTERNAL", ...errors]);
  if (auth !== "public") for (const code of CREDENTIAL_ERRORS) codes.add(code);
  if (auth === "operator" || scope !== null) codes.add("FORBIDDEN");
  if (params !== null || query !== null) codes.add("INVALID_ARGUMENT");
  if (body !== null) for (const code of BODY_ERRORS) codes.add(code);
  return [...codes];
}

/** Collects the named schemas of a document while the others are written in place. */
class Schemas {
  readonly named: Record<string, unknown> = {};

  /** As a schema of the document. */
  add(schema: z.ZodType, io: "input" | "output"): Json {
    const {
      $schema: _,
      $defs,
      ...rest
    } = z.toJSONSchema(schema, {
      io,
      unrepresentable: "any",
      override: ({ jsonSchema }) => tidy(jsonSchema, io),
    });
    const text = JSON.stringify({ rest, defs: $defs ?? {} }).replaceAll('"#/$defs/', '"#/components/schemas/');
    const found = JSON.parse(text) as { rest: Json; defs: Json };
    Object.assign(this.named, found.defs);
    return found.rest;
  }
}

/** Leaves out what says nothing: the bounds of a double's whole numbers, and that answers have no more fields today. */
function tidy(schema: { [key: string]: unknown }, io: "input" | "output"): void {
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
  if (io === "output" && schema.additionalProperties === false) delete schema.additionalProperties;
}

/** `/api/functions/:function_id` as `/api/functions/{function_id}`. */
export const templateOf = (path: string): string => path.replace(/:(\w+)/g, "{$1}");

/** The area of a route: `functions` of `/api/functions/…`, `daemon` where the path names none. */
export function tagOf({ path }: Pick<Route, "path">): string {
  const [, first, second] = path.split("/");
  return first === "api" && second !== undefined && second !== "openapi.json" && second !== "docs" ? second : "daemon";
}

export function openApiDocument(routes: readonly Route[], { title, version, description, tags }: DescribedApi): Json {
  const schemas = new Schemas();
  schemas.add(errorSchema, "output");
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = templateOf(route.path);
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route, schemas) };
  }
  const used = new Set(routes.map(tagOf));
  return {
    openapi: "3.1.0",
    info: { title, version, description },
    tags: [...used].map((name) => ({ name, description: tags[name] ?? "" })),
    security: [{ apiKey: [] }, { bearer: [] }],
    paths,
    components: {
      schemas: schemas.named,
      securitySchemes: {
        apiKey: { type: "apiKey", in: "header", name: "X-Api-Key" },
        bearer: { type: "http", scheme: "bearer", description: "An API key or an access token." },
      },
    },
  };
}

function operationOf(route: Route, schemas: Schemas): Json {
  const { operation, summary, auth, scope, body, example } = route;
  return {
    operationId: operation,
    tags: [tagOf(route)],
    summary,
    ...(auth === "public" ? { security: [] } : {}),
    "x-hearth-auth": auth,
    "x-hearth-scope": scope,
    parameters: [...parametersOf(route, "path", schemas), ...parametersOf(route, "query", schemas)],
    ...(body === null
      ? {}
      : {
          requestBody: {
            // An empty body is an empty object.
            required: !body.safeParse({}).success,
            content: {
              [JSON_TYPE]: {
                schema: schemas.add(body, "input"),
                ...(example.body === undefined ? {} : { examples: { example: { value: example.body } } }),
              },
            },
          },
        }),
    responses: responsesOf(route, schemas),
  };
}

function parametersOf({ params, query, example }: Route, place: "path" | "query", schemas: Schemas): Json[] {
  const schema = place === "path" ? params : query;
  if (schema === null) return [];
  const { properties = {}, required = [] } = schemas.add(schema, "input") as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  const examples = (place === "path" ? example.params : example.query) ?? {};
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: place,
    required: place === "path" || required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema: rest,
    ...(examples[name] === undefined ? {} : { example: examples[name] }),
  }));
}

function responsesOf(route: Route, schemas: Schemas): Json {
  const schema = route.response === null ? {} : { schema: schemas.add(route.response, "output") };
  const content = Object.fromEntries(route.content.map((type) => [type, type === JSON_TYPE ? schema : {}]));
  const responses: Record<string, unknown> = { [route.status]: { description: route.summary, content } };
  const byStatus = Map.groupBy(errorsOf(route), (code) => ERRORS[code].status);
  for (const [status, codes] of [...byStatus].sort(([a], [b]) => a - b)) {
    responses[status] = {
      description: codes.join(", "),
      content: { [JSON_TYPE]: { schema: { $ref: "#/components/schemas/Error" } } },
    };
  }
  return responses;
}
