/** What one call can leave behind for the next call of the same instance, and for the daemon that adopts the instance. */
import { existsSync, globSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { CodeUser, NODEJS } from "../support/code.ts";
import { Daemon } from "../support/daemon.ts";

const SETTINGS = { HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" };
const daemon = new Daemon();
beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

/** Makes one object of each kind that outlives its process; most of them readable by nobody. */
const LEAVES = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = [libc.shmget(n, 65536, 0o1000) for n in range(1, 40)] + [libc.shmget(99, 65536, 0o1666)]
made += [libc.semget(n, 3, 0o1666) for n in range(1, 40)] + [libc.msgget(n, 0o1000) for n in range(1, 40)]
print("made", len([one for one in made if one >= 0]))
print("queue", libc.mq_open(b"/left", 0o102, 0o600, None), ctypes.get_errno())
open("/tmp/left", "w").close(); open("/dev/shm/left", "w").close()
`;
const FINDS = `
import os
for kind in ("shm", "sem", "msg"): print(kind, len(open("/proc/sysvipc/" + kind).readlines()) - 1)
print(os.listdir("/tmp"), os.listdir("/dev/shm"))
`;
const NOTHING = "shm 0\nsem 0\nmsg 0\n[] []\n";
const handler = `if [ "$(cat)" = leave ]; then python3 -c '${LEAVES}'; else python3 -c '${FINDS}'; fi`;

describe("a call", () => {
  it("leaves no shared memory, semaphore, message queue or file to the next call of its instance", async () => {
    await daemon.deploy({ name: "between", handler, max_instances: 1 });
    const first = await daemon.invoke("between", { payload: "leave" });
    expect([first.stdout, first.stderr]).toEqual(["made 118\nqueue -1 38\n", ""]);
    const next = await daemon.invoke("between", { payload: "find" });
    expect(next).toMatchObject({ stdout: NOTHING, instance_nonce: first.instance_nonce });
  });

  it("leaves nothing to the daemon that adopts its instance either", async () => {
    const last = await daemon.invoke("between", { payload: "leave" });
    await daemon.invoke("between", { payload: "find" });
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    const adopted = await daemon.invoke("between", { payload: "find" });
    expect(adopted).toMatchObject({ stdout: NOTHING, cold_start: false, instance_nonce: last.instance_nonce });
  });

  it("keeps them for the next call where the function asks for that", async () => {
    await daemon.deploy({ name: "kept", handler, max_instances: 1, cleanup_on_exit: false });
    await daemon.invoke("kept", { payload: "leave" });
    const next = await daemon.invoke("kept", { payload: "find" });
    expect(next.stdout).toBe("shm 40\nsem 39\nmsg 39\n['left'] ['left']\n");
  });
});

/** Leaves what its payload names, and says that it did. A second call with "look" tells what the first one finds. */
const LEAVER = `
import { spawn } from "node:child_process";
import { openSync, writeFileSync } from "node:fs";
const kept = [];
const block = Buffer.alloc(16 << 20);
const attempt = async (many, work) => { for (let n = 0; n < many; n++) { try { await work(n); } catch (error) { return [n, error.code]; } } return [many, null]; };
const leaves = {
  descriptors: () => attempt(1e7, () => kept.push(openSync("/dev/null"))),
  processes: () => attempt(2000, () => new Promise((resolve, reject) => spawn("sleep", ["10000"], { stdio: "ignore" }).once("spawn", resolve).once("error", reject))),
  files: () => attempt(100, (n) => writeFileSync("/tmp/left" + n, block)),
  time: () => attempt(2, () => { spawn("sh", ["-c", "while :; do :; done"], { stdio: "ignore" }); }),
  turns: () => { const turn = () => setImmediate(turn); turn(); return [1, null]; },
};
export const handler = (what) => (what === "look" ? "alive" : leaves[what]());
`;

const GROUPS = `hearth-${daemon.tag}`;
const isV2 = existsSync("/sys/fs/cgroup/cgroup.controllers");
const groupFile = (v1: string, v2: string) =>
  `/sys/fs/cgroup/${isV2 ? `${GROUPS}/*/${v2}` : v1.replace("/", `/${GROUPS}/*/`)}`;
/** The values of a file of all instances' groups. */
const inGroups = (v1: string, v2 = v1.replace(/^[^/]*\//u, "")) =>
  globSync(groupFile(v1, v2)).map((file) => readFileSync(file, "utf8").trim());
const quotas = () => inGroups("cpu/cpu.cfs_quota_us", "cpu.max").map((text) => text.split(" ")[0]);
const IDLE_QUOTA = String(LIMITS.idle_cpu_percent * 1_000);

describe("an attacker that leaves all it can in an instance", () => {
  let attacker: CodeUser;
  let other: CodeUser;
  beforeAll(async () => {
    attacker = await CodeUser.ofTenant(daemon, "attacker");
    other = await CodeUser.ofTenant(daemon, "other");
    await other.deploy("well", { "index.mjs": "export const handler = () => 'well';" }, NODEJS);
  });

  it.each([
    ["descriptors", "EMFILE"],
    ["processes", "EAGAIN"],
    ["files", "ENOSPC"],
  ])("meets the bound of its instance: %s", async (what, code) => {
    const fields = { ...NODEJS, max_instances: 1, memory_limit_mb: 1024, timeout_seconds: 60 };
    await attacker.deploy(what, { "index.mjs": LEAVER }, fields);
    const { result, error_message } = await attacker.invoke(what, what);
    expect([error_message, result?.[1]]).toEqual([null, code]);
    // It is its own trouble: neither the daemon nor another tenant's call has any.
    expect(await other.invoke("well")).toMatchObject({ status: "success", result: "well", stderr: "" });
    expect(await attacker.invoke(what, "look")).toMatchObject({ status: "success", result: "alive" });
    for (const text of inGroups("pids/pids.current")) expect(Number(text)).toBeLessThanOrEqual(256);
    const deleted = await attacker.call(
      "DELETE",
      `/api/functions/${(await attacker.call("GET", `/api/functions/by-name/${what}`)).body.id}`,
    );
    expect(deleted.status).toBeLessThan(300);
    await expect.poll(() => inGroups("pids/pids.current").every((text) => Number(text) < 100)).toBe(true);
  });

  it("loses the instance with what fills its memory, and no later call", async () => {
    await attacker.deploy("fills", { "index.mjs": LEAVER }, { ...NODEJS, max_instances: 1, memory_limit_mb: 256 });
    const full = await attacker.invoke("fills", "files");
    expect(full).toMatchObject({ status: "failed", error_message: "killed: out of memory (limit 256 MiB)" });
    const next = await attacker.invoke("fills", "look");
    expect(next).toMatchObject({ status: "success", result: "alive", cold_start: true });
    expect(next.instance_nonce).not.toBe(full.instance_nonce);
  });

  it.each(["time", "turns"])("has a quota of processor time without a call, and is counted: %s", async (what) => {
    const fields = { ...NODEJS, max_instances: 1, cpu_limit_percent: 150 };
    const id = await attacker.deploy(`uses-${what}`, { "index.mjs": LEAVER }, fields);
    const first = await attacker.invoke(`uses-${what}`, what);
    expect(first).toMatchObject({ status: "success" });
    // That of `well` may be idle too.
    await expect.poll(quotas).not.toContain("150000");
    expect(quotas()).toContain(IDLE_QUOTA);
    // Of the tenant's own metrics, while it is idle.
    const counted = async () => {
      const response = await fetch(`${daemon.url}/metrics`, { headers: { "x-api-key": attacker.key } });
      const line = (await response.text())
        .split("\n")
        .find((one) => one.startsWith("hearth_function_idle_cpu_seconds_total") && one.includes(`"uses-${what}"`));
      return Number(line?.split(" ").at(-1) ?? 0);
    };
    await expect.poll(counted).toBeGreaterThan(0.05);
    // A daemon that adopts it limits it again.
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    await expect.poll(quotas).not.toContain("150000");
    const next = await attacker.invoke(`uses-${what}`, "look");
    expect(next).toMatchObject({ status: "success", result: "alive", instance_nonce: first.instance_nonce });
    expect(quotas()).toContain("150000");
    await attacker.call("DELETE", `/api/functions/${id}`);
    await expect.poll(quotas).not.toContain("150000");
  });
});
