/** Private networks: every pair of containers, of one tenant and of two, and what stays when members leave. */
import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { ask, elementsOf, SERVER, trackedOf } from "../support/private-networks.ts";

type Json = Answer["body"];

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const keys: Record<string, string> = { operator: KEY };
const gateway = daemon.subnet.replace(/0\/\d+$/, "1");

/** Name, tenant, network, dns. */
const WANTED = [
  ["web", "operator", "shop", false],
  ["store", "operator", "shop", false],
  ["other", "operator", "back", false],
  ["plain", "operator", null, false],
  ["named", "operator", null, true],
  ["both", "operator", "back", true],
  ["store", "acme", "shop", false],
  ["web", "acme", "shop", false],
] as const;

interface Made {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly network: string | null;
  readonly key: string;
  readonly address: string;
}
const made: Made[] = [];

async function makeTenant(name: string): Promise<string> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name })).body;
  return (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body.key;
}

async function create(name: string, key: string, more: object = {}): Promise<Json> {
  const command = ["python3", "-c", SERVER, name];
  const body = { name, command, memory_limit_mb: 256, ...more };
  const answer = await daemon.call("POST", "/api/containers", body, { "x-api-key": key });
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return answer.body;
}

async function python(id: string, key: string, code: string): Promise<string> {
  const body = { command: ["python3", "-"], stdin_data: code, timeout_ms: 20_000 };
  const answer = await daemon.call("POST", `/api/containers/${id}/exec`, body, { "x-api-key": key });
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body.stdout + answer.body.stderr;
}

const answersOf = async (from: Pick<Made, "id" | "key">, hosts: readonly string[]): Promise<Json> =>
  JSON.parse(await python(from.id, from.key, ask(hosts)));

/** The address of a name as a container resolves it; null: it has none. */
const resolved = async (from: Pick<Made, "id" | "key">, ...names: string[]): Promise<(string | null)[]> =>
  JSON.parse(
    await python(
      from.id,
      from.key,
      `import json, socket
def find(name):
    try: return socket.gethostbyname(name)
    except OSError: return None
print(json.dumps([find(name) for name in ${JSON.stringify(names)}]))`,
    ),
  );

const one = (name: string, tenant = "operator"): Made => {
  const found = made.find((each) => each.name === name && each.tenant === tenant);
  if (found === undefined) throw new Error(`no ${name} of ${tenant}`);
  return found;
};

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1" });
  keys.acme = await makeTenant("acme");
  for (const [name, tenant, network, dns] of WANTED) {
    const key = keys[tenant] ?? "";
    const { container_id: id, ip_address: address } = await create(name, key, { network, dns });
    made.push({ id, name, tenant, network, key, address });
  }
});
afterAll(async () => {
  await daemon.dispose();
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});

describe("a private network", () => {
  it("connects its members, of one tenant, over TCP and UDP in both directions, and no other pair", async () => {
    for (const from of made) {
      const others = made.filter((to) => to !== from);
      const answers = await answersOf(
        from,
        others.map(({ address }) => address),
      );
      const isNeighbour = (to: Made) =>
        from.network !== null && to.network === from.network && to.tenant === from.tenant;
      const expected = others.flatMap((to) => {
        const text = isNeighbour(to) ? `${to.name} sees ${from.address}` : null;
        return [
          [`tcp ${to.address}`, text],
          [`udp ${to.address}`, text],
        ];
      });
      expect([from.tenant, from.name, answers]).toEqual([from.tenant, from.name, Object.fromEntries(expected)]);
    }
  });

  it("is closed to function instances", async () => {
    const hosts = made.map(({ address }) => address);
    await daemon.deploy({ name: "outsider", handler: `python3 - <<'EOF'\n${ask(hosts)}EOF`, timeout_seconds: 30 });
    const { stdout } = await daemon.invoke("outsider");
    expect(Object.values(JSON.parse(stdout))).toEqual(hosts.flatMap(() => [null, null]));
  });

  it("opens nothing of this machine but the name server, and that to members alone", async () => {
    const probe = `import socket
def udp(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
    s.sendto(bytes.fromhex("000101000001000000000000") + b"\\x03web\\0\\0\\x01\\0\\x01", ("${gateway}", port))
    try: return len(s.recv(600)) > 12
    except OSError: return False
def tcp(port):
    try: socket.create_connection(("${gateway}", port), 1).close(); return True
    except OSError: return False
print([udp(53), tcp(53), tcp(${Number(new URL(daemon.url).port)}), tcp(22)])`;
    expect(await python(one("web").id, KEY, probe)).toBe("[True, True, False, False]\n");
    expect(await python(one("named").id, KEY, probe)).toBe("[True, True, False, False]\n");
    expect(await python(one("plain").id, KEY, probe)).toBe("[False, False, False, False]\n");
    await daemon.deploy({ name: "asks-names", handler: `python3 - <<'EOF'\n${probe}\nEOF`, timeout_seconds: 30 });
    expect((await daemon.invoke("asks-names")).stdout).toBe("[False, False, False, False]\n");
  });

  it("keeps members in it whose egress is off, and their published ports as they are", async () => {
    const closed = await create("closed", KEY, { network: "shop", egress: "off", ports: [{ container_port: 7000 }] });
    const from = { id: closed.container_id, key: KEY };
    const answers = await answersOf(from, [one("store").address, one("other").address]);
    expect(Object.values(answers)).toEqual([
      `store sees ${closed.ip_address}`,
      `store sees ${closed.ip_address}`,
      null,
      null,
    ]);
    const [{ host_port }] = closed.ports;
    const here = execFileSync("python3", [
      "-c",
      `import socket;print(socket.create_connection(("127.0.0.1",${host_port}),3).recv(100).decode())`,
    ]);
    expect(here.toString()).toContain("closed sees");
    await containers.delete(closed.container_id);
  });

  it("is listed with its members, to its tenant alone", async () => {
    const list = async (key: string) =>
      (await daemon.call("GET", "/api/networks", undefined, { "x-api-key": key })).body;
    const short = ({ networks }: Json) =>
      networks.map(({ name, members }: Json) => [
        name,
        members.map((member: Json) => [member.name, member.ip_address]),
      ]);
    expect(short(await list(KEY))).toEqual([
      [
        "back",
        [
          ["other", one("other").address],
          ["both", one("both").address],
        ],
      ],
      [
        "shop",
        [
          ["web", one("web").address],
          ["store", one("store").address],
        ],
      ],
    ]);
    expect(short(await list(one("web", "acme").key))).toEqual([
      [
        "shop",
        [
          ["store", one("store", "acme").address],
          ["web", one("web", "acme").address],
        ],
      ],
    ]);
  });
});

describe("names", () => {
  it("resolve in every spelling for those who see them, and for others not", async () => {
    const spellings = ["store", "store.shop", "store.hearth.internal", "STORE.shop.hearth.internal"];
    const { address } = one("store");
    expect(await resolved(one("web"), ...spellings)).toEqual(spellings.map(() => address));
    const theirs = one("store", "acme").address;
    expect(await resolved(one("web", "acme"), ...spellings)).toEqual(spellings.map(() => theirs));
    expect(await resolved(one("other"), "store.hearth.internal", "store")).toEqual([null, null]);
    expect(await resolved(one("named"), "both", "both.back", "other", "web")).toEqual([
      ...[one("both").address, one("both").address],
      ...[null, null],
    ]);
    expect(await resolved(one("plain"), "store")).toEqual([null]);
    expect(await resolved(one("web"), "store.back.hearth.internal", "missing", "missing.hearth.internal")).toEqual([
      null,
      null,
      null,
    ]);
  });

  it("are found by address too", async () => {
    const code = `import socket
def find(address):
    try: return socket.gethostbyaddr(address)[0]
    except OSError: return None
print([find("${one("store").address}"), find("${one("other").address}"), find("${one("store", "acme").address}")])`;
    expect(await python(one("web").id, KEY, code)).toBe("['store.shop.hearth.internal', None, None]\n");
  });

  it("are listed while their containers run, and renamed at once", async () => {
    const entries = async () => (await daemon.call("GET", "/api/dns/entries")).body.entries;
    expect((await entries()).map((entry: Json) => entry.container_name)).toEqual([
      ...["web", "store", "other", "named", "both"],
    ]);
    const { id, address } = one("store");
    const renamed = await daemon.call("POST", `/api/containers/${id}/rename`, { new_name: "cache" });
    expect(renamed.body).toMatchObject({ old_name: "store", new_name: "cache", dns_updated: true });
    expect(await resolved(one("web"), "cache", "store")).toEqual([address, null]);
    const back = await daemon.call("POST", "/api/dns/entries/cache/rename", { new_name: "store" });
    expect([back.status, back.body.dns_updated]).toEqual([200, true]);
    expect(await resolved(one("web"), "cache", "store")).toEqual([null, address]);
    const plain = await daemon.call("POST", `/api/containers/${one("plain").id}/rename`, { new_name: "Plain One" });
    expect([plain.status, plain.body.dns_updated]).toEqual([200, false]);
    await daemon.call("POST", `/api/containers/${one("plain").id}/rename`, { new_name: "plain" });
  });

  it("of others, of containers without names, and unspeakable ones are refused", async () => {
    const rename = async (name: string, new_name: string, key = KEY) => {
      const answer = await daemon.call("POST", `/api/dns/entries/${name}/rename`, { new_name }, { "x-api-key": key });
      return [answer.status, answer.body.error_code];
    };
    expect(await rename("other", "mine", one("web", "acme").key)).toEqual([404, "NOT_FOUND"]);
    expect(await rename("plain", "mine")).toEqual([404, "NOT_FOUND"]);
    expect(await rename("web", "My Web")).toEqual([400, "INVALID_ARGUMENT"]);
    expect(await rename("web", "store")).toEqual([409, "NAME_TAKEN"]);
    const bad = await daemon.call("POST", "/api/containers", { name: "Web 2", network: "shop" });
    expect([bad.status, bad.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    for (const network of ["Shop", "-shop", "a.b", "", "x".repeat(64)]) {
      const answer = await daemon.call("POST", "/api/containers", { name: "web2", network });
      expect([network, answer.status]).toEqual([network, 400]);
    }
  });

  it("follow a stop, a start with another address, and the end of a killed container at once", async () => {
    const { id } = one("store");
    await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
    expect(await resolved(one("web"), "store")).toEqual([null]);
    const stopped = await daemon.call("POST", `/api/containers/${id}/rename`, { new_name: "store" });
    expect(stopped.body.dns_updated).toBe(false);
    const { body } = await daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
    expect(body.ip_address).not.toBe(one("store").address);
    expect(await resolved(one("web"), "store")).toEqual([body.ip_address]);
    const answers = await answersOf(one("web"), ["store"]);
    expect(Object.values(answers)).toEqual([`store sees ${one("web").address}`, `store sees ${one("web").address}`]);
    process.kill(body.pid, "SIGKILL");
    await containers.until(id, "has exited", ({ state }) => state === "exited");
    expect(await resolved(one("web"), "store")).toEqual([null]);
    expect(await answersOf(one("web"), [body.ip_address])).toEqual({
      [`tcp ${body.ip_address}`]: null,
      [`udp ${body.ip_address}`]: null,
    });
    await daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
  });
});

describe("a daemon that is killed", () => {
  it("leaves members connected, and the next one lets names, rename and new members work", async () => {
    const script = `import socket, time
s = socket.create_connection(("store", 7000), 3); s.settimeout(30); f = s.makefile("rwb", buffering=0)
print(f.readline().decode().strip().split()[0], flush=True)
open("/tmp/begun", "w").close()
for n in range(1000):
    f.write(b"%d\\n" % n); assert f.readline() == b"%d\\n" % n
    open("/tmp/count", "w").write(str(n)); time.sleep(0.02)
    import os
    if os.path.exists("/tmp/end"): break
open("/tmp/done", "w").close()`;
    const { id } = one("web");
    await daemon.call("POST", `/api/containers/${id}/rename`, { new_name: "front" });
    await containers.exec(id, ["python3", "-c", script], { detach: true });
    await eventually("the connection is open", async () => (await containers.shell(id, "ls /tmp")).includes("begun"));
    await daemon.stop("SIGKILL");
    await new Promise((resolve) => setTimeout(resolve, 500));
    await daemon.start({ HEARTH_CELLS: "1" });
    const before = Number(await containers.shell(id, "cat /tmp/count"));
    await eventually(
      "the connection goes on",
      async () => Number(await containers.shell(id, "cat /tmp/count")) > before,
    );
    const joined = await create("joined", KEY, { network: "shop" });
    expect(await resolved({ id: joined.container_id, key: KEY }, "front", "web")).toEqual([one("web").address, null]);
    expect(Object.values(await answersOf({ id: joined.container_id, key: KEY }, ["front", "store"]))).toEqual([
      ...["web", "web", "store", "store"].map((name) => `${name} sees ${joined.ip_address}`),
    ]);
    const theirs = one("store", "acme").address;
    expect(Object.values(await answersOf({ id: joined.container_id, key: KEY }, [theirs]))).toEqual([null, null]);
    await containers.shell(id, "touch /tmp/end");
    await eventually("the client has ended", async () => (await containers.shell(id, "ls /tmp")).includes("done"));
    await containers.delete(joined.container_id);
  });
});

describe("members that leave", () => {
  it("leave no element, tracked connection or neighbour behind", async () => {
    const neighbours = () => execFileSync("ip", ["-4", "neigh", "show", "nud", "all"]).toString();
    const before = elementsOf(daemon);
    const all = await Promise.all(
      Array.from({ length: 6 }, (_, i) => create(`many-${i}`, KEY, { network: "many", dns: i % 2 === 0 })),
    );
    const [first, ...rest] = all;
    await answersOf(
      { id: first.container_id, key: KEY },
      rest.map(({ ip_address }) => ip_address),
    );
    expect(elementsOf(daemon)).toEqual({
      ...{ networks: before.networks + 6, members: before.members + 6, named: before.named + 6 },
    });
    expect(trackedOf(first.ip_address).length).toBeGreaterThan(0);
    await Promise.all(all.map(({ container_id }) => containers.delete(container_id)));
    expect(elementsOf(daemon)).toEqual(before);
    await eventually("no connection of them is tracked", () =>
      all.every(({ ip_address }) => trackedOf(ip_address).length === 0),
    );
    // Slots in reserve have their entries already.
    for (const { ip_address } of all) expect(neighbours()).not.toMatch(new RegExp(`^${ip_address} `, "m"));
  });
});
