/** Listeners of published services that are off, taken by another process, or whose tokens are lost. */
import { writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually } from "../support/daemon.ts";
import { ask, Publisher } from "../support/services.ts";

const daemon = new Daemon();
const own = new Publisher(daemon);
const others: Server[] = [];
const refusal = ({ status, body }: Answer) => [status, body.error_code];
const PUBLISH = { name: "more", target_port: 8_080 };
const CELLS = { HEARTH_CELLS: "0" };

/** Listens in the place of another process. */
function occupy(host: string, port: number): Promise<Server> {
  const server = createServer((_, response) => response.end("another process"));
  others.push(server);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port, exclusive: true }, () => resolve(server));
  });
}

const leave = () =>
  Promise.all(others.splice(0).map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
const info = async () => (await own.ok("GET", "/api/system/info")).published_services;
const get = (id: string) => own.ok("GET", `/api/services/${id}`);
const restart = async (settings: Record<string, string> = {}) => {
  await daemon.stop();
  daemon.output = "";
  await daemon.start({ ...CELLS, ...settings });
};

afterEach(leave);
afterAll(() => daemon.dispose());

describe("the listener of published services", () => {
  it("is shown, and a daemon without it keeps services as they are and refuses new ones", async () => {
    await daemon.start(CELLS);
    await own.container("web");
    const service = await own.publish("web");
    const { port } = new URL(service.public_url);
    expect(await info()).toEqual({ mode: "on", listen: `127.0.0.1:${port}`, reason: null });
    await restart({ HEARTH_SERVICES_LISTEN: "off" });
    expect(await info()).toEqual({ mode: "off", listen: null, reason: null });
    const refused = await own.call("POST", "/api/containers/web/services", PUBLISH);
    expect(refusal(refused)).toEqual([403, "FORBIDDEN"]);
    expect(refused.body.hint).toContain("HEARTH_SERVICES_LISTEN");
    const off = { status: "error", status_message: "published services are off on this node", public_url: null };
    expect(await get(service.service_id)).toMatchObject(off);
    expect((await own.ok("GET", "/api/services")).services).toHaveLength(1);
    await expect(ask(service.public_url)).rejects.toThrow(/ECONNREFUSED/);
    await restart();
    expect((await own.ready(service.service_id)).public_url).toBe(service.public_url);
    expect((await ask(service.public_url)).status).toBe(200);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
  });

  it("is left out with a warning if another process has the default port, and the daemon starts", async () => {
    const service = await own.publish("web");
    await daemon.stop();
    daemon.output = "";
    const port = Number(new URL(daemon.url).port) + 1;
    await occupy("127.0.0.1", port);
    await daemon.start({ ...CELLS, HEARTH_SERVICES_LISTEN: "" });
    const reason = `cannot listen on 127.0.0.1:${port}: the address is in use by another process`;
    await eventually("it warns", () => daemon.output.includes("published services not served"));
    const line = daemon.output.split("\n").find((one) => one.includes("published services not served"));
    expect(JSON.parse(line ?? "")).toMatchObject({ level: "warn", port, error: reason });
    expect(line).toContain("HEARTH_SERVICES_LISTEN");
    expect(await info()).toEqual({ mode: "unavailable", listen: null, reason });
    const refused = await own.call("POST", "/api/containers/web/services", PUBLISH);
    expect(refusal(refused)).toEqual([503, "SERVICE_UNAVAILABLE"]);
    expect(refused.body.error).toBe(`published services are unavailable on this node: ${reason}`);
    expect(refused.body.hint).toContain("HEARTH_SERVICES_LISTEN");
    const gone = { status: "error", status_message: refused.body.error, public_url: null };
    expect(await get(service.service_id)).toMatchObject(gone);
    expect(await own.ok("GET", "/api/containers/web")).toMatchObject({ state: "running", exec_ready: true });
    await leave();
    // The next start serves it again, at its own address and the default port.
    await restart({ HEARTH_SERVICES_LISTEN: "" });
    const again = await own.ready(service.service_id);
    expect(new URL(again.public_url).host).toBe(`${new URL(service.public_url).hostname}:${port}`);
    expect((await ask(again.public_url)).status).toBe(200);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
  });

  it("ends the start with the reason if a setting names a port that another process has", async () => {
    await daemon.stop();
    daemon.output = "";
    const server = await occupy("127.0.0.1", 0);
    const address = server.address();
    const port = typeof address === "object" ? address?.port : 0;
    const child = await daemon.launch({ ...CELLS, HEARTH_SERVICES_LISTEN: `127.0.0.1:${port}` });
    await eventually("it gives up", () => child.exitCode !== null);
    expect(child.exitCode).toBe(1);
    expect(daemon.output).toContain(
      `hearth: published services: cannot listen on 127.0.0.1:${port}: the address is in use by another process`,
    );
    expect(daemon.output).toContain("set HEARTH_SERVICES_LISTEN to an address with a free port, or to off");
    await daemon.start(CELLS);
    expect(await own.ok("GET", "/api/containers/web")).toMatchObject({ state: "running", exec_ready: true });
  });
});

describe("a published service", () => {
  it("whose loopback address another process has shows the error, and is served at it again later", async () => {
    const service = await own.publish("web");
    const { hostname, port } = new URL(service.public_url);
    await daemon.stop();
    daemon.output = "";
    await occupy(hostname, Number(port));
    await daemon.start(CELLS);
    expect(await get(service.service_id)).toMatchObject({
      status: "error",
      status_message: expect.stringMatching(/^the address of the service is in use: .*EADDRINUSE/),
    });
    expect(daemon.output).toMatch(new RegExp(`"service not served".*${service.service_id}`));
    // Others are served.
    const other = await own.publish("web", { name: "other" });
    expect((await ask(other.public_url)).text).not.toBe("another process");
    await own.ok("DELETE", `/api/services/${other.service_id}`);
    await leave();
    await restart();
    expect((await own.ready(service.service_id)).public_url).toBe(service.public_url);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
  });

  it("whose token is lost with the key of secrets is refused until a rotation gives it another one", async () => {
    const service = await own.publish("web");
    const open = await own.publish("web", { name: "open", auth_mode: "public" });
    await daemon.stop();
    daemon.output = "";
    writeFileSync(`${daemon.data_dir}/secrets-key`, "");
    const child = await daemon.launch(CELLS);
    await eventually("it gives up", () => child.exitCode !== null);
    expect(daemon.output).toContain("secrets-key is missing or empty, and the store holds secrets");
    writeFileSync(`${daemon.data_dir}/secrets-key`, "discard");
    await daemon.start(CELLS);
    expect(await get(service.service_id)).toMatchObject({
      ...{ status: "error", public_url: null, websocket_url: null },
      status_message: "the token of the service is lost; rotate it to get another URL",
    });
    const refused = await ask(service.public_url);
    expect([refused.status, JSON.parse(refused.text).error_code]).toEqual([503, "SERVICE_UNAVAILABLE"]);
    // No token opens it, not even an empty one.
    const { origin } = new URL(service.public_url);
    for (const query of ["", "?service_token=", "?service_token=null"]) {
      expect([query, (await ask(`${origin}/${query}`)).status]).toEqual([query, 503]);
    }
    expect((await own.ready(open.service_id)).public_url).toBe(open.public_url);
    expect((await ask(open.public_url)).status).toBe(200);
    const rotated = await own.ok("POST", `/api/services/${service.service_id}/rotate`);
    expect(rotated).toMatchObject({ status: "ready", status_message: null });
    expect(new URL(rotated.public_url).host).toBe(new URL(service.public_url).host);
    expect((await ask(rotated.public_url)).status).toBe(200);
    expect((await ask(service.public_url)).status).toBe(401);
  });
});
