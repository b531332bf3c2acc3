/** System-call filters. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { CAPABILITIES } from "../../src/engine/bundles/container.ts";
import { narrowProfile } from "../../src/engine/oci/seccomp.ts";

interface Argument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo?: number;
  readonly op: string;
}

interface Rules {
  readonly defaultErrnoRet: number;
  readonly syscalls: readonly {
    readonly names: readonly string[];
    readonly action: string;
    readonly errnoRet?: number;
    readonly args?: readonly Argument[] | null;
  }[];
}

interface Narrowing {
  readonly arches?: readonly string[];
  readonly caps?: readonly string[];
}

interface Narrowed {
  readonly includes?: Narrowing;
  readonly excludes?: Narrowing;
}

describe("the system-call filter", () => {
  const profile = {
    defaultAction: "SCMP_ACT_ERRNO",
    defaultErrnoRet: 38,
    syscalls: [
      { names: ["read", "unshare", "clone", "clone3", "socket"], action: "SCMP_ACT_ALLOW" },
      { names: ["bpf"], action: "SCMP_ACT_ALLOW", includes: { caps: ["CAP_SYS_ADMIN"] } },
      { names: ["bpf"], action: "SCMP_ACT_ERRNO", errnoRet: 1, excludes: { caps: ["CAP_SYS_ADMIN"] } },
      { names: ["arm_call"], action: "SCMP_ACT_ALLOW", includes: { arches: ["arm64"] } },
    ],
  };
  const named = (narrowed: ReturnType<typeof narrowProfile>, name: string) =>
    narrowed.syscalls.filter(({ names }) => names.includes(name));

  it("is for one architecture and the given capabilities", () => {
    const narrowed = narrowProfile(profile, "x64", []);
    expect(narrowed.architectures).toEqual(["SCMP_ARCH_X86_64"]);
    expect(named(narrowed, "arm_call")).toEqual([]);
    expect(named(narrowed, "bpf").map(({ action }) => action)).toEqual(["SCMP_ACT_ERRNO"]);
    expect(named(narrowProfile(profile, "arm64", []), "arm_call").length).toBe(1);
  });

  it("withholds namespaces, and lets clone through only without their flags", () => {
    const narrowed = narrowProfile(profile, "x64", []);
    expect(named(narrowed, "read").length).toBe(1);
    expect(named(narrowed, "unshare")).toMatchObject([{ action: "SCMP_ACT_ERRNO", errnoRet: 1 }]);
    const allowed = named(narrowed, "clone").filter(({ action }) => action === "SCMP_ACT_ALLOW");
    expect(allowed.map(({ args }) => args)).toEqual([
      [{ index: 0, value: 0x7e020000, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }],
    ]);
    expect(named(narrowed, "clone3")).toEqual([{ names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: 38 }]);
    expect(named(narrowed, "socket").every(({ args }) => (args?.length ?? 0) > 0)).toBe(true);
  });

  it("has no answer for an architecture that it does not know", () => {
    expect(() => narrowProfile(profile, "riscv64", [])).toThrow(/riscv64/);
  });
});

/** Decides as libseccomp does: a rule without arguments holds for every call, otherwise the first that matches. */
function decide({ syscalls, defaultErrnoRet }: Rules, name: string, args: readonly bigint[]): string {
  const rules = syscalls.filter(({ names }) => names.includes(name));
  const rule =
    rules.find((one) => !one.args?.length) ?? rules.find((one) => one.args?.every((arg) => holds(arg, args)));
  if (rule === undefined) return `errno ${defaultErrnoRet}`;
  return rule.action === "SCMP_ACT_ALLOW" ? "allowed" : `errno ${rule.errnoRet ?? 1}`;
}

function holds({ index, value, valueTwo = 0, op }: Argument, args: readonly bigint[]): boolean {
  const given = args[index] ?? 0n;
  if (op === "SCMP_CMP_MASKED_EQ") return (given & BigInt(value)) === BigInt(valueTwo);
  if (op === "SCMP_CMP_EQ") return given === BigInt(value);
  if (op === "SCMP_CMP_NE") return given !== BigInt(value);
  if (op === "SCMP_CMP_GE") return given >= BigInt(value);
  throw new Error(`unknown comparison: ${op}`);
}

/** Arguments that all rules of the filter leave out: BTRFS_IOC_SUBVOL_CREATE, and SO_ATTACH_FILTER at SOL_SOCKET. */
const NARROW: Readonly<Record<string, readonly (readonly bigint[])[]>> = {
  ioctl: [[0n, 0x5000940en]],
  setsockopt: [[0n, 1n, 26n]],
};

/** Arguments at and beside every bound that a rule of either filter names, in both halves of a register. */
function* samples(name: string, filters: readonly Rules[]): Generator<readonly bigint[]> {
  const rules = filters.flatMap(({ syscalls }) => syscalls.filter(({ names }) => names.includes(name)));
  const values = new Set([0n, 1n, 2n, 3n, 9n, 16n, 17n, 40n, 1n << 32n]);
  for (const { value, valueTwo = 0 } of rules.flatMap(({ args }) => args ?? [])) {
    for (const bound of [BigInt(value), BigInt(valueTwo)]) for (const near of [-1n, 0n, 1n]) values.add(bound + near);
  }
  yield [0n, 0n, 0n, 0n, 0n, 0n];
  yield* NARROW[name] ?? [];
  for (const { args } of rules) {
    const met = [0n, 0n, 0n, 0n, 0n, 0n];
    for (const { index, value, valueTwo, op } of args ?? []) {
      met[index] = BigInt(op === "SCMP_CMP_MASKED_EQ" ? (valueTwo ?? 0) : value);
    }
    yield met;
    for (const index of met.keys()) for (const value of values) yield met.with(index, value < 0n ? 0n : value);
  }
}

/** Calls that the filter answers otherwise than podman's, each with its reason. */
const DIFFERENCES: Readonly<Record<string, string>> = {
  "namespaces and mounts of its own open much of the kernel to code without privileges":
    "clone unshare setns mount umount umount2 mount_setattr move_mount open_tree fsopen fsconfig fsmount fspick pivot_root",
  "flags lie in memory, where a filter cannot look; ENOSYS has the C library use clone": "clone3",
  "of the machine itself; the kernel refuses them without CAP_SYS_BOOT and CAP_SYSLOG": "reboot syslog",
  "the keys of all users of the machine have one bound": "keyctl",
  "segments of 16-bit code, whose handling in the kernel had faults": "modify_ldt",
  "handles of files are the first half of open_by_handle_at (CVE-2014-9357)": "name_to_handle_at",
  "marks without a group, which fanotify_init refuses": "fanotify_mark",
  "a queue outlives the call that made it": "mq_open",
  "places for asynchronous I/O have one bound for the machine (fs.aio-max-nr)":
    "io_setup io_submit io_getevents io_cancel io_destroy io_pgetevents",
  "compiled filters have one bound for the machine (net.core.bpf_jit_limit)": "seccomp prctl setsockopt",
  "huge pages have one pool for the machine": "mmap memfd_create shmget",
  "subvolumes of its own would be outside the limit of the volume": "ioctl",
  "a priority or limit that a handler set on minit would outlast the call":
    "prlimit64 setpriority ioprio_set sched_setaffinity sched_setattr sched_setparam sched_setscheduler",
  "families that no network namespace contains, raw sockets, and audit sockets by the upper half of a register":
    "socket socketpair",
};

describe("beside the default of podman", () => {
  const profile = JSON.parse(readFileSync("/usr/share/containers/seccomp.json", "utf8"));
  const isFor = (filter: Narrowing | undefined) =>
    (!filter?.arches || filter.arches.includes("amd64")) &&
    (!filter?.caps || CAPABILITIES.includes(filter.caps[0] ?? ""));
  const isAgainst = ({ arches = [], caps = [] }: Narrowing = {}) =>
    arches.includes("amd64") || caps.some((cap) => CAPABILITIES.includes(cap));
  const podman: Rules = {
    ...profile,
    syscalls: profile.syscalls.filter((rule: Narrowed) => isFor(rule.includes) && !isAgainst(rule.excludes)),
  };
  const own = narrowProfile(profile, "x64", CAPABILITIES) as Rules;

  it("differs in the named calls alone, and in each of them", () => {
    const names = new Set([podman, own].flatMap(({ syscalls }) => syscalls.flatMap((rule) => rule.names)));
    expect(names.size).toBeGreaterThan(400);
    const differing = [...names].filter((name) =>
      samples(name, [podman, own]).some((args) => decide(podman, name, args) !== decide(own, name, args)),
    );
    const named = Object.values(DIFFERENCES).flatMap((list) => list.split(" "));
    expect(differing.sort()).toEqual(named.sort());
  });

  it("allows nothing more", () => {
    for (const name of new Set(own.syscalls.flatMap((rule) => rule.names))) {
      for (const args of samples(name, [podman, own])) {
        if (decide(own, name, args) === "allowed")
          expect([name, args, decide(podman, name, args)]).toContain("allowed");
      }
    }
  });

  it.each([
    ["socket", [16, 3, 9], "errno 22"],
    ["socket", [16, 2, 9], "errno 22"],
    ["socket", [16, 3, 0x100000009], "errno 22"],
    ["socket", [16, 3, 0], "allowed"],
    ["socket", [16, 3, 8], "allowed"],
    ["socketpair", [1, 1, 0], "allowed"],
    ["socketpair", [40, 1, 0], "errno 97"],
    ["socket", [2, 0x80802, 17], "allowed"],
    ["socket", [10, 5, 132], "allowed"],
    ["socket", [2, 0x80003, 1], "errno 1"],
    ["socket", [2, 10, 0x300], "errno 1"],
    ...[0, 3, 4, 7, 8, 9, 11, 12, 15, 17, 38, 40, 99].map((family) => ["socket", [family, 1, 0], "errno 97"]),
    ["unshare", [0x10000000], "errno 1"],
    ["clone", [0x10000011], "errno 1"],
    ["clone", [0x11], "allowed"],
    ["mount", [], "errno 1"],
    ["keyctl", [], "errno 38"],
  ] as [string, number[], string][])("answers %s(%j) with '%s'", (name, args, answer) => {
    expect(decide(own, name, args.map(BigInt))).toBe(answer);
  });
});
