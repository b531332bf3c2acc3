/** What one container or tenant does to the messages of others. */
import { describe, expect, it, vi } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Traces } from "../../src/base/trace.ts";
import { Broadcasts } from "../../src/icc/broadcasts.ts";
import { EmbeddedBus } from "../../src/icc/bus/embedded.ts";
import { encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { Grants } from "../../src/icc/grants.ts";
import { ContainerMessages } from "../../src/icc/inside/container-messages.ts";
import { ContainerLeases } from "../../src/icc/inside/leases.ts";
import { Publishing, type Sender } from "../../src/icc/publishing.ts";
import { Replies, Waits } from "../../src/icc/replies.ts";
import { Icc } from "../../src/icc/service.ts";
import { States } from "../../src/icc/state/service.ts";
import { MessageTracing } from "../../src/icc/tracing.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { scratchStores } from "../store/scratch.ts";

const TENANT = "acme";
const sender = (id: string): Sender => ({ tenant_id: TENANT, container: { id, name: id } });

describe("hostile messages", () => {
  const scratch = scratchStores();

  function ground() {
    const store = scratch().open();
    const bus = new EmbeddedBus({ store, clock: systemClock, quotas: nodeQuotas() });
    let next = 0;
    const ids = { next: (prefix: string) => `${prefix}_${++next}` } as never;
    const replies = new Replies();
    const grants = new Grants(store, { write: (statements) => store.write(statements) });
    const states = new States({ store, clock: systemClock });
    const publishing = new Publishing({
      ...{ bus, clock: systemClock, ids, grants, replies, states },
      tracing: new MessageTracing({ traces: new Traces(ids, 0), clock: systemClock, onStep: null }),
      containerOf: async (_, text) => (text.startsWith("ctr_") ? text : null),
      copiesOf: () => [],
      onAction: () => {},
      onCommand: () => {},
    });
    const waits = new Waits();
    const iccOn = (clock: Clock) =>
      new Icc({ bus, clock, ids, publishing, grants, replies, waits, checkBinding: never });
    return { store, bus, ids, publishing, waits, iccOn };
  }

  const outgoing = (inbox: string, msg_id: string, size = 10) => ({
    ...{ tenant_id: TENANT, inbox, msg_id, idempotency_key: "", envelope: Buffer.alloc(size) },
    expires_ms: Date.now() + 60_000,
  });

  it("lets a container answer the sender of a message, and forge no answer to others", async () => {
    const { publishing } = ground();
    const ask = (from: string, to: string, msg_id: string) =>
      publishing.publish(sender(from), { message: { to, type: "ask", payload: 1, msg_id } as never });
    const ack = (to: string, correlation_id: string) => {
      const payload = { status: "APPLIED" };
      const message = { to, type: "ack", payload, correlation_id, permission_level: "ADMIN" };
      return publishing.publish(sender("ctr_evil"), { message: message as never }).then(
        () => "sent",
        ({ code }) => code,
      );
    };
    await ask("ctr_one", "ctr_evil", "asked");
    await ask("ctr_evil", "ctr_evil", "own");
    await ask("ctr_one", "ctr_two", "others");
    expect(await ack("ctr_one", "asked")).not.toBe("FORBIDDEN");
    expect(await ack("ctr_two", "asked")).toBe("FORBIDDEN");
    expect(await ack("ctr_two", "own")).toBe("FORBIDDEN");
    expect(await ack("ctr_two", "others")).toBe("FORBIDDEN");
    // The platform tells how an action ended, and its container tells nothing in its place.
    const action = {
      to: "ctr_evil",
      from: "ctr_one",
      type: "exec_command",
      payload: { argv: ["true"] },
      msg_id: "act",
    };
    await publishing.publish({ tenant_id: TENANT, container: null }, { message: action as never });
    expect(await ack("ctr_one", "act")).toBe("FORBIDDEN");
  });

  it("counts no copy that an inbox has already, and writes none to an inbox that is gone", async () => {
    const { bus, store } = ground();
    const key = { tenant_id: TENANT, inbox: "ctr_one" };
    for (let i = 0; i < 20; i++) {
      await bus.publish(outgoing("ctr_one", `m${i}`));
      await bus.ack({ ...key, msg_id: `m${i}` }, { lease: null });
      await bus.publish({ ...outgoing("topic:t", `m${i}`), is_settled: true, copies: ["ctr_one"] });
    }
    expect((await bus.facts(key)).unread_count).toBe(0);
    const ids = Array.from({ length: LIMITS.inbox_unread_max }, (_, i) => `full${i}`);
    for (let i = 0; i < ids.length; i += 1_000) {
      await Promise.all(ids.slice(i, i + 1_000).map((id) => bus.publish(outgoing("ctr_one", id))));
    }
    await store.write([{ sql: "DELETE FROM icc_inboxes WHERE name = 'ctr_two'" }]);
    await bus.publish(outgoing("ctr_two", "first"));
    // The container ends: its inbox goes by a trigger, which nobody tells the bus.
    await store.write([{ sql: "DELETE FROM icc_inboxes WHERE name = 'ctr_two'" }]);
    await bus.prune();
    await bus.publish({ ...outgoing("topic:t", "late"), is_settled: true, copies: ["ctr_two"] });
    const orphans = await store.read(
      "SELECT msg_id FROM icc_entries WHERE inbox_no NOT IN (SELECT inbox_no FROM icc_inboxes)",
    );
    expect(orphans).toEqual([]);
  });

  it("keeps room for the inboxes of containers while queues fill the tenant's number", async () => {
    const { bus, store } = ground();
    await bus.publish(outgoing("queue:first", "m"));
    const sql = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      INSERT INTO icc_inboxes (tenant_no, name) SELECT (SELECT tenant_no FROM icc_tenants), 'queue:q' || i FROM n`;
    await store.write([{ sql, args: [LIMITS.tenant_inboxes_max - 1] }]);
    await expect(bus.publish(outgoing("queue:more", "m"))).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    expect((await bus.publish(outgoing("ctr_new", "m"))).stream_seq).toBe(1);
  });

  it("broadcasts large messages without filling the store's queue, so that others write meanwhile", async () => {
    const { bus, store, ids, publishing } = ground();
    const broadcasts = new Broadcasts({
      clock: systemClock,
      ids,
      publishing,
      containersOf: async () => [],
      stateOf: async () => "running",
      run: never,
    });
    const base = { version: 1, msg_id: "big", from: "api", to: "ctr_x", sent_at: Date.now(), ttl_ms: 60_000 };
    const texts = { request_id: "", trace_id: "", correlation_id: "", causation_id: "", stream_key: "" };
    const payload = { kind: "state_snapshot", value: { content_type: "a/b", data: Buffer.alloc(1_000_000) } };
    const fields = { ...base, ...texts, seq: 0, idempotency_key: "", permission_level: "READ_ONLY", payload };
    const bytes = encodeEnvelope(fields as never);
    const container_ids = Array.from({ length: 64 }, (_, i) => `ctr_${i}`);
    let peak = 0;
    const look = setInterval(() => {
      peak = Math.max(peak, store.stats().queue_bytes);
    }, 0);
    const sent = broadcasts.publish({ tenant_id: TENANT, container: null }, { bytes }, { container_ids });
    await bus.publish({ ...outgoing("ctr_other", "m"), tenant_id: "other" });
    const { accepted } = await sent;
    clearInterval(look);
    expect(accepted).toBe(64);
    expect(peak).toBeLessThan(2 * LIMITS.broadcast_bytes_at_once);
  });

  it("gives back what each wait held: its place, its timer and its listeners", async () => {
    const { publishing, waits, iccOn } = ground();
    const timers = new Set<object>();
    const clock: Clock = {
      ...systemClock,
      after(delay_ms, fn) {
        const timer = {};
        timers.add(timer);
        const cancel = systemClock.after(delay_ms, () => timers.delete(timer) && fn());
        return () => {
          timers.delete(timer);
          cancel();
        };
      },
    };
    const icc = iccOn(clock);
    const key: Sender = { tenant_id: TENANT, container: null };
    const client = new AbortController();
    const added = vi.spyOn(AbortSignal.prototype, "addEventListener");
    const removed = vi.spyOn(AbortSignal.prototype, "removeEventListener");
    const input = { max: 1, wait_ms: 60_000, lease_ms: 60_000, max_deliver: 5, ordered: false };
    const message = (to: string, msg_id: string, correlation_id = "") =>
      ({ to, type: "t", payload: 1, msg_id, correlation_id }) as never;
    for (let i = 0; i < 20; i++) {
      // All are woken by each message, and one gets it.
      const waiting = Array.from({ length: 5 }, () => icc.receive(TENANT, "queue:q", input, client.signal));
      await vi.waitUntil(() => waits.count === 5);
      for (let n = 0; n < 5; n++) await icc.publish(key, { message: message("queue:q", `m${i}-${n}`) });
      expect((await Promise.all(waiting)).flat()).toHaveLength(5);
      const asked = icc.request(key, message("queue:asked", `ask${i}`), 60_000, client.signal);
      await vi.waitUntil(() => waits.count === 1);
      // The same request again is refused, and holds nothing.
      const again = icc.request(key, message("queue:asked", `ask${i}`), 60_000, client.signal);
      await expect(again).rejects.toMatchObject({ code: "WRONG_STATE" });
      const reply = message("queue:replies", `reply${i}`, `ask${i}`);
      icc.answer(TENANT, "api", (await publishing.check(key, { message: reply })).envelope);
      await asked;
    }
    expect([waits.count, timers.size]).toEqual([0, 0]);
    expect(added.mock.calls.length).toBeGreaterThan(0);
    expect(removed.mock.calls.length).toBe(added.mock.calls.length);
    vi.restoreAllMocks();
  });

  it("grants each tenant message_waits_always_max waits, even if all are taken", () => {
    const waits = new Waits();
    const { message_waits_per_tenant_max: own_max, message_waits_max: all_max, message_waits_always_max } = LIMITS;
    for (let i = 0; i < all_max; i++) waits.begin(`ten_${Math.floor(i / own_max)}`);
    for (let i = 0; i < message_waits_always_max; i++) waits.begin("ten_late");
    const refusalOf = (tenant_id: string) => {
      try {
        waits.begin(tenant_id);
        return null;
      } catch (error) {
        return error;
      }
    };
    expect(refusalOf("ten_late")).toMatchObject({ code: "CAPACITY_FULL", retryable: true });
    expect(refusalOf("ten_0")).toMatchObject({ code: "CONCURRENCY_LIMIT" });
    expect(waits.count).toBe(all_max + message_waits_always_max);
  });

  it("tells a stream that finds no place among the waits of the tenant why, before it begins", async () => {
    const { publishing, waits, iccOn } = ground();
    const ends = Array.from({ length: LIMITS.message_waits_per_tenant_max }, () => waits.begin(TENANT));
    const icc = iccOn(systemClock);
    const nameOf = async (_: string, id: string) => id;
    const leases = new ContainerLeases(Buffer.alloc(32));
    const messages = new ContainerMessages({ icc, publishing, clock: systemClock, leases, nameOf });
    const self = { tenant_id: TENANT, container_id: "ctr_one" };
    const asked = { inbox: null, lease_ms: null, ordered: false, prefetch: 1 };
    const { signal } = new AbortController();
    await expect(messages.deliveries(self, asked, signal)).rejects.toMatchObject({ code: "CONCURRENCY_LIMIT" });
    ends.pop()?.();
    await messages.deliveries(self, asked, signal);
    for (const end of ends) end();
    expect(waits.count).toBe(0);
  });

  it("delivers the others where the disk has damaged a message, which becomes a dead letter", async () => {
    const { store, bus, iccOn } = ground();
    const icc = iccOn(systemClock);
    const key: Sender = { tenant_id: TENANT, container: null };
    for (const msg_id of ["m1", "m2", "m3", "m4"]) {
      await icc.publish(key, { message: { to: "queue:q", type: "t", payload: 1, msg_id } as never });
    }
    for (const [msg_id, envelope] of [
      ["m1", Buffer.from("ff", "hex")],
      ["m3", Buffer.alloc(0)],
    ] as const) {
      await store.write([{ sql: "UPDATE icc_entries SET envelope = ? WHERE msg_id = ?", args: [envelope, msg_id] }]);
    }
    const { messages: listed } = await icc.read(TENANT, "queue:q", { include_message: true });
    expect(listed.map(({ msg_id, envelope_summary: { type }, ...one }) => [msg_id, type, "message" in one])).toEqual([
      ["m1", "damaged", false],
      ["m2", "t", true],
      ["m3", "damaged", false],
      ["m4", "t", true],
    ]);
    const input = { max: 1, wait_ms: 0, lease_ms: 60_000, max_deliver: 5, ordered: true };
    const { signal } = new AbortController();
    for (const msg_id of ["m2", "m4"]) {
      expect(await icc.receive(TENANT, "queue:q", input, signal)).toMatchObject([{ msg_id }]);
      await icc.settle(TENANT, "queue:q", { msg_id, action: "ack" });
    }
    expect(await icc.receive(TENANT, "queue:q", input, signal)).toEqual([]);
    const dead = await icc.deadLetters(TENANT, { include_message: true });
    expect(dead.messages.map(({ msg_id, reason }) => [msg_id, reason])).toEqual([
      ["m1", "the stored envelope of the message is damaged"],
      ["m3", "the stored envelope of the message is damaged"],
    ]);
    await expect(icc.replayDead({ tenant_id: TENANT }, 1, null)).rejects.toMatchObject({ code: "WRONG_STATE" });
    expect(await icc.replay({ tenant_id: TENANT }, "queue:q", {})).toMatchObject({ replayed: 2 });
    expect((await bus.facts({ tenant_id: TENANT, inbox: "queue:q" })).unread_count).toBe(2);
  });

  it("bounds the output in the answer of a broadcast command", async () => {
    const { ids, publishing } = ground();
    const stdout = "x".repeat(1_000_000);
    const run = async () => ({ job_id: "job_1", exit_code: 0, stdout, stderr: "", timed_out: false });
    const broadcasts = new Broadcasts({
      clock: systemClock,
      ids,
      publishing,
      containersOf: async () => [],
      stateOf: never,
      run,
    });
    const container_ids = Array.from({ length: 100 }, (_, i) => `ctr_${i}`);
    const command = { command: ["x"], capture_output: true, detach: false };
    const by = { credential: "key", key_id: "key_1", address: null } as const;
    const asked = { tenant_id: TENANT, request_id: "req_1", by };
    const { results } = await broadcasts.run(asked, command, { container_ids }, new AbortController().signal);
    const size = results.reduce((sum, one) => sum + one.stdout.length, 0);
    expect(size).toBeLessThanOrEqual(LIMITS.broadcast_output_bytes_max);
    expect(results.at(-1)).toMatchObject({ job_id: "job_1", error: expect.stringContaining("job") });
  });
});

const never = async (): Promise<never> => {
  throw new Error("unexpected");
};
