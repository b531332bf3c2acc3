/**
 * The system-call filter. The rules are the containers project's default profile, as Debian ships it for buildah and
 * podman; here it is narrowed to one architecture and to the capabilities an instance has (none), because compiling
 * for three architectures costs 20 ms a start against 2.5 for one. crun compiles it once; the result is kept and
 * passed to each start as ready BPF, which costs nothing.
 *
 * That profile is made for nested containers too: it lets anybody make user namespaces and mount in them, which opens
 * much of the kernel to code without any privilege. Nothing of that is needed here, so it is withheld, as are socket
 * families that no network namespace contains (AF_VSOCK reaches the hypervisor's host).
 *
 * Programs act on the error of a refused call: each one is that of a kernel without the feature, or of a process without
 * the privilege. `test/engine/seccomp.test.ts` names every difference from the profile, with its reason.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { AppError } from "../../base/errors.ts";

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

/** include/uapi/asm-generic/errno.h */
const EPERM = 1;
const EINVAL = 22;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;

/** Calls for namespaces, mounts and the machine itself: the kernel wants CAP_SYS_ADMIN or CAP_SYS_BOOT for them. */
const PRIVILEGED = (
  "fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root reboot setns syslog umount umount2 " +
  "unshare"
).split(" ");
/**
 * Calls that kernels may lack. `mq_open`: a queue outlives the call that made it, and minit cannot find it to remove it (that
 * takes a mount).
 *
 * The last two lines are calls that draw on budgets of the whole machine (src/engine/README.md): places for
 * asynchronous I/O (fs.aio-max-nr), and memory of compiled filters (net.core.bpf_jit_limit).
 */
const ABSENT = (
  "fanotify_mark keyctl modify_ldt mq_open name_to_handle_at " +
  "io_setup io_submit io_getevents io_pgetevents io_pgetevents_time64 io_cancel io_destroy " +
  "seccomp"
).split(" ");
/** CLONE_NEW{CGROUP,UTS,IPC,USER,PID,NET,NS}, include/uapi/linux/sched.h. */
const CLONE_NEW_MASK = 0x7e020000;
const NAMESPACE_FLAGS = Array.from({ length: 31 }, (_, bit) => 2 ** bit).filter(
  (flag) => (CLONE_NEW_MASK & flag) !== 0,
);
/** include/linux/socket.h */
const AF_UNIX = 1;
const INTERNET_FAMILIES = [2, 10];
const AF_NETLINK = 16;
/** All other families, as masks and values: 0, 3, 4 to 7, 8 to 9, 11, 12 to 15. The last rule has those from 17 on. */
const OTHER_FAMILIES = [
  [0, 0],
  [0, 3],
  [3, 4],
  [1, 8],
  [0, 11],
  [3, 12],
] as const;
/** SOCK_TYPE_MASK of include/linux/net.h: above it are flags. */
const SOCKET_TYPE_MASK = 0xf;
/** SOCK_RAW, and SOCK_PACKET, which makes a socket of AF_PACKET out of one of AF_INET. */
const RAW_TYPES = [3, 10];
const NETLINK_AUDIT = 9;
/** include/uapi/linux/resource.h and ioprio.h. */
const PRIO_PROCESS = 0;
const IOPRIO_WHO_PROCESS = 1;
/** minit has the uid of its handler. A priority that a handler set on it would outlast the handler's call. */
const MINIT_PID = 1;
const ALLOW = "SCMP_ACT_ALLOW";

const SCHEDULING = ["sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"];

interface Argument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo?: number;
  readonly op: string;
}

const masked = (index: number, mask: number, value: number): Argument => ({
  index,
  value: mask,
  valueTwo: value,
  op: "SCMP_CMP_MASKED_EQ",
});

/**
 * Allows calls whose argument differs from `value`. The kernel takes an `int` from the lower half of its register, and
 * "not equal" compares both halves: anything in the upper half would pass it. So each bit in which the lower half
 * differs lets a call pass; the first `ignored_bits` bits do not count.
 */
function differing(
  names: readonly string[],
  index: number,
  value: number,
  ignored_bits = 0,
  others: readonly Argument[] = [],
): Rule[] {
  return Array.from({ length: 32 - ignored_bits }, (_, i) => {
    const bit = 2 ** (i + ignored_bits);
    const other = Math.floor(value / bit) % 2 === 1 ? 0 : bit;
    return { names, action: ALLOW, args: [masked(index, bit, other), ...others] };
  });
}

/**
 * Calls of btrfs that make, copy and remove subvolumes (_IOW(0x94, 0 to 31, 4096 bytes), include/uapi/linux/btrfs.h): a
 * subvolume of one's own would be outside the limit of the volume that it is made in.
 */
const SUBVOLUME_CALLS = 0x50009400;
const IOCTL_RULES = differing(["ioctl"], 1, SUBVOLUME_CALLS, 5);

/** include/uapi/linux/prctl.h; EINVAL is what a kernel without filters answers, which programs are prepared for. */
const PR_SET_SECCOMP = 22;
/** `mmap`, `memfd_create`, `shmget`: pages of the machine's own pool of huge pages, which no control group here counts. */
const HUGE_PAGES = { mmap: [3, 0x40000], memfd_create: [1, 0x4], shmget: [2, 0x800] } as const;

const SOL_SOCKET = 1;
/**
 * Options of sockets but SO_ATTACH_FILTER (26), SO_ATTACH_BPF (50), SO_ATTACH_REUSEPORT_CBPF (51) and _EBPF (52), as
 * `[first, how many]`, each a power of two in number and aligned to it (include/uapi/asm-generic/socket.h).
 */
const SOCKET_OPTIONS = [
  [0, 16],
  [16, 8],
  [24, 2],
  [27, 1],
  [28, 4],
  [32, 16],
  [48, 2],
  [53, 1],
  [54, 2],
  [56, 8],
] as const;
const SOCKET_OPTIONS_ENUMERATED = 64;
const LOWER_HALF = 2 ** 32 - 1;

function filterlessSockets(): Rule[] {
  const names = ["setsockopt"];
  const enumerated = SOCKET_OPTIONS.map(([first, count]) => masked(2, LOWER_HALF - (count - 1), first));
  const higher = Array.from({ length: 26 }, (_, i) =>
    masked(2, SOCKET_OPTIONS_ENUMERATED * 2 ** i, SOCKET_OPTIONS_ENUMERATED * 2 ** i),
  );
  return [
    ...differing(names, 1, SOL_SOCKET),
    ...[...enumerated, ...higher].map((option) => ({ names, action: ALLOW, args: [option] })),
  ];
}

/** Calls that draw on budgets of the whole machine with some of their arguments, allowed with all others. */
const BUDGET_RULES: Rule[] = [
  ...differing(["prctl"], 0, PR_SET_SECCOMP),
  {
    names: ["prctl"],
    action: "SCMP_ACT_ERRNO",
    errnoRet: EINVAL,
    args: [{ index: 0, value: PR_SET_SECCOMP, op: "SCMP_CMP_EQ" }],
  },
  ...filterlessSockets(),
  ...Object.entries(HUGE_PAGES).map(([name, [index, flag]]) => ({
    names: [name],
    action: ALLOW,
    args: [masked(index, flag, 0)],
  })),
];

const equal = (index: number, value: number): Argument => ({ index, value, op: "SCMP_CMP_EQ" });
const refusing = (names: readonly string[], errnoRet: number, ...args: Argument[]): Rule => ({
  names,
  action: "SCMP_ACT_ERRNO",
  errnoRet,
  ...(args.length === 0 ? {} : { args }),
});

/**
 * Sockets of the families that a network namespace contains, none of them raw. `socketpair` makes a socket before it asks
 * whether the family has pairs. A kernel without audit answers EINVAL to `NETLINK_AUDIT`: useradd, sudo and sshd go on
 * without it then, and with any other error they fail.
 */
function socketRules(): Rule[] {
  const names = ["socket", "socketpair"];
  const internet = INTERNET_FAMILIES.map((family) => equal(0, family));
  return [
    { names, action: ALLOW, args: [equal(0, AF_UNIX)] },
    ...internet.flatMap((family) => [
      ...Array.from({ length: SOCKET_TYPE_MASK + 1 }, (_, type) => type)
        .filter((type) => !RAW_TYPES.includes(type))
        .map((type) => ({ names, action: ALLOW, args: [family, masked(1, SOCKET_TYPE_MASK, type)] })),
      ...RAW_TYPES.map((type) => refusing(names, EPERM, family, masked(1, SOCKET_TYPE_MASK, type))),
    ]),
    ...differing(names, 2, NETLINK_AUDIT, 0, [equal(0, AF_NETLINK)]),
    refusing(names, EINVAL, equal(0, AF_NETLINK), masked(2, LOWER_HALF, NETLINK_AUDIT)),
    ...OTHER_FAMILIES.map(([ignored, family]) =>
      refusing(names, EAFNOSUPPORT, masked(0, LOWER_HALF - ignored, family)),
    ),
    refusing(names, EAFNOSUPPORT, { index: 0, value: AF_NETLINK + 1, op: "SCMP_CMP_GE" }),
  ];
}

/** The rules without what unprivileged code has no use for. */
function hardened(rules: readonly Rule[]): Rule[] {
  const replaced = new Set([
    ...PRIVILEGED,
    ...ABSENT,
    "clone",
    "clone3",
    "socket",
    "socketpair",
    "ioctl",
    "prlimit64",
    ...SCHEDULING,
    "setpriority",
    "ioprio_set",
    ...BUDGET_RULES.flatMap(({ names }) => names),
  ]);
  const kept = rules
    .map((rule) => ({ ...rule, names: rule.names.filter((name) => !replaced.has(name)) }))
    .filter((rule) => rule.names.length > 0);
  return [
    ...kept,
    refusing(PRIVILEGED, EPERM),
    refusing(ABSENT, ENOSYS),
    { names: ["clone"], action: ALLOW, args: [masked(0, CLONE_NEW_MASK, 0)] },
    ...NAMESPACE_FLAGS.map((flag) => refusing(["clone"], EPERM, masked(0, flag, flag))),
    ...IOCTL_RULES,
    ...BUDGET_RULES,
    ...differing(["prlimit64", ...SCHEDULING], 0, MINIT_PID),
    ...differing(["setpriority"], 1, MINIT_PID, 0, [equal(0, PRIO_PROCESS)]),
    ...differing(["ioprio_set"], 1, MINIT_PID, 0, [equal(0, IOPRIO_WHO_PROCESS)]),
    // Its flags lie in memory, where a filter cannot look; the C library takes ENOSYS as the word to use clone.
    refusing(["clone3"], ENOSYS),
    ...socketRules(),
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
  if (native === undefined) throw new AppError("INTERNAL", `no seccomp filter for architecture ${architecture}`);
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
  if (!existsSync(PROFILE_PATH)) throw new AppError("INTERNAL", `missing ${PROFILE_PATH} (part of buildah)`);
  return narrowProfile(JSON.parse(readFileSync(PROFILE_PATH, "utf8")) as Profile, architecture, capabilities);
}

/** Names a compiled filter: equal rules for an equal runtime version give an equal key. */
export function seccompKey(seccomp: OciSeccomp, runtimeVersion: string): string {
  return createHash("sha256").update(runtimeVersion).update(JSON.stringify(seccomp)).digest("hex").slice(0, 16);
}
