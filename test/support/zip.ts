/** Zips of exactly these entries, also of those that no program would make. */
import { crc32, deflateRawSync } from "node:zlib";

export interface ZipEntry {
  readonly name: string | Buffer;
  readonly content?: Buffer | string;
  /** With the bits of the type. A file of unix unless given. */
  readonly mode?: number;
  /** Upper byte of the version that made it: 3 is unix. */
  readonly system?: number;
  /** 0 stored, 8 deflated. */
  readonly method?: number;
  readonly flags?: number;
  /** In place of what is true. */
  readonly size?: number;
  readonly packed_size?: number;
  readonly sum?: number;
  readonly offset?: number;
}

export function zip(...entries: readonly ZipEntry[]): Buffer {
  const parts: Buffer[] = [];
  const list: Buffer[] = [];
  let at = 0;
  for (const one of entries) {
    const { mode = 0o100644, system = 3, method = 8, flags = 0x800 } = one;
    const name = Buffer.from(one.name);
    const content = Buffer.from(one.content ?? "");
    const packed = method === 8 ? deflateRawSync(content) : content;
    const head = Buffer.alloc(26);
    head.writeUInt16LE(20, 0);
    head.writeUInt16LE(flags, 2);
    head.writeUInt16LE(method, 4);
    head.writeUInt32LE(one.sum ?? crc32(content), 10);
    head.writeUInt32LE(one.packed_size ?? packed.length, 14);
    head.writeUInt32LE(one.size ?? content.length, 18);
    head.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), head, name, packed]);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE((mode << 16) >>> 0, 6);
    rest.writeUInt32LE(one.offset ?? at, 10);
    list.push(Buffer.from("PK\x01\x02"), Buffer.from([20, system]), head, rest, name);
    parts.push(local);
    at += local.length;
  }
  const directory = Buffer.concat(list);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(entries.length, 8);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, directory, end]);
}
