/** Uploads in base64 that are spooled: their senders keep a minimum rate while they hold a place. */
import { mkdtempSync, rmSync } from "node:fs";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { temporaryFiles } from "../../src/base/reservations.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { route } from "../../src/http/route.ts";
import { Spools } from "../../src/http/spool.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
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

describe("the files of uploads in base64", () => {
  it("have no more room than the temporary files of their tenant, together, and give it back", async () => {
    const directory = mkdtempSync("/var/tmp/hearth-spools-");
    const share = new MemoryBudget().share();
    try {
      // A quarter of the disk: 4 MiB.
      const temporary = temporaryFiles(nodeQuotas(), 16);
      const spools = new Spools({ directory, temporary, ids: randomIds(), clock: systemClock });
      const read = (mib: number) => {
        const content = Buffer.alloc(mib * MIB).toString("base64");
        const json = Buffer.from(JSON.stringify({ content }));
        const pieces = Array.from({ length: Math.ceil(json.length / MIB) }, (_, i) => {
          return Buffer.from(json.subarray(i * MIB, (i + 1) * MIB));
        });
        return spools.read("t", Readable.from(pieces), "content", share);
      };
      const first = await read(3);
      expect(temporary.reservedBytes("t")).toBe(3 * MIB);
      await expect(read(2)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
      expect(temporary.reservedBytes("t")).toBe(3 * MIB);
      await first.spool.end();
      expect(temporary.reservedBytes("t")).toBe(0);
      await expect(read(5)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
      const second = await read(2);
      expect((await buffer(second.spool)).length).toBe(2 * MIB);
      expect(temporary.reservedBytes("t")).toBe(0);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
