/**
 * A small subnet, so that an address is soon used again: by a container of another tenant, and with what the last one left
 * open. And a member that floods the name server.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { ask, elementsOf, SERVER, trackedOf } from "../support/private-networks.ts";

type Json = Answer["body"];

const daemon = new Daemon();
const state = { key: "" };
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_SUBNET: daemon.subnet.replace(/\d+$/, "28") };

beforeAll(async () => {
  await daemon.start(SETTINGS);
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "acme" })).body;
  state.key = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body.key;
});
afterAll(async () => {
  await daemon.dispose();
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});

async function create(name: string, key: string, more: object = {}): Promise<Json> {
  const body = { name, command: ["python3", "-c", SERVER, name], memory_limit_mb: 256, ...more };
  const answer = await daemon.call("POST", "/api/containers", body, { "x-api-key": key });
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return answer.body;
}
async function shell(id: string, key: string, command: readonly string[], more: object = {}): Promise<string> {
  const body = { command, timeout_ms: 30_000, ...more };
  const answer = await daemon.call("POST", `/api/containers/${id}/exec`, body, { "x-api-key": key });
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return `${answer.body.stdout ?? ""}${answer.body.stderr ?? ""}`;
}
const remove = async (id: string, key = KEY) =>
  expect((await daemon.call("DELETE", `/api/containers/${id}`, undefined, { "x-api-key": key })).status).toBe(200);

/** Holds a TCP connection and a UDP socket to a host, sends once a tenth of a second, and writes down what comes back. */
const HOLD = `import socket, sys, time
host = sys.argv[1]
while True:
    try: t = socket.create_connection((host, 7000), 3); break
    except ConnectionRefusedError: time.sleep(0.05)  # It begins to listen.
t.settimeout(0.1); t.recv(100)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((host, 7000)); u.settimeout(0.1)
open("/tmp/held", "w").close()
log = open("/tmp/log", "w", buffering=1)
while True:
    for s in (t, u):
        try: s.send(b"still here"); print(s.recv(100).decode().split()[0], file=log)
        except OSError as e: pass
    time.sleep(0.1)
`;

describe("an address that is used again", () => {
  it("by another tenant gets nothing of the flows to the member that had it, and reaches none of its network", async () => {
    const watcher = await create("watcher", KEY, { network: "shop" });
    const member = await create("member", KEY, { network: "shop" });
    const { container_id: id } = watcher;
    await shell(id, KEY, ["python3", "-c", HOLD, member.ip_address], { detach: true });
    await eventually("flows are open", async () => (await shell(id, KEY, ["ls", "/tmp"])).includes("held"));
    expect(trackedOf(member.ip_address).length).toBeGreaterThan(0);
    await remove(member.container_id);
    const seen = await shell(id, KEY, ["sh", "-c", "wc -l < /tmp/log"]);
    const before = elementsOf(daemon);
    let heir: Json = null;
    for (let i = 0; heir === null && i < 40; i++) {
      const one = await create(`heir-${i}`, state.key, { network: "shop" });
      if (one.ip_address === member.ip_address) heir = one;
      else await remove(one.container_id, state.key);
    }
    expect(heir?.ip_address).toBe(member.ip_address);
    expect(elementsOf(daemon)).toEqual({
      ...{ networks: before.networks + 1, members: before.members + 1, named: before.named + 1 },
    });
    // It listens where the flows lead, and the other side still sends.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(await shell(id, KEY, ["sh", "-c", "wc -l < /tmp/log"])).toBe(seen);
    const theirs = JSON.parse(
      await shell(heir.container_id, state.key, ["python3", "-"], { stdin_data: ask([watcher.ip_address, "watcher"]) }),
    );
    expect(new Set(Object.values(theirs))).toEqual(new Set([null]));
    const resolved = await shell(id, KEY, ["getent", "hosts", "member"]);
    expect(resolved).toBe("");
    const again = await create("member", KEY, { network: "shop" });
    expect(await shell(id, KEY, ["getent", "hosts", "member"])).toContain(again.ip_address);
    await Promise.all([remove(id), remove(again.container_id), remove(heir.container_id, state.key)]);
  });
});

/** Sends queries as fast as it can for two seconds: well-formed ones, and garbage. */
const FLOOD = `import os, socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
s.connect((server, 53)); s.setblocking(False)
query = bytes.fromhex("000101000001000000000000") + b"\\x05flood\\0\\0\\x01\\0\\x01"
end, n = time.time() + 2, 0
while time.time() < end:
    try: s.send(query if n % 2 else os.urandom(200)); n += 1
    except OSError: pass
print(n)
`;

describe("a member that floods the name server", () => {
  it("is cut to its rate by the kernel, takes no tracked connection, and others resolve meanwhile", async () => {
    const flooder = await create("flooder", state.key, { network: "shop" });
    const first = await create("first", KEY, { network: "shop" });
    await create("second", KEY, { network: "shop" });
    const flooding = shell(flooder.container_id, state.key, ["python3", "-c", FLOOD]);
    const times: number[] = [];
    const resolve = `import socket, time
slowest = 0
for _ in range(50):
    began = time.time(); socket.gethostbyname("second"); slowest = max(slowest, time.time() - began); time.sleep(0.02)
print(slowest)`;
    times.push(Number(await shell(first.container_id, KEY, ["python3", "-c", resolve])));
    const sent = Number(await flooding);
    expect(sent).toBeGreaterThan(5_000);
    // A lost query is sent again after five seconds.
    expect(Math.max(...times)).toBeLessThan(4);
    expect(trackedOf(flooder.ip_address)).toEqual([]);
    expect((await daemon.call("GET", "/health")).status).toBe(200);
  });
});
