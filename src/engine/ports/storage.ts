/** The engine's port: the storage pool, in which every container, volume and tree of code has a subvolume with a limit of its own. */

/**
 * `code`: trees of functions' files, which instances mount read-only (`Instances.attach`). `contexts`: files of builds. `logs`:
 * logs and exit records of containers.
 */
export type SubvolumeKind = "containers" | "volumes" | "snapshots" | "code" | "contexts" | "logs";

export interface SubvolumeName {
  readonly kind: SubvolumeKind;
  /** At most `storage_pool_id_length_max` characters of a-z, 0-9, `_` and `-`. */
  readonly id: string;
}

export interface SubvolumeUsage {
  /** Bytes in it, shared or not. With simple quotas: bytes written into it. */
  readonly referenced_bytes: number;
  /** Bytes that no other subvolume shares: about what its removal gives back. */
  readonly exclusive_bytes: number;
  readonly limit_bytes: number | null;
}

/** One snapshot of several that are taken at the same moment. */
export interface SnapshotPair {
  readonly from: SubvolumeName;
  /** Replaced if it is there. */
  readonly to: SubvolumeName;
}

/** The pause of the processes while snapshots were taken. */
export interface SnapshotPause {
  readonly pause_ms: number;
  /** False: nothing was to be frozen, or it was not frozen in time. */
  readonly isFrozen: boolean;
}

export interface SubvolumeSpace {
  readonly total_bytes: number;
  /** Bytes that no other subvolume shares. */
  readonly exclusive_bytes: number;
}

/** A path that differs between two subvolumes, or may differ: of one character for each byte (latin1). */
export interface TouchedPath {
  /** Path in the later one; null: it is gone. */
  readonly path: string | null;
  /** Path in the earlier one; null: it is new. */
  readonly before: string | null;
  /** True if only its times were set, as of each directory whose entries change. */
  readonly isTimesAlone: boolean;
  /** True if a directory began to hide what lies below it in the image, or ended to. */
  readonly isOpaqueChanged: boolean;
}

export interface TouchedPaths {
  readonly paths: readonly TouchedPath[];
  /** True if paths are left out. */
  readonly isTruncated: boolean;
}

export interface StorageStatistics {
  readonly size_mb: number;
  /** Written by containers and into volumes. */
  readonly used_mb: number;
  /** Room for more; bounded by the pool and by the disk below. */
  readonly free_mb: number;
}

/**
 * Every change may be repeated: what is there already, or gone already, is as good as done. What is made with an `owner`, the
 * id of a tenant, counts for it as long as anything shares what was written in it, also when it was removed itself. That
 * needs simple quotas (Linux 6.7); with others it counts as long as it is there, and snapshots do not.
 */
export interface Storage {
  /** The subvolume's root, for the launcher and the processes that it starts. */
  subvolume(kind: SubvolumeKind, id: string): string;
  /**
   * Makes an empty subvolume with a limit of `limit_mb` megabytes; null: without one. An existing subvolume gets the
   * limit. Resolves to its path. Rejects with CAPACITY_FULL, for an impossible id with INTERNAL.
   */
  create(kind: SubvolumeKind, id: string, limit_mb: number | null, owner?: string | null): Promise<string>;
  /**
   * Removes a subvolume with all that is in it, subvolumes that were made inside of it too; its blocks are freed in the
   * background. Resolves also when there is none. Nothing may run in it: open files would live on unseen.
   */
  remove(kind: SubvolumeKind, id: string): Promise<void>;
  /**
   * Makes `to` what `from` is now, in time that does not depend on its size. A `to` that is there already stays as it
   * is. Rejects with NOT_FOUND when there is no `from`, with CAPACITY_FULL.
   */
  snapshot(
    from: SubvolumeName,
    to: SubvolumeName,
    isReadonly: boolean,
    limit_mb: number | null,
    owner?: string | null,
  ): Promise<string>;
  /**
   * Takes several snapshots without limits, all or none, while the group of `freezer` is frozen; null: nothing is. A
   * snapshot that is there already is made anew. Rejects with NOT_FOUND when a source is missing, with CAPACITY_FULL.
   */
  snapshots(
    pairs: readonly SnapshotPair[],
    isReadonly: boolean,
    freezer: string | null,
    owner?: string | null,
  ): Promise<SnapshotPause>;
  /** Sets the function that returns the most that an owner's subvolumes may have, in MiB; null: no limit. */
  boundOwners(maxMb: (owner: string) => number | null): void;
  /** Sets the limit of an owner again, after a change. */
  limitOwner(owner: string): Promise<void>;
  /** Bytes that an owner's subvolumes have, those that were removed and are shared among them. */
  usageOf(owner: string): Promise<number>;
  /**
   * Gives a subvolume another name of its kind, with all that is in it. Resolves to false if there is a `new_id` already:
   * then nothing changes. Rejects with NOT_FOUND if there is neither.
   */
  rename(kind: SubvolumeKind, id: string, new_id: string): Promise<boolean>;
  /** Exchanges the names of two subvolumes of a kind, at once. Rejects with NOT_FOUND unless both are there. */
  exchange(kind: SubvolumeKind, id: string, other_id: string): Promise<void>;
  /** Null takes the limit away. A limit below the present size refuses all writes. Rejects with NOT_FOUND. */
  setLimit(kind: SubvolumeKind, id: string, limit_mb: number | null): Promise<void>;
  /** Returns the present usage, bytes that wait in memory included. Rejects with NOT_FOUND. */
  usage(kind: SubvolumeKind, id: string): Promise<SubvolumeUsage>;
  /**
   * Counts the bytes on the disk of the files of a subvolume, by reading the extents of each of them. Null: that took
   * longer than `snapshot_space_ms`, a path has more than 4,096 bytes, or there is no such subvolume. Rejects with
   * CAPACITY_FULL.
   */
  space(kind: SubvolumeKind, id: string): Promise<SubvolumeSpace | null>;
  /**
   * Lists the paths that differ between two read-only subvolumes, at most `differences_max`; `from` null: all paths. Takes as
   * long as there are differences. Rejects with TIMEOUT, NOT_FOUND, INTERNAL.
   */
  touched(from: SubvolumeName | null, to: SubvolumeName): Promise<TouchedPaths>;
  /** Ids of all subvolumes of a kind, in no order. */
  list(kind: SubvolumeKind): Promise<string[]>;
  statistics(): Promise<StorageStatistics>;
}
