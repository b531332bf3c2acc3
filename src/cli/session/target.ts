/**
 * Which daemon is meant and with which key: from flags, the environment, a profile, or this machine's daemon, in that
 * order. The one place of the command line that reads the environment.
 *
 * S1. A key goes only where it belongs: a profile's to the profile's URL, this machine's key file to this machine. With
 *     another URL a key has to be named.
 * S2. What was chosen keeps the word where it came from, for messages. A key itself is in no message.
 */
import { readFileSync, statSync } from "node:fs";
import { homedir, networkInterfaces } from "node:os";
import { isAbsolute, join } from "node:path";
import { Failure, usage } from "./failure.ts";
import { strangerAt } from "./listener.ts";
import { type Profile, Profiles } from "./profiles.ts";

/** Where the URL came from when nothing was said. */
export const THIS_MACHINE = "the default, this machine";
export const URL_OF_THIS_MACHINE = "http://127.0.0.1:8700";

/** The flags that every command takes. */
export interface TargetFlags {
  readonly url?: string;
  /** The key itself is never a flag: every user of the machine can read the arguments of a process. */
  readonly keyFile?: string;
  readonly profile?: string;
}

/** What the environment says; an empty variable says nothing. */
export interface Environment {
  readonly url: string | null;
  readonly key: string | null;
  readonly profile: string | null;
  /** The daemon's own settings, where it runs on this machine. */
  readonly bootstrap_key: string | null;
  /** The file that the daemon of this machine keeps its key in, or is given it by. */
  readonly key_file: string;
  readonly config_dir: string;
  readonly isDumbTerminal: boolean;
}

export interface Target {
  readonly url: string;
  readonly url_source: string;
  readonly key: string;
  readonly key_source: string;
}

/** A variable of the caller, for a command that passes it on by its name. */
export function callersVariable(name: string): string | undefined {
  return process.env[name];
}

export function readEnvironment(variables: Readonly<Record<string, string | undefined>> = process.env): Environment {
  const read = (name: string) => variables[name] || null;
  const config = read("XDG_CONFIG_HOME");
  return {
    url: read("HEARTH_URL"),
    key: read("HEARTH_KEY"),
    profile: read("HEARTH_PROFILE"),
    bootstrap_key: read("HEARTH_BOOTSTRAP_KEY"),
    key_file: read("HEARTH_BOOTSTRAP_KEY_FILE") ?? join(read("HEARTH_DATA_DIR") ?? "/var/lib/hearth", "key"),
    // The XDG base directory specification has relative paths ignored.
    config_dir: join(config !== null && isAbsolute(config) ? config : join(homedir(), ".config"), "hearth"),
    isDumbTerminal: read("TERM") === "dumb",
  };
}

export function profilesOf(environment: Environment): Profiles {
  return new Profiles(join(environment.config_dir, "profiles.json"));
}

/** The URL as it is used; throws a usage failure for what is none. */
export function checkUrl(url: string, source: string): string {
  const parsed = URL.parse(url);
  if (parsed === null || !/^https?:$/.test(parsed.protocol)) {
    throw usage(`invalid URL: '${url}' (${source})`, `give a URL like ${URL_OF_THIS_MACHINE}`);
  }
  return url.replace(/\/+$/, "");
}

interface NamedProfile extends Profile {
  readonly source: string;
}

function chosenProfile(flags: TargetFlags, environment: Environment): NamedProfile | null {
  const profiles = profilesOf(environment);
  const asked = flags.profile ?? environment.profile;
  const name = asked ?? profiles.read().current;
  if (name === null) return null;
  return { ...profiles.get(name), source: `profile '${name}'` };
}

/** Where requests go. Throws a usage failure where no key can be found for that place. */
export function readTarget(flags: TargetFlags, environment: Environment): Target {
  const isProfileFirst = flags.profile !== undefined;
  const profile = isAllGiven(flags, environment) ? null : chosenProfile(flags, environment);
  const ofProfile = profile === null ? null : ([profile.url, profile.source] as const);
  const ofEnvironment = environment.url === null ? null : ([environment.url, "HEARTH_URL"] as const);
  const [given, url_source] =
    (flags.url === undefined ? null : ([flags.url, "--url"] as const)) ??
    (isProfileFirst ? (ofProfile ?? ofEnvironment) : (ofEnvironment ?? ofProfile)) ??
    ([URL_OF_THIS_MACHINE, THIS_MACHINE] as const);
  const url = checkUrl(given, url_source);
  const key =
    (flags.keyFile === undefined ? null : ([readKeyFile(flags.keyFile), "--key-file"] as const)) ??
    (isProfileFirst ? (profileKey(profile, url) ?? environmentKey(environment)) : null) ??
    environmentKey(environment) ??
    profileKey(profile, url) ??
    machineKey(environment, url);
  if (key === null) {
    throw usage(
      `no key for ${url} (${url_source})`,
      "give a key with --key-file or HEARTH_KEY, or save one: hearth login --url <url>",
    );
  }
  return { url, url_source, key: key[0], key_source: key[1] };
}

type Found = readonly [key: string, source: string] | null;

/** The key in a file, `-` for standard input. Throws a usage failure for what cannot be read or is no key. */
export function readKeyFile(file: string): string {
  const name = file === "-" ? "standard input" : file;
  try {
    return checkKey(readFileSync(file === "-" ? 0 : file, "utf8").trim());
  } catch (error) {
    throw error instanceof Failure ? error : usage(`cannot read ${name}: ${(error as Error).message}`);
  }
}

/** The key as it is sent; throws a usage failure that does not show it. */
export function checkKey(key: string): string {
  if (!/^[\x21-\x7e]+$/.test(key)) throw usage("invalid key: empty, or with a space or a non-printable character");
  return key;
}

/** Then a profile changes nothing, and one that cannot be read is no matter. */
function isAllGiven(flags: TargetFlags, environment: Environment): boolean {
  if (flags.profile !== undefined) return false;
  return (flags.url ?? environment.url) !== null && (flags.keyFile ?? environment.key) !== null;
}

function environmentKey({ key }: Environment): Found {
  return key === null ? null : [key, "HEARTH_KEY"];
}

/** S1. */
function profileKey(profile: NamedProfile | null, url: string): Found {
  return profile !== null && profile.url === url ? [profile.key, profile.source] : null;
}

/** S1: the key that the daemon of this machine has made or been given. */
function machineKey({ bootstrap_key, key_file }: Environment, url: string): Found {
  const { hostname, port, protocol } = new URL(url);
  if (!isThisMachine(hostname)) return null;
  const own = [0, process.getuid?.() ?? 0];
  if (bootstrap_key !== null) {
    refuseStranger(url, port || protocol, own);
    return [bootstrap_key, "HEARTH_BOOTSTRAP_KEY"];
  }
  try {
    const key = readFileSync(key_file, "utf8").trim();
    refuseStranger(url, port || protocol, [...own, statSync(key_file).uid]);
    return [key, key_file];
  } catch (error) {
    if (error instanceof Failure) throw error;
    const isDenied = (error as NodeJS.ErrnoException).code === "EACCES";
    throw usage(
      isDenied
        ? `no permission to read the key of this machine's daemon: ${key_file}`
        : `no key: ${key_file} does not exist`,
      isDenied
        ? "run as root, or give a key with --key-file, HEARTH_KEY or 'hearth login'"
        : "start the daemon once with 'npm start', or give a key with --key-file, HEARTH_KEY or 'hearth login'",
    );
  }
}

/** S1: not to a port of this machine that another user has taken. */
function refuseStranger(url: string, port_or_protocol: string, trusted: readonly number[]): void {
  const port = { "http:": 80, "https:": 443 }[port_or_protocol] ?? Number(port_or_protocol);
  const uid = strangerAt(port, trusted);
  if (uid === null) return;
  throw usage(
    `key not sent: user ${uid} listens at ${url}, not the daemon of this machine`,
    "if you trust this listener, give a key with --key-file or HEARTH_KEY",
  );
}

function isThisMachine(hostname: string): boolean {
  const address = hostname.replace(/^\[|\]$/g, "");
  if (/^(localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0|::)$/.test(address)) return true;
  return Object.values(networkInterfaces()).some((own) => own?.some((one) => one.address === address));
}
