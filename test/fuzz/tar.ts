/**
 * A fuzzer of the tar parser: mutates archives, keeps those with a new outcome, and checks each outcome. Headers get
 * their right sums again, so that mutations reach what is behind the sum.
 */
import { createHash } from "node:crypto";
import { seededRandom } from "../../bench/stats.ts";
import { AppError } from "../../src/base/errors.ts";
import { type TarEntry, TarReader, tarEnd, tarHeader, tarPadding } from "../../src/engine/files/tar.ts";

const BLOCK_BYTES = 512;
const SUM_AT = 148;
const SUM_BYTES = 8;
const INPUT_BYTES_MAX = 16_384;
const KEPT_MAX = 4_000;
const TURN_COUNT = 1_000;
/** Texts with a meaning in some field of a header. */
const WORDS = [
  ..."\0,/,..,ustar\0,ustar  \0,x,g,L,K,S,5,2,7777777, ,-1,\n,\x80\0\0\0\0\0\0\x01,\xff\xff\xff\xff".split(","),
];
/** Offsets of fields in a header: name, mode, uid, gid, size, time, type, link, magic, prefix. */
const FIELDS = [0, 100, 108, 116, 124, 136, 156, 157, 257, 345];
const PAX_KEYS = ["path", "linkpath", "size", "uid", "gid", "mtime", "GNU.sparse.major", "comment"];
const PAX_VALUES = [
  "",
  "0",
  "1",
  "-1",
  "1.5",
  "512",
  "4294967296",
  "99999999999999999999",
  "1e9",
  "a/b",
  "a\0b",
  "\xff=",
  "x".repeat(200),
];

/** An extended header of one to three records, whole. */
function paxBlocks(random: (max: number) => number): Buffer {
  let records = "";
  for (let left = 1 + random(3); left > 0; left--) {
    const rest = ` ${PAX_KEYS[random(PAX_KEYS.length)]}=${PAX_VALUES[random(PAX_VALUES.length)]}\n`;
    const length = rest.length + String(rest.length + 2).length;
    records += `${length}${rest}`;
  }
  const body = Buffer.from(records, "latin1");
  const plain = {
    type: "file",
    name: "pax",
    link: "",
    size: body.length,
    mode: 0o644,
    uid: 0,
    gid: 0,
    mtime_ms: 0,
  } as const;
  const header = tarHeader(plain);
  header.write(random(4) === 0 ? "g" : "x", 156, "latin1");
  return Buffer.concat([header, body, tarPadding(body.length)]);
}

/** A generator of whole numbers below `max` that a seed plays again. */
export function numbers(seed: number): (max: number) => number {
  const unit = seededRandom(seed);
  return (max) => Math.floor(unit() * max);
}

function fixSums(bytes: Buffer): void {
  for (let at = 0; at + BLOCK_BYTES <= bytes.length; at += BLOCK_BYTES) {
    const block = bytes.subarray(at, at + BLOCK_BYTES);
    // Content and the end have no type and no mode.
    if (
      !/^[0-7 ]{3,}/.test(block.toString("latin1", 100, 108)) &&
      !/[0-7]\0 $/.test(block.toString("latin1", 148, 156))
    )
      continue;
    block.fill(" ", SUM_AT, SUM_AT + SUM_BYTES);
    const sum = block.reduce((total, byte) => total + byte, 0);
    block.write(`${sum.toString(8).padStart(6, "0")}\0 `, SUM_AT, "latin1");
  }
}

function mutate(input: Buffer, other: Buffer, random: (max: number) => number): Buffer {
  let bytes = Buffer.from(input);
  for (let left = 1 + random(4); left > 0; left--) {
    const at = random(bytes.length + 1);
    const word = Buffer.from(WORDS[random(WORDS.length)] ?? "", "latin1");
    const block = at - (at % BLOCK_BYTES);
    const kind = random(8);
    if (kind === 0 && at < bytes.length) bytes[at] = random(256);
    else if (kind === 1) word.copy(bytes, at);
    else if (kind === 2) bytes = Buffer.concat([bytes.subarray(0, at), word, bytes.subarray(at)]);
    else if (kind === 3) bytes = bytes.subarray(0, at);
    // The fields behind the name are where a word matters most.
    else if (kind === 4) word.copy(bytes, block + (FIELDS[random(FIELDS.length)] ?? 0));
    else if (kind === 5) bytes = Buffer.concat([bytes.subarray(0, block), bytes.subarray(block + BLOCK_BYTES)]);
    else if (kind === 6) {
      bytes = Buffer.concat([bytes.subarray(0, block), paxBlocks(random), bytes.subarray(block)]);
    } else {
      const from = random(1 + other.length / BLOCK_BYTES) * BLOCK_BYTES;
      const piece = other.subarray(from, from + (1 + random(3)) * BLOCK_BYTES);
      bytes = Buffer.concat([bytes.subarray(0, block), piece, bytes.subarray(block)]);
    }
  }
  bytes = Buffer.from(bytes.subarray(0, INPUT_BYTES_MAX));
  if (random(8) > 0) fixSums(bytes);
  return bytes;
}

async function* inPieces(bytes: Buffer, random: ((max: number) => number) | null): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; ) {
    const length = random === null ? bytes.length : 1 + random(random(2) === 0 ? 16 : 2_000);
    yield Buffer.from(bytes.subarray(at, at + length));
    at += length;
  }
}

interface Outcome {
  readonly entries: readonly (TarEntry & { readonly content: string; readonly content_bytes: number })[];
  /** Message of the refusal that ended the archive; null if there was none. */
  readonly refusal: string | null;
}

async function parse(source: AsyncGenerator<Uint8Array>): Promise<Outcome> {
  const reader = new TarReader(source);
  const entries: Outcome["entries"][number][] = [];
  try {
    for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
      const hash = createHash("sha1");
      let content_bytes = 0;
      for (let piece = await reader.piece(); piece !== null; piece = await reader.piece()) {
        hash.update(piece);
        content_bytes += piece.length;
      }
      entries.push({ ...entry, content: hash.digest("hex"), content_bytes });
    }
    await reader.drain();
    return { entries, refusal: null };
  } catch (error) {
    if (error instanceof AppError && error.code === "INVALID_ARGUMENT") return { entries, refusal: error.message };
    throw error;
  }
}

const must = (isSo: boolean, what: string, shown: unknown): void => {
  if (!isSo) throw new Error(`${what}: ${JSON.stringify(shown)}`);
};

/** Checks that an entry which hearth writes is read as the same entry. */
async function checkWritten(entry: TarEntry): Promise<void> {
  const whole = { ...entry, size: entry.type === "file" ? Math.min(entry.size, 1_000) : 0 };
  const content = Buffer.alloc(whole.size);
  const bytes = Buffer.concat([tarHeader(whole), content, tarPadding(whole.size), tarEnd()]);
  const { entries, refusal } = await parse(inPieces(bytes, null));
  must(refusal === null && entries.length === 1, `a written entry is refused: ${refusal}`, whole);
  const { content: _content, content_bytes: _bytes, ...read } = entries[0] ?? { content: "", content_bytes: 0 };
  const mtime_ms = Math.floor(whole.mtime_ms / 1000) * 1000;
  must(JSON.stringify(read) === JSON.stringify({ ...whole, mtime_ms }), "a written entry is read as another", [
    whole,
    read,
  ]);
}

/** Checks the outcome of one input and returns its kind: inputs of one kind took much the same path. */
export async function checkTar(bytes: Buffer, random: (max: number) => number): Promise<string> {
  const whole = await parse(inPieces(bytes, null));
  const cut = await parse(inPieces(bytes, random));
  must(JSON.stringify(whole) === JSON.stringify(cut), "pieces change the outcome", [whole, cut]);
  for (const entry of whole.entries) {
    const { name, link, size, mode, uid, gid, mtime_ms, content_bytes } = entry;
    must([size, mode, uid, gid].every(Number.isSafeInteger), "a number is no integer", entry);
    must(mode >= 0 && mode <= 0o7777 && size >= 0 && Number.isFinite(mtime_ms), "a number is out of range", entry);
    must(!name.includes("\0") && !link.includes("\0"), "a name with a NUL", entry);
    must(content_bytes === size, "content is not of its size", entry);
    const { content: _content, content_bytes: _bytes, ...plain } = entry;
    await checkWritten(plain);
  }
  const kinds = whole.entries.map(({ type, name, size, uid }) => [
    type,
    name.length > 100,
    Math.sign(size),
    uid > 2 ** 21,
  ]);
  return `${kinds.slice(0, 6).join(" ")} ${whole.refusal?.replace(/[^a-z ]+.*/i, "")}`;
}

/** Fuzzes until the deadline. Throws the fault of a check with the input in base64. Returns counts of inputs and kinds. */
export async function fuzzTar(seeds: readonly Buffer[], seed: number, isOver: () => boolean) {
  const random = numbers(seed);
  const kept = [...seeds];
  const kinds = new Set<string>();
  const any = () => kept[random(kept.length)] ?? Buffer.alloc(0);
  let count = 0;
  for (; !isOver(); count++) {
    // Other work of the test's process gets its turn.
    if (count % TURN_COUNT === 0) await new Promise((resolve) => setImmediate(resolve));
    const bytes = mutate(any(), any(), random);
    try {
      const kind = await checkTar(bytes, random);
      if (kinds.has(kind) || kept.length >= KEPT_MAX) continue;
      kinds.add(kind);
      kept.push(bytes);
    } catch (error) {
      throw new Error(`seed ${seed}, input ${bytes.toString("base64")}`, { cause: error });
    }
  }
  return { count, kinds: kinds.size };
}
