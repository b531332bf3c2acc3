/** Answers in pieces: begun at once, as fast as the client takes them, and ended with it. */
import { describe, expect, it } from "vitest";
import { Streamed } from "../../src/base/answer.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { type Route, route } from "../../src/http/route.ts";
import { eventually } from "../support/daemon.ts";
import { rawClient, serving } from "./test-server.ts";

const PIECE = Buffer.alloc(64 * 1024, "x");

/** A source that is driven and watched by hand. */
function source() {
  const seen = { asked_count: 0, isReturned: false, isOver: false };
  const waiting: { give: ((piece: Buffer | Error | null) => void) | null } = { give: null };
  const pieces: AsyncIterable<Uint8Array> = {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        seen.asked_count += 1;
        return new Promise((resolve, reject) => {
          waiting.give = (piece) => {
            waiting.give = null;
            if (piece instanceof Error) reject(piece);
            else if (piece === null) resolve({ done: true, value: undefined });
            else resolve({ done: false, value: piece });
          };
        });
      },
      return: async () => {
        seen.isReturned = true;
        return { done: true, value: undefined };
      },
    }),
  };
  const give = async (piece: Buffer | Error | null) =>
    (await eventually("it is asked for a piece", () => waiting.give))(piece);
  return { seen, pieces, give };
}

function streaming(pieces: () => AsyncIterable<Uint8Array>, signals: AbortSignal[] = []): Route {
  return route({
    method: "GET",
    path: "/stream",
    auth: "public",
    operation: "tested",
    summary: "Streams.",
    content: ["application/x-ndjson"],
    handler: ({ signal }) => {
      signals.push(signal);
      return new Streamed(pieces(), { content_type: "application/x-ndjson", headers: { "cache-control": "no-store" } });
    },
  });
}

async function* endless(): AsyncGenerator<Uint8Array> {
  for (;;) yield PIECE;
}

const GET = "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n";

describe("an answer in pieces", () => {
  const serve = serving();

  it("sends its headers before there is a first piece, and each piece as it comes", async () => {
    const { pieces, give } = source();
    const { fetch, told } = await serve([streaming(() => pieces)]);
    const response = await fetch("/stream", { headers: { "x-request-id": "mine" } });
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/x-ndjson"]);
    expect([response.headers.get("x-request-id"), response.headers.get("cache-control")]).toEqual(["mine", "no-store"]);
    expect(told).toMatchObject([{ status: 200, error_code: null, request_id: "mine" }]);
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    for (const text of ["one\n", "two\n"]) {
      await give(Buffer.from(text));
      expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe(text);
    }
    await give(null);
    expect((await reader.read()).done).toBe(true);
  });

  it.each([
    ["fewer", 4],
    ["more", 1],
  ])("cuts the connection where %s bytes come than were announced", async (_, announced) => {
    const two = route({
      method: "GET",
      path: "/stream",
      auth: "public",
      operation: "tested",
      summary: "Streams.",
      content: ["text/plain"],
      handler: () => {
        async function* pieces() {
          yield Buffer.from("ab");
        }
        return new Streamed(pieces(), {
          content_type: "text/plain",
          headers: { "content-length": String(announced) },
        });
      },
    });
    const { fetch } = await serve([two]);
    await expect(fetch("/stream").then((response) => response.text())).rejects.toThrow();
  });

  it("leaves its connection as good as any other answer does", async () => {
    const { fetch, server } = await serve([
      streaming(async function* () {
        yield Buffer.from("a");
        yield Buffer.from("b");
      }),
    ]);
    const client = await rawClient(server.port);
    client.socket.write(GET.repeat(3));
    await client.until(/(1\r\na\r\n1\r\nb\r\n0\r\n\r\n[\s\S]*){3}/);
    client.socket.destroy();
    expect(await (await fetch("/stream")).text()).toBe("ab");
  });

  it("asks its source for no more than the client takes", async () => {
    const seen = { given_count: 0 };
    const { server } = await serve([
      streaming(async function* () {
        for await (const piece of endless()) {
          seen.given_count += 1;
          yield piece;
        }
      }),
    ]);
    const client = await rawClient(server.port);
    client.socket.pause();
    client.socket.write(GET);
    const stands = { count: -1, looks: 0 };
    await eventually("it asks no more", () => {
      stands.looks = stands.count === seen.given_count && seen.given_count > 0 ? stands.looks + 1 : 0;
      stands.count = seen.given_count;
      return stands.looks > 20;
    });
    // What the kernel takes for two sockets, far from endless.
    expect(seen.given_count).toBeLessThan(400);
    client.socket.resume();
    await eventually("it goes on", () => seen.given_count > stands.count + 100);
    client.socket.destroy();
  });

  it("ends its source and its signal at once when the client has gone, also one that has nothing to say", async () => {
    const { seen, pieces } = source();
    const signals: AbortSignal[] = [];
    const { server, faults } = await serve([streaming(() => pieces, signals)]);
    const client = await rawClient(server.port);
    client.socket.write(GET);
    await client.until(/200 OK/);
    expect([seen.isReturned, signals[0]?.aborted]).toEqual([false, false]);
    client.socket.destroy();
    await eventually("it is ended", () => seen.isReturned && signals[0]?.aborted === true);
    expect(faults).toEqual([]);
  });

  it("cuts a client that takes nothing of what waits, and none that waits for what has not come", async () => {
    const quiet = source();
    const routes = [
      streaming(endless),
      route({
        method: "GET",
        path: "/quiet",
        auth: "public",
        operation: "quiet",
        summary: "Says nothing for long.",
        handler: () => new Streamed(quiet.pieces, { content_type: "text/plain" }),
      }),
    ];
    const { server } = await serve(routes, {}, { budget: new MemoryBudget(1_000_000, 300) });
    const waits = await rawClient(server.port);
    waits.socket.write("GET /quiet HTTP/1.1\r\nHost: x\r\n\r\n");
    await waits.until(/200 OK/);
    // What was said and taken does not count either.
    await quiet.give(Buffer.from("early"));
    await waits.until(/early/);
    const stalls = await rawClient(server.port);
    stalls.socket.pause();
    stalls.socket.write(GET);
    await eventually("the one that does not read is cut", () => {
      // Nothing but its being cut is seen by a socket that does not read: it tries to write.
      stalls.socket.write("x");
      return stalls.socket.destroyed;
    });
    await quiet.give(Buffer.from("late"));
    await waits.until(/late/);
    waits.socket.destroy();
  });

  it("does not cut a client that is slow and takes something", async () => {
    const sent_bytes = 8_000_000;
    const { server } = await serve(
      [
        streaming(async function* () {
          for (let bytes = 0; bytes < sent_bytes; bytes += PIECE.length) yield PIECE;
        }),
      ],
      {},
      { budget: new MemoryBudget(1_000_000, 1_500) },
    );
    const client = await rawClient(server.port);
    client.socket.write(GET);
    // A little at a time, for some times as long as it may take nothing.
    const nap = setInterval(() => {
      client.socket.resume();
      setTimeout(() => client.socket.pause(), 2);
    }, 100);
    client.socket.pause();
    const begun = performance.now();
    await eventually("it has taken a part for long", () => performance.now() - begun > 4_000);
    clearInterval(nap);
    client.socket.resume();
    expect((await client.until(/\r\n0\r\n\r\n$/)).length).toBeGreaterThan(sent_bytes);
    client.socket.destroy();
  });

  it("breaks off where its source fails: nobody takes a part for the whole", async () => {
    const { pieces, give } = source();
    const { fetch } = await serve([streaming(() => pieces)]);
    const response = await fetch("/stream");
    await give(Buffer.from("part"));
    await give(new Error("the disk is gone"));
    await expect(response.text()).rejects.toThrow();
  });

  it("answers HEAD with its headers alone, and ends the source unasked", async () => {
    const { seen, pieces } = source();
    const { fetch } = await serve([streaming(() => pieces)]);
    const response = await fetch("/stream", { method: "HEAD" });
    expect([response.status, response.headers.get("content-type"), await response.text()]).toEqual([
      200,
      "application/x-ndjson",
      "",
    ]);
    expect(seen).toMatchObject({ asked_count: 0, isReturned: true });
  });
});
