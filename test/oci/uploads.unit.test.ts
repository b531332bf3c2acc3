/** Uploads against registries that a test plays: what is sent where, with which credentials, and what ends an attempt. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Outgoing } from "../../src/base/outgoing-requests.ts";
import type { RegistryLimits } from "../../src/oci/registry/authorization.ts";
import { RegistryHosts } from "../../src/oci/registry/hosts.ts";
import { type Blob, RegistryUploads } from "../../src/oci/registry/uploads.ts";
import { sha256 } from "../support/registry.ts";

type Play = (request: IncomingMessage, response: ServerResponse, body: () => Promise<Buffer>) => void | Promise<void>;
const bytes = Buffer.alloc(300_000, "layer");
const blob: Blob = {
  digest: sha256(bytes),
  size_bytes: bytes.length,
  open: async function* () {
    for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
  },
};
const FAST = { registry_pause_ms: 1, registry_pause_ms_max: 5 };
const credentials = { username: "ada", password: "s3cret" };
const BASIC = `Basic ${Buffer.from("ada:s3cret").toString("base64")}`;

describe("an upload", () => {
  const servers: Server[] = [];
  afterEach(() => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections();
      server.close();
    }
  });

  async function serve(play: Play) {
    const asked: { method: string; url: string; authorization: string | undefined; length: string | undefined }[] = [];
    const server = createServer((request, response) => {
      const { method = "", url = "", headers } = request;
      asked.push({ method, url, authorization: headers.authorization, length: headers["content-length"] });
      const body = async () => {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk);
        return Buffer.concat(chunks);
      };
      Promise.resolve(play(request, response, body)).catch(() => response.destroy());
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return { asked, host: `127.0.0.1:${(server.address() as AddressInfo).port}` };
  }

  function uploadsTo(host: string, limits: Partial<RegistryLimits> = {}, allowed: readonly string[] = []) {
    const hosts = new RegistryHosts({ mirrors: new Map([[host, "mirror.invalid"]]), insecure: [host] });
    return new RegistryUploads({
      clock: systemClock,
      outgoing: new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed }),
      hosts,
      host: hosts.withoutMirror(host, false),
      repository: "team/app",
      credentials,
      limits: { ...LIMITS, ...FAST, ...limits },
      signal: new AbortController().signal,
    });
  }

  const send = (uploads: RegistryUploads) => uploads.blob(blob, "layer 1", () => {});
  const challenge = (response: ServerResponse) => response.writeHead(401, { "www-authenticate": "Basic" }).end();

  it("asks for the blob, answers the challenge, and sends it in one piece where the registry says", async () => {
    const got: Buffer[] = [];
    const { host, asked } = await serve(async ({ method, headers }, response, body) => {
      if (headers.authorization === undefined) challenge(response);
      else if (method === "HEAD") response.writeHead(404).end();
      else if (method === "POST") response.writeHead(202, { location: "/somewhere?state=1%2F2" }).end();
      else {
        got.push(await body());
        response.writeHead(201).end();
      }
    });
    const sent: number[] = [];
    expect(await uploadsTo(host).blob(blob, "layer 1", (count) => sent.push(count))).toBe(bytes.length);
    expect(got.map((one) => one.equals(bytes))).toEqual([true]);
    expect(sent.at(-1)).toBe(bytes.length);
    const digest = encodeURIComponent(blob.digest);
    expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual([
      `HEAD /v2/team/app/blobs/${blob.digest}`,
      `HEAD /v2/team/app/blobs/${blob.digest}`,
      "POST /v2/team/app/blobs/uploads/",
      `PUT /somewhere?state=1%2F2&digest=${digest}`,
    ]);
    expect(asked.slice(1).map(({ authorization }) => authorization)).toEqual([BASIC, BASIC, BASIC]);
    expect(asked[3]?.length).toBe(String(bytes.length));
  });

  it("sends nothing of a blob that the registry has, with its size", async () => {
    const state = { length: String(bytes.length) };
    const { host, asked } = await serve(({ method }, response) => {
      if (method === "HEAD") response.writeHead(200, { "content-length": state.length }).end();
      else response.writeHead(500).end();
    });
    expect(await send(uploadsTo(host))).toBe(0);
    expect(asked).toHaveLength(1);
    state.length = "7";
    await expect(send(uploadsTo(host))).rejects.toMatchObject({ code: "REGISTRY_FAILED" });
  });

  it("gives a place at another host the bytes without credentials, if the guard lets it reach that host", async () => {
    const other = await serve(async (_, response, body) => {
      await body();
      response.writeHead(201).end();
    });
    const { host } = await serve(({ method, headers }, response) => {
      if (headers.authorization === undefined) challenge(response);
      else if (method === "HEAD") response.writeHead(404).end();
      else response.writeHead(202, { location: `http://${other.host}/put` }).end();
    });
    await expect(send(uploadsTo(host))).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(other.asked).toEqual([]);
    expect(await send(uploadsTo(host, {}, [other.host]))).toBe(bytes.length);
    expect(other.asked.map(({ method, authorization }) => [method, authorization])).toEqual([["PUT", undefined]]);
  });

  it.each(["ftp://x.test/a", "http://u:p@x.test/a", "http://[", undefined])(
    "refuses the place %s",
    async (location) => {
      const { host } = await serve(({ method }, response) => {
        if (method === "HEAD") response.writeHead(404).end();
        else response.writeHead(202, location === undefined ? {} : { location }).end();
      });
      await expect(send(uploadsTo(host))).rejects.toMatchObject({ code: "REGISTRY_FAILED", retryable: false });
    },
  );

  it("is repeated from the beginning of the blob a bounded number of times", async () => {
    const state = { failures: 2, puts: 0 };
    const { host, asked } = await serve(async ({ method }, response, body) => {
      if (method === "HEAD") response.writeHead(404).end();
      else if (method === "POST") response.writeHead(202, { location: "/put" }).end();
      else if (state.puts++ < state.failures) response.destroy();
      else {
        const isWhole = (await body()).equals(bytes);
        response.writeHead(isWhole ? 201 : 400).end();
      }
    });
    expect(await send(uploadsTo(host))).toBe(bytes.length);
    expect(asked.filter(({ method }) => method === "PUT")).toHaveLength(3);
    state.failures = Number.POSITIVE_INFINITY;
    await expect(send(uploadsTo(host))).rejects.toMatchObject({ code: "REGISTRY_FAILED" });
    expect(asked.filter(({ method }) => method === "PUT")).toHaveLength(3 + LIMITS.registry_attempts_max);
  });

  it("ends at a registry that does not answer after the blob, or takes too little of it", async () => {
    const { host } = await serve(async ({ method }, response, body) => {
      if (method === "HEAD") response.writeHead(404).end();
      else if (method === "POST") response.writeHead(202, { location: "/put" }).end();
      else await body();
    });
    const silent = send(uploadsTo(host, { registry_commit_ms: 50 }));
    await expect(silent).rejects.toMatchObject({ code: "TIMEOUT", message: expect.stringContaining("stalled") });
    const endless: Blob = {
      ...blob,
      size_bytes: 1024 ** 3,
      open: async function* () {
        for (;;) yield Buffer.alloc(1024 * 1024);
      },
    };
    const deaf = await serve(({ method }, response) => {
      if (method === "HEAD") response.writeHead(404).end();
      else if (method === "POST") response.writeHead(202, { location: "/put" }).end();
    });
    const limits = { registry_silence_ms: 100, registry_silence_bytes_min: 64 * 1024 * 1024 };
    const stalled = uploadsTo(deaf.host, limits).blob(endless, "layer 1", () => {});
    await expect(stalled).rejects.toMatchObject({ code: "TIMEOUT" });
  });

  it("asks a token realm for a token that may push, and for nothing else", async () => {
    const realm = { host: "" };
    const { host, asked } = await serve(({ method, url = "", headers }, response) => {
      if (url.startsWith("/token")) response.writeHead(200).end(JSON.stringify({ token: "t0ken" }));
      else if (headers.authorization !== "Bearer t0ken") {
        const scope = "repository:team/app:pull,push,delete";
        response
          .writeHead(401, { "www-authenticate": `Bearer realm="http://${realm.host}/token",scope="${scope}"` })
          .end();
      } else response.writeHead(method === "PUT" ? 201 : 500).end();
    });
    realm.host = host;
    await uploadsTo(host).manifest("1", Buffer.from("{}"), "application/x");
    const token = asked.find(({ url }) => url.startsWith("/token"));
    expect(new URL(`http://x${token?.url}`).searchParams.get("scope")).toBe("repository:team/app:pull,push");
    expect(token?.authorization).toBe(BASIC);
  });
});
