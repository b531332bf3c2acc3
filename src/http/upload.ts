/**
 * A request body that is handed on as it comes: archives, files. Nothing is gathered; the client sends as fast as the
 * handler takes.
 *
 * D1. What was not asked for is not invited: a client that waits for leave to send (`Expect: 100-continue`) gets it at
 *     the first read, so that a refusal costs it nothing.
 * D2. It may take as long as it takes, but each piece comes within `upload_stall_ms`.
 * D3. It ends with BODY_TOO_LARGE at the first byte above its bound, however it was announced.
 * D4. The sender's credential is good for every piece.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type BodyLimits, discard, isWaiting, tooLarge } from "./input.ts";

export interface UploadOptions {
  /** A body above this is refused with 413. */
  readonly bytes_max: number;
  /** Media types, for the description; any other but JSON is taken too. The first one is what clients should send. */
  readonly content: readonly [string, ...string[]];
}

export interface Upload extends AsyncIterable<Uint8Array> {
  /** As announced; null where it was not. */
  readonly bytes: number | null;
  /** What the client says it is, in lower case and without parameters; empty where it says nothing. */
  readonly content_type: string;
}

/** The media type of a request, without parameters. */
export function mediaType({ headers }: Pick<IncomingMessage, "headers">): string {
  return (headers["content-type"] ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

/** Sockets whose request is an upload: Node's own bound on the time of a whole request is not theirs (D2). */
const UPLOADING = new WeakSet<Socket>();

export const isUploading = (socket: Socket): boolean => UPLOADING.has(socket);

export interface UploadParts {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly clock: Clock;
  readonly bytes_max: number;
  /** Rejects when the sender's credential is no longer good. Asked for every piece, so it must cost nothing mostly. */
  readonly recheck: () => Promise<void> | undefined;
  readonly stall_ms?: number;
  readonly limits?: BodyLimits;
}

export class RequestBody implements Upload {
  readonly bytes: number | null;
  readonly content_type: string;
  readonly #parts: UploadParts;
  #isBegun = false;
  #isDone = false;

  /** Throws BODY_TOO_LARGE where it is announced to be. */
  constructor(parts: UploadParts) {
    const { incoming, bytes_max } = parts;
    const length = incoming.headers["content-length"];
    this.bytes = length === undefined ? null : Number(length);
    this.content_type = mediaType(incoming);
    this.#parts = parts;
    this.#isDone = this.bytes === 0 || (this.bytes === null && incoming.headers["transfer-encoding"] === undefined);
    if (this.bytes !== null && this.bytes > bytes_max) throw tooLarge(bytes_max, length);
    UPLOADING.add(incoming.socket);
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    return this.#pieces();
  }

  /** What is left of it when its request is over is read and forgotten for a while: most clients read no answer before. */
  async end(): Promise<boolean> {
    const { incoming, outgoing, clock, limits = LIMITS } = this.#parts;
    UPLOADING.delete(incoming.socket);
    if (this.#isDone) return true;
    if (!this.#isBegun && isWaiting(incoming)) return false;
    if (!outgoing.destroyed) await discard(incoming, this.bytes ?? 0, clock, limits);
    return incoming.readableEnded;
  }

  async *#pieces(): AsyncGenerator<Uint8Array, void> {
    const { incoming, outgoing, bytes_max, recheck } = this.#parts;
    if (this.#isDone) return;
    if (!this.#isBegun && isWaiting(incoming)) outgoing.writeContinue();
    this.#isBegun = true;
    const waiting: { wake: () => void } = { wake: () => {} };
    const wake = (): void => waiting.wake();
    incoming.on("readable", wake).on("end", wake).on("error", wake).on("close", wake);
    try {
      let bytes = 0;
      for (;;) {
        const piece = incoming.read() as Buffer | null;
        if (piece !== null) {
          bytes += piece.length;
          if (bytes > bytes_max) throw tooLarge(bytes_max, undefined);
          await recheck();
          yield piece;
        } else if (incoming.readableEnded) {
          break;
        } else if (incoming.destroyed) {
          const cause = incoming.errored ?? undefined;
          throw new AppError("INVALID_ARGUMENT", "the client closed the connection before the end of the body", {
            cause,
          });
        } else {
          await this.#more(waiting);
        }
      }
      this.#isDone = true;
    } finally {
      incoming.off("readable", wake).off("end", wake).off("error", wake).off("close", wake);
    }
  }

  /** Until there is more of it, or its end. */
  #more(waiting: { wake: () => void }): Promise<void> {
    const { clock, stall_ms = LIMITS.upload_stall_ms } = this.#parts;
    return new Promise((resolve, reject) => {
      const cancel = clock.after(stall_ms, () => {
        reject(new AppError("REQUEST_TIMEOUT", `no bytes of the body received for ${stall_ms} ms`));
      });
      waiting.wake = () => {
        cancel();
        resolve();
      };
    });
  }
}
