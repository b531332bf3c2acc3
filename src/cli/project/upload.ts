/** Sends code to the daemon: packed as it is sent, so that no archive is held in memory or on the disk. */
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { ResponseOf } from "../../client/client.ts";
import { visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { metered } from "../session/meter.ts";
import { isRefusal, type Session } from "../session/session.ts";
import { digestOf } from "./code-digest.ts";
import { type Code, checkSize } from "./files.ts";
import { tarOf } from "./tar-writer.ts";

export type UploadedCode = ResponseOf<"POST /api/functions/code">;

/** Fast rather than small: the daemon is near, and it unpacks at once. */
export async function* gzipped(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  const gzip = createGzip({ level: 1 });
  const packing = pipeline(Readable.from(pieces, { objectMode: false }), gzip);
  packing.catch(() => {});
  for await (const piece of gzip) yield piece as Buffer;
  await packing;
}

/** Sends an archive of code, with a bar where `total` is known. Rejects as Client does. */
export async function sendArchive(
  session: Session,
  archive: AsyncIterable<Uint8Array>,
  total_bytes: number | null,
): Promise<UploadedCode> {
  const pieces = metered(session, "uploading", archive, { bytes: total_bytes }, { bytes: 0 });
  const upload = { content_type: "application/gzip", pieces: gzipped(pieces) };
  return session.client(LIMITS.cli_call_timeout_ms).request("POST /api/functions/code", { upload });
}

/**
 * Makes the daemon have a folder's code: sends it unless the tenant has uploaded the same before. Throws a usage failure for
 * code that is too large, before it sends anything.
 */
export async function uploadCode(session: Session, code: Code): Promise<UploadedCode> {
  checkSize(code);
  noteOddities(session, code);
  const params = { code_sha256: await digestOf(code) };
  try {
    return await session.client().request("POST /api/functions/code/:code_sha256/renew", { params });
  } catch (error) {
    if (!isRefusal(error, "NOT_FOUND")) throw error;
  }
  return sendArchive(session, tarOf(code), code.size_bytes);
}

function noteOddities({ terminal }: Session, { size_bytes, skipped, environments, root }: Code): void {
  if (size_bytes > LIMITS.cli_code_bytes_note) {
    terminal.note(`${visible(root)} has ${bytes(size_bytes)}; .hearthignore leaves files out`);
  }
  const [environment] = environments;
  if (environment !== undefined) {
    terminal.note(`left out, because it is a virtual environment: ${visible(environment)}`);
  }
  const [first] = skipped;
  if (first !== undefined) {
    const others = skipped.length === 1 ? "" : ` and ${counted(skipped.length - 1, "more")}`;
    terminal.note(`left out, because it is no file, folder or link: ${visible(first)}${others}`);
  }
}
