/**
 * Bytes of a request that are read whole before anything is done with them: in memory while they are few, then in a
 * file of the data directory that has no name.
 *
 * U1. A file loses its name as soon as it is open, so no end of the daemon leaves one. `begin` removes a name that a
 *     crash left.
 * U2. A tenant has at most `spools_per_tenant_max` files at once, all tenants `spools_max`.
 * U3. A client that holds one sends at least `spool_bytes_min` in each `upload_stall_ms` that the daemon waits for it.
 * U4. A file grows within the bound of the tenant's temporary files, of which its bytes are reserved first.
 */
import { type FileHandle, mkdir, open, rm } from "node:fs/promises";
import { giveBack } from "../base/buffer-memory.ts";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Reservation, Reservations } from "../base/reservations.ts";
import { Shares } from "../base/shares.ts";
import { Base64Field } from "./base64-field.ts";
import { ChunkList } from "./chunk-list.ts";
import type { Share } from "./memory-budget.ts";
import type { Upload } from "./upload.ts";

const PIECE_BYTES = 64 * 1024;

export interface SpoolsOptions {
  /** Its own, for the files: it is emptied first. */
  readonly directory: string;
  /** U4. */
  readonly temporary: Reservations;
  readonly ids: Ids;
  readonly clock: Clock;
}

interface SpoolFile {
  readonly file: FileHandle;
  readonly reservation: Reservation;
  /** Harmless when repeated. */
  readonly release: () => void;
}

export class Spools {
  readonly #directory: string;
  readonly #temporary: Reservations;
  readonly #ids: Ids;
  readonly #clock: Clock;
  /** U2. */
  readonly #shares = new Shares({ each_max: LIMITS.spools_per_tenant_max, all_max: LIMITS.spools_max });

  constructor({ directory, temporary, ids, clock }: SpoolsOptions) {
    this.#directory = directory;
    this.#temporary = temporary;
    this.#ids = ids;
    this.#clock = clock;
  }

  /** Before the first request. */
  async begin(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
    await mkdir(this.#directory, { mode: 0o700 });
  }

  /** The JSON body of a tenant's request, and what its base64 field holds. Throws as base64-field.ts, and by U2. */
  async read(tenant_id: string, source: AsyncIterable<Uint8Array>, field: string, share: Share) {
    const spool = new Spool(() => this.#open(tenant_id));
    const hold = (bytes: number): void => {
      const refusal = share.add(bytes);
      if (refusal !== undefined) throw refusal;
    };
    const json = new Base64Field(field, (bytes) => spool.add(bytes, hold), hold);
    try {
      let waited_ms = 0;
      let bytes = 0;
      let from_ms = this.#clock.monotonicMs();
      for await (const piece of source) {
        waited_ms += this.#clock.monotonicMs() - from_ms;
        bytes += piece.length;
        if (waited_ms >= LIMITS.upload_stall_ms) {
          if (spool.isFile && bytes < LIMITS.spool_bytes_min) throw tooSlow(bytes, waited_ms);
          waited_ms = 0;
          bytes = 0;
        }
        await json.add(piece as Buffer);
        giveBack(piece);
        from_ms = this.#clock.monotonicMs();
      }
      return { sent: json.end(), spool };
    } catch (error) {
      await spool.end();
      throw error;
    }
  }

  async #open(tenant_id: string): Promise<SpoolFile> {
    const leave = this.#shares.take(tenant_id, (reached) =>
      reached === "each_max"
        ? new AppError(
            "CONCURRENCY_LIMIT",
            `too many large uploads of the tenant (limit ${LIMITS.spools_per_tenant_max})`,
          )
        : new AppError("CAPACITY_FULL", `too many large uploads (limit ${LIMITS.spools_max})`),
    );
    let reservation: Reservation | null = null;
    const release = () => {
      reservation?.release();
      leave();
    };
    const path = `${this.#directory}/${this.#ids.next("spool")}`;
    try {
      reservation = await this.#temporary.open(tenant_id);
      const file = await open(path, "wx+", 0o600);
      await rm(path).catch(async (error) => {
        await file.close();
        throw error;
      });
      return { file, reservation, release };
    } catch (error) {
      release();
      throw error;
    }
  }
}

function tooSlow(bytes: number, waited_ms: number): AppError {
  const { spool_bytes_min, upload_stall_ms } = LIMITS;
  const message = `upload too slow: ${bytes} bytes in ${Math.round(waited_ms)} ms (at least ${spool_bytes_min} in ${upload_stall_ms} ms)`;
  return new AppError("REQUEST_TIMEOUT", message, { hint: "send the content as raw bytes in the body, not in base64" });
}

/** Read once; what was not begun by the end of its request is not read any more. */
export class Spool implements Upload {
  readonly content_type = "application/octet-stream";
  readonly #open: () => Promise<SpoolFile>;
  readonly #pieces = new ChunkList();
  #bytes = 0;
  #file: SpoolFile | null = null;
  #isBegun = false;
  #isEnded = false;

  constructor(openFile: () => Promise<SpoolFile>) {
    this.#open = openFile;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** U2. */
  get isFile(): boolean {
    return this.#file !== null;
  }

  /** Few bytes are held in memory, as `hold` is told. */
  async add(bytes: Uint8Array, hold: (bytes: number) => void): Promise<void> {
    if (this.#file === null && this.#bytes + bytes.length <= LIMITS.spool_memory_bytes) {
      hold(bytes.length);
      this.#pieces.add(Buffer.from(bytes));
      this.#bytes += bytes.length;
      return;
    }
    if (this.#file === null) {
      this.#file = await this.#open();
      const before = this.#pieces.bytes();
      this.#pieces.clear();
      await this.#write(this.#file, before, 0);
    }
    await this.#write(this.#file, bytes, this.#bytes);
    this.#bytes += bytes.length;
  }

  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void> {
    return this.#all();
  }

  /** The end of its request. One that is being read stays until it was. */
  async end(): Promise<void> {
    if (!this.#isBegun) await this.#close();
  }

  async *#all(): AsyncGenerator<Uint8Array, void> {
    if (this.#isEnded)
      throw new AppError("INVALID_ARGUMENT", "the client closed the connection before the daemon read its upload");
    this.#isBegun = true;
    try {
      if (this.#file === null && this.#bytes > 0) yield this.#pieces.bytes();
      for (let at = 0; this.#file !== null && at < this.#bytes; ) {
        const wanted = Buffer.allocUnsafeSlow(Math.min(PIECE_BYTES, this.#bytes - at));
        const { bytesRead } = await this.#file.file.read(wanted, 0, wanted.length, at);
        if (bytesRead === 0) throw new AppError("INTERNAL", "a spooled upload is shorter than what was written");
        at += bytesRead;
        yield wanted.subarray(0, bytesRead);
      }
    } finally {
      await this.#close();
    }
  }

  async #write({ file, reservation }: SpoolFile, bytes: Uint8Array, at: number): Promise<void> {
    await reservation.reach(at + bytes.length);
    try {
      for (let done = 0; done < bytes.length; ) {
        done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
      }
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== "ENOSPC") throw cause;
      throw new AppError("CAPACITY_FULL", "no space for the upload in the data directory", { cause });
    }
  }

  async #close(): Promise<void> {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#pieces.clear();
    const opened = this.#file;
    this.#file = null;
    await opened?.file.close();
    opened?.release();
  }
}
