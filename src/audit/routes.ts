/** The audit log over HTTP. */
import { Streamed } from "../base/answer.ts";
import type { Caller } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { JSON_TYPE, preferredType } from "../base/media-types.ts";
import { route } from "../http/route.ts";
import { AUDIT_SUMMARY, type AuditEntry, type AuditFilter, auditPage, auditQuery } from "./schema.ts";
import type { Audit } from "./service.ts";

const NDJSON_TYPE = "application/x-ndjson";

const SAMPLE: AuditEntry = {
  at: 1_795_229_416,
  tenant_id: "ten_6p0sj3c2n8v1k5wd",
  credential: "key",
  key_id: "key_w2fz7h9xq4mt",
  key_name: "ci",
  address: "127.0.0.1",
  method: "DELETE",
  route: "/api/functions/:function_id",
  operation: "deleteFunction",
  target: "fn_vbdyfv0b4bfn4a9q",
  status: 200,
  result: "success",
  error_code: null,
  request_id: "req_1_a",
  suppressed_count: 0,
};

export interface AuditRoutesOptions {
  readonly audit: Audit;
}

/** Throws FORBIDDEN for the entries of another tenant. */
function visibleTenant({ tenant_id, is_operator }: Caller, asked: string | undefined): string | null {
  if (is_operator) return asked ?? null;
  if (asked === undefined || asked === tenant_id) return tenant_id;
  throw new AppError("FORBIDDEN", "only the operator may read the audit log of another tenant", {
    hint: "leave tenant_id out, or use the operator's key",
  });
}

async function* lines(
  audit: Audit,
  filter: AuditFilter,
  below: number,
  recheck: () => Promise<void> | undefined,
): AsyncGenerator<Uint8Array, void> {
  for await (const entries of audit.all(filter, below)) {
    await recheck();
    if (entries.length > 0) yield Buffer.from(entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
  }
}

export function auditRoutes({ audit }: AuditRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/audit",
      auth: "tenant",
      scope: "admin",
      operation: "listAudit",
      summary: AUDIT_SUMMARY,
      query: auditQuery,
      content: [JSON_TYPE, NDJSON_TYPE],
      response: auditPage,
      errors: ["FORBIDDEN"],
      example: { query: { limit: "10" }, response: { entries: [SAMPLE], next_cursor: null } },
      handler: async (request) => {
        const { limit: _limit, cursor: _cursor, format, tenant_id, ...rest } = request.query;
        const filter = { ...rest, tenant_id: visibleTenant(request.caller, tenant_id) };
        const page = request.page();
        const accepted = preferredType(request.header("accept"), [JSON_TYPE, NDJSON_TYPE]);
        if (format === "ndjson" || (format === undefined && accepted === NDJSON_TYPE)) {
          return new Streamed(lines(audit, filter, page.below, request.recheck), { content_type: NDJSON_TYPE });
        }
        return page.answer("entries", await audit.list(filter, page));
      },
    }),
  ];
}
