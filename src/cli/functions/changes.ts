/** Differences of versions as lines: settings with both values, files with a mark. */
import type { ResponseOf } from "../../client/client.ts";
import type { Format, Paint } from "../output/terminal.ts";
import { json, visible } from "../output/text.ts";

type VersionDiff = ResponseOf<"GET /api/functions/:function_id/versions/:version/diff/:other_version">;
export type SettingChange = VersionDiff["changes"][number];
export type FileChange = VersionDiff["files"][number];

/** The name of a field as commands show it. */
export const fieldName = (field: string): string => (field === "code_sha256" ? "code" : field);

/** `memory_limit_mb: 256 -> 512`; `code` stands alone: the lines of its files follow. */
export function settingLine({ field, from, to }: SettingChange): string {
  return field === "code_sha256" ? "  code\n" : `  ${visible(fieldName(field))}: ${json(from, 0)} -> ${json(to, 0)}\n`;
}

const MARKS: Readonly<Record<FileChange["change"], readonly [mark: string, format: Format]>> = {
  added: ["+", "green"],
  removed: ["-", "red"],
  changed: ["~", "yellow"],
};

export function fileLine({ path, change }: FileChange, paint: Paint): string {
  const [mark, format] = MARKS[change];
  return `  ${paint(format, `${mark} ${visible(path)}`)}\n`;
}
