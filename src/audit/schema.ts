/** Shapes of the audit log. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, nextCursor, pageQuery, queryNumber } from "../base/schema.ts";

export const AUDIT_RESULTS = ["success", "refused", "failed"] as const;
const CREDENTIAL_KINDS = ["key", "token", "invocation"] as const;

const auditEntry = z
  .object({
    at: epochSeconds.describe("When the answer was made, seconds since the Unix epoch."),
    tenant_id: z.string().nullable().describe("Of the caller; null if no credential was accepted."),
    credential: z
      .enum(CREDENTIAL_KINDS)
      .nullable()
      .describe("Credential that the caller sent; null if it was not accepted."),
    key_id: z
      .string()
      .nullable()
      .describe("Of the API key, also behind a token; the invocation whose token was sent; an outside subject."),
    key_name: z.string().nullable().describe("Name of the API key; null once it is revoked."),
    address: z.string().nullable().describe("Of the other end of the connection; of an instance for its own calls."),
    method: z.string().describe("Of the request."),
    route: z.string().describe("Pattern of the route."),
    operation: z.string().describe("Name of the operation in the API description."),
    target: z.string().nullable().describe("Path parameters, and the id of what was created, joined by slashes."),
    status: z.int().describe("HTTP status of the answer."),
    result: z
      .enum(AUDIT_RESULTS)
      .describe("refused: status 4xx; failed: every other error, also in the middle of an answer."),
    error_code: z.string().nullable().describe("Null for a success."),
    request_id: z.string().describe("X-Request-Id of the answer."),
    suppressed_count: z
      .int()
      .describe(
        "Refusal: others of the same source since its entry before, above the rate that is recorded. Change: earlier ones of the same key and operation that are no longer kept.",
      ),
  })
  .meta({ id: "AuditEntry", description: "One change or refusal. Bodies, queries and secrets are not recorded." });
export type AuditEntry = Readonly<z.output<typeof auditEntry>>;

export const auditPage = z
  .object({ entries: z.array(auditEntry).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "AuditPage" });

const moment = queryNumber(0, 10_000_000_000).optional();

export const auditQuery = pageQuery.extend({
  since: moment.describe("Entries at this time or later, seconds since the Unix epoch."),
  until: moment.describe("Entries before this time, seconds since the Unix epoch."),
  key_id: z.string().optional().describe("Entries of this key."),
  route: z.string().optional().describe("Entries of this route, as its pattern: /api/functions/:function_id."),
  target: z.string().optional().describe("Entries with exactly this target."),
  result: z.enum(AUDIT_RESULTS).optional().describe("Entries with this result."),
  tenant_id: z
    .string()
    .optional()
    .describe("Entries of this tenant; another than the caller's own needs the operator's key."),
  format: z
    .enum(["json", "ndjson"])
    .optional()
    .describe(
      "ndjson, or Accept: application/x-ndjson: streams all matching entries from the cursor on, one a line, without `limit`.",
    ),
});

/** Filter of audit entries; null for `tenant_id`: entries of all tenants. */
export type AuditFilter = Omit<z.output<typeof auditQuery>, "limit" | "cursor" | "format" | "tenant_id"> & {
  readonly tenant_id: string | null;
};

export const AUDIT_SUMMARY = `Changes and refusals, newest first: who, what, with which result. The operator sees all tenants. Kept ${LIMITS.audit_kept_seconds / 86_400} days.`;
