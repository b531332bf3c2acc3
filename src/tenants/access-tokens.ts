/**
 * Short-lived access tokens: JWTs that this daemon signs for a key, and those of an outside issuer whose keys are
 * fetched from its JWKS. Which of them still stand is keys.ts's; here only signature and claims are looked at.
 *
 * T1. Algorithm, issuer and audience are pinned for each of the two kinds, so neither can pass for the other: own
 *     tokens are HS256 with a secret that never leaves the data directory, outside ones are asymmetric.
 * T2. An own token names the text of its key, by a digest that only this daemon can make: a key that takes the id of
 *     another, as the operator's does, does not take over its tokens.
 * T3. A token without an expiry, or with one further away than `access_token_seconds_max`, is refused.
 */
import { createHmac } from "node:crypto";
import {
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
  SignJWT,
} from "jose";
import { SCOPES, type Scope } from "../base/caller.ts";
import { type Clock, type EpochSeconds, toEpochSeconds } from "../base/clock.ts";
import { type OutsideIssuer, OWN_ISSUER } from "../base/config.ts";
import { errorText } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Outgoing } from "../base/outgoing-requests.ts";
import type { TokenKeys } from "./token-keys.ts";

const OWN_ALGORITHM = "HS256";
const CLOCK_TOLERANCE_SECONDS = 5;

/** What a token's signature and claims prove. */
export interface Proven {
  readonly tenant_id: string;
  /** The key's id for an own token; `<issuer's subject>` with a prefix that no key's id has, otherwise. */
  readonly subject: string;
  readonly scopes: readonly Scope[];
  readonly expires_at: EpochSeconds;
  /** True if an own token was made from the key with this digest; null for an outside one. */
  readonly isOfKey: ((secret_sha256: string) => boolean) | null;
  /** True for the token that a user got for a password or a refresh token, not for one made from it. */
  readonly isOfUser: boolean;
}

/** The API key or login that a token is made from. */
interface TokenSource {
  readonly tenant_id: string;
  readonly key_id: string;
  readonly secret_sha256: string;
}

export interface AccessTokensOptions {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly token_keys: TokenKeys;
  readonly outside: OutsideIssuer | null;
  readonly outgoing: Outgoing;
}

/** Whether a credential has the form of a JWT; no API key begins like it. */
export function isAccessToken(credential: string): boolean {
  return /^eyJ[\w-]+\.[\w-]+\.[\w-]+$/.test(credential);
}

/** What jose says of a token, not of the keys that it needs: whoever sends bad tokens does not write the log. */
const OF_TOKEN = /^ERR_(JWT|JWS|JOSE_ALG|JOSE_NOT_SUPPORTED)|^ERR_JWKS_(NO|MULTIPLE)_MATCHING_KEY/;

/** Stands for an API key in its tokens (T2). Not the digest itself: an operator's key may be one that can be guessed. */
function keyProof(secret: Uint8Array, secret_sha256: string): string {
  return createHmac("sha256", secret).update(secret_sha256).digest("base64url");
}

export class AccessTokens {
  readonly #options: AccessTokensOptions;
  readonly #jwks: JWTVerifyGetKey | null;
  #warned_ms = Number.NEGATIVE_INFINITY;

  constructor(options: AccessTokensOptions) {
    this.#options = options;
    this.#jwks =
      options.outside === null
        ? null
        : createRemoteJWKSet(new URL(options.outside.jwks_url), {
            timeoutDuration: LIMITS.jwks_timeout_ms,
            cooldownDuration: LIMITS.jwks_cooldown_ms,
            cacheMaxAge: LIMITS.jwks_cache_ms,
            [customFetch]: (url, { signal }) => this.#fetch(url, signal),
          });
  }

  /** Fetches the issuer's keys through the guard. */
  async #fetch(url: string, signal: AbortSignal): Promise<Response> {
    const [timeout_ms, bytes_max] = [LIMITS.jwks_timeout_ms, LIMITS.jwks_bytes_max];
    const { status, body } = await this.#options.outgoing.request(url, { timeout_ms, bytes_max, signal });
    return new Response(body, { status });
  }

  /** A token of `ttl_seconds` for a key or a login. `isOfUser`: see `Proven`. */
  async issue(
    { tenant_id, key_id, secret_sha256 }: TokenSource,
    scopes: readonly Scope[],
    ttl_seconds: number,
    isOfUser = false,
  ): Promise<string> {
    const now = toEpochSeconds(this.#options.clock.epochMs());
    const { kid, secret } = this.#options.token_keys.newest;
    const claims = { tenant_id, scope: scopes.join(" "), key: keyProof(secret, secret_sha256) };
    return new SignJWT(isOfUser ? { ...claims, user: true } : claims)
      .setProtectedHeader({ alg: OWN_ALGORITHM, typ: "JWT", kid })
      .setIssuer(OWN_ISSUER)
      .setAudience(OWN_ISSUER)
      .setSubject(key_id)
      .setJti(this.#options.ids.random(16))
      .setIssuedAt(now)
      .setExpirationTime(now + ttl_seconds)
      .sign(secret);
  }

  /** As `TokenKeys.rotate`. */
  rotate(overlap_seconds: number): EpochSeconds {
    return this.#options.token_keys.rotate(overlap_seconds);
  }

  /** Null for whatever is not to be trusted. Never rejects. */
  async verify(token: string): Promise<Proven | null> {
    try {
      return decodeJwt(token).iss === OWN_ISSUER ? await this.#verifyOwn(token) : await this.#verifyOutside(token);
    } catch (error) {
      this.#note(error);
      return null;
    }
  }

  async #verifyOwn(token: string): Promise<Proven | null> {
    const keys = this.#options.token_keys.good(decodeProtectedHeader(token).kid);
    for (const [i, { secret, until }] of keys.entries()) {
      try {
        const { payload } = await jwtVerify(token, secret, {
          issuer: OWN_ISSUER,
          audience: OWN_ISSUER,
          algorithms: [OWN_ALGORITHM],
          requiredClaims: ["exp", "sub"],
          currentDate: new Date(this.#options.clock.epochMs()),
        });
        return this.#proven(payload, { secret, until: until ?? Number.POSITIVE_INFINITY });
      } catch (error) {
        if (i === keys.length - 1) throw error;
      }
    }
    return null;
  }

  async #verifyOutside(token: string): Promise<Proven | null> {
    const { outside, clock } = this.#options;
    if (outside === null || this.#jwks === null) return null;
    const { payload } = await jwtVerify(token, this.#jwks, {
      issuer: outside.issuer,
      audience: outside.audience,
      algorithms: [...outside.algorithms],
      requiredClaims: ["exp", "sub"],
      clockTolerance: CLOCK_TOLERANCE_SECONDS,
      currentDate: new Date(clock.epochMs()),
    });
    return this.#proven(payload, null);
  }

  /** `own`: the key that has signed it; null for an outside token. */
  #proven(payload: JWTPayload, own: { readonly secret: Uint8Array; readonly until: number } | null): Proven | null {
    const { outside, clock } = this.#options;
    const is_own = own !== null;
    const tenant_id = payload[is_own ? "tenant_id" : (outside?.tenant_claim ?? "")];
    const { exp = 0, sub = "", scope, key } = payload;
    if (is_own && typeof key !== "string") return null;
    if (typeof tenant_id !== "string" || typeof scope !== "string" || sub === "") return null;
    const left_seconds = exp - toEpochSeconds(clock.epochMs());
    if (left_seconds > LIMITS.access_token_seconds_max + CLOCK_TOLERANCE_SECONDS) return null;
    const given = scope.split(" ");
    // It is a name in the log and nowhere else.
    const subject = is_own ? sub : `jwt:${sub.slice(0, LIMITS.request_id_length_max).replace(/[^\x21-\x7e]/g, "?")}`;
    const scopes = SCOPES.filter((name) => given.includes(name));
    if (own === null) return { tenant_id, subject, scopes, expires_at: exp, isOfKey: null, isOfUser: false };
    const isOfKey = (secret_sha256: string): boolean => keyProof(own.secret, secret_sha256) === key;
    const isOfUser = payload.user === true;
    return { tenant_id, subject, scopes, expires_at: Math.min(exp, own.until), isOfKey, isOfUser };
  }

  /** An issuer that cannot be reached refuses everybody: said in the log, once in a while, not for each token. */
  #note(error: unknown): void {
    const { clock, log, outside } = this.#options;
    const code = (error as { code?: unknown }).code;
    const isOfToken = typeof code === "string" && OF_TOKEN.test(code);
    const now_ms = clock.monotonicMs();
    if (isOfToken || outside === null || now_ms - this.#warned_ms < LIMITS.jwks_cooldown_ms) return;
    this.#warned_ms = now_ms;
    log.warn("cannot read the issuer's keys", { url: outside.jwks_url, error: errorText(error) });
  }
}
