/** A bus on JetStream and what happens to its server: absent, stopped, full, with a foreign stream or foreign messages. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { natsServer } from "../../src/base/nats-server.ts";
import { EmbeddedBus } from "../../src/icc/bus/embedded.ts";
import { fromToken, Names, toToken } from "../../src/icc/bus/jetstream/names.ts";
import { JetStreamBus } from "../../src/icc/bus/jetstream.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { TestNatsServer } from "../support/nats-server.ts";
import { foreignClient, openJetStream } from "./jetstream-ground.ts";

const KEY = { tenant_id: "acme", inbox: "ctr_one" };
const OPTIONS = { entries_max: 10, lease_ms: 60_000, max_deliver: 5, is_ordered: false };
const ALL = { from_seq: 1, to_seq: 1_000, state: null, entries_max: 100 };
const state = { number: 0 };

function outgoing(msg_id: string, changes: object = {}) {
  const envelope = Buffer.from(`envelope of ${msg_id}`);
  return { ...KEY, msg_id, idempotency_key: "", envelope, expires_ms: Date.now() + 3_600_000, ...changes };
}

describe("a bus on JetStream", () => {
  const scratch = scratchStores();
  let server: TestNatsServer;
  const nextTag = () => `test${state.number++}`;
  beforeAll(async () => {
    server = await TestNatsServer.start();
  });
  afterEach(() => server.resume());
  afterAll(() => server.stop());

  it("shows operators what is delivered and acked, on one durable consumer an inbox", async () => {
    const tag = nextTag();
    const { bus, close } = await openJetStream(scratch(), server.url, tag);
    const { connection, manager } = await foreignClient(server.url);
    const { stream } = new Names(tag);
    for (const id of ["m1", "m2", "m3", "m4"]) await bus.publish(outgoing(id));
    expect(await manager.consumers.list(stream).next()).toEqual([]);
    const look = async () => {
      const [consumer, ...others] = await manager.consumers.list(stream).next();
      expect(others).toEqual([]);
      return [consumer?.num_ack_pending, consumer?.num_pending];
    };
    expect((await bus.receive(KEY, { ...OPTIONS, entries_max: 2 })).map(({ msg_id }) => msg_id)).toEqual(["m1", "m2"]);
    expect(await look()).toEqual([2, 2]);
    for (const msg_id of ["m1", "m3"]) await bus.ack({ ...KEY, msg_id }, { lease: null });
    await expect.poll(look).toEqual([1, 2]);
    // The server delivers m3 too, which the ledger has settled already.
    expect((await bus.receive(KEY, OPTIONS)).map(({ msg_id }) => msg_id)).toEqual(["m4"]);
    await expect.poll(look).toEqual([1, 1]);
    await bus.nack({ ...KEY, msg_id: "m4" }, { lease: null, reason: "bad" });
    expect((await bus.deadLetters("acme", { from_seq: 1, entries_max: 9 }))[0]).toMatchObject({ stream_seq: 4 });
    await bus.remove(KEY);
    await expect.poll(() => manager.consumers.list(stream).next()).toEqual([]);
    await expect.poll(async () => (await manager.streams.info(stream)).state.messages).toBe(0);
    await connection.close();
    await close();
  });

  it("starts without its server, refuses work, and begins when the server is there", async () => {
    const late = await TestNatsServer.start();
    await late.kill();
    const { bus, close } = await openJetStream(scratch(), late.url, nextTag());
    expect(bus.health()).toMatchObject({ is_ready: false, problem: expect.stringContaining("connection refused") });
    await expect(bus.publish(outgoing("m1"))).rejects.toMatchObject({ code: "SERVICE_UNAVAILABLE", retry_after: 1 });
    expect(await bus.receive(KEY, OPTIONS)).toEqual([]);
    let woken = 0;
    bus.watch(KEY, () => woken++);
    await late.start();
    await expect.poll(() => bus.health()).toEqual({ is_ready: true, problem: null });
    expect(woken).toBeGreaterThan(0);
    // The refused publish took no number.
    expect(await bus.publish(outgoing("m1"))).toMatchObject({ is_duplicate: false });
    await late.kill();
    // No delivery is spent on what cannot be delivered.
    await expect(bus.receive(KEY, OPTIONS)).rejects.toMatchObject({ code: "SERVICE_UNAVAILABLE" });
    await expect(bus.nack({ ...KEY, msg_id: "m1" }, { lease: null, reason: "" })).rejects.toMatchObject({
      code: "SERVICE_UNAVAILABLE",
    });
    await late.start();
    await expect.poll(() => bus.health().is_ready).toBe(true);
    expect(await bus.receive(KEY, OPTIONS)).toMatchObject([{ msg_id: "m1", deliveries: 1 }]);
    await close();
    await late.stop();
  });

  it("bounds time, number and bytes of publishes if the server is stopped, and takes a repeated one once", async () => {
    const { bus, close } = await openJetStream(scratch(), server.url, nextTag());
    await bus.publish(outgoing("m1"));
    await server.pause();
    const begun_ms = performance.now();
    const envelope = Buffer.alloc(1_000_000);
    const waiting = Array.from({ length: 70 }, (_, i) => bus.publish(outgoing(`big${i}`, { envelope })));
    const codes = await Promise.all(
      [bus.publish(outgoing("m2")), ...waiting].map((one) => one.catch(({ code }) => code)),
    );
    expect(performance.now() - begun_ms).toBeLessThan(LIMITS.carrier_deadline_ms + 3_000);
    expect(codes[0]).toBe("SERVICE_UNAVAILABLE");
    expect(codes.filter((code) => code === "CAPACITY_FULL").length).toBeGreaterThanOrEqual(3);
    expect(codes.filter((code) => code === "SERVICE_UNAVAILABLE").length).toBeGreaterThan(50);
    server.resume();
    await expect.poll(() => bus.publish(outgoing("m2")).catch(() => null)).not.toBeNull();
    await bus.publish(outgoing("m2"));
    const found = await bus.find("acme", "m2");
    expect(found).toMatchObject([{ state: "unread" }]);
    await close();
  });

  it("names the settings in which another tool's stream differs, and begins when it is gone", async () => {
    const tag = nextTag();
    const { connection, manager } = await foreignClient(server.url);
    const { stream, subjects } = new Names(tag);
    await manager.streams.add({ name: stream, subjects: [subjects], storage: "memory", max_msgs: 10 });
    const { bus, close } = await openJetStream(scratch(), server.url, tag);
    const { problem } = bus.health();
    expect(problem).toContain(`stream ${stream} has other settings: `);
    expect(problem).toContain('storage "memory" (expected "file")');
    expect(problem).toContain("max_msgs 10 (expected -1)");
    await expect(bus.publish(outgoing("m1"))).rejects.toMatchObject({
      code: "SERVICE_UNAVAILABLE",
      message: expect.stringContaining('storage "memory"'),
    });
    await manager.streams.delete(stream);
    await expect.poll(() => bus.publish(outgoing("m1")).catch(() => null)).toMatchObject({ stream_seq: 1 });
    await close();
    await connection.close();
  });

  it("leaves foreign messages out of inboxes, and deletes them from its stream", async () => {
    const tag = nextTag();
    const names = new Names(tag);
    const opened = await openJetStream(scratch(), server.url, tag);
    const { connection, manager } = await foreignClient(server.url);
    await opened.bus.publish(outgoing("m1"));
    const prefix = names.subjects.slice(0, -1);
    const { header } = (await manager.direct.getMessage(names.stream, { seq: 1 })) ?? {};
    const garbage = [`${prefix}x`, `${prefix}acme.ctr_one.0`, `${prefix}acme.ctr_one.1`, `${prefix}%ZZ.a.1`];
    for (const subject of garbage) connection.publish(subject, "garbage");
    // The headers of a real message, for an inbox of another tenant, and one that does not exist.
    for (const subject of [`${prefix}other.ctr_one.1`, `${prefix}acme.ctr_one.99`]) {
      header?.set("Nats-Msg-Id", subject);
      connection.publish(subject, "forged", { headers: header });
    }
    await connection.flush();
    expect((await opened.bus.receive(KEY, OPTIONS)).map(({ msg_id }) => msg_id)).toEqual(["m1"]);
    const { bus, close } = await opened.reopen();
    expect((await bus.facts(KEY)).entry_count).toBe(1);
    expect(await bus.inboxes("other", { after: "", inboxes_max: 9 })).toEqual([]);
    await expect.poll(async () => (await manager.streams.info(names.stream)).state.messages).toBe(1);
    expect((await bus.publish(outgoing("m2"))).stream_seq).toBe(2);
    await close();
    await connection.close();
  });

  it("expires entries whose messages the server has lost, and never shows another message in their place", async () => {
    const tag = nextTag();
    const { stream } = new Names(tag);
    const opened = await openJetStream(scratch(), server.url, tag);
    for (const id of ["m1", "m2"]) await opened.bus.publish(outgoing(id));
    const { connection, manager } = await foreignClient(server.url);
    await manager.streams.delete(stream);
    const { bus, close } = await opened.reopen();
    // It has the sequence number of m1.
    await bus.publish(outgoing("m3"));
    const deliveries = await bus.receive(KEY, OPTIONS);
    expect(deliveries.map(({ msg_id, envelope }) => [msg_id, Buffer.from(envelope).toString()])).toEqual([
      ["m3", "envelope of m3"],
    ]);
    expect((await bus.find("acme", "m1"))[0]?.state).toBe("expired");
    expect((await bus.facts(KEY)).unread_count).toBe(1);
    await close();
    await connection.close();
  });

  it("publishes an id again whose entry was removed, although the server knows it", async () => {
    const tag = nextTag();
    const { bus, store, close } = await openJetStream(scratch(), server.url, tag);
    await bus.publish(outgoing("m1"));
    // As the clean-up of a full tenant does.
    await store.write([{ sql: "DELETE FROM icc_entries WHERE msg_id = 'm1'" }]);
    const { connection, manager } = await foreignClient(server.url);
    await manager.streams.purge(new Names(tag).stream);
    const other = outgoing("m1", { envelope: Buffer.from("second") });
    expect(await bus.publish(other)).toEqual({ stream_seq: 2, is_duplicate: false });
    await store.write([{ sql: "DELETE FROM icc_entries WHERE msg_id = 'm1'" }]);
    // The server keeps the second one, which may be deleted at any time.
    expect(await bus.publish(outgoing("m1"))).toEqual({ stream_seq: 3, is_duplicate: false });
    expect(Buffer.from((await bus.read(KEY, ALL))[0]?.envelope ?? []).toString()).toBe("envelope of m1");
    await close();
    await connection.close();
  });

  it("deletes early what a full tenant has settled, and keeps copies that are unread", async () => {
    const tag = nextTag();
    const { stream } = new Names(tag);
    const { bus, quotas, close } = await openJetStream(scratch(), server.url, tag);
    quotas.set("acme", { messages_mb_max: 1 });
    const { connection, manager } = await foreignClient(server.url);
    const envelope = Buffer.alloc(100_000);
    const topic = { inbox: "topic:news", is_settled: true, copies: ["ctr_two"], envelope };
    await bus.publish(outgoing("t1", topic));
    for (let i = 1; i <= 8; i++) await bus.publish(outgoing(`m${i}`, { envelope }));
    for (let i = 1; i <= 4; i++) await bus.ack({ ...KEY, msg_id: `m${i}` }, { lease: null });
    await bus.prune();
    const { entry_count } = await bus.facts(KEY);
    expect(entry_count).toBe(4);
    // Four that are unread, and the one that the topic and its subscriber share.
    await expect.poll(async () => (await manager.streams.info(stream)).state.messages).toBe(5);
    const [copy] = await bus.receive({ ...KEY, inbox: "ctr_two" }, OPTIONS);
    expect(copy).toMatchObject({ msg_id: "t1" });
    expect(copy?.envelope.byteLength).toBe(100_000);
    expect(await bus.receive(KEY, OPTIONS)).toHaveLength(4);
    await close();
    await connection.close();
  });

  it("gives no entry again to a message whose settled entry was deleted early", async () => {
    const tag = nextTag();
    const opened = await openJetStream(scratch(), server.url, tag);
    for (const id of ["m1", "m2"]) await opened.bus.publish(outgoing(id));
    for (const msg_id of ["m1", "m2"]) await opened.bus.ack({ ...KEY, msg_id }, { lease: null });
    // As the clean-up of a full tenant does, if the server is away and keeps the message.
    await opened.store.write([{ sql: "DELETE FROM icc_entries WHERE msg_id = 'm1'" }]);
    let again = await opened.reopen();
    expect(await again.bus.receive(KEY, OPTIONS)).toEqual([]);
    expect(await again.bus.find("acme", "m1")).toEqual([]);
    await again.store.write([{ sql: "DELETE FROM icc_entries" }]);
    again = await again.reopen();
    expect(await again.bus.receive(KEY, OPTIONS)).toEqual([]);
    expect((await again.bus.facts(KEY)).last_seq).toBe(2);
    await again.close();
  });

  it("delivers what the store keeps from before, and the store alone refuses what the server keeps", async () => {
    const files = scratch();
    const tag = nextTag();
    const openStore = () => {
      const store = files.open();
      return { store, bus: new EmbeddedBus({ store, clock: systemClock, quotas: nodeQuotas() }) };
    };
    const before = openStore();
    await before.bus.publish(outgoing("m1"));
    await before.store.close();
    const opened = await openJetStream(files, server.url, tag);
    await opened.bus.publish(outgoing("m2"));
    const deliveries = await opened.bus.receive(KEY, OPTIONS);
    expect(deliveries.map(({ msg_id }) => msg_id)).toEqual(["m1", "m2"]);
    for (const msg_id of ["m1", "m2"]) {
      await opened.bus.requeue({ ...KEY, msg_id }, { lease: null, delay_ms: 0, max_deliver: 9, reason: "" });
    }
    await opened.close();
    const { bus, store } = openStore();
    const refused = { code: "SERVICE_UNAVAILABLE", hint: expect.stringContaining("HEARTH_NATS_URL") };
    await expect(bus.receive(KEY, OPTIONS)).rejects.toMatchObject(refused);
    await expect(bus.read(KEY, ALL)).rejects.toMatchObject(refused);
    await expect(bus.nack({ ...KEY, msg_id: "m2" }, { lease: null, reason: "" })).rejects.toMatchObject(refused);
    await bus.ack({ ...KEY, msg_id: "m2" }, { lease: null });
    expect((await bus.receive(KEY, OPTIONS)).map(({ msg_id }) => msg_id)).toEqual(["m1"]);
    await store.close();
  });

  it("deletes from the stream what the ledger refuses", async () => {
    const tag = nextTag();
    const { bus, close } = await openJetStream(scratch(), server.url, tag);
    const { connection, manager } = await foreignClient(server.url);
    await bus.publish(outgoing("m1", { idempotency_key: "key" }));
    await expect(bus.publish(outgoing("m2", { idempotency_key: "key" }))).rejects.toMatchObject({
      code: "IDEMPOTENCY_CONFLICT",
    });
    await expect.poll(async () => (await manager.streams.info(new Names(tag).stream)).state.messages).toBe(1);
    await close();
    await connection.close();
  });

  it("keeps nothing of a message that the full disk of the store refuses", async () => {
    const tag = nextTag();
    const { bus, store, close } = await openJetStream(scratch(), server.url, tag);
    const { connection, manager } = await foreignClient(server.url);
    await bus.publish(outgoing("m0"));
    await store.write([{ sql: "PRAGMA max_page_count=1" }]).catch(() => {});
    let published = 1;
    const refused = await (async () => {
      for (;;) {
        const error = await bus.publish(outgoing(`m${published}`)).catch((error) => error);
        if (error instanceof Error) return error;
        published++;
      }
    })();
    expect(refused).toMatchObject({ code: "CAPACITY_FULL", message: "disk of the store full" });
    const { stream } = new Names(tag);
    await expect.poll(async () => (await manager.streams.info(stream)).state.messages).toBe(published);
    await store.write([{ sql: "PRAGMA max_page_count=1000000" }]).catch(() => {});
    const again = await bus.publish(outgoing(`m${published}`));
    expect(again).toEqual({ stream_seq: published + 1, is_duplicate: false });
    await close();
    await connection.close();
  });

  it("keeps in the store what is above the server's max_payload", async () => {
    const small = await TestNatsServer.start({ configuration: "max_payload: 65536" });
    const { bus, store, close } = await openJetStream(scratch(), small.url, nextTag());
    await bus.publish(outgoing("m1", { envelope: Buffer.alloc(65_536, 1) }));
    await bus.publish(outgoing("m2", { envelope: Buffer.alloc(60_000, 2) }));
    const rows = await store.read("SELECT carried_seq FROM icc_entries ORDER BY id");
    expect(rows.map(({ carried_seq }) => carried_seq)).toEqual([null, 1]);
    const deliveries = await bus.receive(KEY, OPTIONS);
    expect(deliveries.map(({ envelope }) => [envelope.byteLength, envelope[0]])).toEqual([
      [65_536, 1],
      [60_000, 2],
    ]);
    await close();
    await small.stop();
  });

  it("answers CAPACITY_FULL if the stream is at the operator's bound, and continues after a removal", async () => {
    const tag = nextTag();
    const { stream } = new Names(tag);
    const opened = await openJetStream(scratch(), server.url, tag);
    const { connection, manager } = await foreignClient(server.url);
    await manager.streams.update(stream, { max_bytes: 100_000 });
    const { bus, close } = await opened.reopen();
    const envelope = Buffer.alloc(20_000);
    for (const id of ["m1", "m2", "m3", "m4"]) await bus.publish(outgoing(id, { envelope }));
    await expect(bus.publish(outgoing("m5", { envelope }))).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    await bus.remove(KEY);
    await expect
      .poll(() => bus.publish(outgoing("m5", { envelope })).catch(() => null))
      .toMatchObject({ stream_seq: 1 });
    await close();
    await connection.close();
  });

  it("signs in with the user of its URL, and names no password in its health", async () => {
    const guarded = await TestNatsServer.start({
      configuration: 'authorization: { user: "hearth", password: "se cret" }',
    });
    const host = new URL(guarded.url).host;
    const wrong = await openJetStream(scratch(), `nats://hearth:wrong-password@${host}`, nextTag());
    expect(wrong.bus.health().problem).toMatch(/Authorization Violation/i);
    expect(wrong.bus.health().problem).not.toContain("wrong-password");
    await wrong.close();
    const right = await openJetStream(scratch(), `nats://hearth:se%20cret@${host}`, nextTag());
    expect(right.bus.health()).toEqual({ is_ready: true, problem: null });
    await right.close();
    await guarded.stop();
  });

  it("closes while it has no server", async () => {
    const store = scratch().open();
    const options = { store, clock: systemClock, quotas: nodeQuotas(), tag: nextTag(), log: quietLog };
    const bus = new JetStreamBus({ ...options, server: natsServer("nats://127.0.0.1:1", null) });
    await bus.boot();
    await bus.close();
    await expect(bus.publish(outgoing("m1"))).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
  });
});

describe("names on the server", () => {
  it("encode every text as one token, and decode to it", () => {
    for (const text of ["acme", "queue:a.b", "*", ">", "a b", "", "%", "é\u0000\n", "$shared", "..", "A%2E"]) {
      expect(toToken(text)).toMatch(/^(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+$|^%$/);
      expect(fromToken(toToken(text))).toBe(text);
    }
    for (const token of ["a.b", "a%", "a%2", "a%2e", "$shared", "a b"]) expect(fromToken(token)).toBeNull();
  });

  it("tell the address from a subject of the stream alone", () => {
    const names = new Names("t");
    const address = { tenant_id: "a.b", inbox: "queue:x.>", inbox_no: 7 };
    expect(names.address(names.subject(address))).toEqual(address);
    expect(names.address(names.subject({ ...address, inbox: null }))).toEqual({ ...address, inbox: null });
    for (const subject of ["hearth.icc.u.a.b.1", "hearth.icc.t.a.b", "hearth.icc.t.a.b.1.2", "hearth.icc.t.a.b.0"]) {
      expect(names.address(subject)).toBeNull();
    }
  });
});

describe("HEARTH_NATS_URL", () => {
  it("names servers of a cluster, with a user, a token or neither", () => {
    expect(natsServer("nats://a", null)).toMatchObject({ hosts: ["a:4222"], is_tls: false, user: null, token: null });
    expect(natsServer("tls://u:p%40@a:1,tls://[::1]:2", null)).toMatchObject({
      ...{ hosts: ["a:1", "[::1]:2"], is_tls: true, user: "u", password: "p@", token: null },
    });
    expect(natsServer("nats://t0ken@a", null)).toMatchObject({ token: "t0ken", user: null });
  });

  it.each(["http://a", "nats://", "nats://a/path", "nats://a?x", "nats://a,tls://b", "a:4222", "nats://u:%ZZ@a", ","])(
    "is refused as '%s', without its text",
    (url) => {
      expect(() => natsServer(url, null)).toThrow(
        expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining("HEARTH_NATS_URL") }),
      );
    },
  );
});
