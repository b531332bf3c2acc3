/** Images that leave the daemon: to a registry, or as an archive to this machine. */
import { createWriteStream } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { LIMITS } from "../../base/limits.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { metered } from "../session/meter.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { watched } from "./images.ts";
import { credentialsOf, LOGIN_ADVICE } from "./registries.ts";

export async function pushImage(session: Session, [reference = "", target]: Words, flags: Flags): Promise<void> {
  session.advice = LOGIN_ADVICE;
  const body = { reference, target, ...(await credentialsOf(session, flags)) };
  const query = { execution: "async" as const };
  const operation_id = accepted(await session.client().request("POST /api/oci/images/push", { query, body }));
  await watched(session, operation_id, `pushing ${visible(target ?? reference)}`);
  const { result } = await succeeded(session, operation_id, `pushing ${target ?? reference}`);
  session.show({ success: true, ...result, error_message: null }, () => {
    return `${visible(String(result?.target))} is pushed: ${visible(String(result?.manifest_digest))}\n`;
  });
}

export async function saveImage(session: Session, [reference = "", ...others]: Words, flags: Flags): Promise<void> {
  if (others.length > 0)
    throw usage("an archive has one image", "save each image to a file of its own; hearth load takes them one by one");
  const file = flags.output as string | undefined;
  checkArchiveTarget(file);
  const { pieces } = await session
    .client(LIMITS.cli_call_timeout_ms)
    .open("GET /api/oci/images/save", { query: { reference } });
  await receiveArchive(session, pieces, file);
}

/** Throws a usage failure if an archive would be written to a terminal. */
export function checkArchiveTarget(file: string | undefined): void {
  if (file !== undefined || !process.stdout.isTTY) return;
  throw usage("an archive is not written to a terminal", "give --output <file>, or redirect standard output");
}

/** Writes an archive to a file, or to standard output, and shows the progress. */
export async function receiveArchive(
  session: Session,
  pieces: AsyncIterable<Uint8Array>,
  file: string | undefined,
): Promise<void> {
  const passed = { bytes: 0 };
  const archive = metered(session, "receiving", pieces, { bytes: null }, passed);
  if (file === undefined) {
    for await (const piece of archive) await session.terminal.pass("out", piece);
    return;
  }
  await written(archive, file);
  session.show({ file, bytes_count: passed.bytes }, () => `${bytes(passed.bytes)} saved to ${visible(file)}\n`);
}

/** A part of an archive is of no use: it is removed. */
async function written(archive: AsyncIterable<Uint8Array>, file: string): Promise<void> {
  const output = createWriteStream(file);
  try {
    await pipeline(archive, output);
  } catch (error) {
    const { code, message, syscall } = error as NodeJS.ErrnoException;
    if (syscall === "open") throw usage(`cannot write ${file}: ${code === "ENOENT" ? "no such directory" : message}`);
    if ((await stat(file).catch(() => null))?.isFile() === true) await rm(file, { force: true });
    throw error;
  }
}
