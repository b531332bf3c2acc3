/**
 * An image on its way to a tenant: what is reserved for it, before any byte of it is written. Its unpacked layers count against the
 * tenant's `image_mb_max`, and all files on the data disk meanwhile against the bound of its temporary files.
 */
import type { Reservation, Reservations } from "../base/reservations.ts";

export class Intake {
  readonly #image: Reservation;
  readonly #files: Reservation;
  /** Files beside the layers that buildah gets. */
  #file_bytes = 0;
  #layer_bytes = 0;

  private constructor(image: Reservation, files: Reservation) {
    this.#image = image;
    this.#files = files;
  }

  static async open(
    tenant_id: string,
    { images, files }: { readonly images: Reservations; readonly files: Reservations },
  ): Promise<Intake> {
    const image = await images.open(tenant_id);
    try {
      return new Intake(image, await files.open(tenant_id));
    } catch (error) {
      image.release();
      throw error;
    }
  }

  /** Bytes that the layers of the image may have, as far as is known. */
  get bytes_max(): number {
    return Math.min(this.#image.bytes_max, Number.MAX_SAFE_INTEGER);
  }

  /**
   * Reserves files that hold the image in another form, as many bytes in all: no image is smaller than they are. `copies`: how often
   * they are there. Rejects with QUOTA_EXCEEDED.
   */
  async files(bytes: number, copies = 1): Promise<void> {
    this.#file_bytes = Math.max(this.#file_bytes, bytes * copies);
    await this.#image.reach(bytes);
    await this.#files.reach(this.#file_bytes + this.#layer_bytes);
  }

  /** Bytes of a file of which there are so many copies, as far as is known. */
  filesMax(copies: number): number {
    return Math.floor(Math.min(this.bytes_max, this.#files.bytes_max / copies));
  }

  /** The files are there, with so many bytes. */
  made(bytes: number): void {
    this.#file_bytes = bytes;
    this.#image.shrink(Math.max(bytes, this.#layer_bytes));
    this.#files.shrink(bytes + this.#layer_bytes);
  }

  /** Reserves unpacked layers, as many bytes in all. Rejects with QUOTA_EXCEEDED. */
  async layers(bytes: number): Promise<void> {
    this.#layer_bytes = Math.max(this.#layer_bytes, bytes);
    await this.#image.reach(this.#layer_bytes);
    await this.#files.reach(this.#file_bytes + this.#layer_bytes);
  }

  /** Runs what gives the tenant the image. */
  commit<Result>(put: () => Promise<Result>): Promise<Result> {
    return this.#image.commit(put);
  }

  /** When nothing of it is on the disk but what the tenant has. Harmless when repeated. */
  release(): void {
    this.#image.release();
    this.#files.release();
  }
}
