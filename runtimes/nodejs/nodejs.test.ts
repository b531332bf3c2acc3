/** The runtime nodejs in a PID namespace or a memory cgroup of its own, as in a cell. */
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { NodejsProcess, resultOf } from "../../test/support/nodejs-process.ts";
import { STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];
const groups: string[] = [];

/** The shell takes the place of minit: PID 1, and parent of the process. */
async function serveInNamespace(code: string): Promise<NodejsProcess> {
  const process = await NodejsProcess.start({ "index.mjs": code }, {}, (argv) => [
    ...["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "sh", "-c", '"$@" & wait', "sh"],
    ...argv,
  ]);
  started.push(process);
  expect((await process.bound).status).toBe(STATUS.returned);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
  for (const group of groups.splice(0)) rmdirSync(group);
});

const PROCESSES = `readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name))
  .map((pid) => { try { return readFileSync("/proc/" + pid + "/cmdline", "latin1").replaceAll("\\0", " ").trim(); } catch { return ""; } })
  .filter((line) => line.startsWith("sleep"))`;

describe("cleanup in a cell", () => {
  it("kills children that a call orphaned, not those of the module", async () => {
    const process = await serveInNamespace(
      `import { execSync, spawn } from "node:child_process"; import { readdirSync, readFileSync } from "node:fs";
       execSync("sleep 1001 >/dev/null 2>&1 &"); spawn("sleep", ["1002"]);
       const sleeps = () => ${PROCESSES}.sort();
       export const handler = async (what) => {
         if (what === "leave") execSync("setsid sh -c 'sleep 1003 & sleep 1004 &' >/dev/null 2>&1");
         while (what === "leave" && sleeps().length < 4) await new Promise((resolve) => setTimeout(resolve, 1));
         return sleeps();
       };`,
    );
    const kept = ["sleep 1001", "sleep 1002"];
    expect(resultOf(await process.call("leave"))).toEqual([...kept, "sleep 1003", "sleep 1004"]);
    await expect.poll(async () => resultOf(await process.call("look"))).toEqual(kept);
  });
});

/** Makes a memory cgroup, of either version. */
function memoryGroup(limit_mb: number): string {
  const isFirst = existsSync("/sys/fs/cgroup/memory");
  const directory = join(
    isFirst ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup",
    `nodejs-test-${process.pid}-${limit_mb}`,
  );
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, isFirst ? "memory.limit_in_bytes" : "memory.max"), String(limit_mb * 1024 * 1024));
  return directory;
}

describe("the memory limit", () => {
  const CODE = `const keep = []; const fill = (n) => { const a = []; for (let i = 0; i < n; i++) a.push({ i, b: [i] }); return a; };
    export const handler = async ({ live_mb, rounds }) => {
      while (process.memoryUsage().heapUsed < live_mb * 1048576) keep.push(fill(20000));
      const ring = [];
      for (let i = 0; i < rounds; i++) { ring.push(fill(20000)); if (ring.length > 5) ring.shift(); if (i % 10 === 0) await null; }
      return keep.length > 0;
    };`;

  async function serveWithin(memory_limit_mb: number): Promise<NodejsProcess> {
    const group = memoryGroup(memory_limit_mb);
    groups.push(group);
    const process = await NodejsProcess.start({ "index.mjs": CODE }, { memory_limit_mb }, (argv) => [
      ...["sh", "-c", `echo $$ >${group}/cgroup.procs && exec "$@"`, "sh"],
      ...argv,
    ]);
    started.push(process);
    expect((await process.bound).status).toBe(STATUS.returned);
    return process;
  }

  it.each([
    [256, 120],
    [1024, 614],
  ])("of %d MB has room for %d MB of live objects beside garbage", async (memory_limit_mb, live_mb) => {
    const process = await serveWithin(memory_limit_mb);
    const answer = await process.call(
      { live_mb, rounds: 200 },
      { deadline_ms: Date.now() + 50_000 },
      { kill_after_ms: 50_000 },
    );
    expect([answer.ended, resultOf(answer)]).toEqual(["answered", true]);
  });

  it("ends the process of a handler that keeps growing", async () => {
    const process = await serveWithin(256);
    expect((await process.call({ live_mb: 100_000, rounds: 0 })).ended).toBe("cancelled");
    expect((await process.resident.ended).signal).toBe("SIGKILL");
  });
});
