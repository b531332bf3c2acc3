/**
 * The keys that encrypt secrets, in the file `secrets-key` of the data directory: outside of the store, so that a copy of
 * the store alone shows no value. The file has one key a line, newest first: `<id> <hex>`. The newest key encrypts; earlier
 * keys decrypt rows until a rotation has encrypted them again.
 *
 * K1. A new key is on the disk before it encrypts anything.
 * K2. A key leaves the file only when no row of the store uses it.
 * K3. The id is a digest of the key: a damaged line is detected before it decrypts anything.
 */
import { createHash, randomBytes } from "node:crypto";
import { AppError, invariant } from "../base/errors.ts";
import { keptText, writeKept } from "../base/kept-files.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { counted } from "../base/plurals.ts";
import type { Store } from "../store/store.ts";

const FILE = "secrets-key";
/** AES-256. */
const KEY_BYTES = 32;
const ID_LENGTH = 16;
/** Written by an operator who has lost the keys: the next start deletes all secrets. */
const DISCARD = "discard";
const FILE_PATTERN = /^(discard|[0-9a-f]{16} [0-9a-f]{64}(\n[0-9a-f]{16} [0-9a-f]{64})*)$/;
const HINT = `restore the file from a backup; if it is lost, write the word ${DISCARD} into it: the next start then deletes all secrets`;

export interface SecretsKey {
  readonly id: string;
  readonly bytes: Uint8Array;
}

/** Single writer: one process has and rotates the keys of its data directory; a second node could not decrypt its rows. */
export class SecretsKeys {
  readonly #keep: (text: string) => void;
  #keys: readonly SecretsKey[];

  /** `keep` writes the text of all keys durably, or throws and changes nothing. */
  constructor(keys: readonly SecretsKey[], keep: (text: string) => void) {
    this.#keys = keys;
    this.#keep = keep;
  }

  /** The key that encrypts. */
  get newest(): SecretsKey {
    const [key] = this.#keys;
    invariant(key !== undefined, "there is a key to encrypt secrets with");
    return key;
  }

  /** Keys before the newest one, newest first. */
  get earlier(): readonly SecretsKey[] {
    return this.#keys.slice(1);
  }

  /** Returns null for a key that is not in the file. */
  byId(id: string): SecretsKey | null {
    return this.#keys.find((key) => key.id === id) ?? null;
  }

  /** Adds a new key, durably (K1). Throws QUOTA_EXCEEDED if too many earlier keys are still in use. */
  add(): SecretsKey {
    if (this.#keys.length >= LIMITS.secrets_keys_max) {
      throw new AppError("QUOTA_EXCEEDED", `too many keys of secrets are in use (limit ${LIMITS.secrets_keys_max})`, {
        hint: "wait until the earlier rotations have ended; the log names secrets that do not decrypt",
      });
    }
    const key = keyOf(randomBytes(KEY_BYTES));
    this.#replace([key, ...this.#keys]);
    return key;
  }

  /** Removes an earlier key; the caller has checked K2. */
  drop(id: string): void {
    invariant(id !== this.newest.id, "the newest key of secrets stays");
    this.#replace(this.#keys.filter((key) => key.id !== id));
  }

  #replace(keys: readonly SecretsKey[]): void {
    this.#keep(textOf(keys));
    this.#keys = keys;
  }
}

/**
 * Reads the keys of a data directory, and makes the first one. Throws INTERNAL with the path if the file is damaged, or
 * lacks a key that rows of the store use.
 */
export async function openSecretsKeys(data_dir: string, store: Store, log: Log): Promise<SecretsKeys> {
  const file = `${data_dir}/${FILE}`;
  const keep = (text: string): void => writeKept(file, text);
  const used = await store.read("SELECT key_id, count(*) AS count FROM secrets GROUP BY key_id");
  const make = (): string => {
    if (used.length === 0) return textOf([keyOf(randomBytes(KEY_BYTES))]);
    throw new AppError("INTERNAL", `the file ${file} is missing or empty, and the store holds secrets`, { hint: HINT });
  };
  const { text } = keptText(file, { make, pattern: FILE_PATTERN, hint: HINT });
  if (text === DISCARD) {
    await store.write([{ sql: "DELETE FROM secrets" }], { durable: true });
    log.warn("all secrets deleted: their key is lost", { file });
    const first = keyOf(randomBytes(KEY_BYTES));
    keep(textOf([first]));
    return new SecretsKeys([first], keep);
  }
  const keys = parse(text);
  if (keys === null) throw new AppError("INTERNAL", `the file ${file} is damaged`, { hint: HINT });
  const lost = used.filter(({ key_id }) => !keys.some(({ id }) => id === key_id));
  if (lost.length > 0) {
    const rows = lost.reduce((sum, { count }) => sum + Number(count), 0);
    const ids = lost.map(({ key_id }) => key_id).join(", ");
    throw new AppError("INTERNAL", `the file ${file} lacks the key of ${counted(rows, "secret")}: ${ids}`, {
      hint: HINT,
    });
  }
  return new SecretsKeys(keys, keep);
}

function keyOf(bytes: Uint8Array): SecretsKey {
  const id = createHash("sha256").update("hearth secrets key\n").update(bytes).digest("hex").slice(0, ID_LENGTH);
  return { id, bytes };
}

function textOf(keys: readonly SecretsKey[]): string {
  return keys.map(({ id, bytes }) => `${id} ${Buffer.from(bytes).toString("hex")}`).join("\n");
}

/** Returns null if an id does not belong to its key (K3). */
function parse(text: string): readonly SecretsKey[] | null {
  const keys: SecretsKey[] = [];
  for (const line of text.split("\n")) {
    const [id, hex = ""] = line.split(" ");
    const key = keyOf(Buffer.from(hex, "hex"));
    if (key.id !== id) return null;
    keys.push(key);
  }
  return keys;
}
