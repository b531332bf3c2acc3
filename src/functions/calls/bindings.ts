/**
 * What ties an instance to a version: its limits, code, secrets and egress, and for a resident process the handler that it
 * loads. The launcher binds each instance once.
 *
 * B1. An instance is marked on the host before anything of the version runs in it, so that no later process takes it for a
 *     cell. One with an attachment and without a mark is removed by the engine.
 * B2. The code of a version is held while an instance has it.
 * B3. The code cache of a version is what the first of its processes answered to its bind, before any call. It goes to
 *     processes of that version alone. It is dropped when one of them does not load, or ends in a call: it may be why.
 */
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText, invariant } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Adopted, Instance, Instances } from "../../engine/ports.ts";
import type { FunctionRecord } from "../schema.ts";
import type { Prepared } from "../target.ts";
import { CodeCaches } from "./code-caches.ts";
import { type Ending, failedEnding, rounded } from "./outcome.ts";
import { bindResident } from "./residents.ts";

/** The part of the concern of secrets that bindings use. */
export interface SecretValues {
  /** Resolves to the values of a tenant's secrets, which the caller owns. Rejects with NOT_FOUND that names the missing ones. */
  values(tenant_id: string, names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>>;
}

/** The part of the concern of code that bindings use. */
export interface HeldCode {
  /** Keeps the files of a digest until the returned function is called. */
  hold(digest: string): () => void;
  /** Rejects with NOT_FOUND if the files of a digest are gone from the disk. After an error that this would explain. */
  check(digest: string): Promise<void>;
}

export interface Bound {
  /** Variables of the version, with the values of its secrets as they were when the instance was bound. */
  readonly environment: Readonly<Record<string, string>>;
  /** Why no call can run in the instance; null: calls can. */
  readonly fault: Ending | null;
  readonly cell_ms: number;
  /** Null without a resident process. */
  readonly load_ms: number | null;
}

export interface BindingsOptions {
  readonly instances: Instances;
  readonly clock: Clock;
  readonly secrets: SecretValues;
  readonly code: HeldCode;
}

export class Bindings {
  readonly #options: BindingsOptions;
  readonly #versions = new Map<string, Prepared>();
  /** By instance (B2). */
  readonly #holds = new Map<string, () => void>();
  /** By group: why its handler could not be loaded the last time. */
  readonly #faults = new Map<string, Ending>();
  readonly #caches = new CodeCaches();

  constructor(options: BindingsOptions) {
    this.#options = options;
  }

  /** Sets what instances of a group are bound to. Before the pool learns of the group. */
  set(version: Prepared): void {
    // A version that did not come to be had the same group.
    if (this.#versions.get(version.group)?.record.code_sha256 !== version.record.code_sha256) {
      this.#caches.delete(version.group);
    }
    this.#versions.set(version.group, version);
  }

  /** The process of a group's version ended in a call, or had to be ended (B3). */
  suspect(group: string): void {
    this.#caches.delete(group);
  }

  forget(group: string): void {
    this.#versions.delete(group);
    this.#faults.delete(group);
    this.#caches.delete(group);
  }

  /** The version of an open group; null for another group. */
  recordOf(group: string): FunctionRecord | null {
    return this.#versions.get(group)?.record ?? null;
  }

  /** Why the handler of a group could not be loaded the last time; null if it was loaded, or never tried. */
  faultOf(group: string): Ending | null {
    return this.#faults.get(group) ?? null;
  }

  /**
   * Binds an instance to the version of a group; at once if the version needs its limits alone. Throws, or rejects, with
   * START_FAILED when the instance cannot be bound. That its handler cannot be loaded, or a secret is missing, is a fault.
   */
  bind(instance: Instance, group: string, hasOomKill: () => boolean): Bound | Promise<Bound> {
    const version = this.#version(group);
    const begun_ms = this.#options.clock.monotonicMs();
    failpoint("functions.bind.begun");
    const own = isPlain(version) ? plainEnvironment(version.record) : null;
    const environment = own && withGpus(instance, own);
    if (environment === null) return this.#furnish(instance, version, begun_ms, hasOomKill);
    this.#mark(instance, version);
    return { environment, fault: null, load_ms: null, cell_ms: this.#options.clock.monotonicMs() - begun_ms };
  }

  /**
   * Takes over what an earlier process had bound. Throws when the instance cannot be limited, or lacks what its version needs.
   * Null: the group is not open, and the pool ends its instances.
   */
  adopt({ instance, is_furnished }: Adopted, group: string): Bound | Promise<Bound> | null {
    const version = this.#versions.get(group);
    if (version === undefined) return null;
    if (!is_furnished && instance.resident !== null) throw new AppError("START_FAILED", "it was not bound to the end");
    this.#hold(instance, version.record);
    // It may have been marked and not yet limited.
    this.#limit(instance, version.record);
    const environment = plainEnvironment(version.record);
    const bound = { fault: null, load_ms: null, cell_ms: 0 };
    if (environment === null) return this.#readopt(instance, version, bound);
    return { ...bound, environment: withGpus(instance, environment) };
  }

  async #readopt(instance: Instance, version: Prepared, bound: Omit<Bound, "environment">): Promise<Bound> {
    const values = await this.#secrets(version.record);
    return values instanceof Map
      ? { ...bound, environment: withGpus(instance, resolved(version.record.environment, values)) }
      : { ...bound, environment: {}, fault: values };
  }

  /** An instance is gone. */
  release(instance_id: string): void {
    this.#holds.get(instance_id)?.();
    this.#holds.delete(instance_id);
  }

  #version(group: string): Prepared {
    const version = this.#versions.get(group);
    invariant(version !== undefined, `group ${group} has a version`);
    return version;
  }

  /** B1. */
  #mark(instance: Instance, { group, record }: Prepared): void {
    exiting(() => {
      this.#options.instances.mark(instance, group);
      failpoint("functions.bind.marked");
      this.#limit(instance, record);
      failpoint("functions.bind.limited");
    });
  }

  #limit(instance: Instance, { tenant_id, memory_limit_mb, cpu_limit_percent }: FunctionRecord): void {
    this.#options.instances.limit(instance, { memory_limit_mb, cpu_limit_percent });
    this.#options.instances.attribute(instance, tenant_id);
  }

  #hold(instance: Instance, { code_sha256 }: FunctionRecord): void {
    if (code_sha256 !== null) this.#holds.set(instance.id, this.#options.code.hold(code_sha256));
  }

  /** Gives an instance code, secrets and egress, and lets its process load the handler. */
  async #furnish(instance: Instance, version: Prepared, begun_ms: number, hasOomKill: () => boolean): Promise<Bound> {
    const { instances, clock } = this.#options;
    const { record, group } = version;
    const values = await this.#found(instance, record);
    if (!(values instanceof Map)) return this.#faulty(group, values, { begun_ms, load_ms: null });
    const environment = withGpus(instance, resolved(record.environment, values));
    try {
      const tooLarge = secretFilesFault(record, values);
      if (tooLarge !== null) return this.#faulty(group, tooLarge, { begun_ms, load_ms: null });
      if (record.code_sha256 !== null || record.secrets.length > 0 || record.egress !== "on") {
        const files = new Map(record.secrets.map((name) => [name, values.get(name) ?? new Uint8Array()]));
        await instances.attach(instance, { code: record.code_sha256, secrets: files, egress: record.egress });
        failpoint("functions.bind.attached");
      }
    } catch (error) {
      const lost = await this.#lostCode(record);
      if (lost === null) throw error;
      return this.#faulty(group, lost, { begun_ms, load_ms: null });
    } finally {
      for (const value of values.values()) value.fill(0);
    }
    this.#mark(instance, version);
    const cell_ms = clock.monotonicMs() - begun_ms;
    if (instance.resident === null) return { environment, fault: null, load_ms: null, cell_ms };
    const cache = hasCodeCache(version) ? this.#caches.get(group) : null;
    const loading = bindResident(instance.resident, version, environment, hasOomKill, cache);
    const { fault, load_ms, made } = await loading.catch((error) => {
      this.suspect(group);
      throw error;
    });
    if (fault !== null) {
      this.suspect(group);
      return this.#faulty(group, fault, { begun_ms, load_ms });
    }
    if (made !== null && this.#versions.get(group) === version) this.#caches.keep(group, record.tenant_id, made);
    failpoint("functions.bind.loaded");
    this.#faults.delete(group);
    exiting(() => instances.furnished(instance));
    return { environment, fault: null, load_ms, cell_ms };
  }

  /** Holds the code of a version and reads its secrets. Returns the ending of its calls where one of them does not exist. */
  #found(instance: Instance, record: FunctionRecord): Promise<Map<string, Uint8Array> | Ending> {
    return orMissing(() => {
      this.#hold(instance, record);
      return this.#secrets(record);
    });
  }

  /** Returns the ending of calls whose code is gone from the disk; null: it is there. */
  async #lostCode({ code_sha256 }: FunctionRecord): Promise<Ending | null> {
    if (code_sha256 === null) return null;
    return orMissing(() => this.#options.code.check(code_sha256).then(() => null));
  }

  /** The values of all secrets of a version, or the ending of its calls where one does not exist. */
  async #secrets(record: FunctionRecord): Promise<Map<string, Uint8Array> | Ending> {
    const names = secretNames(record);
    if (names.length === 0) return new Map();
    return orMissing(async () => new Map(await this.#options.secrets.values(record.tenant_id, names)));
  }

  #faulty(
    group: string,
    fault: Ending,
    { begun_ms, load_ms }: { readonly begun_ms: number; readonly load_ms: number | null },
  ): Bound {
    if (this.#versions.has(group)) this.#faults.set(group, fault);
    const cell_ms = rounded(this.#options.clock.monotonicMs() - begun_ms - (load_ms ?? 0));
    return { environment: {}, fault, load_ms, cell_ms };
  }
}

/** Runs a step on the host that fails if the instance is removed meanwhile. Throws START_FAILED. */
function exiting(step: () => void): void {
  try {
    step();
  } catch (cause) {
    throw new AppError("START_FAILED", `the instance exited before it was bound: ${errorText(cause)}`, { cause });
  }
}

function hasCodeCache({ record, runtime }: Prepared): boolean {
  return runtime.hasCodeCache?.(record.handler, record.code_size_bytes ?? 0) ?? false;
}

/** Returns what `read` gives, or the ending of calls to a version of which a part does not exist. */
async function orMissing<T>(read: () => Promise<T>): Promise<T | Ending> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof AppError && error.code === "NOT_FOUND") return failedEnding(errorText(error));
    throw error;
  }
}

/** Returns the ending of calls whose secrets are too large to be files; null: they fit. Secrets change without a version. */
function secretFilesFault({ secrets }: FunctionRecord, values: ReadonlyMap<string, Uint8Array>): Ending | null {
  const bytes = secrets.reduce((sum, name) => sum + (values.get(name)?.length ?? 0), 0);
  const bytes_max = LIMITS.secret_files_bytes_max;
  if (bytes <= bytes_max) return null;
  return failedEnding(`the secrets that are files have ${bytes} bytes together (limit ${bytes_max / 1024} KiB)`);
}

/** True for a version that needs nothing of an instance but its limits. */
function isPlain({ record, runtime }: Prepared): boolean {
  const { code_sha256, egress } = record;
  return runtime.serving.kind === "process" && code_sha256 === null && egress === "on" && record.secrets.length === 0;
}

/** The variables of a version if none has a secret for its value; null otherwise. */
function plainEnvironment({ environment }: FunctionRecord): Readonly<Record<string, string>> | null {
  const hasSecret = Object.values(environment).some((value) => typeof value !== "string");
  return hasSecret ? null : (environment as Readonly<Record<string, string>>);
}

/** Returns the variables of a version with those of the GPUs of its instance, which override them, as in a container. */
function withGpus({ gpu_environment }: Instance, own: Readonly<Record<string, string>>): Bound["environment"] {
  return gpu_environment === undefined ? own : { ...own, ...gpu_environment };
}

/** Names of all secrets of a version, as files and in its environment. */
export function secretNames({ secrets, environment }: Pick<FunctionRecord, "secrets" | "environment">): string[] {
  const names = new Set(secrets);
  for (const value of Object.values(environment)) if (typeof value !== "string") names.add(value.secret);
  return [...names];
}

function resolved(
  environment: FunctionRecord["environment"],
  values: ReadonlyMap<string, Uint8Array>,
): Record<string, string> {
  const texts = Object.entries(environment).map(([name, value]) => [
    name,
    typeof value === "string" ? value : Buffer.from(values.get(value.secret) ?? []).toString(),
  ]);
  return Object.fromEntries(texts);
}
