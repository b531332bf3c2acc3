/** Shapes of secrets: requests, records without their values, and the keys that encrypt them. */
import { z } from "zod";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, nextCursor, textBytes } from "../base/schema.ts";

/** Kind of the secrets that the routes serve and functions name. */
export const SECRET_KIND = "secret";

/** Largest number of missing names that one message names. */
const NAMED_MAX = 10;

/** base64 of so many bytes, or up to two more; the service counts the bytes. */
const BASE64_LENGTH_MAX = Math.ceil(LIMITS.secret_bytes_max / 3) * 4;

export const setSecret = z
  .object({
    value: textBytes(LIMITS.secret_bytes_max)
      .min(1)
      .optional()
      .describe("The value as text. Either value or value_base64 is required."),
    value_base64: z
      .string()
      .min(1)
      .max(BASE64_LENGTH_MAX)
      .refine((text) => /^[A-Za-z0-9+/]*={0,2}$/.test(text) && text.length % 4 === 0, { error: "must be base64" })
      .optional()
      .describe("The value as bytes in base64."),
  })
  .superRefine(({ value, value_base64 }, context) => {
    if (value === undefined && value_base64 === undefined) {
      context.addIssue({ code: "invalid_type", expected: "string", path: ["value"], input: undefined });
    }
    if (value !== undefined && value_base64 !== undefined) {
      context.addIssue({ code: "custom", path: ["value_base64"], message: "must not be sent beside value" });
    }
  })
  .meta({ id: "SetSecret" });

export const secretRecord = z
  .object({
    name: z.string().describe("Name, unique among the tenant's secrets."),
    size_bytes: z.int().describe("Size of the value in bytes."),
    created_at: epochSeconds,
    updated_at: epochSeconds.describe("Time of the last change of the value, in seconds since the Unix epoch."),
  })
  .meta({ id: "Secret", description: "A secret without its value." });
export type SecretRecord = Readonly<z.output<typeof secretRecord>>;

export const secretList = z
  .object({ secrets: z.array(secretRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "SecretList" });

export const secretsKeyStatus = z
  .object({
    key_id: z.string().describe("Id of the key that encrypts."),
    earlier_key_ids: z
      .array(z.string())
      .describe("Earlier keys in the key file; each is removed when no secret uses it."),
    pending_count: z.int().describe("Number of secrets that an earlier key encrypts."),
  })
  .meta({ id: "SecretsKeyStatus" });
export type SecretsKeyStatus = Readonly<z.output<typeof secretsKeyStatus>>;

/** Returns the refusal that names the missing secrets, the first ones of many. */
export function secretsNotFound(names: readonly string[]): AppError {
  const shown = names.slice(0, NAMED_MAX).map((name) => `'${name}'`);
  const others = names.length - shown.length;
  const what = names.length === 1 ? `secret ${shown[0]}` : `secrets ${shown.join(", ")}`;
  return new AppError("NOT_FOUND", `${what}${others > 0 ? ` and ${others} more` : ""} not found`);
}
