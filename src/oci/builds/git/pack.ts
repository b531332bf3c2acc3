/**
 * A pack of git (Documentation/gitformat-pack.txt) that somebody else made: a file of objects, some of which are differences to others.
 * Runs in a thread, since it waits for the disk and the decompression.
 *
 * P1. No more is inflated at once than one object, its base and a difference, none above `object_bytes_max`. What an object's header
 *     claims is the bound of its decompression.
 * P2. All that is inflated together, however often, has a bound, and so have objects and chains of differences.
 * P3. An object is known by the digest that this reader makes of its content. Nothing that the host says of it counts.
 */
import { createHash } from "node:crypto";
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { type Inflate, inflateSync } from "node:zlib";
import { AppError } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";

export type ObjectType = "commit" | "tree" | "blob" | "tag";

export interface GitObject {
  readonly type: ObjectType;
  readonly content: Buffer;
}

interface Packed {
  /** Of its compressed content. */
  readonly at: number;
  readonly size: number;
  /** Null: a difference. */
  type: ObjectType | null;
  /** Place of an earlier object, or the id of one; null: none. */
  readonly base: number | string | null;
  /** Differences on the way to a whole object. */
  depth: number;
}

const TYPES: Readonly<Record<number, ObjectType>> = { 1: "commit", 2: "tree", 3: "blob", 4: "tag" };
const OFFSET_DELTA = 6;
const ID_DELTA = 7;
const HEADER_BYTES = 12;
const ID_BYTES = 20;
/** The longest head of an object: size, and the base. */
const OBJECT_HEAD_BYTES = 64;
const MIB = 1024 * 1024;
const CHUNK_BYTES_MIN = 64;

const corrupt = (why: string): AppError => new AppError("INVALID_ARGUMENT", `corrupt pack of git: ${why}`);
const tooLarge = (what: string, limit: string): AppError =>
  new AppError("INVALID_ARGUMENT", `${what} of the repository too large (limit ${limit})`);

export class Pack {
  readonly #file: number;
  readonly #bytes: number;
  readonly #by_id = new Map<string, Packed>();
  readonly #by_place = new Map<number, Packed>();
  readonly #recent = new Map<Packed, Buffer>();
  #recent_bytes = 0;
  #inflated_bytes = 0;

  /** Reads all objects of a pack once. Throws INVALID_ARGUMENT. */
  constructor(path: string) {
    this.#file = openSync(path, "r");
    this.#bytes = fstatSync(this.#file).size;
    try {
      this.#resolve(this.#scan());
    } catch (error) {
      this.close();
      throw error;
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  /** Throws INVALID_ARGUMENT: the pack has no such object. */
  object(id: string): GitObject {
    const found = this.#by_id.get(id);
    if (found === undefined || found.type === null) throw corrupt(`no object ${id}`);
    return { type: found.type, content: this.#content(found) };
  }

  /** Returns the differences, whose ids are not known. */
  #scan(): Packed[] {
    const head = this.#read(0, HEADER_BYTES);
    if (head.length < HEADER_BYTES || head.toString("latin1", 0, 4) !== "PACK" || head.readUInt32BE(4) !== 2) {
      throw corrupt("no header of version 2");
    }
    const count = head.readUInt32BE(8);
    if (count > LIMITS.build_git_objects_max) throw tooLarge("a commit", `${LIMITS.build_git_objects_max} objects`);
    const differences: Packed[] = [];
    let place = HEADER_BYTES;
    for (let i = 0; i < count; i++) {
      const packed = this.#head(place);
      const { content, consumed } = this.#inflate(packed);
      if (packed.type === null) differences.push(packed);
      else this.#by_id.set(idOf(packed.type, content), packed);
      this.#by_place.set(place, packed);
      place = packed.at + consumed;
    }
    if (place + ID_BYTES !== this.#bytes) throw corrupt("it does not end behind its objects");
    return differences;
  }

  #head(place: number): Packed {
    const bytes = this.#read(place, OBJECT_HEAD_BYTES);
    let at = 0;
    const next = (): number => {
      const byte = bytes[at++];
      if (byte === undefined) throw corrupt("truncated");
      return byte;
    };
    let byte = next();
    const kind = (byte >> 4) & 7;
    let size = byte & 15;
    for (let factor = 16; byte >= 128; factor *= 128) {
      byte = next();
      size += (byte & 127) * factor;
      if (size > LIMITS.build_git_object_mb_max * MIB)
        throw tooLarge("a file", `${LIMITS.build_git_object_mb_max} MiB`);
    }
    const type = TYPES[kind] ?? null;
    let base: number | string | null = null;
    if (kind === OFFSET_DELTA) {
      byte = next();
      let back = byte & 127;
      while (byte >= 128) {
        byte = next();
        back = (back + 1) * 128 + (byte & 127);
        if (back > place) throw corrupt("a base before its begin");
      }
      base = place - back;
      if (back === 0) throw corrupt("an object that is its own base");
    } else if (kind === ID_DELTA) {
      base = bytes.toString("hex", at, at + ID_BYTES);
      at += ID_BYTES;
    } else if (type === null) {
      throw corrupt(`an object of the type ${kind}`);
    }
    return { at: place + at, size, type, base, depth: 0 };
  }

  /** Gives differences their types and ids. A base may stand behind what needs it. */
  #resolve(differences: Packed[]): void {
    for (let left = differences; left.length > 0; ) {
      const waiting: Packed[] = [];
      for (const packed of left) {
        const base = this.#base(packed);
        if (base === null || base.type === null) {
          waiting.push(packed);
          continue;
        }
        packed.depth = base.depth + 1;
        if (packed.depth > LIMITS.build_git_delta_depth_max) {
          throw tooLarge("a chain of differences", `${LIMITS.build_git_delta_depth_max}`);
        }
        packed.type = base.type;
        this.#by_id.set(idOf(base.type, this.#content(packed)), packed);
      }
      if (waiting.length === left.length) throw corrupt("a base is missing");
      left = waiting;
    }
  }

  #base({ base }: Packed): Packed | null {
    if (base === null) return null;
    return (typeof base === "number" ? this.#by_place.get(base) : this.#by_id.get(base)) ?? null;
  }

  #content(packed: Packed): Buffer {
    const known = this.#recent.get(packed);
    if (known !== undefined) return known;
    const { content } = this.#inflate(packed);
    const base = this.#base(packed);
    const whole = base === null ? content : this.#applied(this.#content(base), content);
    this.#keep(packed, whole);
    return whole;
  }

  #keep(packed: Packed, content: Buffer): void {
    const bytes_max = LIMITS.build_git_recent_mb_max * MIB;
    if (content.length > bytes_max / 4) return;
    this.#recent.set(packed, content);
    this.#recent_bytes += content.length;
    for (const [oldest, old] of this.#recent) {
      if (this.#recent_bytes <= bytes_max) return;
      this.#recent.delete(oldest);
      this.#recent_bytes -= old.length;
    }
  }

  /** P1, P2. `consumed`: bytes of the compressed content. */
  #inflate({ at, size }: Packed): { readonly content: Buffer; readonly consumed: number } {
    this.#work(size);
    // Blocks that are stored as they are take some bytes more.
    const window = this.#read(at, size + (size >>> 8) + 1_024);
    try {
      const chunkSize = Math.max(CHUNK_BYTES_MIN, Math.min(size + 1, MIB));
      const options = { info: true, maxOutputLength: Math.max(1, size), chunkSize };
      const { buffer, engine } = inflateSync(window, options) as unknown as { buffer: Buffer; engine: Inflate };
      if (buffer.length === size) return { content: buffer, consumed: engine.bytesWritten };
    } catch (cause) {
      throw corrupt(
        `an object that is not as long as it claims, or damaged (${(cause as { code?: string }).code ?? ""})`,
      );
    }
    throw corrupt("an object is shorter than it claims");
  }

  #work(bytes: number): void {
    this.#inflated_bytes += bytes;
    const limit = LIMITS.build_git_inflated_mb_max;
    if (this.#inflated_bytes > limit * MIB) throw tooLarge("all objects", `${limit} MiB`);
  }

  #applied(base: Buffer, difference: Buffer): Buffer {
    let at = 0;
    const next = (): number => {
      const byte = difference[at++];
      if (byte === undefined) throw corrupt("a truncated difference");
      return byte;
    };
    const size = (): number => {
      let value = 0;
      for (let factor = 1; ; factor *= 128) {
        const byte = next();
        value += (byte & 127) * factor;
        if (value > LIMITS.build_git_object_mb_max * MIB)
          throw tooLarge("a file", `${LIMITS.build_git_object_mb_max} MiB`);
        if (byte < 128) return value;
      }
    };
    if (size() !== base.length) throw corrupt("a difference to another base");
    const made = Buffer.allocUnsafeSlow(size());
    this.#work(made.length);
    let end = 0;
    while (at < difference.length) {
      const command = next();
      if (command === 0) throw corrupt("an unknown command in a difference");
      let from = difference;
      let begin = at;
      let length = command;
      if (command >= 128) {
        begin = 0;
        length = 0;
        for (let i = 0; i < 4; i++) if (command & (1 << i)) begin += next() * 256 ** i;
        for (let i = 0; i < 3; i++) if (command & (16 << i)) length += next() * 256 ** i;
        if (length === 0) length = 0x10000;
        from = base;
      } else {
        at += length;
      }
      if (begin + length > from.length || end + length > made.length)
        throw corrupt("a difference leads out of its base");
      from.copy(made, end, begin, begin + length);
      end += length;
    }
    if (end !== made.length) throw corrupt("a difference is shorter than it claims");
    return made;
  }

  /** At most `length` bytes. */
  #read(at: number, length: number): Buffer {
    const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, this.#bytes - at)));
    return bytes.subarray(0, bytes.length === 0 ? 0 : readSync(this.#file, bytes, 0, bytes.length, at));
  }
}

/** P3. */
function idOf(type: ObjectType, content: Buffer): string {
  return createHash("sha1").update(`${type} ${content.length}\0`).update(content).digest("hex");
}
