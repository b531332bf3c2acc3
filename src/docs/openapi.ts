/**
 * The description of the API (OpenAPI 3.1), made from the routes themselves: what is validated is what is described.
 * A route that is mounted is in it, and nothing else.
 */
import { STATUS_CODES } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { JSON_TYPE } from "../base/media-types.ts";
import { isNullAbsent, noFields } from "../http/body-fields.ts";
import type { RequestHeader, Route } from "../http/route.ts";
import type {
  ApiDocument,
  DocumentOperation,
  DocumentParameter,
  DocumentResponse,
  DocumentSchema,
} from "./openapi-document.ts";

type Json = Readonly<Record<string, unknown>>;

export interface DescribedApi {
  readonly title: string;
  readonly version: string;
  readonly description: string;
  /** What a tag, the second part of a path, stands for. */
  readonly tags: Readonly<Record<string, string>>;
}

/** Answered to every request with a credential (it is looked up; the memory for answers may be full), and with a body. */
const CREDENTIAL_ERRORS: readonly ErrorCode[] = [
  "TWO_CREDENTIALS",
  "UNAUTHORIZED",
  "RATE_LIMITED",
  "CAPACITY_FULL",
  "SHUTTING_DOWN",
];
const BODY_ERRORS: readonly ErrorCode[] = [
  "INVALID_JSON",
  "INVALID_ARGUMENT",
  "UNPROCESSABLE_ENTITY",
  "BODY_TOO_LARGE",
];
/** Headers of requests that some routes heed, and what a value of theirs may be refused with. */
const HEEDED: Readonly<
  Record<RequestHeader, { readonly parameter: DocumentParameter; readonly errors: readonly ErrorCode[] }>
> = {
  Range: {
    parameter: {
      name: "Range",
      in: "header",
      description: "One range of bytes (RFC 9110, 14); the daemon ignores any other form.",
      schema: { type: "string" },
      example: "bytes=0-1023",
    },
    errors: ["RANGE_NOT_SATISFIABLE"],
  },
  "X-Tenant-Id": {
    parameter: {
      name: "X-Tenant-Id",
      in: "header",
      required: true,
      description: "Id of the tenant of the credential. Any other route refuses it if it names another tenant.",
      schema: { type: "string" },
      example: "default",
    },
    errors: ["INVALID_ARGUMENT", "FORBIDDEN"],
  },
  "Idempotency-Key": {
    parameter: {
      name: "Idempotency-Key",
      in: "header",
      description: `Key that makes a retry safe, unique per route. For ${LIMITS.idempotency_kept_seconds / 3600} hours the daemon returns the first response again, with the header Idempotent-Replayed. It does not record refusals.`,
      schema: { type: "string", minLength: 1, maxLength: LIMITS.idempotency_key_length_max },
    },
    errors: ["IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_IN_PROGRESS", "INVALID_ARGUMENT"],
  },
};
/** To what is no upgrade to a WebSocket, or one with a handshake that is not whole. */
const SOCKET_ERRORS: readonly ErrorCode[] = ["UPGRADE_REQUIRED", "INVALID_ARGUMENT"];
/** To a body that is handed on as it comes. */
const UPLOAD_ERRORS: readonly ErrorCode[] = ["INVALID_ARGUMENT", "BODY_TOO_LARGE", "REQUEST_TIMEOUT"];

export const errorSchema = z
  .object({
    error: z.string().describe("Problem as text."),
    error_code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]).describe("Code of the problem."),
    request_id: z.string().describe("Id of the request, as in the X-Request-Id header and in the log."),
    details: z
      .object({
        expected: z.array(z.string()).nullable().describe("Accepted values, types or bounds: active, integer, >= 256."),
        received: z.string().nullable().describe("Received value."),
        example: z.string().nullable().describe("Valid value."),
        state: z.string().nullable().describe("State of the resource, if it prevents the request."),
        exit_code: z.int().nullable().describe("Exit code of a failed program."),
        output: z.string().nullable().describe("End of the standard error of a handler that failed."),
      })
      .nullable()
      .describe("Details of the problem; null if there are none."),
    hint: z.string().nullable().describe("Next step for the caller."),
    retry_after: z.int().nullable().describe("Seconds until a retry makes sense, as in the Retry-After header."),
    reason_code: z.string().optional().describe("The error_code, or a more specific reason."),
    reason_message: z.string().optional().describe("The same as error."),
    retryable: z.boolean().optional().describe("True if the same request may succeed later."),
  })
  .meta({
    id: "Error",
    description: "Body of every error response.",
    examples: [
      {
        error: "cannot invoke a function that is paused",
        error_code: "WRONG_STATE",
        request_id: "req_5tx8n0dzk2vq3a7m",
        details: {
          expected: ["active"],
          received: null,
          example: null,
          state: "paused",
          exit_code: null,
          output: null,
        },
        hint: "resume it first",
        retry_after: null,
        reason_code: "WRONG_STATE",
        reason_message: "cannot invoke a function that is paused",
        retryable: false,
      },
    ],
  });

/** Every code that a route may be refused with. */
export function errorsOf(route: Route): ErrorCode[] {
  const { auth, params, query, headers, body, upload, socket, errors } = route;
  const codes = new Set<ErrorCode>(["INTERNAL", ...errors]);
  // FORBIDDEN: without the scope, and under the name of another tenant.
  if (auth !== "public") for (const code of [...CREDENTIAL_ERRORS, "FORBIDDEN"] as const) codes.add(code);
  if (params !== null || query !== null) codes.add("INVALID_ARGUMENT");
  for (const name of headers) for (const code of HEEDED[name].errors) codes.add(code);
  if (body !== null) for (const code of BODY_ERRORS) codes.add(code);
  if (socket !== null) for (const code of SOCKET_ERRORS) codes.add(code);
  if (upload !== null) for (const code of UPLOAD_ERRORS) codes.add(code);
  return [...codes];
}

/** Collects the named schemas of a document while the others are written in place. */
class Schemas {
  readonly named: Record<string, DocumentSchema> = {};

  /** As a schema of the document. */
  add(schema: z.ZodType, use: "input" | "body" | "output"): Json {
    const {
      $schema: _,
      $defs,
      ...rest
    } = z.toJSONSchema(schema, {
      io: use === "output" ? "output" : "input",
      unrepresentable: "any",
      override: ({ zodSchema, jsonSchema }) => {
        tidy(jsonSchema, use);
        if (use === "body" && isNullAbsent(zodSchema)) allowNull(jsonSchema);
        // The library leaves it out where a text of the request becomes another type.
        const stated = z.globalRegistry.get(zodSchema)?.default;
        if (stated !== undefined) jsonSchema.default = stated as typeof jsonSchema.default;
      },
    });
    const text = JSON.stringify({ rest, defs: $defs ?? {} }).replaceAll('"#/$defs/', '"#/components/schemas/');
    const found = JSON.parse(text) as { rest: Json; defs: Json };
    Object.assign(this.named, found.defs);
    return found.rest;
  }
}

type Mutable = { [key: string]: unknown };

/** Leaves out what says nothing: the bounds of a double's whole numbers, and that answers have no more fields today. */
function tidy(schema: Mutable, use: "input" | "body" | "output"): void {
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
  if (use === "output" && schema.additionalProperties === false) delete schema.additionalProperties;
  if (use === "body" && schema.properties !== undefined) schema.additionalProperties = false;
}

/** Keywords that stand beside an alternative, and hold for all of them. */
const ANNOTATIONS = new Set(["description", "default", "examples", "title", "deprecated", "id"]);

/** The schema, or null. */
function allowNull(schema: Mutable): void {
  if (schema.type === "null") return;
  const inner: Mutable = {};
  for (const [key, value] of Object.entries(schema)) {
    if (ANNOTATIONS.has(key)) continue;
    inner[key] = value;
    delete schema[key];
  }
  schema.anyOf = [inner, { type: "null" }];
}

/** `/api/functions/:function_id` as `/api/functions/{function_id}`. */
export const templateOf = (path: string): string => path.replace(/:(\w+)/g, "{$1}").replace(/\*$/, "{path}");

/** The concern of a route: `functions` of `/api/functions/…`, `daemon` where the path names none. */
function tagOf({ path }: Pick<Route, "path">): string {
  const [, first, second] = path.split("/");
  const isDescription = second === "openapi.json" || second === "docs" || second === "schemas";
  return first === "api" && second !== undefined && !isDescription ? second : "daemon";
}

/** Headers of answers. */
const HEADERS = {
  "X-Request-Id": {
    description: "Id of the request, also in the log: the client's own if it is valid, otherwise a new one.",
    schema: { type: "string" },
  },
  "Retry-After": { description: "Seconds until a retry makes sense.", schema: { type: "integer", minimum: 1 } },
  RateLimit: {
    description: "Remaining requests and seconds until the full quota; only if the tenant has a request limit.",
    schema: { type: "string" },
    example: '"tenant";r=99;t=1',
  },
  "RateLimit-Policy": {
    description: "Burst size and the seconds in which it refills.",
    schema: { type: "string" },
    example: '"tenant";q=100;w=1',
  },
  "Content-Range": {
    description: "Range of the bytes sent, and the total size.",
    schema: { type: "string" },
    example: "bytes 0-1023/4096",
  },
  "Idempotent-Replayed": {
    description: "true if this is the recorded response of an earlier request with the same Idempotency-Key.",
    schema: { type: "string", enum: ["true"] },
  },
  "WWW-Authenticate": { description: "Challenge: the route requires a credential.", schema: { type: "string" } },
} as const;
type HeaderName = keyof typeof HEADERS;

/** Headers that any request may have. */
const REQUEST_HEADERS = {
  "X-Request-Id": {
    name: "X-Request-Id",
    in: "header",
    description: `Id of the request for the response and the log: up to ${LIMITS.request_id_length_max} printable characters.`,
    schema: { type: "string", maxLength: LIMITS.request_id_length_max },
  },
  traceparent: {
    name: "traceparent",
    in: "header",
    description: "W3C trace context of the caller, which the request continues.",
    schema: { type: "string", pattern: "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$" },
    example: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  },
} as const;

const refTo = (kind: string, name: string): { readonly $ref: string } => ({ $ref: `#/components/${kind}/${name}` });

const headersOf = (...names: readonly HeaderName[]): Json =>
  Object.fromEntries(names.map((name) => [name, refTo("headers", name)]));

/** What stands once in `components` and is pointed to. */
class Components {
  readonly schemas = new Schemas();
  readonly responses: Record<string, DocumentResponse> = {};
  readonly parameters: Record<string, DocumentParameter> = { ...REQUEST_HEADERS };

  /** The refusals of one status, by their codes. */
  refusal(codes: readonly ErrorCode[], isLimited: boolean): Json {
    const [first = "INTERNAL"] = codes;
    const { status } = ERRORS[first];
    const name = `${codes.join(".")}${isLimited ? "" : ".public"}`;
    const rates: readonly HeaderName[] = isLimited && status !== 401 ? ["RateLimit", "RateLimit-Policy"] : [];
    this.responses[name] = {
      description: codes.map((code) => `\`${code}\`: ${ERRORS[code].about}`).join("\n\n"),
      headers: headersOf(
        "X-Request-Id",
        ...(codes.some((code) => ERRORS[code].retryable) ? (["Retry-After"] as const) : []),
        ...(status === 401 ? (["WWW-Authenticate"] as const) : []),
        ...rates,
      ),
      content: {
        [JSON_TYPE]: {
          schema: {
            allOf: [refTo("schemas", "Error"), { type: "object", properties: { error_code: { enum: codes } } }],
          },
        },
      },
    };
    return refTo("responses", name);
  }

  /** A parameter: a reference to one of the same name where that says the same. */
  parameter(parameter: DocumentParameter): DocumentOperation["parameters"][number] {
    const { name } = parameter;
    this.parameters[name] ??= parameter;
    return isDeepStrictEqual(this.parameters[name], parameter) ? refTo("parameters", name) : parameter;
  }
}

export function openApiDocument(
  routes: readonly Route[],
  { title, version, description, tags }: DescribedApi,
): ApiDocument {
  const components = new Components();
  const { schemas } = components;
  schemas.add(errorSchema, "output");
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = templateOf(route.path);
    paths[path] ??= { parameters: Object.keys(REQUEST_HEADERS).map((name) => refTo("parameters", name)) };
    paths[path][route.method.toLowerCase()] = operationOf(route, components);
  }
  const used = new Set(routes.map(tagOf));
  const isQueried = routes.some(({ query_credential }) => query_credential);
  return {
    openapi: "3.1.0",
    info: { title, version, description },
    servers: [{ url: "/", description: "This daemon." }],
    tags: [...used].map((name) => ({ name, description: tags[name] ?? "" })),
    security: [{ apiKey: [] }, { bearer: [] }],
    paths,
    components: {
      schemas: schemas.named,
      responses: components.responses,
      parameters: components.parameters,
      headers: HEADERS,
      securitySchemes: {
        apiKey: {
          type: "apiKey",
          in: "header",
          name: "X-Api-Key",
          description: "An API key. Send only one credential.",
        },
        bearer: {
          type: "http",
          scheme: "bearer",
          description: "An API key or an access token. Send only one credential.",
        },
        ...(isQueried ? { token: QUERY_CREDENTIAL } : {}),
      },
    },
  };
}

/** For clients that cannot send headers. It reaches neither the log nor a trace. */
const QUERY_CREDENTIAL = {
  type: "apiKey",
  in: "query",
  name: "token",
  description: "An API key or an access token, for clients that cannot set headers. Send only one credential.",
};

/** What a request needs, in words. */
function credentialText({ auth, scope }: Pick<Route, "auth" | "scope">): string {
  if (auth === "public") return "No credential.";
  if (auth === "operator") return `The operator's key, with scope ${scope}.`;
  return scope === null ? "Any credential." : `A credential with scope ${scope}.`;
}

function operationOf(route: Route, components: Components): Json {
  const { operation, summary, auth, scope, query_credential, socket } = route;
  // OpenAPI 3.1 lets a requirement name roles, whatever the scheme: here they are scopes.
  const scopes = scope === null ? [] : [scope];
  return {
    operationId: operation,
    tags: [tagOf(route)],
    summary,
    description:
      socket === null
        ? credentialText(route)
        : `A WebSocket with the sub-protocol \`${socket.protocol}\`. ${credentialText(route)}`,
    security:
      auth === "public"
        ? []
        : [{ apiKey: scopes }, { bearer: scopes }, ...(query_credential ? [{ token: scopes }] : [])],
    "x-hearth-auth": auth,
    "x-hearth-scope": scope,
    parameters: [
      ...parametersOf(route, "path", components),
      ...parametersOf(route, "query", components),
      ...route.headers.map((name) => components.parameter(HEEDED[name].parameter)),
    ],
    ...requestBodyOf(route, components),
    responses: responsesOf(route, components),
  };
}

function requestBodyOf({ body, upload, example }: Route, { schemas }: Components): Json {
  if ((body === null || body === noFields) && upload === null) return {};
  const raw = (upload?.content ?? []).map((type) => [type, { schema: { type: "string", format: "binary" } }] as const);
  const json = body === null ? [] : [[JSON_TYPE, media(schemas.add(body, "body"), example.body)] as const];
  return {
    requestBody: {
      // An empty body is an empty object.
      required: upload !== null || body?.safeParse({}).success === false,
      content: Object.fromEntries([...raw, ...json]),
    },
  };
}

const media = (schema: Json, example: unknown): Json => ({ schema, ...(example === undefined ? {} : { example }) });

function parametersOf({ params, query, example }: Route, place: "path" | "query", components: Components) {
  const schema = place === "path" ? params : query;
  if (schema === null) return [];
  const { properties = {}, required = [] } = components.schemas.add(schema, "input") as {
    properties?: Record<string, DocumentSchema>;
    required?: string[];
  };
  const examples = (place === "path" ? {} : example.query) ?? {};
  return Object.entries(properties).map(([name, { description, ...rest }]) =>
    components.parameter({
      name,
      in: place,
      required: place === "path" || required.includes(name),
      ...(description === undefined ? {} : { description }),
      schema: rest,
      ...(examples[name] === undefined
        ? {}
        : { example: rest.type === "integer" ? Number(examples[name]) : examples[name] }),
    }),
  );
}

function responsesOf(route: Route, components: Components): Json {
  const isLimited = route.auth !== "public";
  const content = Object.fromEntries(
    route.content.map((type) => [
      type,
      type === JSON_TYPE && route.response !== null
        ? media(components.schemas.add(route.response, "output"), route.example.response)
        : { schema: { type: "string" } },
    ]),
  );
  const every: readonly HeaderName[] = [
    "X-Request-Id",
    ...(isLimited ? (["RateLimit", "RateLimit-Policy"] as const) : []),
    ...(route.headers.includes("Idempotency-Key") ? (["Idempotent-Replayed"] as const) : []),
  ];
  const normal = (status: number, content: Json, ...more: readonly HeaderName[]): Json => ({
    description: STATUS_CODES[status] ?? "",
    headers: headersOf(...every, ...more),
    content,
  });
  const responses: Record<string, unknown> = { [route.status]: normal(route.status, content) };
  if (route.headers.includes("Range")) {
    const raw = Object.entries(content).filter(([type]) => type !== JSON_TYPE);
    responses[206] = normal(206, Object.fromEntries(raw), "Content-Range");
  }
  if (route.other !== null) {
    const { status, response, example } = route.other;
    responses[status] = normal(status, { [JSON_TYPE]: media(components.schemas.add(response, "output"), example) });
  }
  const byStatus = Map.groupBy(errorsOf(route).sort(), (code) => ERRORS[code].status);
  for (const [status, codes] of [...byStatus].sort(([a], [b]) => a - b)) {
    responses[status] = components.refusal(codes, isLimited);
  }
  return responses;
}
