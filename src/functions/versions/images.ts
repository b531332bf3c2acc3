/**
 * The image of a version: the one that all versions share, a release of a profile, or an image of the tenant. A name is resolved
 * once, when the version is made. The version keeps the id: a tag or a channel that names another image later changes no version.
 *
 * I1. An image that a version needs exists before its batch, and stays: an image of the tenant by a guard in the batch, a release by a
 *     reservation in the image store until the batch has ended. After that its row keeps it (KeptImages).
 * I2. A release that is missing is built before the turn of a function begins: a build takes minutes.
 */
import { posix } from "node:path";
import { Semaphore, together } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Engine, ImageConfig, InstanceClass } from "../../engine/ports.ts";
import type { Guard } from "../../store/store.ts";
import type { Classes } from "../classes.ts";
import { type FunctionRow, imageIdOf } from "../rows.ts";
import { hasOwnImage, PROFILE, type VersionedFields } from "../schema.ts";
import type { ImageSettings } from "../target.ts";

const TYPE_MASK = 0o170000;
const DIRECTORY = 0o040000;

/** The signal of a waiter ends its wait, not the build. */
export interface Waiting {
  readonly signal: AbortSignal;
}

/** The part of the concern of images that versions use. */
export interface FunctionImages {
  /** Rejects with NOT_FOUND for an image that the tenant does not have, INVALID_ARGUMENT for one that cannot run here. */
  resolve(
    tenant_id: string,
    text: string,
  ): Promise<{ readonly reference: string; readonly image_id: string; readonly use: Guard }>;
  /** Rejects with INVALID_ARGUMENT if the configuration is too large or malformed. */
  config(image_id: string): Promise<Pick<ImageConfig, "environment" | "working_directory">>;
  /** Keeps an image in the store until what it resolves to is called. Rejects with NOT_FOUND. */
  reserve(image_id: string): Promise<() => void>;
}

/** The part of the concern of profiles that versions use. */
export interface FunctionProfiles {
  /** True for the selector of a profile of this node, whose release may be missing. */
  isSelector(text: string): boolean;
  /** True if the first use of a selector has to wait for a build. Never throws. */
  mustBuild(selector: string): boolean;
  /** Builds a missing release. Rejects with START_FAILED, CAPACITY_FULL, the signal's reason. */
  run(tenant_id: string, selector: string, waiting: Waiting): Promise<void>;
  /** Throws INVALID_ARGUMENT for an unknown profile, NOT_FOUND for a release that is not on this node. */
  select(selector: string): { readonly image_id: string };
}

/** The image of a version that is being made or deployed. It stays mounted until `leave`. */
export interface MadeImage {
  readonly fields: Pick<VersionedFields, "image" | "oci" | "image_id">;
  /** Its id. */
  readonly image: string;
  readonly settings: ImageSettings | null;
  /** For the batch that makes the version: the tenant still has the image then. Null: it needs none of the tenant's. */
  readonly use: Guard | null;
  leave(): void;
}

/** The image of a version that may only be planned. Null: the release is to be built yet. */
export type ForeseenImage = Omit<MadeImage, "image"> & { readonly image: string | null };

export interface VersionImagesOptions {
  readonly engine: Engine;
  readonly classes: Classes;
  readonly images: FunctionImages;
  readonly profiles: FunctionProfiles;
}

/** The fields of a request or a record that decide about the image. */
interface Wanted {
  readonly tenant_id: string;
  readonly runtime: string;
  readonly image?: string | null | undefined;
  readonly oci: boolean;
}

/** An image that was found for a new version. */
type Found = Pick<MadeImage, "use" | "leave"> & { readonly reference: string; readonly image_id: string };

export class VersionImages {
  readonly #options: VersionImagesOptions;
  /** Bounds the images that requests mount at the same time: starts need the launcher, too. */
  readonly #mounts = new Semaphore(LIMITS.image_lookups_at_once, LIMITS.image_lookups_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many concurrent requests that read images", { retry_after: 1 });
  });

  constructor(options: VersionImagesOptions) {
    this.#options = options;
  }

  /** Builds the releases that new versions need and this node lacks (I2). Rejects with START_FAILED, CAPACITY_FULL. */
  async prepare(tenant_id: string, all: readonly Pick<Wanted, "image" | "oci">[], waiting: Waiting): Promise<void> {
    const { profiles } = this.#options;
    const missing = this.#missing(all);
    if (missing.length === 0) return;
    const { signal } = waiting;
    await together(...missing.map((one) => profiles.run(tenant_id, one, { signal })));
  }

  /** True if `prepare` would build: what would be refused is refused before. */
  mustBuild(all: readonly Pick<Wanted, "image" | "oci">[]): boolean {
    return this.#missing(all).length > 0;
  }

  #missing(all: readonly Pick<Wanted, "image" | "oci">[]): readonly string[] {
    const selectors = all.flatMap(({ image, oci }) => (oci ? [] : [image ?? PROFILE]));
    return [...new Set(selectors)].filter((one) => one !== PROFILE && this.#options.profiles.mustBuild(one));
  }

  /** Resolves the image of a new version. Rejects with NOT_FOUND, INVALID_ARGUMENT. */
  async choose(wanted: Wanted): Promise<MadeImage> {
    const { tenant_id, runtime, oci, image } = wanted;
    const text = image ?? PROFILE;
    if (!hasOwnImage({ image: text, oci })) return this.#shared(runtime);
    return this.#made(wanted, oci ? await this.#owned(tenant_id, text) : await this.#reserve(text));
  }

  /** The same for a plan, which leaves no trace: a missing release is not built, and none is reserved. */
  async foresee(wanted: Wanted): Promise<ForeseenImage> {
    const { profiles } = this.#options;
    const { image, oci } = wanted;
    const text = image ?? PROFILE;
    if (oci || text === PROFILE) return this.choose(wanted);
    const unused = { use: null, leave: () => {} };
    if (profiles.mustBuild(text)) {
      return { ...unused, fields: { image: text, oci, image_id: null }, image: null, settings: null };
    }
    return this.#made(wanted, { ...unused, reference: text, image_id: profiles.select(text).image_id });
  }

  /** The image of a version after that of the row, where nothing was said of the image: an own one stays. */
  async kept({ record, image, settings }: Pick<FunctionRow, "record" | "image" | "settings">): Promise<MadeImage> {
    const { runtime, oci, image: reference, image_id } = record;
    if (!hasOwnImage(record) || image === null) return this.#shared(runtime);
    const leave = await this.#hold(this.#options.classes.made(record, image), record);
    return { fields: { image: reference, oci, image_id }, image, settings, use: null, leave };
  }

  #shared(runtime: string): MadeImage {
    const { image } = this.#options.classes.of({ runtime });
    const fields = { image: PROFILE, oci: false, image_id: imageIdOf(image) };
    return { fields, image, settings: null, use: null, leave: () => {} };
  }

  /** The image of a tenant. A PUT keeps `oci`, so one that names a profile alone is refused with the remedy. */
  async #owned(tenant_id: string, text: string): Promise<Found> {
    const { images, profiles } = this.#options;
    try {
      return { ...(await images.resolve(tenant_id, text)), leave: () => {} };
    } catch (cause) {
      if (!(cause instanceof AppError) || cause.code !== "NOT_FOUND" || !profiles.isSelector(text)) throw cause;
      throw new AppError(cause.code, cause.message, { cause, hint: "for the profile of this name, send oci: false" });
    }
  }

  /** The release of a selector, which the image store keeps until it is left (I1). */
  async #reserve(selector: string): Promise<Found> {
    const { images, profiles } = this.#options;
    const { image_id } = profiles.select(selector);
    return { reference: selector, image_id, use: null, leave: await images.reserve(image_id) };
  }

  async #made({ tenant_id, runtime, oci }: Wanted, found: Found): Promise<MadeImage> {
    const { classes, images } = this.#options;
    const { reference, image_id, use } = found;
    const left: (() => void)[] = [found.leave];
    const leave = (): void => left.forEach((one) => void one());
    try {
      const { environment, working_directory } = await images.config(image_id);
      const of = classes.made({ tenant_id, runtime, image: reference, oci }, image_id);
      left.push(await this.#hold(of, { image: reference, oci }));
      const settings = { environment, working_directory: await this.#directory(of, working_directory) };
      const fields = { image: reference, oci, image_id: imageIdOf(image_id) };
      return { fields, image: image_id, settings, use, leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  async #hold(of: InstanceClass, { image, oci }: Pick<VersionedFields, "image" | "oci">): Promise<() => void> {
    try {
      return await this.#mounts.run(() => this.#options.engine.instances.hold(of));
    } catch (cause) {
      if (!(cause instanceof AppError) || cause.code !== "NOT_FOUND") throw cause;
      throw new AppError("START_FAILED", `image '${image}' is not in the image store: ${imageIdOf(of.image)}`, {
        cause,
        hint: oci ? "pull this image again" : "name the image again in a PUT: the version then gets a release of now",
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
export async function holding<Result>(made: Pick<MadeImage, "leave">, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } finally {
    made.leave();
  }
}
