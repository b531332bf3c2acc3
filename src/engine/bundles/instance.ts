/**
 * The OCI configuration of a function instance: everything the container may and may not do stands here, so this is
 * the file to read for its isolation. `test/security` looks from inside and holds each line against it.
 */
import { PATH_INSIDE, RUNTIME_INSIDE } from "../../base/container-environment.ts";
import { LIMITS } from "../../base/limits.ts";
import { TRUST_INSIDE } from "../../base/trust.ts";
import type { PlacedGpus } from "../gpu/edits.ts";
import type { Filter } from "../oci/filters.ts";
import type { InstanceClass } from "../ports/instances.ts";
import { gpuAnnotation, gpuDevices, gpuMounts, rootAndHooks } from "./gpus.ts";
import { groupMounts, type VisibleGroups } from "./group-mounts.ts";
import { arrangeMounts, type OciMount } from "./mounts.ts";

/** Path of minit inside: on the runtime's own /dev, so that the image needs no mount point for it. */
export const MINIT_INSIDE = "/dev/init";

/** The kernel's own tables that tell about the host or act on it (the list that podman and docker mask). */
export const MASKED_PATHS = [
  "/proc/acpi",
  "/proc/asound",
  "/proc/kcore",
  "/proc/keys",
  "/proc/latency_stats",
  "/proc/sched_debug",
  "/proc/scsi",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/sys/dev/block",
  "/sys/devices/virtual/powercap",
  "/sys/firmware",
  "/sys/fs/selinux",
];
export const READONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

export interface InstanceSpec {
  readonly id: string;
  readonly rootfs: string;
  /** The minit binary and resolv.conf on the host. */
  readonly minit: string;
  readonly resolv_conf: string;
  /** The directory of what builds trust, on the host; null for none. */
  readonly trust: string | null;
  readonly uid: number;
  /** Path of a ready network namespace. */
  readonly netns: string;
  /** `/parent/name` */
  readonly cgroup: string;
  readonly visible_groups: VisibleGroups;
  readonly seccomp: Filter;
  readonly class: InstanceClass;
  /** Where the root of the pinned image is mounted. */
  readonly pinned: string;
  readonly gpus: PlacedGpus | null;
}

/** Annotation with the key of an instance's class, for a later process. */
export const CLASS_ANNOTATION = "hearth.class";
/** Annotation with the id of the image that the root lies on, for a later process. */
export const IMAGE_ANNOTATION = "hearth.image";
/** Annotation of an instance that starts with a resident process, for a later process. */
export const RESIDENT_ANNOTATION = "hearth.resident";

export const tmpfs = (destination: string, ...options: string[]): OciMount => ({
  destination,
  type: "tmpfs",
  source: "tmpfs",
  options: ["nosuid", "nodev", ...options],
});

export const bind = (source: string, destination: string, ...options: string[]): OciMount => ({
  destination,
  type: "bind",
  source,
  options: ["bind", "nosuid", "nodev", ...options],
});

/** The operator's certificates and proxy, read-only; no mount where no setting names any. */
export const trustMount = (directory: string | null): readonly OciMount[] =>
  directory === null ? [] : [bind(directory, TRUST_INSIDE, "ro", "noexec")];

/** Bounds of a directory in memory. */
export const scratch = (size_mb: number) => [`size=${size_mb}m`, `nr_inodes=${LIMITS.tmpfs_inodes_max}`];
const DEV = ["nosuid", "strictatime", "mode=755", "size=64k", `nr_inodes=${LIMITS.dev_inodes_max}`];

/** The kernel's file systems that every container sees, and shared memory. */
export const kernelMounts = (scratch_mb: number): readonly OciMount[] => [
  { destination: "/proc", type: "proc", source: "proc", options: ["nosuid", "noexec", "nodev"] },
  { destination: "/dev", type: "tmpfs", source: "tmpfs", options: DEV },
  tmpfs("/dev/shm", "noexec", "mode=1777", ...scratch(scratch_mb)),
  { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
];

/** All of them its own, the network one made before. */
export const namespaces = (netns: string) => [
  ...["pid", "ipc", "uts", "mount", "cgroup"].map((type) => ({ type })),
  { type: "network", path: netns },
];

/** Limits of each process. POSIX message queues are withheld by the filter too (src/engine/README.md). */
export const rlimits = (files_max: number) =>
  Object.entries({
    RLIMIT_NOFILE: files_max,
    RLIMIT_CORE: 0,
    RLIMIT_SIGPENDING: LIMITS.pending_signals_max,
    RLIMIT_MSGQUEUE: 0,
  }).map(([type, value]) => ({ type, soft: value, hard: value }));

/** Files of this machine that instances see read-only. */
function sharedFiles({ resolv_conf, trust, pinned, class: { runtime_directory, foreign } }: InstanceSpec): OciMount[] {
  const files = Object.entries(foreign?.pinned_files ?? {});
  return [
    bind(resolv_conf, "/etc/resolv.conf", "ro", "noexec"),
    ...trustMount(trust),
    ...(runtime_directory === null ? [] : [bind(runtime_directory, RUNTIME_INSIDE, "ro")]),
    ...files.map(([inside, path]) => bind(`${pinned}${path}`, inside, "ro")),
  ];
}

/** `config.json` of an instance (OCI runtime specification 1.0). */
export function instanceConfig(spec: InstanceSpec): object {
  return {
    ociVersion: "1.0.2",
    hostname: "hearth",
    ...rootAndHooks(spec.rootfs, true, spec.gpus),
    process: {
      terminal: false,
      user: { uid: spec.uid, gid: spec.uid },
      args: [MINIT_INSIDE, "init"],
      env: [`PATH=${PATH_INSIDE}`],
      cwd: "/",
      capabilities: { bounding: [], effective: [], inheritable: [], permitted: [], ambient: [] },
      rlimits: rlimits(LIMITS.instance_files_max),
      noNewPrivileges: true,
      oomScoreAdj: 500,
    },
    mounts: arrangeMounts({
      kernel: [...kernelMounts(spec.class.scratch_mb), ...groupMounts(spec.visible_groups, spec.cgroup)],
      memory: [tmpfs("/tmp", "mode=1777", ...scratch(spec.class.scratch_mb))],
      files: sharedFiles(spec),
      owned: [],
      gpus: gpuMounts(spec.gpus),
      minit: bind(spec.minit, MINIT_INSIDE, "ro"),
    }),
    annotations: {
      [CLASS_ANNOTATION]: spec.class.key,
      [IMAGE_ANNOTATION]: spec.class.image,
      ...(spec.class.resident === null ? {} : { [RESIDENT_ANNOTATION]: "true" }),
      ...gpuAnnotation(spec.gpus),
      ...("bpf_base64" in spec.seccomp ? { "run.oci.seccomp_bpf_data": spec.seccomp.bpf_base64 } : {}),
    },
    linux: {
      cgroupsPath: spec.cgroup,
      namespaces: namespaces(spec.netns),
      resources: {
        devices: [{ allow: false, access: "rwm" }, ...gpuDevices(spec.gpus)],
        memory: { limit: LIMITS.memory_limit_mb_default * 1024 * 1024 },
        pids: { limit: LIMITS.instance_pids_max },
      },
      ...("rules" in spec.seccomp ? { seccomp: spec.seccomp.rules } : {}),
      maskedPaths: MASKED_PATHS,
      readonlyPaths: READONLY_PATHS,
      rootfsPropagation: "private",
    },
  };
}
