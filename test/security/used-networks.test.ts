/**
 * Sockets that outlive their container: one container of a tenant passes them on to another through a volume and is
 * deleted. Whoever gets its address, port or namespace next must be out of their reach.
 */
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
// Few addresses, so that they come around.
const subnet = daemon.subnet.replace(/\/20$/, "/27");
const ADDRESSES_COUNT = 29;
/** The attacker's sockets: enough to try each of the others, some more than once. */
const FRESH_COUNT = 120;

/** Receives sockets and keeps them; then does with them as it is told, one line a connection. */
const KEEPER = `
import array, os, socket
def listen(path):
    s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(8); return s
door, orders = listen("/data/door"), listen("/data/orders")
peer, _ = door.accept()
fds = array.array("i")
while True:
    data, rest, _, _ = peer.recvmsg(1, socket.CMSG_LEN(4 * 50))
    if not data: break
    for _, _, held in rest: fds.frombytes(held)
listener, accepted, datagrams, *fresh = [socket.socket(fileno=fd) for fd in fds]
listener.setblocking(False)
print("holding", len(fresh), flush=True)
def connects(host, port):
    s = fresh.pop(); s.settimeout(0.3)
    try:
        s.connect((host, int(port))); return s.recv(100).decode() or "empty"
    except OSError as e: return type(e).__name__
def accepts():
    try: listener.accept(); return "a client"
    except BlockingIOError: return "nobody"
def sends(text):
    try: accepted.send(text.encode()); return "sent"
    except OSError as e: return type(e).__name__
def datagram(host, port):
    try: datagrams.sendto(b"leak", (host, int(port))); return "sent"
    except OSError as e: return type(e).__name__
while True:
    c, _ = orders.accept()
    what, *more = c.recv(1000).decode().split()
    c.send({"connects": connects, "accepts": accepts, "sends": sends, "datagram": datagram}[what](*more).encode()); c.close()
`;

/** Serves one client, then passes on the listener, that client's connection, and sockets that were never used. */
const GIVER = `
import array, socket, time
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 80)); listener.listen(64)
print("serving", flush=True)
client, _ = listener.accept(); client.send(b"the giver")
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
held = [listener, client, u] + [socket.socket() for _ in range(${FRESH_COUNT})]
s = socket.socket(socket.AF_UNIX); s.connect("/data/door")
for at in range(0, len(held), 50):
    part = array.array("i", [one.fileno() for one in held[at:at + 50]])
    s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])
s.close(); print("given", flush=True)
time.sleep(1000)
`;

/** Says who it is on two ports, one for the outside and one for itself. */
const VICTIM = `
import socket, threading
def serve(host, port, text):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((host, port)); s.listen(64)
    while True:
        c, _ = s.accept(); c.send(text); c.close()
threading.Thread(target=serve, args=("127.0.0.1", 81, b"a secret")).start()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("0.0.0.0", 82))
threading.Thread(target=lambda: print("datagram", u.recv(100), flush=True)).start()
serve("0.0.0.0", 80, b"the victim")
`;

// biome-ignore lint/suspicious/noExplicitAny: records as they came.
type Json = any;
const tenants: { a: string; b: string } = { a: "", b: "" };
const state = { keeper: "", giver: null as Json, client: null as Socket | null, heard: "" };

const headersOf = (tenant: "a" | "b") => ({ "x-api-key": tenants[tenant] });
async function create(tenant: "a" | "b", name: string, script: string, more: object = {}): Promise<Json> {
  const fields = { name, command: ["python3", "-u", "-c", script], ...more };
  const { status, body } = await daemon.call("POST", "/api/containers", fields, headersOf(tenant));
  expect([status, body.error]).toEqual([201, undefined]);
  return body;
}
const remove = async (tenant: "a" | "b", id: string) =>
  expect((await daemon.call("DELETE", `/api/containers/${id}`, undefined, headersOf(tenant))).status).toBe(200);
async function says(tenant: "a" | "b", id: string): Promise<string> {
  const { body } = await daemon.call("GET", `/api/containers/${id}/logs`, undefined, headersOf(tenant));
  return (body.logs as { message: string }[]).map(({ message }) => message).join("\n");
}
/** Has the attacker do something with its sockets. */
async function order(...words: string[]): Promise<string> {
  const code = `import socket\ns = socket.socket(socket.AF_UNIX); s.connect("/data/orders"); s.send(b"${words.join(" ")}"); print(s.recv(100).decode())`;
  const path = `/api/containers/${state.keeper}/exec`;
  const { body } = await daemon.call("POST", path, { command: ["python3", "-c", code] }, headersOf("a"));
  return body.stdout.trim();
}
/** Answer that a client on this machine gets at a published port. */
const ask = (port: number) =>
  new Promise<string>((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("data", (data) => resolve(data.toString()));
    socket.once("error", (error) => resolve(error.message));
    socket.once("close", () => resolve("closed"));
  });
const netnsOf = (pid: number) => readlinkSync(`/proc/${pid}/ns/net`);

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_SUBNET: subnet });
  for (const name of ["a", "b"] as const) {
    const tenant = await daemon.call("POST", "/api/tenants", { name: `tenant-${name}` });
    const keys = `/api/tenants/${tenant.body.tenant_id}/api-keys`;
    const key = await daemon.call("POST", keys, { name: "k" });
    tenants[name] = key.body.key;
  }
  await daemon.call("POST", "/api/volumes?execution=sync", { name: "door" }, headersOf("a"));
  const volumes = ["door:/data"];
  state.keeper = (await create("a", "keeper", KEEPER, { volumes })).container_id;
  state.giver = await create("a", "giver", GIVER, { volumes, ports: [{ container_port: 80 }] });
  await eventually("the giver serves", async () => (await says("a", state.giver.container_id)).includes("serving"));
  const client = connect(state.giver.ports[0].host_port, "127.0.0.1");
  client.on("error", () => {});
  client.on("data", (data) => {
    state.heard += data;
  });
  state.client = client;
  await eventually("the sockets are passed on", async () => (await says("a", state.keeper)).includes("holding"));
  await eventually("the client hears the giver", () => state.heard === "the giver");
});

afterAll(async () => {
  state.client?.destroy();
  await daemon.dispose();
});

describe("sockets of a container that are held elsewhere", () => {
  it("work while it lives", async () => {
    expect(await order("sends", "still")).toBe("sent");
    await eventually("the client hears the holder", () => state.heard.endsWith("still"));
  });

  it("are dead when it is deleted", async () => {
    const used = netnsOf(state.giver.pid);
    await remove("a", state.giver.container_id);
    state.giver.netns = used;
    await order("sends", "LEAK");
    expect(await order("accepts")).toBe("nobody");
    expect(await order("connects", "203.0.113.1", "80")).not.toMatch(/^the/);
  });

  it("reach none of another tenant's containers, and none of their clients, until its address is used again", async () => {
    let again = 0;
    for (let n = 0; n < 2 * ADDRESSES_COUNT && again < 1; n++) {
      const ports = [{ container_port: 80, host_port: state.giver.ports[0].host_port }];
      const { container_id, pid, ip_address } = await create("b", `victim-${n}`, VICTIM, { ports });
      expect(netnsOf(pid)).not.toBe(state.giver.netns);
      await eventually(
        "the victim's clients reach it",
        async () => (await ask(ports[0]?.host_port ?? 0)) === "the victim",
      );
      const isAgain = ip_address === state.giver.ip_address;
      if (isAgain || n < 3) {
        expect(await order("connects", "127.0.0.1", "81")).not.toBe("a secret");
        expect(await order("connects", ip_address, "80")).not.toBe("the victim");
        await order("datagram", "127.0.0.1", "82");
        await order("datagram", ip_address, "82");
        await order("sends", "LEAK");
      }
      expect(await order("accepts")).toBe("nobody");
      expect(await says("b", container_id)).not.toContain("datagram");
      if (isAgain) again++;
      await remove("b", container_id);
    }
    expect(again).toBe(1);
    expect(state.heard).not.toContain("LEAK");
  });

  it("reach no function's instance", async () => {
    const handler = `python3 - <<'EOF'
import os, socket
s = socket.socket(); s.bind(("127.0.0.1", 8081)); s.listen(); s.settimeout(1)
try: s.accept(); met = "somebody"
except TimeoutError: met = "nobody"
print(os.readlink("/proc/self/ns/net"), met)
EOF`;
    const { body: made } = await daemon.call("POST", "/api/functions", { name: "victim", handler }, headersOf("b"));
    await daemon.call("POST", `/api/functions/${made.id}/deploy`, undefined, headersOf("b"));
    const invoking = daemon.call("POST", "/api/functions/invoke/victim", {}, headersOf("b"));
    const tried = [];
    for (let n = 0; n < 5; n++) tried.push(await order("connects", "127.0.0.1", "8081"));
    const { body } = await invoking;
    expect(body.stdout).toMatch(/^net:\[\d+\] nobody\n$/);
    expect(body.stdout).not.toContain(state.giver.netns);
    expect(tried.filter((said) => said === "empty")).toEqual([]);
    expect(await order("accepts")).toBe("nobody");
  });

  it("leave no link, route or tracked connection", async () => {
    await remove("a", state.keeper);
    const links = () => daemon.leftovers().links.filter((name) => name !== daemon.bridge);
    const groups = () =>
      new Set(links().map((name) => readFileSync(`/sys/class/net/${name}/netdev_group`, "utf8").trim()));
    await eventually("cut links to be removed", () => groups().size === 1);
    const routes = JSON.parse(execFileSync("ip", ["-j", "route"]).toString()) as { dev?: string }[];
    expect(routes.filter(({ dev }) => dev?.startsWith(`h${daemon.tag.slice(0, 6)}`)).length).toBe(links().length);
    const [network] = subnet.split(/\.\d+\/27$/);
    const tracked = readFileSync("/proc/net/nf_conntrack", "utf8").match(/=[\d.]+ /g) ?? [];
    const gateway = `=${network}.${Number(subnet.split(/[./]/)[3]) + 1} `;
    expect(tracked.filter((one) => one.startsWith(`=${network}.`) && one !== gateway)).toEqual([]);
  });
});

describe("a change of the rules that fails", () => {
  const own = new Daemon();
  afterAll(() => own.dispose());

  // The first passages are those of the start; then come a creation and a deletion by turns.
  it.each([8, 9])("loses no address, and gives none to others before its rules are gone (%i)", async (passage) => {
    // 13 addresses.
    const settings = { HEARTH_CELLS: "0", HEARTH_SUBNET: own.subnet.replace(/\/20$/, "/28") };
    await own.start({ ...settings, HEARTH_FAILPOINT: `engine.network.rules:${passage}=throw` });
    const round = async (name: string) => {
      const { status, body } = await own.call("POST", "/api/containers", { name, egress: "off" });
      if (status === 201) await own.call("DELETE", `/api/containers/${body.container_id}`);
      return body;
    };
    // The caller is told of a creation's failure, the log of a deletion's.
    await eventually("the failure", async () => {
      const { error } = await round(`until-${randomUUID()}`);
      return `${error} ${own.output}`.includes("failpoint engine.network.rules");
    });
    const seen = new Set<string>();
    for (let n = 0; n < 30; n++) {
      const body = await round(`again-${n}`);
      expect(body.error).toBeUndefined();
      seen.add(body.ip_address);
    }
    expect(seen.size).toBe(13);
    const elements = () => execFileSync("nft", ["list", "map", "inet", `hearth_${own.tag}`, "egress"]).toString();
    await eventually("no policy to be left", () => !elements().includes("goto"));
    await own.stop();
    own.output = "";
  });
});
