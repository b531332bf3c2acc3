/** Shapes of the volume concern as zod schemas: requests and records. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement, epochSeconds, labels, newName, nextCursor, renameBody, whole } from "../base/schema.ts";
import { base64, filePath, octalMode, PATH } from "../files/schema.ts";
import { VOLUME_STATUSES } from "./states.ts";

/** Unlike other names one of a volume stands before a colon in a mount. */
const volumeName = newName.refine((value) => !value.includes(":"), { error: "must not contain ':'" });

const ABOUT = {
  name: "Name, unique among the tenant's volumes; without '/', ':', control characters, and leading or trailing spaces.",
  quota_mb: `Quota of its files in MiB. Default: ${LIMITS.disk_limit_mb_default} or the node's setting; no limit (null) for tenants without disk_mb_max.`,
} as const;

export const createVolume = z
  .object({
    name: volumeName.describe(ABOUT.name),
    driver: z
      .literal("local", { error: "expected local" })
      .default("local")
      .describe("Location of the volume: this node."),
    labels: labels.default({}).describe("Labels for clients; the daemon ignores them."),
    quota_mb: whole(LIMITS.disk_limit_mb_min, LIMITS.disk_limit_mb_max).nullish().describe(ABOUT.quota_mb),
  })
  .meta({ id: "CreateVolume" });
export type CreateVolume = z.output<typeof createVolume>;

export const renameVolume = renameBody("volume", volumeName).meta({ id: "RenameVolume" });

export const volumeRecord = z
  .object({
    id: z.string().describe("Id of the volume; does not change when it is renamed."),
    name: z.string().describe(ABOUT.name),
    tenant_id: z.string().describe("Id of the tenant that owns it."),
    driver: z.literal("local").describe("Location of the volume: this node."),
    mount_point: z
      .string()
      .describe("Always /volumes/<name>, for existing clients; not a path on the node or in a container."),
    labels: z.record(z.string(), z.string()).describe("Labels for clients; the daemon ignores them."),
    options: z.record(z.string(), z.string()).describe("Always empty."),
    quota_mb: z.int().nullable().describe(ABOUT.quota_mb),
    status: z.enum(VOLUME_STATUSES).describe("cleanup_pending: the daemon deletes the volume."),
    created_at: epochSeconds,
    updated_at: epochSeconds,
  })
  .meta({ id: "Volume" });
export type VolumeRecord = Readonly<z.output<typeof volumeRecord>>;

export const volumeDetail = volumeRecord
  .extend({
    used_bytes: z.int().describe("Bytes used by its files."),
    container_ids: z.array(z.string()).describe("Containers that mount it."),
  })
  .meta({ id: "VolumeDetail" });

export const volumeList = z
  .object({
    volumes: z.array(volumeRecord).describe("Newest first."),
    next_cursor: nextCursor,
  })
  .meta({ id: "VolumeList" });

export const writeFile = z
  .object({
    path: filePath.min(1).describe(PATH),
    content: base64.describe("The file's bytes in base64."),
    mode: octalMode.optional().describe("Permission bits as octal digits, such as 644."),
  })
  .meta({ id: "WriteFile" });

export const renamedVolume = z
  .object({
    success: acknowledgement.shape.success,
    old_name: z.string().describe("Previous name."),
    new_name: z.string().describe("New name."),
  })
  .meta({ id: "RenamedVolume" });

export const writtenFile = acknowledgement
  .extend({ path: z.string().describe("Path in the volume, with a leading slash.") })
  .meta({ id: "WrittenFile" });
