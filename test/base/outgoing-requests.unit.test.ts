/** The guard of the daemon's own requests, with real servers on loopback addresses that stand for the inside. */
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, describe, expect, it } from "vitest";
import { addressBytes } from "../../src/base/addresses.ts";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Outgoing } from "../../src/base/outgoing-requests.ts";
import { isSpecial, meantAddress } from "../../src/base/special-addresses.ts";

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
    // Private networks, those that carriers share, and what clouds have there.
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.1.1",
    "0xc0a80101",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "192.0.0.192",
    "168.63.129.16",
    "198.18.0.1",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.88.99.1",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fdff::1]",
    // Outside global unicast, or special within it.
    "[64:ff9b:1::1]",
    "[100::1]",
    "[::ffff:0:8.8.8.8]",
    "[5f00::1]",
    "[fec0::1]",
    "[2001::1]",
    "[2001:2::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    // What stands for such an address.
    "[::ffff:192.168.1.1]",
    "[::ffff:6464:64c8]",
    "[64:ff9b::192.168.0.1]",
    "[64:ff9b::a83f:8110]",
    "[2002:c0a8:101::1]",
    "[2002:6464:64c8::]",
    ...own,
  ])("does not go to %s", async (host) => {
    const { outgoing } = guard();
    await expect(outgoing.request(`http://${host}:9/`, LIMIT)).rejects.toEqual(refused);
  });

  it.each([
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "168.63.129.17",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "2001:200::1",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
    "::ffff:8.8.8.8",
  ])("may go to %s", (text) => {
    expect(isSpecial(meantAddress(addressBytes(text) ?? Buffer.alloc(4)))).toBe(false);
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

    // No other host leads to one that is listed for the request alone.
    const own = { ...LIMIT, listed: [`127.0.0.1:${inside.port}`] };
    target.location = `http://127.0.0.1:${inside.port}/`;
    expect(String((await one.request(`http://127.0.0.1:${inside.port}/`, own)).body)).toBe("secret");
    await expect(one.request(url, own)).rejects.toEqual(refused);
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

  describe("as a stream", () => {
    const STREAM = { ...LIMIT, silence_ms: 200, silence_bytes_min: 100 };
    /** Long enough for a busy machine, short enough to wait for. */
    const FLOWING = { ...STREAM, silence_ms: 1_500 };
    const read = async (body: AsyncIterable<Buffer>) => {
      const chunks: Buffer[] = [];
      for await (const chunk of body) chunks.push(chunk);
      return String(Buffer.concat(chunks));
    };
    const late = expect.objectContaining({ code: "TIMEOUT" });

    it("resolves with the headers, then yields the body as long as it flows", async () => {
      const { port } = await serve(async (_, response) => {
        response.writeHead(206, { "x-of": "test" }).write("first ");
        for (let i = 0; i < 4; i++) {
          await new Promise((resolve) => setTimeout(resolve, 500));
          response.write("x".repeat(100));
        }
        response.end(" last");
      });
      const stream = await guard(["127.0.0.1"]).outgoing.open(`http://127.0.0.1:${port}/`, FLOWING);
      expect([stream.status, stream.headers["x-of"]]).toEqual([206, "test"]);
      expect(await read(stream.body)).toBe(`first ${"x".repeat(400)} last`);
    });

    it("has a deadline for silence and drips, while the reader waits, and one for all of it", async () => {
      const { port, requests } = await serve(({ url }, response) => {
        if (url === "/mute") return;
        response.writeHead(200).write(Buffer.alloc(150));
        if (url === "/silent") return;
        const drip = setInterval(() => response.write(url === "/drips" ? "x" : Buffer.alloc(80)), 20);
        response.once("close", () => clearInterval(drip));
      });
      const { outgoing } = guard(["127.0.0.1"]);
      const url = (path: string) => `http://127.0.0.1:${port}/${path}`;
      await expect(outgoing.open(url("mute"), STREAM)).rejects.toEqual(late);
      for (const path of ["silent", "drips"]) {
        const { body } = await outgoing.open(url(path), STREAM);
        await expect(read(body)).rejects.toEqual(late);
      }
      const began_ms = performance.now();
      const { body } = await outgoing.open(url("flows"), { ...STREAM, timeout_ms: 700, bytes_max: 1e9 });
      await expect(read(body)).rejects.toEqual(late);
      expect(performance.now() - began_ms).toBeGreaterThan(600);
      expect(requests).toHaveLength(4);
    });

    it("waits for a slow reader without counting that as silence, and does not read ahead of it", async () => {
      const large = Buffer.alloc(20_000_000);
      const { port } = await serve((_, response) => response.end(large));
      const { outgoing } = guard(["127.0.0.1"]);
      const { body } = await outgoing.open(`http://127.0.0.1:${port}/`, { ...FLOWING, bytes_max: large.length });
      let bytes = 0;
      let pauses = 0;
      for await (const chunk of body) {
        bytes += chunk.length;
        if (++pauses <= 3) await new Promise((resolve) => setTimeout(resolve, 700));
      }
      expect(bytes).toBe(large.length);
    });

    it("is bounded, refuses forbidden hosts and redirects, and takes only common headers to another origin", async () => {
      const other = await serve((_, response) => response.end("other"));
      const target = { location: "" };
      const { port } = await serve(({ url }, response) => {
        if (url === "/redirect") response.writeHead(307, { location: target.location }).end("ignored");
        else if (url === "/declared") response.end(Buffer.alloc(5_000));
        else response.writeHead(200, { "transfer-encoding": "chunked" }).end(Buffer.alloc(5_000));
      });
      const { outgoing } = guard([`127.0.0.1:${port}`]);
      const url = `http://127.0.0.1:${port}`;
      await expect(outgoing.open(`${url}/declared`, FLOWING)).rejects.toThrow(/too large/);
      const { body } = await outgoing.open(`${url}/undeclared`, FLOWING);
      await expect(read(body)).rejects.toThrow(/too large/);
      target.location = `http://127.0.0.1:${other.port}/`;
      await expect(outgoing.open(`${url}/redirect`, FLOWING)).rejects.toEqual(refused);
      await expect(outgoing.open("http://[::1]:9/", FLOWING)).rejects.toEqual(refused);
      expect(other.requests).toEqual([]);
      const options = {
        ...FLOWING,
        headers: { authorization: "secret" },
        common_headers: { range: "bytes=1-" },
        listed: [`127.0.0.1:${port}`, `127.0.0.1:${other.port}`],
      };
      const led = await outgoing.open(`${url}/redirect`, options);
      expect(await read(led.body)).toBe("other");
      expect(other.requests[0]?.headers).toMatchObject({ range: "bytes=1-" });
      expect(other.requests[0]?.headers.authorization).toBeUndefined();
    });

    it("gives its connection and its place back at its end, at `close`, when aborted, and when it breaks", async () => {
      const connections = new Set<unknown>();
      const { port } = await serve(({ url, socket }, response) => {
        connections.add(socket);
        socket.once("close", () => connections.delete(socket));
        response.writeHead(200).write("some");
        if (url === "/end") response.end();
        if (url === "/break") setTimeout(() => socket.destroy(), 20);
      });
      const { outgoing } = guard(["127.0.0.1"]);
      const over = new AbortController();
      const open = (path: string) =>
        outgoing.open(`http://127.0.0.1:${port}/${path}`, { ...FLOWING, silence_ms: 5_000, signal: over.signal });
      const all = await Promise.all(Array.from({ length: LIMITS.outgoing_streams_max }, () => open("open")));
      await expect(open("more")).rejects.toMatchObject({ code: "CAPACITY_FULL" });
      all[0]?.close();
      all[0]?.close();
      expect(await read((await open("end")).body)).toBe("some");
      await expect(read((await open("break")).body)).rejects.toThrow();
      const left = await open("open");
      for await (const _ of left.body) break;
      const aborted = await open("open");
      const reading = read(aborted.body);
      over.abort(new Error("enough"));
      await expect(reading).rejects.toThrow("enough");
      await expect.poll(() => connections.size).toBe(0);
      const again = guard(["127.0.0.1"]).outgoing;
      expect(await read((await again.open(`http://127.0.0.1:${port}/end`, FLOWING)).body)).toBe("some");
      await expect(open("end")).rejects.toThrow("enough");
    });
  });
});
