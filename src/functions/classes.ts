/**
 * Instance classes: what the instances for function calls are made of. Instances of one class can replace each other
 * until they are bound to a version; those of different classes never can. A class holds all that is fixed when a
 * container starts: the image, the runtime that the image is prepared for, and the runtime's engine options. Limits,
 * environment, working directory and API access are set when an instance is bound or called, so they are no part of it.
 */
import { createHash } from "node:crypto";
import type { Runtime } from "../../runtimes/index.ts";
import { invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { InstanceClass } from "../engine/ports.ts";

/** Hexadecimal digits of the digest in a key. */
const DIGEST_LENGTH = 12;

/** Returns the class of a runtime on an image, whose id is the digest of its content. */
function classOf({ name, scratch_mb = LIMITS.tmpfs_mb }: Runtime, image: string): InstanceClass {
  const digest = createHash("sha256")
    .update(JSON.stringify([image, name, { scratch_mb }]))
    .digest("hex");
  return { key: `${name}-${digest.slice(0, DIGEST_LENGTH)}`, image, scratch_mb };
}

export interface ClassesOptions {
  readonly runtimes: ReadonlyMap<string, Runtime>;
  /** Returns the id of the image that a profile stands for now. */
  readonly imageOf: (profile: string) => string;
  /** Resolves to true if the store of images has an image of this id. */
  readonly hasImage: (id: string) => Promise<boolean>;
  readonly log: Log;
}

/**
 * The classes of this process: for each runtime one on the present image of its profile, and one on each earlier image that a
 * version names.
 */
export class Classes {
  readonly #options: ClassesOptions;
  readonly #by_runtime: ReadonlyMap<string, InstanceClass>;
  readonly #by_key: Map<string, InstanceClass>;
  /** By the id of an earlier image: true if the store of images has it. */
  readonly #earlier = new Map<string, Promise<boolean>>();

  constructor(options: ClassesOptions) {
    const { runtimes, imageOf } = options;
    this.#options = options;
    this.#by_runtime = new Map([...runtimes.values()].map((one) => [one.name, classOf(one, imageOf(one.profile))]));
    this.#by_key = new Map([...this.#by_runtime.values()].map((one) => [one.key, one]));
  }

  /** Returns the class of the instances that serve a version; without an image, the one that a new version gets. */
  of({ runtime }: { readonly runtime: string }, image: string | null = null): InstanceClass {
    const found = this.#by_runtime.get(runtime);
    const made_of = this.#options.runtimes.get(runtime);
    invariant(found !== undefined && made_of !== undefined, `runtime ${runtime} has a class`);
    if (image === null || image === found.image) return found;
    const earlier = classOf(made_of, image);
    this.#by_key.set(earlier.key, earlier);
    return earlier;
  }

  /**
   * Resolves to the image that serves a version: its own, or null for the present one if the version has none (an earlier
   * program made it) or the store of images does not have it any more.
   */
  async available(image: string | null): Promise<string | null> {
    if (image === null || [...this.#by_runtime.values()].some((one) => one.image === image)) return image;
    const { hasImage, log } = this.#options;
    let known = this.#earlier.get(image);
    if (known === undefined) {
      if (this.#earlier.size >= LIMITS.function_images_max) return null;
      known = hasImage(image);
      this.#earlier.set(image, known);
      if (!(await known)) log.warn("versions run on the present image: theirs is not in the store", { image });
    }
    return (await known) ? image : null;
  }

  /** Null if this process makes no instances of the class. */
  find(key: string): InstanceClass | null {
    return this.#by_key.get(key) ?? null;
  }
}
