/** The answer to a request for a layer. Its last piece leaves by `end` alone: nobody has all of a layer that failed its check. */
import type { ServerResponse } from "node:http";

const OCTETS = "application/octet-stream";

interface Piece {
  readonly bytes: Uint8Array;
  /** Frees the memory of the bytes, and asks for more. */
  onSent(): void;
}

export class LayerBody {
  readonly #response: ServerResponse;
  readonly #headers: Readonly<Record<string, string | number>>;
  #held: Piece | null = null;

  /** `size`: null if it is not known. */
  constructor(response: ServerResponse, size: number | null) {
    this.#response = response;
    this.#headers = { "content-type": OCTETS, ...(size === null ? {} : { "content-length": size }) };
  }

  take(bytes: Uint8Array, onSent: () => void = () => {}): void {
    const { bytes: before, onSent: onBeforeSent } = this.#held ?? {};
    this.#held = { bytes, onSent };
    if (before === undefined) return;
    this.#begin();
    this.#response.write(before, onBeforeSent);
  }

  /** Resolves once the client takes more, or has left. */
  async room(): Promise<void> {
    const response = this.#response;
    if (response.destroyed || !response.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      const proceed = () => {
        response.off("drain", proceed).off("close", proceed);
        resolve();
      };
      response.on("drain", proceed).on("close", proceed);
    });
  }

  end(): void {
    const { bytes = Buffer.alloc(0), onSent } = this.#held ?? {};
    this.#begin();
    this.#response.end(bytes, onSent);
  }

  #begin(): void {
    if (!this.#response.headersSent) this.#response.writeHead(200, this.#headers);
  }
}
