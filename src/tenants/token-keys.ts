/**
 * The keys that own access tokens are signed with. The newest signs; those before it verify until the last token that they
 * signed has expired. The text that keeps them has a key a line, newest first: `<hex>`, and for earlier ones the epoch
 * second until which they verify.
 *
 * K1. The text is replaced before the new key signs anything: a token that was answered is good after a crash.
 */
import { createHash, randomBytes } from "node:crypto";
import { type Clock, type EpochSeconds, toEpochSeconds } from "../base/clock.ts";
import { AppError, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";

/** As many as the digest of HS256 has (RFC 7518 §3.2). */
const SECRET_BYTES = 32;
const KEY_ID_LENGTH = 12;
/** Matches the text that keeps the keys. */
export const TOKEN_KEYS_PATTERN = /^[0-9a-f]{64,}(\n[0-9a-f]{64,} \d{1,12})*$/;

export interface TokenKey {
  /** Header `kid` of its tokens. */
  readonly kid: string;
  readonly secret: Uint8Array;
  /** Null for the newest. */
  readonly until: EpochSeconds | null;
}

export function newTokenKey(): string {
  return randomBytes(SECRET_BYTES).toString("hex");
}

export interface TokenKeysOptions {
  readonly clock: Clock;
  readonly text: string;
  /** Keeps a new text. Throws if it is not kept; then the old one is. */
  readonly keep: (text: string) => void;
}

/** Single writer: one process has and rotates the keys of its data directory; a second node could not verify its tokens. */
export class TokenKeys {
  readonly #clock: Clock;
  readonly #keep: (text: string) => void;
  #keys: readonly TokenKey[];

  constructor({ clock, text, keep }: TokenKeysOptions) {
    this.#clock = clock;
    this.#keep = keep;
    this.#keys = text.split("\n").map(keyOf);
  }

  /** The key that signs. */
  get newest(): TokenKey {
    const [key] = this.#keys;
    invariant(key !== undefined, "there is a key to sign tokens with");
    return key;
  }

  /** Keys that may have signed a token with this `kid`; without one, as earlier versions made them, all. */
  good(kid: string | undefined): readonly TokenKey[] {
    return this.#verifying().filter((key) => kid === undefined || key.kid === kid);
  }

  /**
   * Makes a new key. Earlier ones verify for `overlap_seconds`, or until they would have ended anyway. Returns that time.
   * Throws QUOTA_EXCEEDED if too many keys still verify.
   */
  rotate(overlap_seconds: number): EpochSeconds {
    const until = toEpochSeconds(this.#clock.epochMs()) + overlap_seconds;
    const kept = overlap_seconds === 0 ? [] : this.#verifying();
    if (kept.length >= LIMITS.token_keys_max) {
      throw new AppError("QUOTA_EXCEEDED", `too many token keys still verify (limit ${LIMITS.token_keys_max})`, {
        hint: "end the earlier keys with overlap_seconds 0, or wait until their tokens expire",
      });
    }
    const earlier = kept.map((key) => ({ ...key, until: Math.min(key.until ?? until, until) }));
    const keys = [keyOf(newTokenKey()), ...earlier];
    this.#keep(keys.map(lineOf).join("\n"));
    this.#keys = keys;
    return until;
  }

  #verifying(): readonly TokenKey[] {
    const now = this.#clock.epochMs();
    return this.#keys.filter(({ until }) => until === null || until * 1000 > now);
  }
}

function keyOf(line: string): TokenKey {
  const [hex = "", until] = line.trim().split(" ");
  const secret = Buffer.from(hex, "hex");
  invariant(secret.length >= SECRET_BYTES, "a token key has at least 32 bytes");
  const kid = createHash("sha256").update(secret).digest("hex").slice(0, KEY_ID_LENGTH);
  return { kid, secret, until: until === undefined ? null : Number(until) };
}

function lineOf({ secret, until }: TokenKey): string {
  return `${Buffer.from(secret).toString("hex")}${until === null ? "" : ` ${until}`}`;
}
