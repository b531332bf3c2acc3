/** The runner of a binding where its inbox, its function or the bus fails it. */
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import type { Binding } from "../../src/icc/bindings/rows.ts";
import { type CallOutcome, Runner } from "../../src/icc/bindings/runner.ts";
import { Bindings } from "../../src/icc/bindings/service.ts";
import { EmbeddedBus } from "../../src/icc/bus/embedded.ts";
import { encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { envelopeOf } from "../../src/icc/envelope/messages.ts";
import { TenantSlots } from "../../src/icc/tenant-slots.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";

const KEY = { tenant_id: "acme", inbox: "queue:work" };
const BINDING: Binding = {
  ...{ id: "bnd_1", tenant_id: "acme", function_id: "fn_1", function_name: "work", subject: "queue:work" },
  ...{ message_type: null, is_ordered: false, replies: false, max_deliver: 3, backoff_ms: 50, concurrency: 2 },
  created_at: 0,
};
const SUCCESS: CallOutcome = {
  ...{ invocation_id: "inv_1", status: "success", error_message: null, result: null, stdout: "" },
};
const scratch = scratchStores();

function ground(call: (payload: string) => Promise<CallOutcome>) {
  const store = scratch().open();
  const bus = new EmbeddedBus({ store, clock: systemClock, quotas: nodeQuotas() });
  const slots = new TenantSlots({ all_max: 2, tenant_max: 2 });
  const missing: string[] = [];
  const runner = new Runner(BINDING, {
    ...{ bus, clock: systemClock, ids: randomIds(), log: quietLog, slots },
    call: (_, payload) => call(payload),
    reply: async () => {},
    tracing: { traceOf: () => null },
    onMissing: (tenant_id) => missing.push(tenant_id),
  });
  const send = (msg_id: string) => {
    const now_ms = Date.now();
    const envelope = envelopeOf({ to: KEY.inbox, type: "t", payload: msg_id } as never, {
      from: "api",
      msg_id,
      now_ms,
    });
    const bytes = encodeEnvelope(envelope);
    return bus.publish({ ...KEY, msg_id, idempotency_key: "", envelope: bytes, expires_ms: now_ms + 60_000 });
  };
  const states = async () => {
    const range = { from_seq: 0, to_seq: Number.MAX_SAFE_INTEGER, state: null, entries_max: 100 };
    return (await bus.read(KEY, range)).map(({ state }) => state);
  };
  return { store, bus, slots, runner, missing, send, states };
}

describe("bindings", () => {
  it("remove an inbox without a binding: a publish copied to it while the binding ended", async () => {
    const { store, bus } = ground(async () => SUCCESS);
    const bindings = new Bindings({
      ...{ store, clock: systemClock, ids: randomIds(), log: quietLog, icc: { bus } as never },
      ...{ publishing: {} as never, tracing: {} as never, functions: {} as never },
    });
    const publish = (inbox: string) =>
      bus.publish({
        ...{ tenant_id: "acme", inbox, msg_id: "m", idempotency_key: "", envelope: Buffer.from("x") },
        expires_ms: Date.now() + 60_000,
      });
    for (const inbox of ["binding:bnd_gone", "queue:stays", "ctr_stays"]) await publish(inbox);
    await bindings.prune();
    const left = await bus.inboxes("acme", { after: "", inboxes_max: 10 });
    expect(left.map(({ inbox }) => inbox)).toEqual(["ctr_stays", "queue:stays"]);
  });
});

const nameIn = (payload: string): string => JSON.parse(payload).message.msg_id;

describe("the runner of a binding", () => {
  it("continues with a new inbox after its inbox was deleted under a call", async () => {
    const called: string[] = [];
    const held = Promise.withResolvers<void>();
    const { bus, runner, send, states, slots } = ground(async (payload) => {
      called.push(nameIn(payload));
      if (called.length <= 2) await held.promise;
      return SUCCESS;
    });
    runner.begin();
    for (const id of ["a", "b", "c"]) await send(id);
    await eventually("two are called", () => called.length === 2);
    await bus.remove(KEY);
    held.resolve();
    await eventually("both have ended", () => runner.in_flight === 0);
    expect(called).toEqual(["a", "b"]);
    await send("d");
    await eventually("the next one is acked", async () => (await states()).join() === "acked");
    expect([called.at(-1), runner.last_error]).toEqual(["d", null]);
    // No place is lost.
    runner.end();
    const places = await Promise.all([slots.take("acme"), slots.take("acme")]);
    expect(places).toHaveLength(2);
  });

  it("keeps a message whose function takes no call now, and counts no delivery", async () => {
    let refusals = 0;
    const { runner, send, states, missing } = ground(async () => {
      if (refusals++ < 4) throw new AppError("QUEUE_FULL", "busy");
      return SUCCESS;
    });
    runner.begin();
    await send("a");
    await eventually("it says why", () => runner.last_error !== null);
    expect(runner.last_error).toContain("busy");
    await eventually("it is acked", async () => (await states()).join() === "acked");
    expect([refusals, missing, runner.last_error]).toEqual([5, [], null]);
    runner.end();
  });

  it("tells of a function that is gone, and holds no message of the queue", async () => {
    const { bus, runner, send, states, missing } = ground(async () => {
      throw new AppError("NOT_FOUND", "function not found");
    });
    runner.begin();
    await send("a");
    await eventually("it tells", () => missing.length > 0);
    runner.end();
    await eventually("the call has ended", () => runner.in_flight === 0);
    expect([missing[0], await states()]).toEqual(["acme", ["unread"]]);
    // Another receiver gets it, as its first delivery.
    const options = { entries_max: 1, lease_ms: 1_000, max_deliver: 3, is_ordered: false };
    const [delivery] = await eventually("another receives it", async () => {
      const found = await bus.receive(KEY, options);
      return found.length === 0 ? null : found;
    });
    expect(delivery?.deliveries).toBe(1);
  });

  it("pauses while the bus refuses to deliver, and gives its place back", async () => {
    const { bus, runner, send, states } = ground(async () => SUCCESS);
    const receive = bus.receive.bind(bus);
    let refusals = 0;
    bus.receive = (key, options) =>
      refusals++ < 3 ? Promise.reject(new AppError("SERVICE_UNAVAILABLE", "no server")) : receive(key, options);
    await send("a");
    runner.begin();
    await eventually("it is acked", async () => (await states()).join() === "acked");
    expect(refusals).toBeGreaterThanOrEqual(4);
    expect(runner.last_error).toBeNull();
    runner.end();
  });

  it("makes a dead letter of a message after max_deliver failed calls, with their reason", async () => {
    let calls = 0;
    const failed = { ...SUCCESS, status: "failed", error_message: "x".repeat(5_000) };
    const { bus, runner, send, states } = ground(async () => {
      calls++;
      return failed;
    });
    runner.begin();
    await send("a");
    await eventually("it has failed", async () => (await states()).join() === "failed");
    const [dead] = await bus.deadLetters("acme", { from_seq: 0, entries_max: 10 });
    expect([calls, dead?.deliveries, dead?.reason.length]).toEqual([3, 3, 1_000]);
    runner.end();
  });
});
