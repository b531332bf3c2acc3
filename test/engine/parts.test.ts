/** The parts of the engine that need no container: control-group files of both kinds, filters, addresses, frames. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { limitWrites, listGroups, readMemoryUsedMb, readOomKills } from "../../src/engine/host/control-groups.ts";
import { TenantGroups } from "../../src/engine/host/tenant-groups.ts";
import { UserNamespaces } from "../../src/engine/host/user-namespaces.ts";
import { FRAME, FrameReader, FrameWriter, strBytes } from "../../src/engine/minit/frames.ts";
import { instanceResolvConf } from "../../src/engine/network/network.ts";
import { foreignLink, formatAddress, parseSubnet } from "../../src/engine/network/subnet.ts";
import { narrowProfile } from "../../src/engine/oci/seccomp.ts";

describe("limits", () => {
  const limits = { memory_limit_mb: 256, cpu_limit_percent: 12.5 };

  it("are three writes on cgroup v1, hybrid or not", () => {
    for (const mode of ["v1", "hybrid"] as const) {
      expect(limitWrites({ mode, sockets: "own" }, "/h/i", limits, "/r")).toEqual([
        ["/r/memory/h/i/memory.limit_in_bytes", "268435456"],
        ["/r/cpu/h/i/cpu.cfs_quota_us", "12500"],
        ["/r/memory/h/i/memory.kmem.tcp.limit_in_bytes", "268435456"],
      ]);
    }
  });

  it("are two writes on cgroup v2", () => {
    expect(limitWrites({ mode: "v2", sockets: "memory" }, "/h/i", limits, "/r")).toEqual([
      ["/r/h/i/memory.max", "268435456"],
      ["/r/h/i/cpu.max", "12500 100000"],
    ]);
  });

  it("lift the quota where there is no CPU limit", () => {
    const unlimited = { ...limits, cpu_limit_percent: null };
    const v1 = limitWrites({ mode: "v1", sockets: "none" }, "/h/i", unlimited, "/r");
    expect(v1.slice(1)).toEqual([["/r/cpu/h/i/cpu.cfs_quota_us", "-1"]]);
    const v2 = limitWrites({ mode: "v2", sockets: "memory" }, "/h/i", unlimited, "/r");
    expect(v2[1]).toEqual(["/r/h/i/cpu.max", "max 100000"]);
  });
});

describe("the group of a tenant", () => {
  it("is forgotten for a run whose group the kernel refuses", () => {
    const root = mkdtempSync(join(tmpdir(), "hearth-groups-"));
    try {
      mkdirSync(`${root}/pids`);
      writeFileSync(`${root}/pids/c`, "");
      const groups = new TenantGroups({ mode: "v1", sockets: "none" }, "/c", root);
      expect(() => groups.enter("ctr_a.1", "acme")).toThrow("ENOTDIR");
      expect(groups.path("ctr_a.1")).toBe("/c/ctr_a.1");
    } finally {
      rmSync(root, { recursive: true });
    }
  });

  it("has the controller of its bounds enabled from the root down on cgroup v2, if the kernel has it", () => {
    const root = mkdtempSync(join(tmpdir(), "hearth-groups-"));
    try {
      mkdirSync(`${root}/c`);
      writeFileSync(`${root}/cgroup.controllers`, "cpu pids\n");
      writeFileSync(`${root}/c/cgroup.controllers`, "cpu pids\n");
      const groups = new TenantGroups({ mode: "v2", sockets: "memory" }, "/c", root);
      groups.enter("ctr_a.1", "acme");
      const enabled = ["", "/c"].map((path) => readFileSync(`${root}${path}/cgroup.subtree_control`, "utf8"));
      expect(enabled).toEqual(["+pids", "+pids"]);
      writeFileSync(`${root}/cgroup.controllers`, "cpu\n");
      rmSync(`${root}/cgroup.subtree_control`);
      groups.enter("ctr_b.1", "other");
      expect(readdirSync(root).sort()).toEqual(["c", "cgroup.controllers"]);
    } finally {
      rmSync(root, { recursive: true });
    }
  });
});

describe("user namespaces", () => {
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const refused = new AppError("START_FAILED", "crun says no");
  const full = new AppError("CAPACITY_FULL", "no room on the disk");
  /** Fails with each of these in turn, then does not. */
  const failing = (...errors: readonly AppError[]) => {
    const left = [...errors];
    return async () => {
      const error = left.shift();
      if (error !== undefined) throw error;
    };
  };

  it("are decided once, for all who ask meanwhile, and that is not taken back", async () => {
    const users = new UserNamespaces("auto", log);
    expect([users.info.mode, users.areWanted]).toEqual(["unknown", true]);
    const tries = { count: 0 };
    const probe = async () => {
      tries.count++;
    };
    expect(await Promise.all([users.decide(probe), users.decide(probe)])).toEqual([true, true]);
    expect(await users.decide(failing(refused))).toBe(true);
    expect([tries.count, users.goOnWithout(refused), users.info]).toEqual([1, false, { mode: "on", reason: null }]);
  });

  it("are there after a failure that does not come again, and not after one that does", async () => {
    const busy = new UserNamespaces("auto", log);
    expect(await busy.decide(failing(refused, refused))).toBe(true);
    const lacking = new UserNamespaces("auto", log);
    expect(await lacking.decide(failing(...Array(LIMITS.user_namespace_probes_max).fill(refused)))).toBe(false);
    expect([lacking.areWanted, lacking.info]).toEqual([false, { mode: "off", reason: "crun says no" }]);
    expect(await lacking.decide(failing())).toBe(false);
  });

  it("stay undecided where the machine has no room to find out, and are found out about when it has", async () => {
    for (const choice of ["auto", "on"] as const) {
      const users = new UserNamespaces(choice, log);
      await expect(users.decide(failing(full))).rejects.toThrow("no room");
      await users.settled();
      expect([users.areWanted, users.info]).toEqual([true, { mode: "unknown", reason: "no room on the disk" }]);
      expect(await users.decide(failing())).toBe(true);
    }
  });

  it("that have to be there are not gone without, and those that must not are not looked for", async () => {
    const needed = new UserNamespaces("on", log);
    const probe = failing(...Array(LIMITS.user_namespace_probes_max).fill(refused));
    await expect(needed.decide(probe)).rejects.toThrow("HEARTH_USER_NAMESPACES is on, and they do not work here: crun");
    expect([needed.areWanted, needed.goOnWithout(refused)]).toEqual([true, false]);
    const unwanted = new UserNamespaces("off", log);
    expect([await unwanted.decide(failing(refused)), unwanted.areWanted]).toEqual([false, false]);
  });

  it("have ranges that are apart, and end before what systemd leaves to containers does", () => {
    const slots_max = LIMITS.instances_max + LIMITS.containers_max + 64;
    const [first, second, last] = [0, 1, slots_max - 1].map((index) => UserNamespaces.firstId(index));
    expect([first, second]).toEqual([720_044_032, 720_044_032 + 65_536]);
    expect(first).toBeGreaterThan(LIMITS.instance_uid_base + slots_max);
    expect((last ?? 0) + 65_535).toBeLessThan(1_879_048_191);
  });
});

describe("what the groups tell", () => {
  it("is read from the files of either kind, and is nothing where there are none", () => {
    const root = mkdtempSync(join(tmpdir(), "hearth-groups-"));
    mkdirSync(`${root}/memory/h/i`, { recursive: true });
    mkdirSync(`${root}/h/i`, { recursive: true });
    writeFileSync(`${root}/memory/h/i/memory.oom_control`, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    writeFileSync(`${root}/h/i/memory.events`, "low 0\nhigh 0\nmax 9\noom 2\noom_kill 4\noom_group_kill 0\n");
    expect(readOomKills("v1", "/h/i", root)).toBe(3);
    expect(readOomKills("v2", "/h/i", root)).toBe(4);
    expect(readOomKills("v2", "/h/none", root)).toBe(0);
    const MIB = 1024 * 1024;
    writeFileSync(`${root}/memory/h/memory.usage_in_bytes`, `${9 * MIB}\n`);
    writeFileSync(
      `${root}/memory/h/memory.stat`,
      `inactive_file 7\ntotal_inactive_file ${3 * MIB}\ntotal_active_file ${MIB}\n`,
    );
    writeFileSync(`${root}/h/memory.current`, `${8 * MIB}\n`);
    writeFileSync(`${root}/h/memory.stat`, `anon 5\ninactive_file ${MIB}\nactive_file ${MIB}\n`);
    expect([readMemoryUsedMb("v1", "/h", root), readMemoryUsedMb("v2", "/h", root)]).toEqual([5, 6]);
    expect(readMemoryUsedMb("v1", "/none", root)).toBe(0);
    mkdirSync(`${root}/pids/h/i`, { recursive: true });
    writeFileSync(`${root}/pids/h/i/pids.current`, "21\n");
    writeFileSync(`${root}/h/i/pids.current`, "22\n");
    const [v1, v2] = (["v1", "v2"] as const).map((mode) => new TenantGroups({ mode, sockets: "none" }, "/h", root));
    expect([v1?.processCount("i"), v2?.processCount("i"), v2?.processCount("none")]).toEqual([21, 22, 0]);
    expect(listGroups("v1", "/h", root)).toEqual(["i"]);
    expect(listGroups("v2", "/h", root)).toEqual(["i"]);
    rmSync(root, { recursive: true });
  });
});

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
    expect(named(narrowed, "unshare")).toEqual([]);
    expect(named(narrowed, "clone").map(({ args }) => args)).toEqual([
      [{ index: 0, value: 0x7e020000, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }],
    ]);
    expect(named(narrowed, "clone3")).toEqual([{ names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: 38 }]);
    expect(named(narrowed, "socket").every(({ args }) => (args?.length ?? 0) > 0)).toBe(true);
  });

  it("has no answer for an architecture that it does not know", () => {
    expect(() => narrowProfile(profile, "riscv64", [])).toThrow(/riscv64/);
  });
});

describe("addresses", () => {
  it("are counted from the network's base", () => {
    const subnet = parseSubnet("10.42.0.0/16");
    expect(subnet).toEqual({ base: 0x0a2a0000, prefix_length: 16, size: 65_533 });
    expect(formatAddress(subnet.base + 258)).toBe("10.42.1.2");
  });

  it.each(["10.42.0.1/16", "10.300.0.0/16", "10.42.0.16/20"])("refuse %s, which is no network's base", (text) => {
    expect(() => parseSubnet(text)).toThrow(/base address/);
  });

  it("of a subnet are nobody else's, though its own may lie in a wider network", () => {
    const routes = [
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
      "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
      "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
      "vpn0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0",
      "own0\t00002A0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
      "",
    ].join("\n");
    const foreign = (subnet: string) => foreignLink(routes, parseSubnet(subnet), (link) => link === "own0");
    expect(["10.42.0.0/16", "10.43.0.0/16"].map(foreign)).toEqual([null, null]);
    expect(["192.0.2.0/24", "192.0.0.0/16"].map(foreign)).toEqual(["eth0", "eth0"]);
  });

  it("of name servers that only the machine reaches are left out", () => {
    expect(instanceResolvConf("search a\nnameserver 127.0.0.53\nnameserver 9.9.9.9\nnameserver ::1\n")).toBe(
      "search a\nnameserver 9.9.9.9\n",
    );
  });
});

describe("frames", () => {
  it("come out as they went in, however the bytes are cut", () => {
    const frames = [
      new FrameWriter(FRAME.KILL, 7, 4).u32(9),
      new FrameWriter(FRAME.STDIN, 8, 5 + strBytes("ü")).text("hello").str("ü"),
    ];
    const bytes = Buffer.concat(frames.map(({ buffer }) => buffer));
    for (const size of [1, 2, 5, 9, 13, bytes.length]) {
      const seen: [number, number, string][] = [];
      const reader = new FrameReader((type, id, body) => seen.push([type, id, body.toString("hex")]));
      for (let at = 0; at < bytes.length; at += size) reader.push(Buffer.from(bytes.subarray(at, at + size)));
      expect(seen).toEqual([
        [FRAME.KILL, 7, "09000000"],
        [FRAME.STDIN, 8, Buffer.from("hello\x03\0\0\0ü\0").toString("hex")],
      ]);
    }
  });

  it("of a stream come in pieces, without being held, and the others whole", () => {
    const output = Buffer.from("a stream of bytes that is cut anywhere");
    const frames = [
      new FrameWriter(FRAME.STDOUT, 7, output.length).raw(output),
      new FrameWriter(FRAME.EXIT, 7, 4).u32(9),
      new FrameWriter(FRAME.STDOUT, 7, 0),
      new FrameWriter(FRAME.STDOUT, 8, 2).text("ab"),
      new FrameWriter(FRAME.EXIT, 8, 4).u32(9),
    ];
    const bytes = Buffer.concat(frames.map(({ buffer }) => buffer));
    for (let size = 1; size <= bytes.length; size++) {
      const seen = { 7: "", 8: "" };
      const reader = new FrameReader(
        (type, id, body) => {
          if (id !== 7 && id !== 8) throw new Error(`a frame of ${id}`);
          seen[id] += type === FRAME.STDOUT ? body.toString() : ` exit ${body.toString("hex")}`;
        },
        (type) => type === FRAME.STDOUT,
      );
      for (let at = 0; at < bytes.length; at += size) reader.push(Buffer.from(bytes.subarray(at, at + size)));
      expect(seen).toEqual({ 7: `${output} exit 09000000`, 8: "ab exit 09000000" });
    }
  });

  it("of an impossible length are refused", () => {
    const reader = new FrameReader(() => {});
    expect(() => reader.push(Buffer.from([0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0]))).toThrow(/length/);
    expect(() => new FrameReader(() => {}).push(Buffer.alloc(9))).toThrow(/length/);
  });
});
