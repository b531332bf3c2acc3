/** HTTP on the sockets of containers, on sockets in a directory of the test and with messages in memory. */
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { type IncomingHttpHeaders, request } from "node:http";
import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { eventually } from "../support/daemon.ts";
import { Memory, serveInside } from "../support/inside.ts";

interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

describe("the socket of a container", () => {
  let directory = "";
  let inside = new Memory();
  let served = serveInside(inside);
  const opened = new Set<Socket>();
  const pathOf = (id: string) => `${directory}/${id}/icc.sock`;
  const open = (container_id: string, tenant_id = "ten_a") => {
    mkdirSync(`${directory}/${container_id}`, { recursive: true });
    served.listeners.open({ container_id, tenant_id, path: pathOf(container_id) });
  };
  const call = (id: string, method: string, path: string, body?: unknown, headers = {}): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
      const options = {
        agent: false as const,
        socketPath: pathOf(id),
        method,
        path,
        headers: { ...headers, "content-length": text.length },
      };
      const asked = request(options, async (response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk);
        const sent = Buffer.concat(chunks).toString();
        const isJson = response.headers["content-type"] === "application/json";
        const { statusCode: status = 0, headers } = response;
        resolve({ status, headers, body: isJson ? JSON.parse(sent) : sent });
      });
      asked.on("error", reject);
      asked.end(text);
    });
  /** A connection of bytes; what came, and whether it has ended. */
  const raw = (id: string, bytes = "") => {
    const socket = connect({ path: pathOf(id) });
    opened.add(socket);
    const seen = { text: "", isOver: false, isOpen: false };
    socket.on("connect", () => {
      seen.isOpen = true;
    });
    socket.on("data", (chunk) => {
      seen.text += chunk;
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      seen.isOver = true;
    });
    socket.write(bytes);
    return { socket, seen };
  };

  beforeEach(() => {
    directory = mkdtempSync("/tmp/hearth-inside-");
    inside = new Memory();
    served = serveInside(inside);
  });
  afterEach(async () => {
    for (const socket of opened) socket.destroy();
    opened.clear();
    await served.close();
    rmSync(directory, { recursive: true });
  });

  it("answers each container as itself, whatever headers, paths and bodies say", async () => {
    open("ctr_a");
    open("ctr_b", "ten_b");
    const forged = { "x-tenant-id": "ten_a", "x-api-key": "k", authorization: "Bearer ctr_a", host: "ctr_a" };
    const said = await call("ctr_b", "GET", "/v1/self?container_id=ctr_a", undefined, forged);
    expect(said).toMatchObject({ status: 200, body: { tenant_id: "ten_b", container_id: "ctr_b" } });
    const message = { to: "ctr_b", type: "note", payload: { n: 1 } };
    expect(await call("ctr_a", "POST", "/v1/messages", message)).toMatchObject({
      status: 200,
      body: { stream_seq: 1 },
    });
    expect(await call("ctr_a", "POST", "/v1/messages", { ...message, from: "ctr_b" })).toMatchObject({
      status: 403,
      body: { error_code: "FORBIDDEN", request_id: expect.stringMatching(/^req_/), retryable: false },
    });
    const { body } = await call("ctr_b", "POST", "/v1/receive", {});
    expect(body.messages).toMatchObject([{ from: "ctr_a", payload: { n: 1 }, msg_id: "m1" }]);
    expect(inside.calls).toEqual([{ inbox: null, max: 1, wait_ms: 0, lease_ms: null, ordered: false }]);
  });

  it("serves every route of its list, and refuses what is none in the shape of the API's errors", async () => {
    open("ctr_a");
    const on = (method: string, path: string, body?: unknown) => call("ctr_a", method, path, body);
    const { body } = await on("GET", "/v1");
    expect(body.routes.map(({ method, path }: Record<string, string>) => `${method} ${path}`)).toContain(
      "POST /v1/ack",
    );
    const settled = { inbox: null, msg_id: "m", action: "nack", lease: null, reason: null, requeue: true, delay_ms: 5 };
    const nack = await on("POST", "/v1/ack", { msg_id: "m", action: "nack", requeue: true, delay_ms: 5 });
    expect(nack.body).toEqual(settled);
    expect((await on("POST", "/v1/request", { to: "x", type: "t", timeout_ms: 5 })).status).toBe(504);
    expect((await on("POST", "/v1/reply", { msg_id: "m", payload: [1] })).body).toMatchObject({
      error: "no message m",
    });
    expect((await on("PUT", "/v1/topics/news")).body).toEqual({ topic: "news", on: true });
    expect((await on("DELETE", "/v1/topics/news")).body).toEqual({ topic: "news", on: false });
    expect((await on("GET", "/v1/state/x.a")).status).toBe(404);
    expect((await on("PUT", "/v1/state/x.a", { value: null, if_version: 0 })).body).toMatchObject({ value: null });
    expect((await on("PUT", "/v1/state/x.a", { value: null, if_version: 0 })).status).toBe(409);
    const entry = { key: "x.a", version: 1, value: null };
    expect((await on("GET", "/v1/state?prefix=x.")).body).toEqual({ entries: [entry] });
    const { seen, socket } = raw("ctr_a", "GET /v1/state?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
    await eventually("the entry", () => seen.text.includes(`event: state\nid: 1\ndata: ${JSON.stringify(entry)}\n\n`));
    socket.destroy();
    expect((await on("DELETE", "/v1/state/x.a")).body).toEqual({ key: "x.a" });
    expect((await on("POST", "/v1/messages", { envelope_b64: "AA==" })).body).toEqual({ envelope: "AA==" });
    for (const [method, path, sent, status, error_code] of [
      ["GET", "/v2", undefined, 404, "NOT_FOUND"],
      ["GET", "/api/containers", undefined, 404, "NOT_FOUND"],
      ["GET", "/v1/../v1/self", undefined, 400, "INVALID_ARGUMENT"],
      ["PATCH", "/v1/self", undefined, 405, "METHOD_NOT_ALLOWED"],
      ["GET", "/v1/state/%zz", undefined, 400, "INVALID_ARGUMENT"],
      ["GET", "/v1/state/%2e%2e%2fx", undefined, 400, "INVALID_ARGUMENT"],
      ["PUT", "/v1/topics/A", undefined, 400, "INVALID_ARGUMENT"],
      ["POST", "/v1/messages", "{", 400, "INVALID_JSON"],
      ["POST", "/v1/messages", {}, 422, "UNPROCESSABLE_ENTITY"],
      ["POST", "/v1/messages", { envelope_b64: "AA==", to: "x" }, 400, "INVALID_ARGUMENT"],
      ["POST", "/v1/messages", { to: "x", type: "t", tenant_id: "ten_b" }, 422, "UNPROCESSABLE_ENTITY"],
      ["POST", "/v1/receive", { wait_ms: 10 * 3_600_000 }, 400, "INVALID_ARGUMENT"],
      ["POST", "/v1/receive", { max: 1_000_000 }, 400, "INVALID_ARGUMENT"],
      ["GET", "/v1/stream?inbox=queue:none", undefined, 404, "NOT_FOUND"],
      ["POST", "/v1/messages", `"${"x".repeat(LIMITS.icc_socket_body_bytes_max)}"`, 413, "BODY_TOO_LARGE"],
    ] as const) {
      const answer = await on(method, path, sent);
      expect([method, path, answer.status, answer.body.error_code]).toEqual([method, path, status, error_code]);
    }
  });

  it("takes a message of 1 MiB as base64, also in chunks and after 100 Continue", async () => {
    open("ctr_a");
    const envelope_b64 = Buffer.alloc(1024 * 1024).toString("base64");
    const headers = { expect: "100-continue" };
    const answer = await call("ctr_a", "POST", "/v1/messages", { envelope_b64 }, headers);
    expect([answer.status, answer.body.envelope.length]).toEqual([200, envelope_b64.length]);
  });

  it("answers a poll when a message comes, and ends it with its client", async () => {
    open("ctr_a");
    const poll = call("ctr_a", "POST", "/v1/receive", { wait_ms: 60_000 });
    await eventually("the poll waits", () => inside.waiting_count === 1);
    await call("ctr_a", "POST", "/v1/messages", { to: "ctr_a", type: "t" });
    expect((await poll).body.messages).toHaveLength(1);
    const body = JSON.stringify({ wait_ms: 60_000 });
    const polled = `POST /v1/receive HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    const gone = Array.from({ length: 20 }, () => raw("ctr_a", polled));
    await eventually("they wait", () => inside.waiting_count === 20);
    for (const { socket } of gone) socket.destroy();
    await eventually("they have ended", () => inside.waiting_count === 0 && served.server.active_count === 0);
  });

  it("streams messages as events, and ends the stream with its client", async () => {
    open("ctr_a");
    const { seen, socket } = raw("ctr_a", "GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n");
    await eventually("the stream waits", () => inside.waiting_count === 1);
    for (const payload of [1, 2]) await call("ctr_a", "POST", "/v1/messages", { to: "ctr_a", type: "t", payload });
    await eventually("both came", () => seen.text.includes('"payload":2'));
    expect(seen.text).toContain('event: message\nid: 1\ndata: {"msg_id":"m1"');
    expect(seen.text).toContain("content-type: text/event-stream");
    socket.destroy();
    await eventually("it has ended", () => served.server.active_count === 0 && inside.waiting_count === 0);
  });

  it("keeps 32 connections of a container, refuses others with the reason, and serves other containers", async () => {
    open("ctr_a");
    open("ctr_b");
    const max = LIMITS.icc_connections_per_container_max;
    const all = Array.from({ length: 200 }, () => raw("ctr_a"));
    await eventually("the others have ended", () => all.filter(({ seen }) => seen.isOver).length === all.length - max);
    const told = all.filter(({ seen }) => seen.text.startsWith("HTTP/1.1 429 ") && seen.text.includes("(limit 32)"));
    expect(told.length).toBeGreaterThan(0);
    expect(served.listeners.counts).toEqual({ sockets_count: 2, connections_count: max });
    expect((await call("ctr_b", "GET", "/v1/self")).status).toBe(200);
    for (const { socket } of all) socket.destroy();
    await eventually("all have ended", () => served.listeners.counts.connections_count === 0);
    expect((await call("ctr_a", "GET", "/v1/self")).status).toBe(200);
  });

  it("bounds the connections of a tenant's containers together, and leaves others theirs", async () => {
    const { icc_connections_per_tenant_max: tenant_max, icc_connections_per_container_max: own_max } = LIMITS;
    const containers = Array.from({ length: tenant_max / own_max }, (_, i) => `ctr_${i}`);
    for (const id of containers) open(id);
    open("ctr_more");
    open("ctr_other", "ten_b");
    // Slower than the bound of new connections.
    for (const id of containers) {
      const made = Array.from({ length: own_max }, () => raw(id));
      await eventually("they stand", () => made.every(({ seen }) => seen.isOpen));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await eventually("all are served", () => served.listeners.counts.connections_count === tenant_max);
    expect(await call("ctr_more", "GET", "/v1/self")).toMatchObject({
      status: 429,
      body: { error_code: "CONCURRENCY_LIMIT", error: expect.stringContaining("tenant's containers (limit 1024)") },
    });
    expect((await call("ctr_other", "GET", "/v1/self")).status).toBe(200);
  });

  it("does not listen to a container that connects too fast, until the second is over", async () => {
    open("ctr_a");
    open("ctr_b");
    const isListening = () => statSync(pathOf("ctr_a"), { throwIfNoEntry: false }) !== undefined;
    // The kernel refuses those above the backlog by itself.
    for (let count = 0; count < LIMITS.icc_connects_per_container_max * 2 && isListening(); count += 25) {
      const flood = Array.from({ length: 25 }, () => raw("ctr_a"));
      await eventually("they are answered", () => flood.every(({ seen }) => seen.isOpen || seen.isOver));
      for (const { socket } of flood) socket.destroy();
    }
    expect(isListening()).toBe(false);
    expect((await call("ctr_b", "GET", "/v1/self")).status).toBe(200);
    await expect(call("ctr_a", "GET", "/v1/self")).rejects.toThrow(/ENOENT|ECONNREFUSED/);
    await eventually("it listens again", () =>
      call("ctr_a", "GET", "/v1/self").then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
  });

  it("slows a container that asks too fast down, and refuses nothing", async () => {
    open("ctr_a");
    const count = LIMITS.icc_requests_per_container_max * 2;
    const line = "GET /v1/self HTTP/1.1\r\nhost: x\r\n\r\n";
    const begun_ms = performance.now();
    let answered = 0;
    await Promise.all(
      Array.from({ length: 25 }, async () => {
        const { seen, socket } = raw("ctr_a");
        for (let i = 1; i <= count / 25; i++) {
          socket.write(line);
          await eventually("an answer", () => seen.text.split("HTTP/1.1 200").length === i + 1);
          answered++;
        }
      }),
    );
    expect(answered).toBe(count);
    expect(performance.now() - begun_ms).toBeGreaterThan(LIMITS.icc_requests_window_ms);
  });

  it("cuts slow headers and bodies, refuses large headers, and bytes that are no HTTP", async () => {
    open("ctr_a");
    const huge = raw("ctr_a", `GET /v1/self HTTP/1.1\r\nx: ${"y".repeat(LIMITS.header_bytes_max + 1)}\r\n\r\n`);
    await eventually("it is refused", () => huge.seen.isOver);
    expect(huge.seen.text).toMatch(/^HTTP\/1.1 431 [\s\S]*HEADERS_TOO_LARGE/);
    const noise = raw("ctr_a", "\0\0\0\0\r\n\r\n");
    await eventually("it is refused", () => noise.seen.isOver);
    expect(noise.seen.text).toMatch(/^HTTP\/1.1 400 [\s\S]*MALFORMED_REQUEST/);
    const upgrade = "GET /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    expect(await eventually("it is a plain request", () => raw("ctr_a", upgrade).seen)).toBeDefined();
    // Node looks at both deadlines each second.
    const slow = raw("ctr_a", "GET /v1/self HTTP/1.1\r\nx: ");
    const ticking = setInterval(() => slow.socket.write("y"), 200);
    await eventually("the slow headers are cut", () => slow.seen.isOver, LIMITS.headers_timeout_ms + 5_000);
    clearInterval(ticking);
    expect(slow.seen.text).toContain("REQUEST_TIMEOUT");
  }, 60_000);

  it("bounds what streams hold that nobody reads, and cuts those above it", async () => {
    const max = LIMITS.icc_connections_per_container_max;
    const payload = "x".repeat(1_000_000);
    for (const id of ["ctr_a", "ctr_b"]) {
      open(id);
      for (let i = 0; i < max; i++) {
        inside.publish({ tenant_id: "ten_a", container_id: id }, { to: id, type: "t", payload });
        const { socket } = raw(id, "GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n");
        socket.pause();
      }
    }
    await eventually("all have asked", () => inside.calls.length === 2 * max);
    // Half of the budget is the tenant's, and each stream holds a megabyte.
    const held_max = LIMITS.icc_socket_held_bytes_max / 2 / payload.length;
    const isBounded = () => served.listeners.counts.connections_count <= held_max;
    // Each is cut by itself after `answer_stall_ms`.
    await eventually("the others are cut", isBounded, LIMITS.answer_stall_ms / 2);
    open("ctr_other", "ten_b");
    expect((await call("ctr_other", "GET", "/v1/self")).status).toBe(200);
  });

  it("ends its connections with the container, and polls and streams with the daemon", async () => {
    open("ctr_a");
    open("ctr_b");
    const a = raw("ctr_a", "GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n");
    const idle = raw("ctr_a");
    await eventually(
      "the stream waits",
      () => inside.waiting_count === 1 && served.listeners.counts.connections_count === 2,
    );
    served.listeners.close("ctr_a");
    await eventually("both have ended", () => a.seen.isOver && idle.seen.isOver && inside.waiting_count === 0);
    await expect(call("ctr_a", "GET", "/v1/self")).rejects.toThrow(/ENOENT|ECONNREFUSED/);
    const poll = call("ctr_b", "POST", "/v1/receive", { wait_ms: 60_000 });
    const stream = raw("ctr_b", "GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n");
    const kept = raw("ctr_b");
    await eventually("both wait", () => inside.waiting_count === 2);
    served.listeners.stopAccepting();
    served.server.end();
    expect(await poll).toMatchObject({ status: 200, body: { messages: [] }, headers: { connection: "close" } });
    await eventually("the stream has ended", () => stream.seen.text.endsWith("0\r\n\r\n"));
    kept.socket.write("GET /v1/self HTTP/1.1\r\nhost: x\r\n\r\n");
    await eventually("it is refused", () => kept.seen.isOver);
    expect(kept.seen.text).toMatch(/^HTTP\/1.1 503 [\s\S]*SHUTTING_DOWN/);
    expect(served.server.active_count).toBe(0);
    await served.close();
    expect(served.listeners.counts).toEqual({ sockets_count: 0, connections_count: 0 });
  });

  it("binds a socket anew where an earlier process left one, and when its directory comes late", async () => {
    open("ctr_a");
    const earlier = served;
    served = serveInside(inside);
    open("ctr_a");
    expect((await call("ctr_a", "GET", "/v1/self")).status).toBe(200);
    await earlier.close();
    rmSync(`${directory}/ctr_late`, { recursive: true, force: true });
    served.listeners.open({ container_id: "ctr_late", tenant_id: "ten_a", path: pathOf("ctr_late") });
    await expect(call("ctr_late", "GET", "/v1/self")).rejects.toThrow("ENOENT");
    mkdirSync(`${directory}/ctr_late`);
    await eventually("it listens", () =>
      call("ctr_late", "GET", "/v1/self").then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
    expect(statSync(pathOf("ctr_late")).mode & 0o777).toBe(0o666);
  });
});
