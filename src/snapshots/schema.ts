/** Shapes of snapshots, clones and forks as zod schemas: requests and records. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import {
  acknowledgement,
  epochSeconds,
  labels,
  newName,
  nextCursor,
  pageQuery,
  queryLimit,
  resourceName,
  text,
  whole,
} from "../base/schema.ts";
import { containerName, containerRecord } from "../containers/schema.ts";
import { acceptedOperation } from "../operations/schema.ts";

export const CONSISTENCY_MODES = ["crash-consistent", "app-consistent"] as const;
export const NETWORK_MODES = ["reset", "preserve_ns", "preserve_conn_best_effort"] as const;
export const VOLUME_MODES = ["exclude", "include_named", "include_all_allowed"] as const;
export const RESUME_POLICIES = ["manual", "immediate"] as const;
/** States that a client sees. */
const VISIBLE_STATES = ["creating", "ready"] as const;

const ABOUT = {
  snapshot_id: "Id of the snapshot.",
  consistency_mode:
    "crash-consistent: files as after a power cut at one moment. app-consistent: the container's hooks /etc/hearth/pre-snapshot and post-snapshot run before and after.",
  network_mode:
    "Network settings of copies. reset: no published ports, no private network, no names. preserve_ns: the same network and ports, or free ports where these are taken. preserve_conn_best_effort: as preserve_ns; connections are not kept. Each copy has an address of its own; the limits of egress always apply.",
  volume_mode:
    "Volumes of the container. exclude: none. include_named: those in volumes, or all where volumes is left out. include_all_allowed: all. A copy gets volumes of its own.",
  volumes: "Names of volumes, with include_named; null or left out: all of the container.",
  labels: "Labels for clients; the daemon ignores them.",
  ttl_seconds: "Seconds after which the daemon deletes the snapshot, unless it is pinned; null means never.",
  resume_policy: "manual: the container rests in state created until it is started. immediate: it is started.",
} as const;

/** The header that existing clients send with these requests. */
const sentAlong = {
  dry_run: z
    .boolean()
    .default(false)
    .describe(
      "Checks the request and changes nothing; responds 200 with the warnings. Names and ports may be taken by the time of the request.",
    ),
  idempotency_key: text(LIMITS.idempotency_key_length_max)
    .min(1)
    .optional()
    .describe("The same as the header Idempotency-Key, which takes precedence."),
  placement_hint: text(LIMITS.label_length_max)
    .nullish()
    .describe("Ignored: copies are made on the node of the source."),
  async_mode: z.boolean().optional().describe("Ignored: the query execution decides."),
};

const modes = {
  consistency_mode: z.enum(CONSISTENCY_MODES).default("crash-consistent").describe(ABOUT.consistency_mode),
  network_mode: z.enum(NETWORK_MODES).default("reset").describe(ABOUT.network_mode),
  volume_mode: z.enum(VOLUME_MODES).default("exclude").describe(ABOUT.volume_mode),
  volumes: z.array(resourceName).max(LIMITS.container_volumes_max).nullish().describe(ABOUT.volumes),
};

interface VolumeChoice {
  readonly volume_mode: (typeof VOLUME_MODES)[number];
  readonly volumes?: readonly string[] | null | undefined;
}

function complaintAboutVolumes({ volume_mode, volumes }: VolumeChoice): string | null {
  const count = volumes?.length ?? 0;
  if (volume_mode !== "include_named" && count > 0) return "must be empty unless volume_mode is include_named";
  // A list that names none contradicts the mode, unlike one that is left out.
  if (volume_mode === "include_named" && volumes != null && count === 0) {
    return "must name the volumes to include, or be left out for all of them";
  }
  return null;
}

function checkVolumes(value: VolumeChoice, context: z.RefinementCtx): void {
  const message = complaintAboutVolumes(value);
  if (message !== null) context.addIssue({ code: "custom", path: ["volumes"], message });
}

const ttl = whole(1, LIMITS.snapshot_ttl_seconds_max).nullish();
const copyFields = {
  resume_policy: z.enum(RESUME_POLICIES).default("manual").describe(ABOUT.resume_policy),
  labels: labels.nullish().describe("Labels of the copy. Default: those of its source."),
  ttl_seconds: whole(1, LIMITS.container_seconds_max)
    .nullish()
    .describe("Seconds after which the daemon deletes the copy. Default: the setting of its source."),
};

export const createSnapshot = z
  .object({
    name: newName.nullish().describe("Name for people; need not be unique."),
    ...modes,
    ttl_seconds: ttl.describe(ABOUT.ttl_seconds),
    labels: labels.default({}).describe(ABOUT.labels),
    ...sentAlong,
  })
  .superRefine(checkVolumes)
  .meta({ id: "CreateSnapshot" });
export type CreateSnapshot = z.output<typeof createSnapshot>;

export const cloneSnapshot = z
  .object({
    name: containerName
      .nullish()
      .describe(
        "Name of the container, or of the volume; with count, a pattern in which {n} is replaced by the number of the clone, from 1 on. Default: the source's name and a random suffix.",
      ),
    count: whole(1, LIMITS.forks_max).default(1).describe("Number of clones."),
    ...copyFields,
    ...sentAlong,
  })
  .meta({ id: "CloneSnapshot" });
export type CloneSnapshot = z.output<typeof cloneSnapshot>;

export const forkContainer = z
  .object({
    name: containerName
      .nullish()
      .describe(
        "Name of the fork; with count, a pattern in which {n} is replaced by the number of the fork, from 1 on. Default: the source's name and a random suffix.",
      ),
    count: whole(1, LIMITS.forks_max).default(1).describe("Number of forks, all of the same moment."),
    ...modes,
    ...copyFields,
    ...sentAlong,
  })
  .superRefine(checkVolumes)
  .meta({ id: "ForkContainer" });
export type ForkContainer = z.output<typeof forkContainer>;

export const restoreContainer = z
  .object({
    snapshot_id: z.string().describe("Snapshot whose files the container gets; over the same image."),
    ...sentAlong,
  })
  .meta({ id: "RestoreContainer" });

const reference = text(LIMITS.image_reference_length_max).min(1).describe("Reference of the image, such as tools:1.");

export const exportSnapshot = z
  .object({
    format: z
      .enum(["oci", "tar"])
      .default("oci")
      .describe("oci: an image of the tenant. tar: the response is an archive of all files."),
    reference: reference.nullish().describe("Reference of the image, such as tools:1; required for oci."),
    ...sentAlong,
  })
  .superRefine((value, context) => {
    if (value.format === "oci" && value.reference == null) {
      context.addIssue({ code: "custom", path: ["reference"], message: "is required for an image" });
    }
  })
  .meta({ id: "ExportSnapshot" });

export const commitContainer = z.object({ reference, ...sentAlong }).meta({ id: "CommitContainer" });

export const snapshotVolume = z
  .object({
    name: newName.nullish().describe("Name for people; need not be unique."),
    ttl_seconds: ttl.describe(ABOUT.ttl_seconds),
    labels: labels.default({}).describe(ABOUT.labels),
    ...sentAlong,
  })
  .meta({ id: "SnapshotVolumeRequest" });

/** The modes of the snapshots of a schedule; the schedule of a volume has only labels. */
const scheduled = {
  consistency_mode: modes.consistency_mode,
  volume_mode: z
    .enum(VOLUME_MODES)
    .default("exclude")
    .describe("Volumes of the container. exclude: none. include_named, include_all_allowed: all."),
  labels: labels.default({}).describe(ABOUT.labels),
};
const SCHEDULE = {
  every_seconds: "Seconds between snapshots.",
  keep: "Number of snapshots of the schedule to keep; the daemon deletes older ones, unless they are pinned.",
};

export const putSchedule = z
  .object({
    every_seconds: whole(LIMITS.schedule_seconds_min, LIMITS.schedule_seconds_max).describe(SCHEDULE.every_seconds),
    keep: whole(1, LIMITS.schedule_keep_max).describe(SCHEDULE.keep),
    ...scheduled,
  })
  .meta({ id: "PutSnapshotSchedule" });
export type PutSchedule = z.output<typeof putSchedule>;

export const putVolumeSchedule = putSchedule
  .omit({ consistency_mode: true, volume_mode: true })
  .meta({ id: "PutVolumeSnapshotSchedule" });

export const scheduleRecord = z
  .object({
    source_kind: z.enum(["container", "volume"]).describe("What it takes snapshots of."),
    source_id: z.string().describe("Id of the container or volume."),
    every_seconds: z.int().describe(SCHEDULE.every_seconds),
    keep: z.int().describe(SCHEDULE.keep),
    consistency_mode: z.enum(CONSISTENCY_MODES).describe(ABOUT.consistency_mode),
    volume_mode: z.enum(VOLUME_MODES).describe("Volumes of the container. exclude: none; otherwise all."),
    labels: z.record(z.string(), z.string()).describe(ABOUT.labels),
    created_at: epochSeconds,
    due_at: epochSeconds.describe("Time of the next snapshot, in seconds since the Unix epoch."),
    last_snapshot_id: z.string().nullable().describe("Newest snapshot of the schedule; null: none yet."),
    last_error: z.string().nullable().describe("Reason why the last snapshot was not taken; null: it was."),
  })
  .meta({ id: "SnapshotSchedule" });
export type ScheduleRecord = Readonly<z.output<typeof scheduleRecord>>;

export const bySnapshot = z.object({
  snapshot_id: z.string().meta({ description: ABOUT.snapshot_id, examples: ["snp_7d2k9f0qv4xw8m1t"] }),
});

export const listSnapshots = pageQuery.extend({
  container_id: z.string().optional().describe("Only snapshots of this container, by id or name."),
  volume: z.string().optional().describe("Only snapshots of this volume, by its name at that time."),
  label: z
    .union([z.string(), z.array(z.string()).max(LIMITS.labels_max)])
    .optional()
    .transform((value) => (value === undefined ? [] : typeof value === "string" ? [value] : value))
    .pipe(z.array(z.string().regex(/^[^=]+=/s, { error: "expected <key>=<value>" })))
    .describe("Only snapshots with this label, as <key>=<value>; repeated, with all of them."),
});
export type SnapshotFilter = Pick<z.output<typeof listSnapshots>, "container_id" | "volume" | "label">;

const includedVolume = z
  .object({
    name: z.string().describe("Name of the volume at that time."),
    target: z.string().describe("Path at which the container mounts it."),
  })
  .meta({ id: "IncludedVolume" });

const hookResult = z
  .object({
    exit_code: z.int().nullable().describe("Exit code; null if it did not end in time, or could not be run."),
    timed_out: z.boolean().describe("True if it did not end in time."),
    output: z.string().describe("Beginning of its output."),
  })
  .meta({ id: "SnapshotHook" });

export const snapshotRecord = z
  .object({
    snapshot_id: z.string().describe(ABOUT.snapshot_id),
    id: z.string().describe("The same as snapshot_id."),
    tenant_id: z.string().describe("Id of the tenant that owns it."),
    kind: z.enum(["container", "volume"]).describe("What it is a snapshot of."),
    name: z.string().nullable().describe("Name for people."),
    state: z.enum(VISIBLE_STATES).describe("creating: the operation that takes it has not ended."),
    source_container_id: z.string().nullable().describe("Container that it is of; null for one of a volume."),
    source_container_name: z.string().nullable().describe("Name of the container at that time."),
    container_id: z.string().nullable().describe("The same as source_container_id."),
    source_volume: z.string().nullable().describe("Name of the volume at that time; null for one of a container."),
    parent_snapshot_id: z
      .string()
      .nullable()
      .describe("Snapshot before it: of the same container, or the one that the container is a copy of."),
    consistency_mode: z.enum(CONSISTENCY_MODES).describe(ABOUT.consistency_mode),
    network_mode: z.enum(NETWORK_MODES).describe(ABOUT.network_mode),
    volume_mode: z.enum(VOLUME_MODES).describe(ABOUT.volume_mode),
    volumes: z.array(includedVolume).describe("Volumes that it includes."),
    image: z.string().nullable().describe("Image below the container's files; null for one of a volume."),
    created_at: epochSeconds,
    ttl_seconds: z.int().nullable().describe(ABOUT.ttl_seconds),
    expires_at: z.int().nullable().describe("Seconds since the Unix epoch; null: never."),
    labels: z.record(z.string(), z.string()).describe(ABOUT.labels),
    pinned: z.boolean().describe("True if it can be neither deleted nor expire."),
    size_bytes: z.int().nullable().describe("Bytes of its files on the disk, shared or not; null while it is made."),
    metadata: z
      .object({
        pause_ms: z.number().nullable().describe("Milliseconds for which the container was frozen; null: it was not."),
        memory: z.literal(false).describe("Always false: a snapshot has files, not processes."),
        hooks: z
          .object({
            pre: hookResult.nullable().describe("The hook before the snapshot."),
            post: hookResult.nullable().describe("The hook after it."),
          })
          .describe("Outcome of each hook; null where it did not run."),
      })
      .describe("How it was taken."),
    warnings: z.array(z.string()).describe("Differences between the request and the result."),
    capability_downgrades: z.array(z.string()).describe("Requested capabilities that this node lacks."),
  })
  .meta({ id: "Snapshot" });
export type SnapshotRecord = Readonly<z.output<typeof snapshotRecord>>;

export const snapshotDetail = snapshotRecord
  .extend({
    exclusive_bytes: z
      .int()
      .nullable()
      .describe("Bytes that its deletion frees; null while it is made, and if the count took too long."),
    shared_bytes: z
      .int()
      .nullable()
      .describe("Bytes that other containers, volumes or snapshots share; null likewise."),
  })
  .meta({ id: "SnapshotDetail" });
export type SnapshotDetail = Readonly<z.output<typeof snapshotDetail>>;

export const snapshotList = z
  .object({ snapshots: z.array(snapshotRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "SnapshotList" });

const lineageNode = z
  .object({
    snapshot_id: z.string().describe(ABOUT.snapshot_id),
    parent_snapshot_id: z.string().nullable().describe("Snapshot before it; null for the first one."),
    container_id: z.string().nullable().describe("Container or null, as in the snapshot."),
    name: z.string().nullable().describe("Name for people."),
    created_at: epochSeconds,
    depth: z.int().describe("Number of snapshots before it."),
  })
  .meta({ id: "LineageNode" });

const lineageContainer = z
  .object({
    container_id: z.string().describe("Id of the container."),
    name: z.string().describe("Name of the container."),
    state: containerRecord.shape.state,
    snapshot_id: z.string().describe("Snapshot that its files are nearest to."),
    kind: z.enum(["source", "clone", "fork"]).describe("source: no copy of another one."),
    parent_container_id: z.string().nullable().describe("Container that it is a copy of; null for a source."),
  })
  .meta({ id: "LineageContainer" });

export const lineage = z
  .object({
    snapshot_id: z.string().describe("Snapshot that was requested."),
    nodes: z.array(lineageNode).describe("Snapshots that it descends from or shares an ancestor with, oldest first."),
    containers: z.array(lineageContainer).describe("Containers of these snapshots, their clones and forks."),
    is_truncated: z.boolean().describe("True if nodes or containers are left out."),
  })
  .meta({ id: "Lineage" });
export type Lineage = Readonly<z.output<typeof lineage>>;

export const acceptedSnapshot = acceptedOperation
  .extend({
    snapshot_id: z.string().describe("Id of the snapshot, which GET shows from now on."),
    source_container_id: z.string().nullable().describe("Container that it is of; null for one of a volume."),
    source_container_name: z.string().nullable().describe("Name of that container."),
  })
  .meta({ id: "AcceptedSnapshot" });

export const acceptedCopy = acceptedOperation
  .extend({
    container_id: z.string().nullable().describe("Id of the new container, the first of several; null for a volume."),
    container_ids: z.array(z.string()).describe("Ids of all new containers."),
    snapshot_id: z.string().nullable().describe("Snapshot that is cloned; null for a fork."),
    source_container_id: z.string().nullable().describe("Container that is copied; null for a volume."),
    source_container_name: z.string().nullable().describe("Name of that container."),
  })
  .meta({ id: "AcceptedCopy" });

/** The answer to a dry run. */
export const dryRun = z
  .object({
    success: z.literal(true).describe("Always true: the request would be accepted."),
    dry_run: z.literal(true).describe("Always true: nothing was changed."),
    warnings: z.array(z.string()).describe("Differences between the request and the result."),
    capability_downgrades: z.array(z.string()).describe("Requested capabilities that this node lacks."),
  })
  .meta({ id: "DryRun" });

const change = z
  .object({
    path: z.string().describe("Path in the container or volume; bytes that are not UTF-8 are replaced."),
    change: z.enum(["added", "changed", "deleted"]).describe("changed: its content, its attributes or its type."),
    type: z
      .enum(["file", "directory", "symlink", "fifo", "socket", "character_device", "block_device", "unknown"])
      .nullable()
      .describe("Type of the entry as it is, or as it was before its deletion."),
    size_bytes: z.int().nullable().describe("Size of a file; null for other types."),
    renamed_from: z.string().nullable().describe("Earlier path of an entry that was renamed, with all that is in it."),
  })
  .meta({ id: "FileChange" });
export type Change = Readonly<z.output<typeof change>>;

export const changes = z
  .object({
    changes: z
      .array(change)
      .describe(
        "By path. Entries of a renamed directory are listed only if they changed, and of a file with several names one.",
      ),
    added_count: z.int().describe("Number of added paths."),
    changed_count: z.int().describe("Number of changed paths."),
    deleted_count: z.int().describe("Number of deleted paths."),
    is_truncated: z.boolean().describe(`True if paths are left out: above limit, or ${LIMITS.differences_max} in all.`),
  })
  .meta({ id: "FileChanges" });
export type Changes = Readonly<z.output<typeof changes>>;

const changesLimit = queryLimit(LIMITS.differences_max, LIMITS.differences_max).describe(
  `Number of listed paths; clamped to ${LIMITS.differences_max}.`,
);
export const diffQuery = z.object({ limit: changesLimit });
export const changesQuery = diffQuery.extend({
  since: z.string().optional().describe("Snapshot to compare with. Default: the container's image."),
});
export const byTwoSnapshots = bySnapshot.extend({
  other_id: z.string().meta({ description: "Id of the later snapshot.", examples: ["snp_1m8w4xf9k2d7qv0t"] }),
});

export const pinnedSnapshot = acknowledgement
  .extend({
    snapshot_id: z.string().describe(ABOUT.snapshot_id),
    pinned: z.boolean().describe("True if it is pinned."),
  })
  .meta({ id: "PinnedSnapshot" });
