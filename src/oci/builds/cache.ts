/**
 * Build cache of tenants: files after steps, cache mounts, ids of results. Each entry belongs to one tenant.
 * Files are subvolumes of the storage pool, which share what is the same.
 *
 * K1. A row names a subvolume that is complete. A subvolume without a row is what a crash left, and the next boot removes it.
 * K2. Above the bounds of tenant and node the least recently used entries of the tenant go that adds one, never those of others. A
 *     row goes before its subvolume. A tenant has at most half of the node's.
 * K3. A mounted directory stays, whatever the bounds say, until its command has ended. A directory that only one command may have
 *     is waited for (cache-turns.ts).
 * K4. Changes of rows and removals take turns: no entry is removed between its lookup and its use, and none is left without a row.
 * K5. The kernel holds the files of a tenant's builds, its cache included, to its `disk_mb_max` together. At most half of that is cache.
 */
import { type Clock, toEpochSeconds } from "../../base/clock.ts";
import { KeyedMutex } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { Retries } from "../../base/retries.ts";
import { buildsOwner } from "../../base/storage-owners.ts";
import type { Quotas } from "../../base/tenant-limits.ts";
import type { Storage } from "../../engine/ports.ts";
import type { Store, StoredNode } from "../../store/store.ts";
import { type CacheEntry, CacheRows } from "./cache-rows.ts";
import { CacheTurns } from "./cache-turns.ts";
import type { Sharing } from "./mounts.ts";

const MIB = 1024 * 1024;
const STEP = "bst";
const MOUNT = "bcm";
/** Files of one command. No row names them, so a crash leaves them to the next boot. */
const COPY = "bcc";
const PREFIXES = [STEP, MOUNT, COPY];
/** The turn of changes (K4). */
const CHANGES = "changes";
/** Kind of the subvolumes. */
export const CACHE_KIND = "snapshots";

export interface BuildCacheOptions {
  readonly store: Store;
  readonly node: StoredNode;
  readonly storage: () => Storage;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Pick<Quotas, "of">;
}

export interface HeldMount {
  /** Of the subvolume. */
  readonly id: string;
  release(): Promise<void>;
}

export interface MountRequest {
  /** Of the tenant's mount. */
  readonly key: string;
  readonly sharing: Sharing;
  /** Fills the subvolume of a mount that is made; null: it is empty at first. */
  readonly fill: Fill | null;
  readonly signal: AbortSignal;
}

/** Writes the first files of a subvolume. `root`: where it is on this machine. */
export type Fill = (root: string) => Promise<void>;

export class BuildCache {
  readonly #options: BuildCacheOptions;
  readonly #rows: CacheRows;
  /** K4. */
  readonly #turns = new KeyedMutex();
  readonly #retries: Retries;
  readonly #mount_turns = new CacheTurns();
  /** One at a time for each mount. */
  readonly #fills = new KeyedMutex();
  /** K3: how many commands use a subvolume. */
  readonly #held = new Map<string, number>();

  constructor(options: BuildCacheOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#rows = new CacheRows(options.store, options.node.seq);
    this.#retries = new Retries({ clock, log, what: "entry of the build cache", later: (_id, attempt) => attempt() });
  }

  /** K1. */
  async boot(): Promise<void> {
    const { log } = this.#options;
    const storage = this.#options.storage();
    try {
      const present = (await storage.list(CACHE_KIND)).filter((id) => PREFIXES.some((prefix) => id.startsWith(prefix)));
      const entries = await this.#rows.all();
      const known = new Set(entries.map(({ subvolume }) => subvolume));
      for (const id of present) if (!known.has(id)) await this.#discard(id);
      const there = new Set(present);
      for (const entry of entries) {
        if (entry.subvolume !== null && !there.has(entry.subvolume)) await this.#rows.delete(entry);
      }
    } catch (error) {
      log.warn("leftovers of builds not removed", { error: errorText(error) });
    }
  }

  /** The subvolume with the files after a step; null: there is none. */
  async step(tenant_id: string, key: string): Promise<string | null> {
    return (await this.#rows.use(tenant_id, key, this.#now()))?.subvolume ?? null;
  }

  /** Bytes of the files after steps, on the disk; without those whose files are not kept. */
  async sizes(tenant_id: string, keys: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const sizes = new Map<string, number>();
    for (const key of keys) {
      const found = await this.#rows.find(tenant_id, key);
      if (found !== null && found.subvolume !== null) sizes.set(key, found.size_bytes);
    }
    return sizes;
  }

  /** Keeps the files of a container that does not run as those after a step. A failure costs the next build its time alone. */
  async keepStep(tenant_id: string, key: string, container_id: string): Promise<void> {
    const { ids, log } = this.#options;
    const storage = this.#options.storage();
    const subvolume = ids.next(STEP);
    try {
      // One that exceeds the tenant's bound would go at once, and take all others with it.
      const { referenced_bytes } = await storage.usage("containers", container_id);
      if (referenced_bytes > this.#tenantBytes(tenant_id, await this.#nodeBytes())) return;
      const [from, to] = [
        { kind: "containers", id: container_id } as const,
        { kind: CACHE_KIND, id: subvolume } as const,
      ];
      await storage.snapshot(from, to, true, null, buildsOwner(tenant_id));
      failpoint("oci.build.kept");
      // Files of earlier steps count each time: those may go before this one.
      // Simple quotas count to a subvolume only what was written in it: not what it shares with those that it is a copy of.
      const space = await storage.space(CACHE_KIND, subvolume);
      const size_bytes = space?.total_bytes ?? (await storage.usage(CACHE_KIND, subvolume)).referenced_bytes;
      await this.#turns.run(CHANGES, () => this.#put({ tenant_id, key, subvolume, image_id: null, size_bytes }));
    } catch (error) {
      await this.#discard(subvolume);
      if (!(error instanceof AppError)) throw error;
      log.warn("step of a build not kept", { error: errorText(error) });
    }
  }

  /** The image that a build with this key made; null: none is known. */
  async image(tenant_id: string, key: string): Promise<string | null> {
    return (await this.#rows.use(tenant_id, key, this.#now()))?.image_id ?? null;
  }

  async noteImage(tenant_id: string, key: string, image_id: string): Promise<void> {
    await this.#turns.run(CHANGES, () => this.#put({ tenant_id, key, subvolume: null, image_id, size_bytes: 0 }));
  }

  /** Takes the directory of a cache mount, which is made if it is missing. Waits as its sharing says. */
  async mount(tenant_id: string, { sharing, signal, ...of }: MountRequest): Promise<HeldMount> {
    const turn = await this.#mount_turns.take(`${tenant_id} ${of.key}`, sharing, signal);
    try {
      const key = turn.number === 0 ? of.key : `${of.key}.${turn.number}`;
      const id =
        of.fill === null
          ? await this.#turns.run(
              CHANGES,
              async () => (await this.#known(tenant_id, key)) ?? this.#new(tenant_id, key, null),
            )
          : await this.#filled(tenant_id, key, of.fill);
      return { id, release: () => this.#release(tenant_id, key, id).finally(() => turn.end()) };
    } catch (error) {
      turn.end();
      throw error;
    }
  }

  /** Makes a directory for one command, which `fill` gives its files. */
  async copy(tenant_id: string, size_mb: number, fill: Fill): Promise<HeldMount> {
    const storage = this.#options.storage();
    const id = this.#options.ids.next(COPY);
    try {
      await fill(await storage.create(CACHE_KIND, id, size_mb, buildsOwner(tenant_id)));
      return { id, release: () => this.#discard(id) };
    } catch (error) {
      await this.#discard(id);
      throw error;
    }
  }

  /** In the turn of changes. Null: there is none. */
  async #known(tenant_id: string, key: string): Promise<string | null> {
    const subvolume = (await this.#rows.use(tenant_id, key, this.#now()))?.subvolume ?? null;
    return subvolume === null ? null : this.#holding(subvolume, () => this.#create(tenant_id, subvolume));
  }

  /** In the turn of changes. `made`: a subvolume that has its first files. */
  async #new(tenant_id: string, key: string, made: string | null): Promise<string> {
    const subvolume = made ?? this.#options.ids.next(MOUNT);
    return this.#holding(subvolume, async () => {
      await this.#create(tenant_id, subvolume);
      await this.#put({ tenant_id, key, subvolume, image_id: null, size_bytes: 0 });
    });
  }

  async #holding(subvolume: string, work: () => Promise<unknown>): Promise<string> {
    this.#held.set(subvolume, (this.#held.get(subvolume) ?? 0) + 1);
    try {
      await work();
      return subvolume;
    } catch (error) {
      this.#letGo(subvolume);
      throw error;
    }
  }

  /** Takes one that has files at first: it gets its row, and others see it, when all of them are there. */
  #filled(tenant_id: string, key: string, fill: Fill): Promise<string> {
    return this.#fills.run(`${tenant_id} ${key}`, async () => {
      const known = await this.#turns.run(CHANGES, () => this.#known(tenant_id, key));
      if (known !== null) return known;
      const made = this.#options.ids.next(MOUNT);
      try {
        await fill(await this.#create(tenant_id, made));
        return await this.#turns.run(CHANGES, () => this.#new(tenant_id, key, made));
      } catch (error) {
        await this.#discard(made);
        throw error;
      }
    });
  }

  #create(tenant_id: string, subvolume: string): Promise<string> {
    return this.#options.storage().create(CACHE_KIND, subvolume, LIMITS.build_cache_mount_mb, buildsOwner(tenant_id));
  }

  async #release(tenant_id: string, key: string, id: string): Promise<void> {
    this.#letGo(id);
    const usage = await this.#options
      .storage()
      .usage(CACHE_KIND, id)
      .catch(() => null);
    const size_bytes = usage?.referenced_bytes ?? 0;
    await this.#turns.run(CHANGES, async () => {
      await this.#rows.resize(tenant_id, key, size_bytes, this.#now());
      await this.#evict(tenant_id);
    });
  }

  /** Deletes the entries that a tenant last used at least `age_seconds` ago, except mounts in use (K3). Resolves to their number. */
  prune(tenant_id: string, age_seconds: number): Promise<number> {
    return this.#turns.run(CHANGES, async () => {
      const entries = await this.#rows.of(tenant_id, this.#now() - age_seconds);
      const free = entries.filter(({ subvolume }) => subvolume === null || !this.#held.has(subvolume));
      for (const entry of free) await this.#remove(entry);
      return free.length;
    });
  }

  /** Deletes all of a tenant that is being deleted. */
  async eraseAll(tenant_id: string): Promise<void> {
    await this.#turns.run(CHANGES, async () => {
      for (const entry of await this.#rows.of(tenant_id)) await this.#remove(entry);
    });
  }

  #letGo(id: string): void {
    const count = (this.#held.get(id) ?? 1) - 1;
    if (count === 0) this.#held.delete(id);
    else this.#held.set(id, count);
  }

  async #put(entry: CacheEntry): Promise<void> {
    const { tenant_id, key } = entry;
    const before = await this.#rows.find(tenant_id, key);
    await this.#rows.put(entry, this.#now());
    if (before?.subvolume != null && before.subvolume !== entry.subvolume) {
      await this.#discard(before.subvolume);
    }
    await this.#evict(tenant_id);
  }

  /** K2. Never rejects: what stays above the bounds is removed with the next entry. */
  async #evict(tenant_id: string): Promise<void> {
    const { log } = this.#options;
    try {
      const node_bytes = await this.#nodeBytes();
      const [own, all] = [await this.#rows.of(tenant_id), await this.#rows.all()];
      const others_count = all.length - own.length;
      const others_bytes = costOf(all) - costOf(own);
      await this.#shrink(own, {
        count: Math.min(LIMITS.build_cache_entries_per_tenant_max, LIMITS.build_cache_entries_max - others_count),
        bytes: Math.min(this.#tenantBytes(tenant_id, node_bytes), node_bytes - others_bytes),
      });
    } catch (error) {
      log.warn("build cache not evicted", { error: errorText(error) });
    }
  }

  /** Bytes of the entries of all tenants. */
  async #nodeBytes(): Promise<number> {
    const { size_mb } = await this.#options.storage().statistics();
    return Math.min(LIMITS.build_cache_mb_max, Math.floor(size_mb * LIMITS.build_cache_disk_ratio)) * MIB;
  }

  /** Of the entries of one tenant (K2, K5). */
  #tenantBytes(tenant_id: string, node_bytes: number): number {
    const { build_cache_mb_per_tenant_max, build_cache_tenant_ratio } = LIMITS;
    const disk_mb = this.#options.quotas.of(tenant_id).disk_mb_max ?? Number.POSITIVE_INFINITY;
    const max_mb = Math.min(build_cache_mb_per_tenant_max, Math.floor(disk_mb * build_cache_tenant_ratio));
    return Math.min(max_mb * MIB, Math.floor(node_bytes * build_cache_tenant_ratio));
  }

  /** Removes the first of `entries`, the least recently used ones, until the rest is within its bounds. */
  async #shrink(
    entries: readonly CacheEntry[],
    max: { readonly count: number; readonly bytes: number },
  ): Promise<void> {
    let [count, bytes] = [entries.length, costOf(entries)];
    for (const entry of entries) {
      if (count <= max.count && bytes <= max.bytes) return;
      if (entry.subvolume !== null && this.#held.has(entry.subvolume)) continue;
      await this.#remove(entry);
      count -= 1;
      bytes -= costOf([entry]);
    }
  }

  async #remove(entry: CacheEntry): Promise<void> {
    await this.#rows.delete(entry);
    if (entry.subvolume !== null) await this.#discard(entry.subvolume);
  }

  /** Removes a subvolume without a row. Never rejects: a failure is retried, and the next boot finds the rest. */
  async #discard(id: string): Promise<void> {
    await this.#retries.run(id, () => this.#options.storage().remove(CACHE_KIND, id)).catch(() => {});
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

const costOf = (entries: readonly CacheEntry[]): number =>
  entries.reduce((sum, { size_bytes }) => sum + size_bytes + LIMITS.build_cache_entry_bytes, 0);
