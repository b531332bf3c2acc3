/** Connections at the bound of a listener: those that stay, and their end with the listener. */
import { Agent, type IncomingMessage, request } from "node:http";
import { describe, expect, it } from "vitest";
import { Streamed } from "../../src/base/answer.ts";
import { route } from "../../src/http/route.ts";
import { eventually } from "../support/daemon.ts";
import { KEY, type RawClient, rawClient, serving } from "./test-server.ts";

const HEALTH = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
const OWN = `GET /own HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\n\r\n`;
const HALF = "GET /health HTTP/1.1\r\nHost: x\r\nX-More: ";

/** A stream that ends when it is told to, a page, and an answer that is larger than the buffers of two sockets. */
function routes() {
  const end = Promise.withResolvers<void>();
  async function* pieces(): AsyncGenerator<Uint8Array> {
    yield Buffer.from("begun\n");
    await end.promise;
    yield Buffer.from("ended\n");
  }
  const common = { method: "GET", operation: "tested", summary: "Tested." } as const;
  const made = [
    route({ ...common, path: "/health", auth: "public", handler: () => ({ status: "ok" }) }),
    route({ ...common, path: "/own", auth: "tenant", handler: () => ({ status: "own" }) }),
    route({ ...common, path: "/large", auth: "tenant", handler: () => "x".repeat(20_000_000) }),
    route({
      ...common,
      path: "/stream",
      auth: "tenant",
      content: ["text/plain"],
      handler: () => new Streamed(pieces(), { content_type: "text/plain" }),
    }),
  ];
  return { made, end: () => end.resolve() };
}

describe("a listener at the bound of its connections", () => {
  const serve = serving();
  const open = async (port: number, text: string, from?: string): Promise<RawClient> => {
    const client = await rawClient(port, "127.0.0.1", from);
    client.socket.write(text);
    return client;
  };
  const isOpen = (client: RawClient) => !client.socket.closed;

  it("serves a new client although half-sent requests hold every place", async () => {
    const { server, fetch } = await serve(routes().made, { connections_max: 50 });
    const half: RawClient[] = [];
    for (let i = 0; i < 120; i++) half.push(await open(server.port, HALF));
    expect((await fetch("/health")).status).toBe(200);
    // The newest stay, the oldest have gone.
    await eventually("the rest is closed", () => half.filter(isOpen).length <= 50);
    expect(half.slice(0, 70).filter(isOpen)).toEqual([]);
    for (const { socket } of half) socket.destroy();
  });

  it("keeps authenticated connections, a stream too, while strangers come", async () => {
    const { made, end } = routes();
    const { server } = await serve(made, { connections_max: 20 });
    const idle = await open(server.port, OWN);
    await idle.until(/"own"/);
    const stream = await open(server.port, OWN.replace("/own", "/stream"));
    await stream.until(/begun/);
    const half: RawClient[] = [];
    for (let i = 0; i < 60; i++) half.push(await open(server.port, HALF));
    idle.socket.write(OWN);
    await eventually("it is served again", () => idle.text().split('"own"').length === 3);
    end();
    await stream.until(/ended/);
    for (const { socket } of [...half, idle, stream]) socket.destroy();
  });

  it("takes places from the source that has the most of them", async () => {
    const { server } = await serve(routes().made, { connections_max: 10 });
    const quiet = await open(server.port, HEALTH, "127.0.0.9");
    await quiet.until(/"ok"/);
    const half: RawClient[] = [];
    for (let i = 0; i < 40; i++) half.push(await open(server.port, HALF, "127.0.0.8"));
    quiet.socket.write(HEALTH);
    await eventually("it is served again", () => quiet.text().split('"ok"').length === 3);
    for (const { socket } of [...half, quiet]) socket.destroy();
  });

  it("closes idle authenticated connections before it refuses one, and none with a request in progress", async () => {
    const { made, end } = routes();
    const { server } = await serve(made, { connections_max: 2 });
    const idle = await open(server.port, OWN);
    await idle.until(/"own"/);
    const streams = [await open(server.port, OWN.replace("/own", "/stream"))];
    await streams[0]?.until(/begun/);
    streams.push(await open(server.port, OWN.replace("/own", "/stream")));
    await streams[1]?.until(/begun/);
    expect(await idle.closed()).toMatch(/"own"/);
    // Both places are in use now.
    expect(await (await open(server.port, HEALTH)).closed()).toBe("");
    end();
    for (const stream of streams) await stream.until(/ended/);
    expect(await (await open(server.port, HEALTH)).until(/"ok"/)).toMatch(/"ok"/);
    for (const { socket } of streams) socket.destroy();
  });
});

describe("a listener that is closed", () => {
  const serve = serving();

  it("closes the connection of a stream after its last bytes, so that the client's next request goes elsewhere", async () => {
    const { made, end } = routes();
    const { server } = await serve(made);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const sent = request(`${server.url}/stream`, { agent, headers: { "x-api-key": KEY } });
    sent.end();
    const response = await new Promise<IncomingMessage>((resolve) => sent.once("response", resolve));
    const state = { text: "", isClosed: false };
    response.on("data", (chunk: Buffer) => {
      state.text += chunk;
    });
    response.socket.once("close", () => {
      state.isClosed = true;
    });
    await eventually("it has begun", () => state.text === "begun\n");
    const closing = server.close(10_000);
    end();
    expect(await closing).toEqual({ cut_count: 0 });
    await eventually("the connection is closed", () => state.isClosed);
    expect([state.text, response.complete]).toEqual(["begun\nended\n", true]);
    agent.destroy();
  });

  it("still sends all of an answer to a slow client", async () => {
    const { server } = await serve(routes().made);
    const client = await rawClient(server.port);
    client.socket.pause();
    client.socket.write(OWN.replace("/own", "/large"));
    await eventually("it is being sent", () => client.socket.readableLength > 0 || client.socket.bytesRead > 0);
    const closing = server.close(10_000);
    client.socket.resume();
    expect((await client.closed()).length).toBeGreaterThan(20_000_000);
    expect(await closing).toEqual({ cut_count: 0 });
  });

  it("does not wait for a request of which only a part has come", async () => {
    const { server } = await serve(routes().made);
    const client = await rawClient(server.port);
    client.socket.write(`${OWN}${HALF}`);
    await client.until(/"own"/);
    expect(await server.close(10_000)).toEqual({ cut_count: 0 });
  });
});
