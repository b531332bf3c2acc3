/** Events against a real store: written with the change, read in order by those who follow and those who catch up. */
import { describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { EventFilter, NewEvent } from "../../src/events/schema.ts";
import { Events } from "../../src/events/service.ts";
import type { Store } from "../../src/store/store.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";

interface Parsed {
  readonly name: string;
  readonly id: string | null;
  readonly data: Readonly<Record<string, unknown>>;
}

function parse(text: string): Parsed[] {
  return text
    .split("\n\n")
    .filter((block) => block !== "")
    .map((block) => {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? null;
      return { name: field("event") ?? "", id: field("id"), data: JSON.parse(field("data") ?? "null") };
    });
}

/** Takes what a stream gives as soon as it gives it, or when told to. */
class Reader {
  readonly seen: Parsed[] = [];
  readonly abort = new AbortController();
  end: "open" | "ended" | "cut" = "open";
  #pieces: AsyncIterator<Uint8Array>;

  constructor(pieces: AsyncIterator<Uint8Array>, isEager: boolean) {
    this.#pieces = pieces;
    if (isEager) void this.takeAll();
  }

  async take(): Promise<boolean> {
    const { done, value } = await this.#pieces.next();
    if (done === true) return false;
    this.seen.push(...parse(Buffer.from(value).toString()));
    return true;
  }

  async takeAll(): Promise<void> {
    try {
      while (await this.take());
      this.end = "ended";
    } catch {
      this.end = "cut";
    }
  }

  leave() {
    return this.#pieces.return?.();
  }

  named(name: string): Parsed[] {
    return this.seen.filter((one) => one.name === name);
  }

  /** Numbers of the events that `told` made. */
  get numbers(): unknown[] {
    return this.named("container_update").map(({ data }) => data.n);
  }
}

interface Opening {
  readonly filter?: EventFilter;
  readonly after?: number | null;
  readonly isEager?: boolean;
  readonly recheck?: () => Promise<void> | undefined;
}

async function made(store: Store, clock: Clock = systemClock) {
  await store.write(
    ["a", "b"].map((id) => ({ sql: "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 0)", args: [id, id] })),
  );
  const events = new Events({ store, clock, log: quietLog });
  const open = async (tenant_id = "a", { filter = {}, after = null, isEager = true, recheck }: Opening = {}) => {
    const abort = new AbortController();
    const stream = await events.open(tenant_id, {
      filter,
      last_event_id: after,
      recheck: recheck ?? (() => undefined),
      signal: abort.signal,
    });
    const reader = new Reader(stream[Symbol.asyncIterator](), isEager);
    if (isEager) await eventually("it is ready", () => reader.named("ready").length === 1);
    return reader;
  };
  const tell = (n: number, fields: Partial<NewEvent> = {}, tenant_id = "a") =>
    events.emit(tenant_id, { name: "container_update", event_type: "started", data: { n }, ...fields });
  return { store, events, open, tell };
}

describe("an event", () => {
  const scratch = scratchStores();

  it("is there with its change, and not without it", async () => {
    const { events, store } = await made(scratch().open());
    const change = (key: string) => ({
      sql: "INSERT INTO meta (key, value) VALUES (?, '') ON CONFLICT DO NOTHING",
      args: [key],
      expect_changes: 1,
    });
    const event: NewEvent = { name: "volume_update", event_type: "created", data: { volume: "v" } };
    expect(await events.write([change("x")], "a", [event])).toMatchObject({ conflict: null });
    expect(await events.write([change("x")], "a", [event, event])).toMatchObject({ conflict: 0 });
    expect(await store.readOne("SELECT count(*) AS count FROM events")).toEqual({ count: 1 });
  });

  it("has its number, its time in seconds and milliseconds, the ids that it is about and what its maker tells", async () => {
    const clock = new HandClock();
    clock.now_ms = 1_795_250_210_123.5;
    const { tell, open } = await made(scratch().open(), clock);
    const reader = await open();
    await tell(1, { container_id: "ctr_1", operation_id: null, data: { state: "running", exit_code: null } });
    await eventually("it is told", () => reader.seen.length === 2);
    expect(reader.seen[1]).toEqual({
      name: "container_update",
      id: "1",
      data: {
        event_id: "1",
        event_type: "started",
        at: 1_795_250_210,
        timestamp: 1_795_250_210_123,
        container_id: "ctr_1",
        state: "running",
        exit_code: null,
      },
    });
  });

  it("that is too large tells what it is about, and no more", async () => {
    const { tell, open } = await made(scratch().open());
    const reader = await open();
    await tell(1, { container_id: "ctr_1", data: { text: "x".repeat(LIMITS.event_bytes_max) } });
    await eventually("it is told", () => reader.seen.length === 2);
    expect(reader.seen[1]?.data).toMatchObject({ container_id: "ctr_1", truncated: true });
    expect(reader.seen[1]?.data).not.toHaveProperty("text");
  });

  it("is not kept of a tenant that is gone", async () => {
    const { tell, store } = await made(scratch().open());
    await tell(1, {}, "nobody");
    expect(await store.read("SELECT * FROM events")).toEqual([]);
  });
});

describe("a reader of events", () => {
  const scratch = scratchStores();

  it("is ready first, and told what happens from then on, in order, of its own tenant alone", async () => {
    const { open, tell } = await made(scratch().open());
    await tell(0);
    const [reader, other] = [await open("a"), await open("b")];
    expect(reader.seen).toEqual([
      {
        name: "ready",
        id: "1",
        data: { last_event_id: "1", newest_event_id: "1", heartbeat_ms: LIMITS.event_heartbeat_ms },
      },
    ]);
    await Promise.all([1, 2, 3].map((n) => tell(n)));
    await tell(4, {}, "b");
    await tell(5);
    await eventually("all are told", () => reader.numbers.length === 4 && other.numbers.length === 1);
    expect([reader.numbers, other.numbers]).toEqual([[1, 2, 3, 5], [4]]);
    expect(reader.named("container_update").map(({ id }) => id)).toEqual(["2", "3", "4", "5"]);
  });

  it("goes on behind the event that it saw last, through any number of pages, while others come", async () => {
    const { open, tell, events } = await made(scratch().open());
    const count = LIMITS.event_page_rows * 3 + 7;
    for (let n = 1; n <= count; n++) await tell(n);
    const writing = (async () => {
      for (let n = count + 1; n <= count + 300; n++) await tell(n);
    })();
    const reader = await open("a", { after: 5 });
    await writing;
    await eventually("all are told", () => reader.numbers.length === count + 295);
    expect(reader.numbers).toEqual(Array.from({ length: count + 295 }, (_, i) => i + 6));
    expect(reader.named("ready")[0]).toMatchObject({ id: "5" });
    expect(reader.named("gap")).toEqual([]);
    expect((await open("a", { after: count + 300 })).seen).toHaveLength(1);
    events.close();
    await eventually("it is ended", () => reader.end === "ended");
  });

  it("loses and repeats nothing, however many come at the same time as others write", async () => {
    const { open, tell } = await made(scratch().open());
    const readers: Promise<Reader>[] = [];
    for (let n = 1; n <= 300; n++) {
      if (n % 15 === 0) readers.push(open("a", { after: 0 }));
      await Promise.all([tell(n), tell(-n, {}, "b")]);
    }
    const wanted = Array.from({ length: 300 }, (_, i) => i + 1);
    for (const reader of await Promise.all(readers)) {
      await eventually("all are told", () => reader.numbers.length >= 300);
      expect(reader.numbers).toEqual(wanted);
    }
  });

  it("gets what it asks for: by container, operation, snapshot, name and type", async () => {
    const { open, tell } = await made(scratch().open());
    const filters: EventFilter[] = [
      { container_id: "c1" },
      { operation_id: "o1" },
      { snapshot_id: "s1" },
      { name: "volume_update" },
      { type: "died" },
      { container_id: "c1", type: "died" },
    ];
    const live = await Promise.all(filters.map((filter) => open("a", { filter })));
    await tell(1, { container_id: "c1" });
    await tell(2, { operation_id: "o1", container_id: "c1", event_type: "died" });
    await tell(3, { snapshot_id: "s1" });
    await tell(4, { name: "volume_update" });
    await tell(5, { event_type: "died", container_id: "c2" });
    const wanted = [[1, 2], [2], [3], [4], [2, 5], [2]];
    const late = await Promise.all(filters.map((filter) => open("a", { filter, after: 0 })));
    for (const readers of [live, late]) {
      const numbers = () => readers.map(({ seen }) => seen.slice(1).map(({ data }) => data.n));
      await eventually("all are told", () => JSON.stringify(numbers()) === JSON.stringify(wanted));
    }
  });

  it("is told that events are missing which are no longer kept", async () => {
    const clock = new HandClock();
    clock.now_ms = 1_795_250_210_000;
    const { open, tell, events } = await made(scratch().open(), clock);
    for (const n of [1, 2, 3]) await tell(n);
    await clock.pass(LIMITS.events_kept_seconds * 1000 + 1);
    for (const n of [4, 5]) await tell(n);
    await tell(6, {}, "b");
    await events.prune();
    const reader = await open("a", { after: 1 });
    await eventually("the rest is told", () => reader.numbers.length === 2);
    expect(reader.seen.map(({ name, id }) => [name, id])).toEqual([
      ["ready", "1"],
      ["gap", "3"],
      ["container_update", "4"],
      ["container_update", "5"],
    ]);
    expect(reader.named("gap")[0]?.data).toEqual({ after_event_id: "1", until_event_id: "3" });
    // Nothing is missing behind the last one that is gone, and nothing of other tenants.
    expect((await open("a", { after: 3 })).named("gap")).toEqual([]);
    expect((await open("b", { after: 0 })).named("gap")).toEqual([]);
    // An id of another log: what is kept is told from its beginning, and that this is so.
    const stranger = await open("a", { after: 1_000 });
    await eventually("the rest is told", () => stranger.numbers.length === 2);
    expect(stranger.named("gap")).toHaveLength(1);
  });

  it("finds a tenant's newest events, as many as are kept, and numbers are not given again", async () => {
    const { tell, events, store } = await made(scratch().open());
    const extra = LIMITS.events_counted_every;
    await store.write([
      {
        sql: `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
          INSERT INTO events (tenant_id, number, at_ms, name, event_type, data)
          SELECT 'a', i, ?, 'container_update', 'started', '{}' FROM n`,
        args: [LIMITS.events_kept_per_tenant, Date.now()],
      },
    ]);
    for (let n = 0; n < extra; n++) await tell(n);
    await events.prune();
    const row = await store.readOne("SELECT count(*) AS count, min(number) AS first FROM events WHERE tenant_id = 'a'");
    expect(row).toEqual({ count: LIMITS.events_kept_per_tenant, first: extra + 1 });
    await events.erase("a");
    await tell(1, {}, "b");
    expect(await store.read("SELECT number FROM events")).toEqual([{ number: 1 }]);
  });

  it("counts the events of a tenant alone, those that are no longer kept included", async () => {
    const { tell, events, store } = await made(scratch().open());
    const newest = async (tenant_id: string) => {
      const signal = new AbortController().signal;
      const stream = await events.open(tenant_id, {
        filter: {},
        last_event_id: null,
        recheck: () => undefined,
        signal,
      });
      const { value } = await stream[Symbol.asyncIterator]().next();
      stream.end();
      return /"newest_event_id":"(\d+)"/.exec(Buffer.from(value ?? []).toString())?.[1];
    };
    for (let n = 0; n < 5; n++) await tell(n);
    expect([await newest("a"), await newest("b")]).toEqual(["5", "0"]);
    await tell(1, {}, "b");
    expect([await newest("a"), await newest("b")]).toEqual(["5", "1"]);
    // Too old by now: the log is empty, and the next number is still the next.
    await store.write([{ sql: "UPDATE events SET at_ms = 0" }]);
    await events.prune();
    await tell(6);
    expect(await store.read("SELECT tenant_id, number FROM events")).toEqual([{ tenant_id: "a", number: 6 }]);
    expect([await newest("a"), await newest("b")]).toEqual(["6", "1"]);
  });

  it("that takes nothing holds no more than a bound, and misses nothing when it takes again", async () => {
    const { open, tell } = await made(scratch().open());
    const [slow, quick] = [await open("a", { isEager: false }), await open()];
    await slow.take();
    // It is caught up, and waits to be given something.
    const first = slow.take();
    await eventually("it follows", async () => {
      await tell(0);
      return slow.seen.length > 1;
    });
    await first;
    const text = "x".repeat(1_000);
    const count = Math.ceil((LIMITS.event_stream_bytes_max * 2.5) / 1_000);
    for (let n = 1; n <= count; n++) await tell(n, { data: { n, text } });
    await eventually("the quick one has all", () => quick.numbers.at(-1) === count);
    expect(slow.numbers.length).toBeLessThan(5);
    await slow.take();
    // What had waited above the bound is forgotten: it reads page by page.
    expect(slow.numbers.length).toBeLessThan(LIMITS.event_page_rows + 5);
    void slow.takeAll();
    await eventually("it has all", () => slow.numbers.at(-1) === count);
    expect(slow.numbers.filter((n) => n !== 0)).toEqual(Array.from({ length: count }, (_, i) => i + 1));
    const ids = slow.seen.slice(1).map(({ id }) => Number(id));
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("that is slower than events go is told what it has missed", async () => {
    const clock = new HandClock();
    clock.now_ms = 1_795_250_210_000;
    const { open, tell, events } = await made(scratch().open(), clock);
    for (let n = 1; n <= LIMITS.event_page_rows + 20; n++) await tell(n);
    const slow = await open("a", { after: 0, isEager: false });
    await slow.take();
    await slow.take();
    expect(slow.numbers).toHaveLength(LIMITS.event_page_rows);
    await clock.pass(LIMITS.events_kept_seconds * 1000 + 1);
    await tell(999);
    await events.prune();
    void slow.takeAll();
    await eventually("it has the last one", () => slow.numbers.at(-1) === 999);
    const until = String(LIMITS.event_page_rows + 20);
    expect(slow.named("gap").map(({ data }) => data)).toEqual([
      { after_event_id: String(LIMITS.event_page_rows), until_event_id: until },
    ]);
  });

  it("hears a heartbeat, and nothing after its key is revoked", async () => {
    const clock = new HandClock();
    clock.now_ms = 1_795_250_210_000;
    const { open, tell } = await made(scratch().open(), clock);
    const state = { isGood: true };
    const recheck = () =>
      state.isGood ? undefined : Promise.reject(new AppError("UNAUTHORIZED", "invalid credential"));
    const [idle, told] = [await open("a", { recheck }), await open("a", { recheck })];
    await tell(1);
    await eventually("it is told", () => idle.numbers.length === 1 && told.numbers.length === 1);
    await clock.pass(LIMITS.event_heartbeat_ms);
    await eventually("it beats", () => idle.named("heartbeat").length === 1);
    expect(idle.named("heartbeat")).toEqual([
      { name: "heartbeat", id: "1", data: { at: 1_795_250_210 + LIMITS.event_heartbeat_ms / 1000 } },
    ]);
    state.isGood = false;
    await tell(2);
    await eventually("both have ended", () => idle.end === "ended" && told.end === "ended");
    const silent = await open("a", { recheck });
    await clock.pass(LIMITS.event_heartbeat_ms);
    await eventually("it has ended without a word", () => silent.end === "ended");
    expect([idle.numbers, told.numbers, silent.seen.length]).toEqual([[1], [1], 1]);
    expect(clock.timer_count).toBe(0);
  });

  it("is one of few: above a bound it is refused, until another has left, begun or not", async () => {
    const { open, events } = await made(scratch().open());
    const readers: Reader[] = [];
    for (let n = 0; n < LIMITS.event_streams_per_tenant_max; n++)
      readers.push(await open("a", { isEager: n % 2 === 0 }));
    await expect(open()).rejects.toMatchObject({ code: "CONCURRENCY_LIMIT" });
    await open("b");
    await readers[1]?.leave();
    await readers[2]?.leave();
    await open();
    await open();
    await expect(open()).rejects.toMatchObject({ code: "CONCURRENCY_LIMIT" });
    events.close();
    await expect(open()).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
  });

  it("ends with its request and with its tenant", async () => {
    const { events } = await made(scratch().open());
    const abort = new AbortController();
    const options = { filter: {}, last_event_id: null, recheck: () => undefined };
    const one = new Reader(
      (await events.open("a", { ...options, signal: abort.signal }))[Symbol.asyncIterator](),
      true,
    );
    const two = new Reader(
      (await events.open("b", { ...options, signal: new AbortController().signal }))[Symbol.asyncIterator](),
      true,
    );
    await eventually("both are ready", () => one.seen.length + two.seen.length === 2);
    abort.abort();
    await events.erase("b");
    await eventually("both have ended", () => one.end === "ended" && two.end === "ended");
  });
});
