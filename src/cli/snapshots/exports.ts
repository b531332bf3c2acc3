/** Images made from snapshots and containers, and the files of a snapshot as an archive. */
import { LIMITS } from "../../base/limits.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { checkArchiveTarget, receiveArchive } from "../images/transfers.ts";
import { shellWord, visible } from "../output/text.ts";
import { usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { noteWarnings } from "./snapshots.ts";

const EXECUTION = { execution: "async" as const };

export async function exportSnapshot(session: Session, [name = "", reference]: Words, flags: Flags): Promise<void> {
  const file = flags.output as string | undefined;
  if (reference === undefined) return exportFiles(session, name, file);
  if (file !== undefined) {
    throw usage("a reference and --output exclude each other", "give a reference for an image, or --output for a tar");
  }
  const params = { snapshot_id: await session.snapshotId(name) };
  const client = await session.tenantClient();
  const request = { params, query: EXECUTION, body: { reference } };
  const operation_id = accepted(await client.request("POST /api/snapshots/:snapshot_id/export", request));
  await showImage(session, operation_id, reference, `making an image from ${name}`);
}

async function exportFiles(session: Session, name: string, file: string | undefined): Promise<void> {
  checkArchiveTarget(file);
  const params = { snapshot_id: await session.snapshotId(name) };
  const client = await session.tenantClient(LIMITS.cli_call_timeout_ms);
  const request = { params, body: { format: "tar" as const } };
  const { pieces } = await client.open("POST /api/snapshots/:snapshot_id/export", request);
  await receiveArchive(session, pieces, file);
}

export async function commit(session: Session, [name = "", reference = ""]: Words): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const client = await session.tenantClient();
  const request = { params, query: EXECUTION, body: { reference } };
  const operation_id = accepted(await client.request("POST /api/containers/:container_id/commit", request));
  await showImage(session, operation_id, reference, `making an image from ${name}`);
}

async function showImage(session: Session, operation_id: string, reference: string, doing: string): Promise<void> {
  const operation = await succeeded(session, operation_id, doing);
  noteWarnings(session, operation);
  session.show(operation, () => `${visible(String(operation.result?.reference ?? reference))} is made\n`);
  if (session.flags.json !== true)
    session.terminal.note(`to run it: hearth run --rm --oci --image ${shellWord(reference)}`);
}
