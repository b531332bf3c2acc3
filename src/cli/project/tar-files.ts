/**
 * Reads an archive of code as the daemon packs it (GNU tar): each entry with the digest of its content, and the content of
 * small files. Bounds of the archive are those of the upload that it was once.
 */
import { createHash } from "node:crypto";
import { LIMITS } from "../../base/limits.ts";
import { SCRIPT_START } from "../../base/tree-digest.ts";
import { EXIT, Failure } from "../session/failure.ts";
import { BLOCK_BYTES, numberOf } from "../volumes/tar-bytes.ts";

export interface PackedFile {
  readonly type: "file" | "link";
  readonly isExecutable: boolean;
  /** SHA-256 of a file's bytes, target of a link. */
  readonly content: string;
  /** The bytes of a file of at most `cli_diff_bytes_max`; null for others. */
  readonly bytes: Buffer | null;
}

interface Header {
  readonly name: string;
  readonly type: string;
  readonly mode: number;
  readonly size: number;
  readonly target: string;
}

/** Reads a given number of bytes from pieces of any size. */
class Source {
  readonly #pieces: AsyncIterator<Uint8Array>;
  #left: Uint8Array = new Uint8Array();

  constructor(pieces: AsyncIterable<Uint8Array>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  /** The next piece, of at most `size` bytes. Throws Failure at the end. */
  async some(size: number): Promise<Uint8Array> {
    while (this.#left.length === 0) {
      const next = await this.#pieces.next();
      if (next.done === true) throw new Failure(EXIT.refused, "the archive of the code ends too early");
      this.#left = next.value;
    }
    const piece = this.#left.subarray(0, size);
    this.#left = this.#left.subarray(piece.length);
    return piece;
  }

  async exactly(size: number): Promise<Buffer> {
    const all: Uint8Array[] = [];
    for (let left = size; left > 0; ) {
      const piece = await this.some(left);
      all.push(piece);
      left -= piece.length;
    }
    return Buffer.concat(all);
  }

  /** Closes the source. */
  async leave(): Promise<void> {
    await this.#pieces.return?.();
  }
}

function text(block: Buffer, at: number, length: number): string {
  const bytes = block.subarray(at, at + length);
  const end = bytes.indexOf(0);
  return bytes.toString("utf8", 0, end < 0 ? length : end);
}

function header(block: Buffer): Header {
  return {
    name: text(block, 0, 100),
    type: String.fromCharCode(block[156] ?? 0),
    mode: numberOf(block.subarray(100, 108)),
    size: numberOf(block.subarray(124, 136)),
    target: text(block, 157, 100),
  };
}

const pathOf = (name: string) => name.replace(/^(\.\/)+|\/+$/g, "");

/** The files and links of an archive by path. Throws Failure for a truncated archive. */
export async function packedFiles(pieces: AsyncIterable<Uint8Array>): Promise<Map<string, PackedFile>> {
  const source = new Source(pieces);
  const files = new Map<string, PackedFile>();
  let long: { name?: string; target?: string } = {};
  try {
    for (let count = 0; count < 3 * LIMITS.code_entries_max; count++) {
      const block = await source.exactly(BLOCK_BYTES);
      if (block.every((byte) => byte === 0)) return files;
      const head = header(block);
      if (head.type === "L" || head.type === "K") {
        const value = text(await source.exactly(head.size), 0, head.size);
        long = head.type === "L" ? { ...long, name: value } : { ...long, target: value };
      } else {
        const path = pathOf(long.name ?? head.name);
        if (head.type === "2") {
          const content = long.target ?? head.target;
          files.set(path, { type: "link", isExecutable: false, content, bytes: null });
        } else if (head.type !== "5") {
          files.set(path, await file(source, head));
        }
        long = {};
      }
      await source.exactly((BLOCK_BYTES - (head.size % BLOCK_BYTES)) % BLOCK_BYTES);
    }
    return files;
  } finally {
    await source.leave();
  }
}

async function file(source: Source, { size, mode }: Header): Promise<PackedFile> {
  const hash = createHash("sha256");
  let start = "";
  const kept: Uint8Array[] | null = size <= LIMITS.cli_diff_bytes_max ? [] : null;
  for (let left = size; left > 0; ) {
    const piece = await source.some(left);
    hash.update(piece);
    if (start.length < SCRIPT_START.length) start += String.fromCharCode(...piece.subarray(0, SCRIPT_START.length));
    kept?.push(piece);
    left -= piece.length;
  }
  const bytes = kept === null ? null : Buffer.concat(kept);
  // The daemon makes a script executable, whatever its mode in the archive.
  const isExecutable = (mode & 0o100) !== 0 || start.startsWith(SCRIPT_START);
  return { type: "file", isExecutable, content: hash.digest("hex"), bytes };
}
