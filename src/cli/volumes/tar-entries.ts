/**
 * An archive as it passes, in the formats of GNU and pax: entries can be left out, and refused before tar unpacks them. Holds of it one
 * piece, and the long names of an entry until it is kept.
 */
import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { LIMITS } from "../../base/limits.ts";
import { EXIT, Failure } from "../session/failure.ts";
import { BLOCK_BYTES, numberOf } from "./tar-bytes.ts";

export interface PassingEntry {
  /** Its type flag. */
  readonly type: string;
  readonly name: string;
}

export interface PassingOptions {
  /** False: the entry is left out. What it throws ends the archive. */
  keeps(entry: PassingEntry): boolean;
  /** Of the archive, not of an entry. */
  onComment?(text: string): void;
}

/** Types that extend the next entry: long names of GNU, fields of pax. */
const EXTENSIONS = "LKx";
const GLOBAL = "g";
const PIECE_BYTES = 64 * 1024;

const cut = (bytes: Buffer): Buffer => {
  const end = bytes.indexOf(0);
  return end < 0 ? bytes : bytes.subarray(0, end);
};

/** A field among the records of a pax header, each `<length> <key>=<value>` and a newline; null: it is not there. */
function fieldOf(content: Buffer, key: string): string | null {
  for (let at = 0; at < content.length; ) {
    const length = Number.parseInt(content.toString("latin1", at, at + 20), 10);
    if (!(length > 0)) return null;
    const record = content.toString("utf8", at, at + length - 1);
    const begin = record.indexOf(" ") + 1;
    if (record.startsWith(`${key}=`, begin)) return record.slice(begin + key.length + 1);
    at += length;
  }
  return null;
}

function nameOf(header: Buffer, long: Buffer | null): string {
  if (long !== null) return cut(long).toString("utf8");
  const own = cut(header.subarray(0, 100)).toString("utf8");
  const isUstar = header.toString("latin1", 257, 263) === "ustar\0";
  const prefix = isUstar ? cut(header.subarray(345, 500)).toString("utf8") : "";
  return prefix === "" ? own : `${prefix}/${own}`;
}

/** Bytes of a source, in the amounts that are asked for. */
class Bytes {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At most so many, as they are there; empty at the end. */
  async some(bytes_max: number): Promise<Buffer> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return this.#rest;
      this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    const taken = this.#rest.subarray(0, bytes_max);
    this.#rest = this.#rest.subarray(taken.length);
    return taken;
  }

  /** So many; fewer only at the end. */
  async exactly(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = size; left > 0; ) {
      const part = await this.some(left);
      if (part.length === 0) break;
      parts.push(part);
      left -= part.length;
    }
    return Buffer.concat(parts);
  }

  async leave(): Promise<void> {
    await this.#source.return?.();
  }
}

export async function* passing(
  source: AsyncIterable<Uint8Array>,
  { keeps, onComment = () => {} }: PassingOptions,
): AsyncGenerator<Uint8Array> {
  const bytes = new Bytes(source);
  let held: Buffer[] = [];
  let long: Buffer | null = null;
  let size: number | null = null;
  try {
    for (;;) {
      const header = await bytes.exactly(BLOCK_BYTES);
      if (header.length === 0) return;
      const type = String.fromCharCode(header[156] ?? 0);
      const isExtension = EXTENSIONS.includes(type) || type === GLOBAL;
      const own = numberOf(header.subarray(124, 136));
      const padded = Math.ceil((isExtension ? own : (size ?? own)) / BLOCK_BYTES) * BLOCK_BYTES;
      if (isExtension) {
        if (padded > LIMITS.archive_extension_bytes_max)
          throw new Failure(EXIT.refused, "a name in the archive is too long");
        const content = await bytes.exactly(padded);
        if (type === "L") long = content;
        if (type === "x") {
          const path = fieldOf(content, "path");
          if (path !== null) long = Buffer.from(path);
          size = Number(fieldOf(content, "size") ?? Number.NaN) || null;
        }
        if (type === GLOBAL) onComment(fieldOf(content, "comment") ?? "");
        held.push(header, content);
        continue;
      }
      // Zeros end an archive.
      const isKept = header.every((byte) => byte === 0) || keeps({ type, name: nameOf(header, long) });
      if (isKept) yield Buffer.concat([...held, header]);
      held = [];
      long = size = null;
      for (let left = padded; left > 0; ) {
        const piece = await bytes.some(left);
        if (piece.length === 0) return;
        left -= piece.length;
        if (isKept) yield piece;
      }
    }
  } finally {
    await bytes.leave();
  }
}

/** An archive that begins as gzip does, unpacked; another one as it is. Throws Failure where it is corrupt. */
export async function* unzipped(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const bytes = new Bytes(source);
  try {
    const head = await bytes.exactly(2);
    const whole = async function* () {
      yield head;
      for (let piece = await bytes.some(PIECE_BYTES); piece.length > 0; piece = await bytes.some(PIECE_BYTES))
        yield piece;
    };
    if (head[0] !== 0x1f || head[1] !== 0x8b) yield* whole();
    else yield* pipeline(Readable.from(whole()), createGunzip(), () => {});
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (!code.startsWith("Z_")) throw error;
    throw new Failure(EXIT.refused, "the archive is truncated, or corrupt gzip data", null, error);
  } finally {
    await bytes.leave();
  }
}
