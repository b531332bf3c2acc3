/** The check of one layer, piece by piece: sizes, digests, decompression, and the entries of its tar. Runs in a worker thread. */
import { createHash } from "node:crypto";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { Decompression } from "./decompression.ts";
import { LayerEntries } from "./layer-entries.ts";
import { LayerTar } from "./layer-tar.ts";

/** A layer as its manifest describes it. */
export interface ClaimedLayer {
  /** `sha256:` and 64 hex digits, of the compressed bytes. */
  readonly digest: string;
  readonly size_bytes: number;
  /** Bound of the tar, and of what it takes on the disk. */
  readonly unpacked_bytes_max: number;
}

export interface InspectedLayer {
  /** `sha256:` and 64 hex digits, of the tar. */
  readonly diff_id: string;
  /** Bytes of the tar, with the holes of its sparse files. */
  readonly unpacked_bytes: number;
  /** Nodes below /dev that the image must not have (E5 of layer-entries.ts). */
  readonly skipped_devices: number;
}

export class LayerInspection {
  readonly #claimed: ClaimedLayer;
  readonly #sum = createHash("sha256");
  readonly #diff_sum = createHash("sha256");
  readonly #entries = new LayerEntries();
  readonly #tar = new LayerTar((entry) => {
    this.#entries.add(entry);
    this.#bound(this.#entries.disk_bytes);
  });
  readonly #decompression = new Decompression((bytes) => this.#receive(bytes));
  readonly #give: ((bytes: Uint8Array) => void) | null;
  #size_bytes = 0;
  #unpacked_bytes = 0;
  /** Given out, and not yet sent. */
  #given_bytes = 0;

  /** `give`: is given the tar; whoever gets it says by `sent` when it takes more. */
  constructor(claimed: ClaimedLayer, give: ((bytes: Uint8Array) => void) | null = null) {
    this.#claimed = claimed;
    this.#give = give;
  }

  /** Takes the next bytes. The next call must wait for this one. Rejects with IMAGE_INVALID. */
  async write(bytes: Uint8Array): Promise<void> {
    const { size_bytes } = this.#claimed;
    if (bytes.length === 0) return;
    this.#size_bytes += bytes.length;
    if (this.#size_bytes > size_bytes) {
      throw new AppError("IMAGE_INVALID", `layer larger than its manifest says (${size_bytes} bytes)`);
    }
    this.#sum.update(bytes);
    await this.#decompression.write(bytes);
  }

  /** Resolves if the layer passed. Rejects with IMAGE_INVALID. */
  async end(): Promise<InspectedLayer> {
    const { size_bytes, digest } = this.#claimed;
    if (this.#size_bytes !== size_bytes) {
      throw new AppError("IMAGE_INVALID", `layer has ${this.#size_bytes} bytes (expected ${size_bytes} bytes)`);
    }
    // Before anything is said about contents that nobody vouches for.
    const found = `sha256:${this.#sum.digest("hex")}`;
    if (found !== digest) throw new AppError("IMAGE_INVALID", `layer has the digest ${found} (expected ${digest})`);
    await this.#decompression.end();
    this.#tar.end();
    const { hole_bytes } = this.#entries;
    // The store counts the bytes of the tar alone, and so do limits of tenants.
    if (hole_bytes > this.#unpacked_bytes) {
      throw new AppError("IMAGE_INVALID", `layer has more holes than bytes: ${hole_bytes} bytes of sparse files`);
    }
    const unpacked_bytes = this.#unpacked_bytes + hole_bytes;
    const { skipped_devices } = this.#entries;
    return { diff_id: `sha256:${this.#diff_sum.digest("hex")}`, unpacked_bytes, skipped_devices };
  }

  /** Bytes of the tar are where they go to. */
  sent(bytes: number): void {
    this.#given_bytes -= bytes;
    if (this.#given_bytes <= LIMITS.layer_window_bytes) this.#decompression.resume();
  }

  /** Frees its memory. Nothing may be written any more. */
  destroy(): void {
    this.#decompression.destroy();
  }

  #receive(bytes: Buffer): void {
    this.#unpacked_bytes += bytes.length;
    this.#bound(this.#unpacked_bytes);
    this.#diff_sum.update(bytes);
    this.#tar.push(bytes);
    if (this.#give === null) return;
    this.#give(bytes);
    this.#given_bytes += bytes.length;
    if (this.#given_bytes > LIMITS.layer_window_bytes) this.#decompression.pause();
  }

  #bound(bytes: number): void {
    const { unpacked_bytes_max } = this.#claimed;
    if (bytes > unpacked_bytes_max) {
      throw new AppError("QUOTA_EXCEEDED", `layer too large when unpacked (limit ${unpacked_bytes_max} bytes)`);
    }
  }
}
