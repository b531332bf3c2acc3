/** What a daemon leaves on the machine, counted before and after: on a clean stop, and after a kill. */
import { afterAll, describe, expect, it } from "vitest";
import { countAtRest, expectAtRest } from "../recovery/rest.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
afterAll(() => daemon.dispose());

describe("a daemon", () => {
  it("is at the same count of processes, mounts, cgroups, links and files after 60 rounds of create, invoke, delete", async () => {
    await daemon.start({ HEARTH_CELLS: "2" });
    const round = async (n: number): Promise<void> => {
      const { id } = await daemon.deploy({
        name: `round-${n}`,
        handler: n % 3 === 0 ? "sleep 30" : "cat",
        timeout_seconds: 1,
      });
      await daemon.invoke(`round-${n}`, { payload: "x" });
      expect((await daemon.call("DELETE", `/api/functions/${id}`)).status).toBe(200);
    };
    await round(1);
    const before = await countAtRest(daemon);
    for (let n = 0; n < 60; n += 4) await Promise.all([0, 1, 2, 3].map((k) => round(n + k)));
    await expectAtRest(daemon, before);
  });

  it("leaves nothing after SIGTERM, with calls in flight answered first", async () => {
    await daemon.deploy({ name: "in-flight", handler: "sleep 3; echo done" });
    const running = daemon.invoke("in-flight");
    await eventually(
      "it runs",
      async () => (await daemon.call("GET", "/api/functions/pool/stats")).body.busy_count === 1,
    );
    const stopped = daemon.stop("SIGTERM");
    expect(await running).toMatchObject({ status: "success", stdout: "done\n" });
    expect(await stopped).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("loses no answered record by kill -9, serves again after a restart, and then leaves nothing", async () => {
    await daemon.start({ HEARTH_CELLS: "2" });
    const answered: string[] = [];
    const { id } = await daemon.deploy({ name: "recorded", handler: "cat", max_instances: 4 });
    const load = [0, 1, 2, 3].map(async () => {
      for (;;) {
        const record = await daemon.invoke("recorded", { payload: "x" }).catch(() => null);
        if (record === null) return;
        answered.push(record.invocation_id);
      }
    });
    await eventually("some calls are answered", () => answered.length >= 50);
    await daemon.stop("SIGKILL");
    await Promise.all(load);
    await daemon.start({ HEARTH_CELLS: "2" });
    const { body } = await daemon.call("GET", `/api/functions/${id}/invocations?limit=1000`);
    const kept = new Set(body.invocations.map((record: { invocation_id: string }) => record.invocation_id));
    expect(answered.filter((one) => !kept.has(one))).toEqual([]);
    expect(await daemon.invoke("recorded", { payload: "again" })).toMatchObject({ stdout: "again" });
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("refuses a second daemon on the same data directory, with a clear message", async () => {
    await daemon.start();
    const second = new Daemon();
    await expect(second.start({ HEARTH_DATA_DIR: daemon.data_dir })).rejects.toThrow(/another hearth/);
    await second.dispose();
  });
});
