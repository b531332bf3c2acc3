/**
 * Files on this machine that a container writes: the segments of its log and its exit record, by its first process, and its own
 * files of /etc. The former outlive the daemon and the container's runs.
 *
 * F1. They lie in a subvolume of their own in the storage pool, whose quota bounds them. The first process has them open for
 *     writing and belongs to the container: the kernel holds the bound, not the program.
 * F2. Readers take a bounded number of bytes, on the thread pool of libuv.
 */
import { existsSync } from "node:fs";
import { chown, copyFile, mkdir, readdir, readFile, rm, stat, truncate, unlink, writeFile } from "node:fs/promises";
import { together } from "../../base/concurrency.ts";
import { hostnameOf } from "../../base/container-environment.ts";
import { LIMITS } from "../../base/limits.ts";
import { ETC_FILES, etcFiles } from "../bundles/etc-files.ts";
import type { EngineHost } from "../host/host.ts";
import type { NetworkSlot } from "../network/network.ts";
import type { ContainerLog, ContainerSpec, ExitRecord } from "../ports/containers.ts";
import { readExitRecord, SegmentedLog } from "./log.ts";

const KIND = "logs";
const EXIT = "exit";
/** include/uapi/asm-generic/errno.h; Node has no name for it. */
const EDQUOT = 122;
const SEGMENTS = Array.from({ length: LIMITS.log_segments }, (_, i) => `log.${i}`);

export class RunFiles {
  readonly #host: EngineHost;

  constructor(host: EngineHost) {
    this.#host = host;
  }

  /**
   * Makes the place of the files before a run, empties the exit record of the last one and writes the files of /etc for this one. Files
   * that are larger than minit makes them are removed with all others: a run could not write into a full place. One that the
   * container has filled by way of /etc gets a little more room meanwhile. Rejects with CAPACITY_FULL.
   */
  async prepare(spec: ContainerSpec, slot: NetworkSlot): Promise<void> {
    const { id } = spec;
    const { storage } = this.#host;
    if (await this.#isOversized(id)) await this.forget(id);
    const isNew = !existsSync(this.#inPool(id));
    if (isNew) await storage.create(KIND, id, LIMITS.log_disk_mb);
    await this.#bring(id);
    const write = async () => {
      // Not removed: a new file needs room.
      if (!isNew) await truncate(`${this.#inPool(id)}/${EXIT}`).catch(unlessMissing);
      await this.#writeEtc(spec, slot, isNew);
    };
    await write().catch(async (error: NodeJS.ErrnoException) => {
      if (!isFull(error)) throw error;
      await storage.setLimit(KIND, id, LIMITS.log_disk_mb + LIMITS.root_room_mb);
      await write().finally(() => storage.setLimit(KIND, id, LIMITS.log_disk_mb));
    });
  }

  /** The directory of its files of /etc, as the launcher sees it. */
  etc(id: string): string {
    return this.#host.storage.subvolume(KIND, id);
  }

  /** What the container wrote into them or made of them in its last run goes, its attributes and rights too. */
  async #writeEtc(spec: ContainerSpec, { address, user }: NetworkSlot, isNew: boolean): Promise<void> {
    const { id, name, network, dns } = spec;
    const { resolv_conf, member_resolv_conf } = this.#host;
    const resolv = await readFile(network === null && !dns ? resolv_conf : member_resolv_conf, "utf8");
    const texts = etcFiles(hostnameOf(name), address, resolv);
    const root = user?.first_id ?? 0;
    const write = async (file: (typeof ETC_FILES)[number]) => {
      const path = `${this.#inPool(id)}/${file}`;
      if (!isNew) await removeWithItsRoom(path);
      await writeFile(path, texts[file], { mode: 0o644 });
      if (root !== 0) await chown(path, root, root);
    };
    await together(...ETC_FILES.map(write));
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

const isFull = (error: NodeJS.ErrnoException): boolean => error.errno === -EDQUOT || error.code === "ENOSPC";

/** Truncates first, which frees room. What the container made of a file may forbid that, as fs-verity does, and nothing forbids the removal. */
async function removeWithItsRoom(path: string): Promise<void> {
  await truncate(path).catch((error: NodeJS.ErrnoException) => {
    if (isFull(error)) throw error;
  });
  await unlink(path).catch(unlessMissing);
}

function unlessMissing(error: NodeJS.ErrnoException): null {
  if (error.code === "ENOENT") return null;
  throw error;
}
