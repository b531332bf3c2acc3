/** Shapes of the tenant's keys and values. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { epochSeconds, queryLimit, text, whole } from "../../base/schema.ts";

const KEY_LENGTH_MAX = 128;
export const STATE_KEY = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

export const byKey = z.object({
  key: z
    .string()
    .regex(STATE_KEY, {
      error: `must be 1 to ${KEY_LENGTH_MAX} letters, digits, '.', '_', ':' or '-', beginning with a letter or digit`,
    })
    .meta({ description: "Key.", examples: ["build.status"] }),
});

export const statesQuery = z.object({
  prefix: text(KEY_LENGTH_MAX).default("").describe("Only keys that begin with it."),
  after: text(KEY_LENGTH_MAX).optional().describe("Continues after this key: next_after."),
  limit: queryLimit(LIMITS.entries_read_default, LIMITS.state_page_max),
  watch: z
    .enum(["0", "1", "false", "true"])
    .default("false")
    .transform((value) => value === "1" || value === "true")
    .describe("Sends the entries and then each change as server-sent events."),
});

const version = whole(0, Number.MAX_SAFE_INTEGER);
export const putState = z
  .object({
    value: z.unknown().meta({
      type: ["string", "number", "boolean", "object", "array", "null"],
      description: "Any JSON.",
    }),
    if_version: version.nullish().describe("Writes only if the key has this version; 0: only if there is no such key."),
  })
  .meta({ id: "PutState" });

export const deleteQuery = z.object({
  if_version: z
    .string()
    .regex(/^\d{1,15}$/, { error: "expected a whole number" })
    .transform(Number)
    .optional()
    .meta({ type: "integer", description: "Deletes only if the key has this version." }),
});

export const stateEntry = z
  .looseObject({
    key: z.string().describe("Key."),
    version: z.int().describe("Number of the key's last write: each is above all earlier ones."),
    content_type: z.string().describe("Media type of the value."),
    value: z.unknown().meta({
      type: ["string", "number", "boolean", "object", "array", "null"],
      description: "The value, if it is JSON or text.",
    }),
    value_b64: z.string().optional().describe("The value in base64, if it is neither JSON nor text."),
    from: z.string().describe("Sender of the last write."),
    updated_at: epochSeconds,
  })
  .meta({ id: "StateEntry" });

export const stateList = z
  .object({
    entries: z.array(stateEntry).describe("By key."),
    next_after: z.string().nullable().describe("`after` of the next page; null at the end."),
  })
  .meta({ id: "StateEntries" });

export const deletedState = z
  .object({
    key: z.string().describe("Key."),
    version: z.int().describe("Version that was deleted."),
    is_deleted: z.literal(true).describe("The key was deleted."),
  })
  .meta({ id: "DeletedState" });
