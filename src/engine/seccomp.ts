/**
 * The system-call filter. The rules are the containers project's default profile, as Debian ships it for buildah and
 * podman; here it is narrowed to one architecture and to the capabilities an instance has (none), because compiling
 * for three architectures costs 20 ms a start against 2.5 for one. crun compiles it once; the result is kept and
 * passed to each start as ready BPF, which costs nothing.
 *
 * That profile is made for nested containers too: it lets anybody make user namespaces and mount in them, which opens
 * much of the kernel to code without any privilege. Nothing of that is needed here, so it is withheld, as are socket
 * families that no network namespace contains (AF_VSOCK reaches the hypervisor's host).
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { AppError } from "../base/errors.ts";

const PROFILE_PATH = "/usr/share/containers/seccomp.json";
const NATIVE = {
  x64: { profile: "amd64", seccomp: "SCMP_ARCH_X86_64" },
  arm64: { profile: "arm64", seccomp: "SCMP_ARCH_AARCH64" },
} as const;

interface Filter {
  readonly caps?: readonly string[];
  readonly arches?: readonly string[];
  readonly minKernel?: string;
}

interface Rule {
  readonly names: readonly string[];
  readonly action: string;
  readonly args?: readonly unknown[] | null;
  readonly errnoRet?: number;
  readonly includes?: Filter;
  readonly excludes?: Filter;
}

interface Profile {
  readonly defaultAction: string;
  readonly defaultErrnoRet?: number;
  readonly syscalls: readonly Rule[];
}

/**
 * Calls for namespaces, mounts, keys and the machine itself: withheld from who has no CAP_SYS_ADMIN. `mq_open` too: a
 * queue outlives the call that made it, and minit cannot find it to remove it (that takes a mount).
 */
const WITHHELD = new Set(
  (
    "fanotify_mark fsconfig fsmount fsopen fspick keyctl modify_ldt mount mount_setattr move_mount mq_open " +
    "name_to_handle_at open_tree pivot_root reboot setns syslog umount umount2 unshare"
  ).split(" "),
);
/** CLONE_NEW{CGROUP,UTS,IPC,USER,PID,NET,NS}, include/uapi/linux/sched.h. */
const CLONE_NEW_MASK = 0x7e020000;
/** AF_UNIX, AF_INET, AF_INET6. */
const SOCKET_FAMILIES = [1, 2, 10];
const AF_NETLINK = 16;
const NETLINK_AUDIT = 9;
const ENOSYS = 38;
/** include/uapi/linux/resource.h and ioprio.h. */
const PRIO_PROCESS = 0;
const IOPRIO_WHO_PROCESS = 1;
/** minit has the uid of its handler. What these calls set on it would outlast the call that set it. */
const MINIT_PID = 1;
const ALLOW = "SCMP_ACT_ALLOW";

const SCHEDULING = ["sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"];

/**
 * Calls of btrfs that make, copy and remove subvolumes (_IOW(0x94, 0 to 31, 4096 bytes), include/uapi/linux/btrfs.h): a
 * subvolume of one's own would be outside the limit of the volume that it is made in. The kernel looks at the lower half
 * of the number alone, so that is what is compared; a filter can only say what equals, so each bit in which a number
 * differs from theirs lets it pass.
 */
const SUBVOLUME_CALLS = 0x50009400;
const IOCTL_RULES: Rule[] = Array.from({ length: 27 }, (_, i) => {
  const bit = 2 ** (i + 5);
  const other = Math.floor(SUBVOLUME_CALLS / bit) % 2 === 1 ? 0 : bit;
  return {
    names: ["ioctl"],
    action: ALLOW,
    args: [{ index: 1, value: bit, valueTwo: other, op: "SCMP_CMP_MASKED_EQ" }],
  };
});

/** The rules without what unprivileged code has no use for. */
function hardened(rules: readonly Rule[]): Rule[] {
  const replaced = new Set([
    ...WITHHELD,
    "clone",
    "clone3",
    "socket",
    "ioctl",
    "prlimit64",
    ...SCHEDULING,
    "setpriority",
    "ioprio_set",
  ]);
  const argument = (index: number, op: "EQ" | "NE", value: number) => ({ index, value, op: `SCMP_CMP_${op}` });
  const kept = rules
    .map((rule) => ({ ...rule, names: rule.names.filter((name) => !replaced.has(name)) }))
    .filter((rule) => rule.names.length > 0);
  return [
    ...kept,
    {
      names: ["clone"],
      action: ALLOW,
      args: [{ index: 0, value: CLONE_NEW_MASK, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }],
    },
    ...IOCTL_RULES,
    { names: ["prlimit64"], action: ALLOW, args: [argument(0, "NE", MINIT_PID)] },
    { names: SCHEDULING, action: ALLOW, args: [argument(0, "NE", MINIT_PID)] },
    { names: ["setpriority"], action: ALLOW, args: [argument(0, "EQ", PRIO_PROCESS), argument(1, "NE", MINIT_PID)] },
    {
      names: ["ioprio_set"],
      action: ALLOW,
      args: [argument(0, "EQ", IOPRIO_WHO_PROCESS), argument(1, "NE", MINIT_PID)],
    },
    // Its flags lie in memory, where a filter cannot look; the C library takes ENOSYS as the word to use clone.
    { names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: ENOSYS },
    ...SOCKET_FAMILIES.map((value) => ({ names: ["socket"], action: ALLOW, args: [argument(0, "EQ", value)] })),
    {
      names: ["socket"],
      action: ALLOW,
      args: [argument(0, "EQ", AF_NETLINK), argument(2, "NE", NETLINK_AUDIT)],
    },
  ];
}

/** `linux.seccomp` of an OCI configuration. */
export interface OciSeccomp {
  readonly defaultAction: string;
  readonly defaultErrnoRet?: number;
  readonly architectures: readonly string[];
  readonly syscalls: readonly Omit<Rule, "includes" | "excludes">[];
}

/** Narrows the profile to `architecture` and `capabilities` (`CAP_…`). Rules with a `minKernel` hold on any kernel we run on. */
export function narrowProfile(profile: Profile, architecture: string, capabilities: readonly string[]): OciSeccomp {
  const native = NATIVE[architecture as keyof typeof NATIVE];
  if (native === undefined) throw new AppError("INTERNAL", `no system-call filter for architecture ${architecture}`);
  const has = (names: readonly string[] | undefined, values: readonly string[]) =>
    names?.some((name) => values.includes(name)) === true;
  const holds = (rule: Rule): boolean => {
    const { includes, excludes } = rule;
    if (includes?.caps?.length && !includes.caps.every((cap) => capabilities.includes(cap))) return false;
    if (includes?.arches?.length && !has(includes.arches, [native.profile])) return false;
    return !has(excludes?.caps, capabilities) && !has(excludes?.arches, [native.profile]);
  };
  const rules = profile.syscalls.filter(holds);
  const isPrivileged = capabilities.includes("CAP_SYS_ADMIN");
  return {
    defaultAction: profile.defaultAction,
    ...(profile.defaultErrnoRet === undefined ? {} : { defaultErrnoRet: profile.defaultErrnoRet }),
    architectures: [native.seccomp],
    syscalls: (isPrivileged ? rules : hardened(rules)).map(({ names, action, args, errnoRet }) => ({
      names,
      action,
      ...(args ? { args } : {}),
      ...(errnoRet === undefined ? {} : { errnoRet }),
    })),
  };
}

/** Reads the machine's default profile. Throws INTERNAL when the package that carries it is not installed. */
export function loadSeccomp(architecture: string, capabilities: readonly string[]): OciSeccomp {
  if (!existsSync(PROFILE_PATH)) throw new AppError("INTERNAL", `${PROFILE_PATH} is missing (comes with buildah)`);
  return narrowProfile(JSON.parse(readFileSync(PROFILE_PATH, "utf8")) as Profile, architecture, capabilities);
}

/** Names a compiled filter: equal rules for an equal runtime version give an equal key. */
export function seccompKey(seccomp: OciSeccomp, runtimeVersion: string): string {
  return createHash("sha256").update(runtimeVersion).update(JSON.stringify(seccomp)).digest("hex").slice(0, 16);
}
