/** Schedules of snapshots, of containers and of volumes; and snapshots of volumes alone. */
import { LIMITS } from "../../base/limits.ts";
import type { RequestOf, ResponseOf } from "../../client/client.ts";
import { visible } from "../output/text.ts";
import { bytes, relative, span } from "../output/time.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { labelsOf } from "./snapshots.ts";

type Schedule = ResponseOf<"GET /api/containers/:container_id/snapshot-schedule">;
type Wanted = NonNullable<RequestOf<"PUT /api/containers/:container_id/snapshot-schedule">["body"]>;

export async function scheduleContainer(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const client = await session.tenantClient();
  await schedule(session, name, flags, {
    get: () => client.request("GET /api/containers/:container_id/snapshot-schedule", { params }),
    put: (body) => client.request("PUT /api/containers/:container_id/snapshot-schedule", { params, body }),
    end: () => client.request("DELETE /api/containers/:container_id/snapshot-schedule", { params }),
  });
}

export async function scheduleVolume(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const params = session.volume(name);
  const client = await session.tenantClient();
  await schedule(session, name, flags, {
    get: () => client.request("GET /api/volumes/:name/snapshot-schedule", { params }),
    put: ({ consistency_mode: _, volume_mode: __, ...body }) =>
      client.request("PUT /api/volumes/:name/snapshot-schedule", { params, body }),
    end: () => client.request("DELETE /api/volumes/:name/snapshot-schedule", { params }),
  });
}

interface Requests {
  get(): Promise<Schedule>;
  put(body: Wanted): Promise<Schedule>;
  end(): Promise<unknown>;
}

/** Shows, sets or ends a schedule, as the flags say. */
async function schedule(session: Session, name: string, flags: Flags, requests: Requests): Promise<void> {
  const every_seconds = flags.every as number | undefined;
  const keep = flags.keep as number | undefined;
  if (flags.off === true) {
    const answer = await requests.end();
    return session.show(answer, () => `snapshots of ${visible(name)} are no longer scheduled\n`);
  }
  if (every_seconds === undefined && keep === undefined) {
    const found = await requests.get();
    return session.show(found, () => text(session, name, found));
  }
  if (every_seconds === undefined || keep === undefined) {
    throw usage("a schedule needs --every and --keep", "for example: --every 1h --keep 24");
  }
  const body: Wanted = {
    ...{ every_seconds, keep, labels: labelsOf(flags) },
    consistency_mode: flags.appConsistent === true ? "app-consistent" : undefined,
    volume_mode: flags.allVolumes === true ? "include_all_allowed" : undefined,
  };
  const set = await requests.put(body);
  session.show(set, () => text(session, name, set));
}

function text(session: Session, name: string, { every_seconds, keep, due_at, last_error }: Schedule): string {
  const next = `${visible(name)}: a snapshot every ${span(every_seconds)}, the newest ${keep} kept, next ${relative(due_at, session.now)}\n`;
  return last_error === null ? next : `${next}the last one failed: ${visible(last_error)}\n`;
}

export async function snapshotVolume(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const params = session.volume(name);
  const body = {
    ...{ name: flags.name as string | undefined, ttl_seconds: flags.ttl as number | undefined },
    labels: labelsOf(flags),
  };
  const client = await session.tenantClient(LIMITS.cli_call_timeout_ms);
  const asked = client.request("POST /api/volumes/:name/snapshot", { params, query: { execution: "sync" }, body });
  const taken = await session.terminal.progress(`taking a snapshot of ${visible(name)}`, asked);
  if (!("exclusive_bytes" in taken)) throw new Failure(EXIT.refused, "the daemon answered no snapshot");
  session.show(taken, () => `${taken.snapshot_id} is taken: ${bytes(taken.size_bytes ?? 0)}\n`);
}
