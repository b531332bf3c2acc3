/** Series of messages, from a bus in a store to the text that a scraper reads. */
import { Registry } from "prom-client";
import { describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Traces } from "../../src/base/trace.ts";
import { EmbeddedBus } from "../../src/icc/bus/embedded.ts";
import { Observation } from "../../src/icc/observation.ts";
import { MessageTracing } from "../../src/icc/tracing.ts";
import { MessageSeries } from "../../src/telemetry/message-series.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { scratchStores } from "../store/scratch.ts";
import { parseExposition, seriesName } from "../support/exposition.ts";

const KEY = { tenant_id: "acme", inbox: "ctr_one" };
const ANY = { lease: null } as const;
const COUNT = "hearth_message_publish_duration_seconds_count";
const OPTIONS = { entries_max: 10, lease_ms: 60_000, max_deliver: 2, is_ordered: false };

describe("the series of messages", () => {
  const scratch = scratchStores();

  const open = (clock: Clock = systemClock) => {
    const registry = new Registry();
    const series = new MessageSeries(registry);
    const dead: string[] = [];
    const observer = new Observation({
      observer: series,
      tracing: new MessageTracing({ traces: new Traces(randomIds(), 0), clock, onStep: null }),
      onDead: ({ msg_id }, reason) => dead.push(`${msg_id} ${reason}`),
    });
    const bus = new EmbeddedBus({ store: scratch().open(), clock, quotas: nodeQuotas(), observer });
    const read = async () => parseExposition(`${await registry.metrics()}\n`);
    const of = async (name: string, labels: Readonly<Record<string, string>> = {}) => {
      const family = (await read()).get(`hearth_${name}`);
      expect(family, name).toBeDefined();
      return family?.samples.get(seriesName(`hearth_${name}`, labels));
    };
    const publish = (msg_id: string, changes: object = {}) =>
      bus.publish({
        ...{ ...KEY, msg_id, idempotency_key: "", envelope: Buffer.from("x"), expires_ms: clock.epochMs() + 60_000 },
        ...changes,
      });
    return { bus, series, dead, read, of, publish };
  };

  it("count each change once, and what a request repeats not again", async () => {
    const { bus, dead, read, of, publish } = open();
    for (const id of ["a", "b", "c", "d"]) await publish(id);
    await publish("a");
    await publish("t", { inbox: "topic:news", is_settled: true, copies: ["ctr_one", "queue:jobs", "binding:bnd_1"] });
    expect(await of("messages_published_total", { inbox: "container" })).toBe(5);
    for (const inbox of ["topic", "queue", "binding"]) expect(await of("messages_published_total", { inbox })).toBe(1);
    expect(await of("messages_repeated_total")).toBe(1);
    await bus.receive(KEY, { ...OPTIONS, entries_max: 3 });
    for (let i = 0; i < 2; i++) await bus.ack({ ...KEY, msg_id: "a" }, ANY);
    for (let i = 0; i < 2; i++) await bus.nack({ ...KEY, msg_id: "b" }, { ...ANY, reason: "no" });
    await bus.requeue({ ...KEY, msg_id: "c" }, { ...ANY, delay_ms: 0, max_deliver: 2, reason: "busy" });
    await bus.receive(KEY, { ...OPTIONS, entries_max: 1 });
    await bus.extend({ ...KEY, msg_id: "c" }, { lease: "lease_2", lease_ms: 60_000 });
    await bus.requeue({ ...KEY, msg_id: "c" }, { ...ANY, delay_ms: 0, max_deliver: 2, reason: "busy" });
    await expect(bus.ack({ ...KEY, msg_id: "c" }, ANY)).rejects.toMatchObject({ code: "WRONG_STATE" });
    const delivered = (attempt: string) => of("messages_delivered_total", { inbox: "container", attempt });
    expect([await delivered("first"), await delivered("again")]).toEqual([3, 1]);
    const settled = (outcome: string) => of("messages_settled_total", { outcome });
    expect(await Promise.all(["acked", "failed", "requeued", "expired"].map(settled))).toEqual([1, 2, 1, 0]);
    const cause = (cause: string) => of("messages_dead_lettered_total", { cause });
    expect([await cause("nack"), await cause("max_deliver")]).toEqual([1, 1]);
    expect(dead).toEqual(["b no", "c busy"]);
    expect((await read()).get("hearth_message_publish_duration_seconds")?.samples.get(COUNT)).toBe(6);
    await bus.close();
    await expect(publish("late")).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    expect(await of("messages_refused_total", { error_code: "SHUTTING_DOWN" })).toBe(1);
  });

  it("count two nacks of one message at the same time as one dead letter", async () => {
    const { bus, dead, of, publish } = open();
    await publish("a");
    await Promise.all(["1", "2", "3"].map((reason) => bus.nack({ ...KEY, msg_id: "a" }, { ...ANY, reason })));
    expect(dead).toHaveLength(1);
    expect(await of("messages_dead_lettered_total", { cause: "nack" })).toBe(1);
    expect(await of("messages_settled_total", { outcome: "failed" })).toBe(1);
  });

  it("count a delivery that nobody settles as a dead letter, and what is past its time as expired", async () => {
    const clock = new HandClock();
    const { bus, of, publish } = open(clock);
    await publish("lost", { expires_ms: clock.epochMs() + LIMITS.icc_message_kept_ms });
    await publish("late");
    await publish("later");
    for (let i = 0; i < 3; i++) {
      await bus.receive(KEY, { ...OPTIONS, entries_max: 1, lease_ms: 10_000 });
      clock.now_ms += 10_001;
    }
    expect(await of("messages_dead_lettered_total", { cause: "max_deliver" })).toBe(1);
    clock.now_ms += 60_000;
    for (let i = 0; i < 2; i++) await bus.prune();
    expect(await of("messages_settled_total", { outcome: "expired" })).toBe(2);
  });

  it("show the bus, its receivers and sockets as they are at the scrape", async () => {
    const { series, of, read } = open();
    expect((await read()).get("hearth_message_bus_ready")?.samples.size).toBe(0);
    const source = { backend: "embedded", is_ready: false, waits_count: 3, sockets_count: 2, connections_count: 1 };
    series.read(() => source);
    expect(await of("message_bus_ready", { backend: "embedded" })).toBe(0);
    expect(await of("message_waits")).toBe(3);
    expect(await of("message_sockets")).toBe(2);
    expect(await of("message_socket_connections")).toBe(1);
  });

  it("are as many as before, whatever names inboxes, messages and reasons have", async () => {
    const { bus, read, publish } = open();
    const size = async () => [...(await read()).values()].reduce((sum, { samples }) => sum + samples.size, 0);
    const before = await size();
    for (let i = 0; i < 50; i++) {
      const key = { tenant_id: `ten_${i}`, inbox: i % 2 === 0 ? `queue:q${i}` : `ctr_${i}` };
      await publish(`m${i}`, key);
      await bus.receive(key, OPTIONS);
      await bus.nack({ ...key, msg_id: `m${i}` }, { ...ANY, reason: `reason ${i}` });
    }
    expect(await size()).toBe(before);
  });
});
