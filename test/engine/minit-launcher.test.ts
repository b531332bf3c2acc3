/** `minit launcher`: commands, listening sockets, network namespaces and files below a root, on the real machine. */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FRAME, FrameWriter, strBytes } from "../../src/engine/minit/frames.ts";
import { children, eventually, Native, Wire } from "../support/native.ts";

const ENOENT = 2;
const EBADF = 9;
const EBUSY = 16;
const EINVAL = 22;
const MIB = 1024 * 1024;
const FD_NONE = 0xffffffff;
/** Of a range that no user of this machine has. */
const FIRST_ID = 1_900_000_000;

let native: Native;

beforeAll(async () => {
  native = await Native.start();
});

afterAll(() => native?.stop());

describe("minit launcher", () => {
  it("answers a ping", async () => {
    await native.ask(FRAME.LAUNCHER_PING, FRAME.LAUNCHER_PONG, 0);
  });

  it("runs a command in its directory and environment and gives both outputs", async () => {
    const argv = ["sh", "-c", "pwd; echo $A; cat; echo err >&2; exit 3"];
    const env = ["A=b", "PATH=/usr/bin:/bin"];
    const stdin = Buffer.from("in");
    expect(await native.spawn({ argv, env, cwd: "/usr", stdin })).toEqual({
      exit_code: 3,
      signal: 0,
      timed_out: false,
      truncated: false,
      spawn_failed: false,
      errno: 0,
      stdout: "/usr\nb\nin",
      stderr: "err\n",
    });
    expect((await native.spawn({ argv: ["cat"] })).stdout).toBe("");
    const signals = await native.spawn({ argv: ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"] });
    expect(signals.stdout.match(/\t0{16}$/gm)).toHaveLength(2);
  });

  it("says why a command could not be started", async () => {
    const missing = await native.spawn({ argv: ["no-such-command"] });
    expect(missing).toMatchObject({ spawn_failed: true, errno: ENOENT, exit_code: 127 });
    expect(missing.stderr).toContain("no-such-command: No such file");
    const path = `/${"x".repeat(200)}`;
    expect(await native.spawn({ argv: ["true"], listen: [path] })).toMatchObject({
      spawn_failed: true,
      exit_code: 126,
    });
  });

  it("lets requests wait while as many as it can do run, and refuses none", async () => {
    const ended = await Promise.all(Array.from({ length: 300 }, () => native.spawn({ argv: ["sleep", "0.1"] })));
    expect(new Set(ended.map(({ exit_code }) => exit_code))).toEqual(new Set([0]));
    await native.ask(FRAME.LAUNCHER_PING, FRAME.LAUNCHER_PONG, 0);
  });

  it("kills the process group at the time limit", async () => {
    const ended = await native.spawn({ argv: ["sh", "-c", "echo out; sleep 1000 & sleep 1000"], timeout_ms: 100 });
    expect(ended).toMatchObject({ timed_out: true, signal: 9, exit_code: 137, stdout: "out\n" });
    await eventually("the group to be gone", () => children(native.pid).length === 0);
  });

  it("reaps what left the process group of a command that was killed at the time limit", async () => {
    const script = "setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000";
    const ended = await native.spawn({ argv: ["sh", "-c", script], timeout_ms: 200 });
    expect(ended).toMatchObject({ timed_out: true, signal: 9 });
    const pid = Number(ended.stdout);
    await eventually("the orphan to be the launcher's", () => children(native.pid).includes(pid));
    process.kill(pid, "SIGKILL");
    await eventually("the orphan to be reaped", () => !existsSync(`/proc/${pid}`));
  });

  it("does not wait for a detached process that holds the pipes, and reaps it", async () => {
    const ended = await native.spawn({ argv: ["sh", "-c", "setsid sleep 1000 & echo $!"] });
    expect(ended).toMatchObject({ exit_code: 0, timed_out: false });
    const pid = Number(ended.stdout);
    process.kill(pid, "SIGKILL");
    await eventually("the orphan to be reaped", () => !existsSync(`/proc/${pid}`));
  });

  it("keeps one megabyte of output and drops the rest", async () => {
    const ended = await native.spawn({ argv: ["head", "-c", "5000000", "/dev/zero"] });
    expect([ended.stdout.length, ended.truncated, ended.exit_code]).toEqual([MIB, true, 0]);
  });

  it("leaks no descriptor over commands that end, fail and listen", async () => {
    const open = () => readdirSync(`/proc/${native.pid}/fd`).length;
    const before = open();
    const listen = [join(native.directory, "again")];
    for (let i = 0; i < 100; i++) {
      await native.spawn({ argv: ["true"], listen });
      await native.spawn({ argv: ["no-such-command"], listen, stdin: Buffer.alloc(100_000) });
      await native.spawn({ argv: ["cat"], stdin: Buffer.alloc(100_000) });
    }
    expect(open()).toBe(before);
    expect(existsSync(listen[0] ?? "")).toBe(false);
  });

  it("passes listening sockets as descriptors 3 and up, for root alone", async () => {
    const paths = ["a", "b"].map((name) => join(native.directory, name));
    const ended = await native.spawn({ argv: ["ls", "/proc/self/fd"], listen: paths });
    expect(ended.stdout.split("\n")).toEqual(["0", "1", "2", "3", "4", "5", ""]);
    expect(paths.map((path) => statSync(path).mode & 0o7777)).toEqual([0o600, 0o600]);
  });

  it("passes files after the sockets, made for root alone, with what was in them, and no links", async () => {
    const [socket = "", made = "", kept = "", link = ""] = ["c", "made", "kept", "link"].map((name) =>
      join(native.directory, name),
    );
    writeFileSync(kept, "before\n");
    symlinkSync(kept, link);
    const script = "readlink /proc/self/fd/4; cat <&5; echo new >&4; echo after >&5";
    const ended = await native.spawn({ argv: ["sh", "-c", script], listen: [socket], files: [made, kept] });
    expect([ended.exit_code, ended.stdout, ended.stderr]).toEqual([0, `${made}\nbefore\n`, ""]);
    expect([readFileSync(made, "utf8"), readFileSync(kept, "utf8")]).toEqual(["new\n", "before\nafter\n"]);
    expect(statSync(made).mode & 0o7777).toBe(0o600);
    const refused = await native.spawn({ argv: ["true"], listen: [socket], files: [made, link] });
    expect([refused.spawn_failed, refused.stderr]).toEqual([
      true,
      `minit: open ${link}: Too many levels of symbolic links\n`,
    ]);
    expect([existsSync(socket), existsSync(made)]).toEqual([false, true]);
  });

  it("has a mount namespace of its own, without the unified part of a hybrid cgroup hierarchy", async () => {
    const own = await native.spawn({ argv: ["readlink", "/proc/self/ns/mnt"] });
    expect(own.stdout.trim()).not.toBe(execFileSync("readlink", ["/proc/self/ns/mnt"]).toString().trim());
    const mounts = await native.spawn({ argv: ["cat", "/proc/self/mounts"] });
    expect(mounts.stdout).not.toContain("/sys/fs/cgroup/unified");
  });

  it("resolves a path as inside of a root, wherever links point", async () => {
    const root = join(native.directory, "root");
    mkdirSync(join(root, "etc"), { recursive: true });
    writeFileSync(join(root, "etc/own"), "12345");
    symlinkSync("/etc/own", join(root, "absolute"));
    symlinkSync("../../../../etc/own", join(root, "climbing"));
    symlinkSync("/etc/passwd", join(root, "escape"));
    symlinkSync("/proc/self/root/etc/passwd", join(root, "magic"));
    const ask = async (path: string) => {
      const answer = await native.ask(FRAME.STAT_IN_ROOT, FRAME.STAT, strBytes(root) + strBytes(path), (frame) =>
        frame.str(root).str(path),
      );
      return [answer.readUInt32LE(0), Number(answer.readBigUInt64LE(8))];
    };
    for (const inside of ["/etc/own", "etc/own", "absolute", "climbing", "../../etc/own"]) {
      expect(await ask(inside)).toEqual([0, 5]);
    }
    for (const outside of ["escape", "magic", "/../etc/passwd"]) expect((await ask(outside))[0]).toBe(ENOENT);
  });

  it("closes a connection that sends a malformed frame", async () => {
    const peer = new Wire(join(native.directory, "launcher.sock"));
    peer.socket.write(Buffer.from([6, 0, 0, 0, FRAME.SPAWN, 0, 0, 0, 0, 1]));
    await peer.closed();
    await native.ask(FRAME.LAUNCHER_PING, FRAME.LAUNCHER_PONG, 0);
  });

  it("survives the signals of a terminal and ends when its standard input does", async () => {
    const other = await Native.start();
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) other.process.kill(signal);
    await other.ask(FRAME.LAUNCHER_PING, FRAME.LAUNCHER_PONG, 0);
    await other.stop();
    expect(other.process.exitCode).toBe(0);
  });
});

describe("network namespaces of the launcher", () => {
  const bridge = `ht${process.pid}`;
  const links = [`${bridge}a`, `${bridge}b`] as const;
  const gateway = 0x0ac8_c801;
  const [live, dead, doomed] = [7_700_001, 7_700_002, 7_700_003];

  const request = async (first_id: number, address: number, link: string, group = live) => {
    const answer = await native.ask(FRAME.NETNS_ADD, FRAME.NETNS, 16 + strBytes(link), (frame) =>
      frame.u32(first_id).u32(address).u32(gateway).u32(group).str(link),
    );
    return {
      errno: answer.readUInt32LE(0),
      fd: answer.readUInt32LE(4),
      user_fd: answer.readUInt32LE(8),
      message: answer.toString("utf8", 16, answer.length - 1),
    };
  };
  const add = async (address: number, link: string, group = live) => {
    const { user_fd, ...made } = await request(0, address, link, group);
    expect(user_fd).toBe(FD_NONE);
    return made;
  };
  const end = async (type: number, group: number, names: string, fds: readonly number[], first = 0, bits = [0]) => {
    const bytes = 16 + 4 * fds.length + bits.length + strBytes(names);
    const answer = await native.ask(type, FRAME.NETNS, bytes, (frame) => {
      frame.u32(group).u32(fds.length).u32(first).u32(bits.length);
      for (const fd of fds) frame.u32(fd);
      frame.raw(Uint8Array.from(bits)).str(names);
    });
    return answer.readUInt32LE(0);
  };
  const cut = (link: string, ...fds: number[]) => end(FRAME.NETNS_CUT, dead, `${link}\n`, fds);
  const remove = (...names: string[]) => end(FRAME.NETNS_REMOVE, doomed, names.map((name) => `${name}\n`).join(""), []);
  const inside = (fd: number, ...argv: string[]) =>
    execFileSync("nsenter", [`--net=/proc/${native.pid}/fd/${fd}`, ...argv]).toString();
  const exists = (link: string) => existsSync(`/sys/class/net/${link}`);
  const groupOf = (link: string) => readFileSync(`/sys/class/net/${link}/netdev_group`, "utf8").trim();

  beforeAll(() => {
    execFileSync("ip", ["link", "add", bridge, "type", "bridge"]);
    execFileSync("ip", ["address", "add", "10.200.200.1/24", "dev", bridge]);
    execFileSync("ip", ["link", "set", bridge, "up"]);
  });

  afterAll(() => {
    for (const link of [...links, bridge]) spawnSync("ip", ["link", "delete", link], { stdio: "ignore" });
  });

  it("are made with one address, a route to the gateway alone and IPv6 on lo alone, and reach it", async () => {
    const [first, second] = [await add(gateway + 1, links[0]), await add(gateway + 2, links[1])];
    expect([first.errno, second.errno, first.message]).toEqual([0, 0, ""]);
    expect(inside(first.fd, "ip", "-br", "-4", "address", "show", "up")).toMatch(
      /lo .*127\.0\.0\.1\/8.*\neth0.* 10\.200\.200\.2\/32/,
    );
    expect(inside(first.fd, "ip", "link", "show", "eth0")).toMatch(/NOARP[\s\S]*link\/ether 02:01:0a:c8:c8:02 /);
    expect(inside(first.fd, "ip", "route")).toMatch(
      /^default via 10\.200\.200\.1 dev eth0 *\n10\.200\.200\.1 dev eth0 scope link *\n$/,
    );
    expect(inside(first.fd, "ip", "neigh").trim()).toBe("10.200.200.1 dev eth0 lladdr 02:02:0a:c8:c8:02 PERMANENT");
    expect(inside(first.fd, "ip", "-6", "-br", "address")).toMatch(/^lo +\S+ +::1\/128 *\n$/);
    expect(inside(first.fd, "cat", "/proc/sys/net/ipv4/ping_group_range").trim()).toBe("0\t2147483647");
    const here = (...argv: string[]) => execFileSync("ip", argv).toString().trim();
    expect(here("neigh", "show", "dev", links[0])).toBe("10.200.200.2 lladdr 02:01:0a:c8:c8:02 PERMANENT");
    expect(here("route", "show", "dev", links[0])).toBe("10.200.200.2 scope link src 10.200.200.1");
    expect(here("-br", "address", "show", "dev", links[0])).toMatch(/ UP *$/);
    expect([groupOf(links[0]), groupOf(links[1])]).toEqual([String(live), String(live)]);
    const server = createServer((socket) => socket.end("hello"));
    await new Promise<void>((resolve) => server.listen(0, "10.200.200.1", resolve));
    const address = server.address();
    const dial = `exec 3<>/dev/tcp/10.200.200.1/${typeof address === "object" ? address?.port : 0}; cat <&3`;
    const reached = await native.spawn({
      argv: ["nsenter", `--net=/proc/${native.pid}/fd/${first.fd}`, "bash", "-c", dial],
      timeout_ms: 10_000,
    });
    expect(reached.stdout).toBe("hello");
    server.close();
    for (const { fd } of [first, second]) expect(await cut(fd === first.fd ? links[0] : links[1], fd)).toBe(0);
    expect(await remove(...links)).toBe(0);
    expect(links.filter(exists)).toEqual([]);
    expect(existsSync(`/proc/${native.pid}/fd/${first.fd}`)).toBe(false);
  });

  it("leave nothing when they cannot be made", async () => {
    const open = () => readdirSync(`/proc/${native.pid}/fd`).length;
    const before = open();
    expect((await add(gateway + 3, "a-name-that-is-too-long")).errno).toBe(EINVAL);
    // All other links of the machine are in that group.
    expect((await add(gateway + 3, links[0], 0)).errno).toBe(EINVAL);
    execFileSync("ip", ["link", "add", links[0], "type", "veth", "peer", "name", links[1]]);
    const identity = () => readFileSync(`/sys/class/net/${links[0]}/ifindex`, "utf8");
    const foreign = identity();
    expect(await add(gateway + 3, links[0])).toMatchObject({ fd: FD_NONE, message: "veth: File exists" });
    expect(identity()).toBe(foreign);
    execFileSync("ip", ["link", "delete", links[0]]);
    expect(open()).toBe(before);
  });

  it("are cut and removed although a socket of theirs is still open, and no link but those that were named goes", async () => {
    const [first, second] = [await add(gateway + 3, links[0]), await add(gateway + 4, links[1])];
    // A process that holds the namespace, as a socket that was passed on does.
    const holder = spawn("nsenter", [`--net=/proc/${native.pid}/fd/${first.fd}`, "sleep", "60"]);
    const isIn = () => readlinkSync(`/proc/${holder.pid}/ns/net`) !== readlinkSync("/proc/self/ns/net");
    await eventually("the holder to be in the namespace", isIn);
    expect(await cut(links[0], first.fd)).toBe(0);
    expect(groupOf(links[0])).toBe(String(dead));
    expect(await remove(links[0])).toBe(0);
    expect([exists(links[0]), exists(links[1]), groupOf(links[1])]).toEqual([false, true, String(live)]);
    const left = execFileSync("nsenter", [`--net=/proc/${holder.pid}/ns/net`, "ip", "-br", "link"]).toString();
    expect(left).not.toContain("eth0");
    holder.kill("SIGKILL");
    expect(await cut(links[1], second.fd)).toBe(0);
    expect(await remove(links[1])).toBe(0);
  });

  it("take the tracked connections of their addresses along, and no others", async () => {
    const [first, second] = [await add(gateway + 5, links[0]), await add(gateway + 6, links[1])];
    const machine = "10.200.200.1";
    const table = `hearth_test_${process.pid}`;
    // Connections are tracked only where a rule asks for it.
    execFileSync("nft", [
      `table ip ${table} { chain c { type filter hook input priority 0; iifgroup ${live} ct state new counter; }; }`,
    ]);
    try {
      const tracked = () =>
        readFileSync("/proc/net/nf_conntrack", "utf8")
          .split("\n")
          .flatMap((line) => /^.*? src=(10\.200\.200\.\d+) /.exec(line)?.[1] ?? []);
      for (const { fd } of [first, second])
        inside(fd, "bash", "-c", `for p in 1 2 3; do echo > /dev/udp/${machine}/$p; done`);
      const count = (address: string) => tracked().filter((one) => one === address).length;
      expect([count("10.200.200.6"), count("10.200.200.7")]).toEqual([3, 3]);
      expect(await end(FRAME.NETNS_REMOVE, doomed, "", [], gateway + 1, [1 << 4])).toBe(0);
      expect([count("10.200.200.6"), count("10.200.200.7")]).toEqual([0, 3]);
      expect(await end(FRAME.NETNS_REMOVE, doomed, "", [], gateway + 1, [0xff])).toBe(0);
      expect([count("10.200.200.6"), count("10.200.200.7")]).toEqual([0, 0]);
    } finally {
      execFileSync("nft", ["delete", "table", "ip", table]);
      await cut(links[0], first.fd);
      await cut(links[1], second.fd);
      expect(await remove(...links)).toBe(0);
    }
  });

  it("are neither added nor cut while one of the same name is being made", async () => {
    const frames = [9_001, 9_002].map((id) => {
      const frame = new FrameWriter(FRAME.NETNS_ADD, id, 16 + strBytes(links[0]));
      return frame
        .u32(0)
        .u32(gateway + 3)
        .u32(gateway)
        .u32(live)
        .str(links[0]).buffer;
    });
    const names = `other\n${links[0]}\n`;
    const cutting = new FrameWriter(FRAME.NETNS_CUT, 9_003, 16 + strBytes(names))
      .u32(dead)
      .u32(0)
      .u32(0)
      .u32(0)
      .str(names);
    native.wire.socket.write(Buffer.concat([...frames, cutting.buffer]));
    const answers = [];
    for (const id of [9_001, 9_002, 9_003]) answers.push((await native.wire.next(FRAME.NETNS, id)).body);
    expect(answers.map((answer) => answer.readUInt32LE(0))).toEqual([0, EBUSY, EBUSY]);
    expect(await cut(links[0], answers[0]?.readUInt32LE(4) ?? 0)).toBe(0);
    expect(await remove(links[0])).toBe(0);
  });

  it("belong to a user namespace of the ids that were asked for, whose root may set them up and nobody else", async () => {
    const open = () => readdirSync(`/proc/${native.pid}/fd`).length;
    const before = open();
    const { errno, fd, user_fd, message } = await request(FIRST_ID, gateway + 3, links[0]);
    expect([errno, message]).toEqual([0, ""]);
    const join = [`--user=/proc/${native.pid}/fd/${user_fd}`, `--net=/proc/${native.pid}/fd/${fd}`];
    const enter = (...argv: string[]) => spawnSync("nsenter", [...join, "--setuid", "0", "--setgid", "0", ...argv]);
    expect(enter("cat", "/proc/self/uid_map", "/proc/self/gid_map").stdout.toString().trim().split(/\s+/)).toEqual(
      [0, FIRST_ID, 65_536, 0, FIRST_ID, 65_536].map(String),
    );
    expect(inside(fd, "ip", "-br", "-4", "address", "show", "up")).toMatch(/eth0.* 10\.200\.200\.4\/32/);
    expect(enter("ip", "link", "set", "lo", "down").status).toBe(0);
    // The machine's root is not above it by being who made it: without its capabilities it may nothing.
    const bare = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all", "ip", "link", "set", "lo", "up"];
    expect(spawnSync("nsenter", [`--net=/proc/${native.pid}/fd/${fd}`, ...bare]).status).not.toBe(0);
    await eventually("nothing to be left that it was made with", () => children(native.pid).length === 0);
    expect(await cut(links[0], fd, user_fd)).toBe(0);
    expect(await remove(links[0])).toBe(0);
    expect(open()).toBe(before);
    expect(await request(0xffff_0000, gateway + 3, links[0])).toMatchObject({
      fd: FD_NONE,
      user_fd: FD_NONE,
      message: expect.stringMatching(/^user namespace: /),
    });
    await eventually("nothing to be left of that either", () => children(native.pid).length === 0);
    expect([open(), existsSync(`/sys/class/net/${links[0]}`)]).toEqual([before, false]);
  });

  it("are ended only by descriptors of namespaces, and a link that is gone is no error", async () => {
    expect(await cut(links[0], 0)).toBe(EBADF);
    expect(await cut(links[0])).toBe(0);
    expect(await remove(links[0])).toBe(0);
  });
});
