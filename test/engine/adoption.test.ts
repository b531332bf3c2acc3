/** What an engine finds of one whose process was killed: who lives on, who goes, and that nothing is left in the end. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { readConfig } from "../../src/base/config.ts";
import type { Adopted, Engine, Instance } from "../../src/engine/ports.ts";
import { NODE_PATH } from "../../src/installation/paths.js";
import { eventually, leftoversOf, linkOf } from "../support/daemon.ts";
import { command, engineConfig, engineOf, standardClass } from "../support/engine.ts";
import { MadeImages, mountsOf } from "../support/made-images.ts";
import { readText } from "../support/native.ts";
import { ownNetworkFlags, ownSubnet } from "../support/networks.ts";
import { pythonProgram } from "../support/python-runtime.ts";
import { sendSignal } from "../support/signals.ts";
import { type Left, residentCall, type Step } from "./leaver.ts";

const data_dir = realpathSync(mkdtempSync("/var/tmp/hearth-adoption-"));
const SUBNET = ownSubnet();
const flags = (...more: string[]) => [...ownNetworkFlags(data_dir, SUBNET), ...more];
const config = readConfig({}, flags());
const BRIDGE_PATH = `/sys/class/net/${config.bridge}`;
const links = () => readdirSync("/sys/class/net").filter((name) => name.startsWith(`h${config.host_tag.slice(0, 6)}`));
const networkLinkOf = ({ uid }: { uid: number }) => `h${config.host_tag.slice(0, 6)}${uid - 700_000_000}`;
const say = async ({ minit }: Instance, ...argv: string[]) => {
  const outcome = await minit.execSole(command(argv));
  await outcome.idle;
  return outcome.stdout;
};
const named = (found: readonly Adopted[]) => new Map(found.map((one) => [one.instance.id, one]));

const state: { child: ChildProcess | null; engine: Engine | null } = { child: null, engine: null };

/** Lets another process start instances, and gives what it said of them. `until`: what it has to say first. */
async function leave(steps: readonly Step[], engine_flags = flags(), until = "done"): Promise<Map<string, Left>> {
  const script = join(import.meta.dirname, "leaver.ts");
  const child = spawn(NODE_PATH, [script, JSON.stringify(engine_flags), JSON.stringify(steps)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  state.child = child;
  const said: string[] = [];
  child.stdout.on("data", (chunk) => said.push(String(chunk)));
  await eventually(
    "the instances are there",
    () => {
      if (child.exitCode !== null) throw new Error(`the other process ended with ${child.exitCode}`);
      return said.join("").includes(`${until}\n`);
    },
    60_000,
  );
  const lines = said
    .join("")
    .trim()
    .split("\n")
    .filter((line) => line.startsWith("{"));
  return new Map(lines.map((line) => JSON.parse(line) as Left).map((left) => [left.id, left]));
}

async function killIt(): Promise<void> {
  const child = state.child;
  if (child === null || child.exitCode !== null) return;
  const exited = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await exited;
  state.child = null;
}

async function boot(engine_flags = flags()): Promise<{ engine: Engine; found: readonly Adopted[] }> {
  const engine = engineOf(engineConfig(engine_flags));
  state.engine = engine;
  return { engine, found: await engine.boot() };
}

/** Processes in the groups of an instance. */
function pidsOf(id: string): number[] {
  const root = "/sys/fs/cgroup";
  const parents = existsSync(`${root}/cgroup.procs`) ? [root] : readdirSync(root).map((name) => `${root}/${name}`);
  return parents.flatMap((parent) => {
    try {
      const text = readFileSync(`${parent}/hearth-${config.host_tag}/${id}/cgroup.procs`, "utf8");
      return text.split("\n").filter(Boolean).map(Number);
    } catch {
      return [];
    }
  });
}

/** All that carries the name of the engine: processes, groups, links, tables, mounts, files, buildah's container. */
function traces(): string[] {
  const { host_tag, run_dir } = config;
  const found = [...links(), ...(existsSync(BRIDGE_PATH) ? [config.bridge] : [])];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      const group = readFileSync(`/proc/${pid}/cgroup`, "utf8");
      if (line.includes(run_dir) || group.includes(host_tag)) found.push(`process ${pid} ${line}`);
    } catch {
      // It ended while we looked.
    }
  }
  const root = "/sys/fs/cgroup";
  for (const parent of [root, ...readdirSync(root).map((name) => `${root}/${name}`)]) {
    if (existsSync(`${parent}/hearth-${host_tag}`)) found.push(`${parent}/hearth-${host_tag}`);
  }
  if (execFileSync("nft", ["list", "tables"]).toString().includes(host_tag)) found.push("an nft table");
  if (readFileSync("/proc/self/mounts", "utf8").includes(run_dir)) found.push("a mount");
  if (existsSync(run_dir)) found.push(run_dir);
  return found;
}

afterEach(async () => {
  await killIt();
  await state.engine?.shutdown();
  state.engine = null;
  expect(traces()).toEqual([]);
});
afterAll(() => rmSync(data_dir, { recursive: true, force: true }));

describe.each(["crun", "runc"])("an engine on %s that comes after one that was killed", (oci_runtime) => {
  it("adopts what is idle and clean, with its mark, its nonce and its address, and removes the rest", async () => {
    const with_runtime = flags("--oci-runtime", oci_runtime);
    const left = await leave(
      [
        { id: "cell" },
        { id: "marked", mark: "fn_1 3 é", argv: ["touch", "/tmp/left"] },
        { id: "missing", mark: "m", argv: ["no-such-command"] },
        { id: "busy", argv: ["sleep", "1000"], isHalfDone: true },
        { id: "late", argv: ["sleep", "1000"], timeout_ms: 50 },
        { id: "refused", argv: ["/etc/passwd"] },
        { id: "greedy", argv: ["python3", "-c", "bytearray(400 << 20)"] },
        { id: "dead" },
        { id: "unplugged" },
      ],
      with_runtime,
    );
    await eventually("the command runs", () => new Set(pidsOf("busy")).size === 2);
    await killIt();
    for (const pid of new Set(pidsOf("dead"))) sendSignal(pid);
    execFileSync("ip", ["link", "set", networkLinkOf(left.get("unplugged") as Left), "group", "0"]);

    const { engine, found } = await boot(with_runtime);
    const adopted = named(found);
    expect([...adopted.keys()].sort()).toEqual(["cell", "marked", "missing"]);
    expect(["cell", "marked", "missing"].map((id) => adopted.get(id)?.mark)).toEqual([null, "fn_1 3 é", "m"]);
    for (const { instance } of found) {
      const { id, nonce, address, uid } = instance;
      expect({ id, nonce, address, uid }).toEqual(left.get(id));
    }
    for (const id of left.keys()) {
      if (!adopted.has(id)) await eventually(`${id} is gone`, () => pidsOf(id).length === 0);
    }
    await eventually("their files are gone", () => readdirSync(`${config.run_dir}/i`).length === 3);
    const { instance } = adopted.get("marked") as Adopted;
    expect(await say(instance, "sh", "-c", "cat; ls /tmp; ls -d /usr /etc; ls / | grep -c usr")).toBe(
      "/etc\n/usr\n1\n",
    );
    await Promise.all(found.map((one) => engine.instances.remove(one.instance)));
    expect(readdirSync(`${config.run_dir}/i`)).toEqual([]);
  });
});

describe("an engine that comes after one that was killed", () => {
  it("gives no address and no uid a second time, however the old and the new come and go", async () => {
    const ids = Array.from({ length: 8 }, (_, n) => `old-${n}`);
    await leave(ids.map((id, n) => (n % 2 === 0 ? { id } : { id, argv: ["sleep", "1000"], isHalfDone: true })));
    await eventually("the commands run", () => new Set(pidsOf("old-7")).size === 2);
    await killIt();
    const { engine, found } = await boot();
    const living = new Map(found.map(({ instance }) => [instance.id, instance]));
    expect(living.size).toBe(4);
    for (let round = 0; round < 4; round++) {
      const more = Array.from({ length: 6 }, (_, n) =>
        engine.instances.start(`new-${round}-${n}`, standardClass(engine)),
      );
      for (const instance of await Promise.all(more)) living.set(instance.id, instance);
      const all = [...living.values()];
      for (const field of ["address", "uid", "nonce"] as const) {
        expect(new Set(all.map((instance) => instance[field])).size).toBe(all.length);
      }
      const adopted = found[round]?.instance as Instance;
      living.delete(adopted.id);
      const [leaving] = [...living.values()].slice(-1);
      living.delete(leaving?.id ?? "");
      await Promise.all([engine.instances.remove(adopted), engine.instances.remove(leaving as Instance)]);
    }
    const addresses = await Promise.all(
      [...living.values()].map((instance) => say(instance, "python3", "-c", OWN_ADDRESS)),
    );
    expect(addresses).toEqual([...living.values()].map(({ address }) => `${address}\n`));
    await Promise.all([...living.values()].map((instance) => engine.instances.remove(instance)));
  });

  it("knows the class of what it adopts, and keeps the image of that class mounted until nothing needs it", async () => {
    const images = new MadeImages(`localhost/hearth-test-adoption-${process.pid}`);
    const id = images.make("other");
    const mounted = () => mountsOf(leftoversOf(config), id);
    try {
      const of = { key: "other-1", image: id, scratch_mb: 9, runtime_directory: null, resident: null };
      await leave([{ id: "plain" }, { id: "other", class: of }]);
      await killIt();
      const { engine, found } = await boot();
      expect(named(found).get("plain")?.class).toBe("standard");
      const other = named(found).get("other") as Adopted;
      expect(other.class).toBe("other-1");
      expect(await say(other.instance, "sh", "-c", "cat /version; df --output=size /tmp | tail -1")).toMatch(
        /^other\n +9216\n$/,
      );
      const next = await engine.instances.start("next", of);
      expect(await say(next, "cat", "/version")).toBe("other\n");
      await engine.instances.remove(other.instance);
      expect(mounted()).toHaveLength(1);
      await engine.instances.remove(next);
      await eventually("the image is unmounted", () => mounted().length === 0);
      await engine.shutdown();
    } finally {
      images.remove();
    }
  });

  it("lets what it adopted reach what it reached before, on the bridge that was there", async () => {
    await leave([{ id: "talker" }]);
    const identity = () => readFileSync(`${BRIDGE_PATH}/ifindex`, "utf8");
    const before = identity();
    await killIt();
    const { engine, found } = await boot();
    expect(identity()).toBe(before);
    const fresh = await engine.instances.start("fresh", standardClass(engine));
    const server = createServer((socket) => socket.end("hello"));
    const closed = createServer((socket) => socket.end("secret"));
    const listening = (one: typeof server, host: string) =>
      new Promise<number>((resolve) =>
        one.listen(0, host, () => {
          const address = one.address();
          resolve(typeof address === "object" && address !== null ? address.port : 0);
        }),
      );
    const gateway = SUBNET.replace(/0\/20$/, "1");
    const port = await listening(server, gateway);
    const other_port = await listening(closed, "0.0.0.0");
    // What is dropped is not answered: only a wait shows it.
    const reached = (instance: Instance, to: number, seconds: number) =>
      say(instance, "timeout", String(seconds), "bash", "-c", `exec 3<>/dev/tcp/${gateway}/${to}; cat <&3`);
    expect(await reached(fresh, port, 0.5)).toBe("");
    expect(engine.info().gateway).toBe(gateway);
    await engine.openPort(port);
    for (const instance of [found[0]?.instance as Instance, fresh]) {
      expect(await reached(instance, port, 5)).toBe("hello");
      expect(await reached(instance, other_port, 0.5)).toBe("");
    }
    await engine.openPort(other_port);
    expect([await reached(fresh, port, 5), await reached(fresh, other_port, 5)]).toEqual(["hello", "secret"]);
    server.close();
    closed.close();
  });

  it("keeps code, secrets and egress of what it adopts, and removes what has them without a mark", async () => {
    await leave([{ id: "bound", code: "one", mark: "m" }, { id: "unbound", code: "two" }, { id: "cell" }]);
    const argv = ["nft", "list", "map", "inet", `hearth_${config.host_tag}`, "egress"];
    const closed = () =>
      execFileSync(argv[0] ?? "", argv.slice(1))
        .toString()
        .match(/[\d.]+ : goto refuse/g) ?? [];
    expect(closed()).toHaveLength(2);
    await killIt();
    expect(closed()).toHaveLength(2);
    const { engine, found } = await boot();
    const { bound, cell } = Object.fromEntries(found.map(({ instance }) => [instance.id, instance]));
    if (bound === undefined || cell === undefined) throw new Error("both live");
    expect(found).toHaveLength(2);
    expect(closed()).toContain(`${bound.address} : goto refuse`);
    await eventually("the other's rule is gone with it", () => closed().length === 1 && pidsOf("unbound").length === 0);
    const look = ["bash", "-c", "grep -cE ' /(function|run/secrets) ' /proc/self/mounts; cat /run/secrets/A"];
    expect(await say(bound, ...look)).toBe("2\na");
    await expect(
      engine.instances.attach(bound, { code: "two", secrets: new Map(), egress: "on" }),
    ).rejects.toMatchObject({ code: "START_FAILED" });
    expect(await say(cell, ...look)).toBe("0\n");
    await engine.instances.attach(cell, { code: "one", secrets: new Map([["A", Buffer.from("b")]]), egress: "on" });
    expect(await say(cell, ...look)).toBe("2\nb");
    await Promise.all([engine.instances.remove(bound), engine.instances.remove(cell)]);
    expect(closed()).toEqual([]);
    for (const id of ["one", "two"]) await engine.storage.remove("code", id);
  });

  it("adopts nothing that was made otherwise, and serves with what is asked for now", async () => {
    await leave([{ id: "other", mark: "m" }]);
    await killIt();
    const subnet = ownSubnet();
    const { engine, found } = await boot(ownNetworkFlags(data_dir, subnet));
    expect(found).toEqual([]);
    expect([pidsOf("other"), readdirSync(`${config.run_dir}/i`)]).toEqual([[], []]);
    const instance = await engine.instances.start("other", standardClass(engine));
    const [first, second, third] = (await say(instance, "python3", "-c", OWN_ADDRESS)).split(".");
    expect(`${first}.${second}.${Number(third) & 240}.0/20`).toBe(subnet);
  });

  it("adopts instances of an earlier image, and starts others on the present one", async () => {
    const images = new MadeImages(`localhost/hearth-test-release-${process.pid}`);
    try {
      const present_id = images.make("present");
      await leave([{ id: "earlier", mark: "m" }]);
      await killIt();
      const engine = engineOf(engineConfig(flags()), present_id);
      state.engine = engine;
      const [earlier, ...others] = (await engine.boot()) as [Adopted];
      expect(others).toEqual([]);
      expect(earlier).toMatchObject({ class: "standard", mark: "m", image: expect.stringMatching(/^[0-9a-f]{64}$/) });
      expect(earlier.image).not.toBe(present_id);
      const look = ["sh", "-c", "cat /version 2>/dev/null || echo earlier"];
      expect(await say(earlier.instance, ...look)).toBe("earlier\n");
      expect(await say(await engine.instances.start("next", standardClass(engine)), ...look)).toBe("present\n");
      await engine.shutdown();
    } finally {
      images.remove();
    }
  });

  it("adopts nothing of an engine that had not booted to the end", async () => {
    await leave([{ id: "early" }]);
    await killIt();
    rmSync(`${config.run_dir}/fingerprint`);
    expect((await boot()).found).toEqual([]);
    expect(pidsOf("early")).toEqual([]);
  });

  it.each([
    ["created", 'crun --root "$2" create --preserve-fds 1 --bundle "$8" half'],
    ["started, but not let go,", 'crun "$@"'],
  ])("removes a container that was %s by a start that was under way, with who works on it", async (what, half) => {
    const runtime = join(data_dir, `slow-crun-${what.length}`);
    const script = `#!/bin/bash
if [ "\${!#}" = half ] && [ "$3" = run ]; then
  ${half}
  mkfifo "$0.fifo"; read -r line < "$0.fifo"
fi
exec crun "$@"
`;
    writeFileSync(runtime, script);
    chmodSync(runtime, 0o755);
    const with_runtime = flags("--oci-runtime", runtime);
    await leave([{ id: "whole" }, { id: "half", isHalfDone: true }], with_runtime);
    await eventually("the start is half-way", () => existsSync(`${runtime}.fifo`));
    expect(pidsOf("half").length).toBeGreaterThan(0);
    await killIt();
    const { found } = await boot(with_runtime);
    expect([...named(found).keys()]).toEqual(["whole"]);
    await eventually(
      "it is gone",
      () => pidsOf("half").length === 0 && readdirSync(`${config.run_dir}/i`).length === 1,
    );
    expect(traces().filter((line) => line.includes("/i/half"))).toEqual([]);
  });

  it("adopts instances with their resident process, and removes those whose process has ended or had a call", async () => {
    const handler = `
import threading
calls = []
def handler(payload, log):
    calls.append(payload.decode())
    if payload == b"hold": threading.Event().wait()
    return " ".join(calls).encode()
`;
    const of = { key: "warm", resident: pythonProgram(handler) };
    const never_open = { key: "slow", resident: pythonProgram("import time; time.sleep(1000)", 60_000) };
    await leave([
      { id: "cell", class: of },
      { id: "bound", class: of, mark: "fn_1 3", call: "before" },
      { id: "busy", class: of, mark: "fn_1 3", call: "hold", isHalfDone: true },
      { id: "dead", class: of },
      { id: "plain" },
      { id: "early", class: never_open, isHalfDone: true },
    ]);
    const inner = (id: string) => pidsOf(id).filter((pid) => readText(`/proc/${pid}/comm`) === "python3\n");
    await eventually("its process was started", () => inner("early").length > 0);
    const pids = [...new Set([...inner("cell"), ...inner("bound")])];
    await killIt();
    for (const pid of new Set(inner("dead"))) sendSignal(pid);
    const { engine, found } = await boot();
    const adopted = named(found);
    expect([...adopted.keys()].sort()).toEqual(["bound", "cell", "plain"]);
    expect(adopted.get("plain")?.instance.resident).toBeNull();
    expect([...new Set([...inner("cell"), ...inner("bound")])]).toEqual(pids);
    const said = async (id: string, text: string) =>
      (await adopted.get(id)?.instance.resident?.call(residentCall(text)))?.result.toString();
    expect([await said("cell", "first"), await said("bound", "after")]).toEqual(["first", "before after"]);
    expect(adopted.get("bound")).toMatchObject({ class: "warm", mark: "fn_1 3" });
    await eventually("the others are gone", () => readdirSync(`${config.run_dir}/i`).length === 3);
    const ended = adopted.get("cell")?.instance.resident?.ended;
    for (const pid of new Set(inner("cell"))) sendSignal(pid);
    expect(await ended).toMatchObject({ signal: 9 });
    await Promise.all(found.map((one) => engine.instances.remove(one.instance)));
  });

  it("outlives a launcher that does not end by itself", async () => {
    await leave([{ id: "one" }]);
    const launcher = traces().find((line) => line.includes(" launcher "));
    const pid = Number(launcher?.split(" ")[1]);
    process.kill(pid, "SIGSTOP");
    await killIt();
    const { engine, found } = await boot();
    expect(found.length).toBe(1);
    expect(linkOf(`/proc/${pid}/exe`).join()).not.toContain("minit");
    await engine.instances.remove(await engine.instances.start("two", standardClass(engine)));
  });

  it("adopts again what it adopted, and takes all with it when it ends in order", async () => {
    const left = await leave([{ id: "veteran", mark: "v" }]);
    await killIt();
    // A second process that is killed as well, having added one of its own.
    await leave([{ id: "recruit" }]);
    await killIt();
    const { engine, found } = await boot();
    expect([...named(found).keys()].sort()).toEqual(["recruit", "veteran"]);
    const veteran = named(found).get("veteran");
    expect([veteran?.mark, veteran?.instance.nonce]).toEqual(["v", left.get("veteran")?.nonce]);
    await expect(engine.instances.start("veteran", standardClass(engine))).rejects.toMatchObject({
      code: "START_FAILED",
    });
    expect(engine.instances.memoryUsedMb()).toBeGreaterThan(0);
  });

  it("tells of an adopted instance that ends, before and after anybody listened", async () => {
    await leave([{ id: "first" }, { id: "second" }]);
    await killIt();
    const { found } = await boot();
    for (const { instance } of found) {
      const [pid = 0] = pidsOf(instance.id);
      process.kill(pid, "SIGKILL");
      if (instance.id === "first") await eventually("it is lost", () => !instance.minit.isOpen);
      await new Promise<void>((resolve) => instance.minit.onClosed(resolve));
    }
  });
});

const OWN_ADDRESS = `import socket, fcntl, struct
s = socket.socket(); print(socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", b"eth0"))[20:24]))`;
