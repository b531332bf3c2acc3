/**
 * Files as a tar archive (ustar, with GNU's entries for long names), in pieces. The same code makes the same bytes: times,
 * owners and permission bits but the executable one are left out. Files of a build keep times and permission bits.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { EXIT, Failure } from "../session/failure.ts";
import { BLOCK_BYTES } from "../volumes/tar-bytes.ts";
import type { CodeEntry } from "./files.ts";

/** An entry of an archive. */
export interface PackedEntry extends CodeEntry {
  /** Permission bits; without them those that code has. */
  readonly mode?: number;
  readonly mtime_seconds?: number;
}

/** A folder, and what of it is packed. */
export interface Packed {
  readonly root: string;
  readonly entries: readonly PackedEntry[];
}

const NAME_BYTES = 100;
/** Bytes gathered before they are sent. */
const PIECE_BYTES = 256 * 1024;
const TYPES = { file: "0", folder: "5", link: "2" } as const;

interface Header {
  readonly name: Buffer;
  readonly type: string;
  readonly mode: number;
  readonly mtime_seconds?: number | undefined;
  readonly size: number;
  readonly target: Buffer;
}

function headerBlock({ name, type, mode, mtime_seconds = 0, size, target }: Header): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, at: number, length: number) =>
    block.write(value.toString(8).padStart(length - 1, "0"), at, "latin1");
  name.copy(block, 0, 0, NAME_BYTES);
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(mtime_seconds, 136, 12);
  block.fill(" ", 148, 156);
  block.write(type, 156, "latin1");
  target.copy(block, 157, 0, NAME_BYTES);
  // Magic of GNU tar, whose entries carry the long names.
  block.write("ustar  \0", 257, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

const padding = (size: number): Buffer => Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);

/** An entry that carries the long name (L) or target (K) of the next one. */
function longText(text: Buffer, type: "L" | "K"): Buffer[] {
  if (text.length <= NAME_BYTES) return [];
  const content = Buffer.concat([text, Buffer.alloc(1)]);
  const name = Buffer.from("././@LongLink");
  const head = headerBlock({ name, type, mode: 0o644, size: content.length, target: Buffer.alloc(0) });
  return [head, content, padding(content.length)];
}

function head({ path, type, isExecutable, size_bytes, target, ...kept }: PackedEntry): Buffer {
  const name = Buffer.from(type === "folder" ? `${path}/` : path);
  const to = Buffer.from(target);
  const usual = type === "folder" || isExecutable ? 0o755 : type === "link" ? 0o777 : 0o644;
  const { mode = usual, mtime_seconds } = kept;
  return Buffer.concat([
    ...longText(to, "K"),
    ...longText(name, "L"),
    headerBlock({ name, type: TYPES[type], mode, mtime_seconds, size: size_bytes, target: to }),
  ]);
}

function changed(path: string, cause?: unknown): Failure {
  return new Failure(EXIT.usage, `file changed while it was read: ${path}`, "try again", cause);
}

/** Opens a file: no link that has taken its place, and no pipe, which would wait for a writer. */
function opened(root: string, path: string): number {
  try {
    return openSync(join(root, path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ELOOP") throw changed(path, error);
    throw new Failure(EXIT.usage, `cannot read ${path}: ${message}`, null, error);
  }
}

/**
 * A file's bytes, exactly as many as its header says. Reads synchronously: dependencies are ten thousands of small files, and
 * a turn of the event loop for each takes ten times as long.
 */
export function* contentOf(root: string, path: string, size: number): Generator<Buffer> {
  if (size === 0) return;
  const file = opened(root, path);
  try {
    if (!fstatSync(file).isFile()) throw changed(path);
    for (let at = 0; at < size; ) {
      const piece = Buffer.allocUnsafe(Math.min(PIECE_BYTES, size - at));
      const count = readSync(file, piece, 0, piece.length, at);
      if (count === 0) throw changed(path);
      at += count;
      yield piece.subarray(0, count);
    }
  } finally {
    closeSync(file);
  }
}

function* parts({ root, entries }: Packed): Generator<Buffer> {
  for (const entry of entries) {
    yield head(entry);
    if (entry.type !== "file" || entry.size_bytes === 0) continue;
    yield* contentOf(root, entry.path, entry.size_bytes);
    yield padding(entry.size_bytes);
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

/** The archive. Throws Failure for a file that cannot be read, or that changes meanwhile. */
export async function* tarOf(packed: Packed): AsyncGenerator<Buffer> {
  let gathered: Buffer[] = [];
  let size = 0;
  for (const part of parts(packed)) {
    gathered.push(part);
    size += part.length;
    if (size < PIECE_BYTES) continue;
    yield Buffer.concat(gathered, size);
    gathered = [];
    size = 0;
  }
  if (size > 0) yield Buffer.concat(gathered, size);
}
