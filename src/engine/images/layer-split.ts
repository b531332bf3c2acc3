/**
 * The record that containers/storage keeps of a layer's tar as it came: `<id>.tar-split.gz`, lines of JSON in the format of
 * github.com/vbatts/tar-split (tar/storage/entry.go). Headers and padding are in it, contents of files are named by their entries.
 */
import { open } from "node:fs/promises";
import { createGunzip } from "node:zlib";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

/** Bytes of the tar, or a file of the layer whose content comes next. */
export type SplitPart =
  | { readonly bytes: Buffer }
  | {
      /** As the tar has it, as bytes. */
      readonly name: Buffer;
      readonly size: number;
    };

interface Line {
  readonly type?: number;
  readonly name?: string;
  /** Base64, of a name that is not UTF-8. */
  readonly name_raw?: string;
  readonly size?: number;
  /** Base64. Of a file its CRC: whoever puts the tar together compares digests. */
  readonly payload?: string | null;
}

const FILE = 1;
const SEGMENT = 2;
const NEWLINE = 0x0a;

/** Yields the parts of a layer's tar in their order. Throws IMAGE_INVALID for another format, or if there is no record. */
export async function* splitParts(file: string): AsyncGenerator<SplitPart, void, undefined> {
  const opened = await open(file, "r").catch((cause: NodeJS.ErrnoException) => {
    throw cause.code === "ENOENT"
      ? new AppError("IMAGE_INVALID", "the store has no record of its tar", { cause })
      : cause;
  });
  const unzipped = opened.createReadStream().compose(createGunzip());
  let waiting: Buffer[] = [];
  let waiting_bytes = 0;
  for await (const piece of unzipped as AsyncIterable<Buffer>) {
    let begin = 0;
    for (let end = piece.indexOf(NEWLINE); end >= 0; end = piece.indexOf(NEWLINE, begin)) {
      const part = partOf(Buffer.concat([...waiting, piece.subarray(begin, end)]));
      waiting = [];
      waiting_bytes = 0;
      begin = end + 1;
      if (part !== null) yield part;
    }
    const rest = piece.subarray(begin);
    waiting_bytes += rest.length;
    if (waiting_bytes > LIMITS.layer_split_line_bytes_max) throw unknown();
    waiting.push(rest);
  }
  if (waiting_bytes > 0) throw unknown();
}

/** Null: an empty file, whose header is a segment. */
function partOf(bytes: Buffer): SplitPart | null {
  const { type, name = "", name_raw, size = 0, payload } = JSON.parse(bytes.toString()) as Line;
  if (type === SEGMENT) return { bytes: Buffer.from(payload ?? "", "base64") };
  if (type !== FILE || !Number.isSafeInteger(size) || size < 0) throw unknown();
  if (size === 0) return null;
  return { name: name_raw === undefined ? Buffer.from(name) : Buffer.from(name_raw, "base64"), size };
}

function unknown(): AppError {
  return new AppError("IMAGE_INVALID", "the store's record of its tar is in an unknown format");
}
