/**
 * Many containers, and containers many times: held at rest, asked all at once, ended, and nothing is left of them. A
 * crash of the daemon beside them changes nothing of that.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser, identityOf } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { type Counts, countAtRest, expectAtRest } from "./rest.ts";

const HELD_COUNT = 200;
const ROUND_COUNT = 1_000;
const AT_ONCE = 4;
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" };

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const state: { before: Counts } = { before: {} };

beforeAll(async () => {
  await daemon.start(SETTINGS);
  // What is made once: filters, images, threads.
  await round("first");
  state.before = await countAtRest(daemon, 0);
});
afterAll(() => daemon.dispose());

/** One container from its making to its end, with a command in between. */
async function round(name: string): Promise<void> {
  const { container_id } = await containers.create({ name });
  const { stdout, exit_code } = await containers.exec(container_id, ["sh", "-c", `echo ${name} | tee /root/file`]);
  expect([stdout, exit_code]).toEqual([`${name}\n`, 0]);
  await containers.delete(container_id);
}

/** Does `work` for 0 to `count` - 1, a few at a time. */
async function each(count: number, work: (n: number) => Promise<void>): Promise<void> {
  const next = { n: 0 };
  const lane = async () => {
    while (next.n < count) await work(next.n++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
}

describe("containers", () => {
  it(`are held, ${HELD_COUNT} of them, at little memory each, answer all at once, and outlive a crash`, async () => {
    const ids: string[] = [];
    await each(HELD_COUNT, async (n) => {
      ids.push((await containers.create({ name: `held-${n}` })).container_id);
    });
    const metrics = await Promise.all(
      ids.map(async (id) => (await daemon.call("GET", `/api/containers/${id}/metrics`)).body),
    );
    const charged_mb = metrics.map(({ memory_current_bytes }) => memory_current_bytes / 2 ** 20);
    console.info(`memory of an idle container: at most ${Math.max(...charged_mb).toFixed(2)} MiB`);
    expect(Math.max(...charged_mb)).toBeLessThan(2);
    const askAll = async () => {
      const answers = await Promise.all(ids.map((id) => containers.shell(id, "cat /etc/hostname")));
      expect(answers.map((text) => text.replace(/-\d+\n$/, "")).every((text) => text === "held")).toBe(true);
    };
    await askAll();
    const pids = async () => Promise.all(ids.map(async (id) => identityOf((await containers.get(id)).pid)));
    const before = await pids();
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(await pids()).toEqual(before);
    await askAll();
    await each(ids.length, (n) => containers.delete(ids[n] ?? ""));
    await expectAtRest(daemon, state.before, 0);
  });

  it(`come and go ${ROUND_COUNT} times, and nothing grows`, async () => {
    await each(AT_ONCE * 2, (n) => round(`warm-${n}`));
    await expectAtRest(daemon, state.before, 0);
    const open_count = daemon.descriptors().length;
    await each(ROUND_COUNT, (n) => round(`round-${n}`));
    await expectAtRest(daemon, state.before, 0);
    await eventually("as few files are open as before", () => daemon.descriptors().length <= open_count + AT_ONCE * 2);
  });

  it("leave nothing when the daemon is stopped", async () => {
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
