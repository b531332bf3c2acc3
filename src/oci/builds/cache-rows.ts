/** Entries of the cache of builds in the store. */
import { LIMITS } from "../../base/limits.ts";
import { type Row, type Store, textOrNull } from "../../store/store.ts";

export interface CacheEntry {
  readonly tenant_id: string;
  readonly key: string;
  /** Null: the entry is a result. */
  readonly subvolume: string | null;
  readonly image_id: string | null;
  /** Counted against the bounds. */
  readonly size_bytes: number;
}

const SELECT = "SELECT tenant_id, key, subvolume, image_id, size_bytes FROM build_cache";
const OWN = "tenant_id = ? AND key = ? AND node_seq = ?";

export class CacheRows {
  readonly #store: Store;
  readonly #node_seq: number;

  constructor(store: Store, node_seq: number) {
    this.#store = store;
    this.#node_seq = node_seq;
  }

  async find(tenant_id: string, key: string): Promise<CacheEntry | null> {
    const row = await this.#store.readOne(`${SELECT} WHERE ${OWN}`, [tenant_id, key, this.#node_seq]);
    return row === null ? null : entryOf(row);
  }

  /** The same, and notes its use. */
  async use(tenant_id: string, key: string, now: number): Promise<CacheEntry | null> {
    const found = await this.find(tenant_id, key);
    if (found === null) return null;
    const sql = `UPDATE build_cache SET used_at = ? WHERE ${OWN}`;
    await this.#store.write([{ sql, args: [now, tenant_id, key, this.#node_seq] }]);
    return found;
  }

  async put({ tenant_id, key, subvolume, image_id, size_bytes }: CacheEntry, now: number): Promise<void> {
    const sql = `INSERT INTO build_cache (tenant_id, key, node_seq, subvolume, image_id, size_bytes, used_at)
      VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant_id, key, node_seq) DO UPDATE SET subvolume = excluded.subvolume,
      image_id = excluded.image_id, size_bytes = excluded.size_bytes, used_at = excluded.used_at`;
    const args = [tenant_id, key, this.#node_seq, subvolume, image_id, size_bytes, now];
    await this.#store.write([{ sql, args }]);
  }

  async resize(tenant_id: string, key: string, size_bytes: number, now: number): Promise<void> {
    const sql = `UPDATE build_cache SET size_bytes = ?, used_at = ? WHERE ${OWN}`;
    await this.#store.write([{ sql, args: [size_bytes, now, tenant_id, key, this.#node_seq] }]);
  }

  async delete({ tenant_id, key, subvolume }: CacheEntry): Promise<void> {
    // A later entry of the same key has another subvolume.
    const sql = `DELETE FROM build_cache WHERE ${OWN} AND coalesce(subvolume, '') = ?`;
    await this.#store.write([{ sql, args: [tenant_id, key, this.#node_seq, subvolume ?? ""] }]);
  }

  /** Returns the entries of a tenant on this node, the least recently used first. `used_at_max`: latest last use, in epoch seconds. */
  of(tenant_id: string, used_at_max = Number.MAX_SAFE_INTEGER): Promise<CacheEntry[]> {
    return this.#list("tenant_id = ? AND used_at <= ? AND", [tenant_id, used_at_max]);
  }

  /** Of all tenants on this node, the least recently used first. */
  all(): Promise<CacheEntry[]> {
    return this.#list("", []);
  }

  async #list(where: string, args: readonly (string | number)[]): Promise<CacheEntry[]> {
    const sql = `${SELECT} WHERE ${where} node_seq = ? ORDER BY used_at, seq LIMIT ?`;
    return (await this.#store.read(sql, [...args, this.#node_seq, LIMITS.store_read_rows_max])).map(entryOf);
  }
}

function entryOf(row: Row): CacheEntry {
  return {
    tenant_id: String(row.tenant_id),
    key: String(row.key),
    subvolume: textOrNull(row.subvolume),
    image_id: textOrNull(row.image_id),
    size_bytes: Number(row.size_bytes),
  };
}
