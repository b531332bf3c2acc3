/** Clients that take their time, or have nothing to say: each ends by the bounds of the listener, whatever it does. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { type Route, route } from "../../src/http/route.ts";
import { eventually } from "../support/daemon.ts";
import { healthRoute, KEY, type RawClient, rawClient, serving } from "./test-server.ts";

const routes: Route[] = [
  healthRoute,
  route({
    method: "POST",
    path: "/keeps",
    auth: "tenant",
    operation: "tested",
    summary: "Answers.",
    body: z.object({ text: z.string() }),
    handler: ({ body }) => body.text.length,
  }),
];
/** Far below what a client that only drips would need to get to its end. */
const LIMITS = { headers_timeout_ms: 200, request_timeout_ms: 400, connection_idle_ms: 200, connection_check_ms: 20 };
const GET = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

/** Sends a byte again and again, so that the connection is never silent, until it is closed. */
async function drip(client: RawClient, text: string): Promise<string> {
  const timer = setInterval(() => client.socket.write(text), 10);
  try {
    return await client.closed();
  } finally {
    clearInterval(timer);
  }
}

describe("a listener ends", () => {
  const serve = serving();

  it("headers that come one byte at a time, though each shows that somebody is there", async () => {
    const { server, fetch } = await serve(routes, LIMITS);
    const client = await rawClient(server.port);
    client.socket.write("GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    expect(await drip(client, "x")).toMatch(/^HTTP\/1\.1 408 |^$/);
    expect((await fetch("/health")).status).toBe(200);
  });

  it("a body that comes one byte at a time, and holds nothing of it then", async () => {
    const budget = new MemoryBudget();
    const { server } = await serve(routes, LIMITS, { budget });
    const client = await rawClient(server.port);
    client.socket.write(
      `POST /keeps HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nContent-Length: 100000\r\n\r\n{"text":"`,
    );
    await eventually("it is being read", () => budget.bytes > 0);
    expect(await drip(client, "x")).toMatch(/^HTTP\/1\.1 408 |^$/);
    await eventually("nothing is held", () => budget.bytes === 0);
  });

  it("a chunked body that never ends, and one whose next chunk never comes", async () => {
    const budget = new MemoryBudget();
    const { server } = await serve(routes, LIMITS, { budget });
    const head = `POST /keeps HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const endless = await rawClient(server.port);
    endless.socket.write(head);
    expect(await drip(endless, "1\r\nx\r\n")).toMatch(/^HTTP\/1\.1 408 |^$/);
    const silent = await rawClient(server.port);
    silent.socket.write(`${head}1\r\n{\r\n`);
    expect(await silent.closed()).toMatch(/^HTTP\/1\.1 408 |^$/);
    await eventually("nothing is held", () => budget.bytes === 0);
  });

  it("connections that never say anything, and those that have nothing more to say", async () => {
    const { server } = await serve(routes, LIMITS);
    const mute = await Promise.all(Array.from({ length: 20 }, () => rawClient(server.port)));
    for (const text of await Promise.all(mute.map((client) => client.closed())))
      expect(text).toMatch(/^HTTP\/1\.1 408 |^$/);
    const done = await rawClient(server.port);
    done.socket.write(GET);
    await done.until(/"ok"/);
    expect(await done.closed()).toMatch(/Keep-Alive: timeout=/i);
  });

  it("a request line, a header and headers that are too long or too many, before any route is looked for", async () => {
    const { server, faults, fetch } = await serve(routes);
    for (const text of [
      `GET /${"x".repeat(100_000)} HTTP/1.1\r\nHost: x\r\n\r\n`,
      `GET /health HTTP/1.1\r\nHost: x\r\nLarge: ${"x".repeat(100_000)}\r\n\r\n`,
      `GET /health HTTP/1.1\r\nHost: x\r\n${"A: b\r\n".repeat(20_000)}\r\n`,
      `GET /health HTTP/1.1\r\nHost: x\r\n${"x".repeat(100_000)}`,
    ]) {
      const client = await rawClient(server.port);
      client.socket.write(text);
      // What is left unread when it closes may take its answer with it.
      expect(await client.closed()).toMatch(/^HTTP\/1\.1 431 |^$/);
    }
    expect(faults).toEqual([]);
    expect((await fetch("/health")).status).toBe(200);
  });

  it("the request of a key that was revoked between its headers and its body", async () => {
    const { server, keys } = await serve(routes);
    const made = await keys.create("default", { name: "k" }, await keys.caller(KEY));
    const client = await rawClient(server.port);
    const body = '{"text":"late"}';
    client.socket.write(
      `POST /keeps HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${made.key}\r\nExpect: 100-continue\r\nContent-Length: ${body.length}\r\n\r\n`,
    );
    // Said once the key was found good.
    await client.until(/100 Continue/);
    await keys.revoke("default", made.id);
    client.socket.write(body);
    expect(await client.until(/"error_code"/)).toMatch(/HTTP\/1\.1 401 [\s\S]*UNAUTHORIZED/);
    client.socket.destroy();
  });

  it("nobody but the slow ones: others are served while all of these are there", async () => {
    const { server, fetch } = await serve(routes);
    const slow = await Promise.all(Array.from({ length: 200 }, () => rawClient(server.port)));
    for (const [i, { socket }] of slow.entries()) {
      socket.write(
        i % 2 === 0
          ? "GET /health HT"
          : `POST /keeps HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nContent-Length: 50\r\n\r\n{`,
      );
    }
    for (let i = 0; i < 20; i++) expect((await fetch("/health")).status).toBe(200);
    for (const { socket } of slow) socket.destroy();
  });
});
