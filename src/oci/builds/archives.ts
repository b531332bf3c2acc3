/**
 * Archives that ADD unpacks: tar, and tar in gzip, bzip2, xz or zstd. As with BuildKit, what a file holds decides and not its name, and a
 * compressed file that is no tar is a file as any other.
 */
import { pipeline, Readable, type Transform } from "node:stream";
import { constants, createGunzip, createZstdDecompress } from "node:zlib";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { FileSession } from "../../engine/ports.ts";
import { isTarHeader, TAR_BLOCK_BYTES } from "../layers/layer-tar.ts";
import { ZstdFrames } from "../layers/zstd-frames.ts";
import { asPath } from "./source-files.ts";

interface Compression {
  readonly name: string;
  /** The first bytes, in hexadecimal. */
  readonly sign: RegExp;
  /** Null: Node has none. `isCut`: the data may end anywhere. */
  readonly decompressor: ((isCut: boolean) => Transform) | null;
}

/** What a layer of an image may ask for: the decoder takes that much memory. */
const PARAMS = { [constants.ZSTD_d_windowLogMax]: LIMITS.layer_zstd_window_log_max };
/** In an error of `ZstdFrames`. */
const WINDOW = /needs a window/;
const COMPRESSIONS: readonly Compression[] = [
  {
    name: "gzip",
    sign: /^1f8b/,
    decompressor: (isCut) => createGunzip(isCut ? { finishFlush: constants.Z_SYNC_FLUSH } : {}),
  },
  {
    name: "zstd",
    // A frame, or one to skip, with which programs begin that compress side by side.
    sign: /^(28b52ffd|5[0-9a-f]2a4d18)/,
    decompressor: (isCut) =>
      createZstdDecompress({ params: PARAMS, ...(isCut ? { finishFlush: constants.ZSTD_e_flush } : {}) }),
  },
  { name: "bzip2", sign: /^425a68/, decompressor: null },
  { name: "xz", sign: /^fd377a585a00/, decompressor: null },
];
const SIGN_BYTES = 6;
/** A block of zstd has up to 128 KiB, and nothing of it is known before its end. */
const HEAD_BYTES = 256 * 1024;

/** Compressions that Node does not read. */
export type ForeignCompression = "bzip2" | "xz";

/** The plain bytes of an archive, until `close`. */
export interface Decompressed {
  readonly stream: AsyncIterable<Uint8Array>;
  readonly close: () => Promise<void>;
}

/** Decompresses what Node cannot: null, there is no tar in the file. */
export type Decompress = (from: FileSession, path: string, name: ForeignCompression) => Promise<Decompressed | null>;

/** The plain bytes of an archive, which the caller reads; null: the file is none. Throws INVALID_ARGUMENT. */
export async function archiveIn(
  from: FileSession,
  path: string,
  decompress: Decompress,
): Promise<AsyncIterable<Uint8Array> | null> {
  const { stream } = await from.read(asPath(path), { end: HEAD_BYTES });
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  const head = Buffer.concat(parts);
  const found = COMPRESSIONS.find(({ sign }) => sign.test(head.toString("hex", 0, SIGN_BYTES)));
  if (found?.name === "bzip2" || found?.name === "xz") {
    const opened = await decompress(from, path, found.name);
    return opened === null ? null : closed(opened);
  }
  const decompressor = found?.decompressor ?? null;
  const isZstd = found?.name === "zstd";
  const first = isZstd ? frames([head]) : Readable.from([head]);
  const block = decompressor === null ? head : await firstBlock(first, decompressor(true));
  if (!isTarHeader(block)) return null;
  const whole = (await from.read(asPath(path))).stream;
  if (decompressor === null) return whole;
  return decompressed(isZstd ? frames(whole) : whole, decompressor(false), found?.name ?? "");
}

async function* closed({ stream, close }: Decompressed): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* stream;
  } finally {
    await close();
  }
}

/** The decompressor ends with a frame unless the next one comes in a write of its own. Throws INVALID_ARGUMENT. */
async function* frames(source: Iterable<Uint8Array> | AsyncIterable<Uint8Array>) {
  const reader = new ZstdFrames();
  try {
    for await (const bytes of source) yield* reader.pieces(bytes);
  } catch (cause) {
    if (!(cause instanceof AppError) || cause.code !== "IMAGE_INVALID") throw cause;
    const hint = "copy the file with COPY and unpack it with RUN";
    throw new AppError("INVALID_ARGUMENT", `ADD does not read the file: ${cause.message}`, { hint, cause });
  }
}

/** The first bytes behind a compression, at most those of a block of tar. Fewer if the data are corrupt or end. Throws for a window too large. */
async function firstBlock(head: AsyncIterable<Uint8Array>, decompressor: Transform): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of pipeline(Readable.from(head), decompressor, () => {})) {
      parts.push(part);
      bytes += part.length;
      if (bytes >= TAR_BLOCK_BYTES) break;
    }
  } catch (cause) {
    // Of corrupt data, what was read before tells.
    if (cause instanceof AppError && WINDOW.test(cause.message)) throw cause;
  }
  return Buffer.concat(parts);
}

async function* decompressed(
  source: AsyncIterable<Uint8Array>,
  decompressor: Transform,
  name: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* pipeline(Readable.from(source), decompressor, () => {});
  } catch (cause) {
    if (cause instanceof AppError) throw cause;
    throw new AppError("INVALID_ARGUMENT", `corrupt or truncated ${name} data: ${errorText(cause)}`, { cause });
  }
}
