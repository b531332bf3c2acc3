/** Parts of the system killed from outside: what the caller is told, that calls go on, and that nothing is left. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { sendSignal } from "../support/signals.ts";
import { countAtRest, expectAtRest } from "./rest.ts";

const daemon = new Daemon();
const SETTINGS = { HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "info" };
beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

/** The minits of this daemon's instances and cells: pid and container id. */
function minits(): { pid: number; id: string; comm: string }[] {
  return processes().filter(({ comm }) => comm === "minit");
}

function processes(): { pid: number; id: string; comm: string }[] {
  const found: { pid: number; id: string; comm: string }[] = [];
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    try {
      const id = new RegExp(`/hearth-${daemon.tag}/([^/\n]+)`).exec(readFileSync(`/proc/${name}/cgroup`, "utf8"))?.[1];
      if (id !== undefined)
        found.push({ pid: Number(name), id, comm: readFileSync(`/proc/${name}/comm`, "utf8").trim() });
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}

const stats = async () => (await daemon.call("GET", "/api/functions/pool/stats")).body;

/** Starts the daemon again, without functions and with a failpoint armed. */
async function restart(failpoint: string, settings: Record<string, string> = {}): Promise<void> {
  const { body } = await daemon.call("GET", "/api/functions");
  for (const { id } of body.functions) await daemon.call("DELETE", `/api/functions/${id}`);
  await daemon.stop();
  daemon.output = "";
  await daemon.start({ ...SETTINGS, ...settings, HEARTH_FAILPOINT: failpoint });
}

const said = (what: RegExp) => eventually(`it says ${what}`, () => what.test(daemon.output));

/** The container whose memory limit is `limit_mb`, once there is one. */
function boundWith(limit_mb: number): Promise<{ pid: number }> {
  return eventually("an instance is bound", () => minits().find(({ id }) => limitOf(id) === limit_mb * 1024 * 1024));
}

function limitOf(id: string): number {
  const path = `/hearth-${daemon.tag}/${id}`;
  for (const file of [`/sys/fs/cgroup/memory${path}/memory.limit_in_bytes`, `/sys/fs/cgroup${path}/memory.max`]) {
    if (existsSync(file)) return Number(readFileSync(file, "utf8"));
  }
  return 0;
}

describe("kill -9", () => {
  it("of an idle instance's minit: the next call starts another, and nothing is left of the first", async () => {
    await daemon.deploy({ name: "idle", handler: "cat" });
    const first = await daemon.invoke("idle", { payload: "1" });
    // One that is only being started would not count as crashed.
    await eventually("the reserve is full again", async () => (await stats()).cells === 2);
    const cells = new Set(minits().map(({ id }) => id));
    expect(cells.size).toBeGreaterThanOrEqual(1);
    // Every instance of the function and every cell at once.
    for (const { pid } of minits()) sendSignal(pid);
    await eventually("the pool noticed", async () => (await stats()).crashed_count >= cells.size);
    const next = await daemon.invoke("idle", { payload: "2" });
    expect(next).toMatchObject({ status: "success", stdout: "2", cold_start: true });
    expect(next.instance_nonce).not.toBe(first.instance_nonce);
    await eventually("the killed are gone", () => minits().every(({ id }) => !cells.has(id)));
  });

  it("of a busy instance's minit: the caller gets a failed record that says so, and it is kept", async () => {
    const { id } = await daemon.deploy({ name: "busy", handler: "sleep 77" });
    const running = daemon.invoke("busy");
    const sleeper = await eventually("the handler runs", () => processes().find(({ comm }) => comm === "sleep"));
    const minit = minits().find((one) => one.id === sleeper.id);
    process.kill(minit?.pid ?? 0, "SIGKILL");
    const record = await running;
    expect(record).toMatchObject({ status: "failed", exit_code: null });
    expect(record.error_message).toMatch(/instance lost/);
    const kept = await daemon.call("GET", `/api/functions/${id}/invocations/${record.invocation_id}`);
    expect(kept.body).toEqual(record);
    await eventually("its handler is gone too", () => processes().every(({ comm }) => comm !== "sleep"));
  });

  it("of the handler alone: a failed record with the signal, and the instance serves on", async () => {
    await daemon.deploy({ name: "shot", handler: "sleep 78" });
    const running = daemon.invoke("shot");
    const sleeper = await eventually("the handler runs", () => processes().find(({ comm }) => comm === "sleep"));
    process.kill(sleeper.pid, "SIGKILL");
    expect(await running).toMatchObject({ status: "failed", exit_code: 137, error_message: "killed by signal 9" });
  });

  it("of the launcher: running calls finish, warm calls go on, cold ones too after a moment", async () => {
    await daemon.deploy({ name: "through", handler: "n=$(cat); [ $n != x ] || sleep 3; printf $n" });
    const running = daemon.invoke("through", { payload: "x" });
    await eventually("it runs", async () => (await stats()).busy_count === 1);
    const launcher = daemon.processes().find((line) => line.includes(" launcher "));
    process.kill(Number(launcher?.split(" ")[0]), "SIGKILL");
    expect(await running).toMatchObject({ status: "success", stdout: "x" });
    expect(await daemon.invoke("through", { payload: "y" })).toMatchObject({ stdout: "y", cold_start: false });
    const served = await eventually("a new function is served", async () => {
      const name = `new-${performance.now()}`;
      await daemon.deploy({ name, handler: "echo new" });
      const { status, body } = await daemon.call("POST", `/api/functions/invoke/${name}`, {});
      return status === 200 ? body : null;
    });
    expect(served).toMatchObject({ status: "success", stdout: "new\n" });
  });

  it.each([
    [
      "of the OCI runtime in the middle of starts",
      5,
      (line: string) => / crun .* run /.test(line) && Math.random() < 0.5,
    ],
    ["of the OCI runtime in the middle of removals", 5, (line: string) => / crun .* delete /.test(line)],
    ["of the launcher, again and again under load", 700, (line: string) => line.includes(" launcher ")],
  ])("%s: no container is left that nobody knows of", async (_what, pause_ms, isVictim) => {
    const begun_ms = performance.now();
    let killed = 0;
    // Longer where the machine is so slow that hardly any was caught.
    const isOver = () => performance.now() - begun_ms > (killed > 1 ? 4_000 : 60_000);
    const killing = (async () => {
      while (!isOver()) {
        for (const line of daemon.processes().filter(isVictim)) if (sendSignal(Number(line.split(" ")[0]))) killed++;
        await new Promise((resolve) => setTimeout(resolve, pause_ms));
      }
    })();
    for (let n = 0; !isOver(); n++) {
      const name = `shaken-${pause_ms}-${n}`;
      const { id } = await daemon.deploy({ name, handler: "cat" });
      const answers = [1, 2, 3].map(() => daemon.call("POST", `/api/functions/invoke/${name}`, { payload: "x" }));
      for (const { status } of await Promise.all(answers)) expect([200, 503]).toContain(status);
      await daemon.call("DELETE", `/api/functions/${id}`);
    }
    await killing;
    expect(killed).toBeGreaterThan(1);
    const known = await eventually(
      "the pool is at rest",
      async () => {
        const { cells, cells_starting, terminating_count, warming_count, total_count } = await stats();
        const isAtRest = cells === 2 && cells_starting + terminating_count + warming_count === 0;
        return isAtRest ? total_count + cells : null;
      },
      90_000,
    );
    const running = () => new Set(processes().map(({ id }) => id)).size;
    await eventually("as many containers run as the pool knows", () => running() === known);
  });

  it("of the minit of an instance that is being warmed: another one is warmed, and the deployment is answered", async () => {
    // The daemon stands still between the limits and the first word to the instance.
    await restart("functions.bind.limited=delay:1000");
    const deployed = daemon.deploy({ name: "warming", handler: "cat", min_instances: 1, memory_limit_mb: 301 });
    process.kill((await boundWith(301)).pid, "SIGKILL");
    const { id } = await deployed;
    expect((await daemon.call("GET", `/api/functions/${id}/pool`)).body).toMatchObject({ ready_count: 1 });
    expect(await daemon.invoke("warming", { payload: "x" })).toMatchObject({ stdout: "x", cold_start: false });
  });

  it("of the minit of a cell that is being bound to a call: a failed record that says so, and the next call is served", async () => {
    await restart("functions.bind.limited=delay:1000");
    await eventually("cells stand ready", async () => (await stats()).cells === 2);
    await daemon.deploy({ name: "binding", handler: "cat", memory_limit_mb: 302 });
    const running = daemon.invoke("binding", { payload: "x" });
    process.kill((await boundWith(302)).pid, "SIGKILL");
    expect(await running).toMatchObject({
      status: "failed",
      exit_code: null,
      error_message: expect.stringMatching(/instance lost/),
    });
    expect(await daemon.invoke("binding", { payload: "y" })).toMatchObject({ status: "success", stdout: "y" });
  });

  it("of all of these leaves nothing behind the daemon's end", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("a worker thread that ends", () => {
  beforeAll(async () => {
    if (!daemon.isAlive) await daemon.start(SETTINGS);
  });

  it("in the start of a container costs the caller a moment: the call is served, the reserve is filled", async () => {
    await restart("engine.start.bundle:2=exit-thread", { HEARTH_CELLS: "0" });
    await daemon.deploy({ name: "threadless", handler: "cat" });
    expect(await daemon.invoke("threadless", { payload: "x" })).toMatchObject({ status: "success", stdout: "x" });
    await said(/cannot start an instance.*worker exited/);
  });

  it("in the start of a cell is made up for", async () => {
    await restart("engine.start.spawned:2=exit-thread");
    await eventually("cells stand ready", async () => (await stats()).cells === 2);
    await said(/cannot start an instance.*worker exited/);
  });

  it("in a removal leaves it to be done again, and nothing is left then", async () => {
    await restart("engine.remove.deleted:2=exit-thread");
    const before = await countAtRest(daemon);
    const { id } = await daemon.deploy({ name: "kept", handler: "cat" });
    await daemon.invoke("kept");
    await daemon.call("POST", `/api/functions/${id}/pause`);
    await said(/cannot remove a container, retrying later/);
    await expectAtRest(daemon, before);
  });

  it("in a checkpoint costs nobody an answer, and the next checkpoint is made", async () => {
    await restart("store.checkpoint.begun=exit-thread");
    await daemon.deploy({ name: "large", handler: "cat" });
    const payload = "x".repeat(1_000_000);
    await eventually("a checkpoint was made after the one that was not", async () => {
      expect((await daemon.invoke("large", { payload })).stdout).toBe(payload);
      return /checkpoints fail.*worker exited.*checkpoints work again/s.test(daemon.output);
    });
  });

  it("leaves nothing behind the daemon's end", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
