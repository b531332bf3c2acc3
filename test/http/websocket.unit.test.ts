/** WebSockets at the edge: which requests become one, what the others are answered, and the bounds of those that are open. */
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import WebSocket from "ws";
import { z } from "zod";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { queryNumber } from "../../src/base/schema.ts";
import { type ServerSocket, type SocketListener, Upgrade } from "../../src/base/sockets.ts";
import { openApiDocument } from "../../src/docs/openapi.ts";
import { type Route, route } from "../../src/http/route.ts";
import { eventually } from "../support/daemon.ts";
import { refusalOf } from "../support/socket.ts";
import { KEY, rawClient, type Served, serving } from "./test-server.ts";

/** What the last socket's listener heard, and the socket. */
interface Heard {
  socket: ServerSocket | null;
  readonly bytes: Buffer[];
  readonly texts: string[];
  drained_count: number;
  closed_count: number;
  failed_count: number;
}

function makeRoutes(handled?: () => Promise<void>): { routes: Route[]; heard: Heard } {
  const heard: Heard = { socket: null, bytes: [], texts: [], drained_count: 0, closed_count: 0, failed_count: 0 };
  const listener: SocketListener = {
    onBytes: (bytes) => heard.bytes.push(bytes),
    onText: (text) => heard.texts.push(text),
    onDrain: () => {
      heard.drained_count++;
    },
    onClosed: () => {
      heard.closed_count++;
    },
  };
  const routes = [
    route({
      method: "GET",
      path: "/ws/test",
      auth: "tenant",
      scope: "invoke",
      operation: "socket",
      summary: "A socket.",
      query: z.object({ size: queryNumber(1, 9).optional(), missing: z.string().optional() }),
      query_credential: true,
      socket: { protocol: "test" },
      errors: ["NOT_FOUND"],
      handler: async ({ query }) => {
        await handled?.();
        if (query.missing !== undefined) throw new AppError("NOT_FOUND", "it is not there");
        return new Upgrade(
          (socket) => {
            heard.socket = socket;
            socket.send("first");
            return listener;
          },
          () => {
            heard.failed_count++;
          },
        );
      },
    }),
    route({
      method: "GET",
      path: "/plain",
      auth: "public",
      operation: "plain",
      summary: "No socket.",
      handler: () => ({ plain: true }),
    }),
  ];
  return { routes, heard };
}

const urlOf = ({ server }: Served, rest = "") => `${server.url.replace("http", "ws")}/ws/test${rest}`;
const withKey = { headers: { "x-api-key": KEY } };

async function open(served: Served, rest = "", options: WebSocket.ClientOptions = withKey): Promise<WebSocket> {
  const socket = new WebSocket(urlOf(served, rest), ["other", "test"], options);
  await once(socket, "open");
  return socket;
}

describe("a request for a WebSocket", () => {
  const serve = serving();

  it("becomes one, with the sub-protocol selected and the headers of any answer", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes);
    const socket = new WebSocket(urlOf(served), ["other", "test"], {
      headers: { "x-api-key": KEY, "x-request-id": "r1" },
    });
    const [[response], [first]] = await Promise.all([once(socket, "upgrade"), once(socket, "message")]);
    expect([response.statusCode, response.headers["x-request-id"], socket.protocol, socket.extensions]).toEqual([
      101,
      "r1",
      "test",
      "",
    ]);
    expect(String(first)).toBe("first");
    socket.send(Buffer.from("binary"));
    socket.send("text");
    await eventually("both came", () => heard.bytes.length + heard.texts.length === 2);
    expect([String(heard.bytes), heard.texts]).toEqual(["binary", ["text"]]);
    socket.close(1000);
    await eventually("its end was heard", () => heard.closed_count === 1);
    expect([served.app.sockets.count, heard.failed_count]).toEqual([0, 0]);
    expect(served.told.map(({ route: path, status, error_code }) => [path, status, error_code])).toEqual([
      ["/ws/test", 101, null],
    ]);
  });

  it("is let in with the credential in its query, and without any sub-protocol", async () => {
    const served = await serve(makeRoutes().routes);
    const socket = new WebSocket(urlOf(served, `?token=${KEY}`));
    await once(socket, "open");
    expect(socket.protocol).toBe("");
    socket.terminate();
  });

  it("is refused with the error body of any route, by credential, query and handler", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes);
    const { key } = await served.keys.create(
      "default",
      { name: "reader", scopes: ["read"] },
      await served.keys.caller(KEY),
    );
    const cases: [string, Record<string, string>, number, string][] = [
      ["", {}, 401, "UNAUTHORIZED"],
      ["", { "x-api-key": "wrong" }, 401, "UNAUTHORIZED"],
      [`?token=${KEY}`, { "x-api-key": KEY }, 400, "TWO_CREDENTIALS"],
      ["", { "x-api-key": key }, 403, "FORBIDDEN"],
      ["?size=10", { "x-api-key": KEY }, 400, "INVALID_ARGUMENT"],
      ["?missing=1", { "x-api-key": KEY }, 404, "NOT_FOUND"],
    ];
    for (const [rest, headers, status, error_code] of cases) {
      const refusal = await refusalOf(urlOf(served, rest), headers);
      expect(refusal).toMatchObject({ status, body: { error_code, request_id: refusal.headers["x-request-id"] } });
      expect(refusal.headers.connection).toBe("close");
    }
    expect([heard.socket, served.app.sockets.count, served.faults]).toEqual([null, 0, []]);
  });

  it("is refused where the tenant sends too many requests, and told when to come back", async () => {
    const served = await serve(makeRoutes().routes);
    served.rates.set("default", 1);
    const socket = await open(served);
    const { status, headers, body } = await refusalOf(urlOf(served), { "x-api-key": KEY });
    expect([status, body.error_code, headers["retry-after"]]).toEqual([429, "RATE_LIMITED", "1"]);
    expect(headers["ratelimit-policy"]).toBe('"tenant";q=1;w=1');
    socket.terminate();
  });

  it("is refused as 426 where it asks for something else, after its credential", async () => {
    const served = await serve(makeRoutes().routes);
    expect((await served.fetch("/ws/test")).status).toBe(401);
    const answer = await served.call("GET", "/ws/test");
    expect([answer.status, answer.headers.get("upgrade")]).toEqual([426, "websocket"]);
    expect(await answer.json()).toMatchObject({ error_code: "UPGRADE_REQUIRED" });
    expect((await served.call("POST", "/ws/test")).status).toBe(405);
    const asks = `X-Api-Key: ${KEY}\r\nHost: x\r\nConnection: Upgrade\r\n`;
    for (const more of ["Upgrade: h2c\r\n\r\n", "Upgrade: websocket\r\nContent-Length: 2\r\n\r\nhi"]) {
      const raw = await rawClient(served.server.port);
      raw.socket.write(`GET /ws/test HTTP/1.1\r\n${asks}${more}`);
      await raw.until(/426 [\s\S]*UPGRADE_REQUIRED/);
      raw.socket.destroy();
    }
  });

  it.each([
    ["no key", "Sec-WebSocket-Version: 13\r\n"],
    ["a bad key", "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"],
    ["another version", "Sec-WebSocket-Version: 7\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"],
    [
      "a bad sub-protocol",
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: a,,b\r\n",
    ],
  ])("is refused as 400 with %s, and its handler is told that it failed", async (_, more) => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes);
    const raw = await rawClient(served.server.port);
    raw.socket.write(
      `GET /ws/test HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${more}\r\n`,
    );
    const text = await raw.closed();
    expect(text).toMatch(/^HTTP\/1.1 400 Bad Request\r\n/);
    expect(JSON.parse(text.split("\r\n\r\n")[1] ?? "")).toMatchObject({ error_code: "INVALID_ARGUMENT" });
    expect([heard.failed_count, heard.socket]).toEqual([1, null]);
  });

  it("has an end when the client has gone before the answer", async () => {
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const { routes, heard } = makeRoutes(() => {
      begun.resolve();
      return gate.promise;
    });
    const served = await serve(routes);
    const socket = new WebSocket(urlOf(served), withKey);
    socket.on("error", () => {});
    await begun.promise;
    socket.terminate();
    await new Promise((resolve) => socket.once("close", resolve));
    gate.resolve();
    // A connection that is not read tells of its end when it is, or when it breaks.
    await eventually("the handler was told", () => heard.failed_count + heard.closed_count === 1);
    expect(served.app.sockets.count).toBe(0);
  });

  it("to another path is answered as what it would be without", async () => {
    const served = await serve(makeRoutes().routes);
    const raw = await rawClient(served.server.port);
    raw.socket.write("GET /plain HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    expect(await raw.until(/plain/)).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*\{"plain":true\}$/);
    raw.socket.destroy();
  });

  it("is cut behind a request that is not answered yet, which frames would be taken for the answer of", async () => {
    const gate = Promise.withResolvers<void>();
    const { routes, heard } = makeRoutes();
    const slow = route({
      method: "GET",
      path: "/slow",
      auth: "public",
      operation: "slow",
      summary: "Waits.",
      handler: async () => {
        await gate.promise;
        return {};
      },
    });
    const served = await serve([...routes, slow]);
    const raw = await rawClient(served.server.port);
    const key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    raw.socket.write(
      `GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /ws/test HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${key}\r\n`,
    );
    expect(await raw.closed()).toBe("");
    gate.resolve();
    expect(heard.socket).toBeNull();
  });

  it("is described as a GET that switches protocols", () => {
    const { paths } = openApiDocument(makeRoutes().routes, { title: "t", version: "0", description: "", tags: {} });
    const { responses, description } = { ...paths["/ws/test"] }.get as {
      responses: Record<string, object>;
      description: string;
    };
    expect(Object.keys(responses)).toEqual(["101", "400", "401", "403", "404", "426", "429", "500", "503"]);
    expect(description).toContain("sub-protocol `test`");
  });
});

describe("an open WebSocket", () => {
  const serve = serving();
  const quick = { socket_tick_ms: 10, socket_ping_ms: 20, socket_silence_ms: 200 };

  it("tells its sender when a client does not take what is sent, and again when it has", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes, {}, { socket_limits: { socket_buffer_bytes: 64 * 1024 } });
    const client = await open(served);
    client.pause();
    const chunk = Buffer.alloc(64 * 1024);
    let sent_count = 0;
    // What the kernel holds for a connection on loopback is some megabytes.
    while (heard.socket?.send(chunk) === true) {
      sent_count++;
      expect(sent_count).toBeLessThan(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(heard.drained_count).toBe(0);
    const got = { bytes: 0 };
    client.on("message", (data, isBinary) => {
      if (isBinary) got.bytes += (data as Buffer).length;
    });
    client.resume();
    await eventually("it has all of it", () => got.bytes === (sent_count + 1) * chunk.length);
    await eventually("its sender was told", () => heard.drained_count === 1);
    client.terminate();
  });

  it("is not read while its client asks for answers and takes none", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes, {}, { socket_limits: { socket_buffer_bytes: 64 * 1024 } });
    const client = await open(served);
    client.pause();
    const text = "x".repeat(64 * 1024);
    const asked = { count: 0 };
    // Every message is answered with one of its own size.
    const timer = setInterval(() => {
      for (; heard.texts.length > 0; heard.texts.pop()) {
        heard.socket?.send(text);
        asked.count++;
      }
    }, 1);
    for (let i = 0; i < 400; i++) client.send(text);
    await eventually("the client cannot send", async () => {
      const before = client.bufferedAmount;
      await new Promise((resolve) => setTimeout(resolve, 200));
      return before > 0 && client.bufferedAmount === before;
    });
    expect(asked.count).toBeLessThan(400);
    client.resume();
    await eventually("all were read", () => asked.count === 400);
    clearInterval(timer);
    client.terminate();
  });

  it("reads nothing while its listener is not ready for it", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes, {}, { socket_limits: quick });
    const client = await open(served);
    heard.socket?.pause();
    client.send("late");
    // Longer than a silence may be: a client that is not read is not silent.
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect([heard.texts, heard.closed_count]).toEqual([[], 0]);
    heard.socket?.resume();
    await eventually("it is read", () => heard.texts[0] === "late");
    client.terminate();
  });

  it("stays with a client that answers pings, and is cut from one that does not", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes, {}, { socket_limits: quick });
    const silent = await open(served, "", { ...withKey, autoPong: false });
    const alive = await open(served);
    const [code] = await once(silent, "close");
    await eventually("its end was heard", () => heard.closed_count === 1);
    expect([code, alive.readyState]).toEqual([1006, WebSocket.OPEN]);
    alive.terminate();
  });

  it("ends soon after its key was revoked", async () => {
    const { routes } = makeRoutes();
    const served = await serve(routes, {}, { socket_limits: quick });
    const { id, key } = await served.keys.create("default", { name: "k" }, await served.keys.caller(KEY));
    const client = await open(served, "", { headers: { "x-api-key": key } });
    const other = await open(served);
    const closed = once(client, "close");
    await served.keys.revoke("default", id);
    const [code, reason] = await closed;
    expect([code, String(reason), other.readyState]).toEqual([1008, "invalid credential", WebSocket.OPEN]);
    other.terminate();
  });

  it("ends with 1009 for a message that is too large, and with 1002 for what is no frame", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes);
    const large = await open(served);
    large.send(Buffer.alloc(LIMITS.socket_message_bytes_max + 1));
    expect((await once(large, "close"))[0]).toBe(1009);
    const raw = await rawClient(served.server.port);
    raw.socket.write(
      `GET /ws/test HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`,
    );
    await raw.until(/first/);
    raw.socket.write(Buffer.from([0xff, 0xff, 0xff, 0xff]));
    await raw.closed();
    await eventually("both ends were heard", () => heard.closed_count === 2);
    expect([heard.bytes, served.app.sockets.count]).toEqual([[], 0]);
  });

  it("is refused where there are as many as may be", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes, {}, { socket_limits: { sockets_max: 1 } });
    const client = await open(served);
    const refusal = await refusalOf(urlOf(served), { "x-api-key": KEY });
    expect(refusal).toMatchObject({ status: 503, body: { error_code: "CAPACITY_FULL", retry_after: 5 } });
    expect(heard.failed_count).toBe(1);
    client.terminate();
    await eventually("there is room", () => served.app.sockets.count === 0);
    (await open(served)).terminate();
  });

  it("is told 1001 when the server ends, and one that does not listen is cut at the deadline", async () => {
    const { routes, heard } = makeRoutes();
    const served = await serve(routes);
    const [polite, stubborn] = [await open(served), await open(served)];
    stubborn.pause();
    const closed = once(polite, "close");
    const { cut_count } = await served.server.close(300);
    expect([(await closed)[0], cut_count]).toEqual([1001, 1]);
    await eventually("both ends were heard", () => heard.closed_count === 2);
    stubborn.terminate();
  });
});
