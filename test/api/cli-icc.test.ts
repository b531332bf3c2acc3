/** The verbs of messages, through the `hearth` command against a real daemon. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorOf } from "../support/command.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { scrape } from "../support/metrics.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, out, answer } = operator;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await out("run", "-d", "--name", "worker");
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

describe("a message", () => {
  it("is sent, listed, received, given back, and acked", async () => {
    const id = (await out("icc", "send", "queue:jobs", '{"n": 42}', "--type", "task.created", "--ttl", "1h")).trim();
    expect(id).toMatch(/^msg_[0-9a-z]{16}$/);
    expect(await out("icc", "inbox", "queue:jobs")).toMatch(
      new RegExp(`NO +STATE.*\\n +1 +unread +0 +task\\.created +api .*\\{"n":42\\} +${id}`),
    );
    const got = await answer("icc", "receive", "queue:jobs", "--wait", "10", "--lease", "1h");
    expect(got.messages).toMatchObject([{ message: { msg_id: id, payload: { n: 42 } }, deliveries: 1 }]);
    expect(await out("icc", "inbox", "queue:jobs", "--state", "unread")).toMatch(/ held /);
    expect(await hearth("icc", "receive", "queue:jobs")).toMatchObject({
      code: 0,
      out: "",
      err: expect.stringMatching(/no message is due/),
    });
    expect(await out("icc", "ack", id, "--requeue")).toBe(`${id} is unread\n`);
    const [{ lease }] = got.messages;
    await out("icc", "receive", "queue:jobs");
    expect((await hearth("icc", "ack", id, "--lease", lease)).code).toBe(1);
    expect(await out("icc", "ack", id)).toBe(`${id} is acked\n`);
    const replayed = await answer("icc", "replay", "queue:jobs", "--state", "acked", "--from", "1", "--to", "1");
    expect(replayed.replayed).toBe(1);
    expect(await out("icc", "streams")).toMatch(/queue:jobs +1 +2 /);
  });

  it("is read from standard input, or sent as an envelope", async () => {
    const text = '<b>"line\u001b[2J';
    await shell().run(["icc", "send", "worker", "-", "--type", "note", "--idempotency-key", "once"], { stdin: text });
    const { messages } = await answer("icc", "inbox", "worker");
    expect(messages).toMatchObject([{ message: { type: "note", payload: text } }]);
    // Controls in a payload do not reach the terminal.
    expect(await out("icc", "inbox", "worker")).not.toContain("\u001b");
    const file = join(shell().home, "envelope");
    writeFileSync(file, Buffer.from(messages[0].envelope_b64, "base64"));
    const again = await hearth("icc", "send", "--envelope", file);
    expect(again).toMatchObject({
      code: 0,
      out: `${messages[0].message.msg_id}\n`,
      err: expect.stringMatching(/has the message already/),
    });
    expect(await hearth("icc", "send", "worker", "--envelope", file)).toMatchObject({ code: 2 });
    expect(await hearth("icc", "send")).toMatchObject({ code: 2, err: expect.stringMatching(/no receiver/) });
    expect(await hearth("icc", "send", "worker", "x", "--idempotency-key", "once")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/IDEMPOTENCY_CONFLICT/),
    });
  });

  it("to nobody is refused with the names that are close", async () => {
    const refused = await hearth("icc", "send", "workr", "x");
    expect(refused).toMatchObject({ code: 1, err: expect.stringMatching(/not found.*\n.*worker/) });
    expect(await hearth("icc", "ack", "nothing")).toMatchObject({ code: 1 });
    expect(await hearth("icc", "inbox", "worker", "--state", "read")).toMatchObject({ code: 2 });
  });

  it("is answered while its sender waits", async () => {
    const words = ["queue:sums", "[1,2]", "--type", "sum", "--from", "worker", "--request", "--reply-timeout", "60"];
    const asking = hearth("icc", "send", ...words);
    const { messages } = await answer("icc", "receive", "queue:sums", "--wait", "20");
    const { msg_id, from } = messages[0].message;
    await out("icc", "send", from, '{"sum": 3}', "--correlation-id", msg_id);
    expect(await asking).toEqual({ code: 0, out: '{"sum":3}\n', err: "" });
    const late = await hearth("icc", "send", "queue:sums", "x", "--request", "--reply-timeout", "1");
    expect(late).toMatchObject({ code: 1, err: expect.stringMatching(/TIMEOUT\]\n.*--reply-timeout/) });
    expect((await hearth("icc", "send", "queue:sums", "x", "--reply-timeout", "1")).code).toBe(2);
  });
});

describe("a dead letter", () => {
  it("is listed with its reason, and published again", async () => {
    const id = (await out("icc", "send", "queue:doomed", "x")).trim();
    expect(await hearth("icc", "ack", id, "--reason", "no")).toMatchObject({ code: 2 });
    const nacked = await out("icc", "ack", id, "--inbox", "queue:doomed", "--nack", "--reason", "cannot");
    expect(nacked).toBe(`${id} is failed, a dead letter\n`);
    expect(await out("icc", "dlq")).toMatch(/1 +queue:doomed +cannot/);
    expect(await out("icc", "dlq", "replay", "1", "--to", "queue:repair")).toMatch(/^msg_/);
    expect((await answer("icc", "inbox", "queue:repair")).messages[0].envelope_summary.causation_id).toBe(id);
    expect((await hearth("icc", "dlq", "replay", "99")).code).toBe(1);
  });
});

describe("tail", () => {
  it("prints messages as they arrive, delivers none, and ends with 0 at Ctrl-C", async () => {
    const early = shell().start("hearth", ["icc", "tail", "topic:early"]);
    await eventually("the tail has asked for a topic without messages", async () => {
      const asked = { method: "GET", route: "/api/icc/inbox/:container_id", status: "4xx" };
      return (await scrape(daemon)).of("hearth_http_request_duration_seconds_count", asked) > 0;
    });
    await out("icc", "send", "topic:early", "first", "--type", "news");
    await early.shows(/first\n/);
    early.child.kill("SIGINT");
    expect((await early.ended).code).toBe(0);
    await out("icc", "send", "topic:news", "earlier");
    const tail = shell().start("hearth", ["icc", "tail", "topic:news"]);
    const all = shell().start("hearth", ["icc", "tail", "topic:news", "--from", "1", "--json"]);
    await all.shows(/"earlier"/);
    for (const text of ["one", "two"]) await out("icc", "send", "topic:news", text, "--type", "news");
    await tail.shows(/two\n/);
    await all.shows(/"two"/);
    expect(tail.out).toMatch(/^\S.* 2 +msg_\S+ +api +news +one\n.* 3 +msg_\S+ +api +news +two\n$/);
    for (const one of [tail, all]) {
      one.child.kill("SIGINT");
      expect((await one.ended).code).toBe(0);
    }
    expect(
      all.out
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line).message.payload),
    ).toEqual(["earlier", "one", "two"]);
  });
});

describe("permission", () => {
  it("prints and sets what a container may send", async () => {
    expect(await out("icc", "permission", "worker")).toBe("READ_ONLY\n");
    expect(await out("icc", "permission", "worker", "EXECUTE")).toBe("EXECUTE\n");
    expect(await out("icc", "permission", "worker")).toBe("EXECUTE\n");
    expect((await hearth("icc", "permission", "worker", "ROOT")).code).toBe(2);
  });
});
