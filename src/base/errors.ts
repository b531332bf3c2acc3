/**
 * The one error table. A code fixes the HTTP status, whose fault the error is, and whether the same request may
 * succeed later. No status number stands anywhere else: lower layers name codes, `http/errors.ts` reads the status.
 *
 * Three kinds are never mixed: an *outcome* is data in a 200 record (a failed invocation), a *refusal* is an
 * `AppError` with a code from this table, a *fault* is a broken invariant or an unknown throw (INTERNAL).
 */

import { withoutHostPaths } from "./host-paths.ts";

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
  MALFORMED_REQUEST: row(400, "caller", "The bytes are not an HTTP/1.1 request."),
  INVALID_JSON: row(400, "caller", "The body is not valid JSON."),
  INVALID_ARGUMENT: row(
    400,
    "caller",
    "A value has the right type, but is out of range, unknown, or contradicts another value.",
  ),
  TWO_CREDENTIALS: row(
    400,
    "caller",
    "The request has two credentials: in two headers, in one header twice, or in a header and the query.",
  ),
  UNAUTHORIZED: row(401, "caller", "The request has no credential, or its credential is unknown, expired or revoked."),
  FORBIDDEN: row(
    403,
    "caller",
    "The key lacks the required scope, the route is for the operator only, a registry denies access, or the node builds no images.",
  ),
  QUOTA_EXCEEDED: row(403, "caller", "The request would exceed a limit of the tenant."),
  NOT_FOUND: row(404, "caller", "The resource does not exist, or belongs to another tenant."),
  METHOD_NOT_ALLOWED: row(
    405,
    "caller",
    "The path does not support the method; the Allow header lists the supported ones.",
  ),
  REQUEST_TIMEOUT: row(408, "caller", "The client did not send the request, or take the output, in time."),
  WRONG_STATE: row(409, "caller", "The resource's state does not allow the request; details.state names the state."),
  NOT_RUNNING: row(409, "caller", "The container is not running."),
  NAME_TAKEN: row(409, "caller", "Another resource of the tenant has the name."),
  IN_USE: row(409, "caller", "Another resource uses this resource."),
  SNAPSHOT_PINNED: row(409, "caller", "The snapshot is pinned, so it cannot be deleted."),
  PORT_TAKEN: row(409, "caller", "Another container publishes the port, or a process of this machine listens on it."),
  ADDRESS_TAKEN: row(
    409,
    "caller",
    "Another container has or reserved the address, or an instance of a function has it.",
  ),
  NOT_EMPTY: row(409, "caller", "The resource still contains other resources or files."),
  IDEMPOTENCY_CONFLICT: row(
    409,
    "caller",
    "A different request used the Idempotency-Key before, or a different message the idempotency_key of its inbox.",
  ),
  AMBIGUOUS_MESSAGE: row(409, "caller", "The msg_id is in several inboxes; container_id selects one."),
  IDEMPOTENCY_IN_PROGRESS: row(
    409,
    "platform",
    "The first request with the Idempotency-Key is still in progress.",
    true,
  ),
  BODY_TOO_LARGE: row(
    413,
    "caller",
    "The body is larger than body_bytes_max, or a message than icc_message_bytes_max.",
  ),
  RANGE_NOT_SATISFIABLE: row(416, "caller", "The file does not contain the requested bytes."),
  UNPROCESSABLE_ENTITY: row(422, "caller", "A field is missing, unknown, or has the wrong JSON type."),
  UPGRADE_REQUIRED: row(426, "caller", "The path accepts only WebSocket requests."),
  HEADERS_TOO_LARGE: row(431, "caller", "The request line and headers are larger than header_bytes_max."),
  IMAGE_INVALID: row(
    400,
    "caller",
    "A manifest, configuration or layer of the image is malformed, dangerous, too large, or differs from its digest.",
  ),
  BUILD_FAILED: row(
    400,
    "caller",
    "A step of the build failed: its command exited with another code than 0, or its files cannot be copied.",
  ),
  CHAIN_TOO_DEEP: row(400, "caller", "Functions call each other more than chain_depth_max levels deep."),
  RATE_LIMITED: row(429, "platform", "The tenant exceeds its request rate, or this node that of a registry.", true),
  QUEUE_FULL: row(
    429,
    "platform",
    "Too many calls of the function are queued, operations of the tenant are open, or messages of an inbox are unread.",
    true,
  ),
  QUEUE_TIMEOUT: row(429, "platform", "No instance was, or would be, free before the call's deadline.", true),
  CONCURRENCY_LIMIT: row(
    429,
    "platform",
    "Too many concurrent calls of the function or the tenant, or streams of the tenant.",
    true,
  ),
  INTERNAL: row(500, "platform", "The daemon failed; its log names the cause under the request id."),
  REGISTRY_FAILED: row(
    502,
    "platform",
    "The registry of an image cannot be reached, or does not answer as a registry.",
    true,
  ),
  SERVICE_FAILED: row(
    502,
    "platform",
    "The container behind a published service closed the connection, or its answer is not HTTP within the limits.",
  ),
  SERVICE_UNAVAILABLE: row(
    503,
    "platform",
    "The container behind a published service does not run, nothing listens on its port, the node lacks the listener of published services, or the server of messages does not answer.",
    true,
  ),
  CAPACITY_FULL: row(503, "platform", "The node lacks capacity: instances, disk space, or memory for requests.", true),
  STORAGE_FULL: row(507, "caller", "The volume or the container's disk is full."),
  START_FAILED: row(503, "platform", "The container, or an instance of the function, failed to start.", true),
  HANDLER_FAILED: row(
    400,
    "function",
    "The handler of the new version cannot be loaded, or its smoke call has another status than expected.",
  ),
  TIMEOUT: row(504, "platform", "The work did not finish before its deadline, and the daemon stopped it."),
  NOT_RESPONDING: row(
    503,
    "platform",
    "The container runs, but its first process or its desktop does not respond.",
    true,
  ),
  SHUTTING_DOWN: row(503, "platform", "The daemon is shutting down.", true),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** Details for clients beside the message. */
export interface ErrorDetails {
  /** Values and bounds for programs (`write`, `integer`, `>= 256`, `<= 65536 bytes`), never sentences. */
  readonly expected?: readonly string[] | null;
  readonly received?: string | null;
  readonly example?: string | null;
  readonly state?: string | null;
  readonly exit_code?: number | null;
  /** The end of a handler's standard error. */
  readonly output?: string | null;
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

/**
 * A refusal: expected, named by a code of the table. Messages are lower case and never hold secrets or environment values. Those
 * for tenants name no path of this machine, wherever their words come from; the cause has the whole text, for the log.
 */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails | null;
  readonly hint: string | null;
  readonly retry_after: number | null;
  readonly retryable: boolean;
  readonly reason_code: string;

  constructor(code: ErrorCode, message: string, options: AppErrorOptions = {}) {
    const text = code === "INTERNAL" ? message : withoutHostPaths(message);
    const cause = options.cause ?? (text === message ? undefined : new Error(message));
    super(text, cause === undefined ? undefined : { cause });
    this.name = "AppError";
    this.code = code;
    this.details = options.details ?? null;
    this.hint = options.hint === undefined ? null : withoutHostPaths(options.hint);
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

/** include/uapi/asm-generic/errno.h; Node has no name for it. */
const EDQUOT = 122;
/** System calls of files, by the names that Node gives them, that need room on the disk. */
const NEED_ROOM = new Set([
  "open",
  "write",
  "mkdir",
  "rename",
  "link",
  "symlink",
  "copyfile",
  "ftruncate",
  "chown",
  "unlink",
  "fsync",
  "close",
]);

/**
 * Returns what was thrown; where a disk had no space or no inodes, the refusal CAPACITY_FULL with it as the cause. Callers that
 * know more, such as which disk it is, throw that themselves.
 */
export function withoutRoom(thrown: unknown): unknown {
  if (!(thrown instanceof Error) || thrown instanceof AppError) return thrown;
  const { code, errno, syscall = "" } = thrown as NodeJS.ErrnoException;
  if ((code !== "ENOSPC" && errno !== -EDQUOT) || !NEED_ROOM.has(syscall)) return thrown;
  const hint = "free space on the disk of the data directory";
  return new AppError("CAPACITY_FULL", "no space for files in the data directory", { hint, cause: thrown });
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
