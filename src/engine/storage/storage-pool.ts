/**
 * The storage pool: a btrfs in which every container's changes and every volume is a subvolume with a limit of its own.
 * On a btrfs with quotas the pool is a directory in the data directory, elsewhere a sparse file with a btrfs in it. The
 * launcher works on it (runtimes/minit/storage-pool.c); this file decides its place, size and limits. The callers know
 * what lies in a subvolume, and when nothing runs in it any more.
 *
 * S1. The pool is mounted in the launcher's mount namespace alone: with the launcher the mount goes, unless containers
 *     hold it. The next launcher mounts the same file system, from the same loop device while there is one. One that an error has
 *     made read-only cannot be mounted again before its holders have ended (`isPoolHeld`).
 * S2. A file that holds a pool is never formatted. One that is being made has another name until it is complete.
 * S3. All subvolumes together may grow by no more than what the disk below has free, less a reserve: writers are
 *     refused (EDQUOT) before the disk is full, for a full disk would turn the whole pool read-only.
 * S4. Every change may be repeated: what is there already, or gone already, is as good as done.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, rmSync, statfsSync, statSync } from "node:fs";
import { open, rename, stat, truncate } from "node:fs/promises";
import { LRUCache } from "lru-cache";
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { isBuildsOwner } from "../../base/storage-owners.ts";
import { type LauncherClient, type StorageAnswer, type StorageRequest, storageError } from "../launcher/launcher.ts";
import { FRAME } from "../minit/frames.ts";
import type {
  SnapshotPair,
  SnapshotPause,
  Storage,
  StorageStatistics,
  SubvolumeKind,
  SubvolumeName,
  SubvolumeSpace,
  SubvolumeUsage,
  TouchedPaths,
} from "../ports/storage.ts";
import { clearDifferences, readDifferences } from "./differences.ts";

const MIB = 1024 * 1024;
/** include/uapi/linux/magic.h */
const BTRFS_MAGIC = 0x9123683e;
const MKFS_TIMEOUT_MS = 60_000;
const STORAGE_READONLY = 1;
const STORAGE_EXCHANGE = 2;
const EBUSY = 16;
const EEXIST = 17;
const ENODEV = 19;
const EINVAL = 22;
const EFBIG = 27;
const EOPNOTSUPP = 95;
/** Errors of mount for a btrfs that is mounted elsewhere and read-only since an error: btrfs_reconfigure, and before Linux 6.8. */
const HELD = [EINVAL, EBUSY];
const POOL_HELD = "STORAGE_POOL_HELD";
const LOOK_HINT =
  "a pool that is read-only is whole again after a restart of hearth with space on its disk, which ends all containers; the kernel's log (dmesg) names the cause";

export interface StoragePoolOptions {
  /** Does work with the launcher in use, and with the next one where that died meanwhile (S4). */
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
  readonly data_dir: string;
  /** Null: half of the file system that the data directory lies on. At least `storage_pool_mb_min`. */
  readonly size_mb: number | null;
  readonly clock: Clock;
  readonly log: Log;
}

/** The file or directory of the storage pool in a data directory; null if there is none yet. */
export function poolIn(data_dir: string): string | null {
  if (existsSync(fileOf(data_dir))) return fileOf(data_dir);
  return existsSync(`${pathOf(data_dir)}/containers`) ? pathOf(data_dir) : null;
}

// The names on the disk predate the term: an upgrade finds the files of the earlier version.
const pathOf = (data_dir: string): string => `${data_dir}/area`;
const fileOf = (data_dir: string): string => `${data_dir}/area.btrfs`;

export class StoragePool implements Storage {
  /** Mount point of the pool: a path for the launcher and the processes that it starts. */
  readonly path: string;
  readonly #options: StoragePoolOptions;
  /** Sparse file that backs the pool, if it has a device of its own. */
  readonly file: string;
  readonly #gate = new Semaphore(LIMITS.storage_pool_requests_at_once, LIMITS.storage_pool_requests_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many queued requests for the storage pool");
  });
  /** Reads of whole trees take seconds. They have a gate of their own, so that no start of a container waits for them. */
  readonly #readers = new Semaphore(LIMITS.storage_readers_at_once, LIMITS.storage_readers_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many queued reads of snapshots", { retry_after: 1 });
  });
  /** Last limit on the pool's total (S3); 0: not set yet. */
  #limit_bytes = 0;
  #room_bytes = Number.POSITIVE_INFINITY;
  /** True from the log line of a full disk to that of its end. */
  #isFull = false;
  #cancelLook: CancelTimer = () => {};
  #isClosed = false;
  /** Limits of owners as they are set. A new daemon sets them again. */
  readonly #owner_limits = new LRUCache<string, OwnerLimit>({ max: LIMITS.storage_owners_kept });
  #maxMb: (owner: string) => number | null = () => null;
  readonly #differences: string;
  #differences_count = 0;

  private constructor(options: StoragePoolOptions) {
    this.#options = options;
    this.path = pathOf(options.data_dir);
    this.file = fileOf(options.data_dir);
    this.#differences = `${options.data_dir}/differences`;
    clearDifferences(this.#differences);
  }

  /** Makes the pool if there is none, grows it if it is to be larger, mounts it. Rejects with INTERNAL and the reason. */
  static async open(options: StoragePoolOptions): Promise<StoragePool> {
    const pool = new StoragePool(options);
    await options.withLauncher((launcher) => pool.mount(launcher));
    pool.#lookLater(0);
    return pool;
  }

  /** Mounts the pool for a launcher: each new one needs it, before anything is started with it. Safe to repeat. */
  async mount(launcher: LauncherClient): Promise<void> {
    if (!(await this.#mountHere(launcher))) {
      if (!existsSync(this.file)) await this.#makeFile(launcher);
      mkdirSync(this.path, { recursive: true, mode: 0o700 });
      const bytes = this.#wantedBytes();
      const held_bytes = (await stat(this.file)).size;
      if (held_bytes > bytes && this.#options.size_mb !== null) {
        this.#options.log.info("cannot shrink the storage pool", { size_mb: held_bytes / MIB });
      }
      const answer = await launcher.storage({ type: FRAME.STORAGE_OPEN, texts: [this.file, this.path], bytes });
      if (answer.errno !== 0) throw mountError(this.file, answer);
    }
    this.#limit_bytes = 0;
    await this.#look(launcher);
  }

  subvolume(kind: SubvolumeKind, id: string): string {
    return `${this.path}/${kind}/${id}`;
  }

  boundOwners(maxMb: (owner: string) => number | null): void {
    this.#maxMb = maxMb;
  }

  async limitOwner(owner: string): Promise<void> {
    const max_mb = this.#maxMb(owner);
    // A zero quota would mean unlimited.
    const bytes = max_mb === null ? 0 : Math.max(max_mb * MIB, 1);
    await this.#done(`owner ${owner}`, { type: FRAME.STORAGE_LIMIT, texts: [""], bytes, owner: ownerNumber(owner) });
    this.#owner_limits.set(owner, { max_mb, checked_ms: Number.NEGATIVE_INFINITY });
  }

  async usageOf(owner: string): Promise<number> {
    const request = { type: FRAME.STORAGE_USAGE, texts: [""], owner: ownerNumber(owner) };
    const [referenced_bytes = 0, , , , , waiting_bytes = 0] = (await this.#done(`owner ${owner}`, request)).values;
    return referenced_bytes + waiting_bytes;
  }

  /**
   * Sets the limit of the owner's quota group and returns its number; 0 without an owner. Throws QUOTA_EXCEEDED if its
   * files already reach the limit: a container without space for its own directories would fail with a less precise error.
   */
  async #owner(owner: string | null): Promise<number> {
    if (owner === null) return 0;
    const max_mb = this.#maxMb(owner);
    if (this.#owner_limits.get(owner)?.max_mb !== max_mb) await this.limitOwner(owner);
    const known = this.#owner_limits.get(owner);
    const now_ms = this.#options.clock.monotonicMs();
    // Builds make and remove roots in a row: each finds out what the last one left.
    const isDue = isBuildsOwner(owner) || now_ms - (known?.checked_ms ?? 0) >= LIMITS.storage_owner_look_ms;
    if (max_mb !== null && known !== undefined && isDue) {
      const used_mb = Math.ceil((await this.usageOf(owner)) / MIB);
      if (used_mb >= max_mb) throw ownerFull(owner, used_mb, max_mb);
      known.checked_ms = now_ms;
    }
    return ownerNumber(owner);
  }

  async create(kind: SubvolumeKind, id: string, limit_mb: number | null, of: string | null = null): Promise<string> {
    this.#refuseWhenFull();
    const texts = [`${kind}/${id}`];
    const owner = await this.#owner(of);
    const answer = await this.#ask({ type: FRAME.STORAGE_CREATE, texts, bytes: (limit_mb ?? 0) * MIB, owner });
    if (answer.errno === EEXIST) await this.setLimit(kind, id, limit_mb);
    else if (answer.errno !== 0) throw storageError(`subvolume ${kind}/${id}`, answer);
    return this.subvolume(kind, id);
  }

  async remove(kind: SubvolumeKind, id: string): Promise<void> {
    await this.#done(`subvolume ${kind}/${id}`, { type: FRAME.STORAGE_DELETE, texts: [`${kind}/${id}`] });
  }

  async snapshot(
    from: SubvolumeName,
    to: SubvolumeName,
    isReadonly: boolean,
    limit_mb: number | null,
    of: string | null = null,
  ): Promise<string> {
    this.#refuseWhenFull();
    const owner = await this.#owner(of);
    const texts = [`${from.kind}/${from.id}`, `${to.kind}/${to.id}`];
    const flags = isReadonly ? STORAGE_READONLY : 0;
    const bytes = (limit_mb ?? 0) * MIB;
    const answer = await this.#ask({ type: FRAME.STORAGE_SNAPSHOT, texts, bytes, owner, flags });
    if (answer.errno === EEXIST) await this.setLimit(to.kind, to.id, limit_mb);
    else if (answer.errno !== 0) throw storageError(`snapshot ${texts.join(" to ")}`, answer);
    return this.subvolume(to.kind, to.id);
  }

  async snapshots(
    pairs: readonly SnapshotPair[],
    isReadonly: boolean,
    freezer: string | null,
    of: string | null = null,
  ): Promise<SnapshotPause> {
    this.#refuseWhenFull();
    const owner = await this.#owner(of);
    const nameOf = ({ kind, id }: SubvolumeName) => `${kind}/${id}`;
    const lines = pairs.map(({ from, to }) => `${nameOf(from)} ${nameOf(to)}\n`).join("");
    const flags = isReadonly ? STORAGE_READONLY : 0;
    const bytes = LIMITS.freeze_ms_max * 1_000;
    const request = { type: FRAME.STORAGE_SNAPSHOTS, texts: [freezer ?? "", lines], bytes, owner, flags };
    const answer = await this.#gate.run(() =>
      this.#options.withLauncher(async (launcher) => {
        const first = await launcher.storage(request);
        if (first.errno !== EEXIST) return first;
        // A launcher that died may have left some of them (S4).
        for (const { to } of pairs) await launcher.storage({ type: FRAME.STORAGE_DELETE, texts: [nameOf(to)] });
        return launcher.storage(request);
      }),
    );
    if (answer.errno !== 0) throw storageError("files of the snapshot", answer);
    const [pause_us = 0, frozen = 0] = answer.values;
    return { pause_ms: pause_us / 1_000, isFrozen: frozen === 1 };
  }

  async rename(kind: SubvolumeKind, id: string, new_id: string): Promise<boolean> {
    const texts = [`${kind}/${id}`, `${kind}/${new_id}`];
    const answer = await this.#ask({ type: FRAME.STORAGE_RENAME, texts });
    if (answer.errno === EEXIST) return false;
    if (answer.errno !== 0) throw storageError(`subvolume ${kind}/${id}`, answer);
    return true;
  }

  async exchange(kind: SubvolumeKind, id: string, other_id: string): Promise<void> {
    const texts = [`${kind}/${id}`, `${kind}/${other_id}`];
    // Not with the next launcher: what the last one may have done would be undone.
    const answer = await this.#gate.run(() =>
      this.#options.withLauncher((launcher) =>
        launcher.storage({ type: FRAME.STORAGE_RENAME, texts, flags: STORAGE_EXCHANGE }),
      ),
    );
    if (answer.errno !== 0) throw storageError(`subvolume ${kind}/${id}`, answer);
  }

  async setLimit(kind: SubvolumeKind, id: string, limit_mb: number | null): Promise<void> {
    const request = { type: FRAME.STORAGE_LIMIT, texts: [`${kind}/${id}`], bytes: (limit_mb ?? 0) * MIB };
    await this.#done(`subvolume ${kind}/${id}`, request);
  }

  async usage(kind: SubvolumeKind, id: string): Promise<SubvolumeUsage> {
    const request = { type: FRAME.STORAGE_USAGE, texts: [`${kind}/${id}`] };
    const { values } = await this.#done(`subvolume ${kind}/${id}`, request);
    const [referenced_bytes = 0, exclusive_bytes = 0, limit_bytes = 0, , , waiting_bytes = 0] = values;
    return {
      referenced_bytes: referenced_bytes + waiting_bytes,
      exclusive_bytes: exclusive_bytes + waiting_bytes,
      limit_bytes: limit_bytes === 0 ? null : limit_bytes,
    };
  }

  async space(kind: SubvolumeKind, id: string): Promise<SubvolumeSpace | null> {
    const argv = ["btrfs", "filesystem", "du", "--summarize", "--raw", this.subvolume(kind, id)];
    const timeout_ms = LIMITS.snapshot_space_ms;
    const ended = await this.#readers.run(() =>
      this.#options.withLauncher((launcher) => launcher.spawn({ argv, timeout_ms })),
    );
    const found = /^\s*(\d+)\s+(\d+)\s/m.exec(ended.stdout);
    // Also a tree with paths that are too long for it.
    if (ended.timed_out || ended.exit_code !== 0 || found === null) return null;
    return { total_bytes: Number(found[1]), exclusive_bytes: Number(found[2]) };
  }

  touched(from: SubvolumeName | null, to: SubvolumeName): Promise<TouchedPaths> {
    const { withLauncher } = this.#options;
    const pathOf = ({ kind, id }: SubvolumeName) => this.subvolume(kind, id);
    const file = `${this.#differences}/${this.#differences_count++}`;
    const request = { withLauncher, from: from === null ? null : pathOf(from), to: pathOf(to), file };
    return this.#readers.run(() => readDifferences(request));
  }

  async list(kind: SubvolumeKind): Promise<string[]> {
    const { text } = await this.#done(`list of ${kind}`, { type: FRAME.STORAGE_LIST, texts: [kind] });
    return text.split("\n").slice(0, -1);
  }

  async statistics(): Promise<StorageStatistics> {
    const { size_bytes, used_bytes, limit_bytes } = await this.#options.withLauncher((launcher) =>
      this.#measure(launcher),
    );
    const mb = (bytes: number) => Math.floor(bytes / MIB);
    return { size_mb: mb(size_bytes), used_mb: mb(used_bytes), free_mb: mb(Math.max(0, limit_bytes - used_bytes)) };
  }

  /** Unmounts the pool. Containers that hold it keep it, and its loop device too. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLook();
    await this.#done("the storage pool", { type: FRAME.STORAGE_CLOSE, texts: [this.path] });
  }

  /** Opens the pool on the data directory's own file system. False if that cannot hold one. */
  async #mountHere(launcher: LauncherClient): Promise<boolean> {
    if (existsSync(this.file) || statfsSync(this.#options.data_dir).type !== BTRFS_MAGIC) return false;
    const wasHere = existsSync(`${this.path}/containers`);
    const answer = await launcher.storage({ type: FRAME.STORAGE_OPEN, texts: ["", this.path] });
    if (answer.errno === 0) return true;
    // Quotas are a matter of the whole file system: whoever owns it switches them on, not we.
    if (answer.errno === EOPNOTSUPP && !wasHere) return false;
    throw new AppError("INTERNAL", `the storage pool ${this.path} needs quotas (btrfs quota enable): ${answer.text}`);
  }

  #wantedBytes(): number {
    const { data_dir, size_mb } = this.#options;
    const { blocks, bsize } = statfsSync(data_dir);
    return Math.max(size_mb ?? Math.floor((blocks * bsize) / 2 / MIB), LIMITS.storage_pool_mb_min) * MIB;
  }

  /** S2. */
  async #makeFile(launcher: LauncherClient): Promise<void> {
    const made = `${this.file}.new`;
    rmSync(made, { force: true });
    const file = await open(made, "wx", 0o600);
    try {
      // On a btrfs, a file that is copied on every write once more would be slow for nothing.
      if (statfsSync(made).type === BTRFS_MAGIC) await launcher.run(["chattr", "+C", made], MKFS_TIMEOUT_MS);
      const bytes = this.#wantedBytes();
      await truncate(made, bytes);
      // One copy of the metadata: two on one disk cost writes and save from little. The file is sparse: nothing to discard.
      const profile = ["--metadata", "single", "--data", "single", "--nodiscard"];
      if (bytes <= LIMITS.storage_pool_mixed_mb_max * MIB) profile.push("--mixed");
      await launcher.run(["mkfs.btrfs", "--quiet", ...profile, made], MKFS_TIMEOUT_MS);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(made, this.file);
    const directory = await open(this.#options.data_dir);
    await directory.sync().finally(() => directory.close());
  }

  /** S3. Measures the bytes of all subvolumes, those that wait in memory included, and the most that they may have. */
  async #measure(launcher: LauncherClient): Promise<{ size_bytes: number; used_bytes: number; limit_bytes: number }> {
    const answer = await launcher.storage({ type: FRAME.STORAGE_USAGE, texts: [""] });
    if (answer.errno !== 0) throw storageError("the storage pool", answer);
    const [written_bytes = 0, , , pool_free_bytes = 0, pool_bytes = 0, waiting_bytes = 0] = answer.values;
    const { bavail, bsize } = statfsSync(this.#options.data_dir);
    const host_free_bytes = Math.max(0, bavail * bsize - LIMITS.storage_pool_host_reserve_bytes);
    const inFile = existsSync(this.file);
    const whole_bytes = inFile ? pool_bytes : Math.min(pool_bytes, this.#wantedBytes());
    const size_bytes = Math.floor(whole_bytes * (1 - LIMITS.storage_pool_spare_ratio));
    // Bytes that are reserved (fallocate) or wait in memory are not on the disk yet: they will take free space.
    const stored_bytes = inFile ? Math.min(written_bytes, statSync(this.file).blocks * 512) : written_bytes;
    const limit_bytes = Math.min(size_bytes, written_bytes + pool_free_bytes, stored_bytes + host_free_bytes);
    return { size_bytes, used_bytes: written_bytes + waiting_bytes, limit_bytes };
  }

  /** S3. Limits the total to what fits. */
  async #look(launcher: LauncherClient): Promise<void> {
    const { used_bytes, limit_bytes: fitting_bytes } = await this.#measure(launcher);
    this.#room_bytes = fitting_bytes - used_bytes;
    this.#logRoom();
    // A zero quota would mean unlimited.
    const limit_bytes = Math.max(fitting_bytes, 1);
    const rise_bytes = limit_bytes - this.#limit_bytes;
    if (rise_bytes >= 0 && rise_bytes < LIMITS.storage_pool_limit_step_bytes && this.#limit_bytes !== 0) return;
    const answer = await launcher.storage({ type: FRAME.STORAGE_LIMIT, texts: [""], bytes: limit_bytes });
    if (answer.errno !== 0) throw storageError("the storage pool's limit", answer);
    this.#limit_bytes = limit_bytes;
  }

  #lookLater(failures: number): void {
    const { clock, withLauncher, log } = this.#options;
    const isPressed = this.#room_bytes < LIMITS.storage_pool_pressed_bytes;
    this.#cancelLook = clock.after(
      isPressed ? LIMITS.storage_pool_pressed_look_ms : LIMITS.storage_pool_look_ms,
      async () => {
        try {
          await withLauncher((launcher) => this.#look(launcher));
          failures = 0;
        } catch (error) {
          // One failure may come with a change of the launcher. Lasting failures are logged once.
          if (++failures === 2)
            log.error("the storage pool does not respond", { error: errorText(error), hint: LOOK_HINT });
        }
        if (!this.#isClosed) this.#lookLater(failures);
      },
    );
  }

  /** Logs that what is new is refused, and its end: requests alone would only show refusals. */
  #logRoom(): void {
    const { log, data_dir } = this.#options;
    const min_bytes = LIMITS.storage_pool_room_bytes_min;
    // Room around the bound makes no line for each look.
    if (this.#room_bytes >= (this.#isFull ? 4 * min_bytes : min_bytes)) {
      if (this.#isFull) log.info("the disk has space again", { directory: data_dir });
      this.#isFull = false;
    } else if (!this.#isFull) {
      this.#isFull = true;
      log.error("the disk is full: new containers, volumes and code are refused", {
        directory: data_dir,
        free_mb: Math.max(0, Math.floor(this.#room_bytes / MIB)),
        hint: "free space on the disk of the directory, delete containers, volumes and snapshots, or raise HEARTH_AREA_MB",
      });
    }
  }

  #refuseWhenFull(): void {
    if (this.#room_bytes >= LIMITS.storage_pool_room_bytes_min) return;
    throw new AppError("CAPACITY_FULL", "the disk has no space for files of containers, volumes and code");
  }

  async #done(what: string, request: StorageRequest): Promise<StorageAnswer> {
    const answer = await this.#ask(request);
    if (answer.errno !== 0) throw storageError(what, answer);
    return answer;
  }

  /** Asks the launcher, with so many requests at once at most. */
  #ask(request: StorageRequest): Promise<StorageAnswer> {
    return this.#gate.run(() => this.#options.withLauncher((launcher) => launcher.storage(request)));
  }
}

interface OwnerLimit {
  readonly max_mb: number | null;
  /** Monotonic time of the last check of its usage. */
  checked_ms: number;
}

function ownerFull(owner: string, used_mb: number, max_mb: number): AppError {
  const [what, hint] = isBuildsOwner(owner)
    ? [
        "files of the tenant's builds",
        "delete the build cache (command line: hearth prune --build-cache), or wait until other builds of the tenant end",
      ]
    : [
        "the tenant's files",
        "delete containers, volumes and snapshots; what copies share stays until the last of them is deleted",
      ];
  return new AppError("QUOTA_EXCEEDED", `${what} take ${used_mb} MiB of the disk (limit ${max_mb} MiB)`, {
    details: { expected: [String(max_mb)], received: String(used_mb) },
    reason_code: "STORAGE_QUOTA_EXCEEDED",
    hint,
  });
}

/** The number of an owner's quota group: 48 bits of a digest, so that it needs no table. */
const ownerNumber = (owner: string): number =>
  Number.parseInt(createHash("sha256").update(owner).digest("hex").slice(0, 12), 16);

function mountError(file: string, answer: StorageAnswer): AppError {
  const { errno, text } = answer;
  if (errno === ENODEV) {
    return new AppError("INTERNAL", `this kernel has no btrfs, which containers and volumes need: ${text}`);
  }
  const message = `cannot mount the storage pool ${file}: ${text}`;
  if (errno === EFBIG) return new AppError("INTERNAL", message, { hint: "set a smaller HEARTH_AREA_MB" });
  if (!text.startsWith("mount")) return new AppError("INTERNAL", message);
  const hint = "the kernel's log (dmesg) names the cause; if the file is damaged, restore it from a backup";
  return new AppError("INTERNAL", message, { hint, ...(HELD.includes(errno) ? { reason_code: POOL_HELD } : {}) });
}

/** True for the failure of `StoragePool.open` that ends once no process holds the file system of an earlier mount. */
export function isPoolHeld(error: unknown): boolean {
  return error instanceof AppError && error.reason_code === POOL_HELD;
}
