/** `minit container`, PID 1 of an API container: its main command and the commands in it, on real processes. */
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock as clock } from "../../src/base/clock.ts";
import { readExitRecord, SegmentedLog } from "../../src/engine/containers/log.ts";
import {
  ControlConnection,
  openExec,
  runExec,
  shutdown,
  signalPid,
  stopMain,
} from "../../src/engine/minit/container-client.ts";
import type { Exec, OutputStream, RunRequest } from "../../src/engine/ports.ts";
import { type Container, children, ENVIRONMENT, eventually, Native, readText } from "../support/native.ts";

const MIB = 1024 * 1024;
const EINVAL = 22;
const EPERM = 1;
const ESRCH = 3;
const TERM = 15;

let native: Native;
let idle: Container;

beforeAll(async () => {
  native = await Native.start();
  idle = await native.container(null);
});

afterAll(async () => {
  await shutdown(idle.path, 5_000, clock);
  await native?.stop();
});

const defaults: RunRequest & { output_bytes_max: number } = {
  argv: [],
  environment: ENVIRONMENT,
  working_directory: "/",
  timeout_ms: 60_000,
  grace_ms: 0,
  output_bytes_max: MIB,
  is_stream: false,
};

const run = (argv: readonly string[], rest: Partial<typeof defaults> = {}) =>
  runExec(idle.path, { ...defaults, argv, ...rest }, clock).exited;
const sh = (script: string, rest: Partial<typeof defaults> = {}) => run(["sh", "-c", script], rest);

interface Heard {
  readonly exec: Exec;
  readonly bytes: () => number;
  readonly text: (stream?: OutputStream) => string;
}

/** A stream whose output is kept, or only counted. */
function listen(argv: readonly string[], rest: Partial<RunRequest> = {}, isKept = true): Heard {
  const parts: { stream: OutputStream; chunk: Buffer }[] = [];
  let bytes = 0;
  const request: RunRequest = { ...defaults, output_bytes_max: null, is_stream: true, argv, ...rest };
  const onOutput = (stream: OutputStream, chunk: Buffer) => {
    bytes += chunk.length;
    if (isKept) parts.push({ stream, chunk });
    return true;
  };
  const exec = openExec(idle.path, request, { onOutput }, clock);
  const text = (stream: OutputStream = "stdout") =>
    Buffer.concat(parts.filter((part) => part.stream === stream).map((part) => part.chunk)).toString("utf8");
  return { exec, bytes: () => bytes, text };
}

const listenSh = (script: string, rest: Partial<RunRequest> = {}) => listen(["sh", "-c", script], rest);

/** Commands that wait for input, all at the same time. A few begin at once: a connection has a deadline. */
async function startMany(size: number, argv: (i: number) => readonly string[]): Promise<Heard[]> {
  const many: Heard[] = [];
  while (many.length < size) {
    const some = Array.from({ length: 8 }, (_, i) => listen(argv(many.length + i), { has_more_stdin: true }));
    await Promise.all(some.map(({ exec }) => exec.started));
    many.push(...some);
  }
  return many;
}

/** The commands of all processes in a container beside minit and its guards, as the kernel lists them. */
function insiders(container: Container = idle): string[] {
  const all = (pid: number): number[] => children(pid).flatMap((child) => [child, ...all(child)]);
  return all(container.pid)
    .filter((pid) => readText(`/proc/${pid}/comm`) !== "minit-guard\n")
    .map((pid) => readText(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim())
    .filter((command) => command !== "");
}

const count = (text: string) => insiders().filter((command) => command.includes(text)).length;

async function gone(text: string): Promise<void> {
  await eventually(`${text} to be gone`, () => count(text) === 0);
}

/** How the container ended, and what it had logged. */
async function endOf(container: Container & { folder: string }) {
  const { exit_code } = await native.endSpawn(container.ended);
  const log = await new SegmentedLog(async () => container.log_paths, clock).tail({ limit: 100 });
  return { exit_code, record: await readExitRecord(container.exit_path), log };
}

describe("the main command of a container", () => {
  it("runs with minit's environment and directory, without descriptors of minit, and ends the container with its code", async () => {
    const script = "pwd; echo $A; ls /proc/self/fd | tr '\\n' ' '; echo; cat; echo oops >&2; sleep 1000 & exit 7";
    const before_ms = clock.epochMs();
    const ended = await endOf(
      await native.container(["sh", "-c", script], { cwd: "/usr", env: [...ENVIRONMENT, "A=b c"] }),
    );
    expect(ended.exit_code).toBe(7);
    expect(ended.record).toMatchObject({ exit_code: 7, signal: 0, asked: false, has_command: true, is_started: true });
    expect(ended.record?.ended_at_ms).toBeGreaterThanOrEqual(before_ms);
    expect(ended.log.filter((line) => line.stream === "stdout").map((line) => line.message)).toEqual([
      "/usr",
      "b c",
      "0 1 2 3 ",
    ]);
    expect(ended.log.filter((line) => line.stream === "stderr").map((line) => line.message)).toEqual(["oops"]);
    expect(ended.log.map((line) => line.seq)).toEqual([1, 2, 3, 4]);
  });

  it("tells of a signal that ended it", async () => {
    const ended = await endOf(await native.container(["sh", "-c", "kill -SEGV $$"]));
    expect([ended.exit_code, ended.record?.exit_code, ended.record?.signal]).toEqual([139, 139, 11]);
  });

  it.each([
    ["no-such-command", 127, "minit: no-such-command: No such file or directory"],
    ["/etc/passwd", 126, "minit: /etc/passwd: Permission denied"],
  ])("says why %s cannot be started", async (command, code, message) => {
    const ended = await endOf(await native.container([command]));
    expect(ended.record).toMatchObject({ exit_code: code, is_started: false, has_command: true });
    expect(ended.log).toMatchObject([{ stream: "minit", message, seq: 1 }]);
    expect(ended.exit_code).toBe(code);
  });

  it("gets a stop signal alone, and its own exit code counts", async () => {
    const script = "trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.01; done";
    const container = await native.container(["sh", "-c", script]);
    const log = new SegmentedLog(async () => container.log_paths, clock);
    await eventually("it is up", async () => (await log.tail({ limit: 1 })).length === 1);
    expect(await stopMain(container.path, 99, clock)).toBe(EINVAL);
    expect(await stopMain(container.path, TERM, clock)).toBe(0);
    const ended = await endOf(container);
    expect([ended.exit_code, ended.record?.exit_code, ended.record?.asked]).toEqual([3, 3, true]);
    expect(ended.log.map((line) => line.message)).toEqual(["up", "stopped"]);
  });

  it("is killed with all else by a shutdown, which is over when the record is written", async () => {
    const container = await native.container([
      "sh",
      "-c",
      "trap '' TERM; echo -n unfinished; setsid sleep 1000 & wait",
    ]);
    await eventually("it runs", () => insiders(container).length === 2);
    await shutdown(container.path, 5_000, clock);
    expect(await readExitRecord(container.exit_path)).toMatchObject({ exit_code: 137, signal: 9, asked: true });
    const ended = await endOf(container);
    expect([ended.exit_code, ended.log]).toMatchObject([137, [{ message: "unfinished", partial: true }]]);
  });

  it("leaves no record when minit is killed, also not that of the run before", async () => {
    const first = await native.container(["true"]);
    expect((await endOf(first)).record?.exit_code).toBe(0);
    const second = await native.container(["sleep", "1000"], { folder: first.folder });
    (await ControlConnection.connect(second.path, 5_000, clock)).close();
    process.kill(second.pid, "SIGKILL");
    expect((await endOf(second)).record).toBeNull();
  });

  it.each([
    [TERM, 0, 0],
    [2, 0, 0],
    [9, 137, 9],
  ])("where there is none, signal %i ends the container", async (signal, exit_code, by) => {
    const container = await native.container(null);
    const control = await ControlConnection.connect(container.path, 5_000, clock);
    const { nonce } = control;
    control.close();
    expect(nonce).toMatch(/^[0-9a-f]{32}$/);
    expect(await stopMain(container.path, 1, clock)).toBe(ESRCH);
    expect(await stopMain(container.path, signal, clock)).toBe(0);
    const ended = await endOf(container);
    expect(ended.record).toMatchObject({ exit_code, signal: by, asked: true, has_command: false });
    expect([ended.exit_code, ended.log]).toEqual([exit_code, []]);
  });

  it("takes the commands of connections with it", async () => {
    const container = await native.container(["sh", "-c", "read line < /proc/1/nothing; sleep 0.2; exit 4"]);
    const exit = runExec(container.path, { ...defaults, argv: ["sleep", "1000"] }, clock).exited;
    expect(await exit).toMatchObject({ exit_code: 137, signal: 9 });
    expect((await endOf(container)).record?.exit_code).toBe(4);
  });
});

describe("a command in a container", () => {
  it("has its input, both outputs and its exit code", async () => {
    const exit = await sh("cat; pwd; echo $A; echo oops >&2; exit 7", {
      stdin: Buffer.from("in\n"),
      environment: [...ENVIRONMENT, "A=b"],
      working_directory: "/usr",
    });
    expect(exit).toMatchObject({ exit_code: 7, signal: 0, timed_out: false, cancelled: false, spawn_failed: false });
    expect([exit.stdout.toString(), exit.stderr.toString()]).toEqual(["in\n/usr\nb\n", "oops\n"]);
    expect(exit.memory_peak_kb).toBeGreaterThan(100);
    expect(await run(["no-such-command"])).toMatchObject({ exit_code: 127, spawn_failed: true });
  });

  it("is told of its pid in the container, and is a session of its own", async () => {
    const { exec, text } = listenSh("echo $$; cut -d' ' -f1,5,6 /proc/self/stat; ls /proc/self/fd | wc -l");
    const { pid } = await exec.started;
    expect(await exec.exited).toMatchObject({ exit_code: 0 });
    const [own, stat] = text().split("\n");
    expect([Number(own), stat?.split(" ").slice(1).map(Number)]).toEqual([pid, [pid, pid]]);
  });

  it("has output cut at its cap, and no more is held", async () => {
    const exit = await sh("head -c 3000000 /dev/zero; head -c 100 /dev/zero >&2", { output_bytes_max: 1_000_000 });
    expect(exit).toMatchObject({ stdout_truncated: true, stderr_truncated: false, exit_code: 0 });
    expect([exit.stdout.length, exit.stderr.length]).toEqual([1_000_000, 100]);
  });

  it("runs beside 199 others, each on its connection", async () => {
    const many = await startMany(200, (i) => ["sh", "-c", `read x; echo ${i} $x`]);
    for (const { exec } of many) exec.write(Buffer.from("go\n"));
    for (const { exec } of many) expect(await exec.exited).toMatchObject({ exit_code: 0 });
    expect(many.map(({ text }) => text())).toEqual(Array.from({ length: 200 }, (_, i) => `${i} go\n`));
  });

  it("is refused above 256, and there is room again afterwards", async () => {
    const many = await startMany(256, () => ["cat"]);
    await expect(run(["true"])).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    for (const { exec } of many) exec.endStdin();
    for (const { exec } of many) expect(await exec.exited).toMatchObject({ exit_code: 0 });
    expect(await run(["true"])).toMatchObject({ exit_code: 0 });
  });

  it("echoes ten megabytes of input", async () => {
    const bytes = randomBytes(10 * MIB);
    const [sent, got] = [createHash("sha256").update(bytes), createHash("sha256")];
    let drained = Promise.withResolvers<void>();
    const exec = openExec(
      idle.path,
      { ...defaults, argv: ["cat"], is_stream: true, has_more_stdin: true, output_bytes_max: 20 * MIB },
      {
        onOutput(_stream, chunk) {
          got.update(chunk);
          return true;
        },
        onDrain: () => drained.resolve(),
      },
      clock,
    );
    for (let at = 0; at < bytes.length; at += 300_000) {
      drained = Promise.withResolvers<void>();
      if (!exec.write(bytes.subarray(at, at + 300_000))) await drained.promise;
    }
    exec.endStdin();
    expect(await exec.exited).toMatchObject({ exit_code: 0 });
    expect(got.digest("hex")).toBe(sent.digest("hex"));
  });

  it("is not held up by a slow reader of another", async () => {
    const slow = listen(["head", "-c", "30000000", "/dev/zero"], {}, false);
    await slow.exec.started;
    slow.exec.pause();
    for (let i = 0; i < 20; i++) expect((await run(["echo", "quick"])).stdout.toString()).toBe("quick\n");
    expect(count("head -c 30000000")).toBe(1);
    const kb = Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${idle.pid}/status`, "utf8"))?.[1]);
    expect(kb).toBeLessThan(4_096);
    slow.exec.resume();
    expect([(await slow.exec.exited).exit_code, slow.bytes()]).toEqual([0, 30_000_000]);
  });

  it("does not hold up others by input that it does not read", async () => {
    const { exec } = listen(["sleep", "777"], { has_more_stdin: true });
    await exec.started;
    while (exec.write(Buffer.alloc(MIB)));
    expect((await run(["echo", "quick"])).stdout.toString()).toBe("quick\n");
    exec.close();
    await gone("sleep 777");
  });

  it("does not wait for a background process that holds its output, and leaves it running", async () => {
    const exit = await sh("sleep 778 & setsid sleep 778 & echo done");
    expect([exit.exit_code, exit.stdout.toString()]).toEqual([0, "done\n"]);
    await eventually("both to run", () => count("sleep 778") === 2);
    const quiet = await sh("sleep 778 >/dev/null 2>&1 & echo $!");
    const pid = Number(quiet.stdout.toString());
    expect(await signalPid(idle.path, pid, 9, clock)).toBe(0);
    await eventually("it is reaped", async () => (await signalPid(idle.path, pid, 9, clock)) === ESRCH);
    await sh("pkill -KILL -f 'sleep 77[8]'");
    await gone("sleep 778");
  });

  it("ends although a background process never stops writing", async () => {
    const exit = await sh("yes & echo $! >&2", { output_bytes_max: 64 * MIB });
    expect(exit.exit_code).toBe(0);
    await gone("yes");
  });

  it("streams 128 MiB to a reader here", async () => {
    const size = 128 * MIB;
    const { exec, bytes } = listen(["head", "-c", String(size), "/dev/zero"], {}, false);
    await exec.started;
    expect(await exec.exited).toMatchObject({ exit_code: 0, stdout_truncated: false });
    expect(bytes()).toBe(size);
  });
});

describe("the end of a command in a container", () => {
  /** Leaves the session, forks twice, loses its parents and its environment, ignores TERM. */
  const tree = (seconds: number) => `
    setsid sh -c 'trap "" TERM HUP; (env -i setsid sh -c "trap \\"\\" TERM HUP; sleep ${seconds}; sleep ${seconds}" & ) ; sleep ${seconds}; sleep ${seconds}' &
    (setsid sh -c '(setpriv --reuid 1000 --clear-groups setsid sleep ${seconds} &) & ' &)
    sleep 0.1`;

  it("comes for all that descends from it at the deadline, in whatever session and of whatever user", async () => {
    const exit = await sh(`${tree(779)}; trap "" TERM; sleep 779; sleep 779`, { timeout_ms: 400 });
    expect(exit).toMatchObject({ timed_out: true, exit_code: 137, signal: 9 });
    await gone("sleep 779");
  });

  it("is SIGTERM first, and what follows it has the grace to end", async () => {
    const exit = await sh("trap 'echo bye; sleep 0.1; exit 9' TERM; while :; do sleep 0.01; done", {
      // Long enough for a slow start: a command that has not begun gets no signal but SIGKILL.
      timeout_ms: 1_000,
      // Longer than the test may take: it is not waited out.
      grace_ms: 400_000,
    });
    expect(exit).toMatchObject({ timed_out: true, exit_code: 9 });
    expect(exit.stdout.toString()).toBe("bye\n");
    const plain = await run(["sleep", "780"], { timeout_ms: 1_000, grace_ms: 10_000 });
    expect(plain).toMatchObject({ timed_out: true, exit_code: 143, signal: 15 });
  });

  it("is SIGKILL after the grace, for what the command left behind too", async () => {
    const exit = await sh(`${tree(781)}; sleep 781`, { timeout_ms: 300, grace_ms: 200 });
    expect(exit).toMatchObject({ timed_out: true, exit_code: 143 });
    await gone("sleep 781");
  });

  it("comes for a fork bomb", async () => {
    const bomb = "ulimit -u 400; f() { f | f & }; f; while :; do f 2>/dev/null; done";
    const exit = await run(["bash", "-c", bomb], { timeout_ms: 400, output_bytes_max: 1_000 });
    expect(exit).toMatchObject({ timed_out: true, signal: 9 });
    await gone("bash");
    expect((await sh("echo usable")).stdout.toString()).toBe("usable\n");
  });

  it("comes when its connection is closed", async () => {
    const { exec } = listenSh(`${tree(782)}; trap 'exit 1' TERM; sleep 782`, { grace_ms: 100 });
    await eventually("the tree", () => count("sleep 782") >= 4);
    exec.close();
    await expect(exec.exited).rejects.toMatchObject({ code: "INTERNAL" });
    await gone("sleep 782");
  });

  it("does not come with its connection where it is detached", async () => {
    const { exec } = listenSh("head -c 5000000 /dev/zero; sleep 783", { is_detached: true });
    const { pid } = await exec.started;
    exec.close();
    await eventually("it wrote all and goes on", () => count("sleep 783") === 2 && count("head") === 1);
    expect(await signalPid(idle.path, pid, 9, clock)).toBe(0);
    await sh("pkill -KILL -f 'sleep 78[3]'");
    await gone("sleep 783");
  });

  it("comes from a kill, and signals reach its group", async () => {
    const { exec, text } = listenSh("trap 'echo usr' USR1; echo up; while :; do sleep 0.01; done");
    await eventually("it is up", () => text() === "up\n");
    exec.signal(10);
    await eventually("it heard", () => text() === "up\nusr\n");
    exec.kill();
    expect(await exec.exited).toMatchObject({ cancelled: true, exit_code: 137, signal: 9 });
  });

  it("still comes, and is told, for one that killed its guard", async () => {
    const { exec, text } = listenSh("echo $PPID; kill -KILL $PPID; sleep 0.1; sleep 784 & exec sleep 784", {
      timeout_ms: 700,
    });
    expect(await exec.exited).toMatchObject({ timed_out: true, exit_code: 137 });
    expect(Number(text())).toBeGreaterThan(1);
    await gone("sleep 784");
    // How it ended is lost where the guard had seen it and could not tell.
    for (let i = 0; i < 20; i++) expect([5, 137]).toContain((await sh("kill -KILL $PPID; exit 5")).exit_code);
  });

  it("is not to be had by signalling what belongs to minit", async () => {
    const { exec, text } = listenSh("echo $PPID; read x", { has_more_stdin: true });
    await eventually("its guard", () => text().endsWith("\n"));
    expect(await signalPid(idle.path, Number(text()), 9, clock)).toBe(EPERM);
    for (const pid of [1, 0, -1]) expect(await signalPid(idle.path, pid, 9, clock)).toBe(EINVAL);
    expect(await signalPid(idle.path, 4_000_000, 9, clock)).toBe(ESRCH);
    exec.endStdin();
    await exec.exited;
  });

  it("cannot reach into minit or its guard", async () => {
    const script = `for pid in 1 $PPID; do
      for fd in /proc/$pid/fd/*; do readlink $fd; cat $fd; echo x > $fd; done
      cat /proc/$pid/mem /proc/$pid/environ /proc/$pid/maps; ls /proc/$pid/root/ /proc/$pid/cwd/
    done; kill -KILL 1; kill -STOP 1; echo alive`;
    const exit = await sh(script);
    expect([exit.stdout.toString(), exit.exit_code]).toEqual(["alive\n", 0]);
    expect(exit.stderr.toString().match(/Permission denied/g)?.length).toBeGreaterThan(20);
  });

  it("leaves no descriptor, guard or memory behind", async () => {
    const descriptors = () => readdirSync(`/proc/${idle.pid}/fd`).length;
    await run(["true"]);
    await eventually("the guards to be gone", () => children(idle.pid).length === 0);
    const before = descriptors();
    for (let i = 0; i < 200; i++) await run(["true"]);
    await eventually("all to be gone", () => children(idle.pid).length === 0 && descriptors() <= before);
  });
});

describe("a terminal in a container", () => {
  const open = (script: string, rest: Partial<RunRequest> = {}) =>
    listenSh(script, { terminal: { cols: 91, rows: 33 }, ...rest });

  it("is one, with the size asked for, and resizing is told", async () => {
    const { exec, text } = open(
      "trap 'stty size' WINCH; tty; test -t 0 -a -t 1 -a -t 2 && stty size; while :; do sleep 0.01; done",
    );
    await eventually("its size", () => text().includes("33 91"));
    expect(text()).toBe("/dev/pts/0\r\n33 91\r\n");
    exec.resize({ cols: 120, rows: 40 });
    await eventually("its new size", () => text().includes("40 120"));
    exec.kill();
    await exec.exited;
  });

  it("echoes what is typed, ends with the exit code, and loses no output", async () => {
    const { exec, text } = open("stty -echo; echo ready; read name; echo hi $name; seq 20000; exit 6");
    await eventually("it is ready", () => text().includes("ready"));
    exec.write(Buffer.from("you\r"));
    expect(await exec.exited).toMatchObject({ exit_code: 6 });
    expect(text()).toContain("hi you\r\n");
    expect(text().endsWith("19999\r\n20000\r\n")).toBe(true);
    expect(text().split("\n")).toHaveLength(20_003);
  });

  it("turns ^C into SIGINT for the foreground, and signals reach only that", async () => {
    const { exec, text } = listen(["bash", "--norc", "-i"], { terminal: { cols: 80, rows: 24 } });
    exec.write(Buffer.from("sleep 785\r"));
    await eventually("it sleeps", () => count("sleep 785") === 1);
    exec.write(Buffer.from("\x03"));
    await gone("sleep 785");
    exec.write(Buffer.from("sleep 786\r"));
    await eventually("it sleeps", () => count("sleep 786") === 1);
    exec.signal(TERM);
    await gone("sleep 786");
    exec.write(Buffer.from("echo $((40+2)); exit 8\r"));
    expect(await exec.exited).toMatchObject({ exit_code: 8 });
    expect(text()).toContain("\n42\r\n");
  });

  it("ends input with its end-of-file character", async () => {
    const { exec, text } = open("cat; echo over");
    await exec.started;
    exec.write(Buffer.from("line\r"));
    exec.endStdin();
    expect(await exec.exited).toMatchObject({ exit_code: 0 });
    expect(text()).toContain("over");
  });

  it("hangs up when its connection is closed: the shell hears of it, what is left is killed after the grace", async () => {
    const { exec, text } = open(
      "trap 'touch /tmp/hung-up' HUP; (trap '' HUP; sleep 787) & echo up; while :; do sleep 0.01; done",
      { grace_ms: 300 },
    );
    await eventually("it is up", () => text().includes("up") && count("sleep 787") > 0);
    exec.close();
    await gone("sleep 787");
    expect((await sh("ls /tmp/hung-up")).exit_code).toBe(0);
  });
});
