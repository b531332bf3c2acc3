/**
 * The tar format as a stream, both ways: ustar, PAX and GNU long names are read, GNU is written. Names are byte strings
 * here (one character a byte): what is no UTF-8 passes unharmed. Leaves to `archive.ts` what entries mean.
 *
 * Not the package tar-stream: that takes an archive that is cut between entries for a whole one, turns names that are no
 * UTF-8 into others, and holds headers of up to four megabytes.
 *
 * It holds one block, one piece and one bounded extension of untrusted bytes at a time, whatever sizes they claim.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ArchiveBounds, ArchiveEntry } from "../ports/archives.ts";

export type TarType = ArchiveEntry["type"];

export interface TarEntry extends ArchiveEntry {
  readonly uid: number;
  readonly gid: number;
  readonly mtime_ms: number;
}

const BLOCK_BYTES = 512;
const EMPTY = Buffer.alloc(0);
const ZEROS = Buffer.alloc(BLOCK_BYTES);
const TYPES: Readonly<Record<string, TarType>> = {
  "\0": "file",
  "0": "file",
  "1": "link",
  "2": "symlink",
  "5": "directory",
  "7": "file",
};
const REFUSED: Readonly<Record<string, string>> = {
  "3": "a device",
  "4": "a device",
  "6": "a pipe",
  S: "a sparse file",
  M: "a part of a multi-volume archive",
};
/** Beyond these a file system cuts times anyway. */
const MTIME_MS_MIN = -(2 ** 31) * 1000;
const MTIME_MS_MAX = 2 ** 34 * 1000;

function refusal(message: string): AppError {
  return new AppError("INVALID_ARGUMENT", message);
}

/** Compressions that archives often have and this reader has not, by their first bytes in hexadecimal. */
const OTHERS: readonly (readonly [program: string, sign: RegExp])[] = [
  ["zstd", /^(28b52ffd|5[0-9a-f]2a4d18)/],
  ["xz", /^fd377a585a00/],
  ["bzip2", /^425a68/],
];

function notTar(block: Buffer): AppError {
  const [program] = OTHERS.find(([, sign]) => sign.test(block.toString("hex", 0, 6))) ?? [];
  if (program === undefined) return refusal("invalid archive: not tar or tar.gz, or corrupt");
  return new AppError("INVALID_ARGUMENT", `archive compressed with ${program} (expected tar or tar.gz)`, {
    hint: `send what ${program} -dc writes of it`,
  });
}

/** A name as people see it. */
export function nameText(name: string): string {
  return Buffer.from(name, "latin1").toString("utf8").slice(0, 256);
}

function textField(block: Buffer, at: number, length: number): string {
  const text = block.toString("latin1", at, at + length);
  const end = text.indexOf("\0");
  return end < 0 ? text : text.slice(0, end);
}

/** Octal digits, or with the highest bit set a large number in base 256. */
function numberField(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if (first & 0x80) {
    let value = first === 0xff ? -1 : first & 0x7f;
    for (let i = at + 1; i < at + length; i++) value = value * 256 + (block[i] ?? 0);
    if (Number.isSafeInteger(value)) return value;
  } else {
    const text = textField(block, at, length).trim();
    if (text === "") return 0;
    if (/^[0-7]+$/.test(text)) return Number.parseInt(text, 8);
  }
  throw refusal("invalid numeric field in tar header");
}

/** The sum of a header, with its own field as spaces: of unsigned bytes, or of signed ones as some once wrote it. */
function isSumRight(block: Buffer): boolean {
  let unsigned = 8 * 32;
  let signed = unsigned;
  for (let i = 0; i < BLOCK_BYTES; i++) {
    if (i >= 148 && i < 156) continue;
    const byte = block[i] ?? 0;
    unsigned += byte;
    signed += byte < 128 ? byte : byte - 256;
  }
  const text = textField(block, 148, 8).trim();
  const sum = /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number.NaN;
  return sum === unsigned || sum === signed;
}

/** Fields of PAX and GNU extensions, for the next entry or for all. */
interface Extension {
  path?: string;
  linkpath?: string;
  size?: number;
  uid?: number;
  gid?: number;
  mtime_ms?: number;
}

/** Parses a number of an extended header. Only times have a fraction. */
function paxNumber(key: string, value: string): number {
  if ((key === "mtime" ? /^-?\d{1,15}(\.\d*)?$/ : /^-?\d{1,15}$/).test(value)) return Number(value);
  throw refusal(`invalid number in extended tar header: ${key}=${value.slice(0, 64)}`);
}

function readPax(bytes: Buffer, found: Extension): void {
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(0x20, at);
    const digits = space < 0 ? "" : bytes.toString("latin1", at, space);
    const end = at + Number(digits);
    const equals = bytes.indexOf(0x3d, space);
    const isRecord = /^\d{1,7}$/.test(digits) && end <= bytes.length && bytes[end - 1] === 0x0a;
    if (!isRecord || equals < 0 || equals >= end) throw refusal("corrupt extended tar header");
    const key = bytes.toString("latin1", space + 1, equals);
    const value = bytes.toString("latin1", equals + 1, end - 1);
    at = end;
    if (key === "path") found.path = value;
    else if (key === "linkpath") found.linkpath = value;
    else if (key === "mtime") found.mtime_ms = paxNumber(key, value) * 1000;
    else if (key === "size" || key === "uid" || key === "gid") found[key] = paxNumber(key, value);
    else if (key.startsWith("GNU.sparse")) throw refusal("sparse files in archives are not supported");
  }
}

export class TarReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #chunk: Buffer = EMPTY;
  #at = 0;
  #content_left = 0;
  #padding = 0;
  /** Bound on all bytes, headers included: they can be as large a bomb as content. */
  readonly #bytes_max: number;
  #bytes_left: number;
  #headers_left: number;
  readonly #global: Extension = {};

  constructor(
    source: AsyncIterator<Uint8Array>,
    bounds: ArchiveBounds = { bytes_max: LIMITS.archive_bytes_max, entries_max: LIMITS.archive_entries_max },
  ) {
    this.#source = source;
    this.#bytes_max = bounds.bytes_max;
    this.#bytes_left = bounds.bytes_max;
    this.#headers_left = 2 * bounds.entries_max;
  }

  /** Returns the next entry, null at the end. Skips the rest of the last one's content. */
  async next(): Promise<TarEntry | null> {
    let extension: Extension = { ...this.#global };
    for (;;) {
      for (let piece = this.#piece(); piece !== null; piece = this.#piece()) await piece;
      await this.#skip(this.#padding);
      this.#padding = 0;
      const block = await this.#exactly(BLOCK_BYTES);
      if (block.equals(ZEROS)) return null;
      if (this.#headers_left-- === 0) throw refusal("too many headers for one archive entry");
      if (!isSumRight(block)) throw notTar(block);
      const type = String.fromCharCode(block[156] ?? 0);
      if (!"xgKLXV".includes(type)) return this.#entry(block, type, extension);
      const size = numberField(block, 124, 12);
      if (size < 0 || size > LIMITS.archive_extension_bytes_max) {
        throw refusal(`extended tar header too large: ${size} bytes`);
      }
      const bytes = await this.#exactly(size);
      await this.#skip(-size & (BLOCK_BYTES - 1));
      if (type === "g") {
        readPax(bytes, this.#global);
        extension = { ...this.#global, ...extension };
      } else if (type === "L") extension.path = textField(bytes, 0, size);
      else if (type === "K") extension.linkpath = textField(bytes, 0, size);
      else if (type !== "V") readPax(bytes, extension);
    }
  }

  /** The next piece of the entry's content, null at its end. */
  async piece(): Promise<Buffer | null> {
    return (await this.#piece()) ?? null;
  }

  /** All of the entry's content: only for what is known to be small. */
  async content(): Promise<Buffer> {
    const bytes = await this.#exactly(this.#content_left);
    this.#content_left = 0;
    return bytes;
  }

  /** Takes what follows the end, which many writers fill up; the other side may wait to be rid of it. */
  async drain(): Promise<void> {
    let bytes = 0;
    for (let next = await this.#source.next(); next.done !== true; next = await this.#source.next()) {
      bytes += next.value.length;
      if (bytes > LIMITS.archive_trailer_bytes_max) throw refusal("data after the end of the archive");
    }
  }

  #entry(block: Buffer, type: string, extension: Extension): TarEntry {
    const isUstar = block.toString("latin1", 257, 263) === "ustar\0";
    const prefix = isUstar ? textField(block, 345, 155) : "";
    const own = textField(block, 0, 100);
    const name = extension.path ?? (prefix === "" ? own : `${prefix}/${own}`);
    const found = TYPES[type];
    if (found === undefined)
      throw refusal(`archive entry ${nameText(name)} is ${REFUSED[type] ?? "of an unknown type"}`);
    // The oldest archives have no type for directories.
    const isOld = found === "file" && name.endsWith("/");
    const size = extension.size ?? numberField(block, 124, 12);
    if (!Number.isSafeInteger(size) || size < 0) throw refusal(`archive entry ${nameText(name)} has no size`);
    const entry: TarEntry = {
      type: isOld ? "directory" : found,
      name,
      link: extension.linkpath ?? textField(block, 157, 100),
      // The other types have no content, whatever their header says.
      size: found === "file" ? size : 0,
      mode: numberField(block, 100, 8) & 0o7777,
      uid: extension.uid ?? numberField(block, 108, 8),
      gid: extension.gid ?? numberField(block, 116, 8),
      mtime_ms: extension.mtime_ms ?? numberField(block, 136, 12) * 1000,
    };
    if (/\0/.test(entry.name) || /\0/.test(entry.link)) {
      throw refusal(`archive entry ${nameText(name)} has a NUL in its name`);
    }
    this.#content_left = entry.size;
    this.#padding = -entry.size & (BLOCK_BYTES - 1);
    return { ...entry, mtime_ms: Math.min(MTIME_MS_MAX, Math.max(MTIME_MS_MIN, entry.mtime_ms)) };
  }

  /** At once where it is there: most pieces wait for nothing. */
  #piece(): Buffer | Promise<Buffer | null> | null {
    if (this.#content_left === 0) return null;
    if (this.#at === this.#chunk.length) return this.#fill().then(() => this.#piece());
    const end = Math.min(this.#chunk.length, this.#at + this.#content_left);
    const piece = this.#chunk.subarray(this.#at, end);
    this.#content_left -= piece.length;
    this.#at = end;
    // All of it is whoever's takes it, who may give its memory back.
    if (end === this.#chunk.length) {
      this.#chunk = EMPTY;
      this.#at = 0;
    }
    return piece;
  }

  /** Holds `count` bytes, so it is for what is bounded. */
  async #exactly(count: number): Promise<Buffer> {
    if (this.#chunk.length - this.#at >= count) {
      this.#at += count;
      return this.#chunk.subarray(this.#at - count, this.#at);
    }
    const bytes = Buffer.allocUnsafe(count);
    for (let have = 0; have < count; ) {
      if (this.#at === this.#chunk.length) await this.#fill();
      const copied = this.#chunk.copy(bytes, have, this.#at);
      have += copied;
      this.#at += copied;
    }
    return bytes;
  }

  async #skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) {
      if (this.#at === this.#chunk.length) await this.#fill();
      const taken = Math.min(left, this.#chunk.length - this.#at);
      this.#at += taken;
      left -= taken;
    }
  }

  async #fill(): Promise<void> {
    const next = await this.#source.next();
    if (next.done === true) throw refusal("truncated archive, or not an archive");
    const { buffer, byteOffset, byteLength } = next.value;
    this.#bytes_left -= byteLength;
    if (this.#bytes_left < 0) throw refusal(`archive too large (limit ${this.#bytes_max} bytes)`);
    this.#chunk = Buffer.from(buffer, byteOffset, byteLength);
    this.#at = 0;
  }
}

function putNumber(block: Buffer, at: number, length: number, value: number): void {
  const octal = value < 0 ? "" : value.toString(8);
  if (octal !== "" && octal.length < length) {
    block.write(octal.padStart(length - 1, "0"), at, "latin1");
    return;
  }
  let left = value;
  for (let i = at + length - 1; i > at; i--) {
    block[i] = ((left % 256) + 256) % 256;
    left = Math.floor(left / 256);
  }
  block[at] = value < 0 ? 0xff : 0x80;
}

const TYPE_BYTES: Readonly<Record<TarType, string>> = { file: "0", link: "1", symlink: "2", directory: "5" };

function block(type: string, entry: TarEntry, size: number): Buffer {
  // From Node's pool of buffers, which `alloc` does not use: a tree has many headers.
  const header = Buffer.allocUnsafe(BLOCK_BYTES).fill(0);
  header.write(entry.name.slice(0, 100), 0, "latin1");
  putNumber(header, 100, 8, entry.mode);
  putNumber(header, 108, 8, entry.uid);
  putNumber(header, 116, 8, entry.gid);
  putNumber(header, 124, 12, size);
  putNumber(header, 136, 12, Math.floor(entry.mtime_ms / 1000));
  header.write(type, 156, "latin1");
  header.write(entry.link.slice(0, 100), 157, "latin1");
  header.write("ustar  \0", 257, "latin1");
  header.write("        ", 148, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return header;
}

/** Returns the padding after a content of `size` bytes. */
export function tarPadding(size: number): Buffer {
  return ZEROS.subarray(0, -size & (BLOCK_BYTES - 1));
}

/** Returns the blocks before an entry's content: names of more than 100 bytes have an entry of their own. */
export function tarHeader(entry: TarEntry): Buffer {
  const parts: Buffer[] = [];
  const long = (type: string, text: string) => {
    const bytes = Buffer.from(`${text}\0`, "latin1");
    const named = { ...entry, name: "././@LongLink", link: "", mode: 0o644, uid: 0, gid: 0, mtime_ms: 0 };
    parts.push(block(type, named, bytes.length), bytes, tarPadding(bytes.length));
  };
  if (entry.link.length > 100) long("K", entry.link);
  if (entry.name.length > 100) long("L", entry.name);
  parts.push(block(TYPE_BYTES[entry.type], entry, entry.size));
  return parts.length === 1 ? (parts[0] ?? EMPTY) : Buffer.concat(parts);
}

/** A comment for all that follows (POSIX pax, type g), which readers ignore. */
export function tarComment(text: string): Buffer {
  const value = ` comment=${text}\n`;
  // Its length counts its own digits.
  const digits = String(value.length + String(value.length + 1).length).length;
  const bytes = Buffer.from(`${value.length + digits}${value}`, "latin1");
  const named = {
    type: "file" as const,
    size: 0,
    name: "pax_global_header",
    link: "",
    mode: 0o644,
    uid: 0,
    gid: 0,
    mtime_ms: 0,
  };
  return Buffer.concat([block("g", named, bytes.length), bytes, tarPadding(bytes.length)]);
}

/** The end of an archive. */
export function tarEnd(): Buffer {
  return Buffer.alloc(2 * BLOCK_BYTES);
}
