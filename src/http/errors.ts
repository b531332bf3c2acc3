/**
 * Turns whatever was thrown into the one error body of the interface. The only reader of the status column of
 * base/errors.ts, and the only place that knows which headers go with which refusal.
 */
import {
  AppError,
  ERRORS,
  type ErrorBody,
  type ErrorCode,
  type ErrorDetails,
  errorText,
  isFault,
  publicText,
} from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";

const NO_DETAILS: Required<ErrorDetails> = {
  expected: null,
  received: null,
  example: null,
  state: null,
  exit_code: null,
  output: null,
};

/** Headers that belong to a code whatever the route. */
const HEADERS: { readonly [Code in ErrorCode]?: Readonly<Record<string, string>> } = {
  UNAUTHORIZED: { "www-authenticate": 'Bearer realm="hearth"' },
  // What is left of the body is not read, so the connection cannot be used again.
  BODY_TOO_LARGE: { connection: "close" },
  UPGRADE_REQUIRED: { connection: "upgrade", upgrade: "websocket" },
};

/** A refusal tells its own text; a fault tells nothing of the inside and is logged with its cause. */
export function errorBody(thrown: unknown, request_id: string): ErrorBody {
  if (!(thrown instanceof AppError) || isFault(thrown)) {
    return {
      error: publicText(thrown),
      error_code: "INTERNAL",
      request_id,
      details: null,
      hint: "search the daemon's log for this request id",
      retry_after: null,
      reason_code: "INTERNAL",
      reason_message: "internal error",
      retryable: false,
    };
  }
  // Whoever is to come back is told when, even where the refuser could not say.
  const retry_after = thrown.retry_after ?? (thrown.retryable ? 1 : null);
  return {
    error: thrown.message,
    error_code: thrown.code,
    request_id,
    details: thrown.details === null ? null : { ...NO_DETAILS, ...thrown.details },
    hint: thrown.hint,
    retry_after: retry_after === null ? null : Math.max(1, Math.ceil(retry_after)),
    reason_code: thrown.reason_code,
    reason_message: thrown.message,
    retryable: thrown.retryable,
  };
}

/** The code that a thrown error is answered with. */
export function errorCodeOf(thrown: unknown): ErrorCode {
  return thrown instanceof AppError ? thrown.code : "INTERNAL";
}

export function errorResponse(
  thrown: unknown,
  request_id: string,
  log: Log,
  more_headers: Readonly<Record<string, string>> = {},
): Response {
  const body = errorBody(thrown, request_id);
  if (body.error_code === "INTERNAL") logFault(log, thrown, request_id);
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "x-request-id": request_id,
    ...HEADERS[body.error_code],
    ...more_headers,
  };
  if (body.retry_after !== null) headers["retry-after"] = String(body.retry_after);
  return new Response(JSON.stringify(body), { status: ERRORS[body.error_code].status, headers });
}

function logFault(log: Log, thrown: unknown, request_id: string): void {
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  log.error("request failed", {
    request_id,
    error: errorText(thrown),
    cause: cause === undefined ? undefined : errorText(cause),
    stack: thrown instanceof Error ? thrown.stack : undefined,
  });
}

const REQUEST_ID = new RegExp(`^[\\x21-\\x7e]{1,${LIMITS.request_id_length_max}}$`);

/** The client's `X-Request-Id` where it is fit to be echoed, otherwise a new one. */
export function requestId(sent: string | string[] | undefined, ids: Ids): string {
  return typeof sent === "string" && REQUEST_ID.test(sent) ? sent : ids.next("req");
}
