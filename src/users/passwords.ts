/**
 * Passwords as Argon2id hashes, each with its parameters in a PHC string: `$argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>`.
 * node:crypto hashes on a thread of libuv.
 *
 * P1. At most `password_hashes_max` hashes run at a time, so their memory is bounded and files keep the other threads. At
 *     most `password_hashes_waiting_max` wait; further ones are refused.
 * P2. A password of an unknown user takes the same hash and comparison as one of a known user.
 */
import { type Argon2Parameters, argon2, randomBytes, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { Semaphore } from "../base/concurrency.ts";
import { AppError, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";

const ALGORITHM = "argon2id";
/** Of Argon2 1.3 (RFC 9106). */
const VERSION = 19;
const SALT_BYTES = 16;
const HASH_BYTES = 32;
const PHC = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

const derive: (algorithm: "argon2id", parameters: Argon2Parameters) => Promise<Buffer> = promisify(argon2);

export interface HashCost {
  readonly memory_kib: number;
  readonly passes: number;
  readonly lanes: number;
}

const COST: HashCost = {
  memory_kib: LIMITS.password_memory_kib,
  passes: LIMITS.password_passes,
  lanes: LIMITS.password_lanes,
};

/** Result of a comparison. */
export interface Verdict {
  readonly isRight: boolean;
  /** True if the hash was made with other parameters than new ones are. */
  readonly isOutdated: boolean;
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64").replaceAll("=", "");

export class Passwords {
  readonly #cost: HashCost;
  readonly #hashing: Semaphore;
  /** Stands for the hash of an unknown user (P2): no password has it. */
  readonly #unknown: string;

  constructor(cost: HashCost = COST) {
    this.#cost = cost;
    this.#unknown = this.#text(randomBytes(SALT_BYTES), randomBytes(HASH_BYTES));
    this.#hashing = new Semaphore(LIMITS.password_hashes_max, LIMITS.password_hashes_waiting_max, () => {
      const message = `too many passwords are being checked (limit ${LIMITS.password_hashes_waiting_max} waiting)`;
      return new AppError("CAPACITY_FULL", message, { retry_after: 2 });
    });
  }

  /** Throws CAPACITY_FULL if a password could not be hashed now. */
  check(): void {
    this.#hashing.check();
  }

  /** Throws CAPACITY_FULL. */
  async hash(password: string): Promise<string> {
    const salt = randomBytes(SALT_BYTES);
    return this.#text(salt, await this.#derive(password, salt, this.#cost));
  }

  /** `stored`: null for an unknown user, whose password is always wrong (P2). Throws CAPACITY_FULL. */
  async verify(password: string, stored: string | null): Promise<Verdict> {
    const [, memory, passes, lanes, salt = "", hash = ""] = PHC.exec(stored ?? this.#unknown) ?? [];
    invariant(hash !== "", "a stored password is a PHC string of argon2id");
    const cost = { memory_kib: Number(memory), passes: Number(passes), lanes: Number(lanes) };
    const made = await this.#derive(password, Buffer.from(salt, "base64"), cost);
    const kept = Buffer.from(hash, "base64");
    const isSame = kept.length === made.length && timingSafeEqual(kept, made);
    const { memory_kib, passes: wanted_passes, lanes: wanted_lanes } = this.#cost;
    const isOutdated = cost.memory_kib !== memory_kib || cost.passes !== wanted_passes || cost.lanes !== wanted_lanes;
    return { isRight: isSame && stored !== null, isOutdated };
  }

  /** The same text in two Unicode forms is the same password. */
  #derive(password: string, nonce: Buffer, { memory_kib, passes, lanes }: HashCost): Promise<Buffer> {
    const message = Buffer.from(password.normalize("NFC"));
    return this.#hashing.run(() =>
      derive(ALGORITHM, { message, nonce, parallelism: lanes, tagLength: HASH_BYTES, memory: memory_kib, passes }),
    );
  }

  #text(salt: Uint8Array, hash: Uint8Array): string {
    const { memory_kib, passes, lanes } = this.#cost;
    return `$${ALGORITHM}$v=${VERSION}$m=${memory_kib},t=${passes},p=${lanes}$${base64(salt)}$${base64(hash)}`;
  }
}
