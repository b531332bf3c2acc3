/** Instances and containers beyond the ports that a bridge has (1,023): each has its network, and keeps it. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { each } from "../../src/base/concurrency.ts";
import type { Instance } from "../../src/engine/ports.ts";
import { eventually, leftoversOf } from "../support/daemon.ts";
import { command, containerSpec, engineConfig, engineOf, standardClass } from "../support/engine.ts";
import { ownNetworkFlags } from "../support/networks.ts";

const INSTANCES = 1_000;
const CONTAINERS = 500;
const STARTS_AT_ONCE = 4;
const CHECKS_AT_ONCE = 8;
/** One in this many containers publishes a port and may send nowhere. */
const PUBLISH_STEP = 50;
const PORT_FIRST = 21_700;

const data_dir = realpathSync(mkdtempSync("/var/tmp/hearth-scale-"));
const flags = ownNetworkFlags(data_dir);
const config = engineConfig([...flags, "--instances-max", String(INSTANCES), "--containers-max", String(CONTAINERS)]);
const engine = engineOf(config);
const { containers } = engine;
const instances = new Map<string, Instance>();
const ids = Array.from({ length: CONTAINERS }, (_, n) => `c${n}`);
const published = ids.flatMap((id, n) => (n % PUBLISH_STEP === 0 ? [{ id, port: PORT_FIRST + n / PUBLISH_STEP }] : []));
let server: Server;
let before: Counts;

beforeAll(async () => {
  await engine.boot();
  await containers.userNamespacesTried();
  server = createServer((socket) => socket.end(`${socket.remoteAddress}`));
  await new Promise<void>((resolve) => server.listen(0, engine.info().gateway, resolve));
  await engine.openPort(portOf(server));
  // The first instance and container create what later ones reuse: it exists before anything is counted.
  await engine.instances.remove(await engine.instances.start("first", standardClass(engine)));
  await startContainer("first");
  await endContainer("first");
  before = await settledCounts();
});

afterAll(async () => {
  server.close();
  await Promise.all(containers.ids.map((id) => containers.kill(id)));
  await engine.shutdown();
  rmSync(data_dir, { recursive: true, force: true });
});

function portOf(listening: Server): number {
  const address = listening.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

const GREETER = `
import socket, sys
listening = socket.create_server(("", 80))
while True:
    with listening.accept()[0] as caller: caller.sendall(sys.argv[1].encode())
`;

async function startContainer(id: string): Promise<void> {
  const port = published.find((one) => one.id === id)?.port;
  const ports = [{ container_port: 80, host_port: port ?? 0, host_address: "127.0.0.1", protocol: "tcp" }] as const;
  const serving = { egress: "off", ports, command: ["python3", "-c", GREETER, id] } as const;
  await containers.create(id, null);
  const ended = await containers.start(containerSpec(id, port === undefined ? {} : serving));
  expect(ended).toBeNull();
}

async function endContainer(id: string): Promise<void> {
  await containers.kill(id);
  await containers.remove(id);
}

const asking = () => ["bash", "-c", `exec 3<>/dev/tcp/${engine.info().gateway}/${portOf(server)}; cat <&3`];

/** The address of an instance that the gateway's server sees. */
async function seenFrom({ minit }: Instance): Promise<string> {
  const { stdout, idle } = await minit.execSole(command(asking()));
  await idle;
  return stdout;
}

/** The address of a container that the gateway's server sees. */
async function seenFromContainer(id: string): Promise<string> {
  const { stdout } = await containers.run(id, {
    argv: asking(),
    environment: ["PATH=/usr/bin:/bin"],
    working_directory: "/",
    timeout_ms: 10_000,
    grace_ms: 0,
    output_bytes_max: 1_000,
    is_stream: false,
  }).exited;
  return stdout.toString();
}

function greetingAt(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("error", reject).on("end", () => resolve(text));
  });
}

/** Each of what runs reaches the gateway from its own address, and each published port its own container. */
async function checkAll(live: readonly string[]): Promise<void> {
  await each(instances.values(), CHECKS_AT_ONCE, async (instance) => {
    expect(await seenFrom(instance)).toBe(instance.address);
  });
  await each(live, CHECKS_AT_ONCE, async (id) => {
    expect(await seenFromContainer(id)).toBe(containers.live(id)?.address);
  });
  for (const { id, port } of published.filter((one) => live.includes(one.id))) {
    expect(await eventually(`${id} listens`, () => greetingAt(port).catch(() => null))).toBe(id);
  }
}

interface Counts {
  readonly links: number;
  readonly rules: number;
  readonly namespaces: number;
  readonly cgroups: number;
  readonly mounts: number;
  readonly processes: number;
  readonly subvolumes: number;
}

/** Sets of the tables whose elements packets add; the kernel drops these by itself. */
const PACKET_SETS = ["flows", "begun"];

/** Rules of the engine's tables, and elements of their sets and maps: not of those that packets fill. */
function rulesOf(tables: readonly string[]): number {
  // biome-ignore lint/suspicious/noExplicitAny: as nft prints it.
  const listed: any[] = tables.flatMap((line) => {
    const [, family = "", name = ""] = line.split(" ");
    return JSON.parse(execFileSync("nft", ["-j", "list", "table", family, name]).toString()).nftables;
  });
  let count = 0;
  for (const { rule, set, map } of listed) {
    const holder = set ?? map;
    if (rule !== undefined) count += 1;
    if (holder !== undefined && !PACKET_SETS.includes(holder.name)) count += holder.elem?.length ?? 0;
  }
  return count;
}

function counts(): Counts {
  const { links, tables, namespaces, cgroups, mounts, processes, subvolumes } = leftoversOf(config);
  return {
    links: links.length,
    rules: rulesOf(tables),
    namespaces: namespaces.length,
    cgroups: cgroups.length,
    mounts: mounts.length,
    processes: processes.length,
    subvolumes: subvolumes.length,
  };
}

/** Returns the counts once they stay the same: the engine creates and deletes slots in the background. */
async function settledCounts(): Promise<Counts> {
  let last = "";
  return eventually("the counts stay", async () => {
    const now = counts();
    const isSame = JSON.stringify(now) === last;
    last = JSON.stringify(now);
    return isSame ? now : null;
  });
}

describe(`${INSTANCES} instances and ${CONTAINERS} containers at the same time`, () => {
  it("start, and each has a network of its own", { timeout: 300_000 }, async () => {
    const names = Array.from({ length: INSTANCES }, (_, n) => `many-${n}`);
    // One container to two instances: neither kind is complete before the other.
    const all = names.flatMap((name, n) => (n % 2 === 0 ? [name, `c${n / 2}`] : [name]));
    await each(all, STARTS_AT_ONCE, async (name) => {
      if (name.startsWith("c")) await startContainer(name);
      else instances.set(name, await engine.instances.start(name, standardClass(engine)));
    });
    const addresses = [...instances.values(), ...ids.map((id) => containers.live(id))].map((one) => one?.address);
    expect(new Set(addresses).size).toBe(INSTANCES + CONTAINERS);
    const { links, namespaces } = counts();
    expect(links).toBeGreaterThanOrEqual(INSTANCES + CONTAINERS);
    expect(namespaces).toBeGreaterThanOrEqual(INSTANCES + CONTAINERS);
    await checkAll(ids);
  });

  it("keep it while half of them are removed", { timeout: 300_000 }, async () => {
    await each([...instances.values()].slice(INSTANCES / 2), CHECKS_AT_ONCE, async (instance) => {
      instances.delete(instance.id);
      await engine.instances.remove(instance);
    });
    await each(ids.slice(CONTAINERS / 2), CHECKS_AT_ONCE, endContainer);
    await checkAll(ids.slice(0, CONTAINERS / 2));
  });

  it("leave no link, rule, namespace or control group", { timeout: 300_000 }, async () => {
    const addresses = new Set([...instances.values()].map(({ address }) => address));
    await each(instances.values(), CHECKS_AT_ONCE, (instance) => engine.instances.remove(instance));
    await each(ids.slice(0, CONTAINERS / 2), CHECKS_AT_ONCE, endContainer);
    const next = await engine.instances.start("afterwards", standardClass(engine));
    expect(await seenFrom(next)).toBe(next.address);
    expect(addresses.has(next.address)).toBe(false);
    await engine.instances.remove(next);
    await eventually("all is as before", () => JSON.stringify(counts()) === JSON.stringify(before)).catch(() => {});
    expect(counts()).toEqual(before);
  });
});
