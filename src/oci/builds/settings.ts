/** The configuration of an image that is being built: what its base gives, changed by one instruction after the other. */
import { z } from "zod";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { detailsOf } from "../image-config.ts";
import type { Flag } from "./build-file.ts";
import { invalidLine } from "./build-file.ts";
import type { Command } from "./instructions.ts";

/** Fields of Docker's configuration that an image's record does not show. */
const extra = z.object({
  config: z
    .object({
      StopSignal: z.string().nullish(),
      Shell: z.array(z.string()).nullish(),
      Healthcheck: z.record(z.string(), z.unknown()).nullish(),
      OnBuild: z.array(z.string()).nullish(),
    })
    .nullish(),
});

const DEFAULT_SHELL: readonly string[] = ["/bin/sh", "-c"];
const PORT = /^(\d{1,5})(?:-(\d{1,5}))?(?:\/(tcp|udp|sctp))?$/i;
const DURATION = /(\d+(?:\.\d+)?)(h|m(?!s)|s|ms|us|ns)/gy;
const NANOSECONDS: Readonly<Record<string, number>> = { h: 3.6e12, m: 6e10, s: 1e9, ms: 1e6, us: 1e3, ns: 1 };

export class Settings {
  readonly environment: Map<string, string>;
  readonly labels: Map<string, string>;
  readonly exposed: Set<string>;
  readonly volumes: Set<string>;
  user: string | null;
  working_directory: string;
  command: readonly string[] | null;
  entrypoint: readonly string[] | null;
  stop_signal: string | null;
  shell: readonly string[];
  health: Readonly<Record<string, unknown>> | null;
  /** Instructions for stages that begin with this one (ONBUILD). */
  triggers: readonly string[];
  /** True while the command is the base's: an ENTRYPOINT then takes it away. */
  #hasOwnCommand = false;

  private constructor(from: Pick<Settings, SettingName>) {
    this.environment = new Map(from.environment);
    this.labels = new Map(from.labels);
    this.exposed = new Set(from.exposed);
    this.volumes = new Set(from.volumes);
    this.user = from.user;
    this.working_directory = from.working_directory;
    this.command = from.command;
    this.entrypoint = from.entrypoint;
    this.stop_signal = from.stop_signal;
    this.shell = from.shell;
    this.health = from.health;
    this.triggers = from.triggers;
  }

  static empty(): Settings {
    return new Settings({
      environment: new Map(),
      labels: new Map(),
      exposed: new Set(),
      volumes: new Set(),
      user: null,
      working_directory: "/",
      command: null,
      entrypoint: null,
      stop_signal: null,
      shell: DEFAULT_SHELL,
      health: null,
      triggers: [],
    });
  }

  /** Those of an image. Throws IMAGE_INVALID. */
  static of(config_json: string): Settings {
    const details = detailsOf(config_json);
    const parsed = extra.safeParse(JSON.parse(config_json));
    if (!parsed.success) throw new AppError("IMAGE_INVALID", "invalid configuration of the base image");
    const config = parsed.data.config ?? {};
    const variables = details.env.map((one) => [one, one.indexOf("=")] as const).filter(([, at]) => at > 0);
    return new Settings({
      environment: new Map(variables.map(([one, at]) => [one.slice(0, at), one.slice(at + 1)])),
      labels: new Map(Object.entries(details.labels)),
      exposed: new Set(details.exposed_ports),
      volumes: new Set(details.volumes),
      user: details.user_spec,
      working_directory: details.working_dir ?? "/",
      command: details.default_cmd,
      entrypoint: details.entrypoint,
      stop_signal: config.StopSignal ?? null,
      shell: config.Shell ?? DEFAULT_SHELL,
      health: config.Healthcheck ?? null,
      triggers: config.OnBuild ?? [],
    });
  }

  /** Those for a stage that begins with this one. */
  copy(): Settings {
    return new Settings(this);
  }

  argv(command: Command): readonly string[] {
    return "argv" in command ? command.argv : [...this.shell, command.line];
  }

  setCommand(command: Command): void {
    this.command = this.argv(command);
    this.#hasOwnCommand = true;
  }

  setEntrypoint(command: Command): void {
    this.entrypoint = this.argv(command);
    if (!this.#hasOwnCommand) this.command = null;
  }

  expose(word: string, line: number): void {
    const [, first = "", last = first, protocol = "tcp"] = PORT.exec(word) ?? [];
    const [begin, end] = [Number(first), Number(last)];
    if (first === "" || begin < 1 || end < begin || end > 65_535) {
      throw invalidLine(line, `malformed port: '${word.slice(0, 100)}' (expected a port like 80/tcp)`);
    }
    if (end - begin >= LIMITS.image_ports_max) throw invalidLine(line, `too many ports: ${word}`);
    for (let port = begin; port <= end; port++) this.exposed.add(`${port}/${protocol.toLowerCase()}`);
  }

  setHealth(command: Command | null, flags: readonly Flag[], line: number): void {
    if (command === null) {
      this.health = { Test: ["NONE"] };
      return;
    }
    const value = (name: string) => flags.find((flag) => flag.name === name)?.value ?? null;
    const time = (name: string) => duration(value(name), `--${name}`, line);
    const retries = value("retries") ?? "0";
    if (!/^\d{1,4}$/.test(retries)) throw invalidLine(line, "HEALTHCHECK --retries must be a number");
    this.health = {
      Test: "argv" in command ? ["CMD", ...command.argv] : ["CMD-SHELL", command.line],
      ...nonZero({ Interval: time("interval"), Timeout: time("timeout"), StartPeriod: time("start-period") }),
      ...nonZero({ StartInterval: time("start-interval") }),
      ...nonZero({ Retries: Number(retries) }),
    };
  }

  /** The `config` of an image's configuration. Fields are in a fixed order: the same settings give the same bytes. */
  toJson(): Record<string, unknown> {
    const names = (set: ReadonlySet<string>) => Object.fromEntries([...set].sort().map((name) => [name, {}]));
    const isDefaultShell = JSON.stringify(this.shell) === JSON.stringify(DEFAULT_SHELL);
    return {
      ...(this.user === null ? {} : { User: this.user }),
      ...(this.exposed.size === 0 ? {} : { ExposedPorts: names(this.exposed) }),
      ...(this.environment.size === 0 ? {} : { Env: [...this.environment].map(([name, value]) => `${name}=${value}`) }),
      ...(this.entrypoint === null ? {} : { Entrypoint: this.entrypoint }),
      ...(this.command === null ? {} : { Cmd: this.command }),
      ...(this.volumes.size === 0 ? {} : { Volumes: names(this.volumes) }),
      WorkingDir: this.working_directory,
      ...(this.labels.size === 0 ? {} : { Labels: Object.fromEntries([...this.labels].sort()) }),
      ...(this.stop_signal === null ? {} : { StopSignal: this.stop_signal }),
      ...(isDefaultShell ? {} : { Shell: this.shell }),
      ...(this.health === null ? {} : { Healthcheck: this.health }),
      ...(this.triggers.length === 0 ? {} : { OnBuild: this.triggers }),
    };
  }
}

type SettingName =
  | "environment"
  | "labels"
  | "exposed"
  | "volumes"
  | "user"
  | "working_directory"
  | "command"
  | "entrypoint"
  | "stop_signal"
  | "shell"
  | "health"
  | "triggers";

const nonZero = (fields: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== 0));

/** Nanoseconds of `1m30s`; 0 for none. */
function duration(text: string | null, name: string, line: number): number {
  if (text === null) return 0;
  let [at, sum] = [0, 0];
  DURATION.lastIndex = 0;
  for (let match = DURATION.exec(text); match !== null; match = DURATION.exec(text)) {
    sum += Number(match[1]) * (NANOSECONDS[match[2] ?? ""] ?? 0);
    at = DURATION.lastIndex;
  }
  if (text === "" || at !== text.length || !Number.isSafeInteger(Math.round(sum))) {
    throw invalidLine(line, `HEALTHCHECK ${name} must be a duration like 30s`);
  }
  return Math.round(sum);
}
