/**
 * Archives that ADD unpacks: tar, and tar in gzip or zstd. As with BuildKit, what a file holds decides and not its name, and a
 * compressed file that is no tar is a file as any other.
 */
import { pipeline, Readable, type Transform } from "node:stream";
import { constants, createGunzip, createZstdDecompress } from "node:zlib";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { FileSession } from "../../engine/ports.ts";
import { isTarHeader, TAR_BLOCK_BYTES } from "../layers/layer-tar.ts";
import { asPath } from "./source-files.ts";

interface Compression {
  readonly name: string;
  readonly sign: Buffer;
  /** Null: this node cannot look into it. `isCut`: the data may end anywhere. */
  readonly decompressor: ((isCut: boolean) => Transform) | null;
}

/** What a layer of an image may ask for: the decoder takes that much memory. */
const WINDOW = { [constants.ZSTD_d_windowLogMax]: LIMITS.layer_zstd_window_log_max };
const COMPRESSIONS: readonly Compression[] = [
  {
    name: "gzip",
    sign: Buffer.from("1f8b", "hex"),
    decompressor: (isCut) => createGunzip(isCut ? { finishFlush: constants.Z_SYNC_FLUSH } : {}),
  },
  {
    name: "zstd",
    sign: Buffer.from("28b52ffd", "hex"),
    decompressor: (isCut) =>
      createZstdDecompress({ params: WINDOW, ...(isCut ? { finishFlush: constants.ZSTD_e_flush } : {}) }),
  },
  { name: "bzip2", sign: Buffer.from("BZh"), decompressor: null },
  { name: "xz", sign: Buffer.from("fd377a585a00", "hex"), decompressor: null },
];
/** A block of zstd has up to 128 KiB, and nothing of it is known before its end. */
const HEAD_BYTES = 256 * 1024;

/** The plain bytes of an archive; null: the file is none. Throws INVALID_ARGUMENT for a compression that this node does not read. */
export async function archiveIn(from: FileSession, path: string): Promise<AsyncIterable<Uint8Array> | null> {
  const { stream } = await from.read(asPath(path), { end: HEAD_BYTES });
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  const head = Buffer.concat(parts);
  const found = COMPRESSIONS.find(({ sign }) => head.subarray(0, sign.length).equals(sign));
  if (found !== undefined && found.decompressor === null) {
    throw new AppError("INVALID_ARGUMENT", `ADD does not read ${found.name} files`, {
      hint: "copy the file with COPY and unpack it with RUN",
    });
  }
  const decompressor = found?.decompressor ?? null;
  const block = decompressor === null ? head : await firstBlock(head, decompressor(true));
  if (!isTarHeader(block)) return null;
  const whole = (await from.read(asPath(path))).stream;
  return decompressor === null ? whole : decompressed(whole, decompressor(false), found?.name ?? "");
}

/** The first bytes behind a compression, at most those of a block of tar. Fewer if the data are corrupt or end. */
async function firstBlock(head: Buffer, decompressor: Transform): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of pipeline(Readable.from([head]), decompressor, () => {})) {
      parts.push(part);
      bytes += part.length;
      if (bytes >= TAR_BLOCK_BYTES) break;
    }
  } catch {
    // What was read before tells.
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
