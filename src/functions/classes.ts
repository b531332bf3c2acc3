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

/** The classes of this process: one for each runtime. */
export class Classes {
  readonly #by_runtime: ReadonlyMap<string, InstanceClass>;
  readonly #by_key: ReadonlyMap<string, InstanceClass>;

  /** `imageOf`: the id of the image that a profile stands for. */
  constructor(runtimes: Iterable<Runtime>, imageOf: (profile: string) => string) {
    this.#by_runtime = new Map([...runtimes].map((one) => [one.name, classOf(one, imageOf(one.profile))]));
    this.#by_key = new Map([...this.#by_runtime.values()].map((one) => [one.key, one]));
  }

  /** Returns the class of the instances that serve a version. */
  of({ runtime }: { readonly runtime: string }): InstanceClass {
    const found = this.#by_runtime.get(runtime);
    invariant(found !== undefined, `runtime ${runtime} has a class`);
    return found;
  }

  /** Null if this process makes no instances of the class. */
  find(key: string): InstanceClass | null {
    return this.#by_key.get(key) ?? null;
  }
}
