/** Request bodies that are handed on as they come, and paths that end in a path. */
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openApiDocument } from "../../src/docs/openapi.ts";
import { type Route, route } from "../../src/http/route.ts";
import { matches } from "../../src/http/server.ts";
import { eventually } from "../support/daemon.ts";
import { KEY, rawClient, serving } from "./test-server.ts";

const MIB = 1024 * 1024;
const TAR = { "content-type": "application/x-tar", "x-api-key": KEY };

interface Seen {
  bytes: number;
  error: unknown;
  /** Called for every piece, before the next one is taken. */
  each: () => Promise<void>;
}

/** Digests what it is sent; as JSON it takes a text in place of bytes. */
function digesting(seen: Seen, bytes_max = 64 * MIB): Route {
  return route({
    method: "POST",
    path: "/upload",
    auth: "tenant",
    operation: "tested",
    summary: "Digests.",
    body: z.object({ content: z.string() }),
    upload: { bytes_max, content: ["application/x-tar", "application/gzip"] },
    handler: async ({ stream, body }) => {
      if (stream === null) return { json: body?.content ?? null };
      const hash = createHash("sha256");
      try {
        for await (const piece of stream) {
          seen.bytes += piece.length;
          hash.update(piece);
          await seen.each();
        }
      } catch (error) {
        seen.error = error;
        throw error;
      }
      return { sha256: hash.digest("hex"), announced: stream.bytes, type: stream.content_type };
    },
  });
}

const watching = (): Seen => ({ bytes: 0, error: null, each: async () => {} });
const head = (fields: string) => `POST /upload HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\n${fields}\r\n\r\n`;

const TIMEOUTS = { headers_timeout_ms: 1_000, request_timeout_ms: 1_000, connection_check_ms: 50 };

describe("a body that is handed on as it comes", () => {
  const serve = serving();

  it("arrives whole, with its length and type, announced or in chunks", async () => {
    const { fetch } = await serve([digesting(watching())]);
    const sent = Buffer.alloc(20 * MIB, "0123456789abcdef-");
    const sha256 = createHash("sha256").update(sent).digest("hex");
    const announced = await fetch("/upload", { method: "POST", headers: TAR, body: sent });
    expect(await announced.json()).toEqual({ sha256, announced: sent.length, type: "application/x-tar" });
    const pieces = new ReadableStream({
      start(controller) {
        for (let at = 0; at < sent.length; at += MIB) controller.enqueue(sent.subarray(at, at + MIB));
        controller.close();
      },
    });
    const chunked = await fetch("/upload", { method: "POST", headers: TAR, body: pieces, duplex: "half" } as never);
    expect(await chunked.json()).toEqual({ sha256, announced: null, type: "application/x-tar" });
  });

  it("may be empty", async () => {
    const { fetch } = await serve([digesting(watching())]);
    const answer = await fetch("/upload", { method: "POST", headers: TAR });
    expect(await answer.json()).toMatchObject({ sha256: createHash("sha256").digest("hex") });
  });

  it("is read as JSON where it says that it is", async () => {
    const { call, fetch } = await serve([digesting(watching())]);
    const headers = { ...TAR, "content-type": "Application/JSON; charset=utf-8" };
    const answer = await fetch("/upload", { method: "POST", headers, body: '{"content":"x"}' });
    expect(await answer.json()).toEqual({ json: "x" });
    const wrong = await fetch("/upload", { method: "POST", headers, body: "{}" });
    expect([wrong.status, ((await wrong.json()) as { error_code: string }).error_code]).toEqual([
      422,
      "UNPROCESSABLE_ENTITY",
    ]);
    // What `fetch` sends without a type is no JSON.
    expect(await (await call("POST", "/upload", "{}")).json()).toMatchObject({ type: "text/plain" });
  });

  it("comes as fast as it is taken", async () => {
    const { server } = await serve([digesting(Object.assign(watching(), { each: () => new Promise(() => {}) }))]);
    const client = await rawClient(server.port);
    client.socket.write(head(`Content-Type: application/x-tar\r\nContent-Length: ${60 * MIB}`));
    const piece = Buffer.alloc(MIB);
    for (let sent = 0; sent < 60; sent++) client.socket.write(piece);
    const stands = { bytes: -1, looks: 0 };
    await eventually("nothing more is taken from the client", () => {
      stands.looks = stands.bytes === client.socket.writableLength ? stands.looks + 1 : 0;
      stands.bytes = client.socket.writableLength;
      return stands.looks > 20;
    });
    expect(client.socket.writableLength).toBeGreaterThan(40 * MIB);
    client.socket.destroy();
  });

  it.each([
    ["announced", `Content-Length: ${2 * MIB}`, (text: string) => text],
    [
      "found out on the way",
      "Transfer-Encoding: chunked",
      (text: string) => `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`,
    ],
  ])("is refused when it is too large, %s", async (_, length, framed) => {
    const seen = watching();
    const { server } = await serve([digesting(seen, MIB)]);
    const client = await rawClient(server.port);
    client.socket.write(head(`Content-Type: application/x-tar\r\n${length}`));
    client.socket.write(framed("x".repeat(2 * MIB)));
    expect(await client.until(/"error_code"/)).toMatch(/413 [\s\S]*connection: close[\s\S]*BODY_TOO_LARGE/i);
    expect(seen.bytes).toBeLessThanOrEqual(MIB);
    await client.closed();
  });

  it("is not invited before it is asked for, and not at all where the request is refused before", async () => {
    const gate = Promise.withResolvers<void>();
    const state = { isRefusing: true };
    const waits = route({
      method: "POST",
      path: "/upload",
      auth: "tenant",
      operation: "tested",
      summary: "Waits.",
      upload: { bytes_max: MIB, content: ["application/x-tar"] },
      handler: async ({ stream }) => {
        if (state.isRefusing) return new Response(null, { status: 404 });
        await gate.promise;
        let bytes = 0;
        for await (const piece of stream) bytes += piece.length;
        return { bytes };
      },
    });
    const { server } = await serve([waits]);
    const refused = await rawClient(server.port);
    refused.socket.write(head("Content-Length: 5\r\nExpect: 100-continue"));
    expect(await refused.closed()).toMatch(/^HTTP\/1.1 404 [\s\S]*connection: close/i);
    state.isRefusing = false;
    const taken = await rawClient(server.port);
    taken.socket.write(head("Content-Length: 5\r\nExpect: 100-continue"));
    gate.resolve();
    await taken.until(/^HTTP\/1.1 100 Continue\r\n\r\n$/);
    taken.socket.write("hello");
    await taken.until(/\{"bytes":5\}/);
    taken.socket.destroy();
  });

  it("gets its refusal where the client has not sent all, and the connection is not used again", async () => {
    const refuses = route({
      method: "POST",
      path: "/upload",
      auth: "tenant",
      operation: "tested",
      summary: "Refuses.",
      upload: { bytes_max: 1_000 * MIB, content: ["application/x-tar"] },
      handler: () => new Response("no", { status: 409 }),
    });
    const { fetch } = await serve([refuses]);
    const answer = await fetch("/upload", { method: "POST", headers: TAR, body: Buffer.alloc(30 * MIB) });
    expect([answer.status, await answer.text()]).toEqual([409, "no"]);
  });

  it("may take longer than a request may, as long as its pieces come, and ends with its client", async () => {
    const seen = watching();
    const { server, fetch } = await serve([digesting(seen)], TIMEOUTS);
    const client = await rawClient(server.port);
    client.socket.write(`${head("Content-Type: application/x-tar\r\nContent-Length: 10")}first`);
    const begun = performance.now();
    await eventually("some times the time of a request has passed", () => performance.now() - begun > 2_500);
    expect([seen.bytes, client.text()]).toEqual([5, ""]);
    client.socket.write("later");
    expect(await client.until(/sha256/)).toMatch(/^HTTP\/1.1 200 /);
    const gone = await rawClient(server.port);
    gone.socket.write(`${head("Content-Type: application/x-tar\r\nContent-Length: 30")}half`);
    await eventually("its first piece is there", () => seen.bytes > 10);
    gone.socket.destroy();
    await eventually("it has failed", () => seen.error);
    expect(seen.error).toMatchObject({ code: "INVALID_ARGUMENT" });
    expect((await fetch("/nothing")).status).toBe(404);
  });

  it("ends when the key that sends it is revoked", async () => {
    const seen = watching();
    const { server, keys } = await serve([digesting(seen)]);
    const made = await keys.create("default", { name: "k" }, await keys.caller(KEY));
    const client = await rawClient(server.port);
    const text = head("Content-Type: application/x-tar\r\nContent-Length: 10").replace(KEY, made.key);
    client.socket.write(`${text}first`);
    await eventually("a piece is taken", () => seen.bytes === 5);
    await keys.revoke("default", made.id);
    client.socket.write("secon");
    expect(await client.until(/"error_code"/)).toMatch(/^HTTP\/1.1 401 /);
    expect(seen.bytes).toBe(5);
    client.socket.destroy();
  });

  it("is described in both its forms", () => {
    const { paths } = openApiDocument([digesting(watching())], { title: "t", version: "1", description: "", tags: {} });
    expect(paths["/upload"]?.post).toMatchObject({
      requestBody: {
        required: true,
        content: {
          "application/x-tar": { schema: { type: "string", format: "binary" } },
          "application/gzip": { schema: { type: "string", format: "binary" } },
          "application/json": { schema: { type: "object" } },
        },
      },
      responses: { 408: {}, 413: {}, 422: {} },
    });
  });
});

describe("a path that ends in a path", () => {
  const serve = serving();
  const files = route({
    method: "GET",
    path: "/volumes/:name/files/*",
    auth: "public",
    operation: "tested",
    summary: "Answers its parameters.",
    params: z.object({ name: z.string(), path: z.string() }),
    handler: ({ params }) => params,
  });

  it.each([
    ["a.txt", "a.txt"],
    ["nested/deep/a.txt", "nested/deep/a.txt"],
    ["nested%2Fa.txt", "nested/a.txt"],
    ["a%20b/%C3%A9", "a b/é"],
    ["100%25", "100%"],
    ["a%252Fb", "a%2Fb"],
    ["a//b/", "a//b/"],
    ["%252E%252E%2Fetc", "%2E%2E/etc"],
  ])("takes %s as %s", async (sent, path) => {
    const { server } = await serve([files]);
    const client = await rawClient(server.port);
    client.socket.write(`GET /volumes/v%2F1/files/${sent} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    const text = await client.closed();
    expect(JSON.parse(text.slice(text.indexOf("\r\n\r\n")))).toEqual({ name: "v/1", path });
  });

  it("is not the one without it", async () => {
    const { fetch } = await serve([files]);
    const outside = ["/volumes/v/files", "/volumes/v/files/"];
    for (const path of outside) expect((await fetch(path)).status).toBe(404);
    expect(matches(files.path, "/volumes/v/files/x/y")).toBe(true);
    expect(matches(files.path, "/volumes/v/files/")).toBe(false);
  });

  it("is described with the parameter path", () => {
    const { paths } = openApiDocument([files], { title: "t", version: "1", description: "", tags: {} });
    expect(Object.keys(paths)).toEqual(["/volumes/{name}/files/{path}"]);
  });
});
