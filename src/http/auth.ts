/** Hot path. The credential that a request carries, and the check that its caller may use a route. */
import type { IncomingHttpHeaders } from "node:http";
import { type AuthClass, type Caller, lacksScope, type Scope } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";

/**
 * The credential that a request carries; `queried`: what a route that takes one in its query found there. Throws
 * TWO_CREDENTIALS, or UNAUTHORIZED where there is none.
 */
export function credentialOf(headers: IncomingHttpHeaders, queried: string | null = null): string {
  const key = headers["x-api-key"];
  const authorization = headers.authorization;
  if (key !== undefined && authorization !== undefined) {
    throw new AppError("TWO_CREDENTIALS", "two credentials in the request: X-Api-Key and Authorization", {
      hint: "send one of the two",
    });
  }
  if (queried !== null) {
    if (key === undefined && authorization === undefined && queried !== "") return queried;
    if (queried !== "") {
      throw new AppError("TWO_CREDENTIALS", "two credentials in the request: in a header and in the query", {
        hint: "send one of the two",
      });
    }
  }
  if (typeof key === "string" && key !== "") return key;
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+)$/i.exec(authorization)?.[1];
  if (bearer !== undefined) return bearer;
  throw new AppError("UNAUTHORIZED", "missing credential", {
    hint: "send the key as 'X-Api-Key: <key>' or 'Authorization: Bearer <key>'",
  });
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
