/**
 * Hot path. Invocation records: numbered before the call, appended before its answer leaves, read by id and by
 * function, pruned by age and count. An id carries its row number (invocation-ids.ts), so that looking one up needs no
 * second index; its random part keeps ids from being guessed.
 */
import type { Clock, EpochSeconds } from "../../base/clock.ts";
import { toEpochSeconds } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { exactValue } from "../../base/json-numbers.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Listed, Place } from "../../base/paging.ts";
import type { Quotas } from "../../base/tenant-limits.ts";
import {
  type Append,
  NODE_ID,
  numberOrNull,
  type Row,
  type Store,
  type StoredNode,
  textOrNull,
} from "../../store/store.ts";
import { trimStorage } from "../quota.ts";
import type { InvocationRecord, InvocationStatus, InvocationTimings } from "../schema.ts";
import { ALL_RECORDS, deleteExpired, nextBytePage, RECORD_BYTES } from "./byte-paging.ts";
import { InvocationIds, type InvocationNumber } from "./invocation-ids.ts";
import type { NumberSource } from "./invocation-numbers.ts";

/** First number whose id is masked, and the key of the mask. */
const ID_KEY = "invocation_id_mask";
const FLAG_STDOUT_TRUNCATED = 1;
const FLAG_STDERR_TRUNCATED = 2;

const COLUMNS = [
  "function_seq",
  "seq",
  "node_seq",
  "suffix",
  "version",
  "status",
  "started_at",
  "ended_at",
  "duration_ms",
  "exit_code",
  "result",
  "stdout",
  "stderr",
  "error_message",
  "cold_start",
  "flags",
  "instance_nonce",
  "timings",
] as const;

const SELECT = `SELECT *, ${NODE_ID} FROM invocations`;

/**
 * Functions that are gone and have records: a call that a deletion ended by force is recorded after it. Goes from one
 * function to the next in the index, so it costs as many steps as there are functions.
 */
const OWNERLESS = `WITH RECURSIVE owner (seq) AS (
    SELECT min(function_seq) FROM invocations
    UNION ALL SELECT (SELECT min(function_seq) FROM invocations WHERE function_seq > owner.seq) FROM owner
    WHERE owner.seq IS NOT NULL
  ) SELECT seq FROM owner WHERE seq IS NOT NULL AND seq NOT IN (SELECT seq FROM functions) LIMIT 1000`;

type FunctionKey = { readonly function_seq: number; readonly id: string; readonly name: string };

export interface InvocationsOptions {
  readonly store: Store;
  readonly ids: Ids;
  /** This node, which runs what is appended. */
  readonly node: StoredNode;
  readonly log: Log;
  readonly quotas: Quotas;
  readonly numbers: NumberSource;
}

export class Invocations {
  readonly #store: Store;
  readonly #ids: Ids;
  readonly #node: StoredNode;
  readonly #log: Log;
  readonly #quotas: Quotas;
  readonly #numbers: NumberSource;
  readonly #append: Append;
  #numbering: InvocationIds;

  constructor({ store, ids, node, log, quotas, numbers }: InvocationsOptions) {
    this.#store = store;
    this.#ids = ids;
    this.#node = node;
    this.#log = log;
    this.#quotas = quotas;
    this.#numbers = numbers;
    this.#numbering = new InvocationIds(ids, "", 0);
    this.#append = store.appender("invocations", COLUMNS);
  }

  /** The node that runs what is appended. */
  get node_id(): string {
    return this.#node.id;
  }

  /** Reserves the first block of numbers. Call once before anything else. */
  async boot(): Promise<void> {
    const first = await this.#numbers.boot();
    const sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING";
    await this.#store.write([{ sql, args: [ID_KEY, `${first}.${InvocationIds.newKey(this.#ids)}`] }], {
      durable: true,
    });
    const kept = await this.#store.readOne("SELECT value FROM meta WHERE key = ?", [ID_KEY]);
    const [from = "", key = ""] = String(kept?.value).split(".");
    this.#numbering = new InvocationIds(this.#ids, key, Number(from));
  }

  /** The next invocation's number and id. */
  number(): InvocationNumber {
    return this.#numbering.next(this.#numbers.next());
  }

  /** Commits a record, with its `result` as JSON. When this resolves the record survives any crash of the daemon. */
  append(
    function_seq: number,
    number: InvocationNumber,
    record: InvocationRecord,
    result: string | null,
  ): Promise<void> {
    return this.#append([
      function_seq,
      number.seq,
      this.#node.seq,
      number.suffix,
      record.version,
      record.status,
      record.started_at,
      record.ended_at,
      record.duration_ms,
      record.exit_code,
      result,
      record.stdout,
      record.stderr,
      record.error_message,
      record.cold_start ? 1 : 0,
      (record.stdout_truncated ? FLAG_STDOUT_TRUNCATED : 0) | (record.stderr_truncated ? FLAG_STDERR_TRUNCATED : 0),
      record.instance_nonce,
      JSON.stringify(record.timings),
    ]);
  }

  /** Adds output that came after the answer of a call to the standard error of its record, if that exists. */
  async addLate(function_seq: number, invocation_id: string, text: string): Promise<void> {
    const at = "WHERE function_seq = ? AND seq = ? AND suffix = ?";
    for (const { seq, suffix } of this.#numbering.places(invocation_id)) {
      const args = [function_seq, seq, suffix];
      await this.#store.write([
        {
          sql: `UPDATE functions SET stored_bytes = stored_bytes + ? WHERE seq = ? AND EXISTS (SELECT 1 FROM invocations ${at})`,
          args: [Buffer.byteLength(text), function_seq, ...args],
        },
        { sql: `UPDATE invocations SET stderr = stderr || ? ${at}`, args: [text, ...args] },
      ]);
    }
  }

  /** Records of a function, newest first; fewer than `limit` when their outputs are too large for one answer. */
  async list(of: FunctionKey, { limit, below }: Place): Promise<Listed<InvocationRecord>> {
    const lengths = `SELECT seq, ${RECORD_BYTES} AS bytes FROM invocations
      WHERE function_seq = ? AND seq < ? ORDER BY seq DESC LIMIT ?`;
    const { row_count, last_seq, is_cut } = await nextBytePage(
      (after, count) => this.#store.read(lengths, [of.function_seq, after ?? below, count]),
      limit,
      LIMITS.list_bytes_max,
    );
    const sql = `${SELECT} WHERE function_seq = ? AND seq >= ? AND seq < ? ORDER BY seq DESC LIMIT ?`;
    const rows = await this.#store.read(sql, [of.function_seq, last_seq, below, row_count]);
    return { items: rows.map((row) => this.#record(of, row)), last: is_cut ? last_seq : null };
  }

  /** One record. Throws NOT_FOUND. */
  async get(of: FunctionKey, invocation_id: string): Promise<InvocationRecord> {
    const sql = `${SELECT} WHERE function_seq = ? AND seq = ?`;
    for (const { seq, suffix } of this.#numbering.places(invocation_id)) {
      const row = await this.#store.readOne(sql, [of.function_seq, seq]);
      if (row !== null && row.suffix === suffix) return this.#record(of, row);
    }
    throw new AppError("NOT_FOUND", `invocation '${invocation_id}' not found`);
  }

  /** Deletes records that are too old or too many, for at most the interval in which it is called again. */
  async prune(clock: Clock, kept_count: number, kept_seconds: number): Promise<void> {
    const oldest_kept = toEpochSeconds(clock.epochMs()) - kept_seconds;
    const until_ms = clock.monotonicMs() + LIMITS.prune_interval_ms;
    const isLate = (): boolean => clock.monotonicMs() >= until_ms;
    for (let after = 0; ; ) {
      const page = await this.#store.read("SELECT seq FROM functions WHERE seq > ? ORDER BY seq LIMIT ?", [
        after,
        LIMITS.list_limit_max,
      ]);
      for (const { seq } of page) await this.#pruneOne(Number(seq), kept_count, oldest_kept, isLate);
      if (page.length < LIMITS.list_limit_max) break;
      after = Number(page.at(-1)?.seq);
    }
    for (const { seq } of await this.#store.read(OWNERLESS)) {
      await deleteExpired(this.#store, Number(seq), ALL_RECORDS, isLate);
    }
    await trimStorage(this.#store, this.#quotas, this.#log, isLate);
  }

  async #pruneOne(
    function_seq: number,
    kept_count: number,
    oldest_kept: EpochSeconds,
    isLate: () => boolean,
  ): Promise<void> {
    const [oldest, excess] = await Promise.all([
      this.#store.readOne("SELECT ended_at FROM invocations WHERE function_seq = ? ORDER BY seq LIMIT 1", [
        function_seq,
      ]),
      this.#store.readOne("SELECT seq FROM invocations WHERE function_seq = ? ORDER BY seq DESC LIMIT 1 OFFSET ?", [
        function_seq,
        kept_count,
      ]),
    ]);
    if (oldest === null || (excess === null && Number(oldest.ended_at) >= oldest_kept)) return;
    // At least one page of each function, however long the ones before took.
    await deleteExpired(
      this.#store,
      function_seq,
      { seq_max: Number(excess?.seq ?? 0), ended_before: oldest_kept },
      isLate,
    );
  }

  #record(of: FunctionKey, row: Row): InvocationRecord {
    const flags = Number(row.flags);
    return {
      invocation_id: this.#numbering.id({ seq: Number(row.seq), suffix: String(row.suffix) }),
      function_id: of.id,
      function_name: of.name,
      version: Number(row.version),
      execution_node_id: String(row.node_id),
      status: row.status as InvocationStatus,
      started_at: Number(row.started_at),
      ended_at: Number(row.ended_at),
      duration_ms: Number(row.duration_ms),
      exit_code: numberOrNull(row.exit_code),
      result: row.result === null ? null : (exactValue(Buffer.from(String(row.result))) as InvocationRecord["result"]),
      stdout: String(row.stdout),
      stderr: String(row.stderr),
      stdout_truncated: (flags & FLAG_STDOUT_TRUNCATED) !== 0,
      stderr_truncated: (flags & FLAG_STDERR_TRUNCATED) !== 0,
      error_message: textOrNull(row.error_message),
      cold_start: row.cold_start === 1,
      instance_nonce: textOrNull(row.instance_nonce),
      timings: JSON.parse(String(row.timings)) as InvocationTimings,
    };
  }
}
