/** Layers of images, made byte by byte: each field of a tar header can be anything. */
import { createHash } from "node:crypto";

const BLOCK_BYTES = 512;

export interface Header {
  readonly name?: string;
  readonly type?: string;
  readonly link?: string;
  readonly content?: string | Buffer;
  /** Instead of the content's size. */
  readonly size?: string | number;
  readonly mode?: number;
  readonly device?: readonly [major: number, minor: number];
  readonly magic?: string;
  /** Bytes at any place, written before the checksum. */
  readonly patches?: readonly (readonly [at: number, bytes: Buffer | string])[];
}

/** Returns bytes with zeros up to the next block. */
export function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc(-bytes.length & (BLOCK_BYTES - 1))]);
}

/** An entry: header and content. */
export function entry(header: Header = {}): Buffer {
  const { name = "file", type = "0", link = "", content = "", mode = 0o644, magic = "ustar\u000000" } = header;
  const bytes = Buffer.from(content);
  const { size = bytes.length, device, patches = [] } = header;
  const block = Buffer.alloc(BLOCK_BYTES);
  const octal = (at: number, length: number, value: number) =>
    block.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at, "latin1");
  block.write(name, 0, 100, "latin1");
  octal(100, 8, mode);
  octal(108, 8, 0);
  octal(116, 8, 0);
  if (typeof size === "number") octal(124, 12, size);
  else block.write(size, 124, 12, "latin1");
  octal(136, 12, 0);
  block.write(type, 156, "latin1");
  block.write(link, 157, 100, "latin1");
  block.write(magic, 257, "latin1");
  if (device !== undefined) {
    octal(329, 8, device[0]);
    octal(337, 8, device[1]);
  }
  for (const [at, patch] of patches) Buffer.from(patch as string, "latin1").copy(block, at);
  block.write("        ", 148, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return Buffer.concat([block, padded(bytes)]);
}

/** A record of a PAX header, with its length. */
export function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const length = (digits: number) => digits + Buffer.byteLength(rest, "latin1");
  const digits = [1, 2, 3, 4, 5, 6, 7].find((count) => String(length(count)).length === count) ?? 0;
  return `${length(digits)}${rest}`;
}

/** A PAX header; `g` for a global one. */
export function pax(records: Readonly<Record<string, string>>, type = "x"): Buffer {
  const text = Object.entries(records).map(([key, value]) => record(key, value));
  return entry({ name: "PaxHeaders/x", type, content: Buffer.from(text.join(""), "latin1") });
}

/** A GNU header of a long name (`L`) or link (`K`). */
export function long(type: "L" | "K", text: string): Buffer {
  return entry({ name: "././@LongLink", type, content: Buffer.from(`${text}\0`, "latin1"), magic: "ustar  \0" });
}

export const directory = (name: string): Buffer => entry({ name, type: "5", mode: 0o755 });
export const symlink = (name: string, link: string): Buffer => entry({ name, type: "2", link });
export const hardLink = (name: string, link: string): Buffer => entry({ name, type: "1", link });

/** The end of an archive. */
export const END = Buffer.alloc(2 * BLOCK_BYTES);

/** A whole archive. */
export function tar(...entries: readonly Buffer[]): Buffer {
  return Buffer.concat([...entries, END]);
}

export function sha256(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
