/** A bus after `kill -9` of its process between two steps and under load, and of the server behind it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sleep, systemClock } from "../../src/base/clock.ts";
import { EmbeddedBus } from "../../src/icc/bus/embedded.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { type Scratch, scratchStores } from "../store/scratch.ts";
import { TestNatsServer } from "../support/nats-server.ts";
import { checkLives, startRunner } from "./crash-lines.ts";
import { openJetStream } from "./jetstream-ground.ts";

const KEY = { tenant_id: "acme", inbox: "ctr_one" };
const ALL = { from_seq: 1, to_seq: 1_000_000, state: null, entries_max: 1_000 };
const state = { number: 0 };

/** Kills a bus under load three times. Resolves to the lines of all its lives. */
async function killAgain(files: Scratch, url: string, tag: string): Promise<string[]> {
  const lines: string[] = [];
  for (const prefix of ["a", "b", "c"]) {
    const runner = startRunner(files.path, url, tag, "-", prefix);
    await expect.poll(() => runner.lines.length).toBeGreaterThan(300);
    await sleep(systemClock, 100);
    runner.child.kill("SIGKILL");
    await runner.ended();
    lines.push(...runner.lines);
  }
  return lines;
}

describe("a bus in the store", () => {
  const scratch = scratchStores();

  it("keeps its promises if its process is killed under load, again and again", async () => {
    const files = scratch();
    const lines = await killAgain(files, "-", "");
    const bus = new EmbeddedBus({ store: files.open(), clock: systemClock, quotas: nodeQuotas() });
    const { published } = await checkLives(bus, lines);
    expect(published).toBeGreaterThan(100);
    await bus.close();
  });
});

describe("a bus on JetStream", () => {
  const scratch = scratchStores();
  let server: TestNatsServer;
  beforeAll(async () => {
    server = await TestNatsServer.start();
  });
  afterAll(() => server.stop());

  it("gives messages their entries once if it is killed between the server's answer and the ledger", async () => {
    const [files, tag] = [scratch(), `carried${state.number++}`];
    const runner = startRunner(files.path, server.url, tag, "icc.publish.carried:50", "m");
    expect(await runner.ended()).toBe("SIGKILL");
    let opened = await openJetStream(files, server.url, tag);
    const { last_seq } = await opened.bus.facts(KEY);
    // The eight publishes in progress: some had the server's answer.
    const entries = await opened.bus.read(KEY, ALL);
    expect(new Set(entries.map(({ msg_id }) => msg_id)).size).toBe(entries.length);
    expect(entries.length).toBeGreaterThanOrEqual(50);
    const carried = entries.at(-1);
    const message = { ...KEY, msg_id: carried?.msg_id ?? "", idempotency_key: "", expires_ms: Date.now() + 60_000 };
    expect(await opened.bus.publish({ ...message, envelope: carried?.envelope ?? Buffer.of() })).toEqual({
      stream_seq: carried?.stream_seq,
      is_duplicate: true,
    });
    opened = await opened.reopen();
    expect((await opened.bus.facts(KEY)).last_seq).toBe(last_seq);
    await checkLives(opened.bus, runner.lines);
    await opened.close();
  });

  it("never delivers an entry again whose ack the ledger has and the server lacks", async () => {
    const [files, tag] = [scratch(), `settled${state.number++}`];
    const runner = startRunner(files.path, server.url, tag, "icc.ack.settled:20", "m");
    expect(await runner.ended()).toBe("SIGKILL");
    const opened = await openJetStream(files, server.url, tag);
    const acked = await opened.bus.read(KEY, { ...ALL, state: "acked" });
    expect(acked).toHaveLength(20);
    await checkLives(opened.bus, runner.lines);
    await opened.close();
  });

  it("keeps its promises if its process is killed under load, again and again", async () => {
    const [files, tag] = [scratch(), `killed${state.number++}`];
    const lines = await killAgain(files, server.url, tag);
    const opened = await openJetStream(files, server.url, tag);
    const { published } = await checkLives(opened.bus, lines);
    expect(published).toBeGreaterThan(100);
    await opened.close();
  });

  it("keeps its promises if the server is killed under load, again and again", async () => {
    const [files, tag] = [scratch(), `server${state.number++}`];
    const runner = startRunner(files.path, server.url, tag, "-", "s");
    for (let round = 1; round <= 3; round++) {
      const before = runner.lines.length;
      await expect.poll(() => runner.lines.length).toBeGreaterThan(before + 200);
      await server.kill();
      await sleep(systemClock, 100);
      await server.start();
    }
    const before = runner.lines.length;
    await expect.poll(() => runner.lines.length).toBeGreaterThan(before + 100);
    runner.child.kill("SIGKILL");
    await runner.ended();
    const opened = await openJetStream(files, server.url, tag);
    await checkLives(opened.bus, runner.lines);
    await opened.close();
  });
});
