/** Shapes that several concerns take and answer with: fields of bodies, parameters of queries, pages of lists. */
import { z } from "zod";
import { parseAllowRule } from "./egress.ts";
import { LIMITS } from "./limits.ts";

/** Whole seconds since the Unix epoch. */
export const epochSeconds = z.int().describe("Seconds since the Unix epoch.");

/** What a verb answers that has no record to show. */
export const acknowledgement = z
  .object({
    success: z.literal(true).describe("Always true; failures are returned as errors."),
    message: z.string().describe("Result as text."),
  })
  .meta({ id: "Acknowledgement" });

/** A number without a fraction in [min, max]; a fraction is a bad value (400), not a wrong type (422). */
export const whole = (min: number, max: number) =>
  z
    .number()
    .refine(Number.isInteger, { error: "expected a whole number", params: { expected: ["integer"] } })
    .min(min)
    .max(max)
    .meta({ type: "integer" });

/** Text that comes back as it was sent: half a surrogate pair has no UTF-8, and would be kept as another character. */
export const wellFormed = z
  .string()
  .refine((value) => value.isWellFormed(), { error: "must not contain half a surrogate pair" });

const withoutNul = wellFormed.refine((value) => !value.includes("\0"), {
  error: "must not contain a NUL character",
});

/** Text of so many characters, as it was sent. */
export const text = (length_max: number) => withoutNul.max(length_max);

/** Text that the kernel takes, whose bounds are in bytes. */
export const textBytes = (bytes_max: number) =>
  withoutNul.refine((value) => Buffer.byteLength(value) <= bytes_max, {
    error: `must not be larger than ${bytes_max} bytes`,
    params: { expected: [`<= ${bytes_max} bytes`] },
  });

/** An optional field that is refused by name with 400. Null is the same as its absence. */
export const refused = (error: string, description: string) =>
  z
    .unknown()
    .refine((value) => value === undefined, { error })
    .optional()
    .meta({ type: "null", description });

/** A field that existing clients send and this service does not use. */
export const unused = (description: string) => z.unknown().optional().meta({ description });

/** The complaint about a text that was sent under none of its names: 422, as of any other that is missing. */
const missingText = (name: string) => ({
  code: "invalid_type" as const,
  expected: "string" as const,
  path: [name],
  input: undefined,
});

/** A name that people give: one path segment, unique among its kind in the tenant. */
export const resourceName = wellFormed
  .min(1)
  .max(LIMITS.name_length_max)
  .refine((value) => !/[/\p{Cc}]/u.test(value), { error: "must not contain '/' or control characters" })
  .refine((value) => value.trim() === value && value !== "." && value !== "..", {
    error: "must not start or end with a space, or be '.' or '..'",
  });

/** Ids of this daemon (ids.ts): a prefix and 16 random characters, 12 of a key. */
const ID_FORM = /^(?:[a-z]{2,4}_[0-9a-hjkmnp-tv-z]{16}|key_[0-9a-hjkmnp-tv-z]{12})$/;

/** True for a name that could be an id: requests take either, and an id comes first. */
export const hasIdForm = (name: string): boolean => ID_FORM.test(name);

/** A name for something new. Names of earlier versions may have the form of an id, and stay usable. */
export const newName = resourceName.refine((value) => !hasIdForm(value), {
  error: "must not have the form of an id",
});

/** The body that gives a `kind` of thing another name. `name` is what older clients send. */
export const renameBody = (kind: string, name: z.ZodType<string, string> = newName) =>
  z
    .object({
      new_name: name.optional().describe(`New name of the ${kind}.`),
      name: name.optional().describe("The same; new_name takes precedence."),
    })
    .superRefine((body, context) => {
      if ((body.new_name ?? body.name) === undefined) context.addIssue(missingText("new_name"));
    })
    .transform((body) => ({ new_name: body.new_name ?? body.name ?? "" }));

/**
 * The name of a secret, which is a file name under /run/secrets: ASCII alone, so that no two names are spelled alike,
 * without '/' and not beginning with '.', so that it stays in its directory.
 */
export const secretName = z
  .string()
  .regex(new RegExp(`^[A-Za-z_][A-Za-z0-9_.-]{0,${LIMITS.secret_name_length_max - 1}}$`), {
    error: `must be 1 to ${LIMITS.secret_name_length_max} ASCII letters, digits, '_', '.' or '-', beginning with a letter or '_'`,
  });

/** Variables by name, whose values have a schema of their own. `textOf` returns the text of a value that counts. */
const variables = <Value extends z.ZodType>(value: Value, textOf: (value: z.output<Value>) => string) =>
  z
    .record(z.string(), value)
    .refine((map) => Object.keys(map).length <= LIMITS.environment_entries_max, {
      error: `must not have more than ${LIMITS.environment_entries_max} entries`,
      params: { expected: [`<= ${LIMITS.environment_entries_max} entries`] },
    })
    .refine((map) => Object.keys(map).every((key) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(key)), {
      error: "names must be letters, digits and '_', not starting with a digit",
    })
    .refine((map) => Object.values(map).every((value) => !textOf(value).includes("\0")), {
      error: "values must not contain a NUL character",
    })
    .refine((map) => mapBytes(map, textOf) <= LIMITS.environment_bytes_max, {
      error: `must not be larger than ${LIMITS.environment_bytes_max} bytes`,
      params: { expected: [`<= ${LIMITS.environment_bytes_max} bytes`] },
    });

function mapBytes<Value>(map: Readonly<Record<string, Value>>, textOf: (value: Value) => string): number {
  let bytes = 0;
  for (const [key, value] of Object.entries(map))
    bytes += Buffer.byteLength(key) + Buffer.byteLength(textOf(value)) + 2;
  return bytes;
}

/** Variables by name. */
export const environment = variables(wellFormed, (value) => value);

/** Variables by name, each with its value or the secret that has it. */
export const secretEnvironment = variables(z.union([wellFormed, z.strictObject({ secret: secretName })]), (value) =>
  typeof value === "string" ? value : value.secret,
);

export const absolutePath = textBytes(LIMITS.path_bytes_max).refine((value) => value.startsWith("/"), {
  error: "must be an absolute path",
});

/** MiB of memory. */
export const memoryLimit = whole(LIMITS.memory_limit_mb_min, LIMITS.memory_limit_mb_max);
/** Percent of one core; null: no quota. */
export const cpuLimit = z.number().min(LIMITS.cpu_limit_percent_min).max(LIMITS.cpu_limit_percent_max).nullish();

/** One destination that a container or instance may send to. */
export const allowRule = text(LIMITS.egress_rule_length_max).superRefine((value, context) => {
  const rule = parseAllowRule(value);
  if (typeof rule === "string") context.addIssue({ code: "custom", message: rule });
});

/** Destinations outside of the machine that a container or instance may send to. */
export const egress = z.union([z.enum(["on", "off"]), z.array(allowRule).max(LIMITS.egress_rules_max)]);

/** A moment as containers show it. */
export const isoTime = z.string().describe("ISO 8601 with milliseconds, in UTC.");

/** For whoever looks for a thing. */
export const labels = z
  .record(text(LIMITS.label_length_max).min(1), text(LIMITS.label_length_max))
  .refine((map) => Object.keys(map).length <= LIMITS.labels_max, {
    error: `must not have more than ${LIMITS.labels_max} entries`,
    params: { expected: [`<= ${LIMITS.labels_max} entries`] },
  });

/** A whole number in a query string. The description of the API shows it as what it means. */
export function queryNumber(min: number, max: number) {
  return z
    .string()
    .refine((text) => /^\d{1,15}$/.test(text), {
      error: "expected a whole number",
      params: { expected: ["integer"] },
    })
    .meta({
      type: "integer",
      minimum: min,
      ...(max < Number.MAX_SAFE_INTEGER ? { maximum: max } : {}),
    })
    .transform(Number)
    .pipe(z.int().min(min).max(max));
}

/** `limit`: at least 1, clamped to `max`, `fallback` when absent. */
export function queryLimit(fallback: number = LIMITS.list_limit_max, max: number = LIMITS.list_limit_max) {
  return queryNumber(1, Number.MAX_SAFE_INTEGER)
    .transform((limit) => Math.min(limit, max))
    .default(fallback)
    .meta({ default: fallback, description: `Entries of the page, newest first; clamped to ${max}.` });
}

/** `true` or `false` in a query string; false when absent. */
export function queryFlag() {
  return z
    .enum(["true", "false"])
    .default("false")
    .transform((value) => value === "true");
}

/** The query of a list route; filters go beside it. */
export const pageQuery = z.object({
  limit: queryLimit(),
  cursor: z
    .string()
    .max(LIMITS.cursor_length_max)
    .optional()
    .describe("Continues the list: `next_cursor` of the previous page, with the same path and filters."),
});

/** A field of every list answer. */
export const nextCursor = z
  .string()
  .nullable()
  .describe("Value of the query `cursor` for the next page; null at the end of the list.");
