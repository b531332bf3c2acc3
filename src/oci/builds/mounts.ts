/**
 * `RUN --mount=…`: files of the context, of a stage or an image, caches, secrets and tmpfs, as the reference of Dockerfiles has them.
 *
 * M1. Options may have variables, but for `from`: what a stage needs is known before it is evaluated. A relative target lies in the
 *     working directory.
 */
import { posix } from "node:path";
import { LIMITS } from "../../base/limits.ts";
import { isBelow, nestedTargets, targetProblem } from "../../base/mount-targets.ts";
import { invalidLine } from "./build-file.ts";

/** Where the files of a mount come from. */
export interface MountOrigin {
  /** Name or number of a stage, or an image; null: the context. */
  readonly from: string | null;
  /** Relative to the root of `from`; empty for all of it. */
  readonly source: string;
}

/** `locked`: one command at a time; `private`: one that nothing else uses. */
export type Sharing = "shared" | "private" | "locked";

export interface CacheMount {
  readonly type: "cache";
  readonly id: string;
  readonly target: string;
  readonly sharing: Sharing;
  readonly is_read_only: boolean;
  /** Its files at first; null: none. */
  readonly origin: MountOrigin | null;
  /** Of its directory at first; null: 0755, or as in `origin`. */
  readonly mode: number | null;
  readonly uid: number | null;
  readonly gid: number | null;
}

export interface BindMount {
  readonly type: "bind";
  readonly target: string;
  readonly origin: MountOrigin;
  /** Otherwise what is written into it ends with the command. */
  readonly is_read_only: boolean;
}

export interface SecretMount {
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

export interface TmpfsMount {
  readonly type: "tmpfs";
  readonly target: string;
  /** Null: as any directory in memory. */
  readonly size_bytes: number | null;
}

export type RunMount = BindMount | CacheMount | SecretMount | TmpfsMount;
type Type = RunMount["type"];

/** A mount as written: its options, by their first names. */
export interface MountText {
  readonly type: Type;
  readonly from: string | null;
  readonly options: ReadonlyMap<string, string>;
}

/** What an option is about besides its text. */
interface Reading {
  readonly options: ReadonlyMap<string, string>;
  readonly refuse: (why: string) => Error;
}

const KEYS: Readonly<Record<Type, readonly string[]>> = {
  bind: ["type", "target", "source", "from", "readonly", "readwrite"],
  cache: ["type", "id", "target", "source", "from", "readonly", "readwrite", "sharing", "mode", "uid", "gid"],
  secret: ["type", "id", "target", "required", "mode", "uid", "gid", "env"],
  tmpfs: ["type", "target", "size"],
};
const OTHER_NAMES: Readonly<Record<string, string>> = {
  dst: "target",
  destination: "target",
  src: "source",
  ro: "readonly",
  rw: "readwrite",
};
/** Those that mean `true` without a value. */
const SWITCHES = new Set(["readonly", "readwrite", "required"]);
const SHARINGS: readonly string[] = ["shared", "private", "locked"] satisfies readonly Sharing[];
/** Directory in memory that holds the secrets of a command. */
export const SECRETS = "/run/secrets";
/** Directory in memory that holds the script of a command, and the file in it. */
export const SCRIPTS = "/run/script";
export const SCRIPT_FILE = `${SCRIPTS}/run`;
const ID = /^[\w.-]{1,128}$/;
const VARIABLE = /^[A-Za-z_]\w*$/;
const SIZE = /^(\d{1,15})([kmgt]?)i?b?$/i;
const UNITS = ["", "k", "m", "g", "t"];

const refusal = (line: number) => (why: string) => invalidLine(line, `RUN --mount: ${why}`);

/** Reads `type=…,key=value`. Throws INVALID_ARGUMENT. */
export function mountText(text: string, line: number): MountText {
  const refuse = refusal(line);
  const options = new Map<string, string>();
  for (const part of text.split(",")) {
    const at = part.indexOf("=");
    const written = (at < 0 ? part : part.slice(0, at)).toLowerCase();
    const key = OTHER_NAMES[written] ?? written;
    if (at < 0 && !SWITCHES.has(key)) throw refuse(`${written.slice(0, 40)} needs a value`);
    options.set(key, at < 0 ? "true" : part.slice(at + 1));
  }
  const type = (options.get("type") ?? "bind").toLowerCase();
  if (type === "ssh") throw refuse("type=ssh is not supported (mount a key with type=secret)");
  if (!isType(type)) throw refuse(`unknown type: '${type.slice(0, 40)}' (expected ${Object.keys(KEYS).join(", ")})`);
  const wrong = [...options.keys()].find((key) => !KEYS[type].includes(key));
  if (wrong !== undefined) throw refuse(`${wrong.slice(0, 40)} of type=${type} is not supported`);
  const from = options.get("from") ?? null;
  if (from?.includes("$") === true) throw refuse("from must not have variables (name a stage with FROM … AS)");
  return { type, from: from === "" ? null : from, options };
}

/** True if the options can be checked before the variables and the working directory of the stage are known. */
export function isFixed({ type, options }: MountText): boolean {
  const target = options.get("target");
  const isKnown = target === undefined ? type !== "bind" : target.startsWith("/");
  return isKnown && ![...options.values()].some((value) => /[$'"\\`]/.test(value));
}

const isType = (text: string): text is Type => Object.hasOwn(KEYS, text);

/** Interprets the options of a mount, their variables replaced (M1). Throws INVALID_ARGUMENT. */
export function runMount(
  { type, from, options: written }: MountText,
  { expand, working_directory, line }: { expand: (text: string) => string; working_directory: string; line: number },
): RunMount {
  const refuse = refusal(line);
  const options = new Map([...written].map(([key, value]) => [key, key === "from" ? value : expand(value)]));
  const of = { options, refuse };
  const target = targetOf(of, type, working_directory);
  if (type === "secret") return secretMount(of, target);
  if (target === null) throw refuse(`type=${type} needs a target`);
  if (type === "tmpfs") return { type, target, size_bytes: sizeOf(of) };
  const is_read_only = switched(of, "readonly") ?? !(switched(of, "readwrite") ?? type === "cache");
  const source = posix.resolve("/", options.get("source") ?? "").slice(1);
  if (type === "bind") return { type, target, origin: { from, source }, is_read_only };
  const id = options.get("id") ?? target;
  if (id.length > LIMITS.build_cache_id_length_max) throw refuse("id is too long");
  if (from === null && source !== "") throw refuse("source of type=cache needs from");
  const sharing = options.get("sharing")?.toLowerCase() ?? "shared";
  if (!isSharing(sharing)) throw refuse(`unknown sharing: '${sharing.slice(0, 40)}' (expected ${SHARINGS.join(", ")})`);
  const origin = from === null || from === "scratch" ? null : { from, source };
  const ids = {
    mode: numberOf(of, "mode", 8, null),
    uid: numberOf(of, "uid", 10, null),
    gid: numberOf(of, "gid", 10, null),
  };
  return { type, id, target, sharing, is_read_only, origin, ...ids };
}

const isSharing = (text: string): text is Sharing => SHARINGS.includes(text);

/** Null: there is none. That of a bind is then the working directory. */
function targetOf({ options, refuse }: Reading, type: Type, working_directory: string): string | null {
  const given = options.get("target") ?? (type === "bind" ? "." : null);
  if (given === null) return null;
  const target = posix.resolve(working_directory, given);
  const problem = targetProblem(target);
  if (problem !== null) throw refuse(`target ${problem}: '${given.slice(0, 100)}'`);
  return target;
}

function switched({ options, refuse }: Reading, key: string): boolean | null {
  const text = options.get(key)?.toLowerCase();
  if (text === undefined) return null;
  if (["true", "t", "1"].includes(text)) return true;
  if (["false", "f", "0"].includes(text)) return false;
  throw refuse(`${key} must be true or false: '${text.slice(0, 40)}'`);
}

function numberOf<Otherwise>(
  { options, refuse }: Reading,
  key: "mode" | "uid" | "gid",
  base: number,
  otherwise: Otherwise,
): number | Otherwise {
  const text = options.get(key);
  if (text === undefined) return otherwise;
  const isNumber = base === 8 ? /^[0-7]{1,5}$/.test(text) : /^\d{1,5}$/.test(text);
  const value = isNumber ? Number.parseInt(text, base) : Number.NaN;
  if (Number.isNaN(value) || value > 65_535) throw refuse(`${key} must be a number`);
  return key === "mode" ? value & 0o7777 : value;
}

/** Bytes of `64m`, units of 1,024. */
function sizeOf({ options, refuse }: Reading): number | null {
  const text = options.get("size");
  if (text === undefined) return null;
  const [, digits = "", unit = ""] = SIZE.exec(text) ?? [];
  if (digits === "") throw refuse(`size must be a number of bytes like 64m: '${text.slice(0, 40)}'`);
  return Number(digits) * 1024 ** UNITS.indexOf(unit.toLowerCase()) || null;
}

/**
 * What is wrong with mounts at or below each other; null if nothing is. The content of a bind, cache or secret is the tenant's, and
 * what lies in a cache stays. A directory in memory may hold them.
 */
export function nestedProblem(mounts: readonly RunMount[]): string | null {
  const problem = (inner: string, outer: string) =>
    `target must not be at or below another mount: '${inner.slice(0, 100)}' in '${outer.slice(0, 100)}'`;
  const targets = mounts.flatMap(({ type, target }) => (type === "tmpfs" || target === null ? [] : [target]));
  const nested = nestedTargets(targets);
  if (nested !== null) return problem(nested.inner, nested.outer);
  const hasFiles = mounts.some(({ type, target }) => type === "secret" && target !== null);
  const inMemory = mounts.flatMap((mount) => (mount.type === "tmpfs" ? [mount.target] : []));
  const owned = mounts.flatMap((mount) => (mount.type === "cache" || mount.type === "bind" ? [mount.target] : []));
  for (const path of hasFiles ? [...inMemory, SECRETS] : inMemory) {
    const outer = owned.find((target) => isBelow(path, target));
    if (outer !== undefined) return problem(path, outer);
  }
  if (!hasFiles) return null;
  const inside = [...owned, ...inMemory].find((target) => isBelow(target, SECRETS));
  return inside === undefined ? null : problem(inside, SECRETS);
}

/** Throws INVALID_ARGUMENT for what `nestedProblem` finds. */
export function checkNested(mounts: readonly RunMount[], line: number): void {
  const problem = nestedProblem(mounts);
  if (problem !== null) throw refusal(line)(problem);
}

function secretMount(of: Reading, given: string | null): SecretMount {
  const { options, refuse } = of;
  const id = options.get("id") ?? given?.split("/").at(-1) ?? "";
  if (!ID.test(id)) throw refuse(`type=secret needs the id of a secret: '${id.slice(0, 100)}'`);
  const variable = options.get("env") ?? null;
  if (variable !== null && !VARIABLE.test(variable)) throw refuse("env is not a name of a variable");
  const target = given ?? (variable === null ? `${SECRETS}/${id}` : null);
  const ids = { uid: numberOf(of, "uid", 10, 0), gid: numberOf(of, "gid", 10, 0) };
  const mode = numberOf(of, "mode", 8, 0o400) & 0o777;
  return { type: "secret", id, target, variable, is_required: switched(of, "required") ?? false, mode, ...ids };
}
