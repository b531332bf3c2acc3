/** Messages through the API, with real containers. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decodeEnvelope, type Envelope, encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const ids: string[] = [];
beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  for (const name of ["icc-a", "icc-b", "icc-c"]) {
    const { body } = await daemon.call("POST", "/api/containers", { name });
    ids.push(body.container_id);
  }
});
afterAll(() => daemon.dispose());

let count = 0;
function envelope(changes: Partial<Envelope> = {}): Envelope {
  count++;
  return {
    ...{ version: 1, msg_id: `api-${count}`, request_id: "", trace_id: "", correlation_id: "", causation_id: "" },
    ...{ from: "tester", to: ids[0] ?? "", stream_key: "", seq: 0, sent_at: Date.now(), ttl_ms: 60_000 },
    ...{ permission_level: "READ_ONLY", idempotency_key: "" },
    payload: { kind: "state_snapshot", value: { content_type: "text/plain", data: Buffer.from(`n${count}`) } },
    ...changes,
  };
}
const b64 = (changes: Partial<Envelope> = {}) => encodeEnvelope(envelope(changes)).toString("base64");
const post = (path: string, body: unknown = {}) => daemon.call("POST", path, body);
const get = (path: string) => daemon.call("GET", path);

describe("an envelope", () => {
  it("is published, listed, acked and replayed, on every alias", async () => {
    const [a = ""] = ids;
    const sent = await post("/api/icc/publish", { envelope_b64: b64({ msg_id: "first" }) });
    expect(sent).toMatchObject({
      status: 200,
      body: { msg_id: "first", container_id: a, stream_seq: 1, duplicate: false, subject: `jets.cmd.${a}` },
    });
    expect(sent.body.stream).toBe(`INBOX_${a.toUpperCase()}`);
    for (const path of [
      `/api/icc/messages?container_id=${a}`,
      `/api/icc/inbox/icc-a`,
      `/api/containers/${a}/inbox?state=unread`,
      `/api/containers/icc-a/messages?limit=5&from_seq=1`,
    ]) {
      const { status, body } = await get(path);
      expect([path, status, body.messages.length]).toEqual([path, 200, 1]);
      expect(body.messages[0]).toMatchObject({ stream_seq: 1, state: "unread" });
      expect(body.messages[0].envelope_summary).toMatchObject({
        ...{ msg_id: "first", from: "tester", to: a, permission_level: "READ_ONLY", payload_kind: "state_snapshot" },
      });
      expect(decodeEnvelope(Buffer.from(body.messages[0].envelope_b64, "base64")).msg_id).toBe("first");
    }
    for (const [path, body] of [
      [`/api/containers/${a}/icc/publish`, { envelope_b64: b64({ msg_id: "second" }) }],
      ["/api/icc/messages", { envelope_b64: b64({ msg_id: "third" }) }],
      ["/api/icc/messages", { to: "icc-a", type: "task.created", payload: { n: 1 }, msg_id: "fourth" }],
    ] as const) {
      expect((await post(path, body)).status).toBe(200);
    }
    for (const [path, body] of [
      ["/api/icc/ack", { msg_id: "first", action: "ack" }],
      [`/api/icc/messages/second/ack`, {}],
      [`/api/icc/inbox/${a}/ack`, { msg_id: "third" }],
    ] as const) {
      expect((await post(path, body)).body).toMatchObject({ new_state: "acked", dlq_forwarded: false });
    }
    const failed = await post(`/api/containers/${a}/inbox/ack`, { msg_id: "fourth", action: "nack", reason: "no" });
    expect(failed.body).toEqual({ msg_id: "fourth", container_id: a, new_state: "failed", dlq_forwarded: true });
    for (const [path, body] of [
      ["/api/icc/replay", { container_id: a, state: "acked", limit: 1 }],
      [`/api/icc/inbox/${a}/replay`, { from_seq: 2, to_seq: 2 }],
      [`/api/containers/${a}/inbox/replay`, { state: "failed" }],
    ] as const) {
      expect((await post(path, body)).body.replayed).toBe(1);
    }
    const { body } = await get(`/api/icc/inbox/${a}?state=unread`);
    expect(
      body.messages.map((one: { envelope_summary: { causation_id: string } }) => one.envelope_summary.causation_id),
    ).toEqual(["first", "second", "fourth"]);
  });

  it("is refused with the reason, and changes nothing", async () => {
    const before = (await get(`/api/containers/icc-a/icc`)).body;
    for (const [envelope_b64, status, code] of [
      ["", 400, "INVALID_ARGUMENT"],
      ["%%%", 400, "INVALID_ARGUMENT"],
      [b64().slice(0, 40), 400, "INVALID_ARGUMENT"],
      [b64({ to: "nothing-here" }), 404, "NOT_FOUND"],
      [b64({ sent_at: Date.now() - 3_600_000 }), 400, "INVALID_ARGUMENT"],
      [b64({ version: 0 }), 400, "INVALID_ARGUMENT"],
      [b64({ from: " " }), 400, "INVALID_ARGUMENT"],
    ] as const) {
      expect(await post("/api/icc/publish", { envelope_b64 })).toMatchObject({ status, body: { error_code: code } });
    }
    expect((await post("/api/icc/publish", {})).status).toBe(422);
    expect((await post("/api/icc/messages", { to: "icc-a" })).status).toBe(422);
    expect((await post("/api/icc/messages", { to: "queue:Bad Name", type: "t" })).status).toBe(400);
    expect((await get(`/api/containers/icc-a/icc`)).body).toEqual(before);
  });
});

describe("reads", () => {
  it("need a container that the tenant has", async () => {
    expect((await get("/api/icc/messages")).status).toBe(400);
    expect((await get("/api/icc/messages?container_id=icc-a&state=read")).status).toBe(400);
    for (const path of ["/api/icc/inbox/none", "/api/icc/containers/none/state-version", "/api/containers/none/icc"]) {
      expect((await get(path)).status).toBe(404);
    }
    expect((await post("/api/icc/replay", { container_id: "none" })).status).toBe(404);
    expect((await get("/api/icc/containers/icc-b/state-version")).body).toMatchObject({ state_version: 0 });
  });

  it("describe the envelope", async () => {
    for (const path of ["", "/health", "/streams", "/schema", "/types", "/descriptor"]) {
      const { status, body } = await get(`/api/icc${path}`);
      expect([path, status, Object.keys(body).length > 0]).toEqual([path, 200, true]);
    }
    const proto = await get("/api/icc/proto");
    expect(proto.body).toContain("message Envelope");
  });
});

describe("a replay", () => {
  it("publishes a bounded number of messages, whatever it asks for", async () => {
    const asked = { state: "acked", limit: 10 ** 9 };
    const { status, body } = await post("/api/icc/inbox/icc-a/replay", asked);
    expect([status, body.replayed > 0]).toEqual([200, true]);
  });
});

describe("an ack without an inbox", () => {
  it("is ambiguous where the id is in several", async () => {
    const [, b = "", c = ""] = ids;
    for (const to of [b, c]) await post("/api/icc/publish", { envelope_b64: b64({ msg_id: "both", to }) });
    const refused = await post("/api/icc/ack", { msg_id: "both" });
    expect(refused).toMatchObject({ status: 409, body: { error_code: "AMBIGUOUS_MESSAGE" } });
    expect(refused.body.details.expected.sort()).toEqual([b, c].sort());
    expect((await post("/api/icc/ack", { msg_id: "both", container_id: "icc-c" })).body.container_id).toBe(c);
    expect((await post("/api/icc/messages/both/ack", { container_id: b })).body.new_state).toBe("acked");
    expect((await post("/api/icc/ack", { msg_id: "neither" })).status).toBe(404);
  });
});

describe("a receiver", () => {
  it("waits for a message, holds it, and gives it back", async () => {
    const waiting = post("/api/icc/inbox/queue:work/receive", { wait_ms: 20_000, lease_ms: 60_000 });
    await post("/api/icc/messages", { to: "queue:work", type: "task.created", payload: [1, 2] });
    const { body } = await waiting;
    expect(body.messages).toMatchObject([{ deliveries: 1, message: { type: "task.created", payload: [1, 2] } }]);
    const [{ msg_id, lease }] = body.messages.map((one: { lease: string; message: { msg_id: string } }) => ({
      lease: one.lease,
      msg_id: one.message.msg_id,
    }));
    expect((await post("/api/icc/inbox/queue:work/receive", {})).body.messages).toEqual([]);
    const back = await post("/api/icc/ack", { msg_id, action: "nack", requeue: true, lease });
    expect(back.body).toMatchObject({ new_state: "unread", dlq_forwarded: false });
    const again = await post("/api/icc/inbox/queue:work/receive", {});
    expect(again.body.messages).toMatchObject([{ deliveries: 2 }]);
    expect(await post("/api/icc/ack", { msg_id, lease })).toMatchObject({ status: 409 });
    expect((await post("/api/icc/ack", { msg_id })).body.new_state).toBe("acked");
  });

  it("answers a request", async () => {
    const request = post("/api/icc/request", {
      to: "icc-b",
      from: "icc-c-tool",
      type: "sum",
      payload: [1, 2],
      msg_id: "ask",
    });
    const got = await post("/api/icc/inbox/icc-b/receive", { wait_ms: 20_000 });
    expect(got.body.messages[0].message).toMatchObject({ msg_id: "ask", type: "sum" });
    await post("/api/icc/ack", { msg_id: "ask" });
    expect(
      (await post("/api/icc/messages", { to: "icc-c", type: "sum.done", payload: 3, correlation_id: "ask" })).status,
    ).toBe(200);
    void request;
  });
});

describe("dead letters", () => {
  it("keep where they were, and are published again", async () => {
    const [a = "", b = ""] = ids;
    await post("/api/icc/publish", { envelope_b64: b64({ msg_id: "doomed", idempotency_key: "once" }) });
    for (let i = 0; i < 2; i++) await post("/api/icc/ack", { msg_id: "doomed", action: "nack", reason: "cannot" });
    const dead = async () =>
      (await get("/api/activity")).body.activities?.filter(
        (one: { type: string; data: { msg_id: string } }) =>
          one.type === "message_update" && one.data.msg_id === "doomed",
      );
    await expect
      .poll(dead)
      .toMatchObject([{ event_type: "dead_lettered", container_id: a, data: { inbox: a, reason: "cannot" } }]);
    const { body } = await get("/api/icc/dlq");
    const letter = body.messages.at(-1);
    expect(body.last_seq).toBe(letter.stream_seq);
    expect(letter).toMatchObject({ container_id: a, reason: "cannot", stream: "JETS_DLQ", replayed_at: null });
    const again = await post(`/api/icc/dlq/${letter.stream_seq}/replay`);
    expect(again.body).toMatchObject({ container_id: a, duplicate: false });
    const moved = await post(`/api/icc/dlq/${letter.stream_seq}/replay`, { replay_to_container: "icc-b" });
    expect(moved.body.container_id).toBe(b);
    expect((await get("/api/icc/dlq")).body.messages.at(-1).replayed_at).toBeGreaterThan(0);
    expect((await post("/api/icc/dlq/9999/replay")).status).toBe(404);
    expect((await post("/api/icc/dlq/0/replay")).status).toBe(400);
  });
});

describe("the address of a queue or topic", () => {
  it("is no container for the routes that require one", async () => {
    await post("/api/icc/messages", { to: "queue:known", type: "t" });
    await post("/api/icc/messages", { to: "topic:known", type: "t" });
    const { msg_id } = (await post("/api/icc/messages", { to: "queue:known", type: "t" })).body;
    for (const name of ["queue:known", "topic:known", "queue:unknown", "state:known"]) {
      for (const path of ["inbox", "messages", "icc"]) {
        expect([name, path, (await get(`/api/containers/${name}/${path}`)).status]).toEqual([name, path, 404]);
      }
      for (const [path, body] of [
        [`/api/containers/${name}/inbox/ack`, { msg_id }],
        [`/api/containers/${name}/inbox/replay`, {}],
        [`/api/containers/${name}/icc/publish`, { to: "icc-a", type: "t" }],
        ["/api/icc/replay", { container_id: name }],
      ] as const) {
        expect([name, path, (await post(path, body)).status]).toEqual([name, path, 404]);
      }
      for (const path of [`messages?container_id=${name}`, `containers/${name}/state-version`]) {
        expect([name, path, (await get(`/api/icc/${path}`)).status]).toEqual([name, path, 404]);
      }
    }
    expect((await get("/api/icc/inbox/queue:known?state=unread")).body.messages).toHaveLength(2);
  });

  it("has an inbox from its first message on", async () => {
    for (const name of ["queue:early", "topic:early"]) {
      expect((await get(`/api/icc/inbox/${name}`)).status).toBe(404);
      expect((await post(`/api/icc/inbox/${name}/replay`, {})).status).toBe(404);
      expect((await post(`/api/icc/inbox/${name}/receive`, {})).body.messages).toEqual([]);
      await post("/api/icc/messages", { to: name, type: "t" });
      expect((await get(`/api/icc/inbox/${name}`)).body.messages).toHaveLength(1);
      expect((await post(`/api/icc/inbox/${name}/replay`, {})).body.replayed).toBe(1);
    }
  });
});

describe("a broadcast", () => {
  it("reaches all running containers, or those that it names", async () => {
    const all = await post("/api/icc/messages/broadcast", { envelope_b64: b64({ msg_id: "cast" }) });
    expect(all.body).toMatchObject({ accepted: 3, failed: 0 });
    expect(all.body.results.map(({ msg_id }: { msg_id: string }) => msg_id).sort()).toEqual([
      "cast-1",
      "cast-2",
      "cast-3",
    ]);
    const some = await post("/api/icc/messages/broadcast", {
      envelope_b64: b64({ msg_id: "some", idempotency_key: "shared" }),
      targets: { container_ids: ["icc-a", " ", "icc-a", "icc-b", "unknown"], limit: 3 },
    });
    expect(some.body).toMatchObject({ accepted: 2, failed: 1 });
    expect(some.body.results[2]).toMatchObject({ target: "unknown", result: null });
  });

  it("leaves out a named container that does not run, unless the request includes such containers", async () => {
    const { container_id } = (await post("/api/containers", { name: "icc-still" })).body;
    await post(`/api/containers/${container_id}/stop`, { timeout_ms: 1_000 });
    const cast = async (msg_id: string, targets: object) => {
      const body = { envelope_b64: b64({ msg_id }), targets: { container_ids: ["icc-a", "icc-still"], ...targets } };
      const { accepted, failed, results } = (await post("/api/icc/messages/broadcast", body)).body;
      return [accepted, failed, results[1].error];
    };
    const told = expect.stringContaining("is not running: exited");
    expect(await cast("still-1", {})).toEqual([1, 1, told]);
    expect(await cast("still-2", { include_non_running: false })).toEqual([1, 1, told]);
    expect(await cast("still-3", { include_non_running: false, container_ids: ["queue:still", container_id] })).toEqual(
      [...[1, 1, told]],
    );
    expect((await get(`/api/icc/inbox/${container_id}`)).body.messages).toEqual([]);
    expect(await cast("still-4", { include_non_running: true })).toEqual([2, 0, null]);
    expect((await get(`/api/icc/inbox/${container_id}`)).body.messages).toHaveLength(1);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("of a command names its containers, and runs nothing without them", async () => {
    const none = [
      {},
      { targets: {} },
      { targets: null },
      { targets: { limit: 1 } },
      { targets: { container_ids: [] } },
    ];
    for (const targets of [...none, { targets: { container_ids: null } }, { targets: { container_ids: [" ", ""] } }]) {
      const { status, body } = await post("/api/icc/exec/broadcast", { command: ["touch", "/tmp/ran"], ...targets });
      expect([targets, status, body.error_code]).toEqual([targets, 400, "INVALID_ARGUMENT"]);
      expect(body.error).toMatch(/^targets(.container_ids)?: expected the containers that run the command/);
    }
    const { body } = await post("/api/containers/icc-a/exec", { command: ["ls", "/tmp/ran"] });
    expect(body.exit_code).not.toBe(0);
  });

  it("refuses an id that its copies could not have, and publishes nothing", async () => {
    const refused = await post("/api/icc/messages/broadcast", { envelope_b64: b64({ msg_id: "m".repeat(255) }) });
    expect(refused).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT" } });
    expect(refused.body.error).toMatch(/^msg_id must be at most 254 bytes/);
    const longest = await post("/api/icc/messages/broadcast", { envelope_b64: b64({ msg_id: "m".repeat(254) }) });
    expect(longest).toMatchObject({ status: 200, body: { failed: 0 } });
  });

  it("runs a command in each", async () => {
    const { body } = await post("/api/icc/exec/broadcast", {
      command: ["sh", "-c", "hostname; exit 3"],
      targets: { container_ids: ["icc-a", "icc-b", "unknown"] },
    });
    expect(body).toMatchObject({ succeeded: 2, failed: 1 });
    expect(body.results.map(({ stdout }: { stdout: string }) => stdout)).toEqual(["icc-a\n", "icc-b\n", ""]);
    expect(body.results[0]).toMatchObject({ exit_code: 3, timed_out: false, error: null });
  });

  it("says how to replay a dead letter of a container that is gone", async () => {
    const { container_id } = (await post("/api/containers", { name: "icc-gone" })).body;
    const { msg_id } = (await post("/api/icc/messages", { to: "icc-gone", type: "task", payload: 1 })).body;
    await post("/api/icc/ack", { msg_id, action: "nack" });
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    const { messages } = (await get("/api/icc/dlq?limit=1000")).body;
    const letter = messages.find((one: { container_id: string }) => one.container_id === container_id);
    const path = `/api/icc/dlq/${letter.stream_seq}/replay`;
    const refused = await post(path);
    expect(refused).toMatchObject({ status: 404, body: { reason_code: "UNKNOWN_TARGET" } });
    expect(refused.body.hint).toMatch(/replay_to_container/);
    expect((await post(path, { replay_to_container: "icc-c" })).status).toBe(200);
  });

  it("runs no command for a key without the scope of exec, by whichever route", async () => {
    const { key } = (await post("/api/api-keys", { name: "writer", scopes: ["read", "write"] })).body;
    const command = { type: "exec_command", payload: { argv: ["touch", "/tmp/no-invoke"] } };
    const rest = { timeout_ms: 0, workdir: "", env: {}, desired_state_version: 0 };
    const value = { ...command.payload, ...rest, apply_mode: "ENFORCE" } as const;
    const envelope_b64 = b64({ payload: { kind: "exec_command", value }, permission_level: "EXECUTE" });
    for (const [path, body] of [
      ["/api/icc/exec/broadcast", { command: ["touch", "/tmp/no-invoke"], targets: { container_ids: ["icc-a"] } }],
      ["/api/icc/messages", { to: "icc-a", ...command }],
      ["/api/icc/request", { to: "icc-a", ...command, timeout_ms: 5_000 }],
      ["/api/containers/icc-a/icc/publish", { to: "icc-a", ...command }],
      ["/api/icc/publish", { envelope_b64 }],
      ["/api/icc/messages/broadcast", { envelope_b64, targets: { container_ids: ["icc-a"] } }],
    ] as const) {
      const refused = await daemon.call("POST", path, body, { "x-api-key": key });
      expect([path, refused.status]).toEqual([path, 403]);
      expect(refused.body.error).toMatch(/lacks the scope 'invoke'/);
    }
    const file = { type: "file_patch", payload: { path: "/tmp/a", content_type: "text/plain", patch: "x" } };
    const sent = await daemon.call("POST", "/api/icc/messages", { to: "icc-a", ...file }, { "x-api-key": key });
    expect(sent.status).toBe(200);
  });

  it("replays no command for such a key, and nothing beside it", async () => {
    const { key } = (await post("/api/api-keys", { name: "replayer", scopes: ["read", "write"] })).body;
    const asWriter = (path: string, body: object) => daemon.call("POST", path, body, { "x-api-key": key });
    const command = { to: "icc-a", type: "exec_command", timeout_ms: 10_000 };
    // A conflict of versions makes it a dead letter.
    const payload = { argv: ["true"], desired_state_version: 99 };
    const { reply } = (await post("/api/icc/request", { ...command, payload })).body;
    expect(reply.payload).toMatchObject({ status: "CONFLICT" });
    await eventually("the command failed", async () => {
      const { messages } = (await daemon.call("GET", "/api/icc/inbox/icc-a?state=failed")).body;
      return messages.length > 0;
    });
    const before = (await daemon.call("GET", "/api/containers/icc-a/icc")).body.last_seq;
    const { last_seq } = (await daemon.call("GET", "/api/icc/dlq")).body;
    for (const path of ["inbox/icc-a/replay", `dlq/${last_seq}/replay`]) {
      const refused = await asWriter(`/api/icc/${path}`, path.startsWith("dlq") ? {} : { state: "failed" });
      expect([path, refused.status]).toEqual([path, 403]);
      expect(refused.body.error).toMatch(/lacks the scope 'invoke'/);
    }
    expect((await daemon.call("GET", "/api/containers/icc-a/icc")).body.last_seq).toBe(before);
    expect((await post(`/api/icc/dlq/${last_seq}/replay`, {})).status).toBe(200);
  });
});
