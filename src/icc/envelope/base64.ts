/** Base64 of envelopes and of bytes fields: the standard alphabet with padding, without spaces. */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { invalid } from "./refusal.ts";

/** Most padding of a base64 text, in bytes. */
const PADDING_MAX = 2;

/**
 * Decodes base64. Throws INVALID_ARGUMENT for malformed text, BODY_TOO_LARGE above `icc_message_bytes_max` without
 * decoding.
 */
export function decodeBase64(text: string, name = "envelope_b64"): Buffer {
  const size = Math.floor(text.length / 4) * 3 - PADDING_MAX;
  if (size > LIMITS.icc_message_bytes_max) throw tooLarge(name, size, LIMITS.icc_message_bytes_max);
  const bytes = Buffer.from(text, "base64");
  // Node ignores foreign characters and missing padding.
  if (text.length % 4 === 0 && bytes.toString("base64") === text) return bytes;
  throw invalid(name, "must be base64 of the standard alphabet with padding, without spaces or line breaks", {
    details: { expected: ["base64"] },
  });
}

export function tooLarge(name: string, size: number, max: number): AppError {
  return new AppError("BODY_TOO_LARGE", `${name} is too large: ${size} bytes (limit ${max})`, {
    details: { expected: [`<= ${max} bytes`], received: `${size} bytes` },
  });
}
