/**
 * The tar stream of a layer: headers are read, contents are passed over. Leaves to `layer-entries.ts` which entries a layer
 * may have.
 *
 * buildah unpacks the same bytes with Go's archive/tar, so this parser must see the very entries that Go sees:
 * T1 Each field is read as Go reads it (`archive/tar/reader.go`, `strconv.go`), or the layer is refused.
 * T2 Extensions hold for the next entry alone. A second PAX header replaces the first, and a GNU name goes before a PAX path.
 *    A global PAX header is an entry of type "g" and changes no other entry.
 * T3 Links, devices, directories and pipes have no content, whatever their header says.
 * T4 Sparse files count as large as they will be on the disk: unpacking writes their holes.
 * T5 The archive ends at two blocks of zeros, or at the end of the bytes between two entries. More bytes mean nothing.
 *
 * Not src/engine/files/tar.ts: that one reads what it unpacks itself, refuses sparse files and waits for each block.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

const BLOCK_BYTES = 512;
export const TAR_BLOCK_BYTES = BLOCK_BYTES;
const ZEROS = Buffer.alloc(BLOCK_BYTES);
/** Types without content (T3). */
const HEADER_ONLY = "123456";
const SPARSE = "S";

/** An entry as Go's archive/tar reports it. Texts are byte strings: one character a byte. */
export interface LayerEntry {
  /** The type flag of tar: "0" is a file, also where the header has NUL; a name that ends with a slash makes that "5". */
  readonly type: string;
  readonly name: string;
  readonly link: string;
  /** Bytes of a file on the disk (T4). */
  readonly size: number;
  /** Those of them that are no content in the archive. */
  readonly hole_bytes: number;
  readonly device_major: number;
  readonly device_minor: number;
  /** Names of extended attributes. */
  readonly attributes: readonly string[];
}

type Format = "v7" | "ustar" | "star" | "gnu";

interface Extension {
  /** Records of the PAX header; null: none. */
  pax: Map<string, string> | null;
  name: string;
  link: string;
  headers_count: number;
}

interface Header {
  readonly block: Buffer;
  readonly format: Format;
  readonly type: string;
}

const XATTR_PREFIX = "SCHILY.xattr.";
const LIBARCHIVE_PREFIX = "LIBARCHIVE.xattr.";
const SPARSE_PREFIX = "GNU.sparse.";
/** Fields that a global header may not have: readers differ in what they take from it. */
const REFUSED_GLOBAL = /^(path|linkpath|size)$|^(SCHILY|LIBARCHIVE|GNU)\./;

export function refusal(why: string): AppError {
  return new AppError("IMAGE_INVALID", why);
}

/** A name as people see it. */
export function shownName(name: string): string {
  return Buffer.from(name.slice(0, 1_024), "latin1").toString("utf8").slice(0, 256);
}

/** Up to the first NUL, as `parseString`. */
function textField(block: Buffer, at: number, length: number): string {
  const text = block.toString("latin1", at, at + length);
  const end = text.indexOf("\0");
  return end < 0 ? text : text.slice(0, end);
}

/** As `parseNumeric`: in base 256 with the highest bit set, otherwise octal. */
function numberField(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if ((first & 0x80) === 0) {
    const value = octalField(block, at, length);
    if (value === null) throw refusal("invalid numeric field in tar header: not octal");
    return value;
  }
  if ((first & 0x40) !== 0) throw refusal("invalid numeric field in tar header: negative");
  let value = first & 0x3f;
  for (let i = at + 1; i < at + length; i++) value = value * 256 + (block[i] ?? 0);
  if (!Number.isSafeInteger(value)) throw refusal("invalid numeric field in tar header: too large");
  return value;
}

/** Octal digits among spaces and NULs on both sides, as `parseOctal`; null: something else. */
function octalField(block: Buffer, at: number, length: number): number | null {
  let begin = at;
  let end = at + length;
  const isFiller = (byte: number | undefined) => byte === 0x20 || byte === 0;
  while (begin < end && isFiller(block[begin])) begin++;
  while (end > begin && isFiller(block[end - 1])) end--;
  let value = 0;
  for (let i = begin; i < end; i++) {
    const digit = (block[i] ?? 0) - 0x30;
    if (digit < 0 || digit > 7) return null;
    value = value * 8 + digit;
  }
  return value;
}

/** The sum of a header, with its own field as spaces: of unsigned bytes, or of signed ones as some once wrote it. */
function isSumRight(block: Buffer): boolean {
  let unsigned = 8 * 32;
  let high_count = 0;
  for (let i = 0; i < BLOCK_BYTES; i++) {
    if (i === 148) i = 156;
    const byte = block[i] ?? 0;
    unsigned += byte;
    high_count += byte >> 7;
  }
  const sum = octalField(block, 148, 8);
  return sum === unsigned || sum === unsigned - 256 * high_count;
}

/** True if bytes begin with a header of tar. Two blocks of zeros, an empty archive, are none. */
export function isTarHeader(bytes: Buffer): boolean {
  return bytes.length >= BLOCK_BYTES && isSumRight(bytes.subarray(0, BLOCK_BYTES));
}

function formatOf(block: Buffer): Format {
  const magic = block.toString("latin1", 257, 263);
  if (magic === "ustar\0") return block.toString("latin1", 508, 512) === "tar\0" ? "star" : "ustar";
  return magic === "ustar " && block.toString("latin1", 263, 265) === " \0" ? "gnu" : "v7";
}

function nameOf({ block, format }: Header): string {
  const own = textField(block, 0, 100);
  const length = { v7: 0, gnu: 0, ustar: 155, star: 131 }[format];
  const prefix = length === 0 ? "" : textField(block, 345, length);
  if (format === "gnu") {
    // Go takes these two for a prefix if they are no times.
    if (block[345] !== 0) numberField(block, 345, 12);
    if (block[357] !== 0) numberField(block, 357, 12);
  }
  return prefix === "" ? own : `${prefix}/${own}`;
}

/** As `parsePAX`. Where Go takes a record in more than one spelling, this takes the usual one alone (T1). */
function readPax(bytes: Buffer): Map<string, string> {
  const found = new Map<string, string>();
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(0x20, at);
    const digits = space < 0 ? "" : bytes.toString("latin1", at, Math.min(space, at + 8));
    const end = at + Number(digits);
    const equals = bytes.indexOf(0x3d, space);
    const isRecord = /^[1-9]\d{0,6}$/.test(digits) && end <= bytes.length && bytes[end - 1] === 0x0a;
    if (!isRecord || equals <= space + 1 || equals >= end) throw refusal("corrupt PAX header");
    const key = bytes.toString("latin1", space + 1, equals);
    const value = bytes.toString("latin1", equals + 1, end - 1);
    at = end;
    const isText = /^(path|linkpath|uname|gname)$/.test(key);
    if (key.includes("\0") || (isText && value.includes("\0"))) throw refusal("NUL in a PAX header");
    found.set(key, value);
  }
  return found;
}

function paxNumber(key: string, value: string): number {
  if (!/^\d{1,15}$/.test(value)) throw refusal(`invalid number in a PAX header: ${key}=${shownName(value)}`);
  return Number(value);
}

/** Size of a sparse file on the disk; null: not sparse. As `readGNUSparsePAXHeaders`, without versions that Go ignores. */
function sparseSize(pax: ReadonlyMap<string, string>): number | null {
  const of = (key: string) => pax.get(`${SPARSE_PREFIX}${key}`) ?? "";
  const version = `${of("major")}.${of("minor")}`;
  if (![...pax.keys()].some((key) => key.startsWith(SPARSE_PREFIX))) return null;
  const isOld = version === "." && of("map") + of("offset") !== "";
  if (!isOld && !["0.0", "0.1", "1.0"].includes(version)) throw refusal(`unknown version of sparse file: ${version}`);
  const size = of("size") === "" ? of("realsize") : of("size");
  return paxNumber("GNU.sparse.realsize", size);
}

export class LayerTar {
  readonly #onEntry: (entry: LayerEntry) => void;
  readonly #block = Buffer.alloc(BLOCK_BYTES);
  #have = 0;
  /** Bytes of content and padding to pass over. */
  #passing = 0;
  #extension: Extension = noExtension();
  /** The extension that is being read, with its header. */
  #reading: { readonly type: string; readonly name: string; readonly bytes: Buffer; have: number } | null = null;
  /** A file of the old sparse format, whose map goes on in further blocks. */
  #sparse: { readonly content: number } | null = null;
  #zeros_count = 0;

  /** `onEntry` is told each entry before its content, and may throw. */
  constructor(onEntry: (entry: LayerEntry) => void) {
    this.#onEntry = onEntry;
  }

  /** Takes the next bytes, which stay the caller's. Throws IMAGE_INVALID. */
  push(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && this.#zeros_count < 2; ) {
      const left = bytes.length - at;
      if (this.#passing > 0) {
        const passed = Math.min(this.#passing, left);
        this.#passing -= passed;
        at += passed;
      } else if (this.#reading !== null) {
        at += this.#collect(bytes, at);
      } else if (this.#have === 0 && left >= BLOCK_BYTES) {
        this.#take(bytes.subarray(at, at + BLOCK_BYTES));
        at += BLOCK_BYTES;
      } else {
        const copied = bytes.copy(this.#block, this.#have, at, at + BLOCK_BYTES - this.#have);
        at += copied;
        this.#have += copied;
        if (this.#have < BLOCK_BYTES) continue;
        this.#have = 0;
        this.#take(this.#block);
      }
    }
  }

  /** Throws IMAGE_INVALID unless the bytes so far are a whole archive (T5). */
  end(): void {
    const isAtEntry = this.#passing === 0 && this.#have === 0 && this.#reading === null && this.#sparse === null;
    if (isAtEntry && this.#extension.headers_count === 0) return;
    throw refusal("truncated tar archive");
  }

  #take(block: Buffer): void {
    if (this.#sparse !== null) {
      // 21 entries of a sparse map, and whether another block follows.
      if (block[504] === 0) this.#endSparseMap(this.#sparse.content);
      return;
    }
    if (block[0] === 0 && block.equals(ZEROS)) {
      this.#zeros_count++;
      return;
    }
    if (this.#zeros_count > 0) throw refusal("corrupt tar archive: one block of zeros before an entry");
    if (!isSumRight(block)) throw refusal("corrupt tar archive, or not a tar archive: wrong checksum of a header");
    const header: Header = { block, format: formatOf(block), type: String.fromCharCode(block[156] ?? 0) };
    if ("xgLK".includes(header.type)) this.#beginExtension(header);
    else this.#endEntry(header);
  }

  #beginExtension(header: Header): void {
    if (++this.#extension.headers_count > LIMITS.layer_extensions_per_entry_max) {
      throw refusal(`too many extended tar headers for one entry (limit ${LIMITS.layer_extensions_per_entry_max})`);
    }
    const size = numberField(header.block, 124, 12);
    if (size > LIMITS.layer_extension_bytes_max) {
      throw refusal(`extended tar header too large: ${size} bytes (limit ${LIMITS.layer_extension_bytes_max} bytes)`);
    }
    this.#reading = { type: header.type, name: nameOf(header), bytes: Buffer.allocUnsafe(size), have: 0 };
    if (size === 0) this.#endExtension();
  }

  /** Returns the number of bytes taken. */
  #collect(bytes: Buffer, at: number): number {
    if (this.#reading === null) return 0;
    const copied = bytes.copy(this.#reading.bytes, this.#reading.have, at);
    this.#reading.have += copied;
    if (this.#reading.have === this.#reading.bytes.length) this.#endExtension();
    return copied;
  }

  /** T2. */
  #endExtension(): void {
    if (this.#reading === null) return;
    const { type, name, bytes } = this.#reading;
    this.#reading = null;
    this.#passing = -bytes.length & (BLOCK_BYTES - 1);
    if (type === "L") this.#extension.name = textField(bytes, 0, bytes.length);
    else if (type === "K") this.#extension.link = textField(bytes, 0, bytes.length);
    else if (type === "x") this.#extension.pax = readPax(bytes);
    else {
      const wrong = [...readPax(bytes).keys()].find((key) => REFUSED_GLOBAL.test(key));
      if (wrong !== undefined) throw refusal(`global PAX header sets ${shownName(wrong)}`);
      this.#extension = noExtension();
      this.#onEntry({ type, name, link: "", size: 0, hole_bytes: 0, device_major: 0, device_minor: 0, attributes: [] });
    }
  }

  #endEntry(header: Header): void {
    const { block, format } = header;
    const { pax, name: gnu_name, link: gnu_link } = this.#extension;
    this.#extension = noExtension();
    const field = (key: string) => pax?.get(key) ?? "";
    let name = gnu_name;
    if (name === "") name = field("path") === "" ? nameOf(header) : field("path");
    let link = gnu_link;
    if (link === "") link = field("linkpath") === "" ? textField(block, 157, 100) : field("linkpath");
    const isOldFile = header.type === "\0";
    const type = isOldFile ? (name.endsWith("/") ? "5" : "0") : header.type;
    const hasContent = !HEADER_ONLY.includes(type);
    const packed = field("size") === "" ? numberField(block, 124, 12) : paxNumber("size", field("size"));
    const content = hasContent ? packed : 0;
    let size = content;
    const sparse = pax === null || type === SPARSE ? null : sparseSize(pax);
    if (sparse !== null) {
      if (!hasContent) throw refusal(`sparse tar entry without content: ${shownName(name)}`);
      size = sparse;
      if (field(`${SPARSE_PREFIX}name`) !== "") name = field(`${SPARSE_PREFIX}name`);
    } else if (type === SPARSE) {
      if (format !== "gnu") throw refusal(`sparse tar entry not in the format of GNU: ${shownName(name)}`);
      size = numberField(block, 483, 12);
    }
    const hasDevice = format !== "v7";
    const entry: LayerEntry = {
      type: type === SPARSE ? "0" : type,
      name,
      link,
      size,
      hole_bytes: Math.max(0, size - content),
      device_major: hasDevice ? numberField(block, 329, 8) : 0,
      device_minor: hasDevice ? numberField(block, 337, 8) : 0,
      attributes: pax === null ? [] : attributesOf(pax),
    };
    this.#onEntry(entry);
    if (type === SPARSE && block[482] !== 0) this.#sparse = { content };
    else this.#passContent(content);
  }

  #endSparseMap(content: number): void {
    this.#sparse = null;
    this.#passContent(content);
  }

  #passContent(content: number): void {
    this.#passing = content + (-content & (BLOCK_BYTES - 1));
    if (!Number.isSafeInteger(this.#passing)) throw refusal(`tar entry too large: ${content} bytes`);
  }
}

function noExtension(): Extension {
  return { pax: null, name: "", link: "", headers_count: 0 };
}

/** Names of extended attributes, in both spellings of them. */
function attributesOf(pax: ReadonlyMap<string, string>): string[] {
  const prefixes = [XATTR_PREFIX, LIBARCHIVE_PREFIX];
  return [...pax.keys()].flatMap((key) =>
    prefixes.filter((prefix) => key.startsWith(prefix)).map((prefix) => key.slice(prefix.length)),
  );
}
