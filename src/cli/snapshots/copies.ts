/** The verbs of copies: containers made from snapshots and from other containers, and containers that get files back. */
import type { ResponseOf } from "../../client/client.ts";
import { sentence } from "../containers/containers.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { shellWord, visible } from "../output/text.ts";
import { EXIT, usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { type CopyItem, labelsOf, modesOf, noteWarnings } from "./snapshots.ts";

type Operation = ResponseOf<"GET /api/operations/:operation_id">;

const EXECUTION = { execution: "async" as const };

function copyFields(flags: Flags) {
  return {
    name: flags.name as string | undefined,
    labels: labelsOf(flags),
    ttl_seconds: flags.ttl as number | undefined,
    count: flags.count as number | undefined,
    resume_policy: flags.start === true ? ("immediate" as const) : undefined,
  };
}

function adviceOf(session: Session, flags: Flags): void {
  if (flags.name === undefined) return;
  if (flags.count !== undefined) {
    session.advice = { NAME_TAKEN: "give another --name" };
    return;
  }
  session.advice = { NAME_TAKEN: `give another --name, or remove it: hearth rm -f ${shellWord(flags.name as string)}` };
}

export async function clone(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  adviceOf(session, flags);
  const params = { snapshot_id: await session.snapshotId(name) };
  const client = await session.tenantClient();
  const request = { params, query: EXECUTION, body: copyFields(flags) };
  const operation_id = accepted(await client.request("POST /api/snapshots/:snapshot_id/clone", request));
  await showCopies(session, await succeeded(session, operation_id, `cloning ${name}`));
}

export async function fork(session: Session, [name = "", ...command]: Words, flags: Flags): Promise<void> {
  adviceOf(session, flags);
  if (command.length > 0) {
    const { runInForks } = await import("./trial.ts");
    return runInForks(session, name, command as string[], flags);
  }
  if (flags.keep === true || flags.timeout !== undefined) {
    throw usage("--keep and --timeout are for a command", `to run one: hearth fork ${shellWord(name)} -- ls`);
  }
  const params = { container_id: await session.containerId(name) };
  const client = await session.tenantClient();
  const body = { ...copyFields(flags), ...modesOf(flags) };
  const request = { params, query: EXECUTION, body };
  const operation_id = accepted(await client.request("POST /api/containers/:container_id/fork", request));
  await showCopies(session, await succeeded(session, operation_id, `forking ${name}`));
}

/** A line for each new container. A copy that failed is an error, and the exit code is then 1. */
async function showCopies(session: Session, operation: Operation): Promise<void> {
  noteWarnings(session, operation);
  const { result, items, result_container_id } = operation;
  if (items !== null && items.length > 1) {
    const copies = items as unknown as readonly CopyItem[];
    session.show(operation, () => copies.map(itemLine).join(""));
    const failed = copies.filter(({ status }) => status === "failed");
    if (failed.length > 0) process.exitCode = EXIT.refused;
    if (session.flags.json === true) return;
    for (const { name, error, error_code } of failed) {
      session.terminal.err(`hearth: ${visible(`${name}: ${error} [${error_code}]`)}\n`);
    }
    return;
  }
  const container_id = result_container_id ?? (result?.container_id as string | undefined);
  if (container_id === undefined)
    return session.show(operation, () => `volume ${visible(String(result?.volume))} is made\n`);
  if (session.flags.json === true) return session.show(operation, () => "");
  const params = { container_id };
  const record = await session.client().request("GET /api/containers/:container_id", { params });
  session.show(operation, () => sentence(session, record));
}

const itemLine = ({ name, status, container_id }: CopyItem): string =>
  status === "failed" ? "" : `${visible(name)} is made (${container_id})\n`;

export async function restore(session: Session, [name = "", snapshot = ""]: Words): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const body = { snapshot_id: await session.snapshotId(snapshot) };
  const client = await session.tenantClient();
  const asked = { params, query: EXECUTION, body };
  const operation_id = accepted(await client.request("POST /api/containers/:container_id/restore", asked));
  const operation = await succeeded(session, operation_id, `restoring ${name}`);
  noteWarnings(session, operation);
  session.show(operation, () => `${visible(name)} has the files of ${visible(snapshot)}\n`);
}
