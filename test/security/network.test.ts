/** The way out of an instance, to a machine that this test makes: a network namespace behind a link of its own. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { NODE_PATH } from "../../src/installation/paths.js";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const outside = `out${daemon.tag}`;
const link = `o${daemon.tag}`;
/** From the block that is set aside for documentation (RFC 5737), so that it is nobody's. */
const HOST = "203.0.113.1";
const SERVER = "203.0.113.2";
const PORT = 8080;
let server: ChildProcess | undefined;

const ip = (...args: string[]) => execFileSync("ip", args);

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1" });
  ip("netns", "add", outside);
  ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", outside);
  ip("address", "add", `${HOST}/30`, "dev", link);
  ip("link", "set", link, "up");
  ip("-n", outside, "address", "add", `${SERVER}/30`, "dev", "eth0");
  ip("-n", outside, "link", "set", "eth0", "up");
  ip("-n", outside, "link", "set", "lo", "up");
  // Tells everyone who connects by which address it sees them, and tries to reach an address that it is told.
  const script = `require("net").createServer((s) => {
    s.on("error", () => {});
    s.once("data", (d) => {
      const [host, port] = d.toString().trim().split(" ");
      if (host === "who") return s.end(s.remoteAddress.replace("::ffff:", ""));
      const probe = require("net").connect({ host, port: Number(port) });
      probe.setTimeout(700, () => { probe.destroy(); s.end("closed"); });
      probe.on("connect", () => { probe.destroy(); s.end("open"); });
      probe.on("error", () => s.end("closed"));
    });
  }).listen(${PORT}, () => console.log("listening"))`;
  // The default route of the outside leads to this machine: what comes back unmasked would find its way.
  ip("-n", outside, "route", "add", "default", "via", HOST);
  const child = spawn("ip", ["netns", "exec", outside, NODE_PATH, "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  server = child;
  await new Promise((resolve) => child.stdout.once("data", resolve));
});

afterAll(async () => {
  server?.kill("SIGKILL");
  ip("link", "delete", link);
  ip("netns", "delete", outside);
  await daemon.dispose();
});

const ask = (question: string) => `import socket
s = socket.create_connection(("${SERVER}", ${PORT}), 3); s.sendall(b"${question}\\n"); print(s.recv(100).decode())`;

describe("an instance", () => {
  it("reaches the outside, and is seen there by this machine's address", async () => {
    await daemon.deploy({ name: "goes-out", handler: `python3 - <<'EOF'\n${ask("who")}\nEOF` });
    expect((await daemon.invoke("goes-out")).stdout).toBe(`${HOST}\n`);
  });

  it("cannot be reached from the outside, not even on a port that it listens on", async () => {
    const handler = `python3 - <<'EOF'
import socket, fcntl, struct
listener = socket.create_server(("0.0.0.0", 9100))
own = socket.inet_ntoa(fcntl.ioctl(listener.fileno(), 0x8915, struct.pack("256s", b"eth0"))[20:24])
${ask("' + own.encode() + b' 9100").replace('b"', "b'").replace('\\n")', "\\n')")}
EOF`;
    await daemon.deploy({ name: "listens", handler });
    const record = await daemon.invoke("listens");
    expect([record.stdout, record.stderr]).toEqual(["closed\n", ""]);
  });

  it("makes no neighbour entry, whatever addresses it sends to", async () => {
    const base = daemon.subnet.split(".").slice(0, 2).join(".");
    const handler = `python3 - <<'EOF'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(12000): s.sendto(b"x", ("${base}.%d.%d" % (n // 250, n % 250 + 2), 9))
print(len(open("/proc/net/arp").readlines()) - 1)
EOF`;
    await daemon.deploy({ name: "asks-all", handler });
    expect((await daemon.invoke("asks-all")).stdout).toBe("1\n");
    const neighbours = JSON.parse(ip("-j", "-4", "neigh", "show", "nud", "all").toString()) as Neighbour[];
    const own = neighbours.filter(({ dev }) => dev === daemon.bridge || dev.startsWith(`h${daemon.tag.slice(0, 6)}`));
    // The machine's own, of the group to which it says which groups it listens to.
    const made = own.filter(({ state, dst }) => !state.includes("PERMANENT") && dst !== "224.0.0.22");
    expect(made).toEqual([]);
    expect((await daemon.invoke("goes-out")).stdout).toBe(`${HOST}\n`);
  });

  it("has so many tracked connections and no more, and leaves the others theirs", async () => {
    const handler = `python3 - <<'EOF'
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# An address that is new has few.
for _ in range(4):
    for port in range(1, 20001): s.sendto(b"x", ("${SERVER}", port))
    time.sleep(0.8)
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); t.connect(("${SERVER}", 1)); print(t.getsockname()[0])
EOF`;
    await daemon.deploy({ name: "asks-often", handler });
    const address = (await daemon.invoke("asks-often")).stdout.trim();
    const count = readFileSync("/proc/net/nf_conntrack", "utf8")
      .split("\n")
      .filter((line) => / src=(\S+)/.exec(line)?.[1] === address).length;
    expect(count).toBeGreaterThan(LIMITS.flows_max / 2);
    expect(count).toBeLessThanOrEqual(LIMITS.flows_max + 10);
    await eventually("the daemon to say how many packets were dropped", async () => {
      const { budgets } = (await daemon.call("GET", "/api/system/info")).body.engine;
      const { note } = budgets.find(({ name }: { name: string }) => name === "tracked_connections");
      return Number(/; (\d+) packets/.exec(note)?.[1]) > 0;
    });
    expect((await daemon.invoke("goes-out")).stdout).toBe(`${HOST}\n`);
  });
});

interface Neighbour {
  readonly dev: string;
  readonly dst: string;
  readonly state: readonly string[];
}
