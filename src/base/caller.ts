/**
 * The caller of a request: its tenant, its scopes, the port that tells a caller by its credential, and the
 * refusals. src/tenants/keys.ts keeps API keys and access tokens, src/functions/calls/tokens.ts the tokens of running
 * invocations.
 */
import { AppError } from "./errors.ts";

/** Rights of a key: read, call functions, change things, manage keys. */
export const SCOPES = ["read", "invoke", "write", "admin"] as const;
export type Scope = (typeof SCOPES)[number];

/**
 * Callers that a route admits. `public`: everyone, and no credential is read. `tenant`: every credential, which decides
 * the tenant. `operator`: the operator's key.
 */
export type AuthClass = "public" | "tenant" | "operator";

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
  /**
   * An API key itself, a user's access token, an access token made from one of them or by an outside issuer, or the token of
   * a running invocation.
   */
  readonly kind: "key" | "user" | "token" | "invocation";
  /**
   * Id of the API key or of the user's login, also for its tokens; id of the invocation for the token of one; subject of an outside issuer's
   * token.
   */
  readonly key_id: string;
  readonly scopes: readonly Scope[];
  /** True for the operator, who manages tenants and their keys. */
  readonly is_operator: boolean;
  /** Null unless `kind` is invocation. */
  readonly invocation: CallingInvocation | null;
  /** Containers that the credential reaches, and nothing else of its tenant (confinement.ts); absent: all of its tenant. */
  readonly container_ids?: ReadonlySet<string>;
}

/** Credentials that one listener accepts. Any number of requests may make both calls at the same time. */
export interface Authenticator {
  /** Returns the caller if it is known at once. Null says nothing of the credential yet. Never throws. */
  cached(credential: string): Caller | null;
  /** Rejects with `unknownCredential()` for each credential that it does not accept. */
  caller(credential: string): Promise<Caller>;
}

/** Returns the one refusal of a bad credential: its text tells nothing of what the credential is or was. */
export function unknownCredential(): AppError {
  return new AppError("UNAUTHORIZED", "invalid credential");
}

/**
 * Throws FORBIDDEN where a credential of containers names the user of a command: code in a container may have it, and the
 * container's own user would be no bound for code that may choose another one.
 */
export function refuseUser({ container_ids }: Pick<Caller, "container_ids">, user: unknown): void {
  if (container_ids === undefined || user === undefined || user === null) return;
  throw new AppError("FORBIDDEN", "user: a key of a container runs commands as the container's own user", {
    hint: "leave user out, or use a key of the tenant",
  });
}

export function lacksScope(scope: Scope): AppError {
  return new AppError("FORBIDDEN", `the key lacks the scope '${scope}'`, {
    details: { expected: [scope] },
    hint: "use a key with that scope, or create one",
  });
}
