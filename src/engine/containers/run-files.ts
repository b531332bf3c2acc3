/**
 * Files that the first process of a container writes on this machine: the segments of its log and its exit record. They
 * outlive the daemon and the container's runs.
 *
 * F1. They lie in a subvolume of their own in the storage pool, whose quota bounds them. The first process has them open for
 *     writing and belongs to the container: the kernel holds the bound, not the program.
 * F2. Readers take a bounded number of bytes, on the thread pool of libuv.
 */
import { existsSync } from "node:fs";
import { copyFile, mkdir, readdir, rm, stat, truncate, unlink } from "node:fs/promises";
import { together } from "../../base/concurrency.ts";
import { LIMITS } from "../../base/limits.ts";
import type { EngineHost } from "../host/host.ts";
import type { ContainerLog, ExitRecord } from "../ports/containers.ts";
import { readExitRecord, SegmentedLog } from "./log.ts";

const KIND = "logs";
const EXIT = "exit";
const SEGMENTS = Array.from({ length: LIMITS.log_segments }, (_, i) => `log.${i}`);

export class RunFiles {
  readonly #host: EngineHost;

  constructor(host: EngineHost) {
    this.#host = host;
  }

  /**
   * Makes the place of the files before a run, and empties the exit record of the last one. Files that are larger than minit
   * makes them are removed with all others: a run could not write into a full place. Rejects with CAPACITY_FULL.
   */
  async prepare(id: string): Promise<void> {
    const { storage } = this.#host;
    if (await this.#isOversized(id)) await this.forget(id);
    if (!existsSync(this.#inPool(id))) await storage.create(KIND, id, LIMITS.log_disk_mb);
    await this.#bring(id);
    // Not removed: a new file needs room.
    await truncate(`${this.#inPool(id)}/${EXIT}`).catch(unlessMissing);
  }

  /** Paths that the launcher opens for the first process: the segments in their order, then the exit record. */
  handed(id: string): readonly string[] {
    const directory = this.#host.storage.subvolume(KIND, id);
    return [...SEGMENTS, EXIT].map((name) => `${directory}/${name}`);
  }

  log(id: string): ContainerLog {
    const paths = () => this.#host.retried(async () => SEGMENTS.map((name) => `${this.#directory(id)}/${name}`));
    return new SegmentedLog(paths, this.#host.options.clock);
  }

  /** Reads the end of the last run. Null: it runs, or its first process was killed before it wrote a record. */
  exit(id: string): Promise<ExitRecord | null> {
    return this.#host.retried((launcher) => {
      const path = `${this.#directory(id)}/${EXIT}`;
      return readExitRecord(path, () => launcher.isOpen);
    });
  }

  /** Removes the files. Followers of the log see that its segments are gone, which a removed subvolume alone would not show. */
  async forget(id: string): Promise<void> {
    await this.#host.retried(async () => {
      const directory = this.#inPool(id);
      await together(...SEGMENTS.map((name) => unlink(`${directory}/${name}`).catch(unlessMissing)));
    });
    await this.#host.storage.remove(KIND, id);
    await rm(this.#before(id), { recursive: true, force: true });
  }

  /** Ids of containers that have files here. */
  async list(): Promise<readonly string[]> {
    const before = await readdir(this.#beforeAll()).catch(() => []);
    return [...before, ...(await this.#host.storage.list(KIND))];
  }

  /** The launcher's path, by way of its root: the pool is mounted where only it sees it. */
  #inPool(id: string): string {
    return `${this.#host.launcherRoot}${this.#host.storage.subvolume(KIND, id)}`;
  }

  #directory(id: string): string {
    const before = this.#before(id);
    return existsSync(before) ? before : this.#inPool(id);
  }

  /** Earlier versions had the files in the data directory. A container that runs keeps writing there until its next start. */
  #before(id: string): string {
    return `${this.#beforeAll()}/${id}`;
  }

  #beforeAll(): string {
    return `${this.#host.options.config.data_dir}/containers`;
  }

  async #isOversized(id: string): Promise<boolean> {
    const sizes = await Promise.all(
      [...SEGMENTS, EXIT].map((name) => stat(`${this.#inPool(id)}/${name}`).then(({ size }) => size, unlessMissing)),
    );
    return sizes.some((size) => (size ?? 0) > LIMITS.log_segment_bytes_max);
  }

  async #bring(id: string): Promise<void> {
    const before = this.#before(id);
    if (!existsSync(before)) return;
    const to = this.#inPool(id);
    await mkdir(to, { recursive: true });
    for (const name of SEGMENTS) {
      const file = `${before}/${name}`;
      const found = await stat(file).catch(unlessMissing);
      if (found !== null && found.size <= LIMITS.log_segment_bytes_max) await copyFile(file, `${to}/${name}`);
    }
    await rm(before, { recursive: true, force: true });
  }
}

function unlessMissing(error: NodeJS.ErrnoException): null {
  if (error.code === "ENOENT") return null;
  throw error;
}
