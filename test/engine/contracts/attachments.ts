/** The promises of `Instances.attach`: code, secrets and egress of an instance, and nothing for anybody else. */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { LIMITS } from "../../../src/base/limits.ts";
import { containerProcesses, processFile } from "../../../src/engine/kernel/control-groups.ts";
import { LauncherClient } from "../../../src/engine/launcher/launcher.ts";
import type { Attachment, Instance } from "../../../src/engine/ports.ts";
import { eventually, linkOf } from "../../support/daemon.ts";
import { command, standardClass } from "../../support/engine.ts";
import { Namespace } from "../../support/namespaces.ts";
import { pythonProgram } from "../../support/python-runtime.ts";
import { sendSignal } from "../../support/signals.ts";
import type { BootedEngine } from "./booted-engine.ts";

const MIB = 1024 * 1024;
const CODE = "c0de".repeat(16);
const NOTHING: Attachment = { code: null, secrets: new Map(), egress: "on" };
const secretsOf = (...entries: [string, string][]) =>
  new Map(entries.map(([name, text]) => [name, Buffer.from(text)] as const));

/** Tries each of these as code of a tenant would, and prints those that succeed. */
const ATTACK = `
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
REMOUNT, BIND, DETACH = 32, 4096, 2
uid = os.getuid()
def call(name, *args):
    ctypes.set_errno(0)
    if getattr(libc, name)(*args) != 0: raise OSError(ctypes.get_errno(), name)
def sys(number, *args):
    ctypes.set_errno(0)
    if libc.syscall(number, *args) < 0: raise OSError(ctypes.get_errno(), str(number))
def write(path): open(path, "w").write("x")
def escape():
    if os.path.exists("/function/up/area.btrfs") or os.listdir("/function/up") != os.listdir("/"): return
    raise OSError("stays inside")
tries = {}
for d in ("/function", "/run/secrets"):
    p = d.encode()
    tries.update({
        f"remount {d}": lambda p=p: call("mount", None, p, None, REMOUNT | BIND, None),
        f"mount over {d}": lambda p=p: call("mount", b"tmpfs", p, b"tmpfs", 0, None),
        f"bind over {d}": lambda p=p: call("mount", b"/tmp", p, None, BIND, None),
        f"umount {d}": lambda p=p: call("umount2", p, DETACH),
        f"open_tree {d}": lambda p=p: sys(428, -100, p, 1),
        f"mount_setattr {d}": lambda p=p: sys(442, -100, p, 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32),
        f"create in {d}": lambda d=d: write(d + "/new"),
        f"mkdir in {d}": lambda d=d: os.mkdir(d + "/new"),
        f"chmod {d}": lambda d=d: os.chmod(d, 0o777),
        f"rename {d}": lambda d=d: os.rename(d, "/tmp/away"),
    })
for f in ("/function/main.txt", "/run/secrets/TOKEN"):
    tries.update({
        f"write {f}": lambda f=f: write(f),
        f"append {f}": lambda f=f: open(f, "a").write("x"),
        f"truncate {f}": lambda f=f: os.truncate(f, 0),
        f"unlink {f}": lambda f=f: os.unlink(f),
        f"chmod {f}": lambda f=f: os.chmod(f, 0o777),
        f"chown {f}": lambda f=f: os.chown(f, uid, uid),
        f"utime {f}": lambda f=f: os.utime(f),
        f"link {f}": lambda f=f: os.link(f, "/tmp/link"),
    })
tries["link out of the tree"] = escape
tries["absolute link"] = lambda: open("/function/shadow").read()
tries["unshare"] = lambda: call("unshare", 0x10000000 | 0x20000)
tries["namespace of minit"] = lambda: call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)
for name, attempt in tries.items():
    try: attempt()
    except OSError: continue
    print(name)
print(f"{len(tries)} tried")
`;

/** `count`: attachments of the case in which instances die. */
export function attachmentsContract({ engine, config }: BootedEngine, count: number): void {
  const { instances } = engine;
  const tag = config.host_tag.slice(0, 6);
  const world = new Namespace(`attach-${tag}`);
  const link = `w${tag}`;
  // A /29 of its own, for test runs beside each other.
  const block = `198.51.100.${(randomBytes(1)[0] ?? 0) & 0xf8}`;
  const addressAt = (n: number) => block.replace(/\d+$/, (last) => String(Number(last) + n));

  const launcher = () =>
    Number(
      execFileSync("pgrep", ["-f", `launcher ${config.run_dir}`])
        .toString()
        .trim()
        .split("\n")[0],
    );
  /** A subvolume as the launcher's mount namespace has it. */
  const seen = (path: string) => `/proc/${launcher()}/root${path}`;
  const start = (id: string) => instances.start(id, standardClass(engine));
  const shell = (line: string, more = {}) => command(["bash", "-c", line], more);
  const say = async (instance: Instance, line: string) => {
    const { stdout, stderr, idle } = await instance.minit.execSole(shell(line));
    await idle;
    return (stdout + stderr).trim();
  };
  const group = (id: string) => `/hearth-${config.host_tag}/${id}`;
  const mode = () => engine.info().cgroup_mode;
  const makeCode = async (id: string) => {
    const path = seen(await engine.storage.create("code", id, 16));
    writeFileSync(`${path}/main.txt`, `code of ${id}`);
    writeFileSync(`${path}/run`, "#!/bin/sh\necho ran as $(id -u), $(stat -c %U /function/run)\n");
    chmodSync(`${path}/run`, 0o755);
    symlinkSync("../../../../../..", `${path}/up`);
    symlinkSync("/etc/shadow", `${path}/shadow`);
    execFileSync("cp", ["/usr/bin/id", `${path}/suid`]);
    chmodSync(`${path}/suid`, 0o4755);
    execFileSync("mknod", ["-m", "666", `${path}/null`, "c", "1", "3"]);
  };
  /** Mounts of launcher and host, and descriptors of the launcher that an attachment could have left. */
  const traces = () => {
    const pid = launcher();
    const mounts = (of: string) => readFileSync(`/proc/${of}/mounts`, "utf8").trim().split("\n").length;
    const files = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      return linkOf(`/proc/${pid}/fd/${fd}`).filter((target) => !/^(net|user|socket):/.test(target));
    });
    return { launcher: mounts(String(pid)), host: mounts("self"), files: files.sort() };
  };
  /** A zombie has left its control group, and waits only for its parent to read its status. */
  const isGone = (pid: number) => {
    try {
      return /^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
    } catch {
      return true;
    }
  };

  beforeAll(async () => {
    await makeCode(CODE);
    execFileSync("ip", ["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", world.name]);
    execFileSync("ip", ["address", "add", `${addressAt(1)}/29`, "dev", link]);
    execFileSync("ip", ["link", "set", link, "up"]);
    world.ip("address", "add", `${addressAt(2)}/29`, "dev", "eth0");
    world.ip("link", "set", "eth0", "up");
    world.ip("route", "add", "default", "via", addressAt(1));
    await world.serve(80, 81);
  });
  afterAll(async () => {
    execFileSync("ip", ["link", "delete", link]);
    world.close();
    await engine.storage.remove("code", CODE);
  });

  it("shows code and secrets to a process that runs already, and to later commands", async () => {
    const instance = await start("early");
    const waiter =
      "until cat /function/main.txt 2>/dev/null && cat /run/secrets/TOKEN; do sleep 0.02; done; echo; id -u";
    const running = instance.minit.execSole(shell(waiter));
    await eventually("it runs", () => containerProcesses(mode(), group("early")).length > 1);
    await instances.attach(instance, {
      code: CODE,
      secrets: secretsOf(["TOKEN", "s3cret"], ["b.pem", ""]),
      egress: "on",
    });
    const outcome = await running;
    expect(outcome.stdout).toBe(`code of ${CODE}s3cret\n${instance.uid}\n`);
    await outcome.idle;
    expect(await say(instance, "/function/run")).toBe(`ran as ${instance.uid}, root`);
    expect(await say(instance, "cd /run/secrets; stat -c '%n %a %u %g %s' . *")).toBe(
      `. 755 0 0 0\nTOKEN 400 ${instance.uid} ${instance.uid} 6\nb.pem 400 ${instance.uid} ${instance.uid} 0`,
    );
    const options = await say(instance, "grep -E ' /(function|run/secrets) ' /proc/self/mounts | cut -d' ' -f2-4");
    expect(options).toMatch(/^\/function btrfs ro,nosuid,nodev,noatime,/m);
    expect(options).toMatch(/^\/run\/secrets ramfs ro,nosuid,nodev,noexec,/m);
    expect(await say(instance, "env; cat /proc/*/cmdline /proc/*/environ | tr '\\0' ' '")).not.toContain("s3cret");
    await instances.remove(instance);
  });

  it("shows code to a resident process, which started before", async () => {
    const handler = "def handler(payload, log): return open('/function/main.txt', 'rb').read()";
    const instance = await instances.start("resident", standardClass(engine, { resident: pythonProgram(handler) }));
    await instances.attach(instance, { ...NOTHING, code: CODE });
    const request = { payload: Buffer.alloc(0), timeout_ms: 30_000, result_bytes_max: 1_000, log_bytes_max: 1_000 };
    const outcome = await instance.resident?.call(request, { onLog: () => {} });
    expect(outcome?.result.toString()).toBe(`code of ${CODE}`);
    await instances.remove(instance);
  });

  it("removes an instance that is being attached to, with its rules", async () => {
    const instance = await start("leaving");
    const attaching = instances.attach(instance, { code: CODE, secrets: secretsOf(["A", "a"]), egress: "off" });
    await Promise.all([attaching.catch(() => {}), instances.remove(instance)]);
    const rules = ["list", "map", "inet", `hearth_${config.host_tag}`, "egress"];
    expect(execFileSync("nft", rules).toString()).not.toContain("elements");
  });

  it("lets nothing inside change what is attached, leave the tree, or gain rights by it", async () => {
    const instance = await start("hostile");
    await instances.attach(instance, { code: CODE, secrets: secretsOf(["TOKEN", "mine"]), egress: "on" });
    const attack = command(["python3", "-c", ATTACK]);
    const { stdout, stderr, idle } = await instance.minit.execSole(attack);
    await idle;
    expect([stdout, stderr]).toEqual(["40 tried\n", ""]);
    expect(await say(instance, "/function/suid -u")).toBe(String(instance.uid));
    expect(await say(instance, "cat /function/null")).toBe("cat: /function/null: Permission denied");
    expect(await say(instance, "cat /function/main.txt /run/secrets/TOKEN")).toBe(`code of ${CODE}mine`);
    expect(readdirSync(seen(engine.storage.subvolume("code", CODE)))).toHaveLength(6);
    await instances.remove(instance);
  });

  it("gives an instance its own alone", async () => {
    const other = "0ther".repeat(8);
    await makeCode(other);
    const [mine, theirs, bare] = await Promise.all(["mine", "theirs", "bare"].map(start));
    if (mine === undefined || theirs === undefined || bare === undefined) throw new Error("three instances");
    await Promise.all([
      instances.attach(mine, { code: CODE, secrets: secretsOf(["A", "a"]), egress: "on" }),
      instances.attach(theirs, { code: other, secrets: secretsOf(["B", "b"]), egress: "on" }),
      instances.attach(bare, NOTHING),
    ]);
    const look =
      "cat /function/main.txt 2>/dev/null; ls -A /run/secrets | tr '\\n' ' '; cat /run/secrets/* 2>/dev/null";
    expect(await say(mine, look)).toBe(`code of ${CODE}A a`);
    expect(await say(theirs, look)).toBe(`code of ${other}B b`);
    expect(await say(bare, look)).toBe("");
    // Found by way of /proc as the host's root can: the files are of another uid too.
    const [pid = 0] = containerProcesses(mode(), group("mine"));
    expect(statSync(`/proc/${pid}/root/run/secrets/A`)).toMatchObject({ uid: mine.uid, gid: mine.uid });
    expect(theirs.uid).not.toBe(mine.uid);
    await Promise.all([mine, theirs, bare].map((instance) => instances.remove(instance)));
    await engine.storage.remove("code", other);
  });

  it("shows no file once the subvolume is removed, and lets a process read on what it has open", async () => {
    const removed = "dead".repeat(16);
    await makeCode(removed);
    const instance = await start("outlived");
    await instances.attach(instance, { ...NOTHING, code: removed });
    const line =
      "exec 3</function/main.txt; while test -e /function/run; do sleep 0.02; done; cat <&3; ls -A /function";
    const reading = instance.minit.execSole(shell(line));
    const opened = (pid: number) => {
      return linkOf(`/proc/${pid}/fd/3`).some((path) => path.endsWith("main.txt"));
    };
    await eventually("it reads", () => containerProcesses(mode(), group("outlived")).some(opened));
    await engine.storage.remove("code", removed);
    const { stdout, idle } = await reading;
    expect(stdout).toBe(`code of ${removed}`);
    await idle;
    expect(await say(instance, "cat /function/main.txt")).toBe("cat: /function/main.txt: No such file or directory");
    expect(await engine.storage.list("code")).toEqual([CODE]);
    await instances.remove(instance);
  });

  it("attaches once, and refuses what is unknown, too large or misnamed with START_FAILED", async () => {
    const refused = async (more: Partial<Attachment>, text: RegExp) => {
      const instance = await start("refused");
      const attaching = instances.attach(instance, { ...NOTHING, ...more });
      await expect(attaching).rejects.toMatchObject({ code: "START_FAILED", message: expect.stringMatching(text) });
      expect(await say(instance, "ls -A /function /run/secrets")).toBe("/function:\n\n/run/secrets:");
      await instances.remove(instance);
    };
    await refused({ code: "0".repeat(64) }, /code: No such file/);
    for (const code of ["", "..", "../volumes/x", `${CODE}/..`]) await refused({ code }, /Invalid argument/);
    for (const name of ["", ".", "..", "../x", "a/b", ".hidden", "x".repeat(65), "a b", "é"]) {
      await refused({ secrets: secretsOf([name, "x"]) }, /name: Invalid argument/);
    }
    const many = Array.from({ length: LIMITS.secret_files_max + 1 }, (_, n): [string, string] => [`s${n}`, "x"]);
    await refused({ secrets: secretsOf(...many) }, /secrets: Argument list too long/);
    const large = "x".repeat(LIMITS.secret_files_bytes_max / 2);
    await refused({ secrets: secretsOf(["a", large], ["b", large], ["c", "x"]) }, /secrets: Argument list too long/);
    await refused({ secrets: secretsOf(["a", "x".repeat(17 * MIB)]) }, /frame too large/);

    const instance = await start("full");
    await instances.attach(instance, {
      code: CODE,
      secrets: secretsOf(...many.slice(3), ["a", large], ["b", large.slice(many.length)]),
      egress: "on",
    });
    expect(await say(instance, "ls /run/secrets | wc -l; cat /run/secrets/a | wc -c")).toBe(`64\n${large.length}`);
    await expect(instances.attach(instance, NOTHING)).rejects.toMatchObject({ code: "START_FAILED" });
    await instances.remove(instance);
    await expect(instances.attach(instance, NOTHING)).rejects.toMatchObject({ code: "START_FAILED" });
  });

  it("refuses direct requests to the launcher to mount twice, outside of instances, or in no instance", async () => {
    const client = new LauncherClient(`${config.run_dir}/launcher.sock`, systemClock);
    const instance = await start("direct");
    const request = { code: CODE, uid: instance.uid, secrets: secretsOf(["A", "a"]) };
    const procs = processFile(mode(), group("direct"));
    await client.attach({ ...request, procs });
    await expect(client.attach({ ...request, procs })).rejects.toThrow("/function: Invalid cross-device link");
    // The group of this process, which is in the host's mount namespace, and the launcher's own.
    for (const pid of [process.pid, launcher()]) {
      const list = `${config.run_dir}/procs`;
      writeFileSync(list, `${pid}\n`);
      await expect(client.attach({ ...request, procs: list })).rejects.toThrow("instance: Operation not permitted");
    }
    await expect(client.attach({ ...request, procs: "/nowhere" })).rejects.toThrow("instance: No such file");
    await expect(client.attach({ ...request, procs: "/dev/null" })).rejects.toThrow("instance: No such process");
    await client.ping();
    client.close();
    await instances.remove(instance);
  });

  it("leaves no mount and no descriptor when instances die at any moment, or a client does", async () => {
    const before = traces();
    let [next, done, lost] = [0, 0, 0];
    const lane = async () => {
      for (let n = next++; n < count; n = next++) {
        const id = `dying-${n}`;
        const instance = await start(id);
        const pids = containerProcesses(mode(), group(id));
        const kill = () => {
          for (const pid of pids) sendSignal(pid);
        };
        if (n % 3 === 0) kill();
        const attaching = instances.attach(instance, { code: CODE, secrets: secretsOf(["A", "a"]), egress: "on" });
        if (n % 3 === 1) setImmediate(kill);
        await attaching.then(
          () => done++,
          (error) => {
            expect(error).toMatchObject({ code: "START_FAILED" });
            lost++;
          },
        );
        await instances.remove(instance);
        expect(pids.filter((pid) => !isGone(pid))).toEqual([]);
      }
    };
    await Promise.all([lane(), lane(), lane(), lane()]);
    expect([done + lost, done >= count / 3]).toEqual([count, true]);
    for (let n = 0; n < 10; n++) {
      const instance = await start("left");
      const client = new LauncherClient(`${config.run_dir}/launcher.sock`, systemClock);
      const request = { procs: processFile(mode(), group("left")), code: CODE, uid: instance.uid };
      const attaching = client.attach({ ...request, secrets: secretsOf(["A", "a"]) }).catch(() => {});
      if (n % 2 === 0) await new Promise((resolve) => setImmediate(resolve));
      client.close();
      await attaching;
      await instances.remove(instance);
    }
    await eventually("nothing is left", () => JSON.stringify(traces()) === JSON.stringify(before));
  });

  it("leaves nothing when the launcher is killed meanwhile, and attaches with the next one", async () => {
    for (let n = 0; n < 3; n++) {
      const instance = await start("cut");
      const { host } = traces();
      const attaching = instances.attach(instance, { ...NOTHING, code: CODE }).catch((error) => error);
      process.kill(launcher(), "SIGKILL");
      await attaching;
      await instances.remove(instance);
      const next = await eventually("an instance starts", () => start("next").catch(() => undefined));
      await instances.attach(next, { ...NOTHING, code: CODE });
      expect(await say(next, "cat /function/main.txt")).toBe(`code of ${CODE}`);
      await instances.remove(next);
      expect(traces().host).toBe(host);
    }
  });

  it("has egress in force when it resolves, for the instance alone, and ends it with the instance", async () => {
    const client = `exec 3<>/dev/tcp/${addressAt(2)}/$0 && head -n1 <&3`;
    const reach = async (instance: Instance, port: number) => {
      const { stdout, stderr, idle } = await instance.minit.execSole(
        command(["timeout", "5", "bash", "-c", client, String(port)]),
      );
      await idle;
      return stdout === "" ? (/: ([^:]+)$/.exec(stderr.trim())?.[1] ?? stderr) : stdout.trim();
    };
    const rules = () => execFileSync("nft", ["list", "map", "inet", `hearth_${config.host_tag}`, "egress"]).toString();
    const [open, off, list] = await Promise.all(["open", "off", "list"].map(start));
    if (open === undefined || off === undefined || list === undefined) throw new Error("three instances");
    expect(await reach(off, 80)).toContain(`${world.name} sees`);
    await instances.attach(open, { ...NOTHING, code: CODE });
    expect(rules()).not.toContain("elements");
    await Promise.all([
      instances.attach(off, { ...NOTHING, egress: "off" }),
      instances.attach(list, { ...NOTHING, code: CODE, egress: [`${addressAt(2)}:81/tcp`] }),
    ]);
    expect(await Promise.all([open, off, list].map((instance) => reach(instance, 80)))).toEqual([
      expect.stringContaining(`${world.name} sees`),
      "No route to host",
      "No route to host",
    ]);
    expect(await reach(list, 81)).toContain(`${world.name} sees`);
    expect(await reach(off, 81)).toBe("No route to host");
    await Promise.all([off, list].map((instance) => instances.remove(instance)));
    expect(rules()).not.toContain("elements");
    await instances.remove(open);
  });
}
