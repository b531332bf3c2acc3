/**
 * Shapes of the container concern as zod schemas: requests and records. Those of commands in a container are in
 * exec/schema.ts.
 */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { isBelow, nestedTargets, plainPath, targetProblem } from "../base/mount-targets.ts";
import {
  absolutePath,
  acknowledgement,
  cpuLimit,
  egress,
  environment,
  isoTime,
  labels,
  memoryLimit,
  nextCursor,
  refused,
  renameBody,
  text,
  textBytes,
  unused,
  whole,
} from "../base/schema.ts";
import {
  argumentList,
  argv,
  complaintAboutCommand,
  containerUser,
  signalNumber,
  stopSignal,
} from "./command-fields.ts";
import { complaintAboutDesktop } from "./desktop.ts";
import { complaintAboutHealth, healthRecord, wantedHealth } from "./health/schema.ts";
import { complaintAboutName, containerName, networkName, publishedPort, wantedPorts } from "./network/schema.ts";
import { CONTAINER_STATES } from "./states.ts";

/** Directories whose files a mount or a working directory must not cover. */
const MOUNT_REFUSED = ["/", "/bin", "/sbin", "/lib", "/lib64", "/usr", "/proc", "/sys", "/dev", "/etc"];
const DIRECTORY_REFUSED = ["/proc", "/sys", "/dev", "/boot", "/var/run", "/var/log"];

export const workingDirectory = absolutePath
  .refine((value) => plainPath(value) !== null, { error: "must not contain '..'" })
  .refine((value) => !DIRECTORY_REFUSED.some((folder) => isBelow(plainPath(value) ?? "/", folder)), {
    error: `must not be in ${DIRECTORY_REFUSED.join(", ")}`,
  });

/** True for a target of a mount that covers no folder of the system. */
export const isMountTarget = (target: string): boolean =>
  targetProblem(target) === null && !MOUNT_REFUSED.some((folder) => folder !== "/" && isBelow(target, folder));

/** Splits `<volume>:<path>`; null where it is not that. */
export function parseMount(value: string): { readonly volume: string; readonly target: string } | null {
  const at = value.indexOf(":");
  const target = plainPath(value.slice(at + 1));
  if (at < 1 || !value.slice(at + 1).startsWith("/") || target === null) return null;
  return { volume: value.slice(0, at), target };
}

const mount = textBytes(LIMITS.path_bytes_max)
  .refine((value) => parseMount(value) !== null, { error: "must be <volume-name>:<absolute path>" })
  .refine((value) => !(parseMount(value)?.volume ?? "").includes("/"), {
    error: "must not name a folder of the machine",
    params: { hint: "create a volume by POST /api/volumes, mount it, and copy the folder into it" },
  })
  .refine((value) => !(parseMount(value)?.target ?? "").includes(":"), {
    error: "must not have ':' in the target: options such as ':ro' are not supported",
  })
  .refine((value) => isMountTarget(parseMount(value)?.target ?? "/"), {
    error: `must not have a target at or below ${MOUNT_REFUSED.join(", ")}`,
  });

const mounts = z
  .array(mount)
  .max(LIMITS.container_volumes_max)
  .refine((all) => new Set(all.map((one) => parseMount(one)?.target)).size === all.length, {
    error: "must not mount two volumes at the same path",
  })
  .refine((all) => nestedTargets(all.map((one) => parseMount(one)?.target ?? "/")) === null, {
    error: "must not mount a volume inside another",
  });

export { argv };

/** What the dynamic loader reads before anything else of a command runs: whoever sets it runs code in every command. */
const LOADER_VARIABLES = /^(LD_.*|GLIBC_TUNABLES)$/;

export const containerEnvironment = environment.refine(
  (map) => !Object.keys(map).some((name) => LOADER_VARIABLES.test(name)),
  { error: "must not set variables of the dynamic loader (LD_*, GLIBC_TUNABLES)" },
);

/**
 * A name with its registry, tag or digest, or an id, and nothing else: it becomes an argument of buildah. What begins with a
 * dash would be a flag there (--cpu-profile=/etc/passwd writes that file, as root), and one with a transport
 * (containers-storage:[…]) would lead out of the store.
 */
const IMAGE_REFERENCE = /^[A-Za-z0-9][\w.-]*(?:[/:@][\w.-]+)*$/;

/** The path parameter of every route of one container. */
export const byContainer = z.object({
  container_id: z.string().meta({ description: "Id or name of the container.", examples: ["ctr_c1v8hx2m9qk4te7b"] }),
});

const SIGKILL = 9;
const RESTART_POLICIES = ["no", "on-failure", "always"] as const;

const ABOUT = {
  name: "Name, unique among the tenant's containers; without '/', control characters, and leading or trailing spaces, not of the form of an id, and not beginning with queue:, topic:, binding: or state:.",
  working_directory:
    "Working directory of commands; created if it does not exist. Default: the image's with oci, or /.",
  memory_limit_mb: "Memory limit in MiB.",
  cpu_limit_percent: "CPU limit in percent of one core; null means no limit, in requests and records.",
  strict: "Hardening: no capabilities, and a narrower seccomp filter.",
  read_only_root: "Mounts the root file system read-only; /tmp and /run are then empty at each start.",
  labels: "Labels for clients; the daemon ignores them.",
  restart: "Restart policy when the command ends: never, after a failure, or always.",
  ttl_seconds: "Seconds after which the daemon deletes the container; null means never.",
  idle_seconds:
    "Seconds without exec, stream or terminal after which the daemon stops the container; null means never.",
  disk_limit_mb: `Disk limit of its files in MiB. Default: ${LIMITS.disk_limit_mb_default} or the node's setting; no limit (null) for tenants without disk_mb_max.`,
  ports: "Published ports; other containers cannot reach them.",
  network:
    "Private network: containers of the tenant that name the same one reach each other on all ports, by address and as <name>, <name>.<network> or with .hearth.internal behind. It exists while a container names it. Default: none; other containers are unreachable.",
  dns: "True: the container and all others of the tenant with dns: true resolve each other's names. Only a common network makes them reachable.",
  egress:
    "Allowed outbound traffic. on: everything outside. off: none, not even name servers. Or a list of addresses and networks, optionally with ports and protocol, such as 203.0.113.0/24:443/tcp. This machine, containers of no common network, and link-local addresses are never reachable.",
  user: "User of all commands, as <user> or <user>:<group>, each a name or a number in the container's /etc/passwd and /etc/group; without a group also the groups that list the user. Default: the image's with oci, or root.",
  stop_signal: "Signal that asks the command to end. Default: the image's with oci, or SIGTERM.",
  attach: `True: the output of the first run waits for a client that attaches (GET /ws/containers/…/attach), ${LIMITS.attach_hold_ms / 1_000} s at most.`,
  stdin:
    "With attach: the command of the first run has a standard input, which the attached client writes. Otherwise it is empty.",
  gpu_count: "Number of GPUs that the container holds while it runs.",
  gpu_ids: "Ids of the GPUs, as many as gpu_count. Without them the daemon chooses free ones.",
} as const;

/** A vendor's word and a number (src/engine/gpu/inventory.ts). */
const GPU_ID = /^[a-z]{1,32}\d{1,3}$/;

/** Any shape that is no GPU request is a bad value (interface, errors), whatever its JSON type. */
function complaintAboutGpus({
  gpu_count,
  gpu_ids,
  strict,
}: {
  gpu_count?: unknown;
  gpu_ids?: unknown;
  strict: boolean;
}) {
  const count = gpu_count ?? 0;
  if (typeof count !== "number" || !Number.isInteger(count) || count < 0 || count > LIMITS.gpus_max) {
    return { field: "gpu_count", message: `expected a whole number from 0 to ${LIMITS.gpus_max}` };
  }
  if (gpu_ids !== undefined && gpu_ids !== null) {
    const isList = Array.isArray(gpu_ids) && gpu_ids.every((id) => typeof id === "string" && GPU_ID.test(id));
    if (!isList || new Set(gpu_ids).size !== gpu_ids.length) {
      return {
        field: "gpu_ids",
        message: "expected different ids like nvidia0",
        hint: "send gpu_count without ids for any GPUs",
      };
    }
    if (gpu_ids.length !== count) return { field: "gpu_ids", message: "must contain as many GPUs as gpu_count" };
  }
  if (count > 0 && strict) return { field: "strict", message: "cannot be combined with GPUs" };
  return null;
}

/** Of a route that works before it answers. */
const directMode = refused(
  "is not supported on this route: use the query execution=async",
  "Must be null: use the query execution=async.",
);

/** Of a route that hands its work to an operation. */
const asyncMode = z.boolean().optional().describe("Ignored: the query execution decides.");

const createFields = z.object({
  name: containerName.describe(ABOUT.name),
  image: text(LIMITS.image_reference_length_max)
    .regex(IMAGE_REFERENCE, "expected a profile, or a reference like docker.io/library/alpine:3.20")
    .default("prod")
    .describe("Image: a profile, or with oci the reference or id of an image that the tenant pulled."),
  oci: z.boolean().default(false).describe("True if image is an OCI image of the tenant."),
  volumes: mounts.default([]).describe("Volumes to mount, each as <volume-name>:<target path>."),
  working_directory: workingDirectory.nullish().describe(ABOUT.working_directory),
  memory_limit_mb: memoryLimit.default(LIMITS.container_memory_mb_default).describe(ABOUT.memory_limit_mb),
  cpu_limit_percent: cpuLimit.describe(ABOUT.cpu_limit_percent),
  disk_limit_mb: whole(LIMITS.disk_limit_mb_min, LIMITS.disk_limit_mb_max).nullish().describe(ABOUT.disk_limit_mb),
  strict: z.boolean().default(false).describe(ABOUT.strict),
  read_only_root: z.boolean().default(false).describe(ABOUT.read_only_root),
  labels: labels.default({}).describe(ABOUT.labels),
  environment: containerEnvironment.default({}).describe("Environment of its command and of later commands."),
  entrypoint: argumentList
    .nullish()
    .describe(
      "Arguments before command. Default: the image's with oci. If given, the image's command does not apply unless the list is empty.",
    ),
  command: argumentList
    .nullish()
    .describe(
      "Command as argv; the container exits with it. Default: the image's with oci, unless that is only a shell. Without entrypoint and command the container runs until it is stopped, and waits for exec.",
    ),
  user: containerUser.nullish().describe(ABOUT.user),
  stop_signal: stopSignal.nullish().describe(ABOUT.stop_signal),
  health: z
    .union([z.literal("none"), wantedHealth])
    .nullish()
    .describe("Health check of the running container. Default: the image's with oci; none: no check."),
  restart: z.enum(RESTART_POLICIES).default("no").describe(ABOUT.restart),
  ttl_seconds: whole(1, LIMITS.container_seconds_max).nullish().describe(ABOUT.ttl_seconds),
  idle_seconds: whole(1, LIMITS.container_seconds_max).nullish().describe(ABOUT.idle_seconds),
  ports: wantedPorts.default([]).describe(ABOUT.ports),
  egress: egress.default("on").describe(ABOUT.egress),
  network: networkName.nullish().describe(ABOUT.network),
  dns: z.boolean().default(false).describe(ABOUT.dns),
  gpu_count: z.unknown().meta({ type: "integer", description: ABOUT.gpu_count }).optional(),
  gpu_ids: z
    .unknown()
    .meta({ type: "array", items: { type: "string" }, description: ABOUT.gpu_ids })
    .optional(),
  attach: z.boolean().default(false).describe(ABOUT.attach),
  stdin: z.boolean().default(false).describe(ABOUT.stdin),
  async_mode: directMode,
});

export const createContainer = createFields
  .superRefine((value, context) => {
    const complaint =
      complaintAboutGpus(value) ??
      complaintAboutDesktop(value) ??
      complaintAboutCommand(value) ??
      complaintAboutHealth(value) ??
      complaintAboutName(value);
    if (complaint === null) return;
    const { field, message, hint } = { hint: undefined, ...complaint };
    context.addIssue({ code: "custom", path: [field], message, params: { hint } });
  })
  .transform(({ gpu_count, gpu_ids, async_mode: _, ...kept }) => ({
    ...kept,
    gpu_count: Number(gpu_count ?? 0),
    gpu_ids: (gpu_ids ?? []) as string[],
  }))
  .meta({ id: "CreateContainer" });

export type CreateContainer = z.output<typeof createContainer>;

export const batchContainers = z
  .object({
    items: z.array(createContainer).min(1).max(LIMITS.batch_items_max).describe("Containers to create."),
    async_mode: asyncMode,
  })
  .meta({ id: "BatchContainers" });

/** Clients of other services send the signal of a kill; another one than SIGKILL would not end the container. */
export const killQuery = z.object({
  signal: z
    .string()
    .optional()
    .refine((value) => value === undefined || signalNumber(value) === SIGKILL, {
      error: "must be SIGKILL: stop the container, or signal one of its processes",
      params: { expected: ["KILL", "SIGKILL", "9"] },
    })
    .describe("SIGKILL, KILL or 9, if it is sent at all."),
});

export const renameContainer = renameBody("container", containerName).meta({ id: "RenameContainer" });

const dryRun = z
  .literal(false, { error: "dry runs are not supported" })
  .optional()
  .describe("Must be false: dry runs are not supported.");

/** Start and resume take no options; these are what existing clients send with them. */
export const startContainer = z
  .object({
    async_mode: asyncMode,
    dry_run: dryRun,
    idempotency_key: text(LIMITS.idempotency_key_length_max)
      .min(1)
      .optional()
      .describe("The same as the header Idempotency-Key, which takes precedence."),
    placement_hint: unused("Ignored: a container starts on its node."),
    labels: unused("Ignored: labels are set at creation."),
    ttl_seconds: unused("Ignored: the lifetime is set at creation."),
  })
  .meta({ id: "StartContainer" });

export const stopContainer = z
  .object({
    timeout_ms: whole(0, LIMITS.stop_grace_ms_max)
      .default(LIMITS.stop_grace_ms_default)
      .describe("Milliseconds between stop_signal and SIGKILL."),
    async_mode: directMode,
  })
  .meta({ id: "StopContainer" });

export const environmentBody = z
  .object({ environment: containerEnvironment.describe("Variables by name.") })
  .meta({ id: "ContainerEnvironment" });

const containerOrigin = z
  .object({
    kind: z.enum(["clone", "fork"]).describe("clone: of a snapshot. fork: of a container."),
    snapshot_id: z.string().nullable().describe("Snapshot that was cloned; null for a fork."),
    container_id: z.string().describe("Container that was forked, or that the snapshot is of; it may be deleted."),
  })
  .meta({ id: "ContainerOrigin" });

const containerChecks = z
  .object({
    state_running: z.boolean().describe("True if the state is running."),
    minit_responsive: z.boolean().describe("True if minit, the first process, responds."),
    network_configured: z.boolean().describe("True if the container has an address and a link to the gateway."),
    managed_image_valid: z
      .boolean()
      .describe(
        "True if the store has the image, and it keeps the contract of its profile: the release, minit, the shell, the user and the tools.",
      ),
    gui_backend_reachable: z
      .boolean()
      .nullable()
      .describe("True if the desktop answers; null for containers that are not of the profile prod-gui."),
  })
  .meta({ id: "ContainerChecks" });

/** A container as the API shows it (interface, Container record). */
export const containerRecord = z
  .object({
    container_id: z.string().describe("Id of the container."),
    tenant_id: z.string().describe("Id of the tenant that owns it."),
    name: z.string().describe(ABOUT.name),
    state: z.enum(CONTAINER_STATES).describe("See GET /api/containers/help."),
    pid: z.int().nullable().describe("Pid of its first process on this machine; null unless it runs."),
    exit_code: z
      .int()
      .nullable()
      .describe("Exit code of the last run; 128 plus the signal number if a signal killed it."),
    oom_killed: z.boolean().describe("True if the last run was out of memory."),
    error_message: z
      .string()
      .nullable()
      .describe("Reason if the container or its command failed to start, or was stopped as unhealthy, otherwise null."),
    restart_count: z.int().describe("Number of restarts by the restart policy since the last start."),
    ip_address: z.string().nullable().describe("IP address; null unless it runs."),
    created_at: isoTime,
    started_at: isoTime.nullable().describe("Time of the last start, ISO 8601; null if it never started."),
    exited_at: isoTime.nullable().describe("Time of the last exit, ISO 8601; null while it runs, or if it never ran."),
    working_directory: z.string().describe(ABOUT.working_directory),
    user: z.string().nullable().describe(ABOUT.user),
    stop_signal: z.string().describe(ABOUT.stop_signal),
    exposed_ports: z.array(z.string()).describe("Ports that the image declares, such as 80/tcp; ports publishes them."),
    declared_volumes: z
      .array(z.string())
      .describe(
        "Paths that the image declares as volumes; writable with read_only_root too, then empty at each start.",
      ),
    health: healthRecord.nullable().describe("Health check and its state; null without a health check."),
    memory_limit_mb: z.int().describe(ABOUT.memory_limit_mb),
    cpu_limit_percent: z.number().nullable().describe(ABOUT.cpu_limit_percent),
    disk_limit_mb: z.int().nullable().describe(ABOUT.disk_limit_mb),
    strict: z.boolean().describe(ABOUT.strict),
    read_only_root: z.boolean().describe(ABOUT.read_only_root),
    restart: z.enum(RESTART_POLICIES).describe(ABOUT.restart),
    ttl_seconds: z.int().nullable().describe(ABOUT.ttl_seconds),
    idle_seconds: z.int().nullable().describe(ABOUT.idle_seconds),
    ports: z.array(publishedPort).describe(ABOUT.ports),
    egress: z.union([z.enum(["on", "off"]), z.array(z.string())]).describe(ABOUT.egress),
    network: z.string().nullable().describe(ABOUT.network),
    dns: z.boolean().describe(ABOUT.dns),
    gpu_count: z.int().describe(ABOUT.gpu_count),
    gpu_ids: z.array(z.string()).describe("Ids of the GPUs that it holds; unless it runs, those that it asks for."),
    labels: z.record(z.string(), z.string()).describe(ABOUT.labels),
    origin: containerOrigin.nullable().describe("What the container is a copy of; null for any other container."),
    exec_ready: z.boolean().describe("True if exec is possible: it runs, minit responds, and its image is valid."),
    network_ready: z.boolean().describe("True if its network is configured."),
    gui_ready: z
      .boolean()
      .optional()
      .describe("True if exec and network are ready and the desktop answers; only for containers of prod-gui."),
    checks: containerChecks,
    checks_age_ms: z
      .int()
      .nullable()
      .describe(
        "Milliseconds since minit was last asked: about 0 in an answer about one container, more in a list, which shows the last result. null: a container of this list has not answered yet.",
      ),
  })
  .meta({ id: "Container" });

export type ContainerRecord = Readonly<z.output<typeof containerRecord>>;

export const containerList = z
  .object({
    containers: z.array(containerRecord).describe("Newest first."),
    next_cursor: nextCursor,
  })
  .meta({ id: "ContainerList" });

const foundContainer = containerRecord
  .extend({ found: z.literal(true).describe("The tenant has a container with the name.") })
  .meta({ id: "FoundContainer" });
const unknownContainer = z
  .object({
    found: z.literal(false).describe("The tenant has no container with the name."),
    container_id: z.null().describe("Always null."),
    error_message: z.string().describe("Message that names the missing container."),
  })
  .meta({ id: "UnknownContainer" });

/** Clients resolve names with this route and take a 404 for a fault. */
export const namedContainer = z.union([foundContainer, unknownContainer]).meta({ id: "NamedContainer" });

export const containerReadiness = containerRecord
  .pick({
    container_id: true,
    state: true,
    exec_ready: true,
    network_ready: true,
    gui_ready: true,
    checks: true,
    checks_age_ms: true,
  })
  .meta({ id: "ContainerReadiness" });

export const renamedContainer = z
  .object({
    success: acknowledgement.shape.success,
    container_id: z.string().describe("Id of the container."),
    old_name: z.string().describe("Previous name."),
    new_name: z.string().describe("New name."),
    dns_updated: z
      .boolean()
      .describe("True if the container runs and has names: other containers resolve the new one at once."),
  })
  .meta({ id: "RenamedContainer" });

export const containersReadiness = z
  .object({
    status: z.enum(["ok", "degraded"]).describe("degraded: the daemon cannot start containers; see reason."),
    concern: z.literal("containers").describe("Concern of this health report."),
    running_count: z.int().describe("Number of the tenant's running containers."),
    reason: z.string().nullable().describe("Reason if the status is degraded, otherwise null."),
  })
  .meta({ id: "ContainersHealth" });

export { containerUser, signalNumber } from "./command-fields.ts";
export { checkNewName, containerName, withoutAddressPrefix } from "./network/schema.ts";
