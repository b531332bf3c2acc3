/** The edge over a real socket: routing, credentials, bodies, errors, and the end of the server. */
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Answer } from "../../src/base/answer.ts";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { type Route, route } from "../../src/http/route.ts";
import { listen, matches } from "../../src/http/server.ts";
import { quietLog } from "../store/scratch.ts";
import { healthRoute, KEY, rawClient, serving } from "./test-server.ts";

const echo = route({
  method: "POST",
  path: "/api/things/:thing_id/echo",
  auth: "tenant",
  operation: "tested",
  summary: "Answers what it was sent.",
  params: z.object({ thing_id: z.string().max(32) }),
  query: z.object({ limit: z.string().optional() }),
  body: z.object({ text: z.string().default("nothing") }),
  status: 201,
  handler: ({ caller, params, query, body, request_id }) => ({ caller, params, query, body, request_id }),
});

const basic: Route[] = [
  healthRoute,
  // Parameters before literals on purpose: the order of mounting must not matter.
  route({
    method: "GET",
    path: "/api/things/:thing_id",
    auth: "tenant",
    operation: "tested",
    summary: "One thing.",
    handler: ({ params }) => ({ thing: params.thing_id }),
  }),
  route({
    method: "GET",
    path: "/api/things/help",
    auth: "tenant",
    operation: "tested",
    summary: "Help.",
    handler: () => new Response("# help", { headers: { "content-type": "text/markdown" } }),
  }),
  route({
    method: "DELETE",
    path: "/api/things/:thing_id",
    auth: "tenant",
    operation: "tested",
    summary: "Deletes a thing.",
    handler: () => new Answer(202, { operation_id: "op_1" }, { "x-more": "yes" }),
  }),
  echo,
];

const failing = (thrown: unknown): Route =>
  route({
    method: "GET",
    path: "/api/fail",
    auth: "public",
    operation: "tested",
    summary: "Throws.",
    handler: () => {
      throw thrown;
    },
  });

describe("routing", () => {
  const serve = serving();

  it("answers literal paths before parameters, whatever order they were mounted in", async () => {
    const { call, app } = await serve(basic);
    const help = await call("GET", "/api/things/help");
    expect(await help.text()).toBe("# help");
    expect(help.headers.get("content-type")).toBe("text/markdown");
    expect(await (await call("GET", "/api/things/a%2Fb%20c")).json()).toEqual({ thing: "a/b c" });
    expect(app.routes.map(({ method, path, auth }) => `${method} ${path} ${auth}`)).toContain(
      "GET /api/things/help tenant",
    );
  });

  it("refuses to start with a route that would never be reached", async () => {
    const { app } = await serve(basic);
    const hidden = { ...echo, method: "GET" as const, path: "/api/things/late" };
    expect(() => app.mount([hidden])).toThrow("GET /api/things/late is never reached behind /api/things/:thing_id");
  });

  it("answers 405 with Allow for a known path, 404 for an unknown one, both without a credential", async () => {
    const { fetch } = await serve(basic);
    const wrong_method = await fetch("/api/things/x", { method: "PUT" });
    expect(wrong_method.status).toBe(405);
    expect(wrong_method.headers.get("allow")).toBe("DELETE, GET, HEAD");
    expect(await wrong_method.json()).toMatchObject({
      error_code: "METHOD_NOT_ALLOWED",
      details: { expected: ["DELETE", "GET", "HEAD"], received: "PUT", state: null },
    });
    expect((await fetch("/api/things/x/echo", { method: "HEAD" })).status).toBe(405);
    for (const path of ["/", "/api/thing", "/api/things/x/y", "/api/things/", "/health/"]) {
      const unknown = await fetch(path);
      expect(unknown.status, path).toBe(404);
      expect(await unknown.json()).toMatchObject({ error_code: "NOT_FOUND" });
    }
  });

  it("answers HEAD where GET is answered, without a body", async () => {
    const { fetch } = await serve(basic);
    const head = await fetch("/health", { method: "HEAD" });
    expect([head.status, await head.text(), head.headers.get("content-type")]).toEqual([200, "", "application/json"]);
  });

  it("gives handlers checked input and takes their status, headers and body", async () => {
    const { call } = await serve(basic);
    const created = await call("POST", "/api/things/t1/echo?limit=5", { text: "hi" });
    expect(created.status).toBe(201);
    expect(await created.json()).toEqual({
      caller: {
        tenant_id: "default",
        kind: "key",
        key_id: "bootstrap",
        scopes: ["read", "invoke", "write", "admin"],
        is_operator: true,
        invocation: null,
      },
      params: { thing_id: "t1" },
      query: { limit: "5" },
      body: { text: "hi" },
      request_id: created.headers.get("x-request-id"),
    });
    const deleted = await call("DELETE", "/api/things/t1");
    expect([deleted.status, deleted.headers.get("x-more")]).toEqual([202, "yes"]);
    expect((await call("POST", `/api/things/${"x".repeat(33)}/echo`, {})).status).toBe(400);
  });

  it("refuses a path that does not decode", async () => {
    const { server } = await serve(basic);
    const client = await rawClient(server.port);
    client.socket.write(`GET /api/things/%zz HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nConnection: close\r\n\r\n`);
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 400 [\s\S]*"error_code":"INVALID_ARGUMENT"/);
  });

  it("matches patterns segment by segment", () => {
    expect(matches("/a/:b/c", "/a/x/c")).toBe(true);
    expect(matches("/a/:b/c", "/a//c")).toBe(false);
    expect(matches("/a/:b", "/a/x/c")).toBe(false);
    expect(matches("/a/*", "/a/x/c")).toBe(true);
  });
});

describe("credentials", () => {
  const serve = serving();

  it("are taken from either header", async () => {
    const { fetch } = await serve(basic);
    expect((await fetch("/api/things/x", { headers: { "X-Api-Key": KEY } })).status).toBe(200);
    expect((await fetch("/api/things/x", { headers: { Authorization: `Bearer ${KEY}` } })).status).toBe(200);
  });

  it("that are missing or wrong are answered 401 with WWW-Authenticate, two of them 400", async () => {
    const { fetch } = await serve(basic);
    const all: [Record<string, string>, string][] = [
      [{}, "missing credential"],
      [{ "x-api-key": "wrong" }, "invalid"],
      [{ authorization: "Basic eDp5" }, "missing credential"],
      [{ authorization: KEY }, "missing credential"],
      [{ "x-api-key": `${KEY} x` }, "invalid"],
    ];
    for (const [headers, error] of all) {
      const answer = await fetch("/api/things/x", { headers });
      expect([answer.status, answer.headers.get("www-authenticate")]).toEqual([401, 'Bearer realm="hearth"']);
      const told = { error_code: "UNAUTHORIZED", error: expect.stringContaining(error) };
      expect(await answer.json()).toMatchObject(told);
    }
    const two = await fetch("/api/things/x", { headers: { "x-api-key": KEY, authorization: `Bearer ${KEY}` } });
    expect(two.status).toBe(400);
    expect(await two.json()).toMatchObject({ error_code: "TWO_CREDENTIALS" });
  });

  it("are not looked at on public routes", async () => {
    const { fetch } = await serve(basic);
    expect((await fetch("/health", { headers: { "x-api-key": "a", authorization: "b" } })).status).toBe(200);
  });

  it("come before the body is read", async () => {
    const { fetch } = await serve(basic);
    expect((await fetch("/api/things/x/echo", { method: "POST", body: "{" })).status).toBe(401);
  });
});

describe("bodies", () => {
  const serve = serving();

  it("are read as JSON whatever their Content-Type, and may be absent", async () => {
    const { fetch, call } = await serve(basic);
    for (const type of ["application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8"]) {
      const answer = await fetch("/api/things/x/echo", {
        method: "POST",
        headers: { "x-api-key": KEY, "content-type": type },
        body: '{"text":"é"}',
      });
      expect(await answer.json()).toMatchObject({ body: { text: "é" } });
    }
    expect(await (await call("POST", "/api/things/x/echo")).json()).toMatchObject({ body: { text: "nothing" } });
  });

  it("that are no JSON are answered 400, of the wrong shape 422", async () => {
    const { call } = await serve(basic);
    const answers: [string, number, string][] = [
      ["{", 400, "INVALID_JSON"],
      ["[1]", 422, "UNPROCESSABLE_ENTITY"],
      ["null", 422, "UNPROCESSABLE_ENTITY"],
      ['{"text":5}', 422, "UNPROCESSABLE_ENTITY"],
    ];
    for (const [body, status, error_code] of answers) {
      const answer = await call("POST", "/api/things/x/echo", body);
      expect([answer.status, ((await answer.json()) as { error_code: string }).error_code]).toEqual([
        status,
        error_code,
      ]);
    }
  });

  it("may be as large as the bound, in one piece or in chunks", async () => {
    const { fetch } = await serve(basic);
    const text = "x".repeat(LIMITS.body_bytes_max - '{"text":""}'.length);
    const init = { method: "POST", headers: { "x-api-key": KEY } };
    const whole = await fetch("/api/things/x/echo", { ...init, body: JSON.stringify({ text }) });
    expect(((await whole.json()) as { body: { text: string } }).body.text.length).toBe(text.length);
    const chunks = new Blob([JSON.stringify({ text })]).stream();
    const chunked = await fetch("/api/things/x/echo", { ...init, body: chunks, duplex: "half" } as RequestInit);
    expect(chunked.status).toBe(201);
  });

  it("of 20 MB are answered 413 and the connection is closed, announced or not", async () => {
    const { fetch } = await serve(basic);
    const init = { method: "POST", headers: { "x-api-key": KEY } };
    const large = "x".repeat(20 * 1024 * 1024);
    const bodies = [{ body: large }, { body: new Blob([large]).stream(), duplex: "half" }];
    for (const body of bodies) {
      const answer = await fetch("/api/things/x/echo", { ...init, ...body } as RequestInit);
      expect([answer.status, answer.headers.get("connection")]).toEqual([413, "close"]);
      expect(await answer.json()).toMatchObject({ error_code: "BODY_TOO_LARGE" });
    }
  });

  it("that announce far too much are refused before any of it is read", async () => {
    const { server } = await serve(basic);
    const client = await rawClient(server.port);
    client.socket.write(
      `POST /api/things/x/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nContent-Length: 99999999999\r\n\r\n`,
    );
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 413 [\s\S]*Connection: close/i);
  });

  it("are only invited by 100-continue when they will be read", async () => {
    const { server } = await serve(basic);
    const head = (length: number, key: string) =>
      `POST /api/things/x/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\nExpect: 100-continue\r\nContent-Length: ${length}\r\n\r\n`;
    const invited = await rawClient(server.port);
    invited.socket.write(head(12, KEY));
    await invited.until(/^HTTP\/1\.1 100 /);
    invited.socket.write('{"text":"x"}');
    await invited.until(/HTTP\/1\.1 201 /);
    invited.socket.destroy();
    const too_large = await rawClient(server.port);
    too_large.socket.write(head(LIMITS.body_bytes_max + 1, KEY));
    expect(await too_large.closed()).toMatch(/^HTTP\/1\.1 413 /);
    const stranger = await rawClient(server.port);
    stranger.socket.write(head(12, "wrong"));
    expect(await stranger.until(/\r\n\r\n/)).toMatch(/^HTTP\/1\.1 401 /);
    stranger.socket.destroy();
  });

  it("that stall end with the request timeout", async () => {
    const limits = { request_timeout_ms: 150, headers_timeout_ms: 100, connection_check_ms: 20 };
    const { server, fetch } = await serve(basic, limits);
    const body = await rawClient(server.port);
    body.socket.write(
      `POST /api/things/x/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nContent-Length: 100\r\n\r\n{"text":`,
    );
    expect(await body.closed()).toMatch(/^HTTP\/1\.1 408 |^$/);
    const headers = await rawClient(server.port);
    headers.socket.write("GET /health HTTP/1.1\r\nHost");
    expect(await headers.closed()).toMatch(/^HTTP\/1\.1 408 |^$/);
    expect((await fetch("/health")).status).toBe(200);
  });

  it("cut off by the client do no harm", async () => {
    const { server, fetch, faults } = await serve(basic);
    const client = await rawClient(server.port);
    client.socket.write(
      `POST /api/things/x/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nContent-Length: 100\r\n\r\n{"text":`,
    );
    client.socket.destroy();
    expect((await fetch("/health")).status).toBe(200);
    expect(faults).toEqual([]);
  });
});

describe("errors", () => {
  const serve = serving();

  it("carry every field of the interface, with the request id that was sent", async () => {
    const error = new AppError("WRONG_STATE", "cannot invoke a function that is paused", {
      details: { state: "paused", expected: ["active"] },
      hint: "resume it first",
    });
    const { fetch } = await serve([failing(error)]);
    const answer = await fetch("/api/fail", { headers: { "x-request-id": "my-id/1" } });
    expect([answer.status, answer.headers.get("x-request-id")]).toEqual([409, "my-id/1"]);
    expect(await answer.json()).toEqual({
      error: "cannot invoke a function that is paused",
      error_code: "WRONG_STATE",
      request_id: "my-id/1",
      details: { expected: ["active"], received: null, example: null, state: "paused", exit_code: null, output: null },
      hint: "resume it first",
      retry_after: null,
      reason_code: "WRONG_STATE",
      reason_message: "cannot invoke a function that is paused",
      retryable: false,
    });
  });

  it("say when to come back in the body and in Retry-After, and every 429 and 503 does", async () => {
    const full = await serve([failing(new AppError("CAPACITY_FULL", "full", { retry_after: 2.2 }))]);
    const answer = await full.fetch("/api/fail");
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "3"]);
    expect(await answer.json()).toMatchObject({ retry_after: 3 });
    for (const code of ["QUEUE_FULL", "START_FAILED", "SHUTTING_DOWN"] as const) {
      const { fetch } = await serve([failing(new AppError(code, "not now"))]);
      expect((await fetch("/api/fail")).headers.get("retry-after")).toBe("1");
    }
  });

  it("hide the inside of a fault and log it with its request id", async () => {
    const { fetch, faults } = await serve([failing(new TypeError("secret inside", { cause: new Error("deeper") }))]);
    const answer = await fetch("/api/fail", { headers: { "x-request-id": "r-1" } });
    expect(answer.status).toBe(500);
    const text = await answer.text();
    expect(text).not.toContain("secret");
    expect(JSON.parse(text)).toMatchObject({ error: "internal error", error_code: "INTERNAL", request_id: "r-1" });
    expect(faults).toMatchObject([
      { message: "request failed", fields: { request_id: "r-1", error: "secret inside", cause: "deeper" } },
    ]);
  });

  it("get a new request id where the client's is missing, too long or not printable", async () => {
    const { fetch, server } = await serve(basic);
    const made = /^req_[0-9a-z]{16}$/;
    expect((await fetch("/health")).headers.get("x-request-id")).toMatch(made);
    const long = { "x-request-id": "x".repeat(LIMITS.request_id_length_max + 1) };
    expect((await fetch("/health", { headers: long })).headers.get("x-request-id")).toMatch(made);
    const client = await rawClient(server.port);
    client.socket.write("GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: caf\u00e9\r\nConnection: close\r\n\r\n");
    expect(await client.closed()).toMatch(/x-request-id: req_/i);
  });

  it("are JSON too for a target or host that makes no URL", async () => {
    const { server } = await serve(basic);
    const client = await rawClient(server.port);
    client.socket.write("GET /health HTTP/1.1\r\nHost: a b/c\r\nConnection: close\r\n\r\n");
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 400 [\s\S]*"error_code":"INVALID_ARGUMENT"/);
  });
});

describe("the server", () => {
  const serve = serving();
  const slow = () => {
    const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const routes = [
      route({
        method: "GET",
        path: "/slow",
        auth: "public",
        operation: "tested",
        summary: "Waits.",
        handler: async ({ signal }) => {
          enter();
          await Promise.race([released, new Promise((resolve) => signal.addEventListener("abort", resolve))]);
          return { aborted: signal.aborted };
        },
      }),
    ];
    return { routes, entered, release };
  };

  it("answers what runs when it is closed, with Connection: close, and takes nothing new", async () => {
    const { routes, entered, release } = slow();
    const { server } = await serve(routes);
    const [running, idle] = await Promise.all([rawClient(server.port), rawClient(server.port)]);
    running.socket.write("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    await entered;
    const closing = server.close(10_000);
    // An idle connection ends at once, while the running request still waits.
    expect(await idle.closed()).toBe("");
    await expect(rawConnect(server.port)).rejects.toThrow(/ECONNREFUSED/);
    release();
    expect(await running.closed()).toMatch(/^HTTP\/1\.1 200 [\s\S]*Connection: close[\s\S]*\{"aborted":false\}/i);
    expect(await closing).toEqual({ cut_count: 0 });
  });

  it("cuts what still runs at the deadline", async () => {
    const { routes, entered } = slow();
    const { server } = await serve(routes);
    const running = await rawClient(server.port);
    running.socket.write("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    await entered;
    expect(await server.close(20)).toEqual({ cut_count: 1 });
    expect(await running.closed()).toBe("");
  });

  it("tells a handler when its client has gone", async () => {
    const { promise: gone, resolve } = Promise.withResolvers<string>();
    const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
    const { server } = await serve([
      route({
        method: "GET",
        path: "/wait",
        auth: "public",
        operation: "tested",
        summary: "Waits for the client to go.",
        handler: ({ signal }) =>
          new Promise((end) => {
            signal.addEventListener("abort", () => {
              resolve("gone");
              end({});
            });
            enter();
          }),
      }),
    ]);
    const client = await rawClient(server.port);
    client.socket.write("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    await entered;
    client.socket.destroy();
    expect(await gone).toBe("gone");
  });

  it("says who has the port", async () => {
    const { server, app } = await serve(basic);
    const again = listen(app, { host: "127.0.0.1", port: server.port, clock: systemClock, log: quietLog });
    await expect(again).rejects.toMatchObject({
      code: "INTERNAL",
      message: `cannot listen on 127.0.0.1:${server.port}: the address is in use by another process`,
    });
    const nowhere = listen(app, { host: "203.0.113.9", port: 0, clock: systemClock, log: quietLog });
    await expect(nowhere).rejects.toMatchObject({ message: expect.stringContaining("does not have the address") });
  });

  it("answers what is no request, or comes too late, with the error body and closes", async () => {
    const { server, fetch } = await serve(basic);
    // Another one: what comes at once must not be late where the machine is slow.
    const { server: hasty } = await serve(basic, { headers_timeout_ms: 1_000, connection_check_ms: 10 });
    const answers: Record<string, string> = {
      "GET /health HTTP/9.9\r\n\r\n": "MALFORMED_REQUEST",
      "\x16\x03\x01\x02\x00\x01\x00": "MALFORMED_REQUEST",
      "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": "MALFORMED_REQUEST",
      "GET /health HTTP/1.1\r\nHost: x\r\nExpect: 200-maybe\r\n\r\n": "INVALID_ARGUMENT",
      "GET /health HTTP/1.1\r\nHost:": "REQUEST_TIMEOUT",
    };
    for (const [text, code] of Object.entries(answers)) {
      const client = await rawClient((code === "REQUEST_TIMEOUT" ? hasty : server).port);
      client.socket.write(text);
      const [head = "", body = ""] = (await client.closed()).split("\r\n\r\n");
      expect([text, JSON.parse(body || "{}").error_code]).toEqual([text, code]);
      expect(head).toMatch(/connection: close/i);
      expect(head).toContain(`x-request-id: ${JSON.parse(body).request_id}`);
    }
    expect((await fetch("/health")).status).toBe(200);
  });

  it("refuses headers above their bound", async () => {
    const { server } = await serve(basic, { header_bytes_max: 2_048 });
    const large = await rawClient(server.port);
    large.socket.write(`GET /health HTTP/1.1\r\nHost: x\r\nX-Large: ${"x".repeat(4_096)}\r\n\r\n`);
    expect(await large.closed()).toMatch(/^HTTP\/1\.1 431 [\s\S]*"HEADERS_TOO_LARGE"/);
  });
});

function rawConnect(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve();
    });
    socket.once("error", reject);
  });
}
