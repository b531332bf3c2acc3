/** The wall clock set back and forward under a running daemon: only what the records call the time changes. */
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

/** What a slow machine takes for a call at most: far less than what the clock is set by. */
const SLOW_SECONDS = 60;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const PRELOAD = join(import.meta.dirname, "../support/clock-shift.ts");

const daemon = new Daemon();
const clock = `${daemon.data_dir}/clock`;
const SETTINGS = {
  HEARTH_CELLS: "2",
  HEARTH_LOG_LEVEL: "warn",
  HEARTH_TEST_CLOCK: clock,
  NODE_OPTIONS: `--import ${PRELOAD}`,
};

/** Sets the daemon's clock off by so much, at once: it never reads a half-written file. */
function shift(ms: number): void {
  writeFileSync(`${clock}.new`, String(ms));
  renameSync(`${clock}.new`, clock);
}
const epochSeconds = (): number => Date.now() / 1000;

/** The ids of a function's records as the API lists them, the oldest first. */
async function listedOf(function_id: string): Promise<string[]> {
  const { body } = await daemon.call("GET", `/api/functions/${function_id}/invocations`);
  return body.invocations.map(({ invocation_id }: { invocation_id: string }) => invocation_id).reverse();
}

// biome-ignore lint/suspicious/noExplicitAny: records as they came.
const answered: any[] = [];
/** Calls, and holds the record's times against the clock as it is set. */
async function call(name: string, shift_ms: number, body: Record<string, unknown> = {}) {
  const record = await daemon.invoke(name, body);
  answered.push(record);
  expect(Math.abs(record.ended_at - shift_ms / 1000 - epochSeconds())).toBeLessThan(SLOW_SECONDS);
  expect(record.started_at).toBeLessThanOrEqual(record.ended_at);
  expect(record.duration_ms).toBeGreaterThanOrEqual(0);
  expect(record.timings.total).toBeLessThan(SLOW_SECONDS * 1000);
  return record;
}

beforeAll(async () => {
  shift(0);
  await daemon.start(SETTINGS);
});
afterAll(() => daemon.dispose());

describe.each([
  ["back an hour", -HOUR_MS],
  ["forward a day", DAY_MS],
])("a clock that is set %s", (what, shift_ms) => {
  const name = `at-${shift_ms}`;

  it("under a warm instance leaves it warm, and the times of its records in order", async () => {
    shift(0);
    const { id } = await daemon.deploy({ name, handler: "cat" });
    const before = await call(name, 0, { payload: "before" });
    shift(shift_ms);
    const after = await call(name, shift_ms, { payload: "after" });
    expect(after).toMatchObject({
      status: "success",
      stdout: "after",
      cold_start: false,
      instance_nonce: before.instance_nonce,
    });
    const { body } = await daemon.call("GET", `/api/functions/${id}/invocations`);
    expect(body.invocations).toEqual([after, before]);
  });

  it("neither ends a call that runs nor lets one run on", async () => {
    shift(0);
    await daemon.deploy({ name: `${name}-slow`, handler: 'sleep "$(cat)"', max_instances: 2 });
    const running = Promise.all([
      daemon.invoke(`${name}-slow`, { payload: "3.5" }),
      daemon.invoke(`${name}-slow`, { payload: "60", timeout_seconds: 3 }),
    ]);
    await eventually(
      "both run",
      async () => (await daemon.call("GET", "/api/functions/pool/stats")).body.busy_count === 2,
    );
    shift(shift_ms);
    const [finished, ended] = await running;
    // They were sent side by side: which of them was first is for the list to say.
    const order = await listedOf(finished.function_id);
    answered.push(...[finished, ended].sort((a, b) => order.indexOf(a.invocation_id) - order.indexOf(b.invocation_id)));
    expect([finished.status, ended.status]).toEqual(["success", "timeout"]);
    for (const { started_at, ended_at, duration_ms } of [finished, ended]) {
      // Far from what the clock was set by, and in whole seconds of the same length.
      expect(Math.abs(ended_at - started_at - duration_ms / 1000)).toBeLessThan(SLOW_SECONDS);
      expect(duration_ms).toBeLessThan(SLOW_SECONDS * 1000);
    }
  });

  it("leaves keys as they are, and new functions are made as before", async () => {
    shift(shift_ms);
    const wrong = await daemon.call("GET", "/api/functions", undefined, { "x-api-key": `${KEY}x` });
    expect([wrong.status, (await daemon.call("GET", "/api/functions")).status]).toEqual([401, 200]);
    const made = await daemon.deploy({ name: `${name}-made`, handler: "cat", min_instances: 1 });
    expect(Math.abs(made.created_at - shift_ms / 1000 - epochSeconds())).toBeLessThan(SLOW_SECONDS);
    expect(await call(`${name}-made`, shift_ms)).toMatchObject({ status: "success", cold_start: false });
  });

  it("ends no container before it started, not one that ends while no daemon runs", async () => {
    shift(shift_ms);
    const create = async (body: object) => (await daemon.call("POST", "/api/containers", body)).body;
    const [missing, killed, left] = [
      await create({ name: "missing", command: ["/no/such"] }),
      await create({ name: "killed" }),
      await create({ name: "left", command: ["sh", "-c", "while [ ! -e /go ]; do sleep 0.1; done; sleep 2"] }),
    ];
    // Its first process tells the time of its end by the clock of the machine, the daemon that of the start by its own.
    shift(-shift_ms);
    await daemon.call("POST", `/api/containers/${killed.container_id}/kill`);
    await daemon.call("POST", `/api/containers/${left.container_id}/exec`, { command: ["touch", "/go"] });
    await daemon.stop("SIGKILL");
    await eventually("it ends without a daemon", () => {
      try {
        return !process.kill(left.pid, 0);
      } catch {
        return true;
      }
    });
    await daemon.start(SETTINGS);
    for (const { container_id, name } of [missing, killed, left]) {
      const { body } = await daemon.call("GET", `/api/containers/${container_id}`);
      expect([name, body.state]).toEqual([name, "exited"]);
      expect(Date.parse(body.exited_at), name).toBeGreaterThanOrEqual(Date.parse(body.started_at));
      await daemon.call("DELETE", `/api/containers/${container_id}`);
    }
  });

  it("is no hindrance to a start after a kill, and what the other clock has recorded is there", async () => {
    shift(shift_ms);
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(await call(name, shift_ms, { payload: "again" })).toMatchObject({ stdout: "again", cold_start: false });
    for (const record of answered) {
      const path = `/api/functions/${record.function_id}/invocations/${record.invocation_id}`;
      expect((await daemon.call("GET", path)).body).toEqual(record);
    }
  });

  it(`gives no record's id twice, and lists all in the order of their calls (${what})`, async () => {
    expect(new Set(answered.map(({ invocation_id }) => invocation_id)).size).toBe(answered.length);
    for (const function_id of new Set(answered.map((record) => record.function_id))) {
      const called = answered.filter((record) => record.function_id === function_id);
      expect(await listedOf(function_id)).toEqual(called.map(({ invocation_id }) => invocation_id));
    }
  });
});

describe("after all that", () => {
  it("nothing is left when the daemon is stopped", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
