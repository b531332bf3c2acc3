/** The promises of the `Containers` port: root file system, start, end, and all that is asked of one that runs. */
import { afterEach, expect, it } from "vitest";
import { systemClock as clock } from "../../../src/base/clock.ts";
import type { ContainerSpec, Ended, LogLine, OutputStream, RunRequest } from "../../../src/engine/ports.ts";
import { eventually } from "../../support/daemon.ts";
import { containerSpec } from "../../support/engine.ts";
import type { BootedEngine } from "./booted-engine.ts";

const MIB = 1024 * 1024;
const TERM = 15;
const KILL = 9;
const HOST_PORT = 20_871;

const REQUEST: RunRequest & { readonly output_bytes_max: number } = {
  argv: [],
  environment: ["PATH=/usr/bin:/bin"],
  working_directory: "/",
  timeout_ms: 20_000,
  grace_ms: 0,
  output_bytes_max: MIB,
  is_stream: false,
};

export function containersContract({ engine }: BootedEngine): void {
  const { containers } = engine;
  const ends = new Map<string, Ended>();
  containers.onEnded((id, ended) => ends.set(id, ended));

  const start = async (id: string, more: Partial<ContainerSpec> = {}) => {
    await containers.create(id, 32);
    return containers.start(containerSpec(id, { disk_limit_mb: 32, ...more }));
  };
  /** The end of a container whose command ends by itself, whether its start or the listener tells. */
  const ended = async (id: string, more: readonly string[] | Partial<ContainerSpec>): Promise<Ended> => {
    const spec = "user" in more ? more : { command: more as readonly string[] };
    return (await start(id, spec)) ?? eventually(`${id} to end`, () => ends.get(id));
  };
  const sh = (id: string, script: string, more: Partial<typeof REQUEST> = {}) =>
    containers.run(id, { ...REQUEST, argv: ["sh", "-c", script], ...more }).exited;
  const said = async (id: string, script: string) => (await sh(id, script)).stdout.toString();

  afterEach(async () => {
    for (const id of containers.ids) await containers.kill(id);
    for (const id of await containers.kept()) await containers.remove(id);
    expect(await containers.kept()).toEqual([]);
    ends.clear();
  });

  it("starts a container, and ends it by force without a trace but its root", async () => {
    expect(await start("one")).toBeNull();
    const live = containers.live("one");
    expect([containers.ids, live?.id, containers.isLinked("one")]).toEqual([["one"], "one", true]);
    await live?.control.ping(5_000, clock);
    expect(await said("one", "hostname; echo kept > /kept")).toBe("one\n");
    await containers.kill("one");
    expect([containers.ids, containers.live("one"), containers.isLinked("one")]).toEqual([[], null, false]);
    expect(ends.get("one")).toMatchObject({ signal: KILL, is_oom: false });
    expect(() => process.kill(live?.pid ?? 0, 0)).toThrow();
    await containers.kill("one");
    expect(await containers.kept()).toEqual(["one"]);
    await containers.start(containerSpec("one"));
    expect(await said("one", "cat /kept")).toBe("kept\n");
  });

  it("tells the end of a command that is over at once, later too", async () => {
    const end = await ended("brief", ["sh", "-c", "exit 3"]);
    expect(end).toMatchObject({ exit_code: 3, signal: 0, asked: false, has_command: true, is_started: true });
    expect(await containers.exit("brief")).toEqual(end);
    expect(await containers.exit("unknown")).toBeNull();
    expect(await ended("missing", ["no-such-command"])).toMatchObject({ exit_code: 127, is_started: false });
  });

  it("ends a container by a signal, and by force after the grace", async () => {
    await start("polite", { command: ["sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.01; done"] });
    await start("deaf", { command: ["sh", "-c", "trap '' TERM; while :; do sleep 0.01; done"] });
    // A signal before the trap is set would end either.
    await Promise.all(["polite", "deaf"].map((id) => eventually(`${id} to sleep`, () => said(id, "pgrep -x sleep"))));
    await Promise.all([containers.stop("polite", TERM, 20_000), containers.stop("deaf", TERM, 50)]);
    expect(ends.get("polite")).toMatchObject({ exit_code: 7, signal: 0, asked: true });
    expect(ends.get("deaf")).toMatchObject({ signal: KILL });
    await containers.stop("polite", TERM, 20_000);
  });

  it("refuses a second start, a missing image, and leaves nothing of either", async () => {
    await start("taken");
    await expect(containers.start(containerSpec("taken"))).rejects.toMatchObject({ code: "START_FAILED" });
    expect(await said("taken", "echo mine")).toBe("mine\n");
    await expect(start("imageless", { image_id: "hearth/none:1" })).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect(containers.ids).toEqual(["taken"]);
  });

  it("rejects with START_FAILED when the kernel refuses the tenant's group, and starts later", async () => {
    // A path has 4,095 bytes at most.
    await expect(start("refused", { tenant_id: "t".repeat(5_000) })).rejects.toMatchObject({ code: "START_FAILED" });
    expect(await start("refused")).toBeNull();
  });

  it("bounds the root's size, and keeps it read-only where that is asked for", async () => {
    await start("small");
    expect((await sh("small", "head -c 40M /dev/zero > /full")).stderr.toString()).toMatch(/Disk quota exceeded/);
    await start("fixed", { read_only_root: true });
    expect((await sh("fixed", "touch /new")).stderr.toString()).toMatch(/Read-only file system/);
  });

  it.each([
    [{ strict: false }, "0000000000000000"],
    [{ strict: true }, "0000000000000000"],
  ])("runs commands as the user, found inside, without capabilities, if %j", async (more, capabilities) => {
    const facts = "id -un; id -gn; echo $HOME; sed -n 's/^CapPrm:.//p' /proc/self/status";
    const as = { user: "daemon:mail", image_environment: {}, ...more };
    await start("user", { ...as, command: ["sh", "-c", `${facts}; exec sleep 1000`] });
    const lines = ["daemon", "mail", "/usr/sbin", capabilities];
    const log = () => containers.log("user").tail({ limit: 10 });
    const logged = await eventually("its output", async () => ((await log()).length === 4 ? log() : null));
    expect(logged.map(({ message }) => message)).toEqual(lines);
    expect(await said("user", facts)).toBe(`${lines.join("\n")}\n`);
    await containers.stop("user", TERM, 20_000);
    expect(ends.get("user")).toMatchObject({ signal: TERM });
    expect(await ended("nobody", { ...as, user: "nobody-here", command: ["true"] })).toMatchObject({
      exit_code: 126,
      is_started: false,
    });
  });

  it("has HOME of root if its image sets none", async () => {
    await start("homed", {
      image_environment: { PATH: "/usr/bin:/bin" },
      command: ["sh", "-c", "echo $HOME; sleep 100"],
    });
    expect(await said("homed", "echo $HOME")).toBe("/root\n");
    const [line] = await eventually("its output", async () => {
      const lines = await containers.log("homed").tail({ limit: 1 });
      return lines.length === 0 ? null : lines;
    });
    expect(line?.message).toBe("/root");
  });

  it("mounts volumes, which outlive the container", async () => {
    await engine.storage.create("volumes", "v", 16);
    await start("mounting", { volumes: [{ id: "v", target: "/data" }] });
    expect(await said("mounting", "echo shared > /data/f && cat /data/f")).toBe("shared\n");
    await containers.kill("mounting");
    await containers.remove("mounting");
    await start("again", { volumes: [{ id: "v", target: "/data" }] });
    expect(await said("again", "cat /data/f")).toBe("shared\n");
    await containers.kill("again");
    await engine.storage.remove("volumes", "v");
  });

  it("runs a command with input, and gathers its output up to the cap", async () => {
    await start("runner");
    const exit = await sh("runner", "cat; pwd; echo oops >&2; exit 4", {
      stdin: Buffer.from("in\n"),
      working_directory: "/usr",
    });
    expect([exit.exit_code, exit.stdout.toString(), exit.stderr.toString()]).toEqual([4, "in\n/usr\n", "oops\n"]);
    const capped = await sh("runner", "seq 1000", { output_bytes_max: 10 });
    expect([capped.stdout.length, capped.stdout_truncated, capped.exit_code]).toEqual([10, true, 0]);
    expect(await sh("runner", "sleep 100", { timeout_ms: 50 })).toMatchObject({ timed_out: true });
    const closed = containers.run("runner", { ...REQUEST, argv: ["sleep", "100"] });
    await closed.started;
    closed.close();
    await expect(closed.exited).rejects.toMatchObject({ code: "INTERNAL" });
  });

  it("streams a command, takes its input, and gives it a terminal", async () => {
    await start("streamer");
    const open = (argv: readonly string[], more: Partial<RunRequest> = {}) => {
      let text = "";
      const onOutput = (_: OutputStream, chunk: Buffer) => {
        text += chunk.toString();
        return true;
      };
      const request = { ...REQUEST, output_bytes_max: null, is_stream: true, argv, ...more };
      return { exec: containers.exec("streamer", request, { onOutput }), text: () => text };
    };
    const cat = open(["cat"], { has_more_stdin: true });
    expect((await cat.exec.started).pid).toBeGreaterThan(1);
    cat.exec.write(Buffer.from("one"));
    await eventually("an echo", () => cat.text() === "one");
    cat.exec.endStdin();
    expect(await cat.exec.exited).toMatchObject({ exit_code: 0 });
    const terminal = open(["sh", "-c", "tty; stty size; read line; echo got $line; sleep 100"], {
      terminal: { cols: 91, rows: 33 },
    });
    await eventually("its size", () => terminal.text().includes("/dev/pts/0\r\n33 91\r\n"));
    terminal.exec.write(Buffer.from("it\r"));
    await eventually("its answer", () => terminal.text().includes("got it\r\n"));
    terminal.exec.signal(TERM);
    expect(await terminal.exec.exited).toMatchObject({ signal: TERM });
    const killed = open(["sleep", "100"]);
    await killed.exec.started;
    killed.exec.kill();
    expect(await killed.exec.exited).toMatchObject({ signal: KILL, cancelled: true });
  });

  it("lists processes by their pids inside, and signals them", async () => {
    await start("busy", { command: ["sleep", "1000"] });
    const { processes, isTruncated } = await eventually("the command", async () => {
      const list = await containers.processes("busy");
      return list.processes.some(({ command }) => command === "sleep 1000") ? list : null;
    });
    expect([isTruncated, processes[0]?.pid, processes[0]?.ppid]).toEqual([false, 1, 0]);
    // The first process has the container's command among its own arguments: none of them is a process of the tenant's.
    expect(processes.map(({ command }) => command).filter((command) => command !== "sleep 1000")).toEqual(["init"]);
    await expect(containers.signalPid("busy", 1, TERM)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await expect(containers.signalPid("busy", 30_000, TERM)).rejects.toMatchObject({ code: "NOT_FOUND" });
    await containers.signalPid("busy", processes.find(({ command }) => command === "sleep 1000")?.pid ?? 0, TERM);
    expect(await eventually("its end", () => ends.get("busy"))).toMatchObject({ signal: TERM, asked: false });
  });

  it("measures a container, and counts and bounds the processes of its tenant", async () => {
    await start("measured", { memory_limit_mb: 48 });
    await said("measured", "head -c 1M /dev/zero | md5sum");
    const metrics = containers.metrics("measured");
    expect(metrics).toMatchObject({ memory_limit_bytes: 48 * MIB, network_rx_errors: 0 });
    expect(metrics.cpu_usage_usec).toBeGreaterThan(0);
    expect(metrics.memory_peak_bytes).toBeGreaterThan(0);
    expect(metrics.processes_count).toBeGreaterThanOrEqual(1);
    expect(containers.processCount("default")).toBeGreaterThanOrEqual(1);
    // Room for the threads of the OCI runtime that starts the container: they count too.
    containers.boundProcesses(() => containers.processCount("default") + 20);
    const forks = "n=0; while [ $n -lt 30 ]; do sleep 100 & n=$((n+1)); done; echo all";
    await start("bounded");
    expect((await sh("bounded", forks)).stderr.toString()).toMatch(/fork/i);
    containers.boundProcesses(() => null);
  });

  it("keeps the log of a command, which is followed until the container is removed", async () => {
    await start("talker", { command: ["sh", "-c", "echo out; echo err >&2; while :; do sleep 0.01; done"] });
    const log = containers.log("talker");
    const lines = await eventually("two lines", async () => {
      const tail = await log.tail({ limit: 10 });
      return tail.length === 2 ? tail : null;
    });
    expect(lines.map(({ seq }) => seq)).toEqual([1, 2]);
    expect(new Set(lines.map(({ stream, message }) => `${stream} ${message}`))).toEqual(
      new Set(["stdout out", "stderr err"]),
    );
    expect(await log.tail({ limit: 1 })).toEqual(lines.slice(1));
    const followed: LogLine[] = [];
    const following = (async () => {
      for await (const line of log.follow(1, new AbortController().signal)) followed.push(line);
    })();
    await eventually("the second line", () => followed.length === 1);
    await containers.kill("talker");
    expect(await containers.log("talker").tail({ limit: 10 })).toEqual(lines);
    await containers.remove("talker");
    await following;
    expect(followed).toEqual(lines.slice(1));
    expect(await containers.log("talker").tail({ limit: 10 })).toEqual([]);
  });

  it("opens the files of one that runs and of one that does not, which cannot start meanwhile", async () => {
    const spec = containerSpec("opened");
    await start("opened");
    await said("opened", "echo inside > /dev/shm/f && echo root > /f");
    const running = await containers.openFiles(spec);
    expect(await running.session.stat("/dev/shm/f")).toMatchObject({ type: "file", size: 7, uid: 0 });
    running.close();
    await containers.kill("opened");
    const stopped = await containers.openFiles(spec);
    expect(await stopped.session.stat("/f")).toMatchObject({ type: "file", size: 5, uid: 0 });
    await expect(stopped.session.stat("/dev/shm/f")).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect(containers.isLookedInto("opened")).toBe(true);
    await expect(containers.start(containerSpec("opened"))).rejects.toMatchObject({ code: "START_FAILED" });
    stopped.close();
    expect(containers.isLookedInto("opened")).toBe(false);
    expect(await containers.start(containerSpec("opened"))).toBeNull();
  });

  it("takes snapshots of one that runs while it is frozen, which goes on also where they fail", async () => {
    const [COUNT, to] = [
      "n=0; while :; do n=$((n+1)); echo $n > /n; cp /n /data/n; done",
      { kind: "snapshots" } as const,
    ];
    const volume = { from: { kind: "volumes", id: "v" }, to: { ...to, id: "s-v" } } as const;
    await engine.storage.create("volumes", "v", null);
    await start("frozen", { command: ["sh", "-c", COUNT], volumes: [{ id: "v", target: "/data" }] });
    const numbers = () => said("frozen", "cat /n");
    await eventually("it counts", async () => Number(await numbers()) > 0);
    const goesOn = async () => {
      const before = Number(await numbers());
      await eventually("it goes on", async () => Number(await numbers()) > before);
    };
    // A disk that is slow may hold it up for longer than the deadline of the freeze: then the next attempt freezes it.
    const pause = await eventually("it is frozen", async () => {
      for (const id of await engine.storage.list("snapshots")) await engine.storage.remove("snapshots", id);
      const one = await containers.snapshot("frozen", { ...to, id: "s" }, [volume], "default");
      return one.isFrozen ? one : null;
    });
    expect(pause).toEqual({ pause_ms: expect.any(Number), isFrozen: true });
    expect(pause.pause_ms).toBeGreaterThan(0);
    await goesOn();
    expect((await engine.storage.list("snapshots")).sort()).toEqual(["s", "s-v"]);
    const missing = { from: { kind: "volumes", id: "none" }, to: { ...to, id: "s-n" } } as const;
    const failing = containers.snapshot("frozen", { ...to, id: "t" }, [missing], "default");
    await expect(failing).rejects.toMatchObject({ code: "NOT_FOUND" });
    await goesOn();
    await Promise.all([1, 2, 3, 4].map((n) => containers.snapshot("frozen", { ...to, id: `u-${n}` }, [], "default")));
    await goesOn();
    await containers.kill("frozen");
    const still = await containers.snapshot("frozen", { ...to, id: "s" }, [], "default");
    expect(still.isFrozen).toBe(false);
    for (const id of await engine.storage.list("snapshots")) await engine.storage.remove("snapshots", id);
    await engine.storage.remove("volumes", "v");
  });

  it("renews what tells a container from others, and nothing else", async () => {
    await start("copied");
    const id = "0123456789abcdef0123456789abcdef";
    await said("copied", `echo ${id} > /etc/machine-id; echo ${id} > /etc/other; head -c 512 /dev/zero > /srv/seed`);
    await said("copied", "mkdir -p /var/lib/systemd && cp /srv/seed /var/lib/systemd/random-seed");
    await containers.kill("copied");
    await containers.renew("default", "copied");
    await containers.start(containerSpec("copied"));
    expect(await said("copied", "cat /etc/machine-id")).toMatch(/^[0-9a-f]{32}\n$/);
    expect(await said("copied", "cat /etc/machine-id")).not.toBe(`${id}\n`);
    expect(await said("copied", "cat /etc/other; stat -c '%a %s' /etc/machine-id")).toBe(`${id}\n444 33\n`);
    expect(await said("copied", "cmp /srv/seed /var/lib/systemd/random-seed > /dev/null || echo new")).toBe("new\n");
    await containers.kill("copied");
    await containers.create("blank", 32);
    await containers.renew("default", "blank");
  });

  it("publishes ports for as long as the container lives", async () => {
    const port = { container_port: 80, host_port: HOST_PORT, host_address: "127.0.0.1", protocol: "tcp" } as const;
    const isPublished = async () =>
      (await containers.publications()).some(({ host_port, target }) => host_port === HOST_PORT && /:80$/.test(target));
    await start("server", { egress: "off", ports: [port] });
    expect(await isPublished()).toBe(true);
    await containers.kill("server");
    expect(await isPublished()).toBe(false);
  });
}
