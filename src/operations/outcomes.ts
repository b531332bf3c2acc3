/** Outcomes of operations: the fields that a row keeps, and the refusal for a request that waited. */
import { AppError, type AppErrorOptions, ERRORS, type ErrorCode, isFault, publicText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Value } from "../store/store.ts";
import { columns, type Failure, type OperationRow } from "./rows.ts";
import type { OperationResult, Outcome } from "./run.ts";

/** The end of a run, or one that came without: it was interrupted. */
export type End = Exclude<Outcome, { readonly verb: null }> | { readonly verb: "fail"; readonly failure: Failure };

/** What was thrown, in the form in which it is kept. A fault tells nothing of the inside. */
export function failureOf(thrown: unknown): Failure & { readonly code: ErrorCode } {
  if (!(thrown instanceof AppError) || isFault(thrown)) return { code: "INTERNAL", message: publicText(thrown) };
  const { code, reason_code, hint, details, retry_after, retryable } = thrown;
  const reason = reason_code === code ? {} : { reason_code };
  const message = thrown.message.slice(0, LIMITS.operation_message_length_max);
  return { code, ...reason, message, hint, details, retry_after, retryable };
}

/** The refusal for a request that has waited for an operation which did not succeed. */
export function refusalOf({ record, failure }: OperationRow): AppError {
  const { operation_id, status } = record;
  if (status === "timed_out") {
    return new AppError("TIMEOUT", `operation '${operation_id}' did not end before its deadline`);
  }
  if (status === "cancelled" || failure === null) {
    return new AppError("WRONG_STATE", `operation '${operation_id}' was cancelled`, { details: { state: status } });
  }
  const code = failure.code in ERRORS ? (failure.code as ErrorCode) : "INTERNAL";
  const options: AppErrorOptions = {
    ...(failure.reason_code ? { reason_code: failure.reason_code } : {}),
    ...(failure.hint ? { hint: failure.hint } : {}),
    ...(failure.details ? { details: failure.details } : {}),
    ...(failure.retry_after ? { retry_after: failure.retry_after } : {}),
    ...(failure.retryable === undefined ? {} : { retryable: failure.retryable }),
  };
  return new AppError(code, failure.message, options);
}

/** What an end leaves in the row. What it was asked to do and how far it was is of no use any more. */
export function endFields(outcome: End): Record<string, Value> {
  const forgotten = { input: "{}", journal: "{}" };
  if (outcome.verb === "succeed") return { ...forgotten, ...resultFields(outcome.result) };
  if (outcome.verb !== "fail") return { ...forgotten, message: outcome.message };
  const failure = "failure" in outcome ? outcome.failure : failureOf(outcome.error);
  return { ...forgotten, message: failure.message, failure: JSON.stringify(failure) };
}

function resultFields(result: OperationResult): Record<string, Value> {
  const large = {
    ...(result.result === undefined ? {} : { result: JSON.stringify(result.result) }),
    ...(result.items === undefined ? {} : { items: JSON.stringify(result.items) }),
  };
  const bytes = Object.values(large).reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const isTooLarge = bytes > LIMITS.operation_result_bytes_max;
  const warnings = [...(result.warnings ?? []), ...(isTooLarge ? ["the result is too large to keep"] : [])];
  return {
    ...(result.made === undefined ? {} : columns("made", result.made)),
    ...(isTooLarge ? {} : large),
    progress_pct: 100,
    ...(result.message === undefined ? {} : { message: result.message.slice(0, LIMITS.operation_message_length_max) }),
    ...(warnings.length === 0 ? {} : { warnings: JSON.stringify(warnings) }),
    ...(result.capability_downgrades === undefined
      ? {}
      : { capability_downgrades: JSON.stringify(result.capability_downgrades) }),
  };
}
