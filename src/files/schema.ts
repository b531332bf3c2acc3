/** Shapes of files of a tree as zod schemas: directories, contents, archives. Containers and volumes have such trees. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, queryNumber, textBytes, whole } from "../base/schema.ts";

export const PATH = "Path in the file tree, with or without a leading slash.";

/** Permission bits as people write them: the digits are octal. */
export const octalMode = whole(0, 7_777).refine((value) => /^[0-7]+$/.test(String(value)), {
  error: "must have only octal digits, such as 644",
});

export const base64 = z
  .string()
  .refine((value) => /^[A-Za-z0-9+/]*={0,2}$/.test(value) && value.length % 4 === 0, { error: "must be base64" });

export const filePath = textBytes(LIMITS.path_bytes_max).refine((value) => !value.split("/").includes(".."), {
  error: "must not contain '..'",
});

/** The form of older clients, where they ask for JSON. */
export const fileContent = z
  .object({
    content: z.string().describe("The file's bytes in base64."),
    path: z.string().describe("Path in the file tree, with a leading slash."),
    mode: z.int().describe("Permission bits as octal digits, such as 644."),
  })
  .meta({ id: "FileContent" });
export type FileContent = z.output<typeof fileContent>;

export const listQuery = z.object({
  path: filePath.default("/").describe(PATH),
  page: queryNumber(1, 1_000_000_000).default(1).describe("Number of the page, from 1."),
  page_size: queryNumber(1, Number.MAX_SAFE_INTEGER)
    .transform((size) => Math.min(size, LIMITS.file_page_size_max))
    .default(LIMITS.file_page_size_default)
    .meta({ default: LIMITS.file_page_size_default, description: `Clamped to ${LIMITS.file_page_size_max}.` }),
});

export const fileEntry = z
  .object({
    name: z.string().describe("Name in its directory."),
    path: z.string().describe("Path in the file tree, with a leading slash."),
    type: z
      .enum(["file", "directory", "symlink", "fifo", "socket", "character_device", "block_device", "unknown"])
      .describe("Type of the entry."),
    size: z.int().describe("Size in bytes."),
    mode: z.int().describe("Permission bits as octal digits, such as 644."),
    modified_at: epochSeconds,
    uid: z.int().describe("User id of the owner."),
    gid: z.int().describe("Group id."),
    target: z.string().nullable().describe("Target of a symbolic link; null for other types."),
  })
  .meta({ id: "FileEntry" });

export const fileList = z
  .object({
    path: z.string().describe("Path of the directory."),
    files: z.array(fileEntry).describe("Ordered by the bytes of the names."),
    page: z.int().describe("Number of the page, from 1."),
    page_size: z.int().describe("Maximum number of entries of a page."),
    total: z.int().describe("Number of entries of the directory."),
    total_pages: z.int().describe("Number of pages of the directory, at least one."),
    has_more: z.boolean().describe("True if another page follows."),
  })
  .meta({ id: "FileList" });
export type FileList = z.output<typeof fileList>;

export const archiveQuery = z.object({
  strip_components: queryNumber(0, LIMITS.archive_depth_max)
    .default(0)
    .describe("Leading path components to remove from each name."),
  path: filePath.default("/").describe("Target directory; created if it does not exist."),
});

/** The form of older clients. */
export const archiveBody = z
  .object({
    content: base64.describe("The archive in base64."),
    path: filePath.optional().describe("The same as in the query; takes precedence."),
    strip_components: whole(0, LIMITS.archive_depth_max)
      .optional()
      .describe("The same as in the query; takes precedence."),
  })
  .meta({ id: "ArchiveBody" });

export const downloadQuery = z.object({
  format: z.enum(["tar", "tar.gz"]).default("tar").describe("Compression of the archive."),
  path: filePath.default("/").describe("Path of a directory, whose contents are archived, or of a file."),
});
