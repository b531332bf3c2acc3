/**
 * A worker thread that puts the tar of a stored layer together again and compresses it. The task is a named export; piscina calls it
 * by name.
 *
 * Y1. Contents come from a file helper that is jailed in the layer's directory: a link of the layer leads where it led when buildah
 *     unpacked the layer, in a chroot of that directory too, and never to a file of this machine or of another layer.
 * Y2. The tar is the one that came: its digest is the layer's diff_id, or there is no file.
 */
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { Readable } from "node:stream";
import { createGzip } from "node:zlib";
import { systemClock } from "../../base/clock.ts";
import { AppError, type ErrorCode, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { HelperSession } from "../files/file-sessions.ts";
import { LauncherClient } from "../launcher/launcher.ts";
import type { FileContent } from "../ports/files.ts";
import { type SplitPart, splitParts } from "./layer-split.ts";

export interface LayerExportTask {
  readonly launcher_socket: string;
  /** The compiled helper. */
  readonly minit: string;
  /** Of the layer's files. */
  readonly directory: string;
  /** The store's record of the tar. */
  readonly split: string;
  /** `sha256:` and 64 hex digits. */
  readonly diff_id: string;
  /** Made here, with a socket of its name beside it for a moment. */
  readonly target: string;
}

export interface WrittenLayer {
  readonly digest: string;
  readonly size_bytes: number;
}

export type LayerExportAnswer =
  | WrittenLayer
  | { readonly failure: { readonly code: ErrorCode; readonly message: string } };

/** A higher level takes twice the time for a twentieth of the bytes. */
const GZIP_LEVEL = 3;
const PIECE_BYTES = 256 * 1024;

/** Writes a layer. An AppError would lose its class on the way out of a thread. */
export async function writeLayer(task: LayerExportTask): Promise<LayerExportAnswer> {
  const { launcher_socket, minit, directory: root, target } = task;
  const launcher = new LauncherClient(launcher_socket, systemClock);
  try {
    const socket_path = `${target}.sock`;
    const session = await HelperSession.open({ launcher, minit, root, socket_path, clock: systemClock });
    try {
      return await write(session, task);
    } finally {
      session.close();
    }
  } catch (error) {
    const isFull = /^(ENOSPC|EDQUOT)$/.test((error as NodeJS.ErrnoException).code ?? "");
    const code = isFull ? "CAPACITY_FULL" : error instanceof AppError ? error.code : "INTERNAL";
    return { failure: { code, message: errorText(error) } };
  } finally {
    launcher.close();
  }
}

async function write(session: HelperSession, { split, diff_id, target }: LayerExportTask): Promise<WrittenLayer> {
  const tar_hash = createHash("sha256");
  const hash = createHash("sha256");
  let size_bytes = 0;
  async function* hashed() {
    for await (const piece of gathered(tarOf(session, split))) {
      tar_hash.update(piece);
      yield piece;
    }
  }
  const file = await open(target, "wx", 0o600);
  try {
    const gzip = createGzip({ level: GZIP_LEVEL, chunkSize: PIECE_BYTES });
    for await (const piece of Readable.from(hashed()).compose(gzip) as AsyncIterable<Buffer>) {
      hash.update(piece);
      size_bytes += piece.length;
      await file.writeFile(piece);
    }
  } finally {
    await file.close();
  }
  if (`sha256:${tar_hash.digest("hex")}` !== diff_id) throw differs("its digest is another one");
  return { digest: `sha256:${hash.digest("hex")}`, size_bytes };
}

function differs(why: string): AppError {
  return new AppError("IMAGE_INVALID", `the store does not have it as it came: ${why}`);
}

type Begun = { readonly bytes: Buffer } | { readonly name: Buffer; readonly content: Promise<Content> };
type Content = { readonly found: FileContent } | { readonly error: unknown };

/** Yields the tar. The next contents are asked for before the one before them has come. */
async function* tarOf(session: HelperSession, split: string): AsyncGenerator<Buffer, void, undefined> {
  const begun: Begun[] = [];
  let begun_bytes = 0;
  for await (const part of splitParts(split)) {
    begun.push(begin(session, part));
    begun_bytes += "bytes" in part ? part.bytes.length : 0;
    while (begun.length > LIMITS.layer_export_reads_max || begun_bytes > PIECE_BYTES) {
      const first = begun.shift();
      if (first === undefined) break;
      begun_bytes -= "bytes" in first ? first.bytes.length : 0;
      yield* bytesOf(first);
    }
  }
  for (const left of begun) yield* bytesOf(left);
}

function begin(session: HelperSession, part: SplitPart): Begun {
  if ("bytes" in part) return part;
  const content = read(session, part).then(
    (found) => ({ found }),
    (error: unknown) => ({ error }),
  );
  return { name: part.name, content };
}

async function read(session: HelperSession, { name, size }: { readonly name: Buffer; readonly size: number }) {
  const found = await session.read(name, { end: size });
  if (found.type === "file" && found.size === size) return found;
  throw differs(`${shown(name)} has ${found.size} bytes, not ${size}`);
}

async function* bytesOf(begun: Begun): AsyncGenerator<Buffer, void, undefined> {
  if ("bytes" in begun) {
    yield begun.bytes;
    return;
  }
  const content = await begun.content;
  if ("error" in content) {
    const { error } = content;
    // What is replaced or hidden by a later entry of the layer is no file, or another one.
    const isGone = error instanceof AppError && ["NOT_FOUND", "INVALID_ARGUMENT"].includes(error.code);
    throw isGone ? differs(`${shown(begun.name)} is no file of it any more`) : error;
  }
  for await (const piece of content.found.stream) yield Buffer.from(piece.buffer, piece.byteOffset, piece.length);
}

const shown = (name: Buffer): string => name.toString().slice(0, 256);

/** Small pieces as fewer large ones: each costs a step of the compressor. */
async function* gathered(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  let waiting: Buffer[] = [];
  let waiting_bytes = 0;
  for await (const piece of pieces) {
    waiting.push(piece);
    waiting_bytes += piece.length;
    if (waiting_bytes < PIECE_BYTES) continue;
    yield Buffer.concat(waiting);
    waiting = [];
    waiting_bytes = 0;
  }
  if (waiting_bytes > 0) yield Buffer.concat(waiting);
}
