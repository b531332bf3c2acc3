/**
 * The rules in a kernel: a machine, containers with links to it and a world behind it, each a network namespace. In
 * the containers of this test root has all capabilities, more than any real one: what holds here does not rest on them.
 */
import { randomBytes } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CLOUD_SERVICES } from "../../src/base/special-addresses.ts";
import { FLOWS_COUNTER, noRules, type PolicyOf, policyRules, tableRules } from "../../src/engine/network/rules.ts";
import { NODE_PATH } from "../../src/installation/paths.js";
import { eventually } from "../support/daemon.ts";
import { Namespace, type Protocol } from "../support/namespaces.ts";

const tag = randomBytes(2).toString("hex");
const machine = new Namespace(`m-${tag}`);
const world = new Namespace(`w-${tag}`);
const containers = ["free", "closed", "listed", "function"].map((name) => new Namespace(`${name}-${tag}`));
const [free, closed, listed, plain] = containers as [Namespace, Namespace, Namespace, Namespace];
const rules_file = `/var/tmp/hearth-rules-${tag}`;
const GROUPS = { live: 7_701, dead: 7_702, doomed: 7_703 };
const FLOWS_MAX = 50;
const NAMES = {
  table: `t_${tag}`,
  groups: GROUPS,
  subnet: "10.42.0.0/16",
  gateway: "10.42.0.1",
  opened: [8_701],
  flows_max: FLOWS_MAX,
  sources_max: 100,
  isUplinkShared: true,
  dns: null,
};
const WORLD = "203.0.113.2";
const OTHER = "203.0.113.3";
const addressOf = (container: Namespace) => `10.42.0.${containers.indexOf(container) + 2}`;

const apply = (rules: string) => {
  writeFileSync(rules_file, rules);
  machine.run("nft", "-f", rules_file);
};
const of = (container: Namespace, policy: PolicyOf["policy"]): PolicyOf => ({
  address: addressOf(container),
  host_interface: `h${containers.indexOf(container)}`,
  policy,
  uplink_class: "1a2b:10",
  bucket: null,
  marks: null,
});
const all = { prefix_length: 32, port_min: 1, port_max: 65_535, protocol: null };
const FREE = of(free, {
  egress: "on",
  ports: [
    { container_port: 80, host_port: 20_001, host_address: "127.0.0.1", protocol: "tcp" },
    { container_port: 80, host_port: 20_002, host_address: "0.0.0.0", protocol: "tcp" },
    { container_port: 53, host_port: 20_003, host_address: "0.0.0.0", protocol: "udp" },
    { container_port: 53, host_port: 20_003, host_address: "127.0.0.1", protocol: "tcp" },
  ],
});
const CLOSED = of(closed, {
  egress: "off",
  ports: [
    { container_port: 80, host_port: 20_004, host_address: "0.0.0.0", protocol: "tcp" },
    { container_port: 53, host_port: 20_004, host_address: "0.0.0.0", protocol: "udp" },
  ],
});
const LISTED = of(listed, {
  egress: [
    { ...all, address: WORLD, port_min: 80, port_max: 81, protocol: "tcp" },
    // Overlaps with the one before.
    { ...all, address: "203.0.113.2", port_min: 53, port_max: 80 },
    { ...all, address: "10.42.0.0", prefix_length: 16 },
    { ...all, address: "169.254.0.0", prefix_length: 16 },
    { ...all, address: "192.0.0.0", prefix_length: 24 },
    { ...all, address: "127.0.0.0", prefix_length: 8 },
  ],
  ports: [],
});
const POLICIES = [FREE, CLOSED, LISTED];

beforeAll(async () => {
  machine.ip("link", "add", "br0", "group", String(GROUPS.live), "type", "bridge");
  machine.ip("address", "add", "10.42.0.1/16", "dev", "br0");
  machine.ip("link", "set", "br0", "up");
  machine.ip("link", "add", "w0", "type", "veth", "peer", "name", "eth0", "netns", world.name);
  machine.ip("address", "add", "203.0.113.1/24", "dev", "w0");
  machine.ip("link", "set", "w0", "up");
  world.ip("address", "add", `${WORLD}/24`, "dev", "eth0");
  world.ip("address", "add", `${OTHER}/24`, "dev", "eth0");
  world.ip("link", "set", "eth0", "up");
  world.ip("route", "add", "default", "via", "203.0.113.1");
  // A link-local service, as clouds have for what containers must not know.
  for (const service of ["169.254.169.254", ...CLOUD_SERVICES]) {
    world.ip("address", "add", `${service}/32`, "dev", "lo");
    machine.ip("route", "add", service, "via", WORLD);
  }
  for (const [i, container] of containers.entries()) {
    const [link, address] = [`h${i}`, addressOf(container)];
    const peer = ["peer", "name", "eth0", "netns", container.name];
    machine.ip("link", "add", link, "group", String(GROUPS.live), "type", "veth", ...peer);
    machine.ip("link", "set", link, "up");
    container.ip("address", "add", `${address}/32`, "dev", "eth0");
    container.ip("link", "set", "eth0", "up");
    container.ip("route", "add", "10.42.0.1", "dev", "eth0");
    container.ip("route", "add", "default", "via", "10.42.0.1");
    machine.ip("route", "add", address, "dev", link, "src", "10.42.0.1");
    machine.setting(`ipv4/conf/${link}/route_localnet`, "1");
  }
  machine.setting("ipv4/ip_forward", "1");
  await Promise.all([
    machine.serve(80, 8_701, 9_000),
    world.serve(53, 80, 81, 82),
    ...containers.map((container) => container.serve(53, 80, 81)),
  ]);
});

afterAll(() => {
  for (const namespace of [...containers, world, machine]) namespace.close();
  rmSync(rules_file, { force: true });
});

/** Gives a container an address that is another's, to send from. */
const pretend = (container: Namespace, other: Namespace) =>
  container.ip("address", "replace", `${addressOf(other)}/32`, "dev", "lo");

/** Lets a container send to 127.0.0.1 of the machine, as CVE-2020-8558 does. */
function reachForLoopback(container: Namespace): void {
  container.ip("address", "flush", "dev", "lo");
  container.setting("ipv4/conf/eth0/route_localnet", "1");
  container.ip(
    "route",
    "replace",
    "127.0.0.1",
    "via",
    "10.42.0.1",
    "dev",
    "eth0",
    "src",
    addressOf(container),
    "onlink",
  );
}

describe("without any rules", () => {
  it("all that the rules forbid is possible, so that the tests below can fail", async () => {
    expect(await closed.ask("tcp", WORLD, 80)).toBe(`${world.name} sees ${addressOf(closed)}`);
    expect(await free.ask("tcp", addressOf(listed), 80)).toMatch(/^listed/);
    expect(await free.ask("tcp", "10.42.0.1", 80)).toMatch(/^m-/);
    for (const service of ["169.254.169.254", ...CLOUD_SERVICES]) {
      expect(await free.ask("tcp", service, 80)).toMatch(/^w-/);
    }
    expect(await world.ask("tcp", addressOf(free), 80)).toMatch(/^free/);
    pretend(closed, plain);
    await closed.send("spoofed-freely", WORLD, 53, addressOf(plain));
    await eventually("a datagram of a false source", () =>
      world.output.includes(`spoofed-freely from ${addressOf(plain)}`),
    );
    reachForLoopback(plain);
    expect(await plain.ask("tcp", "127.0.0.1", 9_000)).toBe(`${machine.name} sees ${addressOf(plain)}`);
  });
});

describe("with the rules", () => {
  beforeAll(() => apply(tableRules(NAMES, POLICIES)));

  const answers: [Namespace, Protocol, string, number, RegExp][] = [
    [free, "tcp", WORLD, 80, /^w-.* sees 203\.0\.113\.1$/],
    [free, "udp", WORLD, 53, /^w-/],
    [plain, "tcp", WORLD, 82, /^w-/],
    [closed, "tcp", WORLD, 80, /^EHOSTUNREACH$/],
    [closed, "udp", WORLD, 53, /^EHOSTUNREACH$/],
    [listed, "tcp", WORLD, 80, /^w-/],
    [listed, "tcp", WORLD, 81, /^w-/],
    [listed, "udp", WORLD, 53, /^w-/],
    // A cloud's name server, which containers without names ask themselves.
    [free, "tcp", "168.63.129.16", 53, /^w-/],
    [listed, "tcp", WORLD, 82, /^EHOSTUNREACH$/],
    [listed, "udp", WORLD, 81, /^EHOSTUNREACH$/],
    [listed, "tcp", OTHER, 80, /^EHOSTUNREACH$/],
    // What is opened of the gateway is for all.
    [closed, "tcp", "10.42.0.1", 8_701, /^m-/],
    [machine, "tcp", "127.0.0.1", 20_001, /^free-.* sees 10\.42\.0\.1$/],
    [machine, "tcp", "127.0.0.1", 20_002, /^free/],
    [machine, "tcp", "203.0.113.1", 20_002, /^free/],
    [machine, "udp", "127.0.0.1", 20_003, /^free/],
    [machine, "tcp", "127.0.0.1", 20_003, /^free/],
    [machine, "tcp", "203.0.113.1", 20_001, /^ECONNREFUSED$/],
    [machine, "udp", "127.0.0.1", 20_001, /^ECONNREFUSED$/],
    [world, "tcp", "203.0.113.1", 20_002, /^free-.* sees 203\.0\.113\.2$/],
    [world, "udp", "203.0.113.1", 20_003, /^free-.* sees 203\.0\.113\.2$/],
    [world, "tcp", "203.0.113.1", 20_001, /^ECONNREFUSED$/],
    [world, "tcp", "203.0.113.1", 20_003, /^ECONNREFUSED$/],
    // Answers leave a closed one.
    [world, "tcp", "203.0.113.1", 20_004, /^closed-.* sees 203\.0\.113\.2$/],
    [world, "udp", "203.0.113.1", 20_004, /^closed/],
  ];
  const silences: [Namespace, Protocol, string, number][] = [
    // Whatever the policy says.
    [listed, "tcp", "169.254.169.254", 80],
    [free, "tcp", "169.254.169.254", 80],
    ...CLOUD_SERVICES.map((service): [Namespace, Protocol, string, number] => [free, "tcp", service, 80]),
    [listed, "tcp", "192.0.0.192", 80],
    [listed, "tcp", addressOf(free), 80],
    [free, "tcp", addressOf(listed), 80],
    [free, "tcp", "10.42.0.1", 80],
    [listed, "tcp", "10.42.0.1", 9_000],
    [free, "tcp", "203.0.113.1", 80],
    // Published ports are for others than containers.
    [listed, "tcp", "203.0.113.1", 20_002],
    [free, "tcp", "10.42.0.1", 20_004],
    [free, "tcp", "203.0.113.1", 20_002],
    // Around the publication, and to what only containers may reach.
    [world, "tcp", addressOf(free), 80],
    [world, "udp", addressOf(free), 53],
    [world, "tcp", "10.42.0.1", 8_701],
  ];
  const nameOf = (namespace: Namespace) => namespace.name.replace(/-.*/, "");
  const heard = answers.map(([from, protocol, host, port, said]) => ({
    from,
    protocol,
    host,
    port,
    said,
    name: nameOf(from),
  }));
  const unheard = silences.map(([from, protocol, host, port]) => ({ from, protocol, host, port, name: nameOf(from) }));

  it.each(heard)("$name asks $host:$port by $protocol and gets $said", async ({ from, protocol, host, port, said }) => {
    expect(await from.ask(protocol, host, port)).toMatch(said);
  });

  it.concurrent.each(unheard)("$name asks $host:$port by $protocol in vain", async ({ from, protocol, host, port }) => {
    expect(await from.ask(protocol, host, port)).toBe("silence");
  });

  it("no container sends from another address than its own", async () => {
    for (const [container, other] of [
      [closed, plain],
      [listed, free],
      [plain, free],
      [free, plain],
    ] as const) {
      pretend(container, other);
      await container.send(`${container.name}-as-${other.name}`, WORLD, 53, addressOf(other));
      container.ip("address", "flush", "dev", "lo");
    }
    await plain.send("last", WORLD, 53);
    // All others would have come before this one.
    await eventually("what came last", () => world.output.includes("got last"));
    expect(world.output).not.toMatch(/-as-/);
  });

  it("the loopback of the machine is closed to a container that can send there (CVE-2020-8558)", async () => {
    expect(await plain.ask("tcp", "127.0.0.1", 9_000)).toBe("silence");
    reachForLoopback(free);
    for (const port of [9_000, 20_001, 20_002]) expect(await free.ask("tcp", "127.0.0.1", port)).toBe("silence");
    expect(await free.ask("udp", "127.0.0.1", 9_000)).toBe("silence");
  });

  it("change with the policies, in one step, for connections that stand too", async () => {
    const flow = () => world.ask("udp", "203.0.113.1", 20_003, `${WORLD}:40000`);
    expect(await flow()).toMatch(/^free/);
    const now = [of(closed, { egress: "on", ports: [] }), of(listed, { egress: [], ports: CLOSED.policy.ports })];
    apply(policyRules(NAMES, POLICIES, now));
    expect(await closed.ask("tcp", WORLD, 80)).toMatch(/^w-/);
    expect(await listed.ask("tcp", WORLD, 80)).toBe("EHOSTUNREACH");
    expect(await world.ask("tcp", "203.0.113.1", 20_004)).toMatch(/^listed/);
    expect(await world.ask("tcp", "203.0.113.1", 20_002)).toBe("ECONNREFUSED");
    // The kernel still knows this one, and where it led.
    expect(await flow()).toBe("silence");
    apply(policyRules(NAMES, now, []));
    expect(await listed.ask("tcp", WORLD, 80)).toMatch(/^w-/);
    const { nftables } = JSON.parse(machine.run("nft", "-j", "list", "ruleset"));
    const chains = nftables.flatMap(({ chain }: { chain?: { name: string } }) =>
      chain === undefined ? [] : [chain.name],
    );
    expect(chains.filter((name: string) => name.startsWith("to_"))).toEqual([]);
    const filled = nftables.filter(({ map, set }: { map?: object; set?: { name: string } }) =>
      JSON.stringify(map ?? (/^(flows|begun|early|early_flows)$/.test(set?.name ?? "") ? {} : set) ?? {}).includes(
        '"elem"',
      ),
    );
    expect(filled).toEqual([]);
  });

  describe("bound the tracked connections of one container", () => {
    const entries = () =>
      machine
        .run("cat", "/proc/net/nf_conntrack")
        .split("\n")
        .filter((line) => / src=(\S+)/.exec(line)?.[1] === addressOf(plain));
    const refused = () => {
      const said = machine.run("nft", "list", "counter", "inet", NAMES.table, FLOWS_COUNTER);
      return Number(/packets (\d+)/.exec(said)?.[1]);
    };

    beforeAll(() => apply(tableRules(NAMES, POLICIES)));

    it("of TCP when they are over: their entries end soon, and only so many begin", async () => {
      const script = `let left = 400, at_once = 0;
        const next = () => {
          while (at_once < 20 && left > 0) {
            left--, at_once++;
            const s = require("net").connect({ host: "${WORLD}", port: 80 });
            s.setTimeout(300, () => s.destroy());
            s.once("data", () => s.end()).on("error", () => {}).on("close", () => { at_once--; next(); });
          }
        };
        next();`;
      plain.run(NODE_PATH, "-e", script);
      expect(refused()).toBeGreaterThan(0);
      expect(entries().length).toBeGreaterThan(FLOWS_MAX / 2);
      expect(entries().length).toBeLessThan(3 * FLOWS_MAX);
      await eventually("the entries of closed connections to be gone", () => !entries().join().includes("TIME_WAIT"));
    });

    it("of UDP, and count the packets that they drop", async () => {
      const script = `const u = require("dgram").createSocket("udp4");
        let left = 0;
        for (let port = 1000; port < 1400; port++) u.send("x", port, "${WORLD}", () => ++left === 400 && u.close());`;
      const before = refused();
      plain.run(NODE_PATH, "-e", script);
      expect(entries().length).toBeGreaterThan(FLOWS_MAX / 2);
      // Connections that are over are not counted.
      expect(entries().length).toBeLessThanOrEqual(FLOWS_MAX + 5);
      expect(refused() - before).toBeGreaterThanOrEqual(400 - FLOWS_MAX - 5);
      expect(await plain.ask("tcp", WORLD, 80)).toBe("silence");
      expect(await free.ask("tcp", WORLD, 80)).toMatch(/^w-/);
    });
  });

  describe("bound the tracked connections of a tenant with many addresses", () => {
    const inBucket = (container: Namespace) => ({ ...of(container, { egress: "on", ports: [] }), bucket: "bucket_1" });
    /** Sends to one port after another, each a connection, for longer than an address is new. */
    const flood = (container: Namespace, seconds: number) => {
      const script = `const u = require("dgram").createSocket("udp4"), end = Date.now() + ${seconds * 1_000};
        const round = () => {
          for (let port = 1000; port < 1400; port++) u.send("x", port, "${OTHER}");
          setTimeout(() => Date.now() < end ? round() : u.close(), 200);
        };
        round();`;
      container.run(NODE_PATH, "-e", script);
    };
    const entries = (...containers: Namespace[]) => {
      const addresses = containers.map(addressOf);
      const lines = machine.run("cat", "/proc/net/nf_conntrack").split("\n");
      return lines.filter((line) => {
        const [, from = "", to] = / src=(\S+) dst=(\S+)/.exec(line) ?? [];
        return addresses.includes(from) && to === OTHER;
      }).length;
    };

    it("to those of one address in each bucket, and leave another tenant its own", async () => {
      apply(tableRules(NAMES, []));
      apply(policyRules(NAMES, [], [inBucket(plain), inBucket(listed)]));
      flood(plain, 3);
      flood(listed, 3);
      const most = entries(plain, listed);
      expect(most).toBeGreaterThan(FLOWS_MAX / 2);
      expect(most).toBeLessThanOrEqual(FLOWS_MAX + 5);
      expect(await listed.ask("tcp", WORLD, 80)).toBe("silence");
      expect(await free.ask("tcp", WORLD, 80)).toMatch(/^w-/);
      // The bucket ends with its last address, and so does its chain.
      apply(policyRules(NAMES, [inBucket(plain), inBucket(listed)], []));
      expect(await listed.ask("tcp", WORLD, 80)).toMatch(/^w-/);
      expect(machine.run("nft", "list", "table", "inet", NAMES.table)).not.toContain("bucket_1");
    });

    it("to a few of an address that is new, because the kernel does not count connections that stand", () => {
      apply(tableRules(NAMES, []));
      flood(free, 0);
      expect(entries(free)).toBeGreaterThan(10);
      expect(entries(free)).toBeLessThanOrEqual(32 + 5);
      flood(free, 3);
      expect(entries(free)).toBeGreaterThan(FLOWS_MAX - 5);
    });
  });

  it("let nothing pass a link that was cut, in connections that stand, published or tracked ones either", async () => {
    apply(tableRules(NAMES, POLICIES));
    const flow = () => world.ask("udp", "203.0.113.1", 20_003, `${WORLD}:40001`);
    const local = () => machine.ask("tcp", "127.0.0.1", 20_001);
    const direct = () => machine.ask("tcp", addressOf(free), 80);
    for (const one of [flow, local, direct]) expect(await one()).toMatch(/^free/);
    const held = await machine.hold("127.0.0.1", 20_001);
    expect(await held.echo("before")).toBe("before");
    for (const group of [GROUPS.dead, GROUPS.doomed]) {
      machine.ip("link", "set", `h${containers.indexOf(free)}`, "group", String(group));
      for (const one of [flow, local, direct]) expect(await one()).toBe("silence");
      expect(await held.echo("after")).toBe("silence");
      expect(await free.ask("tcp", WORLD, 80)).toBe("silence");
      expect(await free.ask("tcp", "10.42.0.1", 8_701)).toBe("silence");
      expect(await listed.ask("tcp", WORLD, 80)).toMatch(/^w-/);
    }
    held.close();
  });

  it("end without a trace", () => {
    apply(noRules(NAMES.table));
    expect(machine.run("nft", "list", "ruleset")).toBe("");
  });
});
