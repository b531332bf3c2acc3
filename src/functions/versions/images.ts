/**
 * The image of a version: the one of a profile, or one of the tenant. A reference is resolved once, when the version is made. The
 * version keeps the id, and a tag that names another image later changes no version.
 */
import { posix } from "node:path";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { PROFILE_REGISTRY } from "../../base/profile-registry.ts";
import type { Engine, ImageConfig, InstanceClass } from "../../engine/ports.ts";
import type { Guard } from "../../store/store.ts";
import type { Classes } from "../classes.ts";
import { type FunctionRow, imageIdOf } from "../rows.ts";
import { PROFILE, type VersionedFields } from "../schema.ts";
import type { ImageSettings } from "../target.ts";

const TYPE_MASK = 0o170000;
const DIRECTORY = 0o040000;

/** The part of the concern of images that versions use. */
export interface FunctionImages {
  /** Rejects with NOT_FOUND for an image that the tenant does not have, INVALID_ARGUMENT for one that cannot run here. */
  resolve(
    tenant_id: string,
    text: string,
  ): Promise<{ readonly reference: string; readonly image_id: string; readonly use: Guard }>;
  /** Rejects with INVALID_ARGUMENT if the configuration is too large or malformed. */
  config(image_id: string): Promise<Pick<ImageConfig, "environment" | "working_directory">>;
}

/** The image of a version that is being made or deployed. It stays mounted until `leave`. */
export interface MadeImage {
  readonly fields: Pick<VersionedFields, "image" | "oci" | "image_id">;
  /** Its id. */
  readonly image: string;
  readonly settings: ImageSettings | null;
  /** For the batch that makes the version: the tenant still has the image then. Null: nothing can take it away. */
  readonly use: Guard | null;
  leave(): void;
}

export interface VersionImagesOptions {
  readonly engine: Engine;
  readonly classes: Classes;
  readonly images: FunctionImages;
}

/** The fields of a request or a record that decide about the image. */
interface Wanted {
  readonly tenant_id: string;
  readonly runtime: string;
  readonly image?: string | null | undefined;
  readonly oci: boolean;
}

export class VersionImages {
  readonly #options: VersionImagesOptions;
  /** Bounds the images that requests mount at the same time: starts need the launcher, too. */
  readonly #mounts = new Semaphore(LIMITS.image_lookups_at_once, LIMITS.image_lookups_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many concurrent requests that read images", { retry_after: 1 });
  });

  constructor(options: VersionImagesOptions) {
    this.#options = options;
  }

  /** Resolves the image of a new version. Rejects with NOT_FOUND, INVALID_ARGUMENT. */
  async choose(wanted: Wanted): Promise<MadeImage> {
    const { classes, images } = this.#options;
    const { tenant_id, runtime, oci } = wanted;
    const text = wanted.image ?? PROFILE;
    if (!oci) {
      if (text === PROFILE) return this.#profile(runtime);
      throw new AppError("INVALID_ARGUMENT", `image: unknown profile '${text}' of functions`, {
        details: { expected: [PROFILE], received: text },
        hint: `pull an OCI image, or another profile as ${PROFILE_REGISTRY}/<profile>, by POST /api/oci/images/pull and send its reference with oci: true`,
      });
    }
    const { reference, image_id, use } = await images.resolve(tenant_id, text);
    const { environment, working_directory } = await images.config(image_id);
    const of = classes.made({ tenant_id, runtime, oci }, image_id);
    const leave = await this.#hold(of, reference);
    try {
      const settings = { environment, working_directory: await this.#directory(of, working_directory) };
      const fields = { image: reference, oci, image_id: imageIdOf(image_id) };
      return { fields, image: image_id, settings, use, leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** The image of a version after that of the row, where nothing was said of the image: a tenant's stays. */
  async kept({ record, image, settings }: Pick<FunctionRow, "record" | "image" | "settings">): Promise<MadeImage> {
    const { tenant_id, runtime, oci, image: reference, image_id } = record;
    if (!oci || image === null) return this.#profile(runtime);
    const of = this.#options.classes.made({ tenant_id, runtime, oci }, image);
    const leave = await this.#hold(of, reference);
    return { fields: { image: reference, oci, image_id }, image, settings, use: null, leave };
  }

  #profile(runtime: string): MadeImage {
    const { image } = this.#options.classes.of({ runtime });
    const fields = { image: PROFILE, oci: false, image_id: imageIdOf(image) };
    return { fields, image, settings: null, use: null, leave: () => {} };
  }

  async #hold(of: InstanceClass, reference: string): Promise<() => void> {
    try {
      return await this.#mounts.run(() => this.#options.engine.instances.hold(of));
    } catch (cause) {
      if (!(cause instanceof AppError) || cause.code !== "NOT_FOUND") throw cause;
      throw new AppError("START_FAILED", `image '${reference}' is not in the image store: ${imageIdOf(of.image)}`, {
        cause,
        hint: "pull this image again",
      });
    }
  }

  /** An instance cannot make a directory that the image names and lacks. */
  async #directory(of: InstanceClass, path: string | null): Promise<string | null> {
    if (path === null) return null;
    const clean = posix.resolve("/", path);
    const mode = await this.#options.engine.instances.modeOf(of, clean);
    return mode !== null && (mode & TYPE_MASK) === DIRECTORY ? clean : null;
  }
}

/** Runs `work` while the image is mounted. */
export async function holding<Result>(made: MadeImage, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } finally {
    made.leave();
  }
}
