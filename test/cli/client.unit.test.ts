/** What the client of the API makes of answers that are late, broken off, or not hearth's. */
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { ApiError, Client, Unreachable } from "../../src/client/client.ts";
import { eventually } from "../support/daemon.ts";

const state: { server: Server | null } = { server: null };

afterEach(() => {
  state.server?.closeAllConnections();
  state.server?.close();
});

/** A client of a server that answers so. */
async function against(answer: (response: ServerResponse) => void, timeout_ms = 10_000): Promise<Client> {
  const server = createServer((_, response) => answer(response));
  state.server = server;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return new Client({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, key: "k", timeout_ms });
}

describe("the client", () => {
  it("puts an answer together that comes in pieces of characters", async () => {
    const bytes = Buffer.from(JSON.stringify({ status: "ok", uptime_seconds: 1, note: "日本" }));
    const client = await against((response) => {
      response.write(bytes.subarray(0, bytes.length - 4), () => response.end(bytes.subarray(bytes.length - 4)));
    });
    expect(await client.request("GET /health")).toMatchObject({ note: "日本" });
  });

  it("tells an answer that is late from none", async () => {
    const late = await against((response) => response.write("{"), 50);
    await expect(late.request("GET /health")).rejects.toThrow(/no response from http:\/\/127.0.0.1:\d+ in time/);
    const broken = await against((response) => response.write("{", () => response.destroy()));
    await expect(broken.request("GET /health")).rejects.toThrow(Unreachable);
    const nobody = new Client({ url: "http://127.0.0.1:1", key: null });
    await expect(nobody.request("GET /health")).rejects.toThrow("no daemon answers at http://127.0.0.1:1");
  });

  it("knows a refusal from an answer that is not hearth's", async () => {
    const refusal = { error: "no", error_code: "NOT_FOUND", request_id: "req_1" };
    const refused = await against((response) => response.writeHead(404).end(JSON.stringify(refusal)));
    await expect(refused.request("GET /health")).rejects.toMatchObject({ status: 404, body: refusal });
    const other = await against((response) => response.writeHead(502).end("<html>"));
    const error: ApiError = await other.request("GET /health").catch((thrown) => thrown);
    expect(error).toBeInstanceOf(ApiError);
    expect([error.status, error.body]).toEqual([502, null]);
  });

  it("ends with the signal that it is given", async () => {
    const client = await against(() => {});
    const given = new AbortController();
    const asked = client.request("GET /health", { signal: given.signal });
    given.abort();
    await expect(asked).rejects.toThrow(Unreachable);
  });

  it("hands an answer on as it comes, for longer than it waits for its head, and tells where it breaks off", async () => {
    const state: { response: ServerResponse | null } = { response: null };
    const client = await against((response) => {
      state.response = response;
      response.writeHead(200, { "content-type": "text/event-stream" }).write("one");
    }, 200);
    const { status, headers, pieces } = await client.open("GET /api/events", {});
    expect([status, headers["content-type"]]).toEqual([200, "text/event-stream"]);
    const seen = pieces[Symbol.asyncIterator]();
    expect(String((await seen.next()).value)).toBe("one");
    const begun = performance.now();
    await eventually("it has waited for longer", () => performance.now() - begun > 400);
    state.response?.write("two");
    expect(String((await seen.next()).value)).toBe("two");
    state.response?.destroy();
    await expect(seen.next()).rejects.toThrow();
    const refused = await against((response) => response.writeHead(403).end("{}"));
    await expect(refused.open("GET /api/events", {})).rejects.toMatchObject({ status: 403 });
  });

  it("sends bytes as they come, and takes the answer that comes before their end", async () => {
    const seen: { length: string | undefined; type: string | undefined; text: string }[] = [];
    const server = createServer(async (request, response) => {
      const one = { length: request.headers["content-length"], type: request.headers["content-type"], text: "" };
      if (request.headers["content-type"] === "text/refused") return response.writeHead(413).end("{}");
      for await (const chunk of request) one.text += chunk;
      seen.push(one);
      return response.end("{}");
    });
    state.server = server;
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const client = new Client({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, key: "k" });
    async function* pieces() {
      yield Buffer.from("one");
      yield Buffer.from("two");
    }
    const send = (content_type: string, bytes?: number) =>
      client.open("POST /api/functions", {
        upload: { content_type, pieces: pieces(), ...(bytes === undefined ? {} : { bytes }) },
      });
    await send("application/x-tar", 6);
    await send("application/x-tar");
    expect(seen).toEqual([
      { length: "6", type: "application/x-tar", text: "onetwo" },
      { length: undefined, type: "application/x-tar", text: "onetwo" },
    ]);
    await expect(send("text/refused")).rejects.toMatchObject({ status: 413 });
    async function* broken() {
      yield Buffer.from("one");
      throw new RangeError("the file has changed");
    }
    const upload = { content_type: "application/x-tar", pieces: broken() };
    await expect(client.request("POST /api/functions", { upload })).rejects.toThrow(RangeError);
    server.close();
    server.closeAllConnections();
    const gone = { content_type: "application/x-tar", pieces: pieces() };
    await expect(client.request("POST /api/functions", { upload: gone })).rejects.toThrow("no daemon answers");
  });
});
