/** `minit init`, PID 1 of a container: every rule of runtimes/minit/protocol.h, on real processes. */
import { spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { chmodSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FRAME } from "../../src/engine/minit/frames.ts";
import { isSanitized } from "../support/helper.ts";
import { children, eventually, InitWire, Native, SOLE, STDIN_OPEN, STREAM, WIPE, Wire } from "../support/native.ts";

const ENOENT = 2;
const EACCES = 13;
const EBUSY = 16;
const EMFILE = 24;
const MIB = 1024 * 1024;
/** Of READY. */
const BUSY = 1;
const SPOILED = 2;

const sha = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const text = (bytes: Buffer) => bytes.toString("utf8");

/** Connects to a unix socket and reads until the other side closes. */
const DIAL = `
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
  strcpy(address.sun_path, argv[1]);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    perror("connect");
    return 1;
  }
  char bytes[256];
  long total = 0, n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0) total += n;
  printf("connected, then closed after %ld bytes\\n", total);
  return 0;
}
`;

let native: Native;
let init: Awaited<ReturnType<Native["init"]>>;
let wire: InitWire;

beforeAll(async () => {
  native = await Native.start();
  init = await native.init();
  wire = init.wire;
});

afterAll(async () => {
  wire?.send(FRAME.SHUTDOWN, 0);
  if (init !== undefined) await native.endSpawn(init.ended);
  await native?.stop();
});

/** Processes in init's pid namespace beside init itself and its guards, as the kernel lists them. */
function insiders(): number[] {
  const all = (pid: number): number[] => children(pid).flatMap((child) => [child, ...all(child)]);
  return all(init.pid).filter((pid) => !isGuard(pid));
}

function isGuard(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8") === "minit-guard\n";
  } catch {
    return false;
  }
}

/** Kilobytes of anonymous memory that init holds. */
function anonymousKb(): number {
  return Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${init.pid}/status`, "utf8"))?.[1]);
}

async function alone(): Promise<void> {
  await eventually("everything else to be gone", () => insiders().length === 0);
}

describe("minit init", () => {
  it("answers a ping and shows the same nonce on every connection", async () => {
    wire.send(FRAME.PING, 77);
    await wire.next(FRAME.PONG, 77);
    const second = new InitWire(init.path);
    const { body } = await second.next(FRAME.READY, 0);
    expect([body.readUInt32LE(0), body.toString("hex", 4, 20)]).toEqual([2, init.nonce]);
    expect(init.nonce).not.toBe("0".repeat(32));
    second.socket.destroy();
  });

  it("refuses to run as anything but PID 1", () => {
    expect(spawnSync(native.binary, ["init"]).status).toBe(1);
  });

  it("runs a command with standard input, both outputs and an exit code", async () => {
    const flags = SOLE | WIPE;
    const exit = await wire.sh("cat; echo oops >&2; exit 7", { flags, stdin: Buffer.from("hello") });
    expect([exit.exit_code, text(exit.stdout), text(exit.stderr)]).toEqual([7, "hello", "oops\n"]);
    expect(exit).toMatchObject({ signal: 0, timed_out: false, strays: false, cancelled: false, errno: 0 });
    expect(exit.maxrss_kb).toBeGreaterThan(100);
    expect(exit.duration_us).toBeGreaterThan(0);
  });

  it("passes three megabytes through, in frames of at most 64 KiB", async () => {
    for (const flags of [SOLE, STREAM, 0]) {
      const bytes = randomBytes(3 * MIB);
      const exit = await wire.exec({ argv: ["cat"], stdin: bytes, flags });
      expect(sha(exit.stdout)).toBe(sha(bytes));
      expect(exit.frame_bytes_max).toBeLessThanOrEqual(65_536);
    }
  });

  it("loses no output that lies in the pipes at the exit", async () => {
    const exit = await wire.sh("head -c 65536 /dev/zero; head -c 65536 /dev/zero >&2", { flags: SOLE });
    expect([exit.stdout.length, exit.stderr.length, exit.exit_code]).toEqual([65_536, 65_536, 0]);
  });

  it("does not mind a command that reads nothing of a large input", async () => {
    expect(await wire.exec({ argv: ["true"], stdin: randomBytes(MIB), flags: SOLE })).toMatchObject({ exit_code: 0 });
  });

  it("streams output and input while the command runs", async () => {
    const id = wire.start({ argv: ["cat"], flags: STREAM | STDIN_OPEN, stdin: Buffer.from("one") });
    expect((await wire.next(FRAME.STARTED, id)).body.readUInt32LE(0)).toBeGreaterThan(1);
    expect(text((await wire.next(FRAME.STDOUT, id)).body)).toBe("one");
    wire.send(FRAME.STDIN, id, 3, (frame) => frame.text("two"));
    expect(text((await wire.next(FRAME.STDOUT, id)).body)).toBe("two");
    wire.send(FRAME.STDIN_CLOSE, id);
    expect(await wire.end(id)).toMatchObject({ exit_code: 0 });
  });

  it("feeds eight megabytes of standard input frames without loss", async () => {
    const id = wire.start({ argv: ["sha256sum"], flags: STDIN_OPEN });
    const bytes = randomBytes(8 * MIB);
    for (let at = 0; at < bytes.length; at += 65_536) {
      wire.send(FRAME.STDIN, id, 65_536, (frame) => frame.raw(bytes.subarray(at, at + 65_536)));
    }
    wire.send(FRAME.STDIN_CLOSE, id);
    expect(text((await wire.end(id)).stdout)).toContain(sha(bytes));
  });

  it("forwards no more than the caps, reads the rest and says so", async () => {
    const script = "echo 0123456789abc; head -c 3000000 /dev/zero >&2";
    const exit = await wire.sh(script, { stdout_max: 10, stderr_max: 100_000, flags: SOLE });
    expect([text(exit.stdout), exit.stderr.length, exit.exit_code]).toEqual(["0123456789", 100_000, 0]);
    expect([exit.stdout_truncated, exit.stderr_truncated]).toEqual([true, true]);
    const exact = await wire.sh("printf 0123456789", { stdout_max: 10 });
    expect([text(exact.stdout), exact.stdout_truncated]).toEqual(["0123456789", false]);
  });

  it("gives 128 and the signal when a signal ended the command", async () => {
    expect(await wire.sh("kill -KILL $$")).toMatchObject({ exit_code: 137, signal: 9, cancelled: false });
    expect(await wire.sh("kill -TERM $$", { flags: SOLE })).toMatchObject({ exit_code: 143, signal: 15 });
  });

  it("says why a command could not be started", async () => {
    const missing = await wire.exec({ argv: ["no-such-command"], flags: SOLE | WIPE });
    expect(missing).toMatchObject({ spawn_failed: true, exit_code: 127, errno: ENOENT });
    expect(text(missing.stderr)).toBe("minit: no-such-command: No such file or directory\n");
    const denied = await wire.exec({ argv: ["/etc/passwd"] });
    expect(denied).toMatchObject({ spawn_failed: true, exit_code: 126, errno: EACCES });
    const nowhere = await wire.exec({ argv: ["true"], cwd: "/no/such" });
    expect(nowhere).toMatchObject({ spawn_failed: true, exit_code: 126, errno: ENOENT });
    expect(text(nowhere.stderr)).toBe("minit: chdir /no/such: No such file or directory\n");
    expect(await wire.exec({ argv: ["true"], env: ["PATH=/etc"] })).toMatchObject({ exit_code: 127 });
  });

  it("runs a script without an interpreter line through sh", async () => {
    await wire.sh("printf 'echo ran $0 $1' > /tmp/script && chmod 755 /tmp/script");
    const exit = await wire.exec({ argv: ["script", "it"], env: ["PATH=/nowhere:/tmp"], flags: SOLE | WIPE });
    expect(text(exit.stdout)).toBe("ran /tmp/script it\n");
  });

  it("gives the command its environment, directory, session and nothing else", async () => {
    const script =
      'env; pwd; ulimit -c; cut -d" " -f1,5,6 /proc/$$/stat; grep -E "Sig(Blk|Ign)" /proc/self/status; ls /proc/self/fd';
    const exit = await wire.exec({
      argv: ["/bin/bash", "-c", script],
      env: ["A=b c", "PATH=/usr/bin"],
      cwd: "/usr",
      flags: SOLE,
    });
    const lines = text(exit.stdout).split("\n");
    expect(lines).toContain("A=b c");
    expect(lines).toContain("/usr");
    expect(lines.filter((line) => /^0{16}$/.test(line.split("\t")[1] ?? ""))).toHaveLength(2);
    expect(lines.slice(-5, -1)).toEqual(["0", "1", "2", "3"]);
    const [pid = 0, group, session] = (lines.find((line) => /^\d+ \d+ \d+$/.test(line)) ?? "").split(" ").map(Number);
    expect([pid > 1, group, session]).toEqual([true, pid, pid]);
  });

  it("hides PID 1 from commands of the same uid", async () => {
    const exit = await wire.sh("cat /proc/1/environ || ls /proc/1/fd || cat /proc/1/maps", { flags: SOLE });
    expect(exit.exit_code).not.toBe(0);
    expect(text(exit.stderr).match(/Permission denied/g)).toHaveLength(3);
    expect((await wire.sh("kill -KILL 1; kill -TERM 1; kill -STOP 1; echo alive")).stdout.toString()).toBe("alive\n");
  });

  it("stays in charge when a command takes its descriptors away", async () => {
    const poisoned = await native.init();
    expect(await poisoned.wire.sh("prlimit --pid 1 --nofile=0:0", { flags: SOLE })).toMatchObject({ exit_code: 0 });
    const exit = await poisoned.wire.exec({ argv: ["true"], flags: SOLE });
    expect(exit).toMatchObject({ spawn_failed: true, exit_code: 126, errno: EMFILE });
    const another = new Wire(poisoned.path);
    poisoned.wire.send(FRAME.PING, 1);
    await poisoned.wire.next(FRAME.PONG, 1);
    const cpu = () => Number(readFileSync(`/proc/${poisoned.pid}/stat`, "utf8").split(" ")[14]);
    const before = cpu();
    await wire.sh("sleep 0.3");
    expect(cpu() - before).toBeLessThan(5);
    poisoned.wire.send(FRAME.SHUTDOWN, 0);
    await native.endSpawn(poisoned.ended);
    another.socket.destroy();
  });

  it("takes back a soft limit that a command lowered for it, and starts nothing once the hard one is lowered", async () => {
    const limited = await native.init();
    const limit = async () => (await limited.wire.sh("ulimit -Sn; ulimit -Hn; ls /tmp")).stdout.toString();
    const before = await limit();
    const lower = "touch /tmp/left; prlimit --pid 1 --nofile=4: && prlimit --pid 1 --nofile -o SOFT --noheadings";
    const lowered = await limited.wire.sh(lower, { flags: SOLE | WIPE });
    expect([lowered.exit_code, text(lowered.stdout).trim(), text(lowered.stderr)]).toEqual([0, "4", ""]);
    expect(await limit()).toBe(before);
    expect(await limited.wire.sh("prlimit --pid 1 --nofile=4:", { flags: SOLE })).toMatchObject({ exit_code: 0 });
    expect(await limit()).toBe(before);
    expect(await limited.wire.sh("prlimit --pid 1 --nofile=200:200", { flags: SOLE })).toMatchObject({ exit_code: 0 });
    const exit = await limited.wire.exec({ argv: ["true"], flags: SOLE });
    expect(exit).toMatchObject({ spawn_failed: true, exit_code: 126, errno: EMFILE });
    expect(text(exit.stderr)).toBe("minit: spawn true: Too many open files\n");
    limited.wire.send(FRAME.SHUTDOWN, 0);
    await native.endSpawn(limited.ended);
  });

  it("kills a tree that left its session and ignores TERM at the deadline", async () => {
    const script = `trap "" TERM; (setsid sh -c 'trap "" TERM HUP; (sleep 1000 &) ; sleep 1000' &) ; sleep 1000`;
    const exit = await wire.sh(script, { flags: SOLE, timeout_ms: 150 });
    expect(exit).toMatchObject({ timed_out: true, exit_code: 137, signal: 9 });
    expect(insiders()).toEqual([]);
  });

  it("ends a fork bomb at the deadline", async () => {
    const bomb = "ulimit -u 300; f() { f | f & }; f; while :; do f 2>/dev/null; done";
    const exit = await wire.exec({ argv: ["bash", "-c", bomb], flags: SOLE, timeout_ms: 400, stderr_max: 1000 });
    expect(exit).toMatchObject({ timed_out: true, signal: 9 });
    expect(insiders()).toEqual([]);
    expect((await wire.sh("echo usable", { flags: SOLE })).stdout.toString()).toBe("usable\n");
  });

  it("kills the session of a command that shares the container at its deadline, and no other", async () => {
    const other = wire.start({ argv: ["sleep", "1000"] });
    const exit = await wire.sh("sh -c 'sleep 1000 & sleep 1000' & sleep 1000", { timeout_ms: 100 });
    expect(exit).toMatchObject({ timed_out: true, exit_code: 137 });
    await eventually("the killed to be gone", () => insiders().length === 1);
    wire.send(FRAME.KILL, other, 4, (frame) => frame.u32(9));
    expect(await wire.end(other)).toMatchObject({ cancelled: true, signal: 9 });
  });

  it("does not wait for a background process, and kills it when the call owned the container", async () => {
    const exit = await wire.sh("sleep 1000 & echo done", { flags: SOLE });
    expect(exit).toMatchObject({ exit_code: 0, strays: true, timed_out: false });
    expect(text(exit.stdout)).toBe("done\n");
    expect(insiders()).toEqual([]);
    expect(await wire.sh("sleep 1000 & echo kept")).toMatchObject({ exit_code: 0, strays: false });
    await eventually("it alone to be there", () => insiders().length === 1);
    expect(await wire.sh("true", { flags: SOLE })).toMatchObject({ strays: true });
    await alone();
  });

  it("reaps orphans", async () => {
    const script = "for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 3' &) ; done";
    await wire.sh(script);
    await alone();
  });

  it("wipes whatever a call left in /tmp and /dev/shm, follows no link, and stays usable", async () => {
    const make = `cd /tmp && mkdir -p a/b/c closed && touch a/b/c/.hidden closed/inside && chmod 000 closed a/b &&
      ln -s /etc etc && mkfifo fifo && mkdir many && cd many && seq 9000 | xargs touch && cd .. &&
      d=deep; for i in $(seq 300); do mkdir $d && cd $d; done; touch leaf; cd /dev/shm && mkdir s && touch s/f .dot`;
    const exit = await wire.sh(make, { flags: SOLE | WIPE });
    expect([exit.exit_code, text(exit.stderr)]).toEqual([0, ""]);
    expect((await wire.sh("find /tmp /dev/shm -mindepth 1 | head", { flags: SOLE })).stdout.toString()).toBe("");
    expect(existsSync("/etc/passwd")).toBe(true);
    await wire.sh("touch /tmp/kept", { flags: SOLE });
    expect((await wire.sh("ls /tmp", { flags: SOLE | WIPE })).stdout.toString()).toBe("kept\n");
  });

  it("sends signals to a command's process group", async () => {
    const id = wire.start({
      argv: ["sh", "-c", "trap 'echo caught; exit 5' TERM; echo up; while :; do sleep 0.01; done"],
      flags: STREAM,
    });
    await wire.next(FRAME.STDOUT, id);
    wire.send(FRAME.KILL, id, 4, (frame) => frame.u32(15));
    const exit = await wire.end(id);
    expect([exit.exit_code, exit.cancelled, text(exit.stdout)]).toEqual([5, true, "caught\n"]);
    wire.send(FRAME.KILL, 999_999, 4, (frame) => frame.u32(9));
    await alone();
  });

  it("ends what a closed connection started and takes the next call", async () => {
    const second = new InitWire(init.path);
    await second.next(FRAME.READY, 0);
    second.start({ argv: ["sh", "-c", "setsid sleep 1000 & touch /tmp/left; sleep 1000"], flags: SOLE | WIPE });
    second.start({ argv: ["sleep", "1000"] });
    await eventually("the commands to run", () => insiders().length >= 3);
    second.socket.destroy();
    await alone();
    // What they left is wiped in turns after that; until it is, another sole command is refused.
    await eventually("a sole command is taken", async () => {
      const id = wire.start({ argv: ["true"], flags: SOLE });
      const answer = await eventually("an answer", () =>
        wire.frames.find((frame) => frame.id === id && (frame.type === FRAME.ERROR || frame.type === FRAME.IDLE)),
      );
      return answer.type === FRAME.IDLE;
    });
    expect((await wire.sh("ls /tmp; echo next", { flags: SOLE })).stdout.toString()).toBe("next\n");
  });

  it("says to whom connects whether it is idle, busy or spoiled", async () => {
    const own = await native.init();
    const descriptors = () => readdirSync(`/proc/${own.pid}/fd`).length;
    const flags = async () => {
      const before = descriptors();
      const peer = new InitWire(own.path);
      const { body } = await peer.next(FRAME.READY, 0);
      peer.socket.destroy();
      await eventually("it is closed", () => descriptors() === before);
      return body.readUInt32LE(20);
    };
    // Another connection may ask for a command at any moment.
    expect(await flags()).toBe(BUSY);
    const flagsAlone = async () => {
      const before = descriptors();
      own.wire.socket.destroy();
      await eventually("nobody is connected", () => descriptors() === before - 1);
      const found = await flags();
      own.wire = new InitWire(own.path);
      await own.wire.next(FRAME.READY, 0);
      return found;
    };
    expect(await flagsAlone()).toBe(0);
    expect(await own.wire.sh("exit 3", { flags: SOLE })).toMatchObject({ exit_code: 3 });
    expect(await own.wire.exec({ argv: ["no-such-command"], flags: SOLE })).toMatchObject({ exit_code: 127 });
    expect(await own.wire.sh("sleep 1000", { timeout_ms: 20 })).toMatchObject({ timed_out: true });
    expect(await own.wire.sh("sleep 1000 &", { flags: SOLE | WIPE })).toMatchObject({ strays: true });
    expect(await flagsAlone()).toBe(0);
    expect(await own.wire.exec({ argv: ["/etc/passwd"], flags: SOLE })).toMatchObject({ exit_code: 126 });
    expect(await flagsAlone()).toBe(SPOILED);
    own.wire.send(FRAME.SHUTDOWN, 0);
    await native.endSpawn(own.ended);
  });

  it.each<[string, (wire: InitWire) => Promise<unknown>]>([
    ["a deadline", (own) => own.sh("sleep 1000", { flags: SOLE, timeout_ms: 20 })],
    ["a hard limit that was lowered", (own) => own.sh("prlimit --pid 1 --nofile=200:200", { flags: SOLE })],
    ["a caller that went away", async (own) => own.start({ argv: ["sleep", "1000"], flags: SOLE })],
  ])("is spoiled by %s", async (_what, spoil) => {
    const own = await native.init();
    await spoil(own.wire);
    own.wire.send(FRAME.PING, 9);
    await own.wire.next(FRAME.PONG, 9);
    own.wire.socket.destroy();
    const seen = await eventually("it is idle", async () => {
      const peer = new InitWire(own.path);
      const bits = (await peer.next(FRAME.READY, 0)).body.readUInt32LE(20);
      if ((bits & BUSY) === 0) peer.send(FRAME.SHUTDOWN, 0);
      else peer.socket.destroy();
      return (bits & BUSY) === 0 ? { bits } : null;
    });
    expect(seen.bits).toBe(SPOILED);
    await native.endSpawn(own.ended);
  });

  it("refuses a second sole command, a used id and an empty command", async () => {
    const refusal = async (id: number) => {
      const { body } = await wire.next(FRAME.ERROR, id);
      return [body.readUInt32LE(0), body.toString("utf8", 8, body.length - 1)];
    };
    const first = wire.start({ argv: ["cat"], flags: SOLE | STDIN_OPEN });
    expect(await refusal(wire.start({ argv: ["true"], flags: SOLE }))).toEqual([
      EBUSY,
      "a sole command has the container",
    ]);
    expect(await refusal(wire.start({ argv: [] }))).toEqual([22, "no command"]);
    wire.send(FRAME.STDIN_CLOSE, first);
    expect(await wire.end(first, SOLE)).toMatchObject({ exit_code: 0 });
    const many = Array.from({ length: 256 }, () => wire.start({ argv: ["cat"], flags: STDIN_OPEN }));
    expect(await refusal(wire.start({ argv: ["true"] }))).toEqual([EBUSY, "too many commands"]);
    for (const id of many) wire.send(FRAME.STDIN_CLOSE, id);
    for (const id of many) await wire.end(id);
  });

  it("refuses a peer inside the container", async () => {
    chmodSync(init.path, 0o666);
    const exit = await wire.exec({ argv: [native.compile("dial", DIAL), init.path], timeout_ms: 10_000 });
    expect([exit.exit_code, text(exit.stderr), text(exit.stdout)]).toEqual([
      0,
      "",
      "connected, then closed after 0 bytes\n",
    ]);
  });

  it("takes eight connections and closes the ninth", async () => {
    const others = Array.from({ length: 7 }, () => new InitWire(init.path));
    for (const other of others) await other.next(FRAME.READY, 0);
    const ninth = new InitWire(init.path);
    await ninth.closed();
    for (const other of others) other.socket.destroy();
    await eventually("room again", () => !others.some((other) => !other.isClosed));
  });

  it("closes a connection that sends a malformed frame, and only that one", async () => {
    const exec = (argc: number, tail: Buffer) => {
      const head = Buffer.alloc(20);
      head.writeUInt16LE(argc, 16);
      const frame = Buffer.alloc(9);
      frame.writeUInt32LE(5 + head.length + tail.length, 0);
      frame[4] = FRAME.EXEC;
      return Buffer.concat([frame, head, tail]);
    };
    const cwd = Buffer.from([1, 0, 0, 0, 0]);
    const malformed = [
      Buffer.from([4, 0, 0, 0, FRAME.PING, 0, 0, 0]),
      Buffer.from([255, 255, 255, 127, FRAME.PING, 0, 0, 0, 0]),
      Buffer.from([5, 0, 0, 0, 0x7f, 0, 0, 0, 0]),
      Buffer.from([5, 0, 0, 0, FRAME.EXEC, 0, 0, 0, 0]),
      Buffer.from([5, 0, 0, 0, FRAME.KILL, 0, 0, 0, 0]),
      exec(1, cwd),
      exec(60_000, cwd),
      exec(1, Buffer.concat([cwd, Buffer.from([2, 0, 0, 0, 65, 65])])),
      exec(1, Buffer.concat([cwd, Buffer.from([3, 0, 0, 0, 65, 0, 0])])),
      exec(1, Buffer.concat([cwd, Buffer.from([255, 255, 255, 255, 65, 0])])),
    ];
    for (const bytes of malformed) {
      const peer = new InitWire(init.path);
      await peer.next(FRAME.READY, 0);
      peer.socket.write(bytes);
      await peer.closed();
    }
    wire.send(FRAME.PING, 5);
    await wire.next(FRAME.PONG, 5);
  });

  it("holds bounded memory for a reader that does not read, and loses nothing", async () => {
    const reader = new InitWire(init.path);
    await reader.next(FRAME.READY, 0);
    reader.socket.pause();
    const id = reader.start({ argv: ["head", "-c", "40000000", "/dev/zero"], flags: STREAM });
    await eventually("the command to run", () => insiders().length === 1);
    // In hundredths of a second. One that turned without pause would have as many as there are.
    const cpu = () => {
      const [user, system] = readFileSync(`/proc/${init.pid}/stat`, "utf8").split(" ").slice(13, 15);
      return Number(user) + Number(system);
    };
    await wire.sh("sleep 0.1");
    const before = cpu();
    await wire.sh("sleep 0.4");
    expect(cpu() - before).toBeLessThan(10);
    // The sanitizer keeps 64 KiB of the shadow of each MiB that was used, and tables of its own.
    expect(anonymousKb()).toBeLessThan(isSanitized ? 4_096 : 2_048);
    reader.socket.resume();
    const exit = await reader.end(id);
    expect([exit.stdout.length, exit.exit_code, exit.stdout_truncated]).toEqual([40_000_000, 0, false]);
    reader.socket.destroy();
  });

  it("leaks no descriptor and no memory over a thousand calls and a large one", async () => {
    const descriptors = () => readdirSync(`/proc/${init.pid}/fd`).length;
    const large = async () => {
      const exit = await wire.exec({ argv: ["cat"], flags: SOLE, stdin: Buffer.alloc(15 * MIB) });
      expect(exit.stdout.length).toBe(15 * MIB);
    };
    // The sanitizer keeps the shadow of what a large call used, so one comes before the first measure.
    await large();
    const before = [descriptors(), anonymousKb()] as const;
    for (let i = 0; i < 1000; i++) await wire.exec({ argv: ["/bin/cat"], flags: SOLE | WIPE, stdin: Buffer.from("x") });
    await large();
    expect(descriptors()).toBe(before[0]);
    // Of a thousand calls that leave a hundred bytes each there would be more.
    expect(anonymousKb()).toBeLessThanOrEqual(before[1] + 96);
  }, 60_000);

  it("ends with everything in it on SHUTDOWN", async () => {
    const other = await native.init();
    other.wire.start({ argv: ["sh", "-c", "setsid sleep 1000 & sleep 1000"] });
    await eventually("the command to run", () => children(other.pid).length > 0);
    other.wire.send(FRAME.SHUTDOWN, 0);
    expect(await native.endSpawn(other.ended)).toMatchObject({ exit_code: 0, timed_out: false });
    expect(existsSync(`/proc/${other.pid}`)).toBe(false);
  });
});
