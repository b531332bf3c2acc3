/**
 * The configuration of an image, parsed from the JSON that the image has. Its author may be anybody: each field is checked for
 * its shape and its size, and an image with a field that is not as the specification says is refused by name.
 *
 * `Healthcheck` is an extension of Docker's image format, which the OCI format lacks.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ImageConfig, ImageHealth } from "../ports/images.ts";

type Fields = Readonly<Record<string, unknown>>;

const NANOSECONDS_PER_MS = 1_000_000;
const SHELL = ["/bin/sh", "-c"];
/** Form of an exposed port; `expose 80` of a build is `80/tcp` in the image. */
const EXPOSED_PORT = /^(\d{1,5})(?:\/(tcp|udp|sctp))?$/;

function invalid(field: string, problem: string): AppError {
  return new AppError("INVALID_ARGUMENT", `config of the image: ${field} ${problem}`, {
    hint: "build the image again with another configuration",
  });
}

/** Returns the refusal of a configuration of so many bytes. */
function configTooLarge(bytes: number): AppError {
  return invalid("JSON", `too large: ${bytes} bytes (limit ${LIMITS.image_config_bytes_max} bytes)`);
}

/** Returns the label that names the release of a profile's image, "" if the image has none. */
export function releaseOf(json: string): string {
  try {
    const { Labels } = fieldsOf("config", member(parsed(json), "config"));
    const release = fieldsOf("Labels", Labels)["hearth.release"];
    return typeof release === "string" ? release : "";
  } catch {
    return "";
  }
}

/** A string of JSON, and what follows it if it is a name whose value is missing or empty. */
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:\s*(null|\[\s*\])?)?/g;

/**
 * True if a configuration has instructions for builds on the image, by any spelling that Go takes for `OnBuild`. `buildah from` carries
 * them out at once, on this machine's files and outside of any container.
 */
export function hasTriggers(json: string): boolean {
  for (const [, name = '""', colon, empty] of json.matchAll(TOKEN)) {
    if (colon === undefined || empty !== undefined) continue;
    if (nameOf(name).toLowerCase() === "onbuild") return true;
  }
  return false;
}

function nameOf(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return "";
  }
}

/** Throws INVALID_ARGUMENT. */
export function parseImageConfig(json: string): ImageConfig {
  const bytes = Buffer.byteLength(json);
  if (bytes > LIMITS.image_config_bytes_max) throw configTooLarge(bytes);
  const config = fieldsOf("config", member(parsed(json), "config"));
  return {
    entrypoint: words("Entrypoint", config.Entrypoint),
    command: words("Cmd", config.Cmd),
    environment: environment(config.Env),
    working_directory: textOrNull("WorkingDir", config.WorkingDir),
    user: textOrNull("User", config.User),
    stop_signal: textOrNull("StopSignal", config.StopSignal),
    exposed_ports: exposedPorts(config.ExposedPorts),
    volumes: names("Volumes", config.Volumes, LIMITS.image_volumes_max),
    health: health(config.Healthcheck, words("Shell", config.Shell)),
  };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (cause) {
    throw new AppError("INVALID_ARGUMENT", "config of the image is not JSON", { cause });
  }
}

const member = (value: unknown, name: string): unknown => fieldsOf("JSON", value)[name];

/** Returns the fields of an object; none for a missing one. */
function fieldsOf(name: string, value: unknown): Fields {
  if (value === undefined || value === null) return {};
  if (typeof value !== "object" || Array.isArray(value)) throw invalid(name, "is not an object");
  return value as Fields;
}

/** Returns a text that the kernel takes; null for a missing or an empty one, which the specification treats alike. */
function textOrNull(name: string, value: unknown): string | null {
  if (value === undefined || value === null || value === "") return null;
  if (typeof value !== "string") throw invalid(name, "is not a text");
  if (value.includes("\0")) throw invalid(name, "contains a NUL character");
  const bytes = Buffer.byteLength(value);
  if (bytes > LIMITS.path_bytes_max) {
    throw invalid(name, `too large: ${bytes} bytes (limit ${LIMITS.path_bytes_max} bytes)`);
  }
  return value;
}

function texts(name: string, value: unknown, count_max: number): readonly string[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || !value.every((one) => typeof one === "string")) {
    throw invalid(name, "is not a list of texts");
  }
  if (value.length > count_max) throw invalid(name, `too long: ${value.length} entries (limit ${count_max})`);
  if (value.some((one) => one.includes("\0"))) throw invalid(name, "contains a NUL character");
  return value;
}

/** Returns arguments of a command. */
function words(name: string, value: unknown): readonly string[] {
  const all = texts(name, value, LIMITS.arguments_max);
  const largest = all.reduce((most, one) => Math.max(most, Buffer.byteLength(one)), 0);
  if (largest > LIMITS.argument_bytes_max) {
    throw invalid(name, `argument too large: ${largest} bytes (limit ${LIMITS.argument_bytes_max} bytes)`);
  }
  return all;
}

/** A variable without a value is one that the image does not set. Of two with a name the later one counts. */
function environment(value: unknown): ImageConfig["environment"] {
  const entries = texts("Env", value, Number.POSITIVE_INFINITY);
  const bytes = entries.reduce((sum, one) => sum + Buffer.byteLength(one) + 1, 0);
  if (bytes > LIMITS.environment_bytes_max) {
    throw invalid("Env", `too large: ${bytes} bytes (limit ${LIMITS.environment_bytes_max} bytes)`);
  }
  if (entries.length > LIMITS.environment_entries_max) {
    throw invalid("Env", `too long: ${entries.length} entries (limit ${LIMITS.environment_entries_max})`);
  }
  const pairs = entries.map((one) => [one, one.indexOf("=")] as const).filter(([, at]) => at > 0);
  return Object.fromEntries(pairs.map(([one, at]) => [one.slice(0, at), one.slice(at + 1)]));
}

/** Returns the names of an object's fields, as ports and volumes are written. */
function names(name: string, value: unknown, count_max: number): readonly string[] {
  const all = Object.keys(fieldsOf(name, value));
  return texts(name, all, count_max).map((one) => textOrNull(name, one) ?? "");
}

function exposedPorts(value: unknown): readonly string[] {
  return names("ExposedPorts", value, LIMITS.image_ports_max).map((port) => {
    const [, number, protocol = "tcp"] = EXPOSED_PORT.exec(port) ?? [];
    if (number === undefined || Number(number) < 1 || Number(number) > 65_535) {
      throw invalid("ExposedPorts", `malformed: '${port.slice(0, 100)}' (expected a port like 80/tcp)`);
    }
    return `${Number(number)}/${protocol}`;
  });
}

/** `["NONE"]` switches a check of a base image off; an empty test has none. */
function health(value: unknown, shell: readonly string[]): ImageHealth | null {
  const fields = fieldsOf("Healthcheck", value);
  const [kind, ...rest] = words("Healthcheck.Test", fields.Test);
  if (kind === undefined || kind === "NONE") return null;
  const isShell = kind === "CMD-SHELL";
  if (!isShell && kind !== "CMD") {
    throw invalid("Healthcheck.Test", `unknown: '${kind.slice(0, 100)}' (expected CMD, CMD-SHELL or NONE)`);
  }
  if (rest.length === 0 || rest[0] === "" || (isShell && rest.length !== 1)) {
    throw invalid("Healthcheck.Test", isShell ? "expected one text behind CMD-SHELL" : "has no command");
  }
  return {
    command: isShell ? [...(shell.length === 0 ? SHELL : shell), ...rest] : rest,
    interval_ms: duration("Healthcheck.Interval", fields.Interval),
    timeout_ms: duration("Healthcheck.Timeout", fields.Timeout),
    start_period_ms: duration("Healthcheck.StartPeriod", fields.StartPeriod),
    retries: numberOrNull("Healthcheck.Retries", fields.Retries),
  };
}

/** Zero means the default, as a missing number does. */
function numberOrNull(name: string, value: unknown): number | null {
  if (value === undefined || value === null || value === 0) return null;
  if (typeof value !== "number" || !Number.isFinite(value) || value < 0) throw invalid(name, "is not a number above 0");
  return Math.ceil(value);
}

function duration(name: string, value: unknown): number | null {
  const nanoseconds = numberOrNull(name, value);
  return nanoseconds === null ? null : Math.ceil(nanoseconds / NANOSECONDS_PER_MS);
}
