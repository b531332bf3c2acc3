/**
 * Commands of RUN: each in a container of its own, started for it and killed after it, with the isolation of every container.
 *
 * R1. Nothing of a command survives it but its files: a script is in memory, and what was made for mounts goes (mount-places.ts).
 * R2. Secrets lie on a tmpfs that ends with the container. A file elsewhere is a link to there, which is taken away again.
 */
import { together } from "../../base/concurrency.ts";
import { containerEnvironment } from "../../base/container-environment.ts";
import type { Egress } from "../../base/egress.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ContainerSpec, Containers, FileSession, MemoryDirectory } from "../../engine/ports.ts";
import type { BuildLog } from "./build-log.ts";
import type { HeldMount } from "./cache.ts";
import { resolveOwner } from "./copier.ts";
import {
  checkKinds,
  type MountSources,
  memoryDirectories,
  missingPlaces,
  placedMounts,
  removeMissing,
  type TakenMount,
  takeMounts,
} from "./mount-places.ts";
import { SCRIPT_FILE, SCRIPTS, SECRETS, type SecretMount } from "./mounts.ts";
import { absent } from "./source-files.ts";
import { isFileError, type StageRoot } from "./stage-root.ts";
import type { RunStep } from "./stages.ts";

export interface CommandOptions extends MountSources {
  readonly containers: Containers;
  readonly memory_mb: number;
  readonly disk_mb: number;
  readonly egress: Egress;
  readonly log: BuildLog;
  /** What commands trust, where the image and the build file say nothing else; no part of the image. */
  readonly trusted: Readonly<Record<string, string>>;
  /** Values of the secrets that the request names. */
  readonly secrets: ReadonlyMap<string, Uint8Array>;
}

/** What is mounted for a command. */
interface Mounted {
  readonly volumes: readonly TakenMount[];
  readonly memory: readonly MemoryDirectory[];
}

export interface CommandEnd {
  readonly exit_code: number;
  /** Says more about the end; empty if there is no more. */
  readonly why: string;
}

const NAME = "build";
/** Secrets whose file is elsewhere. */
const LINKED = "/run/secrets/.linked";
const SIGKILL = 9;

/** Runs a command to its end. */
export async function runCommand(root: StageRoot, step: RunStep, options: CommandOptions): Promise<CommandEnd> {
  const { signal } = options;
  const secrets = step.mounts.filter((mount) => mount.type === "secret").filter((mount) => isGiven(mount, options));
  const files = secrets.filter(({ target }) => target !== null);
  const own = [...(files.length > 0 ? [SECRETS] : []), ...(step.script === null ? [] : [SCRIPTS])];
  const session = await root.files();
  for (const { target } of files) await checkParents(session, target ?? "");
  if (step.user !== null) await checkUser(session, step.user);
  const mounts = await placedMounts(session, step.mounts);
  root.closeFiles();
  signal.throwIfAborted();
  const held: HeldMount[] = [];
  try {
    const volumes = await takeMounts(mounts, held, options);
    const memory = [...own.map((target) => ({ target })), ...memoryDirectories(mounts)];
    return await inContainer(root, step, { volumes, memory }, { secrets, files, needsFiles: own.length > 0 }, options);
  } finally {
    await together(...held.map((mount) => mount.release()));
  }
}

/** Runs a command in a container that is killed at its end. */
async function inContainer(
  root: StageRoot,
  step: RunStep,
  mounted: Mounted,
  given: {
    readonly secrets: readonly SecretMount[];
    /** Those of them with a file. */
    readonly files: readonly SecretMount[];
    readonly needsFiles: boolean;
  },
  options: CommandOptions,
): Promise<CommandEnd> {
  const { containers, signal } = options;
  await checkKinds(await root.files(), mounted.volumes);
  const targets = [...mounted.volumes, ...mounted.memory].map(({ target }) => target);
  const missing = await missingPlaces(root, targets);
  root.closeFiles();
  const stop = () => void containers.kill(root.id).catch(() => {});
  signal.addEventListener("abort", stop, { once: true });
  let end: CommandEnd;
  try {
    signal.throwIfAborted();
    const ended = await containers.start(specOf(root, step, mounted, options));
    failpoint("oci.build.started");
    if (ended !== null) throw new AppError("START_FAILED", "the container of the build exited at once");
    signal.throwIfAborted();
    if (given.needsFiles) await placeFiles(root, given.files, step.script, options);
    end = await execute(root, step, given.secrets, options);
  } finally {
    signal.removeEventListener("abort", stop);
    await containers.kill(root.id);
  }
  // A root goes with the build that fails. To open it again may be impossible: its disk may be full.
  if (end.exit_code === 0) await removePlaces(root, given.files, missing);
  return end;
}

/** Throws INVALID_ARGUMENT for a user or group that the root does not know: its container would end at once. */
async function checkUser(files: FileSession, user: string): Promise<void> {
  await resolveOwner(files, user).catch((error: unknown) => {
    if (!isFileError(error)) throw error;
    throw new AppError("INVALID_ARGUMENT", `USER ${user.slice(0, 100)}: ${error.message}`);
  });
}

/** Throws INVALID_ARGUMENT if a directory of a secret is a link: it could lead into a cache, where the secret's link would stay. */
async function checkParents(files: FileSession, target: string): Promise<void> {
  const parts = target.split("/").slice(1, -1);
  for (let count = 1; count <= parts.length; count++) {
    const path = parts.slice(0, count).join("/");
    const found = await files.stat(path).catch(absent);
    if (found === null) return;
    if (found.type === "directory") continue;
    throw new AppError("INVALID_ARGUMENT", `directory of the secret target is a ${found.type}: /${path}`, {
      details: { received: target },
    });
  }
}

function isGiven({ id, is_required }: SecretMount, { secrets }: CommandOptions): boolean {
  if (secrets.has(id)) return true;
  if (!is_required) return false;
  throw new AppError("INVALID_ARGUMENT", `the request names no secret ${id}`, {
    hint: "send its name in secrets (command line: --secret NAME)",
  });
}

function specOf(
  root: StageRoot,
  step: RunStep,
  { volumes, memory }: Mounted,
  { tenant_id, memory_mb, disk_mb, egress }: CommandOptions,
): ContainerSpec {
  return {
    id: root.id,
    tenant_id,
    name: NAME,
    image_id: root.image_id,
    command: [],
    environment: {},
    image_environment: step.environment,
    user: step.user,
    working_directory: "/",
    memory_limit_mb: memory_mb,
    cpu_limit_percent: null,
    disk_limit_mb: disk_mb,
    strict: false,
    read_only_root: false,
    writable_paths: [],
    egress: step.has_network ? egress : "off",
    ports: [],
    network: null,
    dns: false,
    volumes,
    gpu_count: 0,
    gpu_ids: [],
    tmpfs: memory,
  };
}

async function execute(
  root: StageRoot,
  step: RunStep,
  secrets: readonly SecretMount[],
  { containers, log, secrets: values, memory_mb, trusted }: CommandOptions,
): Promise<CommandEnd> {
  const variables = secrets.flatMap(({ id, variable }) =>
    variable === null ? [] : [[variable, text(values.get(id))]],
  );
  const image_environment = { ...trusted, ...step.environment };
  const of = { name: NAME, user: step.user, image_environment, environment: {} };
  const request = {
    argv: step.argv,
    environment: containerEnvironment(of, Object.fromEntries(variables)),
    working_directory: step.working_directory,
    timeout_ms: LIMITS.build_ms,
    grace_ms: 0,
    output_bytes_max: null,
    is_stream: true,
  };
  const onOutput = (stream: "stdout" | "stderr", bytes: Buffer) => {
    log.output(stream, bytes);
    return true;
  };
  const exec = containers.exec(root.id, request, { onOutput });
  try {
    const { exit_code, signal, spawn_failed } = await exec.exited;
    if (spawn_failed) return { exit_code, why: "the command could not be started" };
    return { exit_code, why: signal === SIGKILL ? `killed; the memory limit is ${memory_mb} MiB` : "" };
  } finally {
    exec.close();
    log.flush();
  }
}

const text = (value: Uint8Array | undefined): string => Buffer.from(value ?? []).toString("utf8");

/** Secrets and the script, into the container, which runs: its tmpfs is nowhere else. */
async function placeFiles(
  root: StageRoot,
  files: readonly SecretMount[],
  script: string | null,
  { containers, tenant_id, secrets }: CommandOptions,
): Promise<void> {
  const { session, close } = await containers.openFiles({ id: root.id, tenant_id, image_id: root.image_id });
  try {
    if (script !== null) await session.write(SCRIPT_FILE.slice(1), Buffer.from(script), { mode: 0o755 });
    for (const { id, target, mode, uid, gid } of files) {
      const isDirect = target?.startsWith(`${SECRETS}/`) === true;
      const path = isDirect ? (target ?? "") : `${LINKED}/${id}`;
      await session.write(path.slice(1), secrets.get(id) ?? new Uint8Array(), { mode, uid, gid });
      if (!isDirect) await link(session, target ?? "", path);
    }
  } finally {
    close();
  }
}

async function link(session: FileSession, target: string, path: string): Promise<void> {
  const found = await session.stat(target.slice(1)).catch(absent);
  if (found !== null) throw new AppError("INVALID_ARGUMENT", `secret target exists already: ${target}`);
  await session.symlink(target.slice(1), path);
}

/** R1, R2. What a command put in the place of a link stays, and so does a directory that is not empty. */
async function removePlaces(root: StageRoot, files: readonly SecretMount[], missing: readonly string[]): Promise<void> {
  if (files.length + missing.length === 0) return;
  const session = await root.files();
  for (const { id, target } of files) {
    if (target === null || target.startsWith(`${SECRETS}/`)) continue;
    const found = await session.stat(target.slice(1)).catch(() => null);
    if (found?.target === `${LINKED}/${id}`) await session.remove(target.slice(1));
  }
  await removeMissing(session, missing);
}
