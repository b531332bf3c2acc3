/** Shapes of the volume concern as zod schemas: requests and records. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import {
  acknowledgement,
  epochSeconds,
  labels,
  missingText,
  nextCursor,
  queryNumber,
  resourceName,
  textBytes,
  whole,
} from "../base/schema.ts";
import { VOLUME_STATUSES } from "./states.ts";

/** Unlike other names one of a volume stands before a colon in a mount. */
const volumeName = resourceName.refine((value) => !value.includes(":"), { error: "must not hold ':'" });

const ABOUT = {
  name: "Unique among the tenant's volumes. Without '/', ':', control characters and spaces at its ends.",
  quota_mb: `Quota of its files, in MiB. Unless given ${LIMITS.disk_limit_mb_default} or the node's setting; in a tenant without disk_mb_max no limit (null).`,
  path: "A path in the tree, with or without a slash in front.",
} as const;

export const createVolume = z
  .object({
    name: volumeName.describe(ABOUT.name),
    driver: z
      .literal("local", { error: "expected local" })
      .default("local")
      .describe("Location of the volume: this node."),
    labels: labels.default({}).describe("For whoever looks for it."),
    quota_mb: whole(LIMITS.disk_limit_mb_min, LIMITS.disk_limit_mb_max).nullish().describe(ABOUT.quota_mb),
  })
  .meta({ id: "CreateVolume" });
export type CreateVolume = z.output<typeof createVolume>;

/** `name` is what older clients send. */
export const renameVolume = z
  .object({
    new_name: volumeName.optional().describe("New name of the volume."),
    name: volumeName.optional().describe("The same; new_name goes before it."),
  })
  .superRefine(({ new_name, name }, context) => {
    if ((new_name ?? name) === undefined) context.addIssue(missingText("new_name"));
  })
  .transform(({ new_name, name }) => ({ new_name: new_name ?? name ?? "" }))
  .meta({ id: "RenameVolume" });

export const volumeRecord = z
  .object({
    id: z.string().describe("The volume's, also after a change of its name."),
    name: z.string().describe(ABOUT.name),
    tenant_id: z.string().describe("Of its owner."),
    driver: z.literal("local").describe("Location of the volume: this node."),
    mount_point: z
      .string()
      .describe("A name for existing clients, /volumes/<name>: no path on the node or in a container."),
    labels: z.record(z.string(), z.string()).describe("For whoever looks for it."),
    options: z.record(z.string(), z.string()).describe("None exist yet."),
    quota_mb: z.int().nullable().describe(ABOUT.quota_mb),
    status: z.enum(VOLUME_STATUSES).describe("cleanup_pending: it is being deleted."),
    created_at: epochSeconds,
    updated_at: epochSeconds,
  })
  .meta({ id: "Volume" });
export type VolumeRecord = Readonly<z.output<typeof volumeRecord>>;

export const volumeDetail = volumeRecord
  .extend({
    used_bytes: z.int().describe("Bytes of its files."),
    container_ids: z.array(z.string()).describe("Containers that have it."),
  })
  .meta({ id: "VolumeDetail" });

export const volumeList = z
  .object({
    volumes: z.array(volumeRecord).describe("Newest first."),
    next_cursor: nextCursor,
  })
  .meta({ id: "VolumeList" });

/** Permission bits as people write them: the digits are octal. */
const octalMode = whole(0, 7_777).refine((value) => /^[0-7]+$/.test(String(value)), {
  error: "must have octal digits only, as 644",
});

const base64 = z
  .string()
  .refine((value) => /^[A-Za-z0-9+/]*={0,2}$/.test(value) && value.length % 4 === 0, { error: "must be base64" });

export const filePath = textBytes(LIMITS.path_bytes_max).refine((value) => !value.split("/").includes(".."), {
  error: "must not hold '..'",
});

export const writeFile = z
  .object({
    path: filePath.min(1).describe(ABOUT.path),
    content: base64.describe("The file's bytes in base64."),
    mode: octalMode.optional().describe("Its permission bits as octal digits, such as 644."),
  })
  .meta({ id: "WriteFile" });

/** The form of older clients, where they ask for JSON. */
export const fileContent = z
  .object({
    content: z.string().describe("The file's bytes in base64."),
    path: z.string().describe("In the volume, with a slash in front."),
    mode: z.int().describe("Permission bits as octal digits, such as 644."),
  })
  .meta({ id: "FileContent" });
export type FileContent = z.output<typeof fileContent>;

export const renamedVolume = z
  .object({
    success: z.literal(true).describe("Always true: what failed is answered with an error."),
    old_name: z.string().describe("Previous name."),
    new_name: z.string().describe("New name."),
  })
  .meta({ id: "RenamedVolume" });

export const writtenFile = acknowledgement
  .extend({ path: z.string().describe("In the volume, with a slash in front.") })
  .meta({ id: "WrittenFile" });

export const listQuery = z.object({
  path: filePath.default("/").describe(ABOUT.path),
  page: queryNumber(1, 1_000_000_000).default(1).describe("Counted from 1."),
  page_size: queryNumber(1, Number.MAX_SAFE_INTEGER)
    .transform((size) => Math.min(size, LIMITS.file_page_size_max))
    .default(LIMITS.file_page_size_default)
    .meta({ default: LIMITS.file_page_size_default, description: `Clamped to ${LIMITS.file_page_size_max}.` }),
});

export const fileEntry = z
  .object({
    name: z.string().describe("In its directory."),
    path: z.string().describe("In the tree, with a slash in front."),
    type: z
      .enum(["file", "directory", "symlink", "fifo", "socket", "character_device", "block_device", "unknown"])
      .describe("Type of the entry."),
    size: z.int().describe("In bytes."),
    mode: z.int().describe("Permission bits as octal digits, such as 644."),
    modified_at: epochSeconds,
    uid: z.int().describe("Of its owner."),
    gid: z.int().describe("Of its group."),
    target: z.string().nullable().describe("Of a symbolic link; null of all else."),
  })
  .meta({ id: "FileEntry" });

export const fileList = z
  .object({
    path: z.string().describe("Of the directory."),
    files: z.array(fileEntry).describe("By name, in the order of its bytes."),
    page: z.int().describe("Counted from 1."),
    page_size: z.int().describe("Entries of a page, at most."),
    total: z.int().describe("Entries of the directory."),
    total_pages: z.int().describe("Pages of the directory, at least one."),
    has_more: z.boolean().describe("True if another page follows."),
  })
  .meta({ id: "FileList" });

export const archiveQuery = z.object({
  strip_components: queryNumber(0, LIMITS.archive_depth_max).default(0).describe("Leading parts taken off each name."),
  path: filePath.default("/").describe("The directory that it is unpacked in; made where it is missing."),
});

/** The form of older clients. */
export const archiveBody = z
  .object({
    content: base64.describe("The archive in base64."),
    path: filePath.optional().describe("As in the query, and before it."),
    strip_components: whole(0, LIMITS.archive_depth_max).optional().describe("The same."),
  })
  .meta({ id: "ArchiveBody" });

export const downloadQuery = z.object({
  format: z.enum(["tar", "tar.gz"]).default("tar").describe("Plain, or in gzip."),
  path: filePath.default("/").describe("A directory, whose content it is, or one file."),
});
