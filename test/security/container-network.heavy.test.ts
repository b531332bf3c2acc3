/**
 * Published ports and egress of containers through the real API, with a world that this test makes: a network namespace
 * behind a link of its own, on a block that is set aside for documentation (RFC 5737).
 */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { askHere, Namespace } from "../support/namespaces.ts";

const daemon = new Daemon();
const world = new Namespace(`world-${daemon.tag}`);
const link = `o${daemon.tag}`;
// A /29 of its own, for test runs beside each other.
const block = `198.51.100.${(randomBytes(1)[0] ?? 0) & 0xf8}`;
const addressAt = (n: number) => block.replace(/\d+$/, (last) => String(Number(last) + n));
const HOST = addressAt(1);
const WORLD = addressAt(2);
const OTHER = addressAt(3);

beforeAll(async () => {
  execFileSync("ip", ["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", world.name]);
  execFileSync("ip", ["address", "add", `${HOST}/29`, "dev", link]);
  execFileSync("ip", ["link", "set", link, "up"]);
  world.ip("address", "add", `${WORLD}/29`, "dev", "eth0");
  world.ip("address", "add", `${OTHER}/29`, "dev", "eth0");
  world.ip("link", "set", "eth0", "up");
  world.ip("route", "add", "default", "via", HOST);
  await Promise.all([world.serve(53, 80, 81), daemon.start({ HEARTH_CELLS: "0" })]);
});

afterAll(async () => {
  await daemon.dispose();
  execFileSync("ip", ["link", "delete", link]);
  world.close();
});

/** Says over TCP and UDP who it is and whom it sees; over TCP then all that it hears. */
const SERVER = `import socket, sys, threading
def tcp(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=64)
    def talk(s, peer):
        s.sendall(f"{sys.argv[1]} sees {peer[0]}\\n".encode())
        while data := s.recv(100): s.sendall(data)
    while True: threading.Thread(target=talk, args=listener.accept(), daemon=True).start()
def udp(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", port))
    while True:
        _, peer = s.recvfrom(100); s.sendto(f"{sys.argv[1]} sees {peer[0]}".encode(), peer)
for port in map(int, sys.argv[2:]):
    for serve in (tcp, udp): threading.Thread(target=serve, args=(port,)).start()
`;
const CLIENT = `import socket, sys
protocol, host, port = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
s.settimeout(1.5)
try:
    s.connect((host, int(port)))
    if protocol == "udp": s.send(b"hello")
    print(s.recv(100).decode().strip())
except TimeoutError: print("silence")
except OSError as e: print(e.strerror)
`;
const NO_ROUTE = "No route to host";

const create = async (name: string, more: object = {}) => {
  const command = ["python3", "-c", SERVER, name, "80", "53"];
  const { status, body } = await daemon.call("POST", "/api/containers", { name, command, ...more });
  expect(status, JSON.stringify(body)).toBe(201);
  return body;
};
const refuse = (body: object) => daemon.call("POST", "/api/containers", { name: "refused", ...body });
const remove = async (...records: { container_id: string }[]) => {
  const answers = await Promise.all(
    records.map(({ container_id }) => daemon.call("DELETE", `/api/containers/${container_id}`)),
  );
  expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
};
const askFrom = async (id: string, protocol: string, host: string, port: number) => {
  const command = ["python3", "-c", CLIENT, protocol, host, String(port)];
  return (await daemon.call("POST", `/api/containers/${id}/exec`, { command })).body.stdout.trim();
};
/** A server in a container listens a moment after the container is ready. */
const answering = (protocol: "tcp" | "udp", host: string, port: number, who: string) =>
  eventually(`${who} answers at ${host}:${port}`, async () => (await askHere(protocol, host, port)).startsWith(who));
const elements = () => {
  const { nftables } = JSON.parse(execFileSync("nft", ["-j", "list", "ruleset"]).toString());
  const own = (nftables as { map?: Named; set?: Named }[])
    .map(({ map, set }) => map ?? set)
    // The kernel fills the others, with the containers that have connections.
    .filter((one) => one?.table === `hearth_${daemon.tag}` && !/^(flows|begun|early|early_flows)$/.test(one.name));
  return own.flatMap((one) => (one?.elem ?? []).map((element) => `${one?.name} ${JSON.stringify(element)}`));
};
interface Named {
  readonly name: string;
  readonly table: string;
  readonly elem?: readonly unknown[];
}

describe("a published port", () => {
  it("is reached on 127.0.0.1 by this machine alone, and on all addresses where that is asked for", async () => {
    const ports = [
      { container_port: 80 },
      { container_port: 80, host_address: "0.0.0.0" },
      { container_port: 53, host_address: "0.0.0.0", protocol: "udp" },
    ];
    const record = await create("web", { ports });
    expect(record.egress).toBe("on");
    expect(record.ports).toMatchObject([
      { container_port: 80, host_address: "127.0.0.1", protocol: "tcp" },
      { container_port: 80, host_address: "0.0.0.0", protocol: "tcp" },
      { container_port: 53, host_address: "0.0.0.0", protocol: "udp" },
    ]);
    const [here, everywhere, datagrams] = record.ports.map(({ host_port }: { host_port: number }) => host_port);
    for (const port of [here, everywhere, datagrams]) {
      expect(port).toBeGreaterThanOrEqual(20_000);
      expect(port).toBeLessThan(30_000);
    }
    await answering("tcp", "127.0.0.1", here, "web");
    expect(await askHere("tcp", "127.0.0.1", everywhere)).toMatch(/^web/);
    expect(await askHere("tcp", HOST, here)).toBe("ECONNREFUSED");
    expect(await askHere("udp", "127.0.0.1", datagrams)).toMatch(/^web/);
    expect(await world.ask("tcp", HOST, everywhere)).toBe(`web sees ${WORLD}`);
    expect(await world.ask("udp", HOST, datagrams)).toBe(`web sees ${WORLD}`);
    expect(await world.ask("tcp", HOST, here)).toBe("ECONNREFUSED");
    expect(await world.ask("tcp", record.ip_address, 80)).toBe("silence");
    const neighbour = await create("neighbour");
    expect(await askFrom(neighbour.container_id, "tcp", HOST, everywhere)).toBe("silence");
    expect(await askFrom(neighbour.container_id, "tcp", record.ip_address, 80)).toBe("silence");
    await remove(record, neighbour);
  });

  it("belongs to one container from its creation to its deletion, through a stop and a start", async () => {
    const first = await create("first", { ports: [{ container_port: 80 }] });
    const [{ host_port }] = first.ports;
    const taken = { status: 409, body: { error_code: "PORT_TAKEN", details: { received: String(host_port) } } };
    const ports = [{ container_port: 81, host_port }];
    expect(await refuse({ ports })).toMatchObject(taken);
    await answering("tcp", "127.0.0.1", host_port, "first");
    await daemon.call("POST", `/api/containers/${first.container_id}/stop`, { timeout_ms: 0 });
    expect(await askHere("tcp", "127.0.0.1", host_port)).toBe("ECONNREFUSED");
    expect(elements()).toEqual([]);
    expect(await refuse({ ports: [{ ...ports[0], host_address: "0.0.0.0" }] })).toMatchObject(taken);
    await daemon.call("POST", `/api/containers/${first.container_id}/start`);
    await answering("tcp", "127.0.0.1", host_port, "first");
    expect((await daemon.call("GET", `/api/containers/${first.container_id}`)).body.ports).toEqual(first.ports);
    // Another protocol has ports of its own.
    const other = await create("other", { ports: [{ container_port: 53, host_port, protocol: "udp" }] });
    await answering("udp", "127.0.0.1", host_port, "other");
    await remove(first, other);
    const second = await create("second", { ports: [{ container_port: 80, host_port }] });
    await answering("tcp", "127.0.0.1", host_port, "second");
    await remove(second);
  });

  it("is not one that a process of this machine listens on", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    for (const host_address of ["127.0.0.1", "0.0.0.0"]) {
      const answer = await refuse({ ports: [{ container_port: 80, host_port: port, host_address }] });
      expect(answer).toMatchObject({ status: 409, body: { error_code: "PORT_TAKEN" } });
    }
    await new Promise((resolve) => server.close(resolve));
    await remove(await create("now", { ports: [{ container_port: 80, host_port: port }] }));
  });

  it("does not open this machine's loopback to whoever has a container's link (CVE-2020-8558)", async () => {
    const { container_id, pid, ip_address, ports } = await create("loopback", { ports: [{ container_port: 80 }] });
    const [{ dev }] = JSON.parse(execFileSync("ip", ["-j", "route", "show", `${ip_address}/32`]).toString());
    expect(readFileSync(`/proc/sys/net/ipv4/conf/${dev}/route_localnet`, "utf8")).toBe("1\n");
    expect(readFileSync("/proc/sys/net/ipv4/conf/all/route_localnet", "utf8")).toBe("0\n");
    // With all capabilities of this machine, in the container's network alone.
    const inside = (...argv: string[]) => execFileSync("nsenter", ["-t", String(pid), "-n", ...argv]).toString();
    const localnet = (value: number) =>
      inside("sh", "-c", `echo ${value} > /proc/sys/net/ipv4/conf/eth0/route_localnet`);
    const gateway = daemon.subnet.replace(/0\/20$/, "1");
    const route = ["127.0.0.1", "via", gateway, "dev", "eth0", "src", ip_address];
    inside("ip", "address", "flush", "dev", "lo");
    localnet(1);
    inside("ip", "route", "add", ...route);
    const own = Number(new URL(daemon.url).port);
    for (const port of [own, ports[0].host_port]) {
      expect(inside("python3", "-c", CLIENT, "tcp", "127.0.0.1", String(port))).toBe("silence\n");
    }
    // Another container gets this network.
    inside("ip", "route", "delete", ...route);
    localnet(0);
    inside("ip", "address", "add", "127.0.0.1/8", "dev", "lo");
    await remove({ container_id });
  });
});

describe("egress", () => {
  it("is on, off, or what a list names, and never to neighbours, this machine or link-local addresses", async () => {
    const allowed = [
      `${WORLD}:80/tcp`,
      `${WORLD}:53`,
      `${OTHER}/32:81-90`,
      "10.0.0.0/8",
      "169.254.0.0/16",
      "127.0.0.0/8",
    ];
    const [on, off, listed] = await Promise.all([
      create("on"),
      create("off", { egress: "off", ports: [{ container_port: 80, host_address: "0.0.0.0" }] }),
      create("listed", { egress: allowed }),
    ]);
    expect([on.egress, off.egress, listed.egress]).toEqual(["on", "off", allowed]);
    const table: [string, string, string, number, RegExp | string][] = [
      [on.container_id, "tcp", WORLD, 80, `world-${daemon.tag} sees ${HOST}`],
      [on.container_id, "udp", WORLD, 53, /^world/],
      [off.container_id, "tcp", WORLD, 80, NO_ROUTE],
      [off.container_id, "udp", WORLD, 53, NO_ROUTE],
      [listed.container_id, "tcp", WORLD, 80, /^world/],
      [listed.container_id, "tcp", WORLD, 81, NO_ROUTE],
      [listed.container_id, "udp", WORLD, 80, NO_ROUTE],
      [listed.container_id, "udp", WORLD, 53, /^world/],
      [listed.container_id, "tcp", OTHER, 81, /^world/],
      [listed.container_id, "tcp", OTHER, 80, NO_ROUTE],
      [listed.container_id, "tcp", on.ip_address, 80, "silence"],
      [listed.container_id, "tcp", HOST, Number(new URL(daemon.url).port), "silence"],
      [listed.container_id, "tcp", "169.254.169.254", 80, "silence"],
    ];
    for (const [id, protocol, host, port, said] of table) {
      expect(await askFrom(id, protocol, host, port), `${protocol} ${host}:${port}`).toMatch(said);
    }
    // Who must not speak may answer.
    const [{ host_port }] = off.ports;
    await answering("tcp", "127.0.0.1", host_port, "off");
    expect(await world.ask("tcp", HOST, host_port)).toBe(`off sees ${WORLD}`);
    await remove(on, off, listed);
  });

  it("holds from the first instant of a container's command", async () => {
    const script = `${CLIENT.replace("sys.argv[1:]", `("tcp", "${WORLD}", "80")`)}`;
    const { container_id } = await create("hasty", { egress: "off", command: ["python3", "-c", script] });
    const logs = await eventually("its log", async () => {
      const { body } = await daemon.call("GET", `/api/containers/${container_id}/logs`);
      return body.logs.length > 0 ? body.logs : null;
    });
    expect(logs).toMatchObject([{ message: NO_ROUTE }]);
    await remove({ container_id });
  });
});

describe("fields of the network", () => {
  it.each([
    [{ ports: [{}] }, 422],
    [{ ports: 80 }, 422],
    [{ ports: [{ container_port: "80" }] }, 422],
    [{ ports: [{ container_port: 0 }] }, 400],
    [{ ports: [{ container_port: 65_536 }] }, 400],
    [{ ports: [{ container_port: 80, host_port: 1_023 }] }, 400],
    [{ ports: [{ container_port: 80, hostPort: 20_000 }] }, 422],
    [{ ports: [{ container_port: 80, host_address: "::1" }] }, 400],
    [{ ports: [{ container_port: 80, protocol: "sctp" }] }, 400],
    [
      {
        ports: [
          { container_port: 80, host_port: 20_000 },
          { container_port: 81, host_port: 20_000 },
        ],
      },
      400,
    ],
    [{ egress: 3 }, 422],
    [{ egress: "some" }, 400],
    [{ egress: ["example.com"] }, 400],
    [{ egress: ["1.2.3.4/8"] }, 400],
    [{ egress: ["1.2.3.256"] }, 400],
    [{ egress: ["1.2.3.4/33"] }, 400],
    [{ egress: ["1.2.3.4:0"] }, 400],
    [{ egress: ["1.2.3.4:90-80"] }, 400],
    [{ egress: ["1.2.3.4:80; accept"] }, 400],
    [{ egress: ["010.0.0.1"] }, 400],
  ])("%j are refused with %i", async (body, status) => {
    const answer = await refuse(body);
    expect(answer.status, JSON.stringify(answer.body)).toBe(status);
  });

  it("have so many entries and no more", async () => {
    const ports = Array.from({ length: LIMITS.container_ports_max + 1 }, () => ({ container_port: 80 }));
    const egress = Array.from({ length: LIMITS.egress_rules_max + 1 }, (_, i) => `1.2.3.${i}`);
    for (const body of [{ ports }, { egress }]) expect(await refuse(body)).toMatchObject({ status: 400 });
    await remove(await create("most", { ports: ports.slice(1), egress: egress.slice(1) }));
  });
});

describe("the network of a container", () => {
  it("outlives the daemon, killed or stopped: connections, ports and what is closed", async () => {
    const web = await create("web", { egress: "off", ports: [{ container_port: 80 }] });
    const [{ host_port }] = web.ports;
    await answering("tcp", "127.0.0.1", host_port, "web");
    const socket = connect(host_port, "127.0.0.1");
    let heard = "";
    socket.on("data", (data) => {
      heard += data;
    });
    const echo = async (text: string) => {
      socket.write(text);
      await eventually(`the echo of ${text}`, () => heard.includes(text));
    };
    await echo("before");
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      await daemon.stop(signal);
      await echo(`after ${signal}`);
      expect(await askHere("tcp", "127.0.0.1", host_port)).toMatch(/^web/);
      await daemon.start({ HEARTH_CELLS: "0" });
      await echo(`again after ${signal}`);
      expect(await askFrom(web.container_id, "tcp", WORLD, 80)).toBe(NO_ROUTE);
      expect(await refuse({ ports: [{ container_port: 80, host_port }] })).toMatchObject({ status: 409 });
      // The rules change for another, and this one's stay.
      await remove(await create("passing", { ports: [{ container_port: 80 }], egress: [`${WORLD}:81`] }));
      await echo(`later after ${signal}`);
      expect(await askFrom(web.container_id, "tcp", WORLD, 80)).toBe(NO_ROUTE);
    }
    socket.destroy();
    await remove(web);
  });

  it("is put in force for many at once", async () => {
    const made = await Promise.all(
      Array.from({ length: 12 }, (_, i) =>
        create(`many-${i}`, { ports: [{ container_port: 80 }], egress: [`${WORLD}:80`] }),
      ),
    );
    const ports = made.map((one) => one.ports[0].host_port);
    expect(new Set(ports).size).toBe(ports.length);
    for (const [i, port] of ports.entries()) await answering("tcp", "127.0.0.1", port, `many-${i}`);
    await remove(...made);
    expect(elements()).toEqual([]);
  });

  it("leaves no rule behind", async () => {
    const { body } = await daemon.call("GET", "/api/containers");
    await remove(...body.containers);
    expect(elements()).toEqual([]);
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
