/**
 * The settings of a container that its image may give: command, environment, directory, user, stop signal, health check. A
 * given field goes before the image's, and an omitted one is not the same as `/` or root.
 *
 * S1 They are resolved once, when the container is created, and kept with it: an image or a rule of this file that changes
 *    later changes no container.
 */
import type { z } from "zod";
import { unlessRoot } from "../base/container-environment.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { isBelow, plainPath } from "../base/mount-targets.ts";
import type { ImageConfig } from "../engine/ports.ts";
import { argv, containerUser, stopSignal } from "./command-fields.ts";
import type { HealthCheck } from "./health/schema.ts";
import { type CreateContainer, isMountTarget, parseMount, workingDirectory } from "./schema.ts";

export interface ImageSettings {
  /** The whole argv; empty: the container runs until it is stopped. */
  readonly command: readonly string[];
  readonly image_environment: Readonly<Record<string, string>> | null;
  readonly working_directory: string;
  readonly user: string | null;
  /** As it was given: `SIGTERM`, `15`. */
  readonly stop_signal: string;
  readonly exposed_ports: readonly string[];
  readonly declared_volumes: readonly string[];
  readonly writable_paths: readonly string[];
  readonly health: HealthCheck | null;
}

/** Settings of a container without an image of its own, as earlier versions stored it. */
export const PROFILE_SETTINGS: Omit<ImageSettings, "command" | "working_directory"> = {
  image_environment: null,
  user: null,
  stop_signal: "SIGTERM",
  exposed_ports: [],
  declared_volumes: [],
  writable_paths: [],
  health: null,
};

/** Commands of images that only read commands from a terminal. */
const SHELL = /^(?:[\w./-]*\/)?(?:ba|da|a|z|)sh$/;
/** Mounted in every container with a read-only root. */
const SCRATCH_PATHS = ["/tmp", "/run"];

/** `config`: of the container's image; null for a profile. Throws INVALID_ARGUMENT that names the image's field. */
export function imageSettings(given: CreateContainer, config: ImageConfig | null): ImageSettings {
  const user = given.user ?? imageValue("user", containerUser, config?.user);
  const declared_volumes = config?.volumes ?? [];
  return {
    command: commandOf(given, config),
    image_environment: config?.environment ?? null,
    working_directory:
      given.working_directory ?? imageValue("working_directory", workingDirectory, config?.working_directory) ?? "/",
    user: unlessRoot(user ?? null),
    stop_signal: given.stop_signal ?? imageValue("stop_signal", stopSignal, config?.stop_signal) ?? "SIGTERM",
    exposed_ports: config?.exposed_ports ?? [],
    declared_volumes,
    writable_paths: writablePaths(declared_volumes, given.volumes),
    health: healthOf(given, config),
  };
}

/** The rules of the field hold for the image's value too. */
function imageValue(field: keyof CreateContainer, schema: z.ZodType<string>, value: string | null | undefined) {
  if (value === null || value === undefined) return null;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problem = parsed.error.issues[0]?.message ?? "invalid";
  throw new AppError("INVALID_ARGUMENT", `${field} of the image: ${problem}: '${value.slice(0, 200)}'`, {
    hint: `send ${field}`,
  });
}

/**
 * A given entrypoint leaves the image's command out, unless it is empty: that only removes the image's entrypoint. Images of
 * distributions have a shell as their command, for terminals. Without input it would exit at once: the container waits for exec.
 */
function commandOf({ entrypoint, command }: CreateContainer, config: ImageConfig | null): readonly string[] {
  const hasOwn = (entrypoint ?? []).length > 0;
  const first = entrypoint ?? config?.entrypoint ?? [];
  const rest = command ?? (hasOwn ? [] : (config?.command ?? []));
  const whole = [...first, ...rest];
  const isImages = (command ?? null) === null && (entrypoint ?? null) === null;
  if (whole.length === 0 || (isImages && whole.length === 1 && SHELL.test(whole[0] ?? ""))) return [];
  const parsed = argv.safeParse(whole);
  if (parsed.success) return parsed.data;
  const problem = parsed.error.issues[0]?.message ?? "invalid";
  throw new AppError("INVALID_ARGUMENT", `entrypoint and command together: ${problem}`, {
    hint: "send entrypoint and command",
  });
}

/**
 * Declared volumes that stay writable below a read-only root. Those that mounts cover are writable anyway; a path over a
 * folder of the system stays read-only.
 */
function writablePaths(declared: readonly string[], mounts: readonly string[]): readonly string[] {
  const covered = [...SCRATCH_PATHS, ...mounts.map((mount) => parseMount(mount)?.target ?? "/")];
  const paths = declared.map(plainPath).filter((path) => path !== null);
  const kept: string[] = [];
  for (const path of paths.sort()) {
    const isCovered = [...covered, ...kept].some((other) => isBelow(path, other) || isBelow(other, path));
    if (isMountTarget(path) && !isCovered && kept.length < LIMITS.container_volumes_max) kept.push(path);
  }
  return kept;
}

function healthOf({ health }: CreateContainer, config: ImageConfig | null): HealthCheck | null {
  if (health === "none") return null;
  const own = health ?? null;
  const found = config?.health ?? null;
  const command = own?.command ?? found?.command ?? null;
  if (command === null) {
    if (own === null) return null;
    throw new AppError("INVALID_ARGUMENT", "health.command: missing, and the image has no health check", {
      hint: "send health.command",
    });
  }
  return {
    command,
    interval_seconds:
      own?.interval_seconds ??
      seconds(found?.interval_ms, 1, LIMITS.health_interval_seconds_max) ??
      LIMITS.health_interval_seconds_default,
    timeout_seconds:
      own?.timeout_seconds ??
      seconds(found?.timeout_ms, 1, LIMITS.health_timeout_seconds_max) ??
      LIMITS.health_timeout_seconds_default,
    start_period_seconds:
      own?.start_period_seconds ?? seconds(found?.start_period_ms, 0, LIMITS.health_start_period_seconds_max) ?? 0,
    retries: own?.retries ?? atMost(found?.retries, LIMITS.health_retries_max) ?? LIMITS.health_retries_default,
    on_unhealthy: own?.on_unhealthy ?? "none",
  };
}

const atMost = (value: number | null | undefined, max: number) => (value == null ? null : Math.min(max, value));

/** Images count in nanoseconds; checks run at most every second. */
function seconds(ms: number | null | undefined, min: number, max: number): number | null {
  return ms == null ? null : Math.max(min, Math.min(max, Math.ceil(ms / 1_000)));
}
