/** The memory that all instances may use together. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "1", HEARTH_MEMORY_MB: "100", HEARTH_LOG_LEVEL: "warn" }));
afterAll(async () => {
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const stats = async () => (await daemon.call("GET", "/api/functions/pool/stats")).body;

it("ends idle instances above the budget, those first that were used longest ago, and calls go on", async () => {
  // What lies in /tmp is memory, and stays.
  const holder = { handler: "head -c 30000000 /dev/zero > /tmp/held; echo held", cleanup_on_exit: false };
  const nonces: string[] = [];
  for (const name of ["first", "second", "third"]) {
    await daemon.deploy({ name, ...holder });
    const record = await daemon.invoke(name);
    expect(record).toMatchObject({ status: "success", stdout: "held\n" });
    nonces.push(record.instance_nonce);
  }
  expect(await stats()).toMatchObject({ evicted_count: 0, ready_count: 3 });
  await daemon.deploy({ name: "fourth", ...holder });
  expect(await daemon.invoke("fourth")).toMatchObject({ stdout: "held\n" });
  await eventually("room was made", async () => (await stats()).evicted_count >= 1);
  await eventually("no more than the budget is used", async () => (await stats()).ready_count <= 3);
  expect(await daemon.invoke("third")).toMatchObject({ cold_start: false, instance_nonce: nonces[2] });
  const again = await daemon.invoke("first");
  expect(again).toMatchObject({ status: "success", cold_start: true });
  expect(again.instance_nonce).not.toBe(nonces[0]);
});
