/**
 * Deletes images that nothing uses: those of a tenant when it asks, and while the disk of the image store is nearly full, its least
 * recently used ones before an image of the same tenant arrives.
 *
 * U1. An image that a container or a function version uses stays, and one that the operator shares. The statement that deletes a
 *     reference checks both.
 * U2. No tenant's demand takes an image of another tenant, except of the operator. An image that others have, too, stays: without
 *     one reference of several the disk has no more room.
 * U3. A full disk never takes an image that was pulled or used within `image_evict_age_seconds`.
 */
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { DEFAULT_TENANT_ID } from "../base/tenant-limits.ts";
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
  readonly disk_free_bytes_min: number;
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

  /** Evicts images of the operator while the disk is nearly full. Never rejects. */
  async evict(): Promise<void> {
    try {
      await this.#evict(DEFAULT_TENANT_ID, null);
    } catch (error) {
      this.#options.log.warn("images not evicted", { error: errorText(error) });
    }
  }

  /**
   * Makes room for an image of the tenant on a nearly full disk: evicts its own images (U2), but for `kept_id`, and then those of the
   * operator. Rejects with CAPACITY_FULL if the disk has no room even so.
   */
  async makeRoom(tenant_id: string, kept_id: string | null): Promise<void> {
    const isFull = !(await this.#evict(tenant_id, kept_id));
    if (isFull && tenant_id !== DEFAULT_TENANT_ID) await this.#evict(DEFAULT_TENANT_ID, kept_id);
    const { size_bytes, used_bytes } = this.#options.readDisk();
    if (size_bytes - used_bytes >= this.#options.disk_free_bytes_min) return;
    const free = `${size_bytes - used_bytes} bytes free, ${this.#options.disk_free_bytes_min} stay free`;
    throw new AppError("CAPACITY_FULL", `disk of the image store full: ${free}`, {
      hint: "delete images that you do not need, or ask the operator for a larger disk",
      retry_after: 60,
    });
  }

  /** Each image is freed before the disk is read again. Resolves to false if the disk is still too full. */
  async #evict(tenant_id: string, kept_id: string | null): Promise<boolean> {
    const { log } = this.#options;
    if (!this.#isAbove(0)) {
      this.#isStuck = false;
      return true;
    }
    for (let count = 0; count < LIMITS.image_evictions_per_pass; ) {
      if (!this.#isAbove(LIMITS.image_disk_margin_percent)) return true;
      const evicted = await this.#evictNext(tenant_id, kept_id);
      if (evicted === null) {
        const problem = "disk of the image store above HEARTH_IMAGE_DISK_PERCENT: no image can be evicted";
        if (!this.#isStuck) log.warn(problem, { tenant_id, ...this.#options.readDisk() });
        this.#isStuck = true;
        return false;
      }
      count += evicted;
    }
    return !this.#isAbove(0);
  }

  /** Evicts the tenant's least recently used image. Resolves to the number of references; null: there is none. */
  async #evictNext(owner_id: string, kept_id: string | null): Promise<number | null> {
    const { rows, log, now, free } = this.#options;
    const before = now() - LIMITS.image_evict_age_seconds;
    const references = await rows.leastRecentlyUsed(owner_id, before, kept_id);
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
