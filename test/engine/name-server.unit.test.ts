/** The name server of containers on addresses of this machine's loopback: each stands for a container. */
import { createSocket, type Socket as DatagramSocket } from "node:dgram";
import { connect as connectTcp, createServer, type Socket } from "node:net";
import { decode, encode, type Packet, type Question } from "dns-packet";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { createLog } from "../../src/base/log.ts";
import { readQuery } from "../../src/engine/dns/message.ts";
import { NameServerOfContainers } from "../../src/engine/dns/name-server.ts";
import { instanceResolvConf, memberResolvConf } from "../../src/engine/dns/resolv-conf.ts";
import { framed, nameServersOf } from "../../src/engine/dns/upstream.ts";
import { Members, type PlacedMember } from "../../src/engine/network/members.ts";
import type { DnsPorts } from "../../src/engine/network/rules.ts";

const SERVER = "127.0.0.1";
const members = new Members();
const place = (address: string, more: Partial<PlacedMember>): void => {
  const id = `ctr_${address}`;
  const none = { tenant_id: "a", network: null, dns: false, egress: "on" as const };
  members.enter(address, { id, name: `c-${address.split(".")[3]}`, ...none, ...more });
};
const [WEB, STORE, OTHER, NAMED, CLOSED, LISTED, THEIRS, BY_TCP, BUSY, FLOODING] = Array.from(
  { length: 10 },
  (_, i) => `127.0.0.${2 + i}`,
) as [string, string, string, string, string, string, string, string, string, string];
const INNER = "127.0.0.24";
const UPSTREAM = "127.0.0.53";
const rule = { address: UPSTREAM, prefix_length: 32, port_min: 53, port_max: 53 };

const state = { ports: { udp: 0, tcp: 0 } as DnsPorts, asked: [] as string[], upstream_port: 0 };
/** Answers by the first label: `big` with many records, `silent` not at all, `forged` with another id, else one address. */
function upstreamAnswer(bytes: Buffer): Buffer | null {
  const query = decode(bytes);
  const [question] = query.questions ?? [];
  const name = question?.name ?? "";
  state.asked.push(name);
  if (name.startsWith("silent")) return null;
  const count = name.startsWith("big") ? 200 : 1;
  const answers = Array.from({ length: count }, (_, i) => ({
    name,
    type: "A" as const,
    data: `192.0.2.${i}`,
    ttl: 60,
  }));
  const id = ((query.id ?? 0) + (name.startsWith("forged") ? 1 : 0)) & 0xffff;
  const asked = name.startsWith("swapped") ? [{ name: "x.example", type: "A" as const }] : (query.questions ?? []);
  return encode({ type: "response", id, questions: asked, answers });
}

const servers: { close(): void }[] = [];
const nameServer = new NameServerOfContainers({
  clock: systemClock,
  log: createLog("silent", systemClock),
  members,
  subnet: { base: 0x7f00_0000, prefix_length: 24, size: 253 },
  address: SERVER,
  servers: () => [{ address: UPSTREAM, port: state.upstream_port }],
});

beforeAll(async () => {
  place(WEB, { name: "web", network: "shop" });
  place(STORE, { name: "store", network: "shop" });
  place(OTHER, { name: "other", network: "back", dns: true });
  place(NAMED, { name: "named", dns: true });
  place(INNER, { name: "github", network: "net-1", dns: true });
  place(CLOSED, { name: "closed", network: "shop", egress: "off" });
  place(LISTED, { name: "listed", network: "shop", egress: [{ ...rule, protocol: null }] });
  place(BY_TCP, { name: "by-tcp", network: "shop", egress: [{ ...rule, protocol: "tcp" }] });
  place(BUSY, { name: "busy", network: "shop" });
  place(FLOODING, { name: "flooding", network: "shop" });
  place(THEIRS, { name: "store", tenant_id: "b", network: "shop" });
  const udp = createSocket("udp4");
  udp.on("message", (bytes, { port, address }) => {
    const answer = upstreamAnswer(bytes);
    if (answer === null) return;
    const isLate = state.asked.at(-1)?.startsWith("late") === true;
    systemClock.after(isLate ? 500 : 0, () => udp.send(answer, port, address));
  });
  await new Promise<void>((resolve) => udp.bind(0, UPSTREAM, resolve));
  state.upstream_port = udp.address().port;
  const tcp = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (bytes: Buffer) => {
      const answer = upstreamAnswer(bytes.subarray(2));
      if (answer !== null) socket.write(framed(answer));
    });
  });
  await new Promise<void>((resolve) => tcp.listen(state.upstream_port, UPSTREAM, resolve));
  servers.push(udp, tcp);
  state.ports = await nameServer.open();
});
afterAll(() => {
  nameServer.close();
  for (const server of servers) server.close();
});

const queryOf = (name: string, more: Partial<Question> = {}, packet: Packet = {}): Buffer =>
  encode({ type: "query", id: 77, flags: 0x100, questions: [{ name, type: "A", ...more }], ...packet });

/** Returns the answer to a UDP message within `wait_ms`; null: there is none. */
async function byUdp(from: string, message: Buffer, wait_ms = 3_000): Promise<Buffer | null> {
  const socket: DatagramSocket = createSocket("udp4");
  await new Promise<void>((resolve) => socket.bind(0, from, resolve));
  try {
    return await new Promise((resolve) => {
      const cancel = systemClock.after(wait_ms, () => resolve(null));
      socket.once("message", (bytes) => {
        cancel();
        resolve(bytes);
      });
      socket.send(message, state.ports.udp, SERVER);
    });
  } finally {
    socket.close();
  }
}

function open(from: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp({ host: SERVER, port: state.ports.tcp, localAddress: from });
    socket.on("error", reject);
    socket.once("connect", () => resolve(socket));
  });
}
const closed = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    socket.resume();
    socket.once("close", () => resolve());
  });

async function byTcp(from: string, message: Buffer): Promise<Buffer> {
  const socket = await open(from);
  socket.write(framed(message));
  let received = Buffer.alloc(0);
  for await (const bytes of socket as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, bytes]);
    if (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) break;
  }
  socket.destroy();
  return received.subarray(2);
}

const RCODES = ["ok", "malformed", "failed", "unknown", "not implemented", "refused"];
function seen(answer: Buffer | null) {
  if (answer === null) return null;
  const rcode = RCODES[(answer[3] ?? 0) & 15];
  const { answers = [] } = decode(answer);
  return answers.length === 0 ? rcode : answers.map((one) => ("data" in one ? String(one.data) : "")).join(" ");
}
const asked = async (from: string, name: string, type: Question["type"] = "A") =>
  seen(await byUdp(from, queryOf(name, { type })));

describe("a name of a container", () => {
  it.each([
    [WEB, "store", STORE],
    [WEB, "STORE.Shop.Hearth.Internal", STORE],
    [WEB, "store.hearth.internal", STORE],
    [WEB, "store.shop.hearth.internal", STORE],
    [WEB, "store.back.hearth.internal", "unknown"],
    [WEB, "web.store.shop.hearth.internal", "unknown"],
    [WEB, "other", "unknown"],
    [WEB, "missing", "unknown"],
    [WEB, "hearth.internal", "ok"],
    [THEIRS, "store", THEIRS],
    [THEIRS, "web", "unknown"],
    [NAMED, "other.back.hearth.internal", OTHER],
    [NAMED, "GitHub.Net-1", INNER],
    [NAMED, "github.net-1.hearth.internal", INNER],
    [NAMED, "github", INNER],
    [NAMED, "localhost", "127.0.0.1"],
    [NAMED, "app.localhost", "127.0.0.1"],
    [NAMED, "named.invalid", "unknown"],
    [NAMED, "named.onion", "unknown"],
    [NAMED, "store", "unknown"],
    [OTHER, "named", NAMED],
  ])("is for %s, asked for %s: %s", async (from, name, expected) => {
    expect(await asked(from, name)).toBe(expected);
    expect(seen(await byTcp(from, queryOf(name)))).toBe(expected);
  });

  it("has no other records than its address, and says so without an error", async () => {
    for (const type of ["AAAA", "MX", "TXT"] as const) expect(await asked(WEB, "store", type)).toBe("ok");
    const answer = decode((await byUdp(WEB, queryOf("store"))) ?? Buffer.alloc(0));
    expect(answer.answers).toMatchObject([{ name: "store", type: "A", ttl: 0, data: STORE }]);
    expect([answer.id, answer.flag_aa, answer.flag_qr]).toEqual([77, true, true]);
  });

  it("is found by the address of those whom the asker sees, and no other address of the subnet leaves this machine", async () => {
    state.asked.length = 0;
    const reverse = (address: string) => `${address.split(".").reverse().join(".")}.in-addr.arpa`;
    expect(await asked(WEB, reverse(STORE), "PTR")).toBe("store.shop.hearth.internal");
    expect(await asked(NAMED, reverse(NAMED), "PTR")).toBe("named.hearth.internal");
    for (const address of [OTHER, THEIRS, "127.0.0.200"])
      expect(await asked(WEB, reverse(address), "PTR")).toBe("unknown");
    expect(state.asked).toEqual([]);
    await asked(WEB, reverse("192.0.2.1"), "PTR");
    expect(state.asked).toEqual(["1.2.0.192.in-addr.arpa"]);
  });

  it("is renamed for the next query, and ends with its container", async () => {
    place("127.0.0.20", { name: "first", network: "shop" });
    expect(members.rename("ctr_127.0.0.20", "second")).toBe(true);
    expect([await asked(WEB, "first"), await asked(WEB, "second")]).toEqual(["unknown", "127.0.0.20"]);
    // The next run of the same container comes before the last one has left.
    members.enter("127.0.0.21", { ...(members.at("127.0.0.20") as PlacedMember) });
    members.leave("127.0.0.20");
    expect(await asked(WEB, "second")).toBe("127.0.0.21");
    members.leave("127.0.0.21");
    expect(await asked(WEB, "second")).toBe("unknown");
    expect(members.rename("ctr_127.0.0.20", "third")).toBe(false);
  });
});

describe("any other name", () => {
  it("is asked of the machine's name servers as far as egress allows to send to them", async () => {
    const both = async (from: string) => [
      await asked(from, "a.example"),
      seen(await byTcp(from, queryOf("a.example"))),
    ];
    expect(await both(WEB)).toEqual(["192.0.2.0", "192.0.2.0"]);
    expect(await both(LISTED)).toEqual(["192.0.2.0", "192.0.2.0"]);
    expect(await both(BY_TCP)).toEqual(["refused", "192.0.2.0"]);
    state.asked.length = 0;
    expect(await both(CLOSED)).toEqual(["refused", "refused"]);
    expect(state.asked).toEqual([]);
  });

  it("is never a container's, whatever its network is called like", async () => {
    const wanted: [string, string][] = [
      ["github", "com"],
      ["depot", "shop"],
      ["front", "dev"],
      ["container", "xn--p1ai"],
      ["front", "localhost"],
      ["metadata", "internal"],
    ];
    for (const [name, network] of wanted) {
      const [asker, address] = ["127.0.0.22", "127.0.0.23"];
      place(asker, { name: "asks", network, dns: true });
      place(address, { name, network, dns: true });
      state.asked.length = 0;
      expect(await asked(asker, name)).toBe(address);
      expect(await asked(asker, `${name}.${network}.hearth.internal`)).toBe(address);
      const isLocal = network === "localhost";
      expect(await asked(asker, `${name}.${network}`)).toBe(isLocal ? "127.0.0.1" : "192.0.2.0");
      expect(await asked(NAMED, `${name.toUpperCase()}.${network}`)).toBe(isLocal ? "127.0.0.1" : "192.0.2.0");
      expect(state.asked.length).toBe(isLocal ? 0 : 2);
      members.leave(asker);
      members.leave(address);
    }
  });

  it("is no container's by way of the search domain while it gets no answer", async () => {
    const [asker, late] = ["127.0.0.26", "127.0.0.27"];
    place(asker, { name: "asker", network: "com" });
    place(late, { name: "silent", network: "com" });
    const known = async () => decode((await byUdp(asker, queryOf("silent.com.hearth.internal"))) ?? Buffer.alloc(0));
    expect(await known()).toMatchObject({ rcode: "NOERROR", answers: [{ data: late }] });
    // The resolver may go on before the name server gives up.
    await byUdp(asker, queryOf("silent.com"), 100);
    expect(await known()).toMatchObject({ rcode: "SERVFAIL", answers: [] });
    expect(decode((await byUdp(asker, queryOf("silent.com"))) ?? Buffer.alloc(0))).toMatchObject({ rcode: "SERVFAIL" });
    expect(await known()).toMatchObject({ rcode: "SERVFAIL", answers: [] });
    // Other askers and names are as before.
    const own = decode((await byUdp(late, queryOf("silent.com.hearth.internal"))) ?? Buffer.alloc(0));
    expect(own).toMatchObject({ rcode: "NOERROR", answers: [{ data: late }] });
    const short = decode((await byUdp(asker, queryOf("silent"))) ?? Buffer.alloc(0));
    expect(short).toMatchObject({ rcode: "NOERROR", answers: [{ data: late }] });
    members.leave(asker);
    members.leave(late);
  });

  it("that is too long for UDP is truncated, and whole by TCP", async () => {
    const short = decode((await byUdp(WEB, queryOf("big.example"))) ?? Buffer.alloc(0));
    expect([short.flag_tc, short.answers, short.questions?.[0]?.name]).toEqual([true, [], "big.example"]);
    expect(decode(await byTcp(WEB, queryOf("big.example"))).answers).toHaveLength(200);
  });

  it("fails where the answer has another id or question, and where none comes", async () => {
    const names = ["forged.example", "swapped.example", "silent.example"];
    expect(await Promise.all(names.map((name) => asked(WEB, name)))).toEqual(["failed", "failed", "failed"]);
  });

  it("fails at once beyond the queries under way that a container may have, and others get theirs", async () => {
    const max = LIMITS.dns_forwards_per_container_max;
    const waiting = Array.from({ length: max }, (_, i) => asked(BUSY, `silent${i}.example`));
    await expect.poll(() => state.asked.filter((name) => name.startsWith("silent")).length).toBeGreaterThanOrEqual(max);
    const began_ms = systemClock.monotonicMs();
    expect(await asked(BUSY, "silent.example")).toBe("failed");
    expect(systemClock.monotonicMs() - began_ms).toBeLessThan(LIMITS.dns_forward_ms / 2);
    expect([await asked(WEB, "b.example"), await asked(BUSY, "store")]).toEqual(["192.0.2.0", STORE]);
    expect(await Promise.all(waiting)).toEqual(waiting.map(() => "failed"));
    expect(await asked(BUSY, "c.example")).toBe("192.0.2.0");
  });
});

const header = (counts: readonly number[], flags = 0x0100): Buffer => {
  const bytes = Buffer.alloc(12);
  [9, flags, ...counts].forEach((value, i) => {
    bytes.writeUInt16BE(value, 2 * i);
  });
  return bytes;
};

describe("hostile messages", () => {
  const loop = Buffer.from("c00c00010001", "hex");
  const chain = Buffer.concat([Buffer.from("c00e", "hex"), Buffer.from("c00c00010001", "hex")]);
  it.each([
    ["a pointer to itself", Buffer.concat([header([1, 0, 0, 0]), loop]), "malformed"],
    ["pointers to each other", Buffer.concat([header([1, 0, 0, 0]), chain]), "malformed"],
    ["no question", header([0, 0, 0, 0]), "malformed"],
    ["65,535 questions", header([65_535, 0, 0, 0]), "malformed"],
    [
      "65,535 records",
      Buffer.concat([queryOf("store").subarray(0, 6), Buffer.from("ffffffffffff", "hex")]),
      "malformed",
    ],
    ["two questions", encode({ questions: ["a", "b"].map((name) => ({ name, type: "A" as const })) }), "malformed"],
    ["a label that ends nowhere", Buffer.concat([header([1, 0, 0, 0]), Buffer.from("3f61", "hex")]), "malformed"],
    [
      "a dot in a label",
      Buffer.concat([header([1, 0, 0, 0]), Buffer.from("0573746f2e65000001 0001".replace(" ", ""), "hex")]),
      "malformed",
    ],
    [
      "bytes that are no text",
      Buffer.concat([header([1, 0, 0, 0]), Buffer.from("02ff800000010001", "hex")]),
      "malformed",
    ],
    ["an update", header([1, 0, 0, 0], 0x2800), "not implemented"],
    ["another class", queryOf("store", { class: "CH" }), "refused"],
    ["a transfer of the zone", queryOf("hearth.internal", { type: "AXFR" }), "ok"],
    [
      "a query above the bound",
      Buffer.concat([queryOf("store"), Buffer.alloc(LIMITS.dns_query_bytes_max)]),
      "malformed",
    ],
  ])("such as %s get an answer without records", async (_, message, expected) => {
    const answer = await byUdp(WEB, message);
    expect(seen(answer)).toBe(expected);
    expect(answer?.length).toBeLessThanOrEqual(Math.max(message.length, 12) + 100);
  });

  it("that are responses, too short, or of nobody get none", async () => {
    const response = encode({ type: "response", questions: [{ name: "store", type: "A" }] });
    const silent = [
      byUdp(WEB, response, 300),
      byUdp(WEB, Buffer.alloc(3), 300),
      byUdp("127.0.0.99", queryOf("web"), 300),
    ];
    expect(await Promise.all(silent)).toEqual([null, null, null]);
    const stranger = await open("127.0.0.99");
    await closed(stranger);
  });

  it("never throw, whatever bytes there are", () => {
    const begun = fc.tuple(fc.constant(header([1, 0, 0, 1])), fc.uint8Array({ maxLength: 300 }));
    const near = begun.map(([first, rest]) => Buffer.concat([first, rest]));
    const any = fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes));
    const changed = fc.tuple(fc.nat(60), fc.nat(255)).map(([at, value]) => {
      const bytes = queryOf("store.shop.hearth.internal");
      bytes[at % bytes.length] = value;
      return bytes;
    });
    fc.assert(
      fc.property(fc.oneof(near, any, changed), (bytes) => {
        const query = readQuery(bytes);
        expect(query === null || "answer" in query || query.name.length <= 255).toBe(true);
      }),
      { numRuns: 5_000 },
    );
  });
});

describe("queries in a second", () => {
  const max = LIMITS.dns_container_packets_per_second;

  it("on the connections of a container are bounded, and others are answered meanwhile", async () => {
    const sockets = await Promise.all([open(FLOODING), open(FLOODING)]);
    let answered_bytes = 0;
    for (const socket of sockets) {
      socket.on("data", (bytes) => {
        answered_bytes += bytes.length;
      });
      socket.write(Buffer.concat(Array.from({ length: 3 * max }, () => framed(queryOf("missing")))));
    }
    const began_ms = systemClock.monotonicMs();
    await expect.poll(() => answered_bytes).toBeGreaterThan(0);
    expect(await asked(WEB, "store")).toBe(STORE);
    // It waited for a part of a window at most.
    expect(systemClock.monotonicMs() - began_ms).toBeLessThan(1_500);
    const each_bytes = framed((await byUdp(WEB, queryOf("missing"))) ?? Buffer.alloc(0)).length;
    await expect.poll(() => answered_bytes).toBe(6 * max * each_bytes);
    expect(systemClock.monotonicMs() - began_ms).toBeGreaterThan(4_000);
    for (const socket of sockets) socket.destroy();
  });

  it("by UDP are bounded, and those beyond get no answer", async () => {
    const socket = createSocket("udp4");
    await new Promise<void>((resolve) => socket.bind(0, FLOODING, resolve));
    let answer_count = 0;
    socket.on("message", () => answer_count++);
    const began_ms = systemClock.monotonicMs();
    for (let i = 0; i < 3 * max; i++) {
      await new Promise((resolve) => socket.send(queryOf("store"), state.ports.udp, SERVER, resolve));
      // The name server has this thread, too, and the kernel's buffer is small.
      if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await asked(WEB, "store")).toBe(STORE);
    const windows = Math.ceil((systemClock.monotonicMs() - began_ms) / 1_000) + 1;
    expect(answer_count).toBeLessThanOrEqual(windows * max);
    socket.close();
  });
});

it("no answer goes to a container that has the asker's address by then", async () => {
  const address = "127.0.0.20";
  place(address, { id: "ctr_first" });
  const answer = byUdp(address, queryOf("late.example"), 1_000);
  await expect.poll(() => state.asked).toContain("late.example");
  place(address, { id: "ctr_next", tenant_id: "b" });
  expect(await answer).toBeNull();
  members.leave(address);
});

describe("a TCP connection", () => {
  it("serves queries one after the other, in whatever pieces they come", async () => {
    const socket = await open(WEB);
    const all = Buffer.concat(["store", "missing", "web"].map((name) => framed(queryOf(name))));
    for (const byte of all) socket.write(Buffer.from([byte]));
    let received = Buffer.alloc(0);
    const found: unknown[] = [];
    for await (const bytes of socket as AsyncIterable<Buffer>) {
      received = Buffer.concat([received, bytes]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        found.push(seen(received.subarray(2, 2 + received.readUInt16BE(0))));
        received = received.subarray(2 + received.readUInt16BE(0));
      }
      if (found.length === 3) break;
    }
    expect(found).toEqual([STORE, "unknown", WEB]);
  });

  it("is closed at a query above the bound, beyond the number of a container, and when nothing comes", async () => {
    const long = await open(WEB);
    long.write(Buffer.from([0xff, 0xff, 0]));
    await closed(long);
    const held = await Promise.all(Array.from({ length: LIMITS.dns_connections_per_container_max }, () => open(STORE)));
    const over = await open(STORE);
    await closed(over);
    expect(seen(await byTcp(WEB, queryOf("store")))).toBe(STORE);
    const began_ms = systemClock.monotonicMs();
    await Promise.all(held.map(closed));
    expect(systemClock.monotonicMs() - began_ms).toBeLessThan(LIMITS.dns_connection_idle_ms + 5_000);
    expect(seen(await byTcp(STORE, queryOf("web")))).toBe(WEB);
  });
});

describe("resolv.conf", () => {
  const MACHINE =
    "# x\nnameserver 127.0.0.53\nnameserver 9.9.9.9\nsearch corp.example .\noptions edns0\nsortlist 1.2.3.4\n";

  it("of a member names the gateway, and keeps the machine's search domains and options", () => {
    expect(memberResolvConf(MACHINE, "10.42.0.1", "hearth.internal")).toBe(
      "nameserver 10.42.0.1\nsearch hearth.internal corp.example\noptions edns0\n",
    );
    // With ndots `github.com` would first be asked for below the container's own domain.
    const ndots = "search svc.example\noptions ndots:5 edns0\noptions ndots:3\noptions timeout:1\tndots:9\n";
    expect(memberResolvConf(ndots, "10.42.0.1", "hearth.internal")).toBe(
      "nameserver 10.42.0.1\nsearch hearth.internal svc.example\noptions edns0\noptions timeout:1\n",
    );
    expect(memberResolvConf("", "10.42.0.1", "hearth.internal")).toBe("nameserver 10.42.0.1\nsearch hearth.internal\n");
  });

  it("of any other container is the machine's without name servers on its loopback", () => {
    expect(instanceResolvConf(MACHINE)).toContain("nameserver 9.9.9.9");
    expect(instanceResolvConf(MACHINE)).not.toContain("127.0.0.53");
  });

  it("names at most three servers of the machine, by address", () => {
    const text = ["a.example", "9.9.9.9", "::1", "fe80::1%eth0", "1.1.1.1", "8.8.8.8"].map(
      (one) => `nameserver ${one}`,
    );
    expect(nameServersOf(text.join("\n")).map(({ address }) => address)).toEqual(["9.9.9.9", "::1", "fe80::1%eth0"]);
  });
});
