/** Hot path. The credential that a request carries, and the check that its caller may use a route. */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { type AuthClass, type Caller, lacksScope, type Scope } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";

/** Headers of which a request has one, by length. Node keeps the first of some, and joins others. */
const SINGLE = ["x-api-key", "x-tenant-id", "authorization", "idempotency-key"] as const;

/** Throws TWO_CREDENTIALS for a second credential of a kind, INVALID_ARGUMENT for another header that came twice. */
function checkSingle({ rawHeaders, headers }: Pick<IncomingMessage, "rawHeaders" | "headers">): void {
  for (const name of SINGLE) {
    if (headers[name] === undefined) continue;
    let count = 0;
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const sent = rawHeaders[i] ?? "";
      if (sent.length === name.length && sent.toLowerCase() === name) count++;
    }
    if (count === 1) continue;
    if (name === "x-api-key" || name === "authorization")
      throw twoCredentials(`the header ${name} came ${count} times`);
    throw new AppError("INVALID_ARGUMENT", `header ${name} is repeated: ${count} times (expected once)`, {
      details: { expected: ["1 header"], received: `${count} headers` },
      hint: "send the header once",
    });
  }
}

/** The refusal of a request with more than one credential. */
export function twoCredentials(what: string): AppError {
  return new AppError("TWO_CREDENTIALS", `two credentials in the request: ${what}`, { hint: "send one of the two" });
}

/**
 * The credential that a request carries; `queried`: what a route that takes one in its query found there. Throws
 * TWO_CREDENTIALS, or UNAUTHORIZED where there is none.
 */
export function credentialOf(
  incoming: Pick<IncomingMessage, "rawHeaders" | "headers">,
  queried: string | null = null,
): string {
  checkSingle(incoming);
  const { headers } = incoming;
  const key = headers["x-api-key"];
  const authorization = headers.authorization;
  if (key !== undefined && authorization !== undefined) {
    throw twoCredentials("X-Api-Key and Authorization");
  }
  if (queried !== null) {
    if (key === undefined && authorization === undefined && queried !== "") return queried;
    if (queried !== "") {
      throw twoCredentials("in a header and in the query");
    }
  }
  if (typeof key === "string" && key !== "") return key;
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+)$/i.exec(authorization)?.[1];
  if (bearer !== undefined) return bearer;
  // The same for each kind of wrong credential: what was right about one is nobody's to learn.
  throw new AppError("UNAUTHORIZED", "missing credential", {
    hint: "send the key as 'X-Api-Key: <key>' or 'Authorization: Bearer <key>'",
  });
}

/**
 * Checks the header X-Tenant-Id, which names the tenant that the client takes its credential for (interface, Credentials).
 * Throws INVALID_ARGUMENT where the route requires it and it is absent, FORBIDDEN where it names another tenant.
 */
export function checkTenant(
  { headers: heeded }: { readonly headers: readonly string[] },
  { tenant_id }: Caller,
  headers: IncomingHttpHeaders,
): void {
  const sent = headers["x-tenant-id"];
  if (sent === tenant_id) return;
  if (sent !== undefined) {
    throw new AppError("FORBIDDEN", "X-Tenant-Id: not the tenant of the credential", {
      hint: "send the id that GET /api/tenant returns",
    });
  }
  if (heeded.includes("X-Tenant-Id")) {
    throw new AppError("INVALID_ARGUMENT", "X-Tenant-Id: the header is missing", {
      hint: "send the id that GET /api/tenant returns",
    });
  }
}

/** Throws FORBIDDEN unless the caller may use the route. The text tells what the key lacks, never what is behind it. */
export function permit(
  { auth, scope }: { readonly auth: AuthClass; readonly scope: Scope | null },
  caller: Caller,
): void {
  if (auth === "operator" && !caller.is_operator) {
    throw new AppError("FORBIDDEN", "operator only: the credential is not the operator's", {
      hint: "use the operator's key",
    });
  }
  if (scope !== null && !caller.scopes.includes(scope)) throw lacksScope(scope);
}
