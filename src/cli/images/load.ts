/** `hearth load`: sends an archive of an image to the daemon. */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { LIMITS } from "../../base/limits.ts";
import { visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { metered } from "../session/meter.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { shortId } from "./images.ts";

export async function loadImage(session: Session, [word]: Words, flags: Flags): Promise<void> {
  const input = flags.input as string | undefined;
  if (word !== undefined && input !== undefined) throw usage("an archive is given twice", "give a file or --input");
  const file = word ?? input;
  const { pieces: archive, size } = await opened(file);
  const pieces = metered(session, "uploading", archive, { bytes: size }, { bytes: 0 });
  const { image, images } = await session.client(LIMITS.cli_call_timeout_ms).request("POST /api/oci/images/load", {
    query: { reference: flags.tag as string | undefined },
    upload: { content_type: "application/x-tar", pieces },
  });
  const line = (one: typeof image) =>
    `${visible(one.reference)} is loaded: ${shortId(one.id)}, ${bytes(one.size_bytes)}\n`;
  session.show(images.length === 1 ? image : images, () => images.map(line).join(""));
}

async function opened(file: string | undefined) {
  if (file === undefined || file === "-") {
    if (process.stdin.isTTY)
      throw usage("an archive is not read from a terminal", "give a file, or redirect standard input");
    return { pieces: process.stdin as AsyncIterable<Uint8Array>, size: null };
  }
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw usage(`cannot read ${file}: ${error.code === "ENOENT" ? "no such file" : error.message}`);
  });
  if (found.isDirectory()) throw usage(`cannot read ${file}: it is a directory`);
  return { pieces: createReadStream(file) as AsyncIterable<Uint8Array>, size: found.isFile() ? found.size : null };
}
