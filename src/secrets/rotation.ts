/**
 * Rotation of the key of secrets. A new key encrypts from now on; the daemon encrypts the existing rows of all kinds again
 * in the background, a bounded number at a time, and then removes the earlier key.
 *
 * R1. A crash at any point leaves every row with a key that is in the file. The next start continues.
 * R2. An earlier key is removed after a synced commit that found no row with it. Batches commit in the order of their
 *     calls, so every row that it encrypted is visible then.
 * R3. A row changes only if it still holds the value that was read: a newer value stays.
 */
import type { Clock } from "../base/clock.ts";
import { KeyedMutex, Underway } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { Retries } from "../base/retries.ts";
import type { Row, Statement, Store } from "../store/store.ts";
import { NONCE_BYTES, seal, unseal } from "./cipher.ts";
import type { SecretsKey, SecretsKeys } from "./keys.ts";
import type { SecretsKeyStatus } from "./schema.ts";

export interface SecretsRotationOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly keys: SecretsKeys;
}

const SELECT = `SELECT seq, tenant_id, kind, name, value FROM secrets WHERE key_id = ? AND seq > ? ORDER BY seq LIMIT ?`;
const MOVE = `UPDATE secrets SET key_id = ?, value = ? WHERE seq = ? AND key_id = ? AND substr(value, 1, ${NONCE_BYTES}) = ?`;
const NONE_LEFT = "UPDATE secrets SET key_id = key_id WHERE key_id = ?";

export class SecretsRotation {
  readonly #options: SecretsRotationOptions;
  readonly #turns = new KeyedMutex();
  readonly #underway = new Underway();
  readonly #retries: Retries;
  #isClosed = false;

  constructor(options: SecretsRotationOptions) {
    this.#options = options;
    const { clock, log } = options;
    const later = (_id: string, attempt: () => Promise<void>) => this.#underway.add(attempt());
    this.#retries = new Retries({ clock, log, what: "earlier key of secrets", later });
  }

  /** Adds a key and begins to move all rows to it. Throws QUOTA_EXCEEDED if too many earlier keys are still in use. */
  async rotate(): Promise<SecretsKeyStatus> {
    this.#options.keys.add();
    failpoint("secrets.rotate.kept");
    const status = await this.status();
    this.resume();
    return status;
  }

  /** Moves rows of earlier keys in the background, as a crash or a failure left them. */
  resume(): void {
    for (const { id } of this.#options.keys.earlier) {
      const work = () => this.#turns.run("", () => this.#finish(id));
      void this.#underway.add(this.#retries.run(id, work)).catch(() => {});
    }
  }

  async status(): Promise<SecretsKeyStatus> {
    const { store, keys } = this.#options;
    const { newest, earlier } = keys;
    const row = await store.readOne("SELECT count(*) AS count FROM secrets WHERE key_id <> ?", [newest.id]);
    return { key_id: newest.id, earlier_key_ids: earlier.map(({ id }) => id), pending_count: Number(row?.count) };
  }

  /** Ends after the batch that is under way. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#retries.close();
    await this.#underway.settled();
  }

  /** Moves all rows of an earlier key, then removes the key (R2). Throws INTERNAL if rows do not decrypt. */
  async #finish(id: string): Promise<void> {
    const { store, keys, log } = this.#options;
    const key = keys.byId(id);
    if (key === null) return;
    const lost = await this.#moveAll(key);
    if (this.#isClosed) return;
    const { conflict } = await store.write([{ sql: NONE_LEFT, args: [id], expect_changes: 0 }], { durable: true });
    if (conflict !== null) {
      const [first] = lost;
      const what = first === undefined ? "" : `; first: '${first.name}' of tenant ${first.tenant_id}`;
      throw new AppError("INTERNAL", `${lost.length} secrets do not decrypt, their key ${id} stays${what}`);
    }
    failpoint("secrets.rotate.emptied");
    keys.drop(id);
    log.info("earlier key of secrets removed", { key_id: id });
  }

  /** Returns the rows that do not decrypt, the first ones. */
  async #moveAll(key: SecretsKey): Promise<readonly Row[]> {
    const { store } = this.#options;
    const rows_max = LIMITS.secrets_batch_rows;
    const lost: Row[] = [];
    for (let after = 0; !this.#isClosed; ) {
      const rows = await store.read(SELECT, [key.id, after, rows_max]);
      const last = rows.at(-1);
      if (last === undefined) break;
      const moves = rows.map((row) => this.#move(row, key));
      lost.push(...rows.filter((_, i) => moves[i] === null));
      const statements = moves.filter((move) => move !== null);
      if (statements.length > 0) await store.write(statements);
      failpoint("secrets.rotate.moved");
      after = Number(last.seq);
    }
    return lost;
  }

  /** Returns the statement that encrypts a row with the newest key (R3); null if the row does not decrypt. */
  #move(row: Row, earlier: SecretsKey): Statement | null {
    const { newest } = this.#options.keys;
    const [sealed, seq] = [row.value as Uint8Array, Number(row.seq)];
    const place = { tenant_id: String(row.tenant_id), kind: String(row.kind), name: String(row.name) };
    const plain = unseal(earlier, place, sealed);
    if (plain === null) return null;
    const value = seal(newest, place, plain);
    plain.fill(0);
    return { sql: MOVE, args: [newest.id, value, seq, earlier.id, sealed.subarray(0, NONCE_BYTES)] };
  }
}
