/** Paths that differ: between two snapshots, between a snapshot and a container, or between an image and a container. */
import { LIMITS } from "../../base/limits.ts";
import type { ResponseOf } from "../../client/client.ts";
import type { Format, Paint } from "../output/terminal.ts";
import { visible } from "../output/text.ts";
import type { Flags, Session, Words } from "../session/session.ts";

export type FileChanges = ResponseOf<"GET /api/containers/:container_id/changes">;
type FileChange = FileChanges["changes"][number];

const MARKS: Readonly<Record<FileChange["change"], readonly [mark: string, format: Format]>> = {
  added: ["A", "green"],
  changed: ["C", "yellow"],
  deleted: ["D", "red"],
};

/** `A /root/new`, `A /root/b (renamed from /root/a)`. */
export function changeLine({ path, change, renamed_from }: FileChange, paint: Paint): string {
  const [mark, format] = MARKS[change];
  const before = renamed_from === null ? "" : ` (renamed from ${visible(renamed_from)})`;
  return `${paint(format, `${mark} ${visible(path)}`)}${before}\n`;
}

/** Paths that differ and are not in the list. The daemon stops counting at a bound of its own. */
export function leftOut({ changes, added_count, changed_count, deleted_count }: FileChanges): number {
  return added_count + changed_count + deleted_count - changes.length;
}

export async function listChanges(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const since = flags.since === undefined ? undefined : await session.snapshotId(flags.since as string);
  const query = { since, limit: flags.limit as number | undefined };
  const client = await session.tenantClient(LIMITS.cli_call_timeout_ms);
  const asked = client.request("GET /api/containers/:container_id/changes", { params, query });
  show(session, await session.terminal.progress(`comparing ${visible(name)}`, asked));
}

export async function diffSnapshots(session: Session, [name = "", other = ""]: Words, flags: Flags): Promise<void> {
  const params = { snapshot_id: await session.snapshotId(name), other_id: await session.snapshotId(other) };
  const query = { limit: flags.limit as number | undefined };
  const client = await session.tenantClient(LIMITS.cli_call_timeout_ms);
  const asked = client.request("GET /api/snapshots/:snapshot_id/diff/:other_id", { params, query });
  show(session, await session.terminal.progress(`comparing ${visible(name)} with ${visible(other)}`, asked));
}

function show(session: Session, found: FileChanges): void {
  const { terminal, flags } = session;
  session.show(found, () => found.changes.map((change) => changeLine(change, terminal.paint)).join(""));
  if (flags.json === true) return;
  const left_count = leftOut(found);
  if (found.changes.length === 0) terminal.note("no differences");
  else if (left_count > 0) terminal.note(`${left_count} more paths differ; --limit shows more`);
  else if (found.is_truncated) terminal.note("more paths differ than the daemon lists");
}
