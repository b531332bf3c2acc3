/**
 * Disk space kept for what must go on when the disk is full: changes of state, deletions, checkpoints. A file of
 * nothing lies beside the database; it is given up when one of those meets a full disk, and made again when there is
 * room. Records of calls never use it: without them a full disk stays one that can be emptied through the API, and a
 * start on it succeeds.
 *
 * R1. While the reserve is not whole, records are refused unless there is that much room and a quarter more, on the
 *     disk or in pages of the database that a deletion has freed: what was given up is not theirs.
 * R2. It is made in the background, only where there is room for it and a quarter more, and whole or not at all.
 */
import { randomFillSync } from "node:crypto";
import { statfsSync, statSync, truncateSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname } from "node:path";
import type { Clock } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";

const BLOCK_BYTES = 1024 * 1024;
/** More than the reserve itself, so that what was just given up does not count as room. */
const ROOM_FACTOR = 1.25;

export interface ReserveOptions {
  readonly path: string;
  /** 0: no reserve, records are always accepted. */
  readonly bytes: number;
  readonly clock: Clock;
  /** Bytes of the database file that can be written again. */
  readonly freeInside: () => number;
}

export class Reserve {
  readonly #options: ReserveOptions;
  #isWhole: boolean;
  #making: Promise<void> | null = null;
  #isClosed = false;
  #hasRoom = true;
  #looked_ms = Number.NEGATIVE_INFINITY;
  /** How often it was given up: what failed before it was may be tried again. */
  released_count = 0;

  /** Before the database is opened: with no space at all even reading it would fail. */
  constructor(options: ReserveOptions) {
    this.#options = options;
    this.#isWhole = options.bytes === 0 || sizeOf(options.path) >= options.bytes;
    if (freeOutside(options.path) < BLOCK_BYTES) this.release();
    this.#makeIfRoomy();
  }

  /** True if records may be written (R1). Looks at the disk only while the reserve is gone, and not always. */
  get takesRecords(): boolean {
    return this.#isWhole || this.#looksRoomy();
  }

  /** Gives the space back. True when there was any. */
  release(): boolean {
    const { path, bytes } = this.#options;
    if (!this.#isWhole || bytes === 0) return false;
    truncateSync(path, 0);
    this.#isWhole = false;
    this.#looked_ms = Number.NEGATIVE_INFINITY;
    this.released_count++;
    return true;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#making;
  }

  #looksRoomy(): boolean {
    const { path, bytes, clock, freeInside } = this.#options;
    const now_ms = clock.monotonicMs();
    if (now_ms - this.#looked_ms < LIMITS.store_reserve_look_ms) return this.#hasRoom;
    this.#looked_ms = now_ms;
    this.#hasRoom = freeOutside(path) + freeInside() >= bytes * ROOM_FACTOR;
    this.#makeIfRoomy();
    return this.#hasRoom;
  }

  #makeIfRoomy(): void {
    const { path, bytes } = this.#options;
    if (this.#isWhole || freeOutside(path) < bytes * ROOM_FACTOR) return;
    this.#making ??= this.#fill().finally(() => {
      this.#making = null;
    });
  }

  /** R2. Never rejects: where there is no room, what was made is given up. */
  async #fill(): Promise<void> {
    const { path, bytes } = this.#options;
    let file: FileHandle | null = null;
    try {
      file = await open(path, "w", 0o600);
      // Not zeros: a file system may keep those for nothing.
      const block = randomFillSync(Buffer.allocUnsafe(Math.min(BLOCK_BYTES, bytes)));
      for (let written = 0; written < bytes && !this.#isClosed; written += block.length) await file.writeFile(block);
      if (!this.#isClosed) this.#isWhole = true;
      else await file.truncate(0);
    } catch {
      await file?.truncate(0).catch(() => {});
    } finally {
      await file?.close().catch(() => {});
    }
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** What root can still write, on the file system of `path`. */
function freeOutside(path: string): number {
  const { bfree, bsize } = statfsSync(dirname(path));
  return bfree * bsize;
}
