/** Waits for the first build of a profile before the creation of a container, which then finds the release. */
import { LIMITS } from "../base/limits.ts";
import type { CreateContainer } from "./schema.ts";

export interface Preparing {
  readonly signal: AbortSignal;
  readonly onProgress?: (pct: number, message: string) => void;
}

/** Builds the release of a profile that has none yet. */
export interface PrepareImage {
  /** True if a container of the image has to wait for that. */
  isNeeded(selector: string, oci: boolean): boolean;
  /** Throws START_FAILED, CAPACITY_FULL. */
  run(tenant_id: string, selector: string, options: Preparing): Promise<void>;
}

type Image = Pick<CreateContainer, "image" | "oci">;

export class Preparation {
  readonly #prepareImage: PrepareImage;

  constructor(prepareImage: PrepareImage) {
    this.#prepareImage = prepareImage;
  }

  /** Time that the creation of a container may take beside its start. */
  waitMs({ image, oci }: Image): number {
    return this.isNeeded({ image, oci }) ? LIMITS.profile_wait_ms : 0;
  }

  /** True if the release of the image is to be built first. */
  isNeeded({ image, oci }: Image): boolean {
    return this.#prepareImage.isNeeded(image, oci);
  }

  /** Throws START_FAILED, CAPACITY_FULL. */
  async run(tenant_id: string, { image, oci }: Image, options: Preparing): Promise<void> {
    if (this.isNeeded({ image, oci })) await this.#prepareImage.run(tenant_id, image, options);
  }
}
