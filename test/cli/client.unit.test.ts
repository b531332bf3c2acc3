/** What the client of the API makes of answers that are late, broken off, or not hearth's. */
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { ApiError, Client, Unreachable } from "../../src/client/client.ts";

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
    await expect(late.request("GET /health")).rejects.toThrow(/no answer from http:\/\/127.0.0.1:\d+ in time/);
    const broken = await against((response) => response.write("{", () => response.destroy()));
    await expect(broken.request("GET /health")).rejects.toThrow(Unreachable);
    const nobody = new Client({ url: "http://127.0.0.1:1", key: null });
    await expect(nobody.request("GET /health")).rejects.toThrow("nothing answers at http://127.0.0.1:1");
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
});
