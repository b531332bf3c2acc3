/** Published services under attack: hostile backends, hostile clients, other hosts, other tenants, more than may be. */
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { SERVICE_LIMITS } from "../../src/base/service-limits.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { ask, at, exchange, Publisher, type Response, tenantOf, tokenIn } from "../support/services.ts";

const daemon = new Daemon();
const own = new Publisher(daemon);
const urls = { web: "", hostile: "", socket: "" };
const services = { web: "", hostile: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await own.container("web");
  const web = await own.publish("web", { enable_websockets: true });
  const hostile = await own.publish("web", { name: "hostile", target_port: 9_090, enable_websockets: true });
  Object.assign(urls, { web: web.public_url, hostile: hostile.public_url, socket: web.websocket_url });
  Object.assign(services, { web: web.service_id, hostile: hostile.service_id });
});
afterAll(() => daemon.dispose());

const refusal = ({ status, text }: Response) => [status, JSON.parse(text).error_code];
const bad = (way: string) => ask(at(urls.hostile, `/${way}`));
const hostOf = (url: string) => new URL(url).host;
const search = (url: string) => new URL(url).search;
const memory = async () =>
  Number(/^hearth_process_resident_memory_bytes (\d+)$/m.exec((await daemon.call("GET", "/metrics")).body)?.[1]);
const active = async () =>
  Number(/^hearth_service_requests_active (\d+)$/m.exec((await daemon.call("GET", "/metrics")).body)?.[1]);

describe("a hostile container", () => {
  it("that answers with no HTTP, closes or floods headers costs a 502", async () => {
    const before = await memory();
    for (const way of ["garbage", "close", "headers", "continues", "smuggle", "upgrade", "status"]) {
      expect([way, ...refusal(await bad(way))]).toEqual([way, 502, "SERVICE_FAILED"]);
    }
    // Of thousands of headers within the bound on their size, Node's parser passes 2,000 on.
    const many = await bad("many-headers");
    expect([many.status, many.raw.length <= 4_100]).toEqual([200, true]);
    expect((await memory()) - before).toBeLessThan(200 * 1024 * 1024);
  });

  it("whose response ends early ends the client's connection", async () => {
    await expect(bad("close-early")).rejects.toThrow();
    await expect(bad("bad-chunk")).rejects.toThrow();
  });

  it("cannot put a response in front of the next request", async () => {
    for (let i = 0; i < 5; i++) expect((await bad("pair")).text).toBe("ok");
    expect((await bad("cookie")).text).toBe("");
  });

  it("sets no cookie for other hosts, and not that of the proxy", async () => {
    expect((await bad("cookie")).headers["set-cookie"]).toEqual(["a=1; Path=/"]);
  });

  it("that floods a body is read no faster than its client reads", async () => {
    const { hostname, port } = new URL(urls.hostile);
    const socket = connect(Number(port), hostname);
    socket.write(`GET /flood${search(urls.hostile)} HTTP/1.1\r\nHost: ${hostOf(urls.hostile)}\r\n\r\n`);
    await new Promise((resolve) => socket.once("readable", resolve));
    const before = await memory();
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect((await memory()) - before).toBeLessThan(64 * 1024 * 1024);
    socket.destroy();
    await eventually("its place is free", async () => (await active()) === 0);
  });

  it("that hangs loses its connection with its client, and with its service", async () => {
    const clients: Socket[] = [];
    const { hostname, port } = new URL(urls.hostile);
    for (const way of ["silent", "drip-headers"]) {
      const socket = connect(Number(port), hostname);
      socket.on("error", () => {});
      socket.write(`GET /${way}${search(urls.hostile)} HTTP/1.1\r\nHost: ${hostOf(urls.hostile)}\r\n\r\n`);
      clients.push(socket);
    }
    await eventually("both wait", async () => (await active()) === 2);
    clients[0]?.destroy();
    await eventually("one has ended", async () => (await active()) === 1);
    const ended = new Promise((resolve) => clients[1]?.once("close", resolve));
    clients[1]?.resume();
    await own.ok("POST", `/api/services/${services.hostile}/rotate`);
    await ended;
    await eventually("the other has ended", async () => (await active()) === 0);
    urls.hostile = (await own.ok("GET", `/api/services/${services.hostile}`)).public_url;
  });

  it("that accepts a WebSocket and hangs, or never answers the handshake, ends with its client", async () => {
    const deaf = new WebSocket(at(urls.socket, "/deaf"));
    await new Promise((resolve) => deaf.once("open", resolve));
    const hung = new WebSocket(at(urls.socket, "/hang"));
    hung.on("error", () => {});
    await eventually("both are in progress", async () => (await active()) === 2);
    deaf.terminate();
    hung.terminate();
    await eventually("both have ended", async () => (await active()) === 0);
  });
});

it("a container that publishes a port on all addresses has it on no address of a service, whose cookies reach all ports", async () => {
  const { ports } = await own.ok("POST", "/api/containers", {
    ...{ name: "neighbour", command: ["python3", "-m", "http.server", "9000"], memory_limit_mb: 256 },
    ports: [{ container_port: 9_000, host_address: "0.0.0.0" }],
  });
  const { host_port } = ports[0];
  const get = (host: string) =>
    exchange(`http://${host}:${host_port}`, "GET / HTTP/1.0\r\nCookie: hearth_service=secret\r\n\r\n", 3_000);
  await eventually("it serves", async () => (await get("127.0.0.1")).startsWith("HTTP/1.0 200"));
  expect(await get(new URL(urls.web).hostname)).toBe("");
  await own.ok("DELETE", "/api/containers/neighbour");
});

describe("a hostile client", () => {
  it("reaches no service under another host, such as a name that leads to its address", async () => {
    const path = `/${search(urls.web)}`;
    for (const host of [
      "evil.example",
      `evil.example:${new URL(urls.web).port}`,
      "127.0.0.1",
      "localhost",
      "",
      "a b",
      "[::1]",
    ]) {
      const answer = await exchange(urls.web, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      expect([host, answer.slice(0, 12)]).toEqual([host, "HTTP/1.1 404"]);
    }
    const twice = `GET ${path} HTTP/1.1\r\nHost: ${hostOf(urls.web)}\r\nHost: evil.example\r\nConnection: close\r\n\r\n`;
    expect(await exchange(urls.web, twice)).toMatch(/^HTTP\/1\.1 4/);
    const absolute = `GET http://evil.example${path} HTTP/1.1\r\nHost: ${hostOf(urls.web)}\r\nConnection: close\r\n\r\n`;
    expect(await exchange(urls.web, absolute)).toMatch(/^HTTP\/1\.1 400 /);
    const tunnel = `CONNECT ${hostOf(daemon.url)} HTTP/1.1\r\nHost: ${hostOf(urls.web)}\r\n\r\n`;
    expect(await exchange(urls.web, tunnel, 2_000)).not.toMatch(/^HTTP\/1\.1 2/);
  });

  it("cannot smuggle a second request", async () => {
    const head = `POST /${search(urls.web)} HTTP/1.1\r\nHost: ${hostOf(urls.web)}\r\n`;
    const both = `${head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n`;
    expect(await exchange(urls.web, both)).toMatch(/^HTTP\/1\.1 400 /);
    const folded = `${head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`;
    expect(await exchange(urls.web, folded)).toMatch(/^HTTP\/1\.1 400 /);
    const listed = `${head}Connection: content-length, host, close\r\nContent-Length: 3\r\n\r\nabc`;
    expect(await exchange(urls.web, listed)).toContain('"bytes":3');
  });

  it("is answered 401 without the right token and 429 after many wrong ones, while the right one is served", async () => {
    const wrong = (token: string) => ask(`${new URL(urls.web).origin}/?service_token=${token}`);
    expect(refusal(await ask(`${new URL(urls.web).origin}/`))).toEqual([401, "UNAUTHORIZED"]);
    const token = tokenIn(urls.web);
    const guesses = [
      "",
      "x",
      token.slice(0, -1),
      `${token}x`,
      token.toUpperCase(),
      tokenIn(urls.hostile),
      encodeURIComponent(`${token}\0`),
    ];
    for (const guess of guesses) expect(refusal(await wrong(guess))).toEqual([401, "UNAUTHORIZED"]);
    for (let i = guesses.length; i < SERVICE_LIMITS.service_wrong_tokens_max; i++) await wrong("x");
    const late = await wrong("x");
    expect([...refusal(late), late.headers["retry-after"]]).toEqual([429, "RATE_LIMITED", "60"]);
    expect((await ask(urls.web)).status).toBe(200);
    // A response to a browser names no way to sign in with a key of the daemon.
    expect((await wrong("x")).headers["www-authenticate"]).toBeUndefined();
  });

  it("cannot use a token of another tenant's service, nor reach the API of the daemon", async () => {
    const other = await tenantOf(daemon, "attacker");
    await other.container("web");
    const service = await other.publish("web");
    const foreign = `${new URL(urls.web).origin}/?service_token=${tokenIn(service.public_url)}`;
    expect((await ask(foreign)).status).toBeGreaterThanOrEqual(401);
    const path = `/api/containers${search(urls.web)}`;
    const answer = await ask(urls.web, { path, headers: { "x-api-key": other.key } });
    expect(JSON.parse(answer.text)).toMatchObject({ method: "GET", url: "/api/containers" });
  });

  it("that sends no end of headers, or none at all, is closed", async () => {
    const { hostname, port } = new URL(urls.web);
    const flood = `GET / HTTP/1.1\r\nHost: ${hostOf(urls.web)}\r\n${"x: y\r\n".repeat(20_000)}\r\n`;
    expect(await exchange(urls.web, flood)).toMatch(/^HTTP\/1\.1 431 /);
    const idle = connect(Number(port), hostname);
    idle.on("error", () => {});
    await new Promise((resolve) => idle.once("connect", resolve));
    idle.write("GET / HT");
    await new Promise((resolve) => idle.resume().once("close", resolve));
  }, 40_000);

  it("takes no more places than its tenant has", async () => {
    const other = await tenantOf(daemon, "crowd");
    await other.container("web");
    const service = await other.publish("web", { target_port: 9_090 });
    const { hostname, port } = new URL(service.public_url);
    const max = SERVICE_LIMITS.service_requests_per_tenant_max;
    const clients = Array.from({ length: max }, () => {
      const socket = connect(Number(port), hostname);
      socket.on("error", () => {});
      socket.write(`GET /silent${search(service.public_url)} HTTP/1.1\r\nHost: ${hostOf(service.public_url)}\r\n\r\n`);
      return socket;
    });
    await eventually("all wait", async () => (await active()) === max);
    expect(refusal(await ask(service.public_url))).toEqual([429, "CONCURRENCY_LIMIT"]);
    expect((await ask(urls.web)).status).toBe(200);
    for (const socket of clients) socket.destroy();
    await eventually("all places are free", async () => (await active()) === 0);
    expect((await ask(at(service.public_url, "/cookie"))).status).toBe(200);
  });
});

describe("a container that ends", () => {
  it("ends the requests to it, and no later request reaches another container at its address", async () => {
    const { container_id } = await own.container("brief");
    const service = await own.publish("brief", { name: "brief", enable_websockets: true });
    const socket = new WebSocket(at(service.websocket_url, "/deaf"));
    socket.on("error", () => {});
    await new Promise((resolve) => socket.once("open", resolve));
    const hanging = ask(at(service.public_url, "/big", { bytes: String(2 ** 40) })).catch(() => "ended");
    await eventually("both are in progress", async () => (await active()) === 2);
    const closed = new Promise((resolve) => socket.once("close", resolve));
    await own.ok("POST", `/api/containers/${container_id}/kill`);
    await closed;
    expect(await hanging).toBe("ended");
    await eventually("no place is taken", async () => (await active()) === 0);
    expect(refusal(await ask(service.public_url))).toEqual([503, "SERVICE_UNAVAILABLE"]);
    await own.ok("POST", `/api/containers/${container_id}/start?execution=sync`);
    await own.ready(service.service_id);
    expect((await ask(service.public_url)).status).toBe(200);
  });
});
