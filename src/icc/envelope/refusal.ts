/** Refusals of envelopes: each names its field, and has the error code of the wire format as `reason_code`. */
import { AppError, type ErrorDetails } from "../../base/errors.ts";
import type { ErrorCode } from "./jets.generated.js";

/** Characters of a client's text in a refusal. */
const SHOWN_LENGTH_MAX = 64;

export interface RefusalOptions {
  readonly reason_code?: ErrorCode;
  readonly details?: ErrorDetails;
  readonly hint?: string;
}

/** Returns the refusal of a value: `<path> <problem>`. */
export function invalid(path: string, problem: string, options: RefusalOptions = {}): AppError {
  return new AppError("INVALID_ARGUMENT", `${path} ${problem}`, { reason_code: "INVALID_SCHEMA", ...options });
}

/** Returns the refusal of a JSON shape: a missing or unknown field, or a wrong type. */
export function misshapen(path: string, problem: string, expected: readonly string[]): AppError {
  return new AppError("UNPROCESSABLE_ENTITY", `${path} ${problem}`, { details: { expected } });
}

/** Throws the refusal of a value. */
export function refuse(path: string, problem: string): never {
  throw invalid(path, problem);
}

/** Returns a client's text for a refusal, truncated. */
export function shown(text: string): string {
  return text.length <= SHOWN_LENGTH_MAX ? text : `${text.slice(0, SHOWN_LENGTH_MAX)}…`;
}
