/**
 * Targets of calls, prepared once per version of a function: the pool's group, the command, the fixed part of the
 * environment. Kept in a bounded cache under id and name; every change of the function drops them.
 */
import { LRUCache } from "lru-cache";
import { CODE_INSIDE, RUNTIMES, type Runtime } from "../../runtimes/index.ts";
import { PATH_INSIDE } from "../base/container-environment.ts";
import { invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { FunctionRecord } from "./schema.ts";

/** A version of a function, prepared for its instances and calls. */
export interface Prepared {
  readonly record: FunctionRecord;
  readonly group: string;
  readonly runtime: Runtime;
  /** The command of a call; null for a runtime whose process is resident. */
  readonly argv: readonly string[] | null;
  readonly working_directory: string;
  /** Variables of each call, or of the resident process, before those of the version. */
  readonly environment: Readonly<Record<string, string>>;
}

export interface Target extends Prepared {
  /** Row number in the store; the first half of an invocation's key. */
  readonly function_seq: number;
}

/** The pool's key of one version of one function. */
export function groupKey(function_id: string, version: number): string {
  return `${function_id}@${version}`;
}

/** What `groupKey` was made from; null for another text. */
export function parseGroupKey(key: string): { readonly function_id: string; readonly version: number } | null {
  const [, function_id, version] = /^([^@]+)@(\d+)$/.exec(key) ?? [];
  return function_id === undefined ? null : { function_id, version: Number(version) };
}

/** Environment and directory that a tenant's image gives to calls. */
export interface ImageSettings {
  readonly environment: Readonly<Record<string, string>>;
  /** A directory that exists in the image; null if the image names none. */
  readonly working_directory: string | null;
}

/** The search path of commands. Those of the image come first, so that code replaces none of them unnoticed. */
export function searchPath(
  { code_sha256 }: Pick<FunctionRecord, "code_sha256">,
  settings: ImageSettings | null,
): string {
  const path = settings?.environment.PATH ?? PATH_INSIDE;
  return code_sha256 === null ? path : `${path}:${CODE_INSIDE}`;
}

/** The directory of calls; empty: the root of the image. */
export function callDirectory(
  { working_directory, code_sha256 }: Pick<FunctionRecord, "working_directory" | "code_sha256">,
  settings: ImageSettings | null,
): string {
  return working_directory ?? (code_sha256 === null ? (settings?.working_directory ?? "") : CODE_INSIDE);
}

/** Prepares a version. `record` is the function's with the fields of the version. */
export function prepare(
  record: FunctionRecord,
  settings: ImageSettings | null = null,
  runtimes: ReadonlyMap<string, Runtime> = RUNTIMES,
): Prepared {
  const runtime = runtimes.get(record.runtime);
  invariant(runtime !== undefined, `runtime ${record.runtime} of function ${record.id} exists`);
  return {
    record,
    group: groupKey(record.id, record.version),
    runtime,
    argv: runtime.serving.kind === "process" ? runtime.serving.command(record.handler) : null,
    working_directory: callDirectory(record, settings),
    environment: {
      LANG: "C.UTF-8",
      ...settings?.environment,
      PATH: searchPath(record, settings),
      HOME: "/tmp",
      HEARTH_FUNCTION_NAME: record.name,
      HEARTH_FUNCTION_VERSION: String(record.version),
    },
  };
}

/** Neither can be the other's: no name holds a control character. */
const idKey = (tenant_id: string, id: string): string => `${tenant_id}\n\n${id}`;
const nameKey = (tenant_id: string, name: string): string => `${tenant_id}\n${name}`;

/** Targets by id and by name. A load that began before a change does not enter the cache after it. */
export class TargetCache {
  readonly #cache = new LRUCache<string, Target>({ max: LIMITS.function_cache_entries * 2 });
  #changes = 0;

  byId(tenant_id: string, id: string): Target | undefined {
    return this.#cache.get(idKey(tenant_id, id));
  }

  byName(tenant_id: string, name: string): Target | undefined {
    return this.#cache.get(nameKey(tenant_id, name));
  }

  /** Runs `load` and keeps its result unless some function changed meanwhile. */
  async fill(load: () => Promise<Target>): Promise<Target> {
    const changes = this.#changes;
    const target = await load();
    if (changes === this.#changes) {
      const { tenant_id, id, name } = target.record;
      this.#cache.set(idKey(tenant_id, id), target);
      this.#cache.set(nameKey(tenant_id, name), target);
    }
    return target;
  }

  forget({ tenant_id, id, name }: Pick<FunctionRecord, "tenant_id" | "id" | "name">): void {
    this.#changes++;
    this.#cache.delete(idKey(tenant_id, id));
    this.#cache.delete(nameKey(tenant_id, name));
  }
}
