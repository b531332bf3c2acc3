/** `RUN --mount=…`: caches, secrets and tmpfs. */
import { LIMITS } from "../../base/limits.ts";
import { isBelow, nestedTargets, plainPath, targetProblem } from "../../base/mount-targets.ts";
import { invalidLine } from "./build-file.ts";

export type RunMount =
  | { readonly type: "cache"; readonly id: string; readonly target: string }
  | {
      readonly type: "secret";
      /** Name of the tenant's secret. */
      readonly id: string;
      /** Path of the file; null: none, the value is in a variable alone. */
      readonly target: string | null;
      readonly variable: string | null;
      readonly is_required: boolean;
      readonly mode: number;
      readonly uid: number;
      readonly gid: number;
    }
  | { readonly type: "tmpfs"; readonly target: string };

const KEYS: Readonly<Record<string, readonly string[]>> = {
  cache: ["type", "id", "target", "dst", "destination", "sharing"],
  secret: ["type", "id", "target", "dst", "destination", "required", "mode", "uid", "gid", "env"],
  tmpfs: ["type", "target", "dst", "destination", "size"],
};
/** Directory in memory that holds the secrets of a command. */
export const SECRETS = "/run/secrets";
/** Directory in memory that holds the script of a command, and the file in it. */
export const SCRIPTS = "/run/script";
export const SCRIPT_FILE = `${SCRIPTS}/run`;
const ID = /^[\w.-]{1,128}$/;
const VARIABLE = /^[A-Za-z_]\w*$/;

/** Parses `type=…,key=value`. Throws INVALID_ARGUMENT. */
export function runMount(text: string, line: number): RunMount {
  const refuse = (why: string) => invalidLine(line, `RUN --mount: ${why}`);
  const fields = new Map<string, string>();
  for (const part of text.split(",")) {
    const at = part.indexOf("=");
    fields.set(at < 0 ? part : part.slice(0, at), at < 0 ? "true" : part.slice(at + 1));
  }
  const type = fields.get("type") ?? "bind";
  const known = KEYS[type];
  if (known === undefined) throw refuse(`type=${type.slice(0, 40)} is not supported (expected cache, secret or tmpfs)`);
  const wrong = [...fields.keys()].find((key) => !known.includes(key));
  if (wrong !== undefined) throw refuse(`${wrong.slice(0, 40)} of type=${type} is not supported`);
  const given = fields.get("target") ?? fields.get("dst") ?? fields.get("destination") ?? null;
  if (given !== null && (!given.startsWith("/") || given.includes("$"))) {
    throw refuse(`target must be an absolute path without variables: '${given.slice(0, 100)}'`);
  }
  const target = given === null ? null : (plainPath(given) ?? given);
  const problem = target === null ? null : targetProblem(target);
  if (problem !== null) throw refuse(`target ${problem}: '${(given ?? "").slice(0, 100)}'`);
  if (type === "secret") return secretMount(fields, target, refuse);
  if (target === null) throw refuse(`type=${type} needs a target`);
  if (type === "tmpfs") return { type, target };
  const id = fields.get("id") ?? target;
  if (id.length > LIMITS.build_cache_id_length_max) throw refuse("id is too long");
  return { type: "cache", id, target };
}

/**
 * Throws INVALID_ARGUMENT for a cache or secret at or below another: the content of a cache is the tenant's, and what lies in it
 * stays. A directory in memory may hold both.
 */
export function checkNested(mounts: readonly RunMount[], line: number): void {
  const refuse = (inner: string, outer: string) =>
    invalidLine(
      line,
      `RUN --mount: target must not be at or below another mount: '${inner.slice(0, 100)}' in '${outer.slice(0, 100)}'`,
    );
  const targets = mounts.flatMap(({ type, target }) => (type === "tmpfs" || target === null ? [] : [target]));
  const nested = nestedTargets(targets);
  if (nested !== null) throw refuse(nested.inner, nested.outer);
  const hasFiles = mounts.some(({ type, target }) => type === "secret" && target !== null);
  const inMemory = mounts.flatMap((mount) => (mount.type === "tmpfs" ? [mount.target] : []));
  for (const path of hasFiles ? [...inMemory, SECRETS] : inMemory) {
    const outer = mounts.find(({ type, target }) => type === "cache" && target !== null && isBelow(path, target));
    if (outer !== undefined) throw refuse(path, outer.target ?? "");
  }
  if (!hasFiles) return;
  const inside = mounts.find(({ type, target }) => type !== "secret" && target !== null && isBelow(target, SECRETS));
  if (inside !== undefined) throw refuse(inside.target ?? "", SECRETS);
}

function secretMount(
  fields: ReadonlyMap<string, string>,
  given: string | null,
  refuse: (why: string) => Error,
): RunMount {
  const id = fields.get("id") ?? given?.split("/").at(-1) ?? "";
  if (!ID.test(id)) throw refuse(`type=secret needs the id of a secret: '${id.slice(0, 100)}'`);
  const variable = fields.get("env") ?? null;
  if (variable !== null && !VARIABLE.test(variable)) throw refuse("env is not a name of a variable");
  const target = given ?? (variable === null ? `${SECRETS}/${id}` : null);
  const number = (key: string, base: number, otherwise: number) => {
    const text = fields.get(key);
    if (text === undefined) return otherwise;
    const value = /^\d{1,5}$/.test(text) ? Number.parseInt(text, base) : Number.NaN;
    if (Number.isNaN(value) || value > 65_535) throw refuse(`${key} must be a number`);
    return value;
  };
  const is_required = (fields.get("required") ?? "false") === "true";
  const ids = { mode: number("mode", 8, 0o400) & 0o777, uid: number("uid", 10, 0), gid: number("gid", 10, 0) };
  return { type: "secret", id, target, variable, is_required, ...ids };
}
