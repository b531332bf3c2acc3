/** Uploads in base64 that are spooled: their senders keep a minimum rate while they hold a place. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { route } from "../../src/http/route.ts";
import { KEY, rawClient, serving } from "./test-server.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

const upload = route({
  method: "POST",
  path: "/upload",
  auth: "tenant",
  operation: "tested",
  summary: "Counts the bytes of a file.",
  body: z.object({ content: z.string() }),
  base64_field: "content",
  handler: async ({ stream }) => {
    let bytes = 0;
    for await (const piece of stream) bytes += piece.length;
    return { bytes };
  },
});

const head = (length: number) =>
  `POST /upload HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\nContent-Length: ${length}\r\n\r\n{"content":"`;

describe("an upload in base64", () => {
  const serve = serving();
  /** A server whose time runs as fast as the test wants. */
  const timed = async () => {
    const time = { ahead_ms: 0 };
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + time.ahead_ms };
    return { time, ...(await serve([upload], {}, { clock })) };
  };

  it("that comes a few bytes at a time is refused, and gives its place to others", async () => {
    const { time, server, call } = await timed();
    const slow = await Promise.all(Array.from({ length: LIMITS.spools_per_tenant_max }, () => rawClient(server.port)));
    // Each holds a file from here on.
    for (const { socket } of slow) socket.write(head(100 * MIB) + "A".repeat(512 * KIB));
    const dripping = setInterval(() => {
      time.ahead_ms += 10_000;
      for (const { socket } of slow) socket.write("A".repeat(100));
    }, 50);
    const answers = await Promise.all(slow.map(({ until }) => until(/\r\n\r\n.*"error_code"/s, 20_000))).finally(() =>
      clearInterval(dripping),
    );
    for (const answer of answers) {
      expect(answer).toMatch(/^HTTP\/1.1 408 /);
      expect(answer).toContain("upload too slow");
    }
    const quick = await call("POST", "/upload", { content: "A".repeat(MIB) });
    expect([quick.status, await quick.json()]).toEqual([200, { bytes: (MIB * 3) / 4 }]);
  }, 30_000);

  it("that keeps the minimum rate may take long", async () => {
    const { time, server } = await timed();
    const { socket, until } = await rawClient(server.port);
    const content = 20 * MIB;
    socket.write(head(content + 14));
    for (let sent = 0; sent < content; sent += 2 * MIB) {
      await new Promise<void>((resolve) => socket.write("A".repeat(2 * MIB), () => resolve()));
      time.ahead_ms += 10_000;
    }
    socket.write('"}');
    expect(await until(/\r\n\r\n.*\}/s)).toContain(`{"bytes":${(content * 3) / 4}}`);
  }, 30_000);
});
