/**
 * The OCI configuration of an API container: everything it may and may not do stands here, so this is the file to read
 * for its isolation, as instance.ts is for function instances. Root inside has the capabilities that podman gives, and
 * CAP_NET_RAW. With `strict` it has none, and the system-call filter is that of no capabilities. With `read_only_root` its root
 * file system is mounted read-only, with a tmpfs on /tmp and /run.
 *
 * Files with setuid and file capabilities raise the rights of a command as far as those of root inside, as with podman: sudo, su and
 * package scripts need it. The bounding set and the filter hold for all of them. Not so with `strict`, nor in volumes.
 *
 * minit is always root: it looks `user` up inside the container and starts every command as that user. For this a strict
 * container's minit has three capabilities, of which no command gets one (identity.h of minit).
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { containerEnvironment, findsHome, hostnameOf, withGpus } from "../../base/container-environment.ts";
import { LIMITS } from "../../base/limits.ts";
import { isBelow } from "../../base/mount-targets.ts";
import { GPUS_ANNOTATION, type GpuNote, type PlacedGpus } from "../gpu/edits.ts";
import { containerPolicyOf, type NetworkPolicy, OPEN_POLICY } from "../network/rules.ts";
import type { Filter } from "../oci/filters.ts";
import type { ContainerSpec } from "../ports/containers.ts";
import { etcMounts } from "./etc-files.ts";
import { gpuAnnotation, gpuDevices, gpuMounts, rootAndHooks } from "./gpus.ts";
import { groupMounts, type VisibleGroups } from "./group-mounts.ts";
import {
  bind,
  IMAGE_ANNOTATION,
  kernelMounts,
  MASKED_PATHS,
  MINIT_INSIDE,
  namespaces,
  READONLY_PATHS,
  rlimits,
  scratch,
  tmpfs,
  trustMount,
} from "./instance.ts";
import { arrangeMounts, type OciMount } from "./mounts.ts";

const MIB = 1024 * 1024;
const SCRATCH = scratch(LIMITS.tmpfs_mb);
const TERMINALS = [
  ...["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
  `max=${LIMITS.container_terminals_max}`,
];

/**
 * The default of containers-common 0.50 (`default_capabilities`), as Debian's podman has it, and CAP_NET_RAW: Debian gives it to the
 * file of ping, and the kernel starts no file with a capability beyond the bounding set. The filter refuses raw and packet
 * sockets all the same.
 */
export const CAPABILITIES: readonly string[] = [
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_NET_BIND_SERVICE",
  "CAP_NET_RAW",
  "CAP_SETFCAP",
  "CAP_SETGID",
  "CAP_SETPCAP",
  "CAP_SETUID",
  "CAP_SYS_CHROOT",
];

/** Those with which minit, in a strict container, starts commands as another user and ends them. */
const USER_CAPABILITIES: readonly string[] = ["CAP_KILL", "CAP_SETGID", "CAP_SETUID"];

/** Notes the network slot, for a later process to read. */
const SLOT_ANNOTATION = "hearth.slot";
/** Notes the first id of its user namespace, where it has one, for the same. */
const FIRST_ID_ANNOTATION = "hearth.first-id";
/** Notes the policy of its network, as JSON, for the same. */
const NETWORK_ANNOTATION = "hearth.network";

/** The directory of a container's socket, inside. */
export const SOCKET_DIRECTORY = "/run/hearth";

export interface Mount {
  /** A directory or file on this machine, as the launcher sees it. */
  readonly source: string;
  /** An absolute path inside. */
  readonly target: string;
}

/** One whose content is the container's own. */
export interface OwnedMount extends Mount {
  readonly is_read_only?: boolean;
}

/** Resources of this machine that a start gives to a container: names, paths, namespaces, mounts. */
export interface Placement {
  /** Name of the run: its bundle, its groups, its id with the OCI runtime. */
  readonly run: string;
  /** Id of the image that is mounted at `rootfs`. */
  readonly image_id: string;
  readonly rootfs: string;
  /** The minit binary on the host. */
  readonly minit: string;
  /** Directory of its own files of /etc, as the launcher sees it. */
  readonly etc: string;
  /** The directory of what builds trust, on the host; null for none. */
  readonly trust: string | null;
  readonly slot_index: number;
  /** Path of a ready network namespace. */
  readonly netns: string;
  /** User namespace that owns `netns`: the container joins it, and volumes show its ids. Null for none. */
  readonly user: { readonly path: string; readonly first_id: number } | null;
  /** `/parent/name` */
  readonly cgroup: string;
  readonly visible_groups: VisibleGroups;
  readonly filter: Filter;
  /** True if control groups here have a limit of its own for the memory of sockets. */
  readonly has_socket_limit: boolean;
  readonly mounts: readonly OwnedMount[];
  /** The directory of its socket, which it cannot write to; null for none. */
  readonly socket: Mount | null;
  /** Null for none. */
  readonly gpus: PlacedGpus | null;
}

/** Returns the specification of a container that the engine starts for itself: no command, no tenant, no image. */
export function bareSpec(id: string): ContainerSpec {
  return {
    id,
    tenant_id: id,
    name: id,
    image_id: "",
    command: [],
    environment: {},
    image_environment: null,
    user: null,
    working_directory: "/",
    memory_limit_mb: LIMITS.container_memory_mb_default,
    cpu_limit_percent: null,
    disk_limit_mb: null,
    strict: false,
    read_only_root: false,
    writable_paths: [],
    egress: "on",
    ports: [],
    network: null,
    dns: false,
    volumes: [],
    gpu_count: 0,
    gpu_ids: [],
  };
}

export function writeContainerConfig(bundle: string, spec: ContainerSpec, placement: Placement): void {
  mkdirSync(bundle, { recursive: true, mode: 0o700 });
  writeFileSync(`${bundle}/config.json`, JSON.stringify(containerConfig(spec, placement)));
}

/** `config.json` of an API container (OCI runtime specification 1.0). */
export function containerConfig(spec: ContainerSpec, placement: Placement): object {
  const { strict, read_only_root } = spec;
  const { filter, user, gpus } = placement;
  const bytes = spec.memory_limit_mb * 1024 * 1024;
  const capabilities = !strict ? CAPABILITIES : spec.user === null ? [] : USER_CAPABILITIES;
  return {
    ociVersion: "1.0.2",
    hostname: hostnameOf(spec.name),
    ...rootAndHooks(placement.rootfs, read_only_root, gpus),
    annotations: {
      [SLOT_ANNOTATION]: String(placement.slot_index),
      [IMAGE_ANNOTATION]: placement.image_id,
      [NETWORK_ANNOTATION]: JSON.stringify(containerPolicyOf(spec)),
      ...(user === null ? {} : { [FIRST_ID_ANNOTATION]: String(user.first_id) }),
      ...("bpf_base64" in filter ? { "run.oci.seccomp_bpf_data": filter.bpf_base64 } : {}),
      ...gpuAnnotation(gpus),
    },
    process: {
      terminal: false,
      user: { uid: 0, gid: 0, ...(gpus === null ? {} : { additionalGids: gpus.gids }) },
      ...minitProcess(spec, gpus),
      cwd: spec.working_directory,
      capabilities: {
        bounding: capabilities,
        effective: capabilities,
        inheritable: [],
        permitted: capabilities,
        ambient: [],
      },
      rlimits: rlimits(LIMITS.container_files_max),
      noNewPrivileges: strict,
      oomScoreAdj: 500,
    },
    mounts: mountsOf(spec, placement),
    linux: {
      cgroupsPath: placement.cgroup,
      namespaces: [...namespaces(placement.netns), ...(user === null ? [] : [{ type: "user", path: user.path }])],
      resources: {
        devices: [
          { allow: false, access: "rwm" },
          // Terminals: devpts makes slaves under major 136 and up (Documentation/admin-guide/devices.txt).
          { allow: true, type: "c", major: 136, access: "rwm" },
          { allow: true, type: "c", major: 5, minor: 2, access: "rwm" },
          ...gpuDevices(gpus),
        ],
        memory: { limit: bytes, ...(placement.has_socket_limit ? { kernelTCP: bytes } : {}) },
        pids: { limit: LIMITS.container_pids_max },
        ...(spec.cpu_limit_percent === null
          ? {}
          : { cpu: { quota: Math.round(spec.cpu_limit_percent * 1_000), period: 100_000 } }),
      },
      ...("rules" in filter ? { seccomp: filter.rules } : {}),
      maskedPaths: MASKED_PATHS,
      readonlyPaths: READONLY_PATHS,
      rootfsPropagation: "private",
    },
  };
}

/** Directories in memory that a container gets, none where a volume covers it. */
function memoryMounts({
  read_only_root,
  writable_paths,
  tmpfs: directories = [],
  volumes,
}: ContainerSpec): readonly OciMount[] {
  const isCovered = (path: string) => volumes.some(({ target }) => isBelow(path, target));
  const made = read_only_root
    ? [
        ...(isCovered("/tmp") ? [] : [tmpfs("/tmp", "mode=1777", ...SCRATCH)]),
        ...(isCovered("/run") ? [] : [tmpfs("/run", "mode=755", ...SCRATCH)]),
        ...writable_paths.map((path) => tmpfs(path, "mode=1777", ...SCRATCH)),
      ]
    : [];
  return [
    ...made,
    ...directories.map(({ target, size_bytes = LIMITS.tmpfs_mb * MIB }) =>
      tmpfs(target, "mode=755", `size=${size_bytes}`, `nr_inodes=${LIMITS.tmpfs_inodes_max}`),
    ),
  ];
}

/** Targets of all mounts in the root of a container whose way there its image and its earlier runs may have made. */
export function targetsOf(spec: ContainerSpec): readonly string[] {
  return [...spec.volumes.map(({ target }) => target), ...memoryMounts(spec).map(({ destination }) => destination)];
}

function mountsOf(spec: ContainerSpec, placement: Placement): readonly OciMount[] {
  const { user, gpus, socket, mounts, minit, etc, trust, visible_groups, cgroup } = placement;
  return arrangeMounts({
    kernel: [
      ...kernelMounts(LIMITS.tmpfs_mb),
      ...groupMounts(visible_groups, cgroup),
      { destination: "/dev/pts", type: "devpts", source: "devpts", options: TERMINALS },
    ],
    memory: memoryMounts(spec),
    files: [
      ...etcMounts(etc, spec.read_only_root),
      ...trustMount(trust),
      ...(socket === null ? [] : [bind(socket.source, socket.target, "ro", "noexec")]),
    ],
    owned: mounts.map(({ source, target, is_read_only = false }) =>
      bind(source, target, is_read_only ? "ro" : "rw", ...(user === null ? [] : ["idmap"])),
    ),
    gpus: gpuMounts(gpus),
    minit: bind(minit, MINIT_INSIDE, "ro"),
  });
}

/** Arguments and environment of minit, which passes the environment on to the command. */
function minitProcess(
  spec: ContainerSpec,
  gpus: PlacedGpus | null,
): { readonly args: readonly string[]; readonly env: readonly string[] } {
  const env = containerEnvironment(withGpus(spec, gpus === null ? null : { gpus: gpus.note }));
  const lacksHome = !env.some((variable) => variable.startsWith("HOME="));
  const args = [
    ...(spec.user === null ? [] : ["--user", spec.user]),
    ...(spec.user !== null && spec.strict ? ["--restricted"] : []),
    ...(findsHome(spec) ? ["--home"] : []),
    ...(lacksHome ? ["--no-home"] : []),
    ...["--stall", String(LIMITS.attach_stall_ms)],
    ...(spec.attach === true ? ["--hold", String(LIMITS.attach_hold_ms)] : []),
    ...(spec.attach === true && spec.stdin === true ? ["--stdin"] : []),
    ...(spec.command.length === 0 ? [] : ["--", ...spec.command]),
  ];
  // The OCI runtime itself would read /etc/passwd of the image for a variable HOME that is missing.
  return { args: [MINIT_INSIDE, "container", ...args], env: lacksHome ? [...env, "HOME=/"] : env };
}

/** Changes the note of a container's network policy. A crash in between leaves the earlier note. */
export function notePolicy(bundle: string, policy: NetworkPolicy): void {
  const config = JSON.parse(readFileSync(`${bundle}/config.json`, "utf8")) as { annotations: Record<string, string> };
  config.annotations[NETWORK_ANNOTATION] = JSON.stringify(policy);
  writeFileSync(`${bundle}/config.json.new`, JSON.stringify(config));
  renameSync(`${bundle}/config.json.new`, `${bundle}/config.json`);
}

export interface StartNote {
  /** NaN if the configuration cannot be read. */
  readonly slot_index: number;
  /** First id of its user namespace; 0 without one. */
  readonly first_id: number;
  readonly policy: NetworkPolicy;
  /** Empty if the configuration cannot be read. */
  readonly image_id: string;
  /** Null for none. */
  readonly gpus: GpuNote | null;
}

/** Reads the notes of a start from the annotations of its configuration. */
export function noteOf(bundle: string): StartNote {
  try {
    const { annotations } = JSON.parse(readFileSync(`${bundle}/config.json`, "utf8")) as {
      annotations: Record<string, string>;
    };
    const policy: NetworkPolicy = JSON.parse(annotations[NETWORK_ANNOTATION] ?? "");
    const slot_index = Number(annotations[SLOT_ANNOTATION] ?? Number.NaN);
    const image_id = annotations[IMAGE_ANNOTATION] ?? "";
    const gpus: GpuNote | null = JSON.parse(annotations[GPUS_ANNOTATION] ?? "null");
    return { slot_index, first_id: Number(annotations[FIRST_ID_ANNOTATION] ?? 0), policy, image_id, gpus };
  } catch {
    return { slot_index: Number.NaN, first_id: 0, policy: OPEN_POLICY, image_id: "", gpus: null };
  }
}
