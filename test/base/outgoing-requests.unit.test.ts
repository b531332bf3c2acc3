/** The guard of the daemon's own requests, with real servers on loopback addresses that stand for the inside. */
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Outgoing } from "../../src/base/outgoing-requests.ts";

const refused = expect.objectContaining({ code: "INVALID_ARGUMENT" });
const LIMIT = { timeout_ms: 5_000, bytes_max: 1_000 };
const own = Object.values(networkInterfaces())
  .flatMap((all) => all ?? [])
  .map(({ address, family }) => (family === "IPv6" ? `[${address}]` : address));

describe("an outgoing request", () => {
  const servers: Server[] = [];
  afterEach(() => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections();
      server.close();
    }
  });
  const serve = async (answer: RequestListener, host = "127.0.0.1") => {
    const requests: IncomingMessage[] = [];
    const server = createServer((request, response) => {
      requests.push(request);
      answer(request, response);
    });
    servers.push(server);
    await new Promise((resolve) => server.listen(0, host, () => resolve(null)));
    return { requests, port: (server.address() as AddressInfo).port };
  };
  const guard = (allowed: readonly string[] = [], names: Readonly<Record<string, readonly string[]>> = {}) => {
    const asked: string[] = [];
    const resolve = async (host: string) => {
      asked.push(host);
      return names[host] ?? [];
    };
    return { asked, outgoing: new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed, resolve }) };
  };

  it.each([
    "127.0.0.1",
    "127.9.9.9",
    "0x7f.1",
    "2130706433",
    "0177.0.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "10.42.0.1",
    "10.42.200.7",
    "224.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:a2a:1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::10.42.3.4]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[febf::1]",
    "[ff02::1]",
    ...own,
  ])("does not go to %s", async (host) => {
    const { outgoing } = guard();
    await expect(outgoing.request(`http://${host}:9/`, LIMIT)).rejects.toEqual(refused);
  });

  it("does not go to a name with a forbidden address, also beside others, and does not tell the address", async () => {
    const names = { "rebound.test": ["203.0.113.7", "127.0.0.1"], "meta.test": ["169.254.169.254"] };
    const { outgoing } = guard([], names);
    for (const name of [...Object.keys(names), "nowhere.test"]) {
      const failure = await outgoing.request(`http://${name}/`, LIMIT).catch((error: Error) => error);
      expect(failure).toEqual(refused);
      expect(JSON.stringify(failure)).not.toMatch(/127\.0\.0\.1|169\.254/);
    }
    const system = new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed: [] });
    await expect(system.request("http://localhost:9/", LIMIT)).rejects.toEqual(refused);
  });

  it("connects to the address that was checked, whatever the name server answers next", async () => {
    const first = await serve((_, response) => response.end("first"), "127.0.0.2");
    const answers = [["127.0.0.2"], ["127.0.0.3"]];
    const asked: string[] = [];
    const resolve = async (host: string) => {
      asked.push(host);
      return answers[asked.length - 1] ?? [];
    };
    const allowed = [`once.test:${first.port}`];
    const outgoing = new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed, resolve });
    const { status, body } = await outgoing.request(`http://once.test:${first.port}/`, LIMIT);
    expect([status, String(body), asked]).toEqual([200, "first", ["once.test"]]);
    expect(first.requests[0]?.headers.host).toBe(`once.test:${first.port}`);
  });

  it("goes to a host that the operator lists, on the listed port or on all", async () => {
    const { port } = await serve((_, response) => response.end("listed"));
    const url = `http://127.0.0.1:${port}/`;
    for (const allowed of [["127.0.0.1"], [`127.0.0.1:${port}`]]) {
      expect(String((await guard(allowed).outgoing.request(url, LIMIT)).body)).toBe("listed");
    }
    await expect(guard([`127.0.0.1:${port + 1}`]).outgoing.request(url, LIMIT)).rejects.toEqual(refused);
    await expect(guard(["127.0.0.2"]).outgoing.request(url, LIMIT)).rejects.toEqual(refused);
  });

  it("checks redirects like the first host, and takes no headers to another origin", async () => {
    const inside = await serve((_, response) => response.end("secret"));
    const target = { location: "" };
    const listed = await serve(({ url }, response) => {
      if (url === "/end") response.end("end");
      else response.writeHead(302, { location: target.location }).end();
    });
    const url = `http://127.0.0.1:${listed.port}/`;
    const one = guard([`127.0.0.1:${listed.port}`]).outgoing;
    const wrong = [`http://127.0.0.1:${inside.port}/`, "http://169.254.169.254/", "file:///etc/passwd", "//[::1]:9/"];
    for (const location of wrong) {
      target.location = location;
      await expect(one.request(url, LIMIT)).rejects.toEqual(refused);
    }
    expect(inside.requests).toEqual([]);
    target.location = "/end";
    expect(String((await one.request(url, LIMIT)).body)).toBe("end");
    // A request that is not repeatable is not sent again.
    expect((await one.request(url, { ...LIMIT, method: "POST", body: "x" })).status).toBe(302);
    target.location = "/";
    const before = listed.requests.length;
    await expect(one.request(url, LIMIT)).rejects.toThrow(/too many redirects/);
    expect(listed.requests.length - before).toBe(LIMITS.outgoing_redirects_max + 1);

    target.location = `http://127.0.0.1:${inside.port}/`;
    const both = guard(["127.0.0.1"]).outgoing;
    await both.request(url, { ...LIMIT, headers: { authorization: "Bearer secret" } });
    expect(listed.requests.at(-1)?.headers.authorization).toBe("Bearer secret");
    expect(inside.requests.at(-1)?.headers.authorization).toBeUndefined();
  });

  it("has a bound for its answer and a deadline for all of it, name server included", async () => {
    const { port } = await serve(({ url }, response) => {
      response.writeHead(200);
      response.write(Buffer.alloc(url === "/large" ? 5_000 : 10));
    });
    const { outgoing } = guard(["127.0.0.1"]);
    await expect(outgoing.request(`http://127.0.0.1:${port}/large`, LIMIT)).rejects.toThrow(/too large/);
    const late = expect.objectContaining({ code: "TIMEOUT" });
    const short = { ...LIMIT, timeout_ms: 50 };
    await expect(outgoing.request(`http://127.0.0.1:${port}/stalls`, short)).rejects.toEqual(late);
    const resolve = () => new Promise<readonly string[]>(() => {});
    const mute = new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed: [], resolve });
    const all = Array.from({ length: LIMITS.outgoing_requests_max }, () => mute.request("http://a.test/", short));
    await expect(mute.request("http://a.test/", short)).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    for (const one of await Promise.allSettled(all)) expect(one).toMatchObject({ reason: late });
  });
});
