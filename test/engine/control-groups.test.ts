/** Files of control groups, of both kinds: limits, groups of tenants, counters. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  containerProcesses,
  groupProcesses,
  limitWrites,
  listGroups,
  readMemoryUsedMb,
  readOomKills,
} from "../../src/engine/kernel/control-groups.ts";
import { TenantGroups } from "../../src/engine/kernel/tenant-groups.ts";

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

describe("the processes of a group", () => {
  it("are those of all hierarchies, whatever lies beside them", () => {
    const root = mkdtempSync(join(tmpdir(), "hearth-groups-"));
    try {
      for (const [name, pids] of Object.entries({ pids: "3\n4\n", memory: "4\n5\n" })) {
        mkdirSync(`${root}/${name}/g`, { recursive: true });
        writeFileSync(`${root}/${name}/g/cgroup.procs`, pids);
      }
      mkdirSync(`${root}/cpu`);
      writeFileSync(`${root}/file`, "");
      expect(groupProcesses("v1", "/g", root).sort()).toEqual([3, 4, 5]);
      expect(containerProcesses("v1", "/g", root)).toEqual([4, 5]);
      expect(containerProcesses("v1", "/gone", root)).toEqual([]);
    } finally {
      rmSync(root, { recursive: true });
    }
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
