/**
 * Keys and values of a tenant: the last state that somebody published to `state:<key>`, until it is deleted.
 *
 * K1. A write is one commit with the counts of the tenant, durable when its promise resolves.
 * K2. The versions of a key rise with each write, also after it was deleted and made again: a writer that names an old
 *     version never overwrites a value that it has not seen.
 * K3. A message with the msg_id of the key's last write is a duplicate, and changes nothing.
 * K4. The key that is the id of a container is this container's state, and ends with it.
 */
import type { Clock } from "../../base/clock.ts";
import { KeyedMutex } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Row, Statement, Store } from "../../store/store.ts";
import { invalid } from "../envelope/refusal.ts";
import {
  isJson,
  JSON_CONTENT,
  mediaType,
  parsed,
  type StateNews,
  type StateReader,
  type StateValue,
} from "./entries.ts";
import { mergePatch } from "./merge-patch.ts";
import { StateWatch, StateWatches } from "./watches.ts";

export interface StateChange {
  readonly key: string;
  readonly content_type: string;
  readonly data: Uint8Array;
  readonly from: string;
  /** Version that the key has; 0: there is none. Null: whichever. */
  readonly if_version: number | null;
  /** K3; null: no message. */
  readonly msg_id: string | null;
}

export interface StatePatching {
  readonly key: string;
  readonly content_type: string;
  readonly patch: Uint8Array;
  readonly from: string;
  readonly if_version: number | null;
  readonly msg_id: string | null;
  /** Checks alone. */
  readonly is_dry: boolean;
}

export interface StateWritten {
  readonly version: number;
  readonly is_duplicate: boolean;
}

const PATCH_TYPES = ["application/merge-patch+json", JSON_CONTENT];
const COLUMNS = "key, version, content_type, data, set_by, updated_ms";

export interface StatesOptions {
  readonly store: Store;
  readonly clock: Clock;
}

export class States implements StateReader {
  readonly #options: StatesOptions;
  readonly #turns = new KeyedMutex();
  readonly #watches = new StateWatches();

  constructor(options: StatesOptions) {
    this.#options = options;
  }

  /** Null: there is no such key. */
  async find(tenant_id: string, key: string): Promise<StateValue | null> {
    const row = await this.#row(tenant_id, key);
    return row === null ? null : toValue(row);
  }

  /** Rejects with NOT_FOUND. */
  async get(tenant_id: string, key: string): Promise<StateValue> {
    const found = await this.find(tenant_id, key);
    if (found === null) throw new AppError("NOT_FOUND", `no state has the key '${key}'`);
    return found;
  }

  /** Entries whose keys begin with `prefix`, by key, after a key. Bounded in number and bytes, one entry at least. */
  async list(
    tenant_id: string,
    { prefix, after, entries_max }: { prefix: string; after: string; entries_max: number },
  ) {
    const limit = Math.min(entries_max, LIMITS.state_page_max);
    const found = await this.#options.store.read(
      `SELECT key, bytes FROM icc_states WHERE tenant_id = ? AND key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?`,
      // Keys are ASCII, without DEL.
      [tenant_id, after, prefix, `${prefix}\x7f`, limit + 1],
    );
    const keys: string[] = [];
    let sum = 0;
    for (const { key, bytes } of found) {
      sum += Number(bytes);
      if (keys.length === limit || (keys.length > 0 && sum > LIMITS.state_page_bytes_max)) break;
      keys.push(String(key));
    }
    const rows = await Promise.all(keys.map((key) => this.#row(tenant_id, key)));
    const entries = rows.flatMap((row) => (row === null ? [] : [toValue(row)]));
    return { entries, next_after: keys.length < found.length ? (keys.at(-1) ?? null) : null };
  }

  /** Writes a value. Rejects with WRONG_STATE for another version, BODY_TOO_LARGE, QUOTA_EXCEEDED. */
  put(tenant_id: string, change: StateChange): Promise<StateWritten> {
    return this.#inTurn(tenant_id, change.key, (before) => {
      const repeated = repeatOf(before, change.msg_id);
      if (repeated !== null) return Promise.resolve(repeated);
      checkVersion(change.key, before, change.if_version);
      return this.#write(tenant_id, before, change);
    });
  }

  /** Writes a JSON value; resolves to the entry. Rejects as `put`. */
  async putJson(
    tenant_id: string,
    write: {
      readonly key: string;
      readonly value?: unknown;
      readonly if_version?: number | null | undefined;
      from: string;
    },
  ): Promise<StateValue> {
    const { key, value = null, if_version = null, from } = write;
    const data = Buffer.from(JSON.stringify(value));
    const change = { key, content_type: JSON_CONTENT, data, from, if_version, msg_id: null };
    const { version } = await this.put(tenant_id, change);
    return { key, version, content_type: JSON_CONTENT, data, from, updated_ms: this.#options.clock.epochMs() };
  }

  /** Applies a JSON merge patch to a value; a key that is not there is null. Rejects as `put`, and with INVALID_ARGUMENT. */
  patch(tenant_id: string, patching: StatePatching): Promise<StateWritten> {
    const { key, from, if_version, msg_id, is_dry } = patching;
    const patch = patchOf(patching);
    return this.#inTurn(tenant_id, key, async (before) => {
      const repeated = repeatOf(before, msg_id);
      if (repeated !== null) return repeated;
      checkVersion(key, before, if_version);
      const value = mergePatch(before === null ? null : valueToPatch(before), patch);
      const data = Buffer.from(JSON.stringify(value));
      checkSize(key, data);
      if (is_dry) return { version: Number(before?.version ?? 0), is_duplicate: false };
      return this.#write(tenant_id, before, { key, content_type: JSON_CONTENT, data, from, if_version, msg_id });
    });
  }

  /** Deletes a key; resolves to its last version. Rejects with NOT_FOUND, and WRONG_STATE for another version. */
  delete(tenant_id: string, key: string, if_version: number | null): Promise<number> {
    return this.#inTurn(tenant_id, key, async (before) => {
      if (before === null) throw new AppError("NOT_FOUND", `no state has the key '${key}'`);
      checkVersion(key, before, if_version);
      const version = Number(before.version);
      // The trigger icc_states_end counts it, and keeps its version (K2).
      await this.#options.store.write(
        [
          {
            sql: "DELETE FROM icc_states WHERE tenant_id = ? AND key = ? AND version = ?",
            args: [tenant_id, key, version],
          },
        ],
        { durable: true },
      );
      this.#watches.tell(tenant_id, key, version);
      return version;
    });
  }

  /** Tells watchers that keys may have changed with a container's end (K4). */
  readonly containerEnded = (container_id: string): void => this.#watches.tellAll(container_id);

  /** The entries whose keys begin with `prefix`, then each change; of many changes of a key the last one. */
  watch(tenant_id: string, prefix: string, signal: AbortSignal): AsyncIterableIterator<StateNews> {
    return new StateWatch(tenant_id, prefix, { states: this, watches: this.#watches, signal });
  }

  close(): void {
    this.#watches.close();
  }

  #inTurn<Result>(tenant_id: string, key: string, work: (before: Row | null) => Promise<Result>): Promise<Result> {
    return this.#turns.run(`${tenant_id}\n${key}`, async () => work(await this.#row(tenant_id, key)));
  }

  #row(tenant_id: string, key: string): Promise<Row | null> {
    return this.#options.store.readOne(
      `SELECT ${COLUMNS}, bytes, msg_id FROM icc_states WHERE tenant_id = ? AND key = ?`,
      [tenant_id, key],
    );
  }

  async #write(tenant_id: string, before: Row | null, change: StateChange): Promise<StateWritten> {
    const { key, content_type, data, from, msg_id } = change;
    checkSize(key, data);
    const now_ms = Math.floor(this.#options.clock.epochMs());
    const bytes = data.byteLength + Buffer.byteLength(key) + Buffer.byteLength(content_type) + Buffer.byteLength(from);
    const added = { count: before === null ? 1 : 0, bytes: bytes - Number(before?.bytes ?? 0) };
    const values = [content_type, data, from, msg_id, bytes, now_ms];
    const write: Statement =
      before === null
        ? {
            sql: `INSERT INTO icc_states (content_type, data, set_by, msg_id, bytes, updated_ms, tenant_id, key, version)
              SELECT ?, ?, ?, ?, ?, ?, tenant_id, ?, state_floor + 1 FROM icc_tenants WHERE tenant_id = ?
              ON CONFLICT (tenant_id, key) DO NOTHING`,
            args: [...values, key, tenant_id],
            expect_changes: 1,
          }
        : {
            sql: `UPDATE icc_states SET content_type = ?, data = ?, set_by = ?, msg_id = ?, bytes = ?, updated_ms = ?,
              version = version + 1 WHERE tenant_id = ? AND key = ? AND version = ?`,
            args: [...values, tenant_id, key, Number(before.version)],
            expect_changes: 1,
          };
    const { conflict } = await this.#options.store.write(
      [
        { sql: "INSERT INTO icc_tenants (tenant_id) VALUES (?) ON CONFLICT DO NOTHING", args: [tenant_id] },
        write,
        {
          sql: `UPDATE icc_tenants SET state_count = state_count + ?, state_bytes = state_bytes + ? WHERE tenant_id = ?
            AND (? <= 0 OR state_count + ? <= ?) AND (? <= 0 OR state_bytes + ? <= ?)`,
          args: [
            ...[added.count, added.bytes, tenant_id, added.count, added.count, LIMITS.state_keys_max],
            ...[added.bytes, added.bytes, LIMITS.state_bytes_max],
          ],
          expect_changes: 1,
        },
      ],
      { durable: true, is_record: true },
    );
    if (conflict === 1) throw changed(key, null);
    if (conflict !== null) throw full();
    const row = before === null ? await this.#row(tenant_id, key) : null;
    const version = before === null ? Number(row?.version ?? 1) : Number(before.version) + 1;
    this.#watches.tell(tenant_id, key, version);
    return { version, is_duplicate: false };
  }
}

function toValue(row: Row): StateValue {
  return {
    key: String(row.key),
    version: Number(row.version),
    content_type: String(row.content_type),
    data: bytesOf(row),
    from: String(row.set_by),
    updated_ms: Number(row.updated_ms),
  };
}

function bytesOf({ data }: Row): Uint8Array {
  return data instanceof Uint8Array ? data : new Uint8Array(data as unknown as ArrayBuffer);
}

/** K3. */
function repeatOf(before: Row | null, msg_id: string | null): StateWritten | null {
  if (before === null || msg_id === null || before.msg_id !== msg_id) return null;
  return { version: Number(before.version), is_duplicate: true };
}

function checkVersion(key: string, before: Row | null, if_version: number | null): void {
  const version = Number(before?.version ?? 0);
  if (if_version !== null && if_version !== version) throw changed(key, { version, if_version });
}

function changed(key: string, versions: { readonly version: number; readonly if_version: number } | null): AppError {
  const text =
    versions === null ? "was written meanwhile" : `has the version ${versions.version}, not ${versions.if_version}`;
  return new AppError("WRONG_STATE", `state '${key}' ${text}`, {
    reason_code: "VERSION_CONFLICT",
    hint: "read the state again, and repeat the change with its version",
  });
}

function full(): AppError {
  return new AppError(
    "QUOTA_EXCEEDED",
    `the tenant's states would exceed ${LIMITS.state_keys_max} keys or ${LIMITS.state_bytes_max} bytes`,
    { hint: "delete keys that are not needed" },
  );
}

function checkSize(key: string, data: Uint8Array): void {
  const max = LIMITS.state_value_bytes_max;
  if (data.byteLength <= max) return;
  throw new AppError("BODY_TOO_LARGE", `the value of '${key}' is too large: ${data.byteLength} bytes (limit ${max})`);
}

function patchOf({ content_type, patch }: StatePatching): unknown {
  if (!PATCH_TYPES.includes(mediaType(content_type))) {
    throw invalid("content_type", `is no patch of a state: ${content_type.slice(0, 100)}`, {
      details: { expected: PATCH_TYPES, received: content_type.slice(0, 100) },
    });
  }
  return parsed(patch, "patch");
}

function valueToPatch(row: Row): unknown {
  if (isJson(String(row.content_type))) return parsed(bytesOf(row), "the value");
  throw new AppError("WRONG_STATE", `the value of '${row.key}' is no JSON: ${row.content_type}`, {
    hint: "replace the value",
  });
}
