/**
 * The one error table. A code fixes the HTTP status, whose fault the error is, and whether the same request may
 * succeed later. No status number stands anywhere else: lower layers name codes, `http/errors.ts` reads the status.
 *
 * Three kinds are never mixed: an *outcome* is data in a 200 record (a failed invocation), a *refusal* is an
 * `AppError` with a code from this table, a *fault* is a broken invariant or an unknown throw (INTERNAL).
 */

/** Who has to change something for the request to succeed. Decides whether an instance is used again. */
export type Fault = "caller" | "function" | "platform";

interface ErrorRow {
  readonly status: number;
  readonly fault: Fault;
  /** Meaning, for the description of the API and the guides: one sentence. */
  readonly about: string;
  readonly retryable: boolean;
}

const row = (status: number, fault: Fault, about: string, retryable = false): ErrorRow => ({
  status,
  fault,
  about,
  retryable,
});

export const ERRORS = {
  MALFORMED_REQUEST: row(400, "caller", "The bytes are no HTTP/1.1 request."),
  INVALID_JSON: row(400, "caller", "The body is not JSON."),
  INVALID_ARGUMENT: row(
    400,
    "caller",
    "A value is of the right type and out of bounds, unknown, or at odds with another.",
  ),
  TWO_CREDENTIALS: row(400, "caller", "Both X-Api-Key and Authorization were sent."),
  UNAUTHORIZED: row(401, "caller", "No credential was sent, or one that is not valid: unknown, expired or revoked."),
  FORBIDDEN: row(403, "caller", "The key lacks the scope, or this is the operator's."),
  QUOTA_EXCEEDED: row(403, "caller", "A limit of the tenant is used up."),
  NOT_FOUND: row(404, "caller", "There is no such thing, or it belongs to another tenant."),
  METHOD_NOT_ALLOWED: row(405, "caller", "The path answers other methods, which Allow names."),
  REQUEST_TIMEOUT: row(408, "caller", "The request was not sent in time."),
  WRONG_STATE: row(409, "caller", "Not possible in the state that it is in, which details.state names."),
  NOT_RUNNING: row(409, "caller", "The container does not run, so nothing can be run in it."),
  NAME_TAKEN: row(409, "caller", "Another one has that name."),
  IN_USE: row(409, "caller", "Something else needs it as it is."),
  PORT_TAKEN: row(409, "caller", "Another container publishes that port, or a process of this machine listens there."),
  NOT_EMPTY: row(409, "caller", "It still owns something."),
  IDEMPOTENCY_CONFLICT: row(409, "caller", "The Idempotency-Key was used before, for another request."),
  IDEMPOTENCY_IN_PROGRESS: row(409, "platform", "The first request with the Idempotency-Key is in progress.", true),
  BODY_TOO_LARGE: row(413, "caller", "The body is larger than body_bytes_max."),
  RANGE_NOT_SATISFIABLE: row(416, "caller", "The file has no such bytes."),
  UNPROCESSABLE_ENTITY: row(422, "caller", "A field is missing, unknown or of another JSON type."),
  UPGRADE_REQUIRED: row(426, "caller", "The path is a WebSocket, and the request asks for none."),
  HEADERS_TOO_LARGE: row(431, "caller", "The request line and headers are larger than header_bytes_max."),
  CHAIN_TOO_DEEP: row(400, "caller", "Functions call functions deeper than chain_depth_max."),
  RATE_LIMITED: row(429, "platform", "The tenant sends more requests a second than it may.", true),
  QUEUE_FULL: row(
    429,
    "platform",
    "Too many calls of the function are queued, or operations of the tenant are open.",
    true,
  ),
  QUEUE_TIMEOUT: row(429, "platform", "No instance was free before the call's deadline, or would have been.", true),
  CONCURRENCY_LIMIT: row(
    429,
    "platform",
    "Too many concurrent calls of the function or the tenant, or streams of the tenant.",
    true,
  ),
  INTERNAL: row(500, "platform", "A fault of the service; its log has the cause under the request id."),
  CAPACITY_FULL: row(
    503,
    "platform",
    "This node has no room: for instances, on the disk, or for what requests hold in memory.",
    true,
  ),
  STORAGE_FULL: row(507, "caller", "The volume or container has no room left."),
  START_FAILED: row(503, "platform", "No instance of the function, or the container, could be started.", true),
  TIMEOUT: row(504, "platform", "It did not end before its deadline, and was stopped."),
  NOT_RESPONDING: row(503, "platform", "The container runs, and its first process does not answer.", true),
  SHUTTING_DOWN: row(503, "platform", "The daemon is about to end.", true),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** What a client may be told beside the message. */
export interface ErrorDetails {
  /** Values and bounds for programs (`write`, `integer`, `>= 256`, `<= 65536 bytes`), never sentences. */
  readonly expected?: readonly string[] | null;
  readonly received?: string | null;
  readonly example?: string | null;
  readonly state?: string | null;
  readonly exit_code?: number | null;
}

/** The body of every refusal. Some clients read none of it unless the first three fields are strings. */
export interface ErrorBody {
  readonly error: string;
  readonly error_code: ErrorCode;
  readonly request_id: string;
  readonly details: Required<ErrorDetails> | null;
  readonly hint: string | null;
  /** Seconds. */
  readonly retry_after: number | null;
  /** The code again, unless the refusal is more specific. */
  readonly reason_code: string;
  readonly reason_message: string;
  readonly retryable: boolean;
}

export interface AppErrorOptions {
  readonly details?: ErrorDetails;
  /** What the caller can do about it, one sentence. */
  readonly hint?: string;
  /** Seconds until another try makes sense. */
  readonly retry_after?: number;
  /** True if the same request may succeed later, where this refusal differs from its code. */
  readonly retryable?: boolean;
  /** A more specific reason for programs; the code itself unless given. */
  readonly reason_code?: string;
  readonly cause?: unknown;
}

/** A refusal: expected, named by a code of the table. Messages are lower case and never hold secrets or environment values. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails | null;
  readonly hint: string | null;
  readonly retry_after: number | null;
  readonly retryable: boolean;
  readonly reason_code: string;

  constructor(code: ErrorCode, message: string, options: AppErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "AppError";
    this.code = code;
    this.details = options.details ?? null;
    this.hint = options.hint ?? null;
    this.retry_after = options.retry_after ?? null;
    this.retryable = options.retryable ?? ERRORS[code].retryable;
    this.reason_code = options.reason_code ?? code;
  }
}

/** A fault: something that this program promised itself does not hold. Becomes a 500. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/** Throws an `InvariantError` unless `condition` holds. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

/** True if it is a fault: its text tells of the inside, such as paths of the node, and is for the log alone. */
export function isFault(thrown: unknown): boolean {
  return !(thrown instanceof AppError) || thrown.code === "INTERNAL";
}

/** The text that a tenant may read of anything that was thrown. */
export function publicText(thrown: unknown): string {
  return isFault(thrown) ? "internal error" : errorText(thrown);
}

/** The text of anything that was thrown. */
export function errorText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
