/** The runtime nodejs in a PID namespace or a memory cgroup of its own, as in a cell. */
import { existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { resultOf } from "../../test/support/resident-requests.ts";
import { STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];
const groups: string[] = [];
const directories: string[] = [];

const UNSHARE = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"];
/** Words of a shell that is PID 1: starts a process that is none of the runtime's, then the runtime. */
const PID_1 = 'sleep 1000 & "$@" & wait';
/**
 * The same as a script without arguments, so that the command line of PID 1 is minit's, `/dev/init init`. The variable
 * with the words of the command exists in the script alone.
 */
const MINIT = `cd "$1" && shift && { printf "set --"; printf " '%s'" "$@"; printf '\n%s\n' '${PID_1}'; } >init &&
  exec ${UNSHARE.join(" ")} bash -c 'exec -a /dev/init sh init'`;

/** The shell takes the place of minit, or of a test runner: PID 1, and parent of the process. */
async function serveInNamespace(code: string, pid_1: "minit" | "runner" = "minit"): Promise<NodejsProcess> {
  const directory = mkdtempSync(join(tmpdir(), "nodejs-pid-1-"));
  directories.push(directory);
  const process = await NodejsProcess.start({ "index.mjs": code }, {}, (argv) =>
    pid_1 === "minit" ? ["sh", "-c", MINIT, "sh", directory, ...argv] : [...UNSHARE, "sh", "-c", PID_1, "sh", ...argv],
  );
  started.push(process);
  expect((await process.bound).status).toBe(STATUS.returned);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
  for (const group of groups.splice(0)) rmdirSync(group);
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

const PROCESSES = `readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name))
  .map((pid) => { try { return readFileSync("/proc/" + pid + "/cmdline", "latin1").replaceAll("\\0", " ").trim(); } catch { return ""; } })
  .filter((line) => line.startsWith("sleep"))`;

const LEAVER = `import { execSync, spawn } from "node:child_process"; import { readdirSync, readFileSync } from "node:fs";
  execSync("sleep 1001 >/dev/null 2>&1 &"); spawn("sleep", ["1002"]);
  const sleeps = () => ${PROCESSES}.sort();
  export const handler = async ({ leave, count }) => {
    if (leave) execSync("setsid sh -c 'sleep 1003 & sleep 1004 &' >/dev/null 2>&1");
    while (leave && sleeps().length < count) await new Promise((resolve) => setTimeout(resolve, 1));
    return sleeps();
  };`;

describe("cleanup", () => {
  it("in a cell kills children that a call orphaned, not those of the module", async () => {
    const process = await serveInNamespace(LEAVER);
    const kept = ["sleep 1000", "sleep 1001", "sleep 1002"];
    const all = [...kept, "sleep 1003", "sleep 1004"];
    expect(resultOf(await process.call({ leave: true, count: all.length }))).toEqual(all);
    await expect.poll(async () => resultOf(await process.call({ leave: false }))).toEqual(kept);
  });

  it("leaves strangers alone if PID 1 is the parent, but not minit", async () => {
    const process = await serveInNamespace(LEAVER, "runner");
    const all = ["sleep 1000", "sleep 1001", "sleep 1002", "sleep 1003", "sleep 1004"];
    expect(resultOf(await process.call({ leave: true, count: all.length }))).toEqual(all);
    expect(resultOf(await process.call({ leave: true, count: all.length + 2 }))).toEqual([
      ...all.slice(0, 3),
      ...["sleep 1003", "sleep 1003", "sleep 1004", "sleep 1004"],
    ]);
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
