/** What requests hold in memory together, and how many of one connection are worked on at a time. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Caller } from "../../src/base/caller.ts";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { InvocationTokens } from "../../src/functions/calls/tokens.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { type Route, route } from "../../src/http/route.ts";
import { eventually } from "../support/daemon.ts";
import { KEY, rawClient, serving } from "./test-server.ts";

const KIB = 1024;

const ACME = "ten_acme";

describe("what requests hold", () => {
  it("is at most half of the bound for one tenant, small requests too, and all of it for the operator's", () => {
    const budget = new MemoryBudget(400 * KIB);
    const [first, second, other, own] = [budget.share(), budget.share(), budget.share(), budget.share()];
    for (const share of [first, second]) share.belongTo(ACME);
    other.belongTo("ten_other");
    own.belongTo("default");
    expect(first.add(190 * KIB)).toBeUndefined();
    expect(second.add(10 * KIB)).toBeUndefined();
    expect(second.add(1)).toMatchObject({ code: "CAPACITY_FULL", retry_after: 1 });
    expect(other.add(50 * KIB)).toBeUndefined();
    expect(own.add(50 * KIB)).toBeUndefined();
    first.end();
    expect(second.add(150 * KIB)).toBeUndefined();
    for (const share of [second, other, own]) share.end();
    expect(budget.bytes).toBe(0);
    expect(own.add(300 * KIB)).toBeUndefined();
  });

  it("never passes its bound, whose last quarter is for requests that hold little", () => {
    const budget = new MemoryBudget(400 * KIB);
    const [large, other, small] = [budget.share(), budget.share(), budget.share()];
    for (const share of [large, other, small]) share.belongTo("default");
    expect(large.add(200 * KIB)).toBeUndefined();
    expect(other.add(101 * KIB)).toMatchObject({ code: "CAPACITY_FULL", retry_after: 1 });
    expect(other.add(100 * KIB)).toBeUndefined();
    expect(large.add(1)).toMatchObject({ code: "CAPACITY_FULL" });
    expect(small.add(16 * KIB)).toBeUndefined();
    expect(small.add(1)).toMatchObject({ code: "CAPACITY_FULL" });
    expect(budget.bytes).toBe(316 * KIB);
    for (const share of [large, large, other, small]) share.end();
    expect(budget.bytes).toBe(0);
  });
});

describe("a listener", () => {
  const serve = serving();
  /** A route that counts its requests and answers none before `open`. */
  const late = () => {
    const { promise: opened, resolve: open } = Promise.withResolvers<void>();
    const seen = { count: 0 };
    const keeps = route({
      method: "POST",
      path: "/keeps",
      auth: "tenant",
      operation: "tested",
      summary: "Answers late.",
      body: z.object({ text: z.string().default("") }),
      handler: async () => {
        seen.count += 1;
        await opened;
        return {};
      },
    });
    return { keeps, seen, open };
  };
  const post = (text: string, headers = `X-Api-Key: ${KEY}\r\n`) =>
    `POST /keeps HTTP/1.1\r\nHost: x\r\n${headers}Content-Length: ${text.length}\r\n\r\n${text}`;
  const body = JSON.stringify({ text: "x".repeat(100 * KIB) });

  it("refuses large bodies above what it may hold, takes small ones, and all again when it has answered", async () => {
    const { keeps, seen, open } = late();
    const budget = new MemoryBudget(256 * KIB);
    const { call } = await serve([keeps], {}, { budget });
    const first = call("POST", "/keeps", body);
    await eventually("it is kept", () => seen.count === 1);
    const refused = await call("POST", "/keeps", body);
    expect([refused.status, await refused.json()]).toEqual([
      503,
      expect.objectContaining({ error_code: "CAPACITY_FULL" }),
    ]);
    const small = call("POST", "/keeps", { text: "x" });
    await eventually("a small one is taken", () => seen.count === 2);
    open();
    expect([(await first).status, (await small).status]).toEqual([200, 200]);
    expect(budget.bytes).toBe(0);
    expect((await call("POST", "/keeps", body)).status).toBe(200);
  });

  it("refuses the bodies of a tenant that holds half of the memory, and takes those of another", async () => {
    const { keeps, seen, open } = late();
    const budget = new MemoryBudget(400 * KIB);
    const callerOf = (tenant_id: string): Caller => ({
      tenant_id,
      kind: "key",
      key_id: tenant_id,
      scopes: [],
      is_operator: false,
      invocation: null,
    });
    const authenticator = { cached: callerOf, caller: async (tenant_id: string) => callerOf(tenant_id) };
    const { fetch } = await serve([keeps], {}, { budget, authenticator });
    const send = async (tenant_id: string, text: string) =>
      (await fetch("/keeps", { method: "POST", headers: { "x-api-key": tenant_id }, body: text })).status;
    const kept = [send(ACME, body)];
    await eventually("it is kept", () => seen.count === 1);
    expect([await send(ACME, body), await send(ACME, body)]).toEqual([503, 503]);
    const others = send("ten_other", body);
    await eventually("another tenant's is kept", () => seen.count === 2);
    open();
    expect(await Promise.all([...kept, others])).toEqual([200, 200]);
    expect(budget.bytes).toBe(0);
  });

  it.each([
    ["of JSON", (text: string) => text],
    ["of another form", (text: string) => new Response(text, { headers: { "content-length": String(text.length) } })],
  ])("counts a large answer %s until the client has taken it or has gone", async (_, answer) => {
    // More than two sockets' buffers take.
    const large = route({
      method: "GET",
      path: "/large",
      auth: "public",
      operation: "tested",
      summary: "Much.",
      handler: () => answer("x".repeat(20_000 * KIB)),
    });
    const budget = new MemoryBudget(100_000 * KIB);
    const { fetch, server } = await serve([large], {}, { budget });
    const client = await rawClient(server.port);
    client.socket.pause();
    client.socket.write("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    await eventually("it is held", () => budget.bytes > 0);
    expect((await (await fetch("/large")).text()).length).toBeGreaterThanOrEqual(20_000 * KIB);
    client.socket.write("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    client.socket.destroy();
    await eventually("nothing is held", () => budget.bytes === 0);
  });

  it("cuts a client that takes nothing of a large answer, and not one that only takes its time", async () => {
    const { promise: opened, resolve: open } = Promise.withResolvers<void>();
    const routes = [
      route({
        method: "GET",
        path: "/large",
        auth: "public",
        operation: "tested",
        summary: "Much.",
        handler: () => "x".repeat(20_000 * KIB),
      }),
      route({
        method: "GET",
        path: "/waits",
        auth: "public",
        operation: "tested",
        summary: "Answers late.",
        handler: async () => {
          await opened;
          return "waited";
        },
      }),
    ];
    const budget = new MemoryBudget(100_000 * KIB, 2_000);
    const { server } = await serve(routes, {}, { budget });
    const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
    // It reads its large answer, and then waits for another one for longer than it may be idle in the first.
    const patient = await rawClient(server.port);
    patient.socket.write(get("/large"));
    await eventually("it has read all", () => patient.text().length > 20_000 * KIB);
    patient.socket.write(get("/waits"));
    const idle = await rawClient(server.port);
    idle.socket.pause();
    idle.socket.write(get("/large"));
    await eventually("it is held", () => budget.bytes > 0);
    // Nothing but its being cut gives that back: it neither reads nor leaves.
    await eventually("nothing is held", () => budget.bytes === 0);
    open();
    await eventually("it is answered", () => patient.text().endsWith('"waited"'));
    idle.socket.destroy();
  });

  it("works on few requests that one connection sends ahead, and closes one that sends more", async () => {
    const { promise: opened, resolve: open } = Promise.withResolvers<void>();
    const seen = { count: 0 };
    const waits: Route = route({
      method: "GET",
      path: "/waits",
      auth: "public",
      operation: "tested",
      summary: "Answers late.",
      handler: async () => {
        seen.count += 1;
        await opened;
        return seen.count;
      },
    });
    const { server } = await serve([waits]);
    const requests = (count: number) => "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n".repeat(count);
    const modest = await rawClient(server.port);
    modest.socket.write(requests(1 + LIMITS.pipelined_requests_max));
    await eventually("all are worked on", () => seen.count === 1 + LIMITS.pipelined_requests_max);
    const greedy = await rawClient(server.port);
    greedy.socket.write(requests(500));
    expect(await greedy.closed()).toBe("");
    expect(seen.count).toBeLessThanOrEqual(2 * (1 + LIMITS.pipelined_requests_max));
    open();
    await modest.until(/(HTTP\/1.1 200[\s\S]*){5}/);
    modest.socket.write(requests(1 + LIMITS.pipelined_requests_max));
    await modest.until(/(HTTP\/1.1 200[\s\S]*){10}/);
  });

  it("does not act on a body that came after the end of the invocation whose token was sent ahead", async () => {
    const tokens = new InvocationTokens(randomIds(), systemClock);
    const seen: string[] = [];
    const notes = route({
      method: "POST",
      path: "/keeps",
      auth: "tenant",
      operation: "tested",
      summary: "Notes.",
      body: z.object({ text: z.string() }),
      handler: ({ body: { text } }) => {
        seen.push(text);
        return {};
      },
    });
    const { server } = await serve([notes], {}, { authenticator: tokens });
    const expires_ms = systemClock.monotonicMs() + 60_000;
    const of = { tenant_id: "t", function_id: "f", invocation_id: "i", scopes: ["write"] } as const;
    const token = tokens.issue({ ...of, depth: 0, expires_ms });
    const text = post(JSON.stringify({ text: "late" }), `X-Api-Key: ${token}\r\nExpect: 100-continue\r\n`);
    const [head = "", late = ""] = text.split("\r\n\r\n");
    const client = await rawClient(server.port);
    client.socket.write(`${head}\r\n\r\n`);
    // Said once the token was found good.
    await client.until(/100 Continue/);
    tokens.revoke(token);
    client.socket.write(late);
    await client.until(/401 Unauthorized/);
    expect(seen).toEqual([]);
  });
});
