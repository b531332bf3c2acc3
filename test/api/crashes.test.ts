/** Parts of the system killed from outside: what the caller is told, that calls go on, and that nothing is left. */
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "warn" }));
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

function tryKill(pid: number): number {
  try {
    process.kill(pid, "SIGKILL");
    return 1;
  } catch {
    // It had ended.
    return 0;
  }
}

const stats = async () => (await daemon.call("GET", "/api/functions/pool/stats")).body;

describe("kill -9", () => {
  it("of an idle instance's minit: the next call starts another, and nothing is left of the first", async () => {
    await daemon.deploy({ name: "idle", handler: "cat" });
    const first = await daemon.invoke("idle", { payload: "1" });
    const cells = new Set(minits().map(({ id }) => id));
    expect(cells.size).toBeGreaterThanOrEqual(1);
    // Every instance of the function and every cell at once.
    for (const { pid } of minits()) process.kill(pid, "SIGKILL");
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
    expect(record.error_message).toMatch(/instance was lost/);
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
    await daemon.deploy({ name: "through", handler: "sleep 0.3; cat" });
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
    ["of the launcher, again and again under load", 700, (line: string) => line.includes(" launcher ")],
  ])("%s: no container is left that nobody knows of", async (_what, pause_ms, isVictim) => {
    const end_ms = performance.now() + 4_000;
    const killing = (async () => {
      let killed = 0;
      while (performance.now() < end_ms) {
        for (const line of daemon.processes().filter(isVictim)) killed += tryKill(Number(line.split(" ")[0]));
        await new Promise((resolve) => setTimeout(resolve, pause_ms));
      }
      return killed;
    })();
    for (let n = 0; performance.now() < end_ms; n++) {
      const name = `shaken-${pause_ms}-${n}`;
      const { id } = await daemon.deploy({ name, handler: "cat" });
      const answers = [1, 2, 3].map(() => daemon.call("POST", `/api/functions/invoke/${name}`, { payload: "x" }));
      for (const { status } of await Promise.all(answers)) expect([200, 503]).toContain(status);
      await daemon.call("DELETE", `/api/functions/${id}`);
    }
    expect(await killing).toBeGreaterThan(1);
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

  it("of all of these leaves nothing behind the daemon's end", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
