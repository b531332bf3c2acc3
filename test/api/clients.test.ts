/** Many clients, and bad ones, at the port of a real daemon: what they hold is bounded, and given back when they go. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { rawClient } from "../http/test-server.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const place = { port: 0, id: "" };
const head = (line: string, more = "") => `${line} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\n${more}\r\n`;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" });
  place.port = Number(new URL(daemon.url).port);
  // A list of its records is as large as an answer may get.
  const handler = "head -c 1000000 /dev/zero | tr '\\0' x | tee /dev/stderr";
  place.id = (await daemon.deploy({ name: "large", handler })).id;
  for (let i = 0; i < 8; i++) await daemon.invoke("large");
});
afterAll(() => daemon.dispose());

/** Connections that the daemon has open, but those of this process's `fetch`, which come and go. */
function connections(): number {
  const port = place.port.toString(16).toUpperCase().padStart(4, "0");
  const inodes = new Set(
    readFileSync("/proc/net/tcp", "utf8")
      .split("\n")
      .map((line) => line.trim().split(/\s+/))
      .filter((cells) => cells[1]?.endsWith(`:${port}`) && cells[3] === "01")
      .map((cells) => `socket:[${cells[9]}]`),
  );
  return daemon.descriptors().filter((link) => inodes.has(link)).length;
}

const memoryMb = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${daemon.pid}/status`, "utf8"))?.[1]) / 1024;
const open = (count: number) => Promise.all(Array.from({ length: count }, () => rawClient(place.port)));

async function expectServing(): Promise<void> {
  expect((await daemon.call("GET", "/api/functions/pool/stats")).status).toBe(200);
  expect(await daemon.invoke("large")).toMatchObject({ status: "success" });
}

describe("a daemon", () => {
  it("holds 1,000 idle connections and serves beside them, and has none when they are gone", async () => {
    const idle = await open(1_000);
    await eventually("all are accepted", () => connections() >= 1_000);
    for (let i = 0; i < 20; i++) await expectServing();
    // Each may still be used.
    for (const { socket } of idle) socket.write(head("GET /health"));
    for (const client of idle) await client.until(/"ok"/);
    for (const { socket } of idle) socket.destroy();
    await eventually("none is left", () => connections() < 50);
  });

  it("forgets clients that come and go at once, in the middle of a request or before its answer", async () => {
    const half = `${head("POST /api/functions", "Content-Length: 1000000\r\n")}{"name":"`;
    const call = '{"payload":"x"}';
    const asked = [
      "",
      "GET /hea",
      half + "x".repeat(50_000),
      head("POST /api/functions/invoke/large", `Content-Length: ${call.length}\r\n`) + call,
      head(`GET /api/functions/${place.id}/versions`),
    ];
    for (let round = 0; round < 20; round++) {
      const clients = await open(50);
      for (const [i, { socket }] of clients.entries())
        socket.write(asked[i % asked.length] ?? "", () => socket.destroy());
      await Promise.all(clients.map((client) => client.closed()));
    }
    await eventually("none is left", () => connections() < 50);
    await eventually("the calls of those who left are over", async () => {
      const { body } = await daemon.call("GET", "/api/functions/pool/stats");
      return body.busy_count === 0 && body.queued === 0;
    });
    await expectServing();
    expect((await daemon.call("GET", "/api/functions?limit=1000")).body.functions).toHaveLength(1);
    expect(daemon.output).not.toMatch(/"level":("error"|50)/);
  });

  it("has only so much made for clients that ask for large answers and do not read them", async () => {
    const before_mb = memoryMb();
    const readers = await open(20);
    for (const { socket } of readers) socket.pause();
    for (const { socket } of readers) socket.write(head(`GET /api/functions/${place.id}/invocations`));
    // 20 answers of 16 MB would be 320; what may be held is 256 MiB, of which large ones get three quarters.
    const refused = await eventually("it refuses more", async () => {
      const answer = await fetch(`${daemon.url}/api/functions/${place.id}/invocations`, {
        headers: { "x-api-key": KEY },
      });
      if (answer.status === 503) return answer;
      await answer.body?.cancel();
      return null;
    });
    expect(await refused.json()).toMatchObject({ error_code: "CAPACITY_FULL" });
    expect(memoryMb()).toBeLessThan(before_mb + 700);
    await expectServing();
    for (const { socket } of readers) socket.destroy();
    await eventually("there is room again", async () => {
      const { status } = await daemon.call("GET", `/api/functions/${place.id}/invocations`);
      return status === 200;
    });
  });

  it("lets no more requests of a tenant in over many connections than over one", async () => {
    const { tenant_id } = (
      await daemon.call("POST", "/api/tenants", { name: "hasty", limits: { requests_per_second: 5 } })
    ).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
    const { access_token } = (await daemon.call("POST", "/api/auth/token", {}, { "x-api-key": key })).body;
    const clients = await open(300);
    const begun_ms = performance.now();
    for (const [i, { socket }] of clients.entries()) {
      const credential = i % 2 === 0 ? `X-Api-Key: ${key}` : `Authorization: Bearer ${access_token}`;
      socket.write(`GET /api/functions HTTP/1.1\r\nHost: x\r\n${credential}\r\n\r\n`);
    }
    const texts = await Promise.all(clients.map((client) => client.until(/\r\n\r\n/)));
    // However long this machine took for them.
    const run_in = ((performance.now() - begun_ms) / 1000) * 5;
    const served = texts.filter((text) => text.startsWith("HTTP/1.1 200 "));
    expect(served.length).toBeLessThanOrEqual(5 + run_in);
    const refused = texts.filter((text) => text.startsWith("HTTP/1.1 429 "));
    expect(refused.length).toBe(300 - served.length);
    for (const text of refused) expect(text).toMatch(/retry-after: \d/i);
    for (const { socket } of clients) socket.destroy();
  });
});
