/** A thousand functions made, called and deleted: the machine and the daemon's process hold as much as before. */
import { readFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { countAtRest, expectAtRest } from "./rest.ts";

const ROUNDS = 1_000;
const AT_ONCE = 4;

const daemon = new Daemon();
afterAll(() => daemon.dispose());

/** How many descriptors of each kind the daemon has, without the connections of clients. */
function descriptors(): Record<string, number> {
  const tcp = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => `socket:[${line.trim().split(/\s+/)[9]}]`);
  const kinds: Record<string, number> = {};
  for (const link of daemon.descriptors().filter((one) => !tcp.includes(one))) {
    const kind = link.replace(/\d+/g, "0");
    kinds[kind] = (kinds[kind] ?? 0) + 1;
  }
  return kinds;
}

async function round(n: number): Promise<void> {
  const { id } = await daemon.deploy({ name: `round-${n}`, handler: "cat", min_instances: n % 5 === 0 ? 1 : 0 });
  expect(await daemon.invoke(`round-${n}`, { payload: `${n}` })).toMatchObject({ status: "success", stdout: `${n}` });
  expect((await daemon.call("DELETE", `/api/functions/${id}`)).status).toBe(200);
}

describe(`a daemon after ${ROUNDS} rounds of create, deploy, invoke, delete`, () => {
  it("is at the same counts of processes, mounts, groups, namespaces, links, files and descriptors", async () => {
    await daemon.start({ HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "warn" });
    // What is made once and kept (the checkpoint's thread and its files) is there before the counting.
    const { id } = await daemon.deploy({ name: "large", handler: "cat" });
    for (let n = 0; n < 8; n++) await daemon.invoke("large", { payload: "x".repeat(1_000_000) });
    await daemon.call("DELETE", `/api/functions/${id}`);
    await Promise.all(Array.from({ length: AT_ONCE }, (_, n) => round(n)));
    const before = { machine: await countAtRest(daemon), process: descriptors() };

    const turn = { next: AT_ONCE };
    const work = async (): Promise<void> => {
      while (turn.next < ROUNDS + AT_ONCE) await round(turn.next++);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    await expectAtRest(daemon, before.machine);
    expect(descriptors()).toEqual(before.process);
  });

  it("leaves nothing when it is stopped", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
