/** Tracked connections of a tenant with many containers, through the real API: the kernel has one table for all. */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { Namespace } from "../support/namespaces.ts";

const daemon = new Daemon();
const world = new Namespace(`buckets-${daemon.tag}`);
const link = `o${daemon.tag}`;
// A /30 of the block for documentation (RFC 5737), for test runs beside each other.
const block = `198.51.100.${(randomBytes(1)[0] ?? 0) & 0xfc}`;
const addressAt = (n: number) => block.replace(/\d+$/, (last) => String(Number(last) + n));
const WORLD = addressAt(2);
const FLOWS_MAX = 256;
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_FLOWS_MAX: String(FLOWS_MAX) };
const CONTAINERS_COUNT = 24;
const key = { greedy: "", modest: "" };
const call = (who: keyof typeof key, method: string, path: string, body?: unknown) =>
  daemon.call(method, path, body, { "x-api-key": key[who] });

/** Sends from the first moment on, to twice as many ports as an address may have connections. */
const FLOOD = `import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for port in range(1000, ${1_000 + 2 * FLOWS_MAX}):
        try: s.sendto(b"x", ("${WORLD}", port))
        except OSError: pass
    time.sleep(0.5)`;
const ASK = `import socket
s = socket.create_connection(("${WORLD}", 80), 5); print(s.recv(100).decode())`;

/** Addresses that have a bucket. */
function bucketed(): string[] {
  const listed = execFileSync("nft", ["-j", "list", "map", "inet", `hearth_${daemon.tag}`, "buckets"]);
  const { nftables } = JSON.parse(listed.toString());
  return nftables.flatMap(({ map }: { map?: { elem?: [string, unknown][] } }) =>
    (map?.elem ?? []).map(([address]) => address),
  );
}

/** Tracked connections to the world, by the address that began them. */
function connections(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of readFileSync("/proc/net/nf_conntrack", "utf8").split("\n")) {
    const [, from, to] = / src=(\S+) dst=(\S+)/.exec(line) ?? [];
    if (from !== undefined && to === WORLD) counts.set(from, (counts.get(from) ?? 0) + 1);
  }
  return counts;
}

beforeAll(async () => {
  execFileSync("ip", ["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", world.name]);
  execFileSync("ip", ["address", "add", `${addressAt(1)}/30`, "dev", link]);
  execFileSync("ip", ["link", "set", link, "up"]);
  world.ip("address", "add", `${WORLD}/30`, "dev", "eth0");
  world.ip("link", "set", "eth0", "up");
  world.ip("route", "add", "default", "via", addressAt(1));
  await Promise.all([world.serve(80), daemon.start(SETTINGS)]);
  for (const name of ["greedy", "modest"] as const) {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name })).body;
    key[name] = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body.key;
  }
});

afterAll(async () => {
  await daemon.dispose();
  execFileSync("ip", ["link", "delete", link]);
  world.close();
});

describe("a tenant with many containers that flood from their start on", () => {
  const ids: string[] = [];
  const start = async (who: keyof typeof key, command: string[]) => {
    const request = { name: `c-${randomBytes(4).toString("hex")}`, command, memory_limit_mb: 256 };
    const { status, body } = await call(who, "POST", "/api/containers", request);
    expect(status, JSON.stringify(body)).toBe(201);
    return body.container_id as string;
  };

  it("needs no bucket as long as it has few addresses", async () => {
    const few = Array.from({ length: LIMITS.connection_buckets }, () => start("greedy", ["python3", "-c", FLOOD]));
    ids.push(...(await Promise.all(few)));
    await eventually("each has as many as an address may have", () => {
      const counts = [...connections().values()];
      return counts.length === ids.length && counts.every((count) => count >= FLOWS_MAX - 5);
    });
    expect(bucketed()).toEqual([]);
  });

  it("has so many connections and no more, and leaves others theirs", async () => {
    while (ids.length < CONTAINERS_COUNT) ids.push(await start("greedy", ["python3", "-c", FLOOD]));
    await eventually("each address has a bucket", () => bucketed().length === CONTAINERS_COUNT);
    const { budgets } = (await daemon.call("GET", "/api/system/info")).body.engine;
    const refused = (rows: readonly { name: string; note: string }[]) =>
      Number(/; (\d+) packets/.exec(rows.find(({ name }) => name === "tracked_connections")?.note ?? "")?.[1]);
    await eventually("packets are refused for a while", async () => {
      const now = (await daemon.call("GET", "/api/system/info")).body.engine;
      return refused(now.budgets) > refused(budgets) + CONTAINERS_COUNT * FLOWS_MAX;
    });
    const metrics = await fetch(`${daemon.url}/metrics`, { headers: { "x-api-key": KEY } });
    const dropped = /^hearth_connection_packets_refused_total (\d+)$/m.exec(await metrics.text())?.[1];
    expect(Number(dropped)).toBeGreaterThan(CONTAINERS_COUNT * FLOWS_MAX);
    const { connection_buckets } = LIMITS;
    const total = [...connections().values()].reduce((sum, count) => sum + count, 0);
    // Connections of the first addresses stand already, the next ones have a few each, and the buckets count the rest.
    const early = 32 * (CONTAINERS_COUNT - connection_buckets);
    expect(total).toBeLessThanOrEqual(2 * connection_buckets * FLOWS_MAX + early + CONTAINERS_COUNT * 5);
    expect(total).toBeGreaterThan(connection_buckets * FLOWS_MAX);
    const other = await start("modest", ["sleep", "600"]);
    const { body } = await call("modest", "POST", `/api/containers/${other}/exec`, { command: ["python3", "-c", ASK] });
    expect(body.stdout, body.stderr).toMatch(/^buckets-/);
    expect((await call("modest", "DELETE", `/api/containers/${other}`)).status).toBe(200);
  });

  it.each(["SIGTERM", "SIGKILL"] as const)("keeps its buckets when the daemon ends by %s", async (signal) => {
    await daemon.stop(signal);
    expect(bucketed()).toHaveLength(CONTAINERS_COUNT);
    await daemon.start(SETTINGS);
    await eventually("each address has a bucket", () => bucketed().length === CONTAINERS_COUNT);
  });

  it("leaves no bucket when its containers are gone", async () => {
    for (const id of ids) expect((await call("greedy", "DELETE", `/api/containers/${id}`)).status).toBe(200);
    await eventually("no address has a bucket", () => bucketed().length === 0);
    await eventually("no chain of a bucket is left", () => {
      const table = execFileSync("nft", ["list", "table", "inet", `hearth_${daemon.tag}`]).toString();
      return !table.includes("chain bucket_");
    });
  });
});

it("counts the instances of a tenant's function like its containers", async () => {
  const handler = "sleep 60";
  const { id } = (await call("modest", "POST", "/api/functions", { name: "waits", handler, max_instances: 20 })).body;
  expect((await call("modest", "POST", `/api/functions/${id}/deploy`)).status).toBe(200);
  const calls = Array.from({ length: LIMITS.connection_buckets + 1 }, () =>
    call("modest", "POST", "/api/functions/invoke/waits", {}),
  );
  await eventually("each instance has a bucket", () => bucketed().length > LIMITS.connection_buckets);
  expect((await call("modest", "DELETE", `/api/functions/${id}`)).status).toBe(200);
  await Promise.all(calls);
  await eventually("no instance has a bucket", () => bucketed().length === 0);
});
