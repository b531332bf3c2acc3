/**
 * The audit log: an entry for each change and each refusal of both listeners. It is written behind the answer, so that
 * no request waits for it.
 *
 * A1. Every request that may change something is recorded with its result, also if it fails. Invocations that ran have
 *     records of their own; their refusals are here.
 * A2. Each source records `audit_refusals_burst` refusals at once and `audit_refusals_per_second` for long; a tenant, and all
 *     that sent no accepted credential together, `audit_sources_factor` times as many. Refusals above are counted in the
 *     source's next entry. Changes are all recorded.
 * A3. A crash loses entries of the last commits that had not begun: milliseconds. A power cut loses what was not synced: some
 *     seconds. Entries that the store does not take are counted.
 * A4. An entry holds ids, names and numbers. Bodies, queries, headers, outputs and credentials never get here.
 * A5. Refusals and changes have bounds of their own, so that refusals evict no changes.
 * A6. Eviction of changes merges them: the newest of a key and operation stays and counts those before it. So no number of
 *     later changes hides that a key did something; it hides only when and to which target. The calls of handlers count as
 *     one key. At most `audit_merged_max` merged entries stay.
 * A7. Each command that reaches a container by a message or a broadcast is recorded with its sender and the container. Of a request
 *     that sends some, the entry of the request is beside them.
 */
import { LRUCache } from "lru-cache";
import { sourceOf } from "../base/addresses.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import type { Listed, Place } from "../base/paging.ts";
import type { Observer, Served } from "../base/request-observer.ts";
import { type Append, type Row, type Store, textOrNull, type Value } from "../store/store.ts";
import type { AUDIT_RESULTS, AuditEntry, AuditFilter } from "./schema.ts";

const COLUMNS = [
  "at_ms",
  "tenant_id",
  "credential",
  "key_id",
  "address",
  "method",
  "route",
  "operation",
  "target",
  "status",
  "error_code",
  "request_id",
  "is_refusal",
  "suppressed_count",
] as const;

/** A NULL tenant would be no value of an index's equality. */
const NO_TENANT = "";
/** Of all callers without an accepted credential. */
const ANONYMOUS = "anonymous";

/** A command for a container. */
interface Command {
  readonly tenant_id: string;
  readonly container_id: string;
  readonly operation: string;
  /** Id of the message or the request. */
  readonly id: string;
  readonly by: { readonly credential: string; readonly key_id: string; readonly address: string | null } | undefined;
}

interface Bucket {
  tokens: number;
  filled_ms: number;
  suppressed_count: number;
}

export interface AuditStats {
  /** Entries that the store did not take. */
  readonly dropped_count: number;
  /** Refusals above the rate (A2). */
  readonly suppressed_count: number;
}

export class Audit implements Observer {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #append: Append;
  readonly #buckets = new LRUCache<string, Bucket>({ max: LIMITS.audit_sources_max });
  /** New entries since they were counted, by tenant. */
  readonly #uncounted = new Map<string, number>();
  /** Done when the newest entry is committed: a reader sees all requests that were answered before. */
  #written: Promise<void> = Promise.resolve();
  #dropped_count = 0;
  #suppressed_count = 0;

  constructor({ store, clock }: { readonly store: Store; readonly clock: Clock }) {
    this.#store = store;
    this.#clock = clock;
    this.#append = store.appender("audit", COLUMNS);
  }

  stats(): AuditStats {
    return { dropped_count: this.#dropped_count, suppressed_count: this.#suppressed_count };
  }

  served(request: Served): void {
    const { route, operation, error_code, is_change, notes } = request;
    if (route === null || operation === null) return;
    const is_refusal = error_code !== null;
    if (!is_refusal && (!is_change || notes.invocation_id !== undefined)) return;
    const suppressed_count = is_refusal ? this.#takeRefusal(request) : 0;
    if (suppressed_count === null) return;
    const { caller, address, method, target, status, request_id } = request;
    const tenant_id = caller?.tenant_id ?? NO_TENANT;
    this.#uncounted.set(tenant_id, (this.#uncounted.get(tenant_id) ?? 0) + 1);
    const row = [
      Math.floor(this.#clock.epochMs()),
      tenant_id,
      caller?.kind ?? null,
      caller?.key_id ?? null,
      address,
      method,
      route,
      operation,
      target,
      status,
      error_code,
      request_id,
      Number(is_refusal),
      suppressed_count,
    ];
    this.#add(row);
  }

  /** Records a command for a container (A7). */
  commanded({ tenant_id, container_id, operation, id, by }: Command): void {
    this.#uncounted.set(tenant_id, (this.#uncounted.get(tenant_id) ?? 0) + 1);
    const at_ms = Math.floor(this.#clock.epochMs());
    const sender = [by?.credential ?? null, by?.key_id ?? null, by?.address ?? null];
    this.#add([at_ms, tenant_id, ...sender, "SEND", "icc", operation, container_id, 200, null, id, 0, 0]);
  }

  #add(row: readonly Value[]): void {
    this.#written = this.#append(row).catch(() => {
      this.#dropped_count++;
    });
  }

  /**
   * One page, newest first. It reads a bounded part of the log, so it may be short, or empty, although entries follow:
   * `last` tells.
   */
  async list(filter: AuditFilter, { limit, below }: Place): Promise<Listed<AuditEntry>> {
    const items: AuditEntry[] = [];
    let window_count = 0;
    let last: number | null = null;
    for await (const { entries, floor } of this.#windows(filter, below, limit)) {
      items.push(...entries);
      last = floor;
      window_count++;
      if (items.length >= limit || window_count >= LIMITS.audit_windows_per_answer) break;
    }
    return { items, last };
  }

  /** All entries below a place, in portions. */
  async *all(filter: AuditFilter, below: number): AsyncGenerator<readonly AuditEntry[], void> {
    for await (const { entries } of this.#windows(filter, below, Number.POSITIVE_INFINITY)) yield entries;
  }

  /** Deletes what is too old or too much. */
  async prune(): Promise<void> {
    const expired_ms = this.#clock.epochMs() - LIMITS.audit_kept_seconds * 1000;
    await this.#delete("at_ms < ?", [expired_ms], "ORDER BY at_ms");
    for (const [tenant_id, count] of this.#uncounted) {
      if (count < LIMITS.audit_counted_every && this.#uncounted.size <= LIMITS.audit_uncounted_tenants_max) continue;
      this.#uncounted.delete(tenant_id);
      for (const [is_refusal, kept_max] of [
        [0, LIMITS.audit_changes_kept_per_tenant],
        [1, LIMITS.audit_refusals_kept_per_tenant],
      ] as const) {
        const own = [tenant_id, is_refusal];
        const sql = "SELECT seq FROM audit WHERE tenant_id = ? AND is_refusal = ? ORDER BY seq DESC LIMIT 1 OFFSET ?";
        const first = await this.#store.readOne(sql, [...own, kept_max]);
        if (first === null) continue;
        const seq = Number(first.seq);
        if (is_refusal === 0) await this.#merge(tenant_id, seq);
        else await this.#delete("tenant_id = ? AND is_refusal = ? AND seq <= ?", [...own, seq], "ORDER BY seq");
      }
    }
  }

  /** Merges the changes of a tenant up to this number (A6), a bounded part of them at a time. */
  async #merge(tenant_id: string, seq: number): Promise<void> {
    const oldest = [tenant_id, seq, LIMITS.delete_rows_per_pass];
    for (let isMore = true; isMore; ) {
      const { changes } = await this.#store.write([
        { sql: COUNT_MERGED, args: oldest },
        { sql: DELETE_MERGED, args: [...oldest, ...oldest, LIMITS.audit_merged_max] },
      ]);
      isMore = (changes[1] ?? 0) > 0;
    }
  }

  async #delete(condition: string, args: readonly Value[], order: string): Promise<void> {
    const rows_max = LIMITS.delete_rows_per_pass;
    const sql = `DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE ${condition} ${order} LIMIT ?)`;
    for (let isMore = true; isMore; ) {
      const { changes } = await this.#store.write([{ sql, args: [...args, rows_max] }]);
      isMore = changes[0] === rows_max;
    }
  }

  /**
   * Reads the log downwards in windows of so many numbers each: a filter that matches little holds the event loop for one
   * window at a time. At most `limit` entries in all. `floor`: where the next window begins; null at the end.
   */
  async *#windows(
    filter: AuditFilter,
    below: number,
    limit: number,
  ): AsyncGenerator<{ readonly entries: readonly AuditEntry[]; readonly floor: number | null }, void> {
    const { conditions, args } = conditionsOf(filter);
    await this.#written;
    const bounds = await this.#store.readOne("SELECT min(seq) AS first, max(seq) AS last FROM audit");
    const first = Number(bounds?.first ?? 0);
    let top = Math.min(below, Number(bounds?.last ?? -1) + 1);
    let left = limit;
    while (top > first && left > 0) {
      const rows_max = Math.min(left, LIMITS.audit_rows_per_read);
      const bottom = Math.max(first, top - LIMITS.audit_window_rows);
      const rows = await this.#store.read(`${SELECT} WHERE ${conditions} AND a.seq < ? AND a.seq >= ? ${ORDER}`, [
        ...args,
        top,
        bottom,
        rows_max,
      ]);
      left -= rows.length;
      top = rows.length === rows_max ? Number(rows.at(-1)?.seq) : bottom;
      yield { entries: rows.map(entryOf), floor: top > first ? top : null };
    }
  }

  /** Number of refusals suppressed before this one; null if it is suppressed too (A2). */
  #takeRefusal({ caller, address }: Served): number | null {
    const group = caller === null ? ANONYMOUS : `tenant ${caller.tenant_id}`;
    // Each call has a token of its own.
    const name = caller?.invocation?.function_id ?? caller?.key_id ?? sourceOf(address ?? "");
    const [own, all] = [this.#bucket(`${group} ${name}`, 1), this.#bucket(group, LIMITS.audit_sources_factor)];
    if (own.tokens < 1 || all.tokens < 1) {
      this.#suppressed_count++;
      own.suppressed_count++;
      return null;
    }
    own.tokens--;
    all.tokens--;
    const { suppressed_count } = own;
    own.suppressed_count = 0;
    return suppressed_count;
  }

  #bucket(name: string, factor: number): Bucket {
    const now_ms = this.#clock.monotonicMs();
    const full = LIMITS.audit_refusals_burst * factor;
    const bucket = this.#buckets.get(name) ?? { tokens: full, filled_ms: now_ms, suppressed_count: 0 };
    const filled = ((now_ms - bucket.filled_ms) / 1000) * LIMITS.audit_refusals_per_second * factor;
    bucket.tokens = Math.min(full, bucket.tokens + filled);
    bucket.filled_ms = now_ms;
    this.#buckets.set(name, bucket);
    return bucket;
  }
}

const SELECT = `SELECT a.seq, ${COLUMNS.map((name) => `a.${name}`).join(", ")}, k.name AS key_name
  FROM audit a LEFT JOIN api_keys k ON k.id = a.key_id AND k.tenant_id = a.tenant_id`;
const ORDER = "ORDER BY a.seq DESC LIMIT ?";

const OLDEST = `SELECT seq, suppressed_count, credential, operation,
    CASE credential WHEN 'invocation' THEN '' ELSE key_id END AS source
  FROM audit WHERE tenant_id = ? AND is_refusal = 0 AND seq <= ? ORDER BY seq LIMIT ?`;
const MERGED = `SELECT max(seq) AS seq, sum(suppressed_count + 1) AS count FROM (${OLDEST})
  GROUP BY credential, source, operation`;
const COUNT_MERGED = `UPDATE audit SET suppressed_count = merged.count - 1 FROM (${MERGED}) AS merged
  WHERE audit.seq = merged.seq`;
const DELETE_MERGED = `DELETE FROM audit WHERE seq IN (SELECT seq FROM (${OLDEST}))
  AND seq NOT IN (SELECT seq FROM (${MERGED}) ORDER BY seq DESC LIMIT ?)`;

/** A stream may fail after its status 200 was sent. */
const RESULTS: Readonly<Record<(typeof AUDIT_RESULTS)[number], string>> = {
  success: "a.error_code IS NULL",
  refused: "a.status BETWEEN 400 AND 499",
  failed: "a.error_code IS NOT NULL AND a.status NOT BETWEEN 400 AND 499",
};

function conditionsOf({ tenant_id, since, until, key_id, route, target, result }: AuditFilter) {
  const all: readonly (readonly [string, Value | undefined])[] = [
    ["a.tenant_id = ?", tenant_id ?? undefined],
    ["a.at_ms >= ?", since === undefined ? undefined : since * 1000],
    ["a.at_ms < ?", until === undefined ? undefined : until * 1000],
    ["a.key_id = ?", key_id],
    ["a.route = ?", route],
    ["a.target = ?", target],
  ];
  const given = all.flatMap(([sql, value]) => (value === undefined ? [] : [{ sql, value }]));
  const conditions = [result === undefined ? "1" : RESULTS[result], ...given.map(({ sql }) => sql)].join(" AND ");
  return { conditions, args: given.map(({ value }) => value) };
}

function entryOf(row: Row): AuditEntry {
  const status = Number(row.status);
  return {
    at: toEpochSeconds(Number(row.at_ms)),
    tenant_id: row.tenant_id === NO_TENANT ? null : String(row.tenant_id),
    credential: textOrNull(row.credential) as AuditEntry["credential"],
    key_id: textOrNull(row.key_id),
    key_name: textOrNull(row.key_name),
    address: textOrNull(row.address),
    method: String(row.method),
    route: String(row.route),
    operation: String(row.operation),
    target: textOrNull(row.target),
    status,
    result: row.error_code === null ? "success" : status >= 400 && status < 500 ? "refused" : "failed",
    error_code: textOrNull(row.error_code),
    request_id: String(row.request_id),
    suppressed_count: Number(row.suppressed_count),
  };
}
