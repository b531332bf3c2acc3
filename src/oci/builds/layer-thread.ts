/** A worker thread that turns the tar of a root's difference into a layer. The task is a named export; piscina calls it by name. */
import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { AppError, type ErrorCode, errorText } from "../../base/errors.ts";
import { BLOCK_BYTES, layerEnd, layerHeaders, memberOf, padding, paxRecords } from "./layer-tar.ts";

export interface LayerTask {
  readonly source: string;
  readonly target: string;
  /** Of the layer. */
  readonly bytes_max: number;
}

export interface MadeLayer {
  readonly diff_id: string;
  readonly size_bytes: number;
  /** False: the layer would have nothing in it. */
  readonly has_entries: boolean;
}

export type LayerAnswer = MadeLayer | { readonly failure: { readonly code: ErrorCode; readonly message: string } };

const READ_BYTES = 1024 * 1024;
const EXTENSION_BYTES_MAX = 1024 * 1024;

/** Makes a layer. An AppError would lose its class on the way out of a thread. */
export async function makeLayer({ source, target, bytes_max }: LayerTask): Promise<LayerAnswer> {
  const from = await open(source, "r");
  try {
    const to = await open(target, "wx", 0o600);
    try {
      return await new Conversion(from, to, bytes_max).run();
    } finally {
      await to.close();
    }
  } catch (error) {
    return { failure: { code: error instanceof AppError ? error.code : "INTERNAL", message: errorText(error) } };
  } finally {
    await from.close();
  }
}

class Conversion {
  readonly #from: FileHandle;
  readonly #to: FileHandle;
  readonly #bytes_max: number;
  readonly #hash = createHash("sha256");
  readonly #buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  #begin = 0;
  #end = 0;
  #waiting: Buffer[] = [];
  #waiting_bytes = 0;
  #size_bytes = 0;

  constructor(from: FileHandle, to: FileHandle, bytes_max: number) {
    this.#from = from;
    this.#to = to;
    this.#bytes_max = bytes_max;
  }

  async run(): Promise<MadeLayer> {
    let pax = new Map<string, string>();
    let entry_count = 0;
    for (let block = await this.#take(BLOCK_BYTES); block[0] !== 0; block = await this.#take(BLOCK_BYTES)) {
      const member = memberOf(block, pax);
      if (member.type === "x" || member.type === "g") {
        const size = Number.parseInt(block.toString("latin1", 124, 135), 8);
        if (!(size <= EXTENSION_BYTES_MAX)) throw new AppError("IMAGE_INVALID", "attributes of a file are too large");
        const records = paxRecords(await this.#take(size));
        await this.#take(padding(size).length);
        if (member.type === "x") pax = records;
        continue;
      }
      pax = new Map();
      const found = layerHeaders(member);
      if (found !== null) {
        entry_count++;
        await this.#put(Buffer.from(found.headers));
      }
      await this.#content(member.size, found?.has_content === true);
    }
    await this.#put(layerEnd());
    await this.#flush();
    const diff_id = `sha256:${this.#hash.digest("hex")}`;
    return { diff_id, size_bytes: this.#size_bytes, has_entries: entry_count > 0 };
  }

  /** Passes a content on, or over. */
  async #content(size: number, isKept: boolean): Promise<void> {
    for (let left = size; left > 0; ) {
      const piece = await this.#some(left);
      left -= piece.length;
      if (isKept) await this.#put(Buffer.from(piece));
    }
    const filler = await this.#take(padding(size).length);
    if (isKept) await this.#put(Buffer.from(filler));
  }

  /** At most `max` bytes, valid until the next call. */
  async #some(max: number): Promise<Buffer> {
    if (this.#begin === this.#end) await this.#fill();
    const piece = this.#buffer.subarray(this.#begin, Math.min(this.#end, this.#begin + max));
    this.#begin += piece.length;
    return piece;
  }

  async #take(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = size; left > 0; ) {
      const piece = Buffer.from(await this.#some(left));
      parts.push(piece);
      left -= piece.length;
    }
    return parts.length === 1 ? (parts[0] ?? Buffer.alloc(0)) : Buffer.concat(parts);
  }

  async #fill(): Promise<void> {
    const { bytesRead } = await this.#from.read(this.#buffer, 0, READ_BYTES);
    if (bytesRead === 0) throw new AppError("INTERNAL", "the tar of the changed files is truncated");
    this.#begin = 0;
    this.#end = bytesRead;
  }

  async #put(bytes: Buffer): Promise<void> {
    this.#waiting.push(bytes);
    this.#waiting_bytes += bytes.length;
    if (this.#waiting_bytes >= READ_BYTES) await this.#flush();
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#waiting_bytes = 0;
    this.#hash.update(bytes);
    this.#size_bytes += bytes.length;
    if (this.#size_bytes > this.#bytes_max) {
      throw new AppError(
        "IMAGE_INVALID",
        `layer too large: ${this.#size_bytes} bytes (limit ${this.#bytes_max} bytes)`,
      );
    }
    await this.#to.writeFile(bytes);
  }
}
