/** The verbs of snapshots: taken, listed, inspected, pinned, deleted. */
import { LIMITS } from "../../base/limits.ts";
import type { RequestOf, ResponseOf } from "../../client/client.ts";
import { each } from "../each.ts";
import { pairs } from "../functions/function-fields.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes, milliseconds, relative } from "../output/time.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, SnapshotRecord, Words } from "../session/session.ts";
import { lineageTree } from "./lineage.ts";

type Detail = ResponseOf<"GET /api/snapshots/:snapshot_id">;
type Taken = RequestOf<"POST /api/containers/:container_id/snapshot">["body"];

/** A part of an operation that makes several containers. */
export interface CopyItem {
  readonly name: string;
  readonly status: "succeeded" | "failed";
  readonly container_id?: string;
  readonly error_code?: string;
  readonly error?: string;
}

export const labelsOf = ({ label }: Flags) => (label === undefined ? undefined : pairs(label as string[], "--label"));

/** Reads the flags of a snapshot: its consistency, network and volume modes. */
export function modesOf(
  flags: Flags,
): Pick<NonNullable<Taken>, "consistency_mode" | "network_mode" | "volume_mode" | "volumes"> {
  const volumes = flags.volume as string[] | undefined;
  if (flags.allVolumes === true && volumes !== undefined) {
    throw usage("--volume and --all-volumes exclude each other", "leave one of them out");
  }
  return {
    consistency_mode: flags.appConsistent === true ? "app-consistent" : undefined,
    network_mode: flags.network as "reset" | undefined,
    volume_mode:
      flags.allVolumes === true ? "include_all_allowed" : volumes === undefined ? undefined : "include_named",
    volumes,
  };
}

export function noteWarnings({ terminal, flags }: Session, { warnings }: { readonly warnings: readonly string[] }) {
  if (flags.json === true) return;
  for (const warning of warnings) terminal.note(visible(warning));
}

const called = ({ name, snapshot_id }: Pick<SnapshotRecord, "name" | "snapshot_id">) =>
  name === null ? snapshot_id : `${visible(name)} (${snapshot_id})`;

export async function createSnapshot(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const body: Taken = {
    name: flags.name as string | undefined,
    ...modesOf(flags),
    ttl_seconds: flags.ttl as number | undefined,
    labels: labelsOf(flags),
  };
  const params = { container_id: await session.containerId(name) };
  const client = await session.tenantClient(LIMITS.cli_call_timeout_ms);
  const query = { execution: "sync" as const };
  const asked = client.request("POST /api/containers/:container_id/snapshot", { params, query, body });
  const taken = await session.terminal.progress(`taking a snapshot of ${visible(name)}`, asked);
  if (!("exclusive_bytes" in taken)) throw new Failure(EXIT.refused, "the daemon answered no snapshot");
  noteWarnings(session, taken);
  session.show(taken, () => takenText(taken));
}

function takenText(taken: Detail): string {
  const { pause_ms } = taken.metadata;
  const pause = pause_ms === null ? "" : `, the container paused for ${milliseconds(pause_ms)}`;
  const size = taken.size_bytes === null ? "" : `: ${bytes(taken.size_bytes)}`;
  return `${called(taken)} is taken${size}${pause}\n`;
}

export async function listSnapshots(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const labels = flags.label as string[] | undefined;
  pairs(labels ?? [], "--label");
  const container = flags.container as string | undefined;
  const container_id = container === undefined ? undefined : await session.containerId(container);
  const client = await session.tenantClient();
  const answer = await readList("snapshots", limit, (page) =>
    client.request("GET /api/snapshots", { query: { ...page, container_id, label: labels } }),
  );
  if (flags.quiet === true && session.flags.json !== true) {
    return session.terminal.out(answer.snapshots.map(({ snapshot_id }) => `${snapshot_id}\n`).join(""));
  }
  const columns: Column<SnapshotRecord>[] = [
    { title: "NAME", value: ({ name }) => name },
    { title: "SOURCE", value: ({ source_container_name, source_volume }) => source_container_name ?? source_volume },
    { title: "AGE", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "SIZE", value: ({ size_bytes }) => (size_bytes === null ? null : bytes(size_bytes)), side: "right" },
    { title: "PINNED", value: ({ pinned }) => (pinned ? "yes" : null) },
    { title: "ID", value: ({ snapshot_id }) => snapshot_id, format: () => "dim" },
    { title: "PARENT", value: ({ parent_snapshot_id }) => parent_snapshot_id, format: () => "dim", isSpare: true },
  ];
  const empty = "no snapshots: hearth snapshot create <container>";
  session.show(answer, () => session.table(columns, answer.snapshots, empty));
  session.noteCut(answer.snapshots.length, limit, answer);
}

export async function inspectSnapshot(session: Session, [name = ""]: Words): Promise<void> {
  const params = { snapshot_id: await session.snapshotId(name) };
  const found = await (await session.tenantClient()).request("GET /api/snapshots/:snapshot_id", { params });
  session.show(found, () => session.list(entriesOf(found, session.now)));
}

export async function showLineage(session: Session, [name = ""]: Words): Promise<void> {
  const params = { snapshot_id: await session.snapshotId(name) };
  const found = await (await session.tenantClient()).request("GET /api/snapshots/:snapshot_id/lineage", { params });
  const { now, terminal } = session;
  session.show(found, () => lineageTree(found, { now, paint: terminal.paint }));
  if (found.is_truncated && session.flags.json !== true) terminal.note("showing only a part of the lineage");
}

export async function pinSnapshots(session: Session, names: Words): Promise<void> {
  const client = await session.tenantClient();
  await each(session, names, async (name) => {
    const params = { snapshot_id: await session.snapshotId(name) };
    const answer = await client.request("POST /api/snapshots/:snapshot_id/pin", { params });
    session.show(answer, () => `${visible(name)} is pinned\n`);
  });
}

export async function unpinSnapshots(session: Session, names: Words): Promise<void> {
  const client = await session.tenantClient();
  await each(session, names, async (name) => {
    const params = { snapshot_id: await session.snapshotId(name) };
    const answer = await client.request("POST /api/snapshots/:snapshot_id/unpin", { params });
    session.show(answer, () => `${visible(name)} is not pinned\n`);
  });
}

export async function deleteSnapshots(session: Session, names: Words): Promise<void> {
  const client = await session.tenantClient();
  await each(session, names, async (name) => {
    session.advice = { SNAPSHOT_PINNED: `unpin it first: hearth snapshot unpin ${shellWord(name)}` };
    const params = { snapshot_id: await session.snapshotId(name) };
    const answer = await client.request("DELETE /api/snapshots/:snapshot_id", { params });
    session.show(answer, () => `${visible(name)} is deleted\n`);
  });
}
