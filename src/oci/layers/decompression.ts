/**
 * Decompresses a layer as it streams: gzip, zstd, or nothing. The format is known by the first bytes, as buildah does it,
 * whatever the manifest says.
 *
 * P1 Every byte of the input belongs to the format. Bytes behind its end refuse the layer: another reader may continue there.
 * P2 Output is given out in pieces of `layer_step_bytes`, and its memory is freed when the receiver returns. The receiver ends
 *    a bomb by throwing.
 * P3 After `pause` at most one further piece is given out, or all of one input that is not compressed, until `resume`.
 * P4 The decompressed bytes are not compressed themselves: buildah, which is given them, would decompress them again.
 */
import { constants, createGunzip, createZstdDecompress, type Gunzip, type ZstdDecompress } from "node:zlib";
import { giveBackLast } from "../../base/buffer-memory.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { ZstdFrames } from "./zstd-frames.ts";

/** Longest sign of a format. */
const SIGN_BYTES = 6;
const SIGNS: readonly (readonly [name: string, sign: Buffer])[] = [
  ["gzip", Buffer.from("1f8b08", "hex")],
  ["zstd", Buffer.from("28b52ffd", "hex")],
  ["bzip2", Buffer.from("425a68", "hex")],
  ["xz", Buffer.from("fd377a585a00", "hex")],
];

function signOf(head: Buffer): string | null {
  return SIGNS.find(([, sign]) => head.subarray(0, sign.length).equals(sign))?.[0] ?? null;
}

export type Receiver = (bytes: Buffer) => void;

/** A format's part of the work. */
interface Format {
  write(bytes: Uint8Array): Promise<void>;
  end(): Promise<void>;
  pause(): void;
  resume(): void;
  destroy(): void;
}

function refusal(why: string, cause?: unknown): AppError {
  return new AppError("IMAGE_INVALID", why, cause === undefined ? {} : { cause });
}

/** A stream of zlib, whose output goes to the receiver at once. */
class ZlibStream {
  readonly #zlib: Gunzip | ZstdDecompress;
  readonly #name: string;
  #failure: unknown = null;
  #hasEnded = false;
  /** The step under way, until its end. */
  #waiting: PromiseWithResolvers<void> | null = null;

  constructor(zlib: Gunzip | ZstdDecompress, name: string, receive: Receiver) {
    this.#zlib = zlib;
    this.#name = name;
    zlib.on("data", (part: Buffer) => {
      if (this.#failure !== null) return;
      try {
        receive(part);
      } catch (error) {
        this.#fail(error);
      }
      giveBackLast(part, LIMITS.layer_step_bytes);
    });
    zlib.on("end", () => {
      this.#hasEnded = true;
      this.#waiting?.resolve();
    });
    zlib.on("error", (cause) => this.#fail(refusal(`corrupt or truncated ${name} data: ${errorText(cause)}`, cause)));
  }

  /** Resolves when all output of the bytes has been received. */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#hasEnded) throw refusal(`data after the end of the ${this.#name} data`);
    await this.#step((done) => this.#zlib.write(bytes, () => done()));
  }

  async end(): Promise<void> {
    if (!this.#hasEnded) await this.#step(() => this.#zlib.end());
  }

  /** Number of bytes that belonged to the format (P1). */
  get taken_bytes(): number {
    return this.#zlib.bytesWritten;
  }

  pause(): void {
    this.#zlib.pause();
  }

  resume(): void {
    this.#zlib.resume();
  }

  destroy(): void {
    this.#zlib.destroy();
  }

  async #step(begin: (done: () => void) => void): Promise<void> {
    const step = Promise.withResolvers<void>();
    this.#waiting = step;
    if (this.#failure === null) begin(step.resolve);
    else step.resolve();
    await step.promise;
    this.#waiting = null;
    if (this.#failure !== null) throw this.#failure;
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
    this.#zlib.destroy();
    this.#waiting?.resolve();
  }
}

class GzipFormat implements Format {
  readonly #stream: ZlibStream;
  #given_bytes = 0;

  constructor(receive: Receiver) {
    this.#stream = new ZlibStream(createGunzip({ chunkSize: LIMITS.layer_step_bytes }), "gzip", receive);
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#given_bytes += bytes.length;
    await this.#stream.write(bytes);
  }

  async end(): Promise<void> {
    await this.#stream.end();
    if (this.#stream.taken_bytes !== this.#given_bytes) throw refusal("data after the end of the gzip data");
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  destroy(): void {
    this.#stream.destroy();
  }
}

class ZstdFormat implements Format {
  readonly #frames = new ZstdFrames();
  readonly #stream: ZlibStream;

  constructor(receive: Receiver) {
    const params = { [constants.ZSTD_d_windowLogMax]: LIMITS.layer_zstd_window_log_max };
    this.#stream = new ZlibStream(
      createZstdDecompress({ chunkSize: LIMITS.layer_step_bytes, params }),
      "zstd",
      receive,
    );
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (const piece of this.#frames.pieces(bytes)) await this.#stream.write(piece);
  }

  async end(): Promise<void> {
    if (!this.#frames.isComplete) throw refusal("truncated zstd data");
    await this.#stream.end();
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  destroy(): void {
    this.#stream.destroy();
  }
}

class PlainFormat implements Format {
  readonly #receive: Receiver;
  #resting: PromiseWithResolvers<void> | null = null;

  constructor(receive: Receiver) {
    this.#receive = receive;
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#receive(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    await this.#resting?.promise;
  }

  async end(): Promise<void> {}

  pause(): void {
    this.#resting ??= Promise.withResolvers();
  }

  resume(): void {
    this.#resting?.resolve();
    this.#resting = null;
  }

  destroy(): void {
    this.resume();
  }
}

export class Decompression {
  readonly #receive: Receiver;
  #format: Format | null = null;
  /** The first bytes, until they tell the format. */
  #head = Buffer.alloc(0);
  /** The first decompressed bytes, as many as tell a format. */
  #plain_head = Buffer.alloc(0);
  #isPaused = false;

  constructor(receive: Receiver) {
    this.#receive = (bytes) => {
      this.#checkPlain(bytes);
      receive(bytes);
    };
  }

  /** Resolves when all output of the bytes has been received. Rejects with IMAGE_INVALID, or what the receiver threw. */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#format !== null) return this.#format.write(bytes);
    this.#head = Buffer.concat([this.#head, bytes]);
    if (this.#head.length >= SIGN_BYTES) await this.#begin();
  }

  /** Resolves when the input was whole. */
  async end(): Promise<void> {
    if (this.#format === null) await this.#begin();
    await this.#format?.end();
  }

  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#format?.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#format?.resume();
  }

  /** Frees what a decompressor holds. */
  destroy(): void {
    this.#format?.destroy();
  }

  /** P4. */
  #checkPlain(bytes: Buffer): void {
    if (this.#plain_head.length >= SIGN_BYTES) return;
    this.#plain_head = Buffer.concat([this.#plain_head, bytes.subarray(0, SIGN_BYTES)]).subarray(0, SIGN_BYTES);
    const name = signOf(this.#plain_head);
    if (name !== null) throw refusal(`layer compressed twice: its tar begins as ${name} data`);
  }

  async #begin(): Promise<void> {
    const head = this.#head;
    this.#head = Buffer.alloc(0);
    const name = signOf(head) ?? "plain";
    if (name === "gzip") this.#format = new GzipFormat(this.#receive);
    else if (name === "zstd") this.#format = new ZstdFormat(this.#receive);
    else if (name === "plain") this.#format = new PlainFormat(this.#receive);
    else throw refusal(`unsupported compression of a layer: ${name} (expected gzip, zstd or none)`);
    await this.#format.write(head);
  }
}
