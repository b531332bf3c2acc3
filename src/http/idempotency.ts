/**
 * Requests that carry an Idempotency-Key: the same request again gets the first answer, and nothing is done twice. The
 * one mechanism for every route that lists the header.
 *
 * K1. A key belongs to one tenant and one route. Its record holds a hash of method, path, query and body; another
 *     request with the key is refused.
 * K2. One request of a key runs at a time. Requests in flight are known to this process only: none outlives it.
 * K3. Only answers of success are recorded, durably, before they are sent. A refusal has changed nothing, so the request
 *     may be sent again with its key once the cause is gone.
 * K4. A handler that commits its work in one batch writes the record into that batch (`Once.record`), so that a crash
 *     loses both or neither. After a crash of any other handler between its work and the record, the request runs again,
 *     and the unique name of what it made answers NAME_TAKEN.
 * K5. Records end after `idempotency_kept_seconds`. A tenant keeps the newest, up to a count and a sum of bytes.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { Answer } from "../base/answer.ts";
import type { Caller } from "../base/caller.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError, errorText, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { insertInPlace } from "../base/sql-dialect.ts";
import type { Once, Statement, Store } from "../store/store.ts";
import type { Recorded, Route } from "./route.ts";

const REPLAYED = { "idempotent-replayed": "true" } as const;

/** A request with a key. */
export interface Keyed {
  readonly tenant_id: string;
  /** The name of its operation. */
  readonly route: string;
  /** Of its normal answer. */
  readonly status: number;
  readonly key: string;
  readonly request_sha256: string;
  /** Absent or null: the answer is recorded as it is. */
  readonly recorded?: Recorded | null;
}

export interface IdempotencyOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
}

/** New records of a tenant since its records were counted. */
interface Uncounted {
  count: number;
  bytes: number;
}

const FIND = `SELECT request_sha256, status, body FROM idempotency_keys
  WHERE tenant_id = ? AND route = ? AND key = ? AND created_at > ?`;
/** The tenant may be gone by now. */
const RECORD = `${insertInPlace("idempotency_keys")} (tenant_id, route, key, request_sha256, status, body, created_at)
  SELECT id, ?, ?, ?, ?, ?, ? FROM tenants WHERE id = ? AND state = 'active'`;
const FORGET = "DELETE FROM idempotency_keys WHERE tenant_id = ? AND route = ? AND key = ? AND request_sha256 = ?";
const TRIM = `DELETE FROM idempotency_keys WHERE tenant_id = ? AND seq <= (SELECT coalesce(max(seq), 0) FROM (
  SELECT seq, row_number() OVER newest AS count, sum(octet_length(body)) OVER newest AS bytes FROM idempotency_keys
  WHERE tenant_id = ? WINDOW newest AS (ORDER BY seq DESC)) WHERE count > ? OR bytes > ?)`;

/**
 * The key of a request, in its header or else in the field `idempotency_key` of its body; null where it has none, or its
 * route takes none. Throws INVALID_ARGUMENT.
 */
export function keyedRequest(
  { headers: heeded, operation, status, recorded }: Route,
  { tenant_id, key_id, container_ids }: Pick<Caller, "tenant_id" | "key_id" | "container_ids">,
  { method, url, headers }: Pick<IncomingMessage, "method" | "url" | "headers">,
  bytes: Uint8Array | null,
  body: unknown,
): Keyed | null {
  if (!heeded.includes("Idempotency-Key")) return null;
  const sent = headers["idempotency-key"] as string | undefined;
  const { idempotency_key } = (body ?? {}) as { readonly idempotency_key?: string | null };
  const key = sent ?? idempotency_key ?? null;
  if (key === null) return null;
  const { idempotency_key_length_max: length_max } = LIMITS;
  if (key.length === 0 || key.length > length_max) {
    throw new AppError("INVALID_ARGUMENT", `Idempotency-Key: must have 1 to ${length_max} characters`, {
      details: { expected: [">= 1 characters", `<= ${length_max} characters`] },
    });
  }
  const hash = createHash("sha256").update(`${method} ${url}\n`);
  const request_sha256 = hash.update(bytes ?? "").digest("hex");
  // A credential that does not reach all of its tenant neither sees nor takes the keys of others.
  const own = container_ids === undefined ? key : `${key_id} ${key}`;
  return { tenant_id, route: operation, status, key: own, request_sha256, recorded };
}

export class Idempotency {
  readonly #options: IdempotencyOptions;
  /** Hashes of the requests in flight, by key (K2). Each is a request of some connection, which bounds them. */
  readonly #running = new Map<string, string>();
  readonly #uncounted = new Map<string, Uncounted>();

  constructor(options: IdempotencyOptions) {
    this.#options = options;
  }

  /**
   * Runs a request, or returns the answer that it had. Throws IDEMPOTENCY_CONFLICT for a key of another request,
   * IDEMPOTENCY_IN_PROGRESS while the first one runs, and what `run` throws.
   */
  async once(keyed: Keyed, run: (once: Once) => unknown): Promise<unknown> {
    const { tenant_id, route, key, request_sha256 } = keyed;
    const name = JSON.stringify([tenant_id, route, key]);
    const running = this.#running.get(name);
    if (running !== undefined) throw running === request_sha256 ? inProgress() : usedBefore();
    this.#running.set(name, request_sha256);
    try {
      const oldest = this.#now() - LIMITS.idempotency_kept_seconds;
      const found = await this.#options.store.readOne(FIND, [tenant_id, route, key, oldest]);
      if (found === null) return await this.#first(keyed, run);
      if (found.request_sha256 !== request_sha256) throw usedBefore();
      const kept = JSON.parse(String(found.body));
      const body = keyed.recorded == null ? kept : await keyed.recorded.recall(tenant_id, kept);
      return new Answer(Number(found.status), body, REPLAYED);
    } finally {
      this.#running.delete(name);
    }
  }

  /** Deletes what has expired, and what a tenant has too much. */
  async prune(): Promise<void> {
    const { store } = this.#options;
    const rows_max = LIMITS.delete_rows_per_pass;
    const sql = `DELETE FROM idempotency_keys WHERE seq IN
      (SELECT seq FROM idempotency_keys WHERE created_at <= ? LIMIT ?)`;
    const args = [this.#now() - LIMITS.idempotency_kept_seconds, rows_max];
    while ((await store.write([{ sql, args }])).changes[0] === rows_max);
    for (const tenant_id of [...this.#uncounted.keys()]) await this.#trim(tenant_id);
  }

  /** Deletes the records of a tenant that is being deleted. */
  async erase(tenant_id: string): Promise<void> {
    this.#uncounted.delete(tenant_id);
    await this.#options.store.write([{ sql: "DELETE FROM idempotency_keys WHERE tenant_id = ?", args: [tenant_id] }]);
  }

  async #first(keyed: Keyed, run: (once: Once) => unknown): Promise<unknown> {
    const { store, log } = this.#options;
    let isRecorded = false;
    const record = (status: number, body: unknown): Statement => {
      isRecorded = true;
      return this.#record(keyed, status, JSON.stringify(body));
    };
    let result: unknown;
    try {
      result = await run({ record });
    } catch (error) {
      // The batch with the record was committed, and its work was refused later. After a fault the batch may be in effect.
      if (isRecorded && error instanceof AppError && error.code !== "INTERNAL") await this.#forget(keyed);
      throw error;
    }
    const { status, body } = result instanceof Answer ? result : { status: keyed.status, body: result };
    const text = JSON.stringify(keyed.recorded == null ? body : keyed.recorded.keep(body));
    invariant(text !== undefined && status < 300, `${keyed.route} answers what cannot be recorded`);
    try {
      if (Buffer.byteLength(text) > LIMITS.idempotency_body_bytes_max) {
        throw new AppError("CAPACITY_FULL", "response too large to record");
      }
      await store.write([this.#record(keyed, status, text)], { durable: true });
    } catch (error) {
      // The work is done: its client is told so.
      log.warn("response not recorded for its Idempotency-Key", { route: keyed.route, error: errorText(error) });
    }
    this.#count(keyed.tenant_id, text.length);
    return result;
  }

  #record({ tenant_id, route, key, request_sha256 }: Keyed, status: number, text: string): Statement {
    return { sql: RECORD, args: [route, key, request_sha256, status, text, this.#now(), tenant_id] };
  }

  async #forget({ tenant_id, route, key, request_sha256 }: Keyed): Promise<void> {
    await this.#options.store
      .write([{ sql: FORGET, args: [tenant_id, route, key, request_sha256] }], { durable: true })
      .catch((error) =>
        this.#options.log.warn("cannot delete the record of an Idempotency-Key", { error: errorText(error) }),
      );
  }

  /** Counts again before a tenant is far above its bounds (K5). */
  #count(tenant_id: string, bytes: number): void {
    const uncounted = this.#uncounted.get(tenant_id) ?? { count: 0, bytes: 0 };
    this.#uncounted.set(tenant_id, uncounted);
    uncounted.count += 1;
    uncounted.bytes += bytes;
    const { idempotency_counted_every, idempotency_body_bytes_max } = LIMITS;
    if (uncounted.count < idempotency_counted_every && uncounted.bytes < idempotency_body_bytes_max) return;
    this.#trim(tenant_id).catch((error) =>
      this.#options.log.warn("cannot trim the records of Idempotency-Keys", { error: errorText(error) }),
    );
  }

  async #trim(tenant_id: string): Promise<void> {
    this.#uncounted.delete(tenant_id);
    const { idempotency_keys_per_tenant_max: count_max, idempotency_bytes_per_tenant_max: bytes_max } = LIMITS;
    await this.#options.store.write([{ sql: TRIM, args: [tenant_id, tenant_id, count_max, bytes_max] }]);
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

function usedBefore(): AppError {
  return new AppError("IDEMPOTENCY_CONFLICT", "Idempotency-Key already used for a different request", {
    hint: "use a new Idempotency-Key for each request",
  });
}

function inProgress(): AppError {
  return new AppError("IDEMPOTENCY_IN_PROGRESS", "the first request with this Idempotency-Key is in progress", {
    hint: "retry the same request after retry_after seconds",
    retry_after: 1,
  });
}
