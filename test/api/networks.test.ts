/** Private networks through the API and the command line: forks and clones, limits, refusals, lists. */
import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { operatorOf } from "../support/command.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY } from "../support/daemon.ts";
import { ask, SERVER } from "../support/private-networks.ts";
import { SnapshotUser } from "../support/snapshots.ts";

type Json = Answer["body"];

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const snapshots = new SnapshotUser(daemon);
const operator = operatorOf(daemon);

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

const create = (name: string, more: object = {}, key = KEY) =>
  daemon.call("POST", "/api/containers", { name, memory_limit_mb: 256, ...more }, { "x-api-key": key });
const serve = (name: string, more: object = {}) =>
  containers.create({ name, memory_limit_mb: 256, command: ["python3", "-c", SERVER, name], ...more });

describe("a copy of a member", () => {
  it("is in the network with preserve_ns, under its own name, and in none with reset", async () => {
    const source = await serve("source", { network: "shop", dns: true });
    const watcher = await serve("watcher", { network: "shop" });
    const { snapshot_id } = await snapshots.take("source", { network_mode: "preserve_ns" });
    const fork = (name: string, network_mode: string) =>
      snapshots.call("POST", "/api/containers/source/fork?execution=sync", {
        ...{ name, network_mode, resume_policy: "immediate" },
      });
    for (const [name, mode] of [
      ["kept", "preserve_ns"],
      ["alone", "reset"],
    ] as const) {
      const answer = await fork(name, mode);
      expect([name, answer.status], JSON.stringify(answer.body)).toEqual([name, 200]);
    }
    const [kept, alone] = [await containers.get("kept"), await containers.get("alone")];
    expect([kept.network, kept.dns, alone.network, alone.dns]).toEqual(["shop", true, null, false]);
    const answers: Json = JSON.parse(await containers.python("watcher", ask(["kept", "source", alone.ip_address])));
    const ends = { tcp: watcher.ip_address, udp: watcher.ip_address };
    for (const protocol of ["tcp", "udp"] as const) {
      // The command, which names the source, is the same.
      expect(answers[`${protocol} kept`]).toBe(`source sees ${ends[protocol]}`);
      expect(answers[`${protocol} source`]).toBe(`source sees ${ends[protocol]}`);
      expect(answers[`${protocol} ${alone.ip_address}`]).toBeNull();
    }
    expect(await containers.shell("kept", "cat /etc/resolv.conf")).toContain("search hearth.internal");
    expect(await containers.shell("alone", "cat /etc/resolv.conf")).not.toContain("hearth.internal");
    await snapshots.clone(snapshot_id, { name: "cloned", resume_policy: "immediate" });
    const cloned = await containers.get("cloned");
    expect(cloned.network).toBe("shop");
    expect(await containers.shell("watcher", "getent hosts cloned")).toContain(cloned.ip_address);
    const named = await snapshots.call("POST", `/api/snapshots/${snapshot_id}/clone`, { name: "No Name" });
    expect([named.status, named.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    const refused = await fork("Not A Name", "preserve_ns");
    expect([refused.status, refused.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    expect(source.network).toBe("shop");
  });
});

describe("the limits of a tenant", () => {
  it("count its networks, while containers name them", async () => {
    const limits = { networks_max: 2 };
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "small", limits })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
    for (const [name, network] of [
      ["a", "one"],
      ["b", "two"],
      ["c", "two"],
    ] as const) {
      expect([name, (await create(name, { network }, key)).status]).toEqual([name, 201]);
    }
    const refused = await create("d", { network: "three" }, key);
    expect([refused.status, refused.body.error_code, refused.body.error]).toEqual([
      ...[403, "QUOTA_EXCEEDED", "the tenant would exceed networks_max (limit 2)"],
    ]);
    const tenant = (await daemon.call("GET", "/api/tenant", undefined, { "x-api-key": key })).body;
    expect([tenant.limits.networks_max, tenant.usage.networks]).toEqual([2, 2]);
    await daemon.call("DELETE", "/api/containers/a", undefined, { "x-api-key": key });
    expect((await create("d", { network: "three" }, key)).status).toBe(201);
    const both = await Promise.all(["e", "f"].map((name) => create(name, { network: `net-${name}` }, key)));
    expect(both.map(({ status }) => status)).toEqual([403, 403]);
    expect((await daemon.call("GET", "/api/networks")).body.networks.map(({ name }: Json) => name)).toEqual(["shop"]);
  });
});

describe("a user of this machine other than root", () => {
  const hello = (uid: number, host: string, port: number) => {
    const script = `exec 3<>/dev/tcp/${host}/${port} && head -n 1 <&3`;
    const { stdout } = spawnSync("timeout", ["5", "bash", "-c", script], { uid, gid: uid });
    return stdout.toString().trim();
  };

  it("reaches no container by its address, but its published ports", async () => {
    const ports = [{ container_port: 7_000, host_address: "127.0.0.1" }];
    const { ip_address, ...record } = await serve("member", { network: "shop2", ports });
    const { host_port } = record.ports[0];
    await eventually("it serves", () => hello(0, ip_address, 7_000).startsWith("member sees"));
    expect(hello(65_534, ip_address, 7_000)).toBe("");
    expect(hello(65_534, "127.0.0.1", host_port)).toMatch(/^member sees/);
    await containers.delete("member");
  });
});

/** Sends queries for `argv[1]` seconds by UDP, cut into datagrams by the kernel (UDP_SEGMENT), and by TCP without a pause. Prints the number of answers. */
const FLOOD = `import socket, struct, sys, threading, time
server = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")][0]
query = bytes.fromhex("000101000001000000000000" + "0161" + "00" + "00010001")
end = time.time() + float(sys.argv[1]); counts = [0, 0]
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(17, 103, len(query))
    s.connect((server, 53)); s.setblocking(False)
    while time.time() < end:
        try: s.send(query * 60)
        except OSError: pass
        try:
            while True: s.recv(2000); counts[0] += 1
        except OSError: pass
def tcp():
    s = socket.create_connection((server, 53), 5); s.settimeout(0.2); first = None
    def write():
        while time.time() < end:
            try: s.sendall((struct.pack("!H", len(query)) + query) * 1000)
            except OSError: pass
    threading.Thread(target=write, daemon=True).start()
    while time.time() < end:
        try: data = s.recv(65536)
        except OSError: continue
        if first is None: first = 2 + struct.unpack("!H", data[:2])[0]
        counts[1] += len(data) / first
for one in (udp, tcp):
    thread = threading.Thread(target=one, daemon=True); thread.start(); thread.join()
    end = time.time() + float(sys.argv[1])
print(int(counts[0]), int(counts[1]))
`;

describe("a container that floods its name server", () => {
  it("gets a bounded number of answers, whatever packets the kernel makes of its queries, and delays nobody", async () => {
    await containers.create({ name: "flooding", memory_limit_mb: 256, network: "flood" });
    const seconds = 3;
    const flood = containers.exec("flooding", ["python3", "-c", FLOOD, String(seconds)]);
    const waits: number[] = [];
    const asking = { isOver: false };
    const ended = flood.finally(() => {
      asking.isOver = true;
    });
    while (!asking.isOver) {
      const began_ms = performance.now();
      await fetch(`${daemon.url}/health`);
      waits.push(performance.now() - began_ms);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const [by_udp = 0, by_tcp = 0] = (await ended).stdout.split(" ").map(Number);
    const max = (seconds + 2) * LIMITS.dns_container_packets_per_second;
    expect([by_udp > 100, by_udp <= max, by_tcp > 0, by_tcp <= max], `${by_udp} ${by_tcp}`).toEqual([
      true,
      true,
      true,
      true,
    ]);
    waits.sort((a, b) => a - b);
    expect(waits[Math.floor(waits.length / 2)]).toBeLessThan(100);
    await containers.delete("flooding");
  });
});

describe("hearth", () => {
  it("runs containers in networks, and lists networks and names", async () => {
    await operator.out("run", "-d", "--name", "left", "--network", "pair", "--", "sleep", "600");
    await operator.out("run", "-d", "--name", "right", "--network", "pair", "--dns", "--", "sleep", "600");
    const [left, right] = [await containers.get("left"), await containers.get("right")];
    expect([left.network, left.dns, right.dns]).toEqual(["pair", false, true]);
    const networks = await operator.out("network", "ls");
    expect(networks).toMatch(new RegExp(`^pair +left +running +${left.ip_address}`, "m"));
    expect(networks).toMatch(new RegExp(`^pair +right +running +${right.ip_address}`, "m"));
    expect(await operator.out("dns", "ls")).toMatch(new RegExp(`^right +pair +${right.ip_address}`, "m"));
    await operator.out("stop", "-t", "0", "left");
    expect(await operator.out("network", "ls")).toMatch(/^pair +left +exited/m);
    expect(await operator.out("dns", "ls")).not.toMatch(/^left /m);
    const { networks: all } = await operator.answer("networks", "list");
    const pair = all.find(({ name }: Json) => name === "pair");
    expect(pair.members.map(({ name, state }: Json) => [name, state]).sort()).toEqual([
      ["left", "exited"],
      ["right", "running"],
    ]);
    const { entries } = await operator.answer("dns", "list");
    expect(entries.find((one: Json) => one.container_name === "right")).toMatchObject({
      ...{
        network: "pair",
        ip_address: right.ip_address,
        names: expect.arrayContaining(["right.pair.hearth.internal"]),
      },
    });
    await operator.out("rm", "-f", "left", "right");
    expect(await operator.out("network", "ls")).not.toMatch(/^pair /m);
  });

  it("lists networks and names of the key's tenant alone, and says how to make the first one", async () => {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "empty" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
    for (const [noun, none] of [
      ["network", "no networks: hearth run -d --name box --network shop"],
      ["dns", "no names: hearth run -d --name box --network shop"],
    ] as const) {
      expect(await operator.hearthAs(key, noun, "ls")).toMatchObject({ code: 0, out: "", err: `${none}\n` });
    }
    await create("alone", { network: "shop" }, key);
    const listed = await operator.hearthAs(key, "network", "ls");
    expect(listed.out.trim().split("\n")).toEqual([
      expect.stringMatching(/^NETWORK +CONTAINER/),
      expect.stringMatching(/^shop +alone +running/),
    ]);
  });
});
