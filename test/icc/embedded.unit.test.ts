/** The bus in the store: the contract, and bounds that only it has in the store. */
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { EmbeddedBus } from "../../src/icc/bus/embedded.ts";
import type { Store } from "../../src/store/store.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { type Scratch, scratchStores } from "../store/scratch.ts";
import { busContract, type OpenedBus } from "./bus-contract.ts";

function openOn(scratch: Scratch, quotas = nodeQuotas()): OpenedBus & { readonly store: Store } {
  const store = scratch.open();
  const bus = new EmbeddedBus({ store, clock: systemClock, quotas });
  const close = async () => {
    await bus.close();
    await store.close();
  };
  return {
    ...{ bus, store, close },
    reopen: async () => {
      await close();
      return openOn(scratch, quotas);
    },
  };
}

describe("the bus contract on the store", () => {
  const scratch = scratchStores();
  busContract(async () => openOn(scratch()));
});

describe("the bounds of an embedded bus", () => {
  const scratch = scratchStores();
  const key = { tenant_id: "acme", inbox: "ctr_one" };
  const outgoing = (msg_id: string, bytes = 10) => ({
    ...key,
    msg_id,
    idempotency_key: "",
    envelope: Buffer.alloc(bytes),
    expires_ms: Date.now() + 60_000,
  });

  it("refuses more unread entries than an inbox holds, and takes one after an ack", async () => {
    const { bus } = openOn(scratch());
    const ids = Array.from({ length: LIMITS.inbox_unread_max }, (_, i) => `m${i}`);
    for (let i = 0; i < ids.length; i += 1_000) {
      await Promise.all(ids.slice(i, i + 1_000).map((id) => bus.publish(outgoing(id))));
    }
    await expect(bus.publish(outgoing("more"))).rejects.toMatchObject({ code: "QUEUE_FULL", retry_after: 1 });
    await bus.publish({ ...outgoing("more"), inbox: "ctr_two" });
    await bus.ack({ ...key, msg_id: "m7" }, { lease: null });
    expect((await bus.publish(outgoing("more"))).stream_seq).toBe(LIMITS.inbox_unread_max + 1);
  });

  it("refuses messages above the tenant's limit, and deletes settled ones early", async () => {
    const quotas = nodeQuotas();
    quotas.set("acme", { messages_mb_max: 1 });
    const { bus } = openOn(scratch(), quotas);
    const size = 100 * 1024;
    for (let i = 0; i < 10; i++) await bus.publish(outgoing(`m${i}`, size));
    await expect(bus.publish(outgoing("m10", size))).rejects.toMatchObject({ code: "QUEUE_FULL" });
    await bus.ack({ ...key, msg_id: "m0" }, { lease: null });
    await bus.prune();
    expect((await bus.publish(outgoing("m10", size))).stream_seq).toBe(11);
    expect((await bus.facts(key)).entry_count).toBe(10);
  });

  it("counts records of topics and dead letters of the tenant too, and frees what ends", async () => {
    const quotas = nodeQuotas();
    quotas.set("acme", { messages_mb_max: 1 });
    const { bus, store } = openOn(scratch(), quotas);
    const size = 100 * 1024;
    const topic = (i: number) => ({ ...outgoing(`t${i}`, size), inbox: "topic:news", is_settled: true });
    for (let i = 0; i < 5; i++) await bus.publish(topic(i));
    for (let i = 0; i < 2; i++) {
      await bus.publish(outgoing(`d${i}`, size));
      await bus.nack({ ...key, msg_id: `d${i}` }, { lease: null, reason: "no" });
    }
    await bus.publish(topic(5));
    await bus.prune();
    await expect(bus.publish(topic(6))).resolves.toMatchObject({ stream_seq: 7 });
    expect((await bus.facts({ ...key, inbox: "topic:news" })).entry_count).toBeLessThan(7);
    expect(Number((await store.readOne("SELECT dead_bytes FROM icc_tenants"))?.dead_bytes)).toBe(2 * size);
    await bus.remove(key);
    await bus.prune();
    expect(await store.read("SELECT 1 FROM icc_gone")).toEqual([]);
  });
});
