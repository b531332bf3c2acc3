/**
 * Comparisons: the paths that are added, changed or deleted between two snapshots, between a snapshot and a container, or
 * between an image and a container. The kernel names the paths; both trees, as the containers see them, are asked for each.
 *
 * D1 What is compared are copies of this request alone, which go when it has ended: a crash leaves subvolumes without a
 *    row, which the next start removes.
 */
import { KeyedMutex, Semaphore } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { Shares } from "../base/shares.ts";
import type { ContainerRow } from "../containers/service.ts";
import type { FileEntry, FileSession, SubvolumeName, TouchedPath } from "../engine/ports.ts";
import type { SnapshotRow } from "./rows.ts";
import type { Change, Changes as ChangesRecord } from "./schema.ts";
import { MOMENT, SNAPSHOT_KIND, type Snapshots } from "./service.ts";
import { WorkingCopies, type WorkingCopiesOptions } from "./working-copies.ts";

export interface ComparisonsOptions extends WorkingCopiesOptions {
  readonly snapshots: Snapshots;
}

/** One side of a comparison: files of a container over its image, files of a volume, or the image alone. */
interface Side {
  readonly subvolume: SubvolumeName | null;
  /** Null: a volume. */
  readonly image_id: string | null;
}

/** Directory of a container's own files in its subvolume. */
const UPPER = "upper";
/** Directory that the first start makes where the image has none: each start mounts one of its own there. */
const MOUNT_POINT = "run/hearth";

export class Comparisons {
  readonly #options: ComparisonsOptions;
  /** The sides of comparisons of containers (D1). */
  readonly #copies: WorkingCopies;
  /**
   * Comparisons of one tenant take turns: each makes copies and mounts them. So two of them never wait for the snapshots of
   * each other.
   */
  readonly #tenants = new KeyedMutex();
  /** Those that run or wait. */
  readonly #shares = new Shares({
    each_max: LIMITS.comparisons_per_tenant_max,
    all_max: LIMITS.comparisons_waiting_max,
  });
  readonly #places = new Semaphore(LIMITS.comparisons_max, LIMITS.comparisons_waiting_max, tooMany);

  constructor(options: ComparisonsOptions) {
    this.#options = options;
    this.#copies = new WorkingCopies(options);
  }

  /** Throws INVALID_ARGUMENT for snapshots of different kinds, or over different images. */
  ofSnapshots(tenant_id: string, id: string, other_id: string, limit: number): Promise<ChangesRecord> {
    const { snapshots } = this.#options;
    return this.#inTurn(tenant_id, () =>
      snapshots.using(tenant_id, id, (before) =>
        id === other_id
          ? Promise.resolve(changesOf([], limit, false))
          : snapshots.using(tenant_id, other_id, (after) => {
              checkAlike(imageOf(before), imageOf(after));
              return this.#compare(tenant_id, sideOf(before), sideOf(after), limit);
            }),
      ),
    );
  }

  /** Compares a container as it is now with a snapshot; null: with its image. Throws INVALID_ARGUMENT as above. */
  ofContainer(tenant_id: string, row: ContainerRow, since: string | null, limit: number): Promise<ChangesRecord> {
    const { snapshots, engine, ids } = this.#options;
    return this.#inTurn(tenant_id, async () => {
      const now: SubvolumeName = { kind: SNAPSHOT_KIND, id: ids.next(MOMENT) };
      const after: Side = { subvolume: now, image_id: row.image_id };
      try {
        await engine.storage.snapshots([{ from: { kind: "containers", id: row.id }, to: now }], true, null);
        if (since === null) {
          return await this.#compare(tenant_id, { subvolume: null, image_id: row.image_id }, after, limit);
        }
        return await snapshots.using(tenant_id, since, (before) => {
          checkAlike(imageOf(before), row.image_id);
          return this.#compare(tenant_id, sideOf(before), after, limit);
        });
      } finally {
        void snapshots.discardParts([now.id]);
      }
    });
  }

  async #inTurn(tenant_id: string, work: () => Promise<ChangesRecord>): Promise<ChangesRecord> {
    const release = this.#shares.take(tenant_id, (reached, max) =>
      reached === "each_max"
        ? new AppError("CONCURRENCY_LIMIT", `too many concurrent comparisons of the tenant (limit ${max})`, {
            retry_after: 1,
          })
        : tooMany(),
    );
    try {
      return await this.#tenants.run(tenant_id, () => this.#places.run(work));
    } finally {
      release();
    }
  }

  async #compare(tenant_id: string, before: Side, after: Side, limit: number): Promise<ChangesRecord> {
    if (after.subvolume === null) throw new AppError("INTERNAL", "nothing to compare with");
    const { paths, isTruncated } = await this.#options.engine.storage.touched(before.subvolume, after.subvolume);
    const candidates = candidatesOf(paths, after.image_id !== null);
    const { changes, ...cut } = await this.#opened(tenant_id, before, (old) =>
      this.#opened(tenant_id, after, (now) => classify(candidates, old, now, before.subvolume === null)),
    );
    return changesOf(changes, limit, isTruncated || cut.isTruncated);
  }

  /** Does work on the files of a side as a container or volume has them. */
  async #opened<Result>(
    tenant_id: string,
    { subvolume, image_id }: Side,
    work: (session: FileSession) => Promise<Result>,
  ): Promise<Result> {
    const { storage, files } = this.#options.engine;
    if (image_id === null && subvolume !== null) {
      return files.with(tenant_id, storage.subvolume(subvolume.kind, subvolume.id), 0, work);
    }
    const { session, close } = await this.#copies.open(tenant_id, subvolume, image_id ?? "");
    try {
      return await work(session);
    } finally {
      close();
    }
  }
}

function tooMany(): AppError {
  const max = LIMITS.comparisons_waiting_max;
  return new AppError("CAPACITY_FULL", `too many concurrent comparisons on this node (limit ${max})`, {
    retry_after: 1,
  });
}

const imageOf = ({ details }: SnapshotRow): string | null => details.settings?.image_id ?? null;

const sideOf = (row: SnapshotRow): Side => ({
  subvolume: { kind: SNAPSHOT_KIND, id: row.id },
  image_id: imageOf(row),
});

function checkAlike(before: string | null, after: string | null): void {
  if (before === after) return;
  const what = before === null || after === null ? "a snapshot of a volume and one of a container" : "different images";
  throw new AppError("INVALID_ARGUMENT", `cannot compare ${what}`);
}

interface Candidate {
  /** Paths of bytes, as the kernel has them. */
  readonly before: string | null;
  readonly path: string | null;
  readonly isTimesAlone: boolean;
  /** A directory that hides what the image has at its place. */
  readonly isOpaqueChanged: boolean;
  /** True if no own file of the container stands for it: it is below a directory of the image that shows up or is hidden. */
  readonly isHidden: boolean;
}

/** The paths as a container sees them: below its own files, or in a volume. */
function candidatesOf(paths: readonly TouchedPath[], isContainer: boolean): Candidate[] {
  const inside = (path: string | null): string | null => {
    if (path === null || !isContainer) return path;
    return path.startsWith(`${UPPER}/`) ? path.slice(UPPER.length + 1) : null;
  };
  return paths
    .map(({ before, path, ...flags }) => ({ before: inside(before), path: inside(path), ...flags, isHidden: false }))
    .filter(({ before, path }) => before !== null || path !== null);
}

/** Asks both trees for each path. A path that was removed and made again is changed. `isImage`: `old` is an image alone. */
async function classify(
  candidates: readonly Candidate[],
  old: FileSession,
  now: FileSession,
  isImage: boolean,
): Promise<Classified> {
  const found = new Map<string, Change>();
  let isTruncated = false;
  const onCut = () => {
    isTruncated = true;
  };
  for await (const { before, path, isTimesAlone, isHidden } of withHidden(candidates, old, now, onCut)) {
    for (const one of new Set([before, path])) {
      if (one === null || found.has(one)) continue;
      const [was, is] = await Promise.all([statOf(old, one), statOf(now, one)]);
      // A directory whose entries changed is not changed itself, nor one that was copied for a change below it.
      if ((isTimesAlone || before === null || path === null) && isSameDirectory(was, is)) continue;
      if ((isImage || isHidden) && isSameFile(was, is)) continue;
      const change = changeOf(was, is);
      if (change === null || (one === MOUNT_POINT && (is ?? was)?.type === "directory")) continue;
      const isMoved = one === path && before !== null && before !== path && change === "added";
      const entry = is ?? was;
      found.set(one, {
        path: `/${textOf(one)}`,
        change,
        type: entry?.type ?? null,
        size_bytes: entry?.type === "file" ? entry.size : null,
        renamed_from: isMoved ? `/${textOf(before)}` : null,
      });
    }
  }
  const changes = [...found.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
  return { changes, isTruncated };
}

/** The changes that a classification found; truncated if it left some out. */
interface Classified {
  readonly changes: readonly Change[];
  readonly isTruncated: boolean;
}

/**
 * Yields the candidates, and what is in a directory of the image that a container's own directory hides since then, or did
 * before. Of these no more than `differences_max`; `onCut` is called if some are left out.
 */
async function* withHidden(
  candidates: readonly Candidate[],
  old: FileSession,
  now: FileSession,
  onCut: () => void,
): AsyncGenerator<Candidate, void, undefined> {
  let hidden_count = 0;
  for (const candidate of candidates) {
    yield candidate;
    const { before, path, isOpaqueChanged } = candidate;
    const hidden =
      path !== null && isOpaqueChanged ? below(old, path) : path === null && before !== null ? below(now, before) : [];
    for await (const one of hidden) {
      if (hidden_count === LIMITS.differences_max) {
        onCut();
        break;
      }
      hidden_count += 1;
      yield { before: one, path: one, isTimesAlone: true, isOpaqueChanged: false, isHidden: true };
    }
  }
}

/** Yields the paths below a directory; none if there is no such directory. */
async function* below(session: FileSession, path: string): AsyncGenerator<string, void, undefined> {
  for (let page = 1; ; page += 1) {
    const request = { path: bytesOf(path), page, page_size: LIMITS.list_limit_max };
    const { entries } = await session.list(request).catch((error) => {
      if (isMissing(error)) return { entries: [] };
      throw error;
    });
    for (const { name_bytes, type } of entries) {
      const own = `${path}/${Buffer.from(name_bytes).toString("latin1")}`;
      yield own;
      if (type === "directory") yield* below(session, own);
    }
    if (entries.length < LIMITS.list_limit_max) return;
  }
}

const bytesOf = (path: string): Buffer => Buffer.from(path, "latin1");
const textOf = (path: string): string => bytesOf(path).toString("utf8");

/** True if there is no such file or directory. */
const isMissing = (error: unknown): boolean =>
  error instanceof AppError && (error.code === "NOT_FOUND" || error.code === "INVALID_ARGUMENT");

/** Null: there is no such file. */
async function statOf(session: FileSession, path: string): Promise<FileEntry | null> {
  try {
    return await session.stat(bytesOf(path));
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

function isSameDirectory(was: FileEntry | null, is: FileEntry | null): boolean {
  if (was?.type !== "directory" || is?.type !== "directory") return false;
  return was.mode === is.mode && was.uid === is.uid && was.gid === is.gid;
}

/**
 * A file of the image that was opened for writing is copied, with its time. An empty one, which each start makes where it
 * mounts a file of its own, has another time each time.
 */
function isSameFile(was: FileEntry | null, is: FileEntry | null): boolean {
  if (was === null || is === null || was.type !== is.type || was.type === "directory") return false;
  const isSameOwner = was.uid === is.uid && was.gid === is.gid && was.mode === is.mode;
  const isSameTime = was.mtime_ms === is.mtime_ms || (is.type === "file" && is.size === 0);
  return isSameOwner && was.size === is.size && isSameTime && was.target === is.target;
}

function changeOf(was: FileEntry | null, is: FileEntry | null): Change["change"] | null {
  if (was === null) return is === null ? null : "added";
  return is === null ? "deleted" : "changed";
}

function changesOf(changes: readonly Change[], limit: number, isTruncated: boolean): ChangesRecord {
  const count = (kind: Change["change"]) => changes.filter(({ change }) => change === kind).length;
  return {
    changes: changes.slice(0, limit),
    added_count: count("added"),
    changed_count: count("changed"),
    deleted_count: count("deleted"),
    is_truncated: isTruncated || changes.length > limit,
  };
}
