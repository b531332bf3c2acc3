/**
 * The OCI configuration of a function instance: everything the container may and may not do stands here, so this is
 * the file to read for its isolation. `test/security` looks from inside and holds each line against it.
 */
import { LIMITS } from "../base/limits.ts";
import type { Filter } from "./filters.ts";

/** Where minit is found inside: on the runtime's own /dev, so that the image needs no mount point for it. */
export const MINIT_INSIDE = "/dev/init";
export const PATH_INSIDE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
  readonly uid: number;
  /** Path of a ready network namespace. */
  readonly netns: string;
  /** `/parent/name` */
  readonly cgroup: string;
  readonly seccomp: Filter;
}

export const tmpfs = (destination: string, ...options: string[]) => ({
  destination,
  type: "tmpfs",
  source: "tmpfs",
  options: ["nosuid", "nodev", ...options],
});

export const bind = (source: string, destination: string, ...options: string[]) => ({
  destination,
  type: "bind",
  source,
  options: ["bind", "nosuid", "nodev", ...options],
});

/** What every container sees of the kernel, and shared memory of `size`. */
export const kernelMounts = (size: string) => [
  { destination: "/proc", type: "proc", source: "proc", options: ["nosuid", "noexec", "nodev"] },
  { destination: "/dev", type: "tmpfs", source: "tmpfs", options: ["nosuid", "strictatime", "mode=755", "size=64k"] },
  tmpfs("/dev/shm", "noexec", "mode=1777", size),
  { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
];

/** All of them its own, the network one made before. */
export const namespaces = (netns: string) => [
  ...["pid", "ipc", "uts", "mount", "cgroup"].map((type) => ({ type })),
  { type: "network", path: netns },
];

/** `config.json` of an instance (OCI runtime specification 1.0). */
export function instanceConfig(spec: InstanceSpec): object {
  const size = `size=${LIMITS.tmpfs_mb}m`;
  return {
    ociVersion: "1.0.2",
    hostname: "hearth",
    root: { path: spec.rootfs, readonly: true },
    process: {
      terminal: false,
      user: { uid: spec.uid, gid: spec.uid },
      args: [MINIT_INSIDE, "init"],
      env: [`PATH=${PATH_INSIDE}`],
      cwd: "/",
      capabilities: { bounding: [], effective: [], inheritable: [], permitted: [], ambient: [] },
      rlimits: [
        { type: "RLIMIT_NOFILE", soft: LIMITS.instance_files_max, hard: LIMITS.instance_files_max },
        { type: "RLIMIT_CORE", soft: 0, hard: 0 },
      ],
      noNewPrivileges: true,
      oomScoreAdj: 500,
    },
    mounts: [
      ...kernelMounts(size),
      tmpfs("/tmp", "mode=1777", size),
      bind(spec.minit, MINIT_INSIDE, "ro"),
      bind(spec.resolv_conf, "/etc/resolv.conf", "ro", "noexec"),
    ],
    ...("bpf_base64" in spec.seccomp ? { annotations: { "run.oci.seccomp_bpf_data": spec.seccomp.bpf_base64 } } : {}),
    linux: {
      cgroupsPath: spec.cgroup,
      namespaces: namespaces(spec.netns),
      resources: {
        devices: [{ allow: false, access: "rwm" }],
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
