/**
 * Hot path. Who is calling and what they may do: the port through which a listener asks, the credential of a request,
 * and whether a caller may use a route. API keys and access tokens are src/tenants/keys.ts's, the tokens of running
 * invocations src/functions/tokens.ts's.
 */
import type { IncomingHttpHeaders } from "node:http";
import { AppError } from "../base/errors.ts";
import type { Route, Scope } from "./route.ts";

/** The invocation inside which a request was made. */
export interface CallingInvocation {
  readonly invocation_id: string;
  readonly function_id: string;
  /** Invocations above it in its chain: 0 for one that was called with an API key. */
  readonly depth: number;
  /** Monotonic. */
  readonly deadline_ms: number;
}

export interface Caller {
  readonly tenant_id: string;
  /** An API key itself, an access token made from one or by an outside issuer, or the token of a running invocation. */
  readonly kind: "key" | "token" | "invocation";
  /** Of the API key, also behind its tokens; of the invocation whose token was sent; of an outside issuer's subject. */
  readonly key_id: string;
  readonly scopes: readonly Scope[];
  /** May do what is the operator's: tenants and their keys. */
  readonly is_operator: boolean;
  /** Null but for `kind` invocation. */
  readonly invocation: CallingInvocation | null;
}

/** What one listener accepts as a credential. Both calls may be made by any number of requests at the same time. */
export interface Authenticator {
  /** The caller where that is known at once, else null, which says nothing of the credential yet. Never throws. */
  cached(credential: string): Caller | null;
  /** Rejects with `unknownCredential()` for whatever it does not accept. */
  caller(credential: string): Promise<Caller>;
}

/** The one refusal of a bad credential: its text tells nothing of what the credential was or had been. */
export function unknownCredential(): AppError {
  return new AppError("UNAUTHORIZED", "the key is not valid");
}

/**
 * The credential that a request carries; `queried`: what a route that takes one in its query found there. Throws
 * TWO_CREDENTIALS, or UNAUTHORIZED where there is none.
 */
export function credentialOf(headers: IncomingHttpHeaders, queried: string | null = null): string {
  const key = headers["x-api-key"];
  const authorization = headers.authorization;
  if (key !== undefined && authorization !== undefined) {
    throw new AppError("TWO_CREDENTIALS", "both X-Api-Key and Authorization were sent", {
      hint: "send one of the two",
    });
  }
  if (queried !== null) {
    if (key === undefined && authorization === undefined && queried !== "") return queried;
    if (queried !== "") {
      throw new AppError("TWO_CREDENTIALS", "a credential was sent in a header and in the query", {
        hint: "send one of the two",
      });
    }
  }
  if (typeof key === "string" && key !== "") return key;
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+)$/i.exec(authorization)?.[1];
  if (bearer !== undefined) return bearer;
  throw new AppError("UNAUTHORIZED", "no usable credential was sent", {
    hint: "send the key as 'X-Api-Key: <key>' or 'Authorization: Bearer <key>'",
  });
}

/** Throws FORBIDDEN unless the caller may use the route. The text tells what the key lacks, never what is behind it. */
export function permit({ auth, scope }: Pick<Route, "auth" | "scope">, caller: Caller): void {
  if (auth === "operator" && !caller.is_operator) {
    throw new AppError("FORBIDDEN", "only the operator may do this", { hint: "use the operator's key" });
  }
  if (scope !== null && !caller.scopes.includes(scope)) throw lacksScope(scope);
}

export function lacksScope(scope: Scope): AppError {
  return new AppError("FORBIDDEN", `the key lacks the scope '${scope}'`, {
    details: { expected: [scope] },
    hint: "make a key with that scope, or use another one",
  });
}
