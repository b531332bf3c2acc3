/**
 * A route as data: path, who may call it, schemas, examples and handler in one object. The schemas are written once and
 * serve validation, the handler's types, the client's types (src/client) and the API description (openapi.ts).
 * Mounting is server.ts's, serving serve.ts's.
 */
import type { z } from "zod";
import type { Answer, ListAnswer, Streamed } from "../base/answer.ts";
import type { AuthClass, Caller, Scope } from "../base/caller.ts";
import { type ErrorBody, type ErrorCode, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { JSON_TYPE } from "../base/media-types.ts";
import type { RequestNotes } from "../base/request-observer.ts";
import type { Upgrade } from "../base/sockets.ts";
import type { Trace } from "../base/trace.ts";
import type { Once } from "../store/store.ts";
import { bodyFields, noFields } from "./body-fields.ts";
import type { Page } from "./cursors.ts";
import type { BodyLimits, ExactFields } from "./input.ts";
import type { Upload, UploadOptions } from "./upload.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface RouteRequest<Auth extends AuthClass, Params, Query, Body, Stream = null> {
  readonly caller: Auth extends "public" ? null : Caller;
  /** Decoded path parameters. */
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  /** The raw body of a route with `upload`, or its `base64_field`; null where its body came as JSON. */
  readonly stream: Stream;
  readonly request_id: string;
  /** Its place in a trace: what its handler calls goes under `span_id`. */
  readonly trace: Trace;
  /** Aborted when the client goes away before the answer. Made on first use: leave it alone where it is not needed. */
  readonly signal: AbortSignal;
  /** Null where the request carries no Idempotency-Key, or its route takes none. */
  readonly once: Once | null;
  /** The part of a list that a route with `pageQuery` is asked for. Throws INVALID_ARGUMENT for a foreign cursor. */
  page(): Page;
  /** A request header by its lower-case name. */
  header(name: string): string | null;
  /** The other end of the connection; null once it has gone. */
  readonly address: string | null;
  /**
   * Rejects once the credential of the request is no longer good; undefined where that is known at once. For answers
   * that outlast the moment in which they began.
   */
  recheck(): Promise<void> | undefined;
  /** Tells what the request was about, for the log and the metrics. Later notes go over earlier ones. */
  note(notes: RequestNotes): void;
}

/** A request header that means something to some routes only. */
export type RequestHeader = "Range" | "Idempotency-Key" | "X-Tenant-Id";

/**
 * What a handler returns: the JSON body, an `Answer`, a `Streamed` for what comes in pieces, for pages and small raw
 * bytes a whole `Response`, and of a route with `socket` an `Upgrade`.
 */
type Result<Body> = Body | Answer<Body> | ListAnswer | Streamed | Upgrade | Response;

export type Output<Schema, Fallback> = Schema extends z.ZodType ? z.output<Schema> : Fallback;
type Input<Schema> = Schema extends z.ZodType ? z.input<Schema> : undefined;

/** A request that works on a daemon, with its answer; a test runs each. `{function_id}` stands for one that exists. */
export interface RouteExample<Body = unknown> {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** What a daemon answered once: the same fields as it answers today. */
  readonly response?: Body;
}

/** Another normal answer of a route than its own: the handle of an operation in place of a record, or the reverse. */
export interface OtherAnswer<Response extends z.ZodType | undefined = z.ZodType> {
  readonly status: number;
  readonly response: Response;
  /** What a daemon answered once. */
  readonly example?: Output<Response, unknown>;
}

export interface SocketOptions {
  /** The sub-protocol that is selected where a client offers it. */
  readonly protocol: string;
}

interface Definition<
  M extends Method,
  P extends string,
  Auth extends AuthClass,
  Params extends z.ZodType | undefined,
  Query extends z.ZodType | undefined,
  Body extends z.ZodType | undefined,
  Response extends z.ZodType | undefined,
  Other extends z.ZodType | undefined,
  Sent extends UploadOptions | undefined,
  Field extends string | undefined,
> {
  readonly method: M;
  /** `/api/functions/:function_id`; a last segment `*` takes the rest of the path, as the parameter `path`. */
  readonly path: P;
  readonly auth: Auth;
  /** What a key needs. Of a public route none; `null` where any key will do. */
  readonly scope?: Scope | null;
  /** The name of the operation in the API description, unique. */
  readonly operation: string;
  readonly summary: string;
  readonly params?: Params;
  readonly query?: Query;
  /**
   * Request headers that it heeds. With `Range` it answers parts of its content with 206. With `Idempotency-Key` it
   * answers JSON, which is recorded with all that it tells: a route that shows a secret takes it only with `recorded`. Its body is read whole,
   * since the hash of the request covers it. With `X-Tenant-Id` it refuses a request without that header; any route refuses
   * one that names another tenant.
   */
  readonly headers?: readonly RequestHeader[];
  /** Without it a POST, PUT or PATCH takes an object without fields, and a body of the others is not read. */
  readonly body?: Body;
  /** Fields of the body whose numbers stay as they were sent. */
  readonly exact_fields?: ExactFields;
  /** Size of a body that is read whole; `LIMITS.body_bytes_max` unless given. */
  readonly body_bytes_max?: number;
  /** The body is handed on raw, as `stream`; beside `body`, unless it is sent as `application/json`. */
  readonly upload?: Sent;
  /** The field of a JSON body that holds a file in base64: it is handed on decoded, as `stream`, and is empty in `body`. */
  readonly base64_field?: Field;
  /** Takes the credential as `?token=` too, for clients that cannot send headers: event streams of browsers. */
  readonly query_credential?: boolean;
  /** The request becomes a WebSocket; whatever else comes is refused. Only for GET. */
  readonly socket?: SocketOptions;
  /** Of the JSON answer; absent where it answers no JSON. */
  readonly response?: Response;
  /** Given as an `Answer` with that status. */
  readonly other?: OtherAnswer<Other>;
  /** Of the normal answer; 200 unless given, 101 of a socket. */
  readonly status?: number;
  /**
   * For JSON answers that may take longer than clients wait for headers: the status with which these leave early
   * (early-headers.ts). A later refusal cuts the connection, so only for routes that refuse before they begin to work.
   */
  readonly early_status?: (query: Output<Query, undefined>) => number | null;
  /** The body of its normal answer that tells of a refusal after these headers left, in place of a cut connection. */
  readonly late_refusal?: (refusal: ErrorBody) => Output<Response, unknown>;
  /** Media types that it answers; `application/json` unless given. */
  readonly content?: readonly string[];
  /** Refusals beyond those that every route of its kind has. */
  readonly errors?: readonly ErrorCode[];
  readonly example?: RouteExample<Output<Response, unknown>>;
  /**
   * For an answer that shows a secret: `keep` returns what the record of an Idempotency-Key has of it, and `recall` makes the
   * answer of a repeated request from that.
   */
  readonly recorded?: Recorded<Output<Response, unknown>>;
  readonly handler: (
    request: RouteRequest<
      Auth,
      Output<Params, Readonly<Record<string, string>>>,
      Output<Query, undefined>,
      Sent extends UploadOptions ? Output<Body, undefined> | undefined : Output<Body, undefined>,
      Field extends string
        ? Upload
        : Sent extends UploadOptions
          ? Body extends z.ZodType
            ? Upload | null
            : Upload
          : null
    >,
  ) => Outcome<Response, Other> | Promise<Outcome<Response, Other>>;
}

/** Converts an answer to the form that the idempotency record keeps, and back. */
export interface Recorded<Body = unknown> {
  keep(body: Body): Readonly<Record<string, string>>;
  recall(tenant_id: string, kept: Readonly<Record<string, string>>): Promise<Body>;
}

type Outcome<Response, Other> =
  | Result<Output<Response, unknown>>
  | (Other extends z.ZodType ? Answer<z.output<Other>> : never);

/** A route whose handler's types were checked by `route` and are erased since. */
export interface Route {
  readonly method: Method;
  readonly path: string;
  readonly auth: AuthClass;
  readonly scope: Scope | null;
  readonly operation: string;
  readonly summary: string;
  readonly params: z.ZodType | null;
  readonly query: z.ZodType | null;
  readonly headers: readonly RequestHeader[];
  readonly body: z.ZodType | null;
  readonly exact_fields: ExactFields;
  readonly body_limits: BodyLimits;
  /** Refuses unknown fields of a body, before `body` validates it. */
  readonly checkFields: (body: unknown) => void;
  readonly upload: UploadOptions | null;
  readonly base64_field: string | null;
  readonly query_credential: boolean;
  readonly socket: SocketOptions | null;
  readonly response: z.ZodType | null;
  readonly other: OtherAnswer | null;
  readonly status: number;
  readonly early_status: ((query: unknown) => number | null) | null;
  readonly late_refusal: ((refusal: ErrorBody) => unknown) | null;
  readonly content: readonly string[];
  readonly errors: readonly ErrorCode[];
  readonly example: RouteExample;
  readonly recorded: Recorded | null;
  readonly handler: (request: RouteRequest<AuthClass, unknown, unknown, unknown, Upload | null>) => unknown;
}

/** A route that still knows its types, for the client. `types` is never there at run time. */
export interface TypedRoute<M extends Method, P extends string, Query, Body, Response> extends Route {
  readonly method: M;
  readonly path: P;
  readonly types?: { readonly query: Query; readonly body: Body; readonly response: Response };
}

export function route<
  const M extends Method,
  const P extends string,
  const Auth extends AuthClass,
  Params extends z.ZodType | undefined = undefined,
  Query extends z.ZodType | undefined = undefined,
  Body extends z.ZodType | undefined = undefined,
  Response extends z.ZodType | undefined = undefined,
  Other extends z.ZodType | undefined = undefined,
  const Sent extends UploadOptions | undefined = undefined,
  const Field extends string | undefined = undefined,
>(
  definition: Definition<M, P, Auth, Params, Query, Body, Response, Other, Sent, Field>,
): TypedRoute<M, P, Input<Query>, Input<Body>, Output<Response, unknown> | Output<Other, never>> {
  const { method, path, auth, scope, operation, summary, params, query, response } = definition;
  const { socket = null, headers = [] } = definition;
  const isStreamed = definition.upload !== undefined || definition.base64_field !== undefined;
  invariant(!headers.includes("Idempotency-Key") || !isStreamed, `${operation} would repeat a request unread`);
  const isSent = method === "POST" || method === "PUT" || method === "PATCH";
  const body = definition.body ?? (isSent && definition.upload === undefined ? noFields : null);
  return {
    method,
    path,
    auth,
    scope: scope ?? null,
    operation,
    summary,
    params: params ?? null,
    query: query ?? null,
    headers,
    body,
    exact_fields: definition.exact_fields ?? [],
    body_limits: { ...LIMITS, body_bytes_max: definition.body_bytes_max ?? LIMITS.body_bytes_max },
    checkFields: body === null ? () => {} : bodyFields(body, definition.example?.body),
    upload: definition.upload ?? null,
    base64_field: definition.base64_field ?? null,
    query_credential: definition.query_credential ?? false,
    socket,
    response: response ?? null,
    other: (definition.other as OtherAnswer | undefined) ?? null,
    status: definition.status ?? (socket === null ? 200 : 101),
    // `serve` gives it what this very schema made of the query.
    early_status: (definition.early_status as Route["early_status"] | undefined) ?? null,
    late_refusal: definition.late_refusal ?? null,
    content: definition.content ?? (socket === null ? [JSON_TYPE] : []),
    errors: definition.errors ?? [],
    example: definition.example ?? {},
    recorded: (definition.recorded as Recorded | undefined) ?? null,
    // `serve` builds the request from these very schemas and this auth class.
    handler: definition.handler as Route["handler"],
  };
}
