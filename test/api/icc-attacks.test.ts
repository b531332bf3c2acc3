/**
 * Messages of hostile containers and on a failing machine, with real containers: floods, forged and malformed messages, full
 * inboxes, broadcasts, ends of containers and of the daemon, damage, and a full disk.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, rmSync, statfsSync, statSync } from "node:fs";
import { Agent } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { type Envelope, encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { Connection } from "../../src/store/connection.ts";
import { askInside, FLOOD, type Reply } from "../support/container-socket.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { scrape } from "../support/metrics.ts";
import { SmallDisk } from "../support/small-disk.ts";

const DISK_MB = 3_072;
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" };
const run = (command: string, ...args: string[]) => execFileSync(command, args, { stdio: "ignore" });
const disk = new SmallDisk(DISK_MB);
const filler = `${disk.path}/filler`;
const daemon = new Daemon(disk.path);
const agent = new Agent({ keepAlive: true, maxSockets: 8 });
const ids = { alice: "", bob: "", carol: "" };
const other = { key: "" };

const post = (path: string, body: unknown = {}, key?: string) =>
  daemon.call("POST", path, body, key === undefined ? {} : { "x-api-key": key });
const get = async (path: string) => (await daemon.call("GET", path)).body;
const send = (to: string, msg_id: string, more: object = {}) =>
  post("/api/icc/messages", { to, type: "t", payload: 1, msg_id, ...more });
const errorOf = ({ status, body }: Reply) => [status, body.error_code];
const lastSeq = async (inbox: string) => (await get(`/api/icc/streams?container_id=${inbox}`)).streams[0].last_seq;

async function create(name: string, key?: string): Promise<string> {
  const { status, body } = await post("/api/containers", { name }, key);
  expect(status, JSON.stringify(body)).toBe(201);
  return body.container_id;
}
const remove = (id: string) => daemon.call("DELETE", `/api/containers/${id}`);
/** Starts a program of Python in a container. */
const python = (id: string, program: string, more: object = {}) =>
  post(`/api/containers/${id}/exec`, { command: ["python3", "-c", program], ...more });

const inside = (id: string, method: string, path: string, body?: unknown): Promise<Reply> =>
  askInside(daemon, agent, { id, method, path, body });

let count = 0;
function envelope(changes: Partial<Envelope> = {}): Buffer {
  const texts = { request_id: "", trace_id: "", correlation_id: "", causation_id: "", stream_key: "" };
  return encodeEnvelope({
    ...{ version: 1, msg_id: `made-${++count}`, ...texts, from: ids.alice, to: ids.bob, seq: 0 },
    ...{ sent_at: Date.now(), ttl_ms: 3_600_000, permission_level: "READ_ONLY", idempotency_key: "" },
    payload: { kind: "state_snapshot", value: { content_type: "text/plain", data: Buffer.from("n") } },
    ...changes,
  });
}
const b64 = (changes: Partial<Envelope> = {}) => ({ envelope_b64: envelope(changes).toString("base64") });

/** Changes what the store has while no daemon runs. */
function plant(...statements: readonly (readonly [string, ...(string | number | Uint8Array)[]])[]): void {
  const connection = new Connection(`${daemon.data_dir}/hearth.db`, LIMITS);
  for (const [sql, ...args] of statements) connection.run(sql, args);
  connection.close();
}

beforeAll(async () => {
  await daemon.start(SETTINGS);
  // Containers have their space already: the disk fills for the store alone.
  const area = `${daemon.data_dir}/area.btrfs`;
  run("fallocate", "-l", String(statSync(area).size), area);
  const { body } = await post("/api/tenants", { name: "other" });
  other.key = (await post(`/api/tenants/${body.tenant_id}/api-keys`, { name: "first" })).body.key;
  ids.alice = await create("alice");
  ids.bob = await create("bob");
  ids.carol = await create("carol", other.key);
});
afterAll(async () => {
  agent.destroy();
  await daemon.dispose();
  disk.remove();
});

describe("a container that forges", () => {
  it("senders is refused, in JSON and in envelopes, and nothing is written", async () => {
    const before = await lastSeq(ids.bob);
    const names = ["bob", ids.bob, ids.carol, "carol", "api", "default", "queue:q", "topic:t", "binding:b"];
    // Cyrillic a, a full-width a, other case, spaces, marks that nobody sees.
    const lookalikes = [
      "\u0430lice",
      "\uff41lice",
      "ALICE",
      " alice",
      "alice ",
      "alice\u200b",
      "ali\u00adce",
      "\u202ealice",
    ];
    for (const from of [...names, ...lookalikes]) {
      const plain = await inside(ids.alice, "POST", "/v1/messages", { to: "bob", type: "t", from });
      expect([from, ...errorOf(plain)]).toEqual([from, 403, "FORBIDDEN"]);
      const encoded = await inside(ids.alice, "POST", "/v1/messages", b64({ from }));
      expect([from, ...errorOf(encoded)]).toEqual([from, 403, "FORBIDDEN"]);
    }
    const foreign = await inside(ids.alice, "POST", "/v1/messages", { to: ids.carol, type: "t" });
    expect(errorOf(foreign)).toEqual([404, "NOT_FOUND"]);
    expect(await lastSeq(ids.bob)).toBe(before);
    const own = await inside(ids.alice, "POST", "/v1/messages", b64({ from: "alice" }));
    expect(own.status).toBe(200);
    const { messages } = await get(`/api/icc/inbox/bob?from_seq=${own.body.stream_seq}`);
    expect(messages[0].envelope_summary.from).toBe(ids.alice);
  });

  it("clocks and identifiers is refused where they cannot be", async () => {
    const hour_ms = 3_600_000;
    const on = (changes: Partial<Envelope>) => inside(ids.alice, "POST", "/v1/messages", b64(changes));
    const now_ms = Date.now();
    expect((await on({ sent_at: now_ms + hour_ms })).status).toBe(200);
    expect((await on({ sent_at: now_ms - hour_ms, ttl_ms: 2 * hour_ms })).status).toBe(200);
    expect(await on({ sent_at: now_ms - hour_ms, ttl_ms: 1_000 })).toMatchObject({
      ...{ status: 400, body: { reason_code: "EXPIRED", hint: expect.stringContaining("clock") } },
    });
    expect(await on({ sent_at: now_ms + 2 * hour_ms })).toMatchObject({
      status: 400,
      body: { error_code: "INVALID_ARGUMENT" },
    });
    const before = await lastSeq(ids.bob);
    for (const field of [
      "msg_id",
      "request_id",
      "trace_id",
      "correlation_id",
      "causation_id",
      "idempotency_key",
      "to",
    ]) {
      for (const text of ["a\nb", "a\0", "\x1b[2J", "a\x7f", "a\u0085"]) {
        const fields = { from: "alice", to: ids.bob, [field]: text };
        const answers = [
          inside(ids.alice, "POST", "/v1/messages", b64(fields)),
          inside(ids.alice, "POST", "/v1/messages", { type: "t", ...fields }),
          post("/api/icc/publish", b64(fields)),
        ];
        for (const one of await Promise.all(answers)) expect([field, text, one.status]).toEqual([field, text, 400]);
      }
    }
    expect(await lastSeq(ids.bob)).toBe(before);
  });
});

describe("a malformed message", () => {
  it("is refused as such, by the API and by the socket, and others are published", async () => {
    const good = envelope({ msg_id: "fuzzed", trace_id: "trace", idempotency_key: "key" });
    // The same in each run.
    let seed = 17;
    const next = (max: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return seed % max;
    };
    const mutated = Array.from({ length: 300 }, (_, i) => {
      const bytes = Buffer.from(i % 3 === 0 ? good.subarray(0, next(good.length)) : good);
      if (i % 3 === 0) return bytes;
      for (let n = 0; n <= i % 4; n++) bytes[next(bytes.length)] = next(256);
      return i % 3 === 1 ? bytes : Buffer.concat([bytes, good.subarray(next(good.length))]);
    });
    const statuses = new Map<number, number>();
    const bodies = mutated.map((bytes) => ({ envelope_b64: bytes.toString("base64") }));
    for (const body of bodies) {
      const answers = [post("/api/icc/publish", body), inside(ids.alice, "POST", "/v1/messages", body)];
      for (const { status } of await Promise.all(answers)) statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
    expect([...statuses.keys()].filter((status) => ![200, 400, 403, 404, 409].includes(status))).toEqual([]);
    expect(statuses.get(400)).toBeGreaterThan(100);
    const large = "x".repeat(LIMITS.icc_socket_body_bytes_max + 1);
    for (const [body, status] of [
      ["", 422],
      ["null", 422],
      ["[]", 422],
      ['{"to":"bob"', 400],
      ["\xff\xfe", 400],
      [`${"[".repeat(10_000)}${"]".repeat(10_000)}`, 400],
      ['{"to":"bob","type":"t","payload":1e999999}', 400],
      ['{"__proto__":{"to":"bob"},"type":"t"}', 422],
      [`{"to":"bob","type":"t","payload":"${large}"}`, 413],
      [{ envelope_b64: "" }, 400],
      [{ envelope_b64: "%%%" }, 400],
      [{ envelope_b64: Buffer.alloc(1024 * 1024 + 1).toString("base64") }, 413],
    ] as const) {
      const { status: answered } = await inside(ids.alice, "POST", "/v1/messages", body);
      expect([JSON.stringify(body).slice(0, 60), answered]).toEqual([JSON.stringify(body).slice(0, 60), status]);
    }
    expect((await inside(ids.bob, "POST", "/v1/messages", { to: "alice", type: "t" })).status).toBe(200);
    expect((await get("/api/icc/inbox/bob?limit=1000&include_message=true")).messages.length).toBeGreaterThan(0);
  });
});

describe("a container that floods its socket", () => {
  it("holds up no other, and leaves nothing when it ends", async () => {
    const open = () => daemon.descriptors().filter((one) => one.startsWith("socket:")).length;
    const counts = async () => {
      const metrics = await scrape(daemon);
      return ["hearth_message_sockets", "hearth_message_waits"].map((name) => metrics.of(name));
    };
    agent.destroy();
    await eventually("only watchers are left", async () => (await counts())[1] === 0);
    const [before, open_before] = [await counts(), open()];
    const id = await create("flooder");
    for (let i = 0; i < 20; i++) await send("flooder", `large-${i}`, { payload: "x".repeat(500_000) });
    expect((await python(id, FLOOD, { detach: true })).status).toBeLessThan(300);
    const flooded = async () =>
      (await post(`/api/containers/${id}/exec`, { command: ["test", "-e", "/flooded"] })).body.exit_code === 0;
    await eventually("1,000 connections were tried", flooded);
    for (let i = 0; i < 20; i++) {
      expect((await inside(ids.bob, "POST", "/v1/messages", { to: "alice", type: "t" })).status).toBe(200);
      expect((await send("queue:calm", `calm-${i}`)).status).toBe(200);
    }
    expect(open() - open_before).toBeLessThan(100);
    expect((await post(`/api/containers/${id}/kill`)).status).toBe(200);
    expect((await remove(id)).status).toBe(200);
    agent.destroy();
    await eventually("all is as before", async () => open() <= open_before);
    expect(await counts()).toEqual(before);
    expect(daemon.output).not.toMatch(/large-|calm-|response aborted/);
  });
});

describe("a subscriber that never acks", () => {
  it("gets each message five times in order, then each is a dead letter, and later ones go on", async () => {
    const sent = ["n1", "n2", "n3"];
    const id = await create("forgetful");
    for (const msg_id of sent) await send("forgetful", msg_id);
    const program = [
      "import hearth_icc as icc, itertools",
      "for m in itertools.islice(icc.stream(lease=0.1), 16): open('/got', 'a').write(m['msg_id'] + '\\n')",
    ].join("\n");
    await python(id, program, { detach: true });
    const dead = async () =>
      (await get("/api/icc/dlq?limit=1000")).messages.filter(
        (one: { container_id: string }) => one.container_id === id,
      );
    await eventually("all are dead", async () => (await dead()).length === sent.length);
    const letters = await dead();
    expect(letters.map((one: { msg_id: string }) => one.msg_id)).toEqual(sent);
    expect(letters[0]).toMatchObject({
      reason: "max_deliver",
      deliveries: LIMITS.max_deliver_default,
      original_stream_seq: 1,
    });
    await send("forgetful", "n4");
    const got = async () => (await post(`/api/containers/${id}/exec`, { command: ["cat", "/got"] })).body.stdout;
    await eventually("the next one", async () => (await got()).includes("n4"));
    const times = (text: string) => [text, text, text, text, text];
    expect((await got()).split("\n").slice(0, 15)).toEqual(sent.flatMap(times));
    await remove(id);
  });
});

describe("a broadcast", () => {
  it("of 100,000 targets is refused whole, and 100,000 copies, 1,000 at a time, hold up no other tenant", async () => {
    const targets = (length: number, prefix: string) => Array.from({ length }, (_, i) => `queue:${prefix}${i}`);
    const cast = (container_ids: readonly string[], msg_id: string) =>
      post("/api/icc/messages/broadcast", { ...b64({ msg_id, from: "api" }), targets: { container_ids } });
    const refused = await cast(targets(100_000, "many"), "many");
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([400, expect.stringMatching(/too many .*limit/)]);
    expect((await get("/api/icc/streams?container_id=queue:many0")).streams[0].last_seq).toBe(0);
    const names = targets(LIMITS.broadcast_targets_max, "cast");
    let isOver = false;
    const casting = (async () => {
      for (let i = 0; i < 100; i++) expect((await cast(names, `cast-${i}`)).body.accepted).toBe(names.length);
      isOver = true;
    })();
    let answered = 0;
    while (!isOver) {
      expect((await inside(ids.carol, "POST", "/v1/messages", { to: "carol", type: "t" })).status).toBe(200);
      answered++;
    }
    await casting;
    expect(answered).toBeGreaterThan(1);
    expect(await lastSeq("queue:cast999")).toBe(100);
  });
});

describe("the end of a container that holds messages", () => {
  it("gives those of a queue to others when their leases end, and removes its inbox", async () => {
    const id = await create("holder");
    await send("queue:shared", "shared");
    await send("holder", "own");
    expect((await daemon.call("PUT", `/api/icc/topics/news/subscribers/${id}`)).status).toBe(200);
    const lease = { max: 1, lease_ms: 1_000 };
    expect((await inside(id, "POST", "/v1/receive", { ...lease, inbox: "queue:shared" })).body.messages).toHaveLength(
      1,
    );
    const [own] = (await inside(id, "POST", "/v1/receive", lease)).body.messages;
    await post(`/api/containers/${id}/kill`);
    // The lease ends with its time, for a container that has ended too.
    const [again] = (await post("/api/icc/inbox/holder/receive", { wait_ms: 20_000 })).body.messages;
    expect(again).toMatchObject({ msg_id: "own", deliveries: 2 });
    expect(await post("/api/icc/ack", { msg_id: "own", lease: own.lease })).toMatchObject({ status: 409 });
    expect((await remove(id)).status).toBe(200);
    const received = await inside(ids.bob, "POST", "/v1/receive", { inbox: "queue:shared", wait_ms: 20_000 });
    expect(received.body.messages).toMatchObject([{ msg_id: "shared", deliveries: 2 }]);
    const [{ lease: held }] = received.body.messages;
    await inside(ids.bob, "POST", "/v1/ack", { msg_id: "shared", inbox: "queue:shared", lease: held });
    expect(errorOf(await daemon.call("GET", `/api/icc/inbox/${id}`))).toEqual([404, "NOT_FOUND"]);
    expect(errorOf(await post("/api/icc/ack", { msg_id: "own" }))).toEqual([404, "NOT_FOUND"]);
    expect(JSON.stringify(await get("/api/icc/streams?limit=1000"))).not.toContain(id);
    expect(errorOf(await daemon.call("GET", "/api/icc/topics/news/subscribers"))).toEqual([404, "NOT_FOUND"]);
  });
});

describe("a daemon that is killed under load, and finds damage and a full inbox", () => {
  const published: string[] = [];
  const acked: string[] = [];

  it("has each message that it answered, and delivers none again after its ack", async () => {
    const sockets = () => readdirSync(`${daemon.run_dir}/c`).length;
    const before = sockets();
    let isOver = false;
    const quiet = <T>(work: Promise<T>) => work.catch(() => null);
    const publishing = [0, 1, 2, 3].map(async (lane) => {
      for (let i = 0; !isOver; i++) {
        const msg_id = `k${lane}-${i}`;
        const answer = await quiet(send("queue:killed", msg_id));
        if (answer?.status === 200) published.push(msg_id);
        else return;
      }
    });
    const acking = (async () => {
      while (!isOver) {
        const answer = await quiet(
          post("/api/icc/inbox/queue:killed/receive", { max: 10, wait_ms: 1_000, lease_ms: 1_000 }),
        );
        if (answer === null) return;
        for (const { msg_id } of answer.body.messages) {
          if ((await quiet(post("/api/icc/ack", { msg_id, container_id: "queue:killed" })))?.status === 200)
            acked.push(msg_id);
        }
      }
    })();
    await eventually("messages are acked", () => acked.length > 30);
    for (const msg_id of ["d1", "d2", "d3"]) await send("bob", msg_id);
    await send("queue:full", "full-0");
    await daemon.stop("SIGKILL");
    isOver = true;
    await Promise.all([...publishing, acking]);
    // A disk may damage messages like this: two of a container, one of them an action.
    plant(
      ["UPDATE icc_entries SET envelope = ? WHERE msg_id = 'd1'", Buffer.from("0aff", "hex")],
      ["UPDATE icc_entries SET envelope = ?, is_action = 1 WHERE msg_id = 'd2'", Buffer.alloc(0)],
      [
        `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
          INSERT INTO icc_entries (id, inbox_no, tenant_no, state, is_action, created_ms, expires_ms, bytes, msg_id, envelope)
          SELECT id + i, inbox_no, tenant_no, 0, 0, created_ms, expires_ms, bytes, 'full-' || i, envelope
          FROM icc_entries, n WHERE msg_id = 'full-0'`,
        LIMITS.inbox_unread_max - 2,
      ],
      [
        "UPDATE icc_inboxes SET last_seq = ?, entries = ?, bytes = bytes * ? WHERE name = 'queue:full'",
        ...[LIMITS.inbox_unread_max - 1, LIMITS.inbox_unread_max - 1, LIMITS.inbox_unread_max - 1],
      ],
    );
    await daemon.start(SETTINGS);
    expect(sockets()).toBe(before);
    const { messages } = await get("/api/icc/inbox/queue:killed?limit=1000");
    const states = new Map(messages.map((one: { msg_id: string; state: string }) => [one.msg_id, one.state]));
    expect(published.slice(0, 500).filter((msg_id) => !states.has(msg_id))).toEqual([]);
    const again = await eventually("leases end", async () => {
      const { body } = await post("/api/icc/inbox/queue:killed/receive", { max: 1_000, max_deliver: 100 });
      return body.messages.length > 0 || states.size === acked.length ? body.messages : null;
    });
    expect(again.map((one: { msg_id: string }) => one.msg_id).filter((id: string) => acked.includes(id))).toEqual([]);
  });

  it("delivers the others where messages are damaged, and applies the next action", async () => {
    const listed = (await get("/api/icc/inbox/bob?limit=1000")).messages.filter((one: { msg_id: string }) =>
      /^d\d$/.test(one.msg_id),
    );
    expect(listed.map((one: { envelope_summary: { type: string } }) => one.envelope_summary.type)).toEqual([
      "damaged",
      "damaged",
      "t",
    ]);
    const action = await post("/api/icc/request", { to: "bob", type: "env_patch", payload: { set: { A: "1" } } });
    expect(action).toMatchObject({ status: 200, body: { reply: { payload: { status: "APPLIED" } } } });
    await eventually("the last one comes", async () => {
      const { body } = await inside(ids.bob, "POST", "/v1/receive", { max: 32 });
      for (const { msg_id } of body.messages) await inside(ids.bob, "POST", "/v1/ack", { msg_id });
      return body.messages.some((one: { msg_id: string }) => one.msg_id === "d3");
    });
    const { messages } = await get("/api/icc/dlq?limit=1000");
    const dead = messages.filter((one: { msg_id: string }) => /^d\d$/.test(one.msg_id));
    expect(dead.map(({ msg_id, reason }: { msg_id: string; reason: string }) => [msg_id, reason]).sort()).toEqual([
      ["d1", expect.stringContaining("damaged")],
      ["d2", expect.stringContaining("damaged")],
    ]);
  });

  it("refuses what is above the bound of an inbox that nobody reads, and takes what is for others", async () => {
    expect((await send("queue:full", "last")).status).toBe(200);
    for (const refused of [
      await send("queue:full", "above"),
      await inside(ids.alice, "POST", "/v1/messages", { to: "queue:full", type: "t", msg_id: "above" }),
    ]) {
      expect(refused).toMatchObject({
        status: 429,
        body: { error_code: "QUEUE_FULL", retry_after: 1, hint: expect.stringContaining("receive and ack") },
      });
    }
    expect((await send("queue:empty", "above")).status).toBe(200);
    expect((await inside(ids.alice, "POST", "/v1/messages", { to: "bob", type: "t" })).status).toBe(200);
    expect((await inside(ids.carol, "POST", "/v1/messages", { to: "queue:full", type: "t" })).status).toBe(200);
    await post("/api/icc/ack", { msg_id: "full-5" });
    expect(await send("queue:full", "above")).toMatchObject({ status: 200, body: { duplicate: false } });
    await post("/api/icc/ack", { msg_id: "above", container_id: "queue:full" });
  });
});

describe("the store's disk is full", () => {
  const reserve = () => statSync(`${daemon.data_dir}/hearth.db-reserve`).size;
  const FULL = [503, "CAPACITY_FULL", "disk of the store full"];
  const refusal = ({ status, body }: Reply) => [status, body.error_code, body.error];

  it("refuses messages with the reason, writes none in part, and still acks", async () => {
    await eventually("the reserve is made", () => reserve() === LIMITS.store_reserve_bytes);
    for (const msg_id of ["f1", "f2", "f3"]) await send("queue:disk", msg_id);
    await post("/api/icc/inbox/queue:disk/receive", { max: 2, lease_ms: 600_000 });
    const { bavail: free, bsize: block_bytes } = statfsSync(disk.path);
    run("fallocate", "-l", String(free * block_bytes - 2 * 1024 * 1024), filler);
    const payload = "x".repeat(900_000);
    const kept: string[] = [];
    const lost: string[] = [];
    type Publish = (msg_id: string) => Promise<Reply>;
    const byKey: Publish = (msg_id) => send("queue:disk", msg_id, { payload });
    const bySocket: Publish = (msg_id) =>
      inside(ids.alice, "POST", "/v1/messages", { to: "queue:disk", type: "t", msg_id, payload });
    const tryOne = async (publish: Publish) => {
      const msg_id = `big-${kept.length + lost.length}`;
      const answer = await publish(msg_id);
      (answer.status === 200 ? kept : lost).push(msg_id);
      return answer.status === 200 ? null : answer;
    };
    for (const publish of [byKey, bySocket]) {
      const refused = await eventually("one is refused", () => tryOne(publish));
      expect(refusal(refused)).toEqual(FULL);
      expect(refused.body).toMatchObject({ retry_after: 1, hint: expect.stringContaining("free space") });
    }
    // Messages never use the reserve for changes of state, in any number.
    for (let i = 0; i < 50; i++) await tryOne(byKey);
    const { bavail, bsize } = statfsSync(disk.path);
    expect(bavail * bsize + reserve()).toBeGreaterThan(LIMITS.store_reserve_bytes / 4);
    const state = await daemon.call("PUT", "/api/icc/state/big", { value: payload.slice(0, 200_000) });
    expect(errorOf(state)).toEqual([503, "CAPACITY_FULL"]);
    const acks = [await post("/api/icc/ack", { msg_id: "f1" }), await post("/api/icc/ack", { msg_id: "f2" })];
    expect(acks.map(({ body }) => body.new_state)).toEqual(["acked", "acked"]);
    const level = { permission_level: "EXECUTE" };
    expect((await daemon.call("PUT", `/api/icc/containers/${ids.bob}/permission`, level)).status).toBe(200);
    expect((await daemon.call("GET", "/health")).status).toBe(200);
    const { messages } = await get("/api/icc/inbox/queue:disk?limit=1000");
    const listed = messages.map((one: { msg_id: string; state: string }) => [one.msg_id, one.state]);
    expect(listed.slice(0, 3)).toEqual([
      ["f1", "acked"],
      ["f2", "acked"],
      ["f3", "unread"],
    ]);
    expect(errorOf(await daemon.call("GET", `/api/icc/state/big`))).toEqual([404, "NOT_FOUND"]);
    for (const msg_id of lost) expect(errorOf(await post("/api/icc/ack", { msg_id }))).toEqual([404, "NOT_FOUND"]);
    const [stream] = (await get("/api/icc/streams?container_id=queue:disk")).streams;
    expect(stream).toMatchObject({ messages: 3 + kept.length, unread: 1 + kept.length });
    // A start needs some of the space that messages have left.
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(refusal(await eventually("one is refused", () => tryOne(byKey)))).toEqual(FULL);
  });

  it("takes messages again after room is made, with what was answered before", async () => {
    rmSync(filler);
    const sent = await eventually("one is taken", async () => {
      const answer = await send("queue:disk", "after");
      return answer.status === 200 ? answer : null;
    });
    expect(sent.body.duplicate).toBe(false);
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    const stateOf = async (seq: number) => (await get(`/api/icc/inbox/queue:disk?from_seq=${seq}&limit=1`)).messages[0];
    expect(await stateOf(1)).toMatchObject({ msg_id: "f1", state: "acked" });
    expect(await stateOf(3)).toMatchObject({ msg_id: "f3", state: "unread" });
    expect(await stateOf(sent.body.stream_seq)).toMatchObject({ msg_id: "after", state: "unread" });
    const received = await post("/api/icc/inbox/queue:disk/receive", { max: 1 });
    expect(received.body.messages[0].msg_id).toBe("f3");
  });
});
