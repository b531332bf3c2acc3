/**
 * Deletes images that nothing uses: those of a tenant when it asks, and the least recently used of all tenants while the disk of
 * the image store is nearly full.
 *
 * U1. An image that a container or a function version uses stays, and one that the operator shares. The statement that deletes a
 *     reference checks both.
 * U2. A full disk never takes an image that was pulled or used within `image_evict_age_seconds`.
 */
import { errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import type { ImageRow, ImageRows } from "./rows.ts";

/** The disk of the image store. */
export interface Disk {
  readonly size_bytes: number;
  readonly used_bytes: number;
}

export interface UnusedImagesOptions {
  readonly rows: ImageRows;
  readonly events: Events;
  readonly log: Log;
  /** Epoch seconds. */
  readonly now: () => number;
  /** Runs a change of a tenant's images when no other one runs. */
  readonly inTurn: (tenant_id: string, work: () => Promise<boolean>) => Promise<boolean>;
  /** Resolves when the store has freed what no row names. Never rejects. */
  readonly free: () => Promise<void>;
  readonly readDisk: () => Disk;
  /** Share of the disk above which images are evicted. 100: never. */
  readonly disk_percent_max: number;
}

export interface Pruned {
  readonly rows: readonly ImageRow[];
  /** Unpacked bytes that count no longer against the tenant's limit. */
  readonly freed_bytes: number;
}

export class UnusedImages {
  readonly #options: UnusedImagesOptions;
  /** True while the disk is too full and no image can be evicted: the log has it once. */
  #isStuck = false;

  constructor(options: UnusedImagesOptions) {
    this.#options = options;
  }

  /** Deletes the tenant's images that nothing uses and that were last used at least so long ago. */
  async prune(tenant_id: string, age_seconds: number): Promise<Pruned> {
    const { rows, now } = this.#options;
    const before = now() - age_seconds;
    const deleted: ImageRow[] = [];
    for (let after = 0; ; ) {
      const page = await rows.unused(tenant_id, before, after);
      for (const row of page) if (await this.#delete(row, before, "tenant")) deleted.push(row);
      if (page.length < LIMITS.list_limit_max) break;
      after = page.at(-1)?.seq ?? after;
    }
    if (deleted.length > 0) await this.#options.free();
    const sizes = new Map<string, number>();
    for (const { image_id, size_bytes } of deleted) {
      if (!sizes.has(image_id) && !(await rows.hasImage(tenant_id, image_id))) sizes.set(image_id, size_bytes);
    }
    return { rows: deleted, freed_bytes: [...sizes.values()].reduce((sum, one) => sum + one, 0) };
  }

  /**
   * Evicts images, the least recently used first, until the disk has room again. Each is freed before the disk is read again: its
   * layers may be those of other images, too. Never rejects.
   */
  async evict(): Promise<void> {
    const { log } = this.#options;
    try {
      if (!this.#isAbove(0)) {
        this.#isStuck = false;
        return;
      }
      for (
        let count = 0;
        count < LIMITS.image_evictions_per_pass && this.#isAbove(LIMITS.image_disk_margin_percent);
      ) {
        const evicted = await this.#evictNext();
        if (evicted === null) {
          const problem = "disk of the image store above HEARTH_IMAGE_DISK_PERCENT: no image can be evicted";
          if (!this.#isStuck) log.warn(problem, { ...this.#options.readDisk() });
          this.#isStuck = true;
          return;
        }
        count += evicted;
      }
    } catch (error) {
      log.warn("images not evicted", { error: errorText(error) });
    }
  }

  /** Evicts the least recently used image of all tenants. Resolves to the number of references; null: there is none. */
  async #evictNext(): Promise<number | null> {
    const { rows, log, now, free } = this.#options;
    const before = now() - LIMITS.image_evict_age_seconds;
    const references = await rows.leastRecentlyUsed(before);
    if (references.length === 0) return null;
    let count = 0;
    for (const row of references) {
      if (!(await this.#delete(row, before, "anybody"))) continue;
      count += 1;
      const { tenant_id, reference, image_id, size_bytes } = row;
      log.info("image evicted: disk nearly full", { tenant_id, reference, image: image_id, size_bytes });
    }
    await free();
    // One that is used again meanwhile counts, too: a pass has an end.
    return Math.max(1, count);
  }

  /** True if more of the disk is in use than the limit less a margin. */
  #isAbove(margin_percent: number): boolean {
    const { disk_percent_max, readDisk } = this.#options;
    if (disk_percent_max >= 100) return false;
    const { used_bytes, size_bytes } = readDisk();
    return (100 * used_bytes) / size_bytes > Math.max(0, disk_percent_max - margin_percent);
  }

  /** Resolves to false if the image is in use again, or the reference gone. */
  #delete(row: ImageRow, before: number, by: "tenant" | "anybody"): Promise<boolean> {
    const { rows, events, inTurn } = this.#options;
    const { tenant_id, reference, image_id } = row;
    const data = { reference, image_id: `sha256:${image_id}` };
    const event_type = by === "tenant" ? "removed" : "evicted";
    const event: NewEvent = { name: "image_update", event_type, data };
    const statement = rows.deleteUnused(row, before, by);
    return inTurn(tenant_id, async () => {
      return (await events.write([statement], tenant_id, [event], { durable: true })).conflict === null;
    });
  }
}
