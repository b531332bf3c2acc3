/** The contract of every bus (B1–B7 in src/icc/bus/port.ts). Times are real: leases are short. */
import { afterEach, beforeEach, expect, it } from "vitest";
import { sleep, systemClock } from "../../src/base/clock.ts";
import type { Bus, InboxKey, Outgoing, ReceiveOptions } from "../../src/icc/bus/port.ts";

export interface OpenedBus {
  readonly bus: Bus;
  /** Ends the bus and opens it again on the same state. */
  reopen(): Promise<OpenedBus>;
  close(): Promise<void>;
}

const KEY: InboxKey = { tenant_id: "acme", inbox: "ctr_one" };
const OPTIONS: ReceiveOptions = { entries_max: 10, lease_ms: 60_000, max_deliver: 5, is_ordered: false };
const ANY = { lease: null } as const;

let next = 0;
function message(changes: Partial<Outgoing> = {}): Outgoing {
  next++;
  return {
    ...KEY,
    msg_id: `msg-${next}`,
    idempotency_key: "",
    envelope: Buffer.from(`envelope ${next}`),
    expires_ms: Date.now() + 3_600_000,
    ...changes,
  };
}

export function busContract(open: () => Promise<OpenedBus>): void {
  let opened: OpenedBus;
  const bus = (): Bus => opened.bus;
  const publish = async (count: number, changes: Partial<Outgoing> = {}) => {
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const one = message(changes);
      await bus().publish(one);
      ids.push(one.msg_id);
    }
    return ids;
  };
  const receive = (changes: Partial<ReceiveOptions> = {}, key = KEY) => bus().receive(key, { ...OPTIONS, ...changes });
  const receiveSome = async (changes: Partial<ReceiveOptions> = {}, key = KEY) => {
    for (let tries = 0; tries < 100; tries++) {
      const deliveries = await receive(changes, key);
      if (deliveries.length > 0) return deliveries;
      await sleep(systemClock, 50);
    }
    return [];
  };
  const states = async (key = KEY) =>
    (await bus().read(key, { from_seq: 1, to_seq: 1_000, state: null, entries_max: 100 })).map(({ state }) => state);
  const refusal = (work: Promise<unknown>) =>
    work.then(
      () => null,
      (error) => error,
    );

  beforeEach(async () => {
    opened = await open();
  });
  afterEach(() => opened.close());

  it("numbers the entries of each inbox from 1, in the order of the calls", async () => {
    const seqs = await Promise.all([message(), message(), message()].map((one) => bus().publish(one)));
    expect(seqs.map(({ stream_seq }) => stream_seq)).toEqual([1, 2, 3]);
    expect(await bus().publish(message({ inbox: "ctr_two" }))).toEqual({ stream_seq: 1, is_duplicate: false });
    expect(await bus().facts(KEY)).toMatchObject({ last_seq: 3, unread_count: 3, entry_count: 3, state_version: 0 });
  });

  it("answers the first number for an id that the inbox has, and writes nothing", async () => {
    const one = message();
    await bus().publish(one);
    expect(await bus().publish(one)).toEqual({ stream_seq: 1, is_duplicate: true });
    const twice = message();
    const answers = await Promise.all([bus().publish(twice), bus().publish(twice)]);
    expect(answers.map(({ is_duplicate }) => is_duplicate).sort()).toEqual([false, true]);
    expect((await bus().facts(KEY)).entry_count).toBe(2);
    expect((await bus().publish({ ...one, inbox: "ctr_two" })).is_duplicate).toBe(false);
  });

  it("refuses an idempotency key with another id, per inbox", async () => {
    const one = message({ idempotency_key: "order-1" });
    await bus().publish(one);
    expect(await bus().publish(one)).toEqual({ stream_seq: 1, is_duplicate: true });
    expect(await refusal(bus().publish(message({ idempotency_key: "order-1" })))).toMatchObject({
      code: "IDEMPOTENCY_CONFLICT",
    });
    expect((await bus().publish(message({ idempotency_key: "order-1", inbox: "ctr_two" }))).stream_seq).toBe(1);
    expect((await bus().publish(message({ idempotency_key: "order-2" }))).stream_seq).toBe(2);
  });

  it("keeps envelopes byte for byte, up to a megabyte", async () => {
    const envelopes = [Buffer.from([0, 1, 254, 255]), Buffer.alloc(1024 * 1024, 7)];
    for (const envelope of envelopes) await bus().publish(message({ envelope }));
    const entries = await bus().read(KEY, { from_seq: 1, to_seq: 9, state: null, entries_max: 10 });
    expect(
      entries.map(({ envelope }) => Buffer.from(envelope).equals(envelopes[entries.length - 2] ?? Buffer.of())),
    ).toContain(true);
    expect(entries.map(({ envelope }) => envelope.byteLength)).toEqual([4, 1024 * 1024]);
    expect(Buffer.from(entries[0]?.envelope ?? []).equals(envelopes[0] ?? Buffer.of())).toBe(true);
  });

  it("delivers entries in their order, each to one receiver", async () => {
    const ids = await publish(6);
    const [first, second] = await Promise.all([receive({ entries_max: 3 }), receive({ entries_max: 3 })]);
    expect([...first, ...second].map(({ msg_id }) => msg_id).sort()).toEqual([...ids].sort());
    expect(first.map(({ stream_seq }) => stream_seq)).toEqual([1, 2, 3]);
    expect(await receive()).toEqual([]);
    expect(await states()).toEqual(Array(6).fill("unread"));
    const [read] = await bus().read(KEY, { from_seq: 1, to_seq: 1, state: null, entries_max: 1 });
    expect(read?.held_until_ms).toBeGreaterThan(Date.now());
  });

  it("delivers an entry again when its lease ends, and refuses the earlier lease", async () => {
    const [id = ""] = await publish(1);
    const [first] = await receive({ lease_ms: 200 });
    expect(first).toMatchObject({ msg_id: id, deliveries: 1 });
    const [again] = await receiveSome();
    expect(again).toMatchObject({ msg_id: id, deliveries: 2, stream_seq: 1 });
    const stale = await refusal(bus().ack({ ...KEY, msg_id: id }, { lease: first?.lease ?? "" }));
    expect(stale).toMatchObject({ code: "WRONG_STATE", details: { state: "stale_lease" } });
    expect(await bus().ack({ ...KEY, msg_id: id }, { lease: again?.lease ?? "" })).toEqual({
      state: "acked",
      is_dead: false,
    });
  });

  it("prolongs a lease", async () => {
    const [id = ""] = await publish(1);
    const [held] = await receive({ lease_ms: 300 });
    await bus().extend({ ...KEY, msg_id: id }, { lease: held?.lease ?? "", lease_ms: 60_000 });
    await sleep(systemClock, 600);
    expect(await receive()).toEqual([]);
    await bus().ack({ ...KEY, msg_id: id }, { lease: held?.lease ?? "" });
  });

  it("never delivers a settled entry, and keeps final states", async () => {
    const [acked = "", failed = ""] = await publish(2);
    await bus().ack({ ...KEY, msg_id: acked }, ANY);
    await bus().nack({ ...KEY, msg_id: failed }, { ...ANY, reason: "bad input" });
    expect(await receive()).toEqual([]);
    expect(await states()).toEqual(["acked", "failed"]);
    expect(await bus().ack({ ...KEY, msg_id: acked }, ANY)).toEqual({ state: "acked", is_dead: false });
    expect(await refusal(bus().nack({ ...KEY, msg_id: acked }, { ...ANY, reason: "" }))).toMatchObject({
      code: "WRONG_STATE",
      details: { state: "acked" },
    });
    expect(await refusal(bus().ack({ ...KEY, msg_id: failed }, ANY))).toMatchObject({ details: { state: "failed" } });
    expect(await refusal(bus().ack({ ...KEY, msg_id: "none" }, ANY))).toMatchObject({ code: "NOT_FOUND" });
  });

  it("moves the state version in the commit of an ack", async () => {
    const [id = "", other = ""] = await publish(2);
    await bus().ack({ ...KEY, msg_id: id }, { ...ANY, moves_version: true });
    await bus().ack({ ...KEY, msg_id: id }, { ...ANY, moves_version: true });
    await bus().ack({ ...KEY, msg_id: other }, ANY);
    expect((await bus().facts(KEY)).state_version).toBe(1);
  });

  it("makes a dead letter of a nack, with its number in the inbox", async () => {
    const [, id = ""] = await publish(2);
    expect(await bus().lastDead("acme")).toBe(0);
    await bus().nack({ ...KEY, msg_id: id }, { ...ANY, reason: "bad input" });
    expect([await bus().lastDead("acme"), await bus().lastDead("other")]).toEqual([1, 0]);
    const [dead, ...others] = await bus().deadLetters("acme", { from_seq: 1, entries_max: 10 });
    expect(others).toEqual([]);
    expect(dead).toMatchObject({ dead_seq: 1, inbox: "ctr_one", stream_seq: 2, msg_id: id, reason: "bad input" });
    expect(Buffer.from(dead?.envelope ?? []).toString()).toMatch(/^envelope /);
    await bus().noteReplay("acme", 1);
    expect((await bus().deadLetter("acme", 1))?.replayed_ms).toBeGreaterThan(0);
    expect(await bus().deadLetter("acme", 2)).toBeNull();
    expect(await bus().deadLetter("other", 1)).toBeNull();
  });

  it("makes a dead letter of an entry that was delivered often enough", async () => {
    const [id = ""] = await publish(1);
    for (let i = 0; i < 2; i++) expect(await receiveSome({ lease_ms: 150, max_deliver: 2 })).toHaveLength(1);
    await expect.poll(async () => [...(await receive({ max_deliver: 2 })), ...(await states())]).toEqual(["failed"]);
    const [dead] = await bus().deadLetters("acme", { from_seq: 1, entries_max: 10 });
    expect(dead).toMatchObject({ msg_id: id, reason: "max_deliver", deliveries: 2 });
  });

  it("gives an entry back after a delay, until it is dead", async () => {
    const [id = ""] = await publish(1);
    const ref = { ...KEY, msg_id: id };
    const options = { max_deliver: 2, reason: "no luck" };
    const [first] = await receive();
    expect(await bus().requeue(ref, { ...options, lease: first?.lease ?? "", delay_ms: 300 })).toEqual({
      state: "unread",
      is_dead: false,
    });
    expect(await receive()).toEqual([]);
    expect(await refusal(bus().ack(ref, { lease: first?.lease ?? "" }))).toMatchObject({ code: "WRONG_STATE" });
    const [second] = await receiveSome();
    expect(second).toMatchObject({ msg_id: id, deliveries: 2 });
    expect(await bus().requeue(ref, { ...options, lease: second?.lease ?? "", delay_ms: 0 })).toEqual({
      state: "failed",
      is_dead: true,
    });
    expect(await bus().deadLetters("acme", { from_seq: 1, entries_max: 9 })).toMatchObject([{ reason: "no luck" }]);
  });

  it("delivers nothing to an ordered receiver while an earlier entry is held", async () => {
    const ids = await publish(3);
    const ordered = { is_ordered: true, entries_max: 1 };
    const [first] = await receive(ordered);
    expect(first?.msg_id).toBe(ids[0]);
    expect(await receive(ordered)).toEqual([]);
    await bus().requeue({ ...KEY, msg_id: ids[0] ?? "" }, { lease: null, delay_ms: 200, max_deliver: 5, reason: "" });
    expect(await receive(ordered)).toEqual([]);
    for (const id of ids) {
      const [one] = await receiveSome(ordered);
      expect(one?.msg_id).toBe(id);
      await bus().ack({ ...KEY, msg_id: id }, { lease: one?.lease ?? "" });
    }
  });

  it("expires entries past their time", async () => {
    await publish(1, { expires_ms: Date.now() + 300 });
    const [id = ""] = await publish(1);
    await sleep(systemClock, 400);
    expect(await states()).toEqual(["expired", "unread"]);
    expect((await receive()).map(({ msg_id }) => msg_id)).toEqual([id]);
    await bus().prune();
    expect(await states()).toEqual(["expired", "unread"]);
    expect((await bus().facts(KEY)).unread_count).toBe(1);
    expect(await bus().deadLetters("acme", { from_seq: 1, entries_max: 9 })).toEqual([]);
  });

  it("reads by sequence and state, bounded in number and bytes", async () => {
    const ids = await publish(5);
    await bus().ack({ ...KEY, msg_id: ids[1] ?? "" }, ANY);
    await bus().nack({ ...KEY, msg_id: ids[3] ?? "" }, { ...ANY, reason: "" });
    const seqs = async (changes: object) =>
      (await bus().read(KEY, { from_seq: 1, to_seq: 99, state: null, entries_max: 10, ...changes })).map(
        ({ stream_seq }) => stream_seq,
      );
    expect(await seqs({})).toEqual([1, 2, 3, 4, 5]);
    expect(await seqs({ from_seq: 2, to_seq: 3 })).toEqual([2, 3]);
    expect(await seqs({ entries_max: 2 })).toEqual([1, 2]);
    expect(await seqs({ state: "acked" })).toEqual([2]);
    expect(await seqs({ state: "failed" })).toEqual([4]);
    expect(await seqs({ state: "unread", from_seq: 2 })).toEqual([3, 5]);
    expect(await seqs({ state: "expired" })).toEqual([]);
    const big = { envelope: Buffer.alloc(1024 * 1024) };
    await publish(6, big);
    expect((await seqs({ from_seq: 6 })).length).toBeLessThan(6);
    expect((await receive({ entries_max: 100 })).length).toBeLessThan(9);
  });

  it("keeps a record as settled from the start, and copies in other inboxes", async () => {
    const topic = { ...KEY, inbox: "topic:news" };
    const one = message({ ...topic, is_settled: true, copies: ["ctr_one", "ctr_two"] });
    expect(await bus().publish(one)).toEqual({ stream_seq: 1, is_duplicate: false });
    expect(await receive({}, topic)).toEqual([]);
    expect(await states(topic)).toEqual(["acked"]);
    for (const inbox of ["ctr_one", "ctr_two"]) {
      expect(await receive({}, { ...KEY, inbox })).toMatchObject([{ msg_id: one.msg_id, stream_seq: 1, inbox }]);
    }
    expect(await bus().publish(one)).toEqual({ stream_seq: 1, is_duplicate: true });
    expect((await bus().facts(KEY)).entry_count).toBe(1);
    expect((await bus().find("acme", one.msg_id)).map(({ inbox }) => inbox).sort()).toEqual([
      "ctr_one",
      "ctr_two",
      "topic:news",
    ]);
  });

  it("finds the entry of an id in one of more inboxes than it lists", async () => {
    const copies = Array.from({ length: 120 }, (_, i) => `ctr_${String(i).padStart(3, "0")}`);
    const topic = { ...KEY, inbox: "topic:news" };
    const { msg_id, ...one } = message({ ...topic, is_settled: true, copies });
    await bus().publish({ msg_id, ...one });
    expect(await bus().find("acme", msg_id)).toHaveLength(100);
    for (const inbox of ["topic:news", "ctr_000", "ctr_119"]) {
      expect(await bus().entry({ ...KEY, inbox, msg_id })).toMatchObject({ inbox, msg_id, stream_seq: 1 });
    }
    expect(await bus().entry({ ...KEY, inbox: "ctr_120", msg_id })).toBe(null);
    expect(await bus().entry({ tenant_id: "other", inbox: "ctr_119", msg_id })).toBe(null);
  });

  it("keeps what the platform applies from receivers, and the rest from the platform", async () => {
    const [action = ""] = await publish(1, { is_action: true });
    const [plain = ""] = await publish(1);
    expect((await receive()).map(({ msg_id }) => msg_id)).toEqual([plain]);
    expect(await bus().actionInboxes()).toEqual([KEY]);
    const ordered = { is_action: true, is_ordered: true };
    expect((await receive(ordered)).map(({ msg_id }) => msg_id)).toEqual([action]);
    await bus().ack({ ...KEY, msg_id: action }, ANY);
    expect(await bus().actionInboxes()).toEqual([]);
  });

  it("shows nothing of another tenant", async () => {
    const [id = ""] = await publish(1);
    const other = { ...KEY, tenant_id: "other" };
    expect(await receive({}, other)).toEqual([]);
    expect(await bus().read(other, { from_seq: 1, to_seq: 9, state: null, entries_max: 9 })).toEqual([]);
    expect(await bus().find("other", id)).toEqual([]);
    expect(await bus().inboxes("other", { after: "", inboxes_max: 9 })).toEqual([]);
    expect(await refusal(bus().ack({ ...other, msg_id: id }, ANY))).toMatchObject({ code: "NOT_FOUND" });
    expect((await bus().publish(message({ ...other, msg_id: id }))).is_duplicate).toBe(false);
    expect((await bus().inboxes("acme", { after: "", inboxes_max: 9 })).map(({ inbox }) => inbox)).toEqual(["ctr_one"]);
  });

  it("wakes watchers at a publish, and when a held entry is due again", async () => {
    let woken = 0;
    const end = bus().watch(KEY, () => woken++);
    await publish(1);
    await expect.poll(() => woken).toBeGreaterThan(0);
    await receive({ lease_ms: 300 });
    const before = woken;
    await expect.poll(() => woken).toBeGreaterThan(before);
    end();
    const after = woken;
    await publish(1);
    expect(woken).toBe(after);
  });

  it("keeps entries, states, leases and versions over a restart", async () => {
    const [first = "", second = ""] = await publish(3, {});
    await bus().ack({ ...KEY, msg_id: first }, { ...ANY, moves_version: true });
    const [held] = await receive({ entries_max: 1, lease_ms: 60_000 });
    expect(held?.msg_id).toBe(second);
    opened = await opened.reopen();
    expect(await states()).toEqual(["acked", "unread", "unread"]);
    expect((await bus().facts(KEY)).state_version).toBe(1);
    expect((await receive()).map(({ stream_seq }) => stream_seq)).toEqual([3]);
    await bus().ack({ ...KEY, msg_id: second }, { lease: held?.lease ?? "" });
    expect((await bus().publish(message())).stream_seq).toBe(4);
  });

  it("removes an inbox with its entries; its dead letters stay", async () => {
    const [id = ""] = await publish(2);
    await bus().nack({ ...KEY, msg_id: id }, { ...ANY, reason: "" });
    await bus().remove(KEY);
    expect(await bus().find("acme", id)).toEqual([]);
    expect(await receive()).toEqual([]);
    expect(await bus().deadLetters("acme", { from_seq: 1, entries_max: 9 })).toHaveLength(1);
    await bus().prune();
    expect((await bus().publish(message({ msg_id: id }))).stream_seq).toBe(1);
  });

  it("settles an entry once, whatever comes at the same time", async () => {
    const ids = await publish(20);
    await receive({ entries_max: 20 });
    const outcomes = await Promise.all(
      ids.flatMap((msg_id) => {
        const ref = { ...KEY, msg_id };
        return [
          refusal(bus().ack(ref, ANY)),
          refusal(bus().nack(ref, { ...ANY, reason: "" })),
          refusal(bus().requeue(ref, { ...ANY, delay_ms: 0, max_deliver: 1, reason: "" })),
        ];
      }),
    );
    expect(outcomes.filter((error) => error !== null && error.code !== "WRONG_STATE")).toEqual([]);
    const final = await states();
    expect(final.filter((state) => state === "unread")).toEqual([]);
    const dead = await bus().deadLetters("acme", { from_seq: 1, entries_max: 100 });
    expect(dead).toHaveLength(final.filter((state) => state === "failed").length);
    expect((await bus().facts(KEY)).unread_count).toBe(0);
  });
}
