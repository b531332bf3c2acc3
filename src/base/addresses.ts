/** IP addresses as bytes, for comparisons that their text does not allow: one address has many spellings. */
import { isIP } from "node:net";

export interface Network {
  readonly bytes: Uint8Array;
  readonly prefix_bits: number;
}

function ipv4Bytes(text: string): Uint8Array {
  return Uint8Array.from(text.split("."), Number);
}

function ipv6Bytes(text: string): Uint8Array {
  // The last 32 bits may be written as IPv4.
  const tail = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
  const [a = 0, b = 0, c = 0, d = 0] = tail === null ? [] : ipv4Bytes(tail[2] ?? "");
  const plain = tail === null ? text : `${tail[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  const groups = (part: string): string[] => (part === "" ? [] : part.split(":"));
  const [left = "", right] = plain.split("::");
  const [head, rest] = [groups(left), groups(right ?? "")];
  const filled = right === undefined ? head : [...head, ...Array(8 - head.length - rest.length).fill("0"), ...rest];
  return Uint8Array.from(
    filled.flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 255]),
  );
}

const MAPPED_PREFIX = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255];

/** Returns 4 or 16 bytes, 4 for an IPv4-mapped IPv6 address too; null for text that is no address. A zone is ignored. */
export function addressBytes(text: string): Uint8Array | null {
  const [address = ""] = text.split("%", 1);
  const family = isIP(address);
  if (family === 0) return null;
  if (family === 4) return ipv4Bytes(address);
  const bytes = ipv6Bytes(address);
  return MAPPED_PREFIX.every((byte, i) => bytes[i] === byte) ? bytes.slice(12) : bytes;
}

/** Parses `<address>/<bits>`. Throws a TypeError for text that is no network. */
export function network(text: string): Network {
  const [address = "", bits] = text.split("/");
  const bytes = addressBytes(address);
  if (bytes === null) throw new TypeError(`not a network: ${text}`);
  return { bytes, prefix_bits: bits === undefined ? bytes.length * 8 : Number(bits) };
}

/** Returns true if the network contains the address. Networks of the other family contain none. */
export function contains({ bytes, prefix_bits }: Network, address: Uint8Array): boolean {
  if (bytes.length !== address.length) return false;
  for (let bit = 0; bit < prefix_bits; bit += 8) {
    const mask = prefix_bits - bit >= 8 ? 255 : (255 << (8 - (prefix_bits - bit))) & 255;
    const i = bit >> 3;
    if (((bytes[i] ?? 0) & mask) !== ((address[i] ?? 0) & mask)) return false;
  }
  return true;
}

/** Returns the source that an address counts for: an IPv4 address itself, an IPv6 address's /64, which one host has whole. */
export function sourceOf(text: string): string {
  const bytes = addressBytes(text);
  if (bytes === null) return text;
  return bytes.length === 4 ? bytes.join(".") : `${Buffer.from(bytes.subarray(0, 8)).toString("hex")}/64`;
}
