/** Bytes that come in pieces: what is held of them, and how small the pieces of a body may be. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ChunkList } from "../../src/http/chunk-list.ts";
import { route } from "../../src/http/route.ts";
import { KEY, rawClient, serving } from "./test-server.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

describe("pieces", () => {
  it("hold the received bytes in order, whatever the sizes of the chunks", () => {
    for (const sizes of [
      [],
      [1],
      [5000],
      [1, 1, 1],
      [1, 4096, 1, 20_000, 3],
      [4095, 4095, 4095, 4095, 4095, 1, 9000],
    ]) {
      const sent = sizes.map((size, i) => Buffer.alloc(size, i + 1));
      const pieces = new ChunkList();
      for (const piece of sent) pieces.add(piece);
      expect(pieces.bytes().equals(Buffer.concat(sent))).toBe(true);
      pieces.clear();
      expect(pieces.bytes()).toHaveLength(0);
    }
  });

  it("keep a single one as it came, and few Buffers of many small ones", () => {
    const [one, many] = [new ChunkList(), new ChunkList()];
    const piece = Buffer.from("{}");
    one.add(piece);
    expect(one.bytes()).toBe(piece);
    for (let i = 0; i < MIB; i++) many.add(piece.subarray(0, 1));
    expect(many.count).toBeLessThan(100);
    expect(many.bytes()).toHaveLength(MIB);
  });
});

describe("a listener", () => {
  const serve = serving();

  let largest = 0;
  const measures = route({
    method: "POST",
    path: "/measures",
    auth: "tenant",
    operation: "tested",
    summary: "Notes what is held when the body is there.",
    body: z.object({ text: z.string() }),
    handler: () => {
      largest = Math.max(largest, process.memoryUsage().rss);
      return {};
    },
  });
  const head = (key: string) =>
    `POST /measures HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{"text":"x"\r\n`;

  it("takes little more memory for a body in small chunks than the body has", async () => {
    const { server } = await serve([measures]);
    const client = await rawClient(server.port);
    const before = process.memoryUsage().rss;
    client.socket.write(head(KEY));
    for (let i = 0; i < 50; i++) client.socket.write(`18\r\n${" ".repeat(24)}\r\n`.repeat(6_000));
    client.socket.write("1\r\n}\r\n0\r\n\r\n");
    expect(await client.until(/\r\n\r\n/, 50_000)).toContain("HTTP/1.1 200");
    expect(largest - before).toBeLessThan(100 * MIB);
  }, 60_000);

  it("answers others all along while a body of 2 MiB comes in small chunks", async () => {
    const { server, call } = await serve([measures]);
    const client = await rawClient(server.port);
    const state = { isSent: false };
    client.socket.write(head(KEY));
    client.socket.write(`${`11\r\n${" ".repeat(17)}\r\n`.repeat((2 * MIB) / 17)}1\r\n}\r\n0\r\n\r\n`);
    const sent = client.until(/\r\n\r\n/, 50_000).finally(() => {
      state.isSent = true;
    });
    let answered_count = 0;
    for (; !state.isSent; answered_count++) {
      expect((await call("POST", "/measures", { text: "x" })).status).toBe(200);
    }
    expect(await sent).toContain("HTTP/1.1 200");
    expect(answered_count).toBeGreaterThan(20);
  }, 60_000);

  it("ends the connection of a body in chunks of a byte", async () => {
    const { server } = await serve([measures]);
    const client = await rawClient(server.port);
    client.socket.write(head(KEY));
    const sending = setInterval(() => client.socket.write("1\r\n \r\n".repeat(1_000)), 1);
    expect(await client.closed().finally(() => clearInterval(sending))).toBe("");
  });
});
