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
  readonly retryable: boolean;
}

const row = (status: number, fault: Fault, retryable = false): ErrorRow => ({ status, fault, retryable });

export const ERRORS = {
  INVALID_JSON: row(400, "caller"),
  INVALID_ARGUMENT: row(400, "caller"),
  TWO_CREDENTIALS: row(400, "caller"),
  UNAUTHORIZED: row(401, "caller"),
  FORBIDDEN: row(403, "caller"),
  QUOTA_EXCEEDED: row(403, "caller"),
  NOT_FOUND: row(404, "caller"),
  METHOD_NOT_ALLOWED: row(405, "caller"),
  WRONG_STATE: row(409, "caller"),
  NAME_TAKEN: row(409, "caller"),
  NOT_EMPTY: row(409, "caller"),
  BODY_TOO_LARGE: row(413, "caller"),
  UNPROCESSABLE_ENTITY: row(422, "caller"),
  CHAIN_TOO_DEEP: row(400, "caller"),
  RATE_LIMITED: row(429, "platform", true),
  QUEUE_FULL: row(429, "platform", true),
  QUEUE_TIMEOUT: row(429, "platform", true),
  CONCURRENCY_LIMIT: row(429, "platform", true),
  INTERNAL: row(500, "platform"),
  CAPACITY_FULL: row(503, "platform", true),
  START_FAILED: row(503, "platform", true),
  SHUTTING_DOWN: row(503, "platform", true),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** What a client may be told beside the message (wire-facts §2). */
export interface ErrorDetails {
  readonly expected?: readonly string[] | null;
  readonly received?: string | null;
  readonly example?: string | null;
  readonly state?: string | null;
  readonly exit_code?: number | null;
}

export interface AppErrorOptions {
  readonly details?: ErrorDetails;
  /** What the caller can do about it, one sentence. */
  readonly hint?: string;
  /** Seconds until another try makes sense. */
  readonly retry_after?: number;
  readonly cause?: unknown;
}

/** A refusal: expected, named by a code of the table. Messages are lower case and never hold secrets or environment values. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails | null;
  readonly hint: string | null;
  readonly retry_after: number | null;

  constructor(code: ErrorCode, message: string, options: AppErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "AppError";
    this.code = code;
    this.details = options.details ?? null;
    this.hint = options.hint ?? null;
    this.retry_after = options.retry_after ?? null;
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

/** The text of anything that was thrown. */
export function errorText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
