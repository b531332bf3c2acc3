/**
 * Instance classes: what the instances for function calls are made of. Instances of one class can replace each other
 * until they are bound to a version; those of different classes never can. A class holds all that is fixed when a
 * container starts: the image, the runtime that the image is prepared for, and the runtime's engine options. Limits,
 * environment, working directory and API access are set when an instance is bound or called, so they are no part of it.
 */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import type { Runtime } from "../../runtimes/index.ts";
import type { Clock } from "../base/clock.ts";
import { errorText, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Images, InstanceClass } from "../engine/ports.ts";
import { installRuntimeFiles, type RuntimeFiles } from "./runtime-files.ts";
import { type FunctionRecord, hasOwnImage } from "./schema.ts";

/** Hexadecimal digits of the digest in a key. */
const DIGEST_LENGTH = 12;
/** Pause before the image store is asked again after it did not answer. */
const RETRY_MS = 30_000;

/** A version with an image of its own. */
interface Owned {
  readonly tenant_id: string;
  /** The image of the runtime's profile. */
  readonly pinned: string;
}

/**
 * Returns the class of a runtime on the own image of a version. Two tenants have two classes of one image: a ready cell tells neither of
 * them about the other.
 */
function foreignClassOf(runtime: Runtime, files: RuntimeFiles | null, image: string, owned: Owned): InstanceClass {
  const { argv, files: pinned_files = {} } = runtime.foreign;
  const { serving } = runtime;
  const own = serving.kind === "resident" && argv !== undefined ? { ...serving, argv } : serving;
  const base = classOf({ ...runtime, serving: own }, files, image);
  const of_pinned = Object.keys(pinned_files).length === 0 ? [] : [owned.pinned];
  const digest = createHash("sha256").update(JSON.stringify([base.key, owned.tenant_id, pinned_files, ...of_pinned]));
  const key = `${runtime.name}-${digest.digest("hex").slice(0, DIGEST_LENGTH)}`;
  return { ...base, key, foreign: { pinned_files } };
}

/** Returns the class of a runtime on an image, whose id is the digest of its content. `files`: those of the runtime. */
function classOf(runtime: Runtime, files: RuntimeFiles | null, image: string): InstanceClass {
  const { name, serving, scratch_mb = LIMITS.tmpfs_mb } = runtime;
  const resident =
    serving.kind === "resident" ? { argv: serving.argv, open_timeout_ms: serving.open_timeout_ms } : null;
  const content = files?.digest ?? null;
  const digest = createHash("sha256")
    .update(JSON.stringify([image, name, { scratch_mb }, ...(resident === null ? [] : [resident, content])]))
    .digest("hex");
  const key = `${name}-${digest.slice(0, DIGEST_LENGTH)}`;
  return { key, image, scratch_mb, runtime_directory: files?.path ?? null, resident };
}

/** Returns a class whose instances hold GPUs. Two tenants have two classes: the GPUs count for a tenant from the start on. */
function withGpus(of: InstanceClass, { tenant_id, gpu_count: count = 0 }: ClassFields): InstanceClass {
  if (count === 0) return of;
  const digest = createHash("sha256").update(JSON.stringify([of.key, tenant_id, { count }]));
  const key = `${of.key.slice(0, -DIGEST_LENGTH)}${digest.digest("hex").slice(0, DIGEST_LENGTH)}`;
  return { ...of, key, gpus: { tenant_id, count } };
}

export interface ClassesOptions {
  readonly runtimes: ReadonlyMap<string, Runtime>;
  /** Directory of this daemon for the copies of their files. */
  readonly runtimes_directory: string;
  /** What set-up compiled of them: by the name of the runtime, a directory whose files are copied too if it exists. */
  readonly compiled: ReadonlyMap<string, string>;
  /** Returns the id of the image that a profile currently names. */
  readonly imageOf: (profile: string) => string;
  readonly images: Pick<Images, "isRelease" | "state">;
  readonly clock: Clock;
  readonly log: Log;
}

interface Known {
  readonly class: InstanceClass;
  /** The runtime's class on the present image, which stands in for an image that is lost; null: none does. */
  readonly present: InstanceClass | null;
}

/** The fields of a version that its class depends on, beside the image. */
export type ClassFields = Pick<FunctionRecord, "runtime" | "image" | "oci" | "tenant_id"> &
  Partial<Pick<FunctionRecord, "gpu_count">>;

/** An earlier image of a profile, as the store of images had it at the last look. */
interface Earlier {
  /** The store's state at that look; null: the store did not answer. */
  readonly state: string | null;
  readonly isStored: Promise<boolean>;
}

/**
 * The classes of this process: for each runtime one on the present image of its profile, and one on each earlier image that a
 * version names.
 */
export class Classes {
  readonly #options: ClassesOptions;
  /** By the name of the runtime. */
  readonly #files: ReadonlyMap<string, RuntimeFiles>;
  readonly #by_runtime: ReadonlyMap<string, InstanceClass>;
  readonly #by_key: Map<string, Known>;
  /** Earlier images by id. Above the bound, images that the store lacks are evicted first. */
  readonly #earlier = new Map<string, Earlier>();
  readonly #missing = new Set<string>();
  /** Monotonic: until then the store of images is not asked, because it did not answer. */
  #retry_at_ms = 0;

  constructor(options: ClassesOptions) {
    const { runtimes, imageOf } = options;
    this.#options = options;
    this.#files = new Map(
      [...runtimes.values()].flatMap(({ name, directory, programs }) =>
        directory === null ? [] : [[name, this.#install(name, directory, programs)]],
      ),
    );
    this.#by_runtime = new Map(
      [...runtimes.values()].map((one) => [one.name, this.#classOf(one, imageOf(one.profile))]),
    );
    this.#by_key = new Map([...this.#by_runtime.values()].map((one) => [one.key, { class: one, present: one }]));
  }

  get runtimes(): ReadonlyMap<string, Runtime> {
    return this.#options.runtimes;
  }

  /** Returns the class of the instances that serve a new version. */
  of({ runtime }: Pick<ClassFields, "runtime">): InstanceClass {
    const found = this.#by_runtime.get(runtime);
    invariant(found !== undefined, `runtime ${runtime} has a class`);
    return found;
  }

  /** Returns the class of a version on the image with the id `image`. Null: that of a new version without an own image. */
  made(version: ClassFields, image: string | null): InstanceClass {
    return withGpus(this.#madeOf(version, image), version);
  }

  #madeOf(version: ClassFields, image: string | null): InstanceClass {
    const { runtime, tenant_id } = version;
    const present = this.of({ runtime });
    const isOwn = hasOwnImage(version);
    if (image === null || (!isOwn && image === present.image)) return present;
    const made_of = this.#options.runtimes.get(runtime);
    invariant(made_of !== undefined, `runtime ${runtime} is known`);
    if (!isOwn) return this.#classOf(made_of, image);
    const files = this.#files.get(runtime) ?? null;
    return foreignClassOf(made_of, files, image, { tenant_id, pinned: present.image });
  }

  /** Returns the class of a version on `image`, and keeps it for `find` until `release`. */
  register(version: ClassFields, image: string | null): InstanceClass {
    const made = this.made(version, image);
    const known = this.#by_key.get(made.key);
    if (known !== undefined) return known.class;
    this.#by_key.set(made.key, { class: made, present: hasOwnImage(version) ? null : this.made(version, null) });
    return made;
  }

  /** Forgets the class of an own image or with GPUs, once no group has it. Returns false for another one, which stays. */
  release(key: string): boolean {
    const known = this.#by_key.get(key);
    if (known === undefined || (known.present !== null && known.class.gpus === undefined)) return false;
    return this.#by_key.delete(key);
  }

  /**
   * Resolves to the image that serves a version: its own, or null for the present one if the version has none (an earlier
   * program made it) or the store of images lacks it. The store is asked once for each of its states. If it
   * does not answer, the last look holds; without one, the version keeps its image.
   *
   * `is_own`: the version has the image for itself, and no other one stands in for it. Without it, starts fail.
   */
  async available(image: string | null, is_own = false): Promise<string | null> {
    if (is_own || image === null || [...this.#by_runtime.values()].some((one) => one.image === image)) return image;
    const known = this.#earlier.get(image);
    if (known === undefined && !this.#hasRoom()) return null;
    const state = this.#state();
    const isCurrent = known !== undefined && known.state !== null && known.state === state;
    const earlier = isCurrent ? known : { state, isStored: this.#look(image, known) };
    this.#earlier.set(image, earlier);
    return (await earlier.isStored) ? image : null;
  }

  /**
   * Resolves to what an instance of a registered class is made of now: the class, on the present image if the store of
   * images has lost the image of the class. Null: this process makes no such instances.
   */
  async startable(key: string): Promise<InstanceClass | null> {
    const known = this.#by_key.get(key);
    if (known === undefined) return null;
    const { class: of, present } = known;
    if (present === null) return of;
    const image = await this.available(of.image);
    return image === null ? { ...of, image: present.image } : of;
  }

  /** Null if this process makes no instances of the class. */
  find(key: string): InstanceClass | null {
    return this.#by_key.get(key)?.class ?? null;
  }

  #install(name: string, directory: string, programs: Runtime["programs"]): RuntimeFiles {
    const { runtimes_directory, compiled, log } = this.#options;
    const more = compiled.get(name);
    const hasMore = more !== undefined && existsSync(more);
    if (more !== undefined && !hasMore) log.warn("cells compile their runtime: run set-up", { runtime: name });
    return installRuntimeFiles(name, hasMore ? [directory, more] : [directory], runtimes_directory, programs);
  }

  #classOf(runtime: Runtime, image: string): InstanceClass {
    return classOf(runtime, this.#files.get(runtime.name) ?? null, image);
  }

  /** Null if the store of images cannot be asked now. */
  #state(): string | null {
    const { images, clock } = this.#options;
    if (clock.monotonicMs() < this.#retry_at_ms) return null;
    try {
      return images.state();
    } catch {
      return null;
    }
  }

  /** If the store does not answer, the last look holds; without one, the image counts as stored. */
  async #look(image: string, last: Earlier | undefined): Promise<boolean> {
    const { images, clock, log } = this.#options;
    if (clock.monotonicMs() < this.#retry_at_ms) return last?.isStored ?? true;
    try {
      const isStored = await images.isRelease(image, null);
      if (isStored) this.#missing.delete(image);
      else {
        this.#missing.add(image);
        log.warn("versions run on the present image: theirs is not in the store", { image });
      }
      return isStored;
    } catch (error) {
      log.warn("the store of images does not answer: versions keep their image", { image, error: errorText(error) });
      this.#retry_at_ms = clock.monotonicMs() + RETRY_MS;
      const known = this.#earlier.get(image);
      if (known !== undefined) this.#earlier.set(image, { ...known, state: null });
      return last?.isStored ?? true;
    }
  }

  /** Makes room for one image more where it can. */
  #hasRoom(): boolean {
    if (this.#earlier.size < LIMITS.function_images_max) return true;
    const [missing] = this.#missing;
    if (missing === undefined) return false;
    this.#missing.delete(missing);
    return this.#earlier.delete(missing);
  }
}
