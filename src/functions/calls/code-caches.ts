/**
 * Code caches of versions (runtimes/envelope.ts), in memory: the daemon loses them when it ends, and the next process of a
 * version makes another. A version without a place here loads slower, and no different.
 */
import { LRUCache } from "lru-cache";
import { LIMITS } from "../../base/limits.ts";

interface Kept {
  readonly tenant_id: string;
  /** Null: the process made none, and the next ones are not asked. */
  readonly bytes: Buffer | null;
}

/** What an entry counts beside its bytes. It takes less: this bounds the number of entries, which `keep` passes over. */
const ENTRY_BYTES = 8 * 1024;
const NONE = Buffer.alloc(0);

const sizeOf = ({ bytes }: Kept): number => ENTRY_BYTES + (bytes?.length ?? 0);

/** Returns bytes with memory of their own. `Buffer.from` would keep a slab of many kilobytes for a few bytes. */
function copyOf(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}

export class CodeCaches {
  /** By group. */
  readonly #kept = new LRUCache<string, Kept>({ maxSize: LIMITS.code_caches_bytes_max, sizeCalculation: sizeOf });

  /** Returns the cache of a version. Empty: a process shall make one. Null: the version has none. */
  get(group: string): Buffer | null {
    const kept = this.#kept.get(group);
    return kept === undefined ? NONE : kept.bytes;
  }

  /** Keeps the first cache of a version; `bytes` is empty if a process made none. The tenant's oldest make room for it. */
  keep(group: string, tenant_id: string, bytes: Buffer): void {
    if (this.#kept.has(group)) return;
    const kept = { tenant_id, bytes: bytes.length === 0 ? null : copyOf(bytes) };
    let left = LIMITS.code_caches_per_tenant_bytes_max - sizeOf(kept);
    // From the most recently used one on.
    for (const [other, of] of [...this.#kept.entries()]) {
      if (of.tenant_id !== tenant_id) continue;
      left -= sizeOf(of);
      if (left < 0) this.#kept.delete(other);
    }
    this.#kept.set(group, kept);
  }

  delete(group: string): void {
    this.#kept.delete(group);
  }
}
