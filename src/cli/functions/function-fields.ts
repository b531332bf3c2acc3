/**
 * The fields of a function as flags. A test holds this table against the schema of the API: a field without a flag, or
 * one that can be null and not be cleared, fails it.
 */
import { parseEnv } from "node:util";
import { usage } from "../session/failure.ts";
import { readInput } from "../session/input.ts";
import type { Flags } from "../session/session.ts";
import { collect, type Flag, number } from "../session/verb.ts";

interface Field {
  readonly name: string;
  /** What stands behind the flag; null for one that is on or off. */
  readonly value: string | null;
  readonly about: string;
  readonly isNumber?: boolean;
  /** Turns the text of the flag into the value of the field. */
  readonly read?: (text: string) => unknown;
  /** Whether an update may clear it with `--no-…`. */
  readonly isNullable?: boolean;
}

const words = (text: string): string[] => text.split(",").filter((word) => word !== "");

export const FIELDS: readonly Field[] = [
  { name: "handler", value: "<line>", about: "command line, file.mjs#export or file.py:function, by the runtime" },
  { name: "runtime", value: "<name>", about: "runtime that runs the handler (shell)" },
  {
    name: "image",
    value: "<image>",
    about: "image of the instances: a profile (prod), or with --oci one of your images",
    isNullable: true,
  },
  { name: "oci", value: null, about: "take the image from your OCI images" },
  { name: "description", value: "<text>", about: "description of the function", isNullable: true },
  { name: "memory_limit_mb", value: "<mb>", about: "memory limit of an instance in MiB", isNumber: true },
  {
    name: "cpu_limit_percent",
    value: "<percent>",
    about: "CPU limit of an instance in percent of one core",
    isNumber: true,
    isNullable: true,
  },
  { name: "timeout_seconds", value: "<s>", about: "timeout of a call in seconds", isNumber: true },
  { name: "min_instances", value: "<n>", about: "minimum number of instances, kept warm", isNumber: true },
  { name: "max_instances", value: "<n>", about: "maximum number of instances", isNumber: true },
  {
    name: "concurrency_limit",
    value: "<n>",
    about: "maximum number of calls waiting or running at once",
    isNumber: true,
    isNullable: true,
  },
  { name: "working_directory", value: "<path>", about: "working directory of the handler", isNullable: true },
  {
    name: "secrets",
    value: "<names>",
    about: "secrets that instances have as files in /run/secrets, comma-separated",
    read: words,
  },
  {
    name: "egress",
    value: "<rules>",
    about: "outbound traffic of instances: on, off, or allowed addresses, comma-separated",
    read: (text) => (text === "on" || text === "off" ? text : words(text)),
  },
  {
    name: "instance_concurrency",
    value: "<n>",
    about: "calls that an instance serves at the same time (1)",
    isNumber: true,
  },
  {
    name: "instance_calls_max",
    value: "<n>",
    about: "calls after which an instance is replaced",
    isNumber: true,
    isNullable: true,
  },
  {
    name: "reset_between_calls",
    value: null,
    about: "end what calls of a resident process leave behind, and empty /tmp",
  },
  { name: "gpu_count", value: "<n>", about: "GPUs that each instance holds alone", isNumber: true },
  {
    name: "protocol",
    value: "<name>",
    about: "how a program of the runtime custom takes calls: http or lambda",
    isNullable: true,
  },
  { name: "code_sha256", value: "<digest>", about: "digest of uploaded code", isNullable: true },
  { name: "note", value: "<text>", about: "note of the version", isNullable: true },
  { name: "api_access", value: null, about: "give the handler HEARTH_URL and HEARTH_KEY" },
  { name: "cleanup_on_exit", value: null, about: "end what a command leaves behind, and empty /tmp (default)" },
];

const flagName = (field: string) => field.replaceAll("_", "-");
/** As commander names the value of a flag. */
const attribute = (field: string) => field.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** What `--no-env` leaves in the list: names before it do not count, the function's own neither. */
const CLEARED = "";

const ENVIRONMENT: readonly Flag[] = [
  {
    flags: "-e, --env <NAME=VALUE>",
    about: "set a variable in the handler's environment; repeatable",
    parse: (text, previous) => collect(text, previous === false ? [CLEARED] : previous),
  },
  {
    flags: "--env-secret <NAME=SECRET>",
    about: "set a variable from a secret; repeatable",
    parse: collect,
  },
  { flags: "--env-file <file>", about: "read variables from a file of NAME=VALUE lines; repeatable", parse: collect },
];

const HANDLER_FILE: Flag = {
  flags: "--handler-file <file>",
  about: "read the handler from a file, also a script with a #! line; - for standard input",
};

function fieldFlags(isUpdate: boolean): Flag[] {
  return FIELDS.flatMap(({ name, value, about, ...field }) => {
    const flag = flagName(name);
    const positive: Flag = {
      flags: value === null ? `--${flag}` : `--${flag} ${value}`,
      about,
      ...(field.isNumber ? { parse: number } : {}),
      ...(field.read === undefined ? {} : { parse: field.read }),
    };
    const hasNegative = value === null || (isUpdate && field.isNullable === true);
    return hasNegative
      ? [positive, { flags: `--no-${flag}`, about: value === null ? "turn it off" : "clear the field" }]
      : [positive];
  });
}

export const CREATE_FLAGS: readonly Flag[] = [...fieldFlags(false), HANDLER_FILE, ...ENVIRONMENT];
/** Flags for the version that an update makes. */
const SMOKE: readonly Flag[] = [
  {
    flags: "--smoke <payload>",
    about: "call the new version with this payload; activate it only if the call succeeds",
    parse: (text) => ({ payload: text }),
  },
  { flags: "--no-smoke", about: "activate the new version without a call (default)" },
];

export const UPDATE_FLAGS: readonly Flag[] = [
  ...fieldFlags(true),
  ...SMOKE,
  HANDLER_FILE,
  ...ENVIRONMENT,
  { flags: "--unset-env <NAME>", about: "remove this variable; repeatable", parse: collect },
  { flags: "--no-env", about: "remove all current variables, then set the given ones" },
];

/** `NAME=VALUE` pairs as a map. */
export function pairs(list: readonly string[], flag = "--env"): Record<string, string> {
  return Object.fromEntries(
    list.map((pair) => {
      const at = pair.indexOf("=");
      if (at < 1) throw usage(`${flag} expects NAME=VALUE, got '${pair}'`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

/** Variables of a function: texts, and secrets by name. */
type Variables = Record<string, string | { readonly secret: string }>;

/** The variables of `--env-file`, of `--env` on top of them, and of `--env-secret`. */
export async function variablesOf(flags: Flags): Promise<Variables | undefined> {
  const texts = await environmentOf(flags);
  const secrets = pairs((flags.envSecret ?? []) as string[], "--env-secret");
  const named = Object.entries(secrets).map(([name, secret]) => [name, { secret }]);
  return texts === undefined && named.length === 0 ? undefined : { ...texts, ...Object.fromEntries(named) };
}

/**
 * The variables of `--env-file`, and of `--env` on top of them. `own`: a name alone is the caller's variable, and left out where
 * the caller has none, as docker has it; without, a name alone is refused.
 */
export async function environmentOf(
  flags: Flags,
  own?: (name: string) => string | undefined,
): Promise<Record<string, string> | undefined> {
  const files = (flags.envFile ?? []) as string[];
  const given = flags.env === false ? [] : ((flags.env ?? []) as string[]).filter((pair) => pair !== CLEARED);
  if (files.length === 0 && given.length === 0) return undefined;
  const read: NodeJS.Dict<string>[] = [];
  for (const file of files) read.push(parseEnv(await readInput(file)));
  const full = own === undefined ? given : given.flatMap((pair) => withOwn(pair, own));
  return { ...(Object.assign({}, ...read) as Record<string, string>), ...pairs(full) };
}

function withOwn(pair: string, own: (name: string) => string | undefined): string[] {
  if (pair === "" || pair.includes("=")) return [pair];
  const value = own(pair);
  return value === undefined ? [] : [`${pair}=${value}`];
}

export interface EnvironmentChange {
  readonly isCleared: boolean;
  readonly unset: readonly string[];
  readonly set: Readonly<Variables>;
}

/** What an update does to the environment; null: nothing. */
export async function environmentChange(flags: Flags): Promise<EnvironmentChange | null> {
  const isCleared = flags.env === false || (Array.isArray(flags.env) && flags.env[0] === CLEARED);
  const unset = (flags.unsetEnv ?? []) as string[];
  const set = await variablesOf(flags);
  return isCleared || unset.length > 0 || set !== undefined ? { isCleared, unset, set: set ?? {} } : null;
}

/** The fields that flags give; null for one that was cleared. What was not given is not there. */
export async function fieldsOf(flags: Flags): Promise<Record<string, unknown>> {
  const fields: Record<string, unknown> = {};
  for (const { name, value } of FIELDS) {
    const given = flags[attribute(name)];
    if (given !== undefined) fields[name] = given === false && value !== null ? null : given;
  }
  if (flags.smoke !== undefined && flags.smoke !== false) fields.smoke = flags.smoke;
  const file = flags.handlerFile as string | undefined;
  if (file !== undefined) {
    if (fields.handler !== undefined)
      throw usage("--handler and --handler-file exclude each other", "give one of them");
    fields.handler = (await readInput(file)).replace(/\n$/, "");
  }
  return fields;
}
