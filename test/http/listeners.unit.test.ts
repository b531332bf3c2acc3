/** Two listeners of one daemon: the same routes, other credentials, and the bounds of the one that handlers can reach. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { InvocationTokens } from "../../src/functions/calls/tokens.ts";
import { type Route, route } from "../../src/http/route.ts";
import { firstUnreached } from "../../src/http/self-check.ts";
import { healthRoute, KEY, rawClient, serving } from "./test-server.ts";

const INNER_HOST = "127.0.0.2";

const routes: Route[] = [
  healthRoute,
  route({
    method: "GET",
    path: "/whoami",
    auth: "tenant",
    operation: "tested",
    summary: "The caller.",
    handler: ({ caller }) => caller,
  }),
];

const scopes = ["read", "invoke", "write"] as const;
const request = { tenant_id: "t", function_id: "fn_a", invocation_id: "inv_1", scopes, depth: 0, expires_ms: 1_500 };

describe("the inner listener", () => {
  const serve = serving();
  const both = async () => {
    const time = { now_ms: 1_000 };
    const clock: Clock = { epochMs: () => 0, monotonicMs: () => time.now_ms, after: () => () => {} };
    const tokens = new InvocationTokens(randomIds(), clock);
    const outer = await serve(routes);
    const inner = await serve(routes, {}, { host: INNER_HOST, authenticator: tokens });
    return { time, tokens, outer, inner };
  };
  type Side = Awaited<ReturnType<typeof both>>["outer"];
  const whoami = async (side: Side, headers: Record<string, string>) => {
    const answer = await side.fetch("/whoami", { headers: { ...headers, "x-request-id": "r" } });
    return { status: answer.status, text: await answer.text() };
  };

  it("acts as the tenant of an invocation's token, sent in either header", async () => {
    const { tokens, inner } = await both();
    expect(inner.server.url).toBe(`http://${INNER_HOST}:${inner.server.port}`);
    const token = tokens.issue(request);
    const either: Record<string, string>[] = [{ "x-api-key": token }, { authorization: `Bearer ${token}` }];
    for (const headers of either) {
      const { status, text } = await whoami(inner, headers);
      expect([status, JSON.parse(text)]).toEqual([
        200,
        {
          tenant_id: "t",
          key_id: "inv_1",
          kind: "invocation",
          is_operator: false,
          scopes: ["read", "invoke", "write"],
          invocation: { invocation_id: "inv_1", function_id: "fn_a", depth: 0, deadline_ms: 1_500 },
        },
      ]);
    }
    expect((await inner.fetch("/health")).status).toBe(200);
  });

  it("refuses an API key, and the outer one a token, as either does a key that never was", async () => {
    const { tokens, inner, outer } = await both();
    const token = tokens.issue(request);
    const unknown = await whoami(outer, { "x-api-key": "never-was" });
    expect(unknown.status).toBe(401);
    expect(await whoami(inner, { "x-api-key": "never-was" })).toEqual(unknown);
    expect(await whoami(inner, { "x-api-key": KEY })).toEqual(unknown);
    expect(await whoami(outer, { "x-api-key": token })).toEqual(unknown);
    expect((await whoami(outer, { "x-api-key": KEY })).status).toBe(200);
    // The refusal of the outer listener is remembered there and does not spoil the token where it is good.
    expect((await whoami(inner, { "x-api-key": token })).status).toBe(200);
  });

  it("knows a token no longer once its invocation or its time has ended, on an open connection too", async () => {
    const { tokens, time, inner } = await both();
    const [ended, late] = [tokens.issue(request), tokens.issue(request)];
    const statuses = async () => [
      (await whoami(inner, { "x-api-key": ended })).status,
      (await whoami(inner, { "x-api-key": late })).status,
    ];
    expect(await statuses()).toEqual([200, 200]);
    tokens.revoke(ended);
    expect(await statuses()).toEqual([401, 200]);
    time.now_ms = 1_500;
    expect(await statuses()).toEqual([401, 401]);
  });

  it("keeps its connections when the outer one is closed", async () => {
    const { inner, outer } = await both();
    const client = await rawClient(inner.server.port, INNER_HOST);
    await outer.server.close(0);
    client.socket.write("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    expect(await client.until(/"ok"/)).toMatch(/Connection: keep-alive/i);
    const closing = inner.server.close(10_000);
    client.socket.destroy();
    expect(await closing).toEqual({ cut_count: 0 });
  });

  it("closes at once what one address opens above its bound, and serves the other addresses", async () => {
    const { tokens } = await both();
    const limits = { connections_max: 3, per_address_connections_max: 2 };
    const { server } = await serve(routes, limits, { host: INNER_HOST, authenticator: tokens });
    const get = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    const open = async (from: string) => {
      const client = await rawClient(server.port, INNER_HOST, from);
      client.socket.write(get);
      return client;
    };
    const [first, second] = [await open("127.0.0.1"), await open("127.0.0.1")];
    await Promise.all([first.until(/"ok"/), second.until(/"ok"/)]);
    expect(await (await open("127.0.0.1")).closed()).toBe("");
    const other = await open("127.0.0.3");
    await other.until(/"ok"/);
    // All three are taken now: a new address displaces the oldest of the one with two.
    await (await open("127.0.0.4")).until(/"ok"/);
    await first.closed();
    // An ended connection makes room, for its own address too, and a refused one never took any.
    second.socket.destroy();
    await second.closed();
    await expect
      .poll(async () =>
        (await open("127.0.0.1"))
          .until(/"ok"/)
          .then(() => "served")
          .catch(() => "closed"),
      )
      .toBe("served");
    other.socket.destroy();
  });

  it("closes connections above a tenant's bound over all its addresses, and those that are not admitted", async () => {
    const { tokens } = await both();
    const tenants: Record<string, string> = { "127.0.0.1": "a", "127.0.0.3": "a", "127.0.0.4": "b" };
    const { server } = await serve(
      routes,
      { per_tenant_connections_max: 2 },
      { host: INNER_HOST, authenticator: tokens, admit: (address) => tenants[address] ?? null },
    );
    const open = async (from: string) => {
      const client = await rawClient(server.port, INNER_HOST, from);
      client.socket.write("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
      return client;
    };
    const held = [await open("127.0.0.1"), await open("127.0.0.3")];
    for (const client of held) await client.until(/"ok"/);
    expect(await (await open("127.0.0.1")).closed()).toBe("");
    await (await open("127.0.0.4")).until(/"ok"/);
    expect(await (await open("127.0.0.5")).closed()).toBe("");
    held[0]?.socket.destroy();
    await expect
      .poll(async () =>
        (await open("127.0.0.3")).until(/"ok"/).then(
          () => "served",
          () => "closed",
        ),
      )
      .toBe("served");
  });
});

describe("the check that a listener is reached", () => {
  it("holds where the listener closes the connection unread, before the check hears of it or above its bound", async () => {
    const server = createServer((socket) => socket.destroy());
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    expect(await firstUnreached(server, "127.0.0.1", port, systemClock)).toBe(null);
    server.removeAllListeners("connection");
    server.maxConnections = 1;
    const first = connect(port, "127.0.0.1");
    await once(server, "connection");
    expect(await firstUnreached(server, "127.0.0.1", port, systemClock)).toBe(null);
    expect([server.listenerCount("connection"), server.listenerCount("drop")]).toEqual([0, 0]);
    first.destroy();
    server.close();
  });
});
