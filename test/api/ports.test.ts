/** Ports of this machine between tenants, daemons and what listens on it: whoever holds one would get others' keys. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually, KEY } from "../support/daemon.ts";

const first = new Daemon();
const second = new Daemon();
const collector = createServer((_, response) => response.end("{}"));
type Json = Answer["body"];

const SERVE = "import socket,time\ns=socket.create_server(('',80))\nwhile True:\n c,_=s.accept();c.close()";
const refusal = ({ status, body }: Answer) => [status, body.error_code];
const publish = (daemon: Daemon, name: string, host_port: number | undefined, key = KEY, more: object = {}) =>
  daemon.call(
    "POST",
    "/api/containers",
    { name, memory_limit_mb: 256, ports: [{ container_port: 80, host_port }], ...more },
    { "x-api-key": key },
  );

async function makeTenant(daemon: Daemon): Promise<string> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "acme" })).body;
  return (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body.key;
}

const state: { key: string; collector_port: number } = { key: "", collector_port: 0 };

beforeAll(async () => {
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  state.collector_port = (collector.address() as AddressInfo).port;
  await first.start({ HEARTH_CELLS: "0", HEARTH_OTLP_URL: `http://127.0.0.1:${state.collector_port}` });
  state.key = await makeTenant(first);
});
afterAll(async () => {
  collector.close();
  await Promise.all([first.dispose(), second.dispose()]);
});

describe("a published port", () => {
  it("lies in the range of the settings, but for the operator's tenant", async () => {
    const refused = await publish(first, "outside", 8_080, state.key);
    expect([...refusal(refused), refused.body.error]).toEqual([
      400,
      "INVALID_ARGUMENT",
      "host_port out of range: 8080 (expected 20000 to 29999)",
    ]);
    const made = await publish(first, "chosen", undefined, state.key);
    const [{ host_port }] = made.body.ports;
    expect(host_port).toBeGreaterThanOrEqual(20_000);
    expect(host_port).toBeLessThanOrEqual(29_999);
    const operators = await publish(first, "low", 1_984);
    expect([operators.status, operators.body.ports[0].host_port]).toEqual([201, 1_984]);
  });

  it("cannot be one that the daemon listens on or sends to, whether something listens there or not", async () => {
    const { collector_port } = state;
    await new Promise<void>((resolve) => {
      collector.close(() => resolve());
      collector.closeAllConnections();
    });
    for (const port of [Number(new URL(first.url).port), collector_port]) {
      expect([port, ...refusal(await publish(first, `own-${port}`, port))]).toEqual([port, 409, "PORT_TAKEN"]);
    }
  });

  it("of one daemon is refused by another, and a daemon whose own port it is does not start", async () => {
    const command = ["python3", "-c", SERVE];
    const held = await publish(first, "held", undefined, state.key, { command });
    const [{ host_port }] = held.body.ports;
    await second.start({ HEARTH_CELLS: "0" });
    expect(refusal(await publish(second, "same", host_port))).toEqual([409, "PORT_TAKEN"]);
    await second.stop();
    second.output = "";
    const child = await second.launch({ HEARTH_CELLS: "0", HEARTH_LISTEN: `127.0.0.1:${host_port}` });
    await eventually("it gives up", () => child.exitCode !== null);
    expect(child.exitCode).toBe(1);
    expect(second.output).toContain(
      `127.0.0.1:${host_port} does not reach this daemon: the container at ${held.body.ip_address}:80 of the hearth daemon hearth_${first.tag} publishes it`,
    );
    expect(second.output).not.toContain("hearth serves on");
  });

  it("of a container keeps its daemon from starting on it, and the daemon names the container", async () => {
    const [{ host_port }] = (await publish(first, "mine", undefined)).body.ports;
    const { container_id } = (await first.call("GET", "/api/containers/by-name/mine")).body as Json;
    await first.stop();
    first.output = "";
    const child = await first.launch({ HEARTH_CELLS: "0", HEARTH_LISTEN: `127.0.0.1:${host_port}` });
    await eventually("it gives up", () => child.exitCode !== null);
    expect(first.output).toContain(`does not reach this daemon: container ${container_id} of this daemon publishes it`);
    await first.start({ HEARTH_CELLS: "0" });
  });
});
