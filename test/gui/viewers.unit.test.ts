/** Viewers of desktops over real WebSockets: who is let in, and the bounds of both sides. */
import { once } from "node:events";
import { afterEach, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { unknownCredential } from "../../src/base/caller.ts";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Backends } from "../../src/gui/backends.ts";
import { guiRoutes } from "../../src/gui/routes.ts";
import { Desktops } from "../../src/gui/service.ts";
import { serving } from "../http/test-server.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { eventually } from "../support/daemon.ts";
import { type Connection, FakeContainer, GREETING, SERVER_INIT, serverInit } from "../support/fake-backend.ts";

const serve = serving();
const sockets: WebSocket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.terminate();
});

/** Containers ctr_a and ctr_b of the tenant `default`, and ctr_plain without a desktop. */
async function made() {
  const container = new FakeContainer();
  container.behave();
  const clock = new HandClock();
  const held = async (tenant_id: string, id: string) => {
    if (tenant_id !== "default" || !/^ctr_(a|b|plain)$/.test(id)) throw new AppError("NOT_FOUND", "not found");
    const isPlain = id === "ctr_plain";
    return {
      id,
      image: isPlain ? "docker.io/library/alpine:3.20" : "localhost/hearth/prod-gui:1-2",
      release: isPlain ? null : "1-2",
    };
  };
  const begun = { count: 0 };
  const begin = async (_tenant_id: string, _id: string, wanted: { command: readonly string[]; timeout_ms: number }) => {
    begun.count++;
    return {
      request: {
        argv: wanted.command,
        environment: [],
        working_directory: "/",
        timeout_ms: wanted.timeout_ms,
        grace_ms: 0,
      },
      release: () => void begun.count--,
    };
  };
  const backends = new Backends({ containers: container.port, clock: systemClock });
  const desktops = new Desktops({
    containers: { held, row: held } as never,
    commands: { begin },
    engine: { containers: container.port } as never,
    backends,
    clock,
    ids: randomIds(),
  });
  const served = await serve(guiRoutes({ desktops, viewerPage: () => new Response("the viewer") }));
  const url = async (id = "ctr_a"): Promise<string> =>
    ((await (await served.call("GET", `/api/containers/${id}/gui-url`)).json()) as { gui_url: string }).gui_url;
  const address = (gui_url: string) =>
    `${served.server.url.replace("http", "ws")}${gui_url.replace("?", "websockify?")}`;
  const status = (gui_url: string) =>
    new Promise<number>((resolve, reject) => {
      const socket = new WebSocket(address(gui_url), "binary");
      socket.on("open", () => reject(new Error("let in")));
      socket.on("unexpected-response", (_, response) => resolve(response.statusCode ?? 0));
      socket.on("error", () => {});
    });
  return { container, clock, desktops, served, url, address, status, begun };
}

/** A client that keeps what it gets. */
async function view(address: string) {
  const socket = new WebSocket(address, "binary");
  sockets.push(socket);
  const got = { bytes: Buffer.alloc(0), code: 0, reason: "" };
  socket.on("message", (data: Buffer) => {
    got.bytes = Buffer.concat([got.bytes, data]).subarray(-1_000_000);
  });
  socket.on("close", (code, reason) => {
    got.code = code;
    got.reason = reason.toString();
  });
  await once(socket, "open");
  return { socket, got };
}

/** A client behind its handshake. */
async function connected(address: string) {
  const { socket, got } = await view(address);
  await eventually("the version", () => got.bytes.equals(GREETING));
  socket.send(GREETING);
  await eventually("the types", () => got.bytes.length === GREETING.length + 2);
  socket.send(Buffer.from([1]));
  await eventually("the result", () => got.bytes.length === GREETING.length + 6);
  expect([...got.bytes.subarray(GREETING.length)]).toEqual([1, 1, 0, 0, 0, 0]);
  got.bytes = Buffer.alloc(0);
  socket.send(Buffer.from([1]));
  return { socket, got };
}

const closed = (got: { code: number }) => eventually("it is closed", () => got.code !== 0);

/** The connection of the viewer: those before were checks. */
const serverOf = ({ connections }: FakeContainer): Connection => {
  const found = connections.at(-1);
  if (found === undefined) throw new Error("no connection");
  return found;
};

describe("a token", () => {
  it("opens the page and the viewer of its container", async () => {
    const { container, served, url, address } = await made();
    const gui_url = await url();
    expect(gui_url).toMatch(/^\/gui\/ctr_a\/\?gui_token=gt_[0-9a-f]{16}_[0-9a-f]{40}$/);
    expect(await (await served.fetch(gui_url)).text()).toBe("the viewer");
    const { socket, got } = await connected(address(gui_url));
    await eventually("the server's first message", () => got.bytes.equals(SERVER_INIT));
    socket.send(Buffer.from("input"));
    await eventually("input arrives", () => serverOf(container).text.toString().endsWith("input"));
    // It says nothing to the log of requests.
    expect(JSON.stringify(served.told)).not.toContain(gui_url.split("gui_token=")[1]);
  });

  it("has one refusal, whether it is guessed, of another container, malformed or expired", async () => {
    const { clock, served, url, status } = await made();
    const gui_url = await url();
    const [, token = ""] = gui_url.split("gui_token=");
    const guessed = token.replace(/.$/, (last) => (last === "0" ? "1" : "0"));
    const wrong = [
      `/gui/ctr_a/?gui_token=${guessed}`,
      `/gui/ctr_b/?gui_token=${token}`,
      `/gui/ctr_nobodys/?gui_token=${token}`,
      "/gui/ctr_a/?gui_token=",
      "/gui/ctr_a/?gui_token=gt_x",
      `/gui/ctr_a/?gui_token=${"a".repeat(5_000)}`,
    ];
    const refusals = new Set<string>();
    const refused = async (one: string) => {
      const answer = await served.fetch(one);
      const { request_id: _, ...body } = (await answer.json()) as Record<string, unknown>;
      refusals.add(JSON.stringify([answer.status, body]));
      expect(await status(one)).toBe(401);
    };
    for (const one of wrong) await refused(one);
    await clock.pass(LIMITS.gui_token_seconds * 1_000);
    await refused(gui_url);
    expect([...refusals]).toHaveLength(1);
    expect([...refusals][0]).toContain("UNAUTHORIZED");
    expect((await served.fetch("/gui/ctr_a/")).status).toBe(400);
  });

  it("stays valid while a viewer is open, and as long after it, for half a day in all", async () => {
    const { clock, served, url, address } = await made();
    const gui_url = await url();
    const { socket, got } = await connected(address(gui_url));
    await clock.pass(LIMITS.gui_token_seconds * 2_000);
    expect((await served.fetch(gui_url)).status).toBe(200);
    socket.close();
    await closed(got);
    await clock.pass(LIMITS.gui_token_seconds * 1_000 - 1);
    expect((await served.fetch(gui_url)).status).toBe(200);
    const again = await connected(address(gui_url));
    await clock.pass(LIMITS.gui_session_seconds_max * 1_000);
    await closed(again.got);
    expect([again.got.code, (await served.fetch(gui_url)).status]).toEqual([1000, 401]);
  });

  it("ends with the credential that it was made with, and its viewers too", async () => {
    const { desktops, served, address } = await made();
    const credential = { isGood: true };
    const recheck = () => (credential.isGood ? undefined : Promise.reject(unknownCredential()));
    const { gui_url } = await desktops.url("default", "ctr_a", recheck);
    const { got } = await connected(address(gui_url));
    credential.isGood = false;
    await closed(got);
    expect([got.code, (await served.fetch(gui_url)).status]).toEqual([1008, 401]);
    credential.isGood = true;
    expect((await served.fetch(gui_url)).status).toBe(401);
  });

  it("takes the place of the tenant's oldest beyond a bound", async () => {
    const { served, url } = await made();
    const first = await url();
    const second = await url();
    for (let i = 0; i < LIMITS.gui_tokens_per_tenant_max - 1; i++) await url();
    expect([(await served.fetch(first)).status, (await served.fetch(second)).status]).toEqual([401, 200]);
  });

  it("is made for desktops that answer alone", async () => {
    const { container, served } = await made();
    const asked = async (id: string) => {
      const answer = await served.call("GET", `/api/containers/${id}/gui-url`);
      return [answer.status, ((await answer.json()) as { error_code: string }).error_code];
    };
    expect(await asked("ctr_plain")).toEqual([400, "INVALID_ARGUMENT"]);
    expect(await asked("ctr_nobodys")).toEqual([404, "NOT_FOUND"]);
    container.serve = (connection) => connection.end();
    expect(await asked("ctr_a")).toEqual([503, "NOT_RESPONDING"]);
  });
});

describe("a viewer", () => {
  it.each([
    ["another version", [Buffer.from("RFB 003.003\n")]],
    ["no RFB", [Buffer.from("GET / HTTP/1.1\r\n\r\n")]],
    ["another security type", [GREETING, Buffer.from([2])]],
    ["a megabyte of nothing", [Buffer.alloc(LIMITS.socket_message_bytes_max)]],
    ["a text message", ["RFB 003.008\n"]],
  ] as const)("that sends %s is disconnected with 1003", async (_, messages) => {
    const { container, url, address, begun } = await made();
    const { socket, got } = await view(address(await url()));
    for (const message of messages) socket.send(message);
    await closed(got);
    expect(got.code).toBe(1003);
    expect([serverOf(container).isClosed, begun.count]).toEqual([true, 0]);
    // Nothing of it came to the server.
    expect(serverOf(container).text).toEqual(Buffer.concat([GREETING, Buffer.from([1])]));
  });

  it("that sends a message above the bound, or a frame that is none, is disconnected", async () => {
    const { container, url, address, begun } = await made();
    const large = await view(address(await url()));
    large.socket.send(Buffer.alloc(LIMITS.socket_message_bytes_max + 1));
    await closed(large.got);
    expect(large.got.code).toBe(1009);
    const malformed = await view(address(await url()));
    // A reserved operation code.
    (malformed.socket as unknown as { _socket: { write(bytes: Buffer): void } })._socket.write(
      Buffer.from([0x8f, 0x80, 0, 0, 0, 0]),
    );
    await closed(malformed.got);
    expect([1002, 1006]).toContain(malformed.got.code);
    expect([serverOf(container).isClosed, begun.count]).toEqual([true, 0]);
  });

  it("that makes no handshake is disconnected after a deadline", async () => {
    const { clock, url, address } = await made();
    const { got } = await view(address(await url()));
    await clock.pass(LIMITS.gui_handshake_ms);
    await closed(got);
    expect(got).toMatchObject({ code: 1003, reason: "no RFB handshake in time" });
  });

  it.each([
    ["no width", serverInit(0, 800, "desktop")],
    ["a height beyond every canvas", serverInit(1_280, 65_535, "desktop")],
    ["a name of gigabytes", serverInit(1_280, 800, "desktop", 0xffff_ffff)],
  ])("gets nothing of a desktop with %s", async (_, init) => {
    const { container, url, address } = await made();
    container.behave(init);
    const { got } = await connected(address(await url()));
    await closed(got);
    expect([got.code, got.bytes.length]).toEqual([1011, 0]);
  });

  it("that does not read stops its own desktop, and nothing piles up", async () => {
    const { container, url, address } = await made();
    const { socket, got } = await connected(address(await url()));
    await eventually("the server's first message", () => got.bytes.length > 0);
    socket.pause();
    const server = serverOf(container);
    const sent = { bytes: 0 };
    while (sent.bytes < 64 * 1024 * 1024 && server.send(Buffer.alloc(65_536))) sent.bytes += 65_536;
    expect(sent.bytes).toBeLessThan(8 * 1024 * 1024);
    expect(server.isPaused).toBe(true);
    socket.resume();
    await eventually("it is read again", () => !server.isPaused);
  });

  it("loses a desktop that accepts no input, after a deadline", async () => {
    const { container, clock, url, address } = await made();
    const { socket, got } = await connected(address(await url()));
    await eventually("the server's first message", () => got.bytes.length > 0);
    const server = serverOf(container);
    server.isTaking = false;
    socket.send(Buffer.alloc(1_000));
    await eventually("input arrives", () => server.text.length > 1_000);
    server.drain();
    await clock.pass(LIMITS.gui_stall_ms);
    server.isTaking = false;
    socket.send(Buffer.alloc(1_000));
    await eventually("input arrives", () => server.text.length > 2_000);
    expect(got.code).toBe(0);
    await clock.pass(LIMITS.gui_stall_ms);
    await closed(got);
    expect(got).toMatchObject({ code: 1011, reason: "the desktop accepts no input" });
  });

  it("ends with its desktop, and its connection with it; each gives back its place", async () => {
    const { container, url, address, status, begun } = await made();
    const gui_url = await url();
    const all = [];
    for (let i = 0; i < LIMITS.gui_viewers_per_container_max; i++) all.push(await connected(address(gui_url)));
    expect(await status(gui_url)).toBe(429);
    serverOf(container).end();
    const last = all.pop();
    await closed(last?.got ?? { code: 1 });
    expect(last?.got.code).toBe(1000);
    for (const { socket, got } of all) {
      socket.terminate();
      await closed(got);
    }
    await eventually("each connection ends", () => container.connections.every(({ isClosed }) => isClosed));
    expect(begun.count).toBe(0);
    await connected(address(gui_url));
  });

  it("is refused by a desktop that hangs, and takes no place", async () => {
    const { container, url, status, begun } = await made();
    const gui_url = await url();
    container.serve = (connection) => connection.send(Buffer.from("SSH-2.0-x\r\n....."));
    expect(await status(gui_url)).toBe(503);
    expect([serverOf(container).isClosed, begun.count]).toEqual([true, 0]);
  });
});
