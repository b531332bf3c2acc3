/** Shapes of the audit log. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, nextCursor, pageQuery, queryNumber } from "../base/schema.ts";

export const AUDIT_RESULTS = ["success", "refused", "failed"] as const;
const CREDENTIAL_KINDS = ["key", "user", "token", "invocation", "container"] as const;

const auditEntry = z
  .object({
    at: epochSeconds.describe("Time of the response, in seconds since the Unix epoch."),
    tenant_id: z.string().nullable().describe("Tenant of the caller; null without a valid credential."),
    credential: z
      .enum(CREDENTIAL_KINDS)
      .nullable()
      .describe("Type of the caller's credential; null without a valid one."),
    key_id: z
      .string()
      .nullable()
      .describe(
        "Id of the API key or of the user's login, also if a token of it was sent; id of the invocation whose token was sent; subject of an external token; or id of the container that sent a command by its socket.",
      ),
    key_name: z.string().nullable().describe("Name of the API key; null once it is revoked."),
    address: z.string().nullable().describe("Address of the client; for calls from a handler, of its instance."),
    method: z.string().describe("Method of the request; SEND: a command for a container."),
    route: z.string().describe("Pattern of the route; icc: a command for a container."),
    operation: z
      .string()
      .describe(
        "Name of the operation in the API description; of a command its payload kind, such as exec_command, or exec_broadcast.",
      ),
    target: z.string().nullable().describe("Path parameters and the id of the created resource, joined by slashes."),
    status: z.int().describe("HTTP status of the response."),
    result: z.enum(AUDIT_RESULTS).describe("refused: status 4xx; failed: all other errors, also during a response."),
    error_code: z.string().nullable().describe("Error code; null for a success."),
    request_id: z.string().describe("X-Request-Id of the response; of a message its msg_id."),
    suppressed_count: z
      .int()
      .describe(
        "Number of omitted entries. Refusal: further ones of the same source since its previous entry, above the recorded rate. Change: deleted earlier entries of the same key and operation.",
      ),
  })
  .meta({ id: "AuditEntry", description: "A change or a refused request, without bodies, queries and secrets." });
export type AuditEntry = Readonly<z.output<typeof auditEntry>>;

export const auditPage = z
  .object({ entries: z.array(auditEntry).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "AuditPage" });

const moment = queryNumber(0, 10_000_000_000).optional();

export const auditQuery = pageQuery.extend({
  since: moment.describe("Only entries at this time or later, in seconds since the Unix epoch."),
  until: moment.describe("Only entries before this time, in seconds since the Unix epoch."),
  key_id: z.string().optional().describe("Only entries of this key."),
  route: z.string().optional().describe("Only entries of this route pattern, such as /api/functions/:function_id."),
  target: z.string().optional().describe("Only entries with exactly this target."),
  result: z.enum(AUDIT_RESULTS).optional().describe("Only entries with this result."),
  tenant_id: z
    .string()
    .optional()
    .describe("Only entries of this tenant; for another tenant than the caller's, the operator's key is required."),
  format: z
    .enum(["json", "ndjson"])
    .optional()
    .describe(
      "ndjson, or Accept: application/x-ndjson, streams all matching entries from the cursor on, one per line; `limit` does not apply.",
    ),
});

/** Filter of audit entries; null for `tenant_id`: entries of all tenants. */
export type AuditFilter = Omit<z.output<typeof auditQuery>, "limit" | "cursor" | "format" | "tenant_id"> & {
  readonly tenant_id: string | null;
};

export const AUDIT_SUMMARY = `Lists changes and refused requests, newest first. The operator sees all tenants. The daemon keeps entries for ${LIMITS.audit_kept_seconds / 86_400} days.`;
