/** The promises of the `Instances` port, on every OCI runtime that set-up installs. */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { Instance } from "../../../src/engine/ports.ts";
import { PROJECT_DIR } from "../../../src/installation/paths.js";
import { eventually } from "../../support/daemon.ts";
import { command, standardClass } from "../../support/engine.ts";
import { children } from "../../support/native.ts";
import { sendSignal } from "../../support/signals.ts";
import type { BootedEngine } from "./booted-engine.ts";

/** The cases of a booted engine, without the slow ones of `slowInstancesContract`. */
export function instancesContract({ engine, config }: BootedEngine): void {
  const bundles = () => readdirSync(`${config.run_dir}/i`);

  it("starts an instance that runs commands, and removes it without a trace", async () => {
    const instance = await engine.instances.start("one", standardClass(engine));
    expect(instance.nonce).toMatch(/^[0-9a-f]{32}$/);
    const outcome = await instance.minit.execSole(command(["cat"], { payload: "hello" }));
    expect(outcome).toMatchObject({ exit_code: 0, stdout: "hello" });
    await outcome.idle;
    await engine.instances.remove(instance);
    expect(bundles()).toEqual([]);
    expect(instance.minit.isOpen).toBe(false);
  });

  it("gives each instance a nonce, an address and a uid of its own", async () => {
    const all = await Promise.all(["a", "b", "c"].map((id) => engine.instances.start(id, standardClass(engine))));
    for (const field of ["nonce", "address", "uid"] as const) {
      expect(new Set(all.map((instance) => instance[field])).size).toBe(3);
    }
    await Promise.all(all.map((instance) => engine.instances.remove(instance)));
    expect(bundles()).toEqual([]);
  });

  it("makes /tmp and /dev/shm as large as the class says", async () => {
    const instance = await engine.instances.start("small", standardClass(engine, { key: "small", scratch_mb: 5 }));
    const { stdout } = await instance.minit.execSole(command(["df", "--output=size", "/tmp", "/dev/shm"]));
    expect(stdout.trim().split(/\s+/).slice(-2)).toEqual(["5120", "5120"]);
    await engine.instances.remove(instance);
  });

  it("finds node, npm, pip and the empty directories of its image", async () => {
    const instance = await engine.instances.start("tools", standardClass(engine));
    const lines = [
      "PATH=/usr/local/bin:/usr/bin:/bin; export PATH HOME=/tmp; umask 022",
      "find /function /run/secrets /opt/hearth -printf '%p %m %U:%G\\n'",
      "cd /tmp && mkdir work dep && cd work && echo 'console.log(process.version satisfies string)' >v.ts && node v.ts",
      `echo '{"name":"dep","version":"1.0.0"}' >../dep/package.json`,
      "npm install --offline --no-audit ../dep >/dev/null && ls -A node_modules && npx --version",
      "python3 /dev/stdin <<'END'",
      "import zipfile",
      "with zipfile.ZipFile('one-1.0-py3-none-any.whl', 'w') as wheel:",
      "    wheel.writestr('one.py', 'print(1)')",
      "    wheel.writestr('one-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: one\\nVersion: 1.0\\n')",
      "    wheel.writestr('one-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')",
      "    wheel.writestr('one-1.0.dist-info/RECORD', 'one.py,,\\n')",
      "END",
      "pip --quiet install --no-index --target site one-1.0-py3-none-any.whl && PYTHONPATH=site python3 -m one",
      "pip3 --version | cut -c1-3",
    ];
    const run = command(["bash", "-ec", lines.join("\n")], { timeout_ms: 60_000 });
    const { stdout, stderr } = await instance.minit.execSole(run);
    const { dependencies, optionalDependencies } = JSON.parse(readFileSync(`${PROJECT_DIR}/package.json`, "utf8"));
    const directories = ["/function", "/run/secrets", "/opt/hearth"];
    expect([stdout.trim().split("\n"), stderr]).toEqual([
      [
        ...directories.map((path) => `${path} 755 0:0`),
        `v${optionalDependencies[`node-linux-${process.arch}`]}`,
        ".package-lock.json",
        "dep",
        dependencies.npm,
        "1",
        "pip",
      ],
      "",
    ]);
    await engine.instances.remove(instance);
  });

  it("sets limits on a running instance", async () => {
    const instance = await engine.instances.start("limited", standardClass(engine));
    engine.instances.limit(instance, { memory_limit_mb: 300, cpu_limit_percent: 50 });
    const path = `hearth-${config.host_tag}/limited`;
    if (engine.info().cgroup_mode === "v2") {
      expect(readFileSync(`/sys/fs/cgroup/${path}/memory.max`, "utf8").trim()).toBe(String(300 * 1024 * 1024));
      expect(readFileSync(`/sys/fs/cgroup/${path}/cpu.max`, "utf8").trim()).toBe("50000 100000");
    } else {
      expect(readFileSync(`/sys/fs/cgroup/memory/${path}/memory.limit_in_bytes`, "utf8").trim()).toBe(
        String(300 * 1024 * 1024),
      );
      expect(readFileSync(`/sys/fs/cgroup/cpu/${path}/cpu.cfs_quota_us`, "utf8").trim()).toBe("50000");
      expect(readFileSync(`/sys/fs/cgroup/pids/${path}/pids.max`, "utf8").trim()).toBe("256");
    }
    await engine.instances.remove(instance);
  });

  it("counts what the kernel killed for memory", async () => {
    const instance = await engine.instances.start("greedy", standardClass(engine));
    engine.instances.limit(instance, { memory_limit_mb: 256, cpu_limit_percent: null });
    expect(engine.instances.oomKills(instance)).toBe(0);
    const outcome = await instance.minit.execSole(command(["python3", "-c", "bytearray(400 << 20)"]));
    expect(outcome.exit_code).toBe(137);
    expect(engine.instances.oomKills(instance)).toBeGreaterThan(0);
    await engine.instances.remove(instance);
  });

  it("tells when an instance is killed from outside, and still removes it whole", async () => {
    const instance = await engine.instances.start("killed", standardClass(engine));
    const closed = new Promise<void>((resolve) => instance.minit.onClosed(resolve));
    const running = instance.minit.execSole(command(["sleep", "100"]));
    const [pid] = pidsOf(config.host_tag, "killed");
    process.kill(pid ?? 0, "SIGKILL");
    await closed;
    await expect(running).rejects.toThrow(/lost the connection/);
    await engine.instances.remove(instance);
    expect(bundles()).toEqual([]);
    await eventually("its processes are gone", () => pidsOf(config.host_tag, "killed").length === 0);
  });

  it("removes an instance once, however often it is asked", async () => {
    const instance = await engine.instances.start("twice", standardClass(engine));
    await Promise.all([engine.instances.remove(instance), engine.instances.remove(instance)]);
    await engine.instances.remove(instance);
    expect(bundles()).toEqual([]);
  });

  it("refuses a start under a name that is taken, and does not touch who has it", async () => {
    const holder = await engine.instances.start("taken", standardClass(engine));
    await expect(engine.instances.start("taken", standardClass(engine))).rejects.toMatchObject({
      code: "START_FAILED",
    });
    expect((await holder.minit.execSole(command(["echo", "mine"]))).stdout).toBe("mine\n");
    await engine.instances.remove(holder);
  });

  it("leaves nothing of a start that failed", async () => {
    // A directory where the runtime wants to keep the container's state makes it refuse half-way.
    const state = `${config.run_dir}/oci/spoiled`;
    mkdirSync(state, { recursive: true });
    writeFileSync(`${state}/status`, "not a state");
    await expect(engine.instances.start("spoiled", standardClass(engine))).rejects.toMatchObject({
      code: "START_FAILED",
    });
    rmSync(state, { recursive: true, force: true });
    expect(bundles()).toEqual([]);
  });

  it("ends a start whose first process is killed with all who still work on it", async () => {
    const launcher = Number(
      execFileSync("pgrep", ["-f", `launcher ${config.run_dir}`])
        .toString()
        .trim()
        .split("\n")[0],
    );
    let killed = 0;
    for (let n = 0; n < 30; n++) {
      const id = `cut-${n}`;
      let isOver = false;
      const starting = engine.instances
        .start(id, standardClass(engine))
        .then((instance) => engine.instances.remove(instance))
        .catch(() => {})
        .finally(() => {
          isOver = true;
        });
      const end_ms = performance.now() + (n % 10);
      while (!isOver) {
        await new Promise((resolve) => setImmediate(resolve));
        const first = performance.now() < end_ms ? undefined : children(launcher).find((pid) => isStarterOf(pid, id));
        if (first === undefined) continue;
        if (!sendSignal(first)) continue;
        killed++;
        break;
      }
      await starting;
    }
    expect(killed).toBeGreaterThan(5);
    // Whoever was missed would have finished by now.
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (let n = 0; n < 30; n++) {
      await eventually(`the processes of start ${n} are gone`, () => pidsOf(config.host_tag, `cut-${n}`).length === 0);
    }
    expect(bundles()).toEqual([]);
  });

  it("returns the mode of paths in the image, and follows none out of it", async () => {
    expect(await engine.instances.modeOf(standardClass(engine), "/usr/bin")).toBe(0o40755);
    expect(await engine.instances.modeOf(standardClass(engine), "/etc/passwd")).toBe(0o100644);
    expect(await engine.instances.modeOf(standardClass(engine), "/no/such")).toBe(null);
    expect(await engine.instances.modeOf(standardClass(engine), `/../../..${config.data_dir}`)).toBe(null);
  });

  it("replaces a launcher that was killed, and starts instances again", async () => {
    const survivor: Instance = await engine.instances.start("survivor", standardClass(engine));
    const [launcher] = execFileSync("pgrep", ["-f", `launcher ${config.run_dir}`])
      .toString()
      .trim()
      .split("\n");
    process.kill(Number(launcher), "SIGKILL");
    const next = await eventually("an instance starts", () =>
      engine.instances.start("after", standardClass(engine)).catch(() => undefined),
    );
    const outcome = await survivor.minit.execSole(command(["echo", "still here"]));
    expect(outcome.stdout).toBe("still here\n");
    await outcome.idle;
    expect((await survivor.minit.execSole(command(["ls", "/"]))).stdout).toContain("usr\n");
    await Promise.all([engine.instances.remove(survivor), engine.instances.remove(next)]);
    expect(bundles()).toEqual([]);
  });
}

/** Waits for two counts of the containers that are there. */
export function slowInstancesContract({ engine, config }: BootedEngine): void {
  it("removes a container that nobody knows of, and no other one", async () => {
    const known = await engine.instances.start("known", standardClass(engine));
    const group = (id: string) => `hearth-${config.host_tag}/${id}`;
    const parents = readdirSync("/sys/fs/cgroup").map((name) => `/sys/fs/cgroup/${name}`);
    const root = parents.find((path) => existsSync(`${path}/${group("known")}/cgroup.procs`)) ?? "/sys/fs/cgroup";
    mkdirSync(`${root}/${group("stray")}`);
    const sleeper = spawn("sleep", ["1000"], { stdio: "ignore" });
    const ended = new Promise((resolve) => sleeper.once("exit", resolve));
    writeFileSync(`${root}/${group("stray")}/cgroup.procs`, String(sleeper.pid));
    await ended;
    await eventually("its group is gone", () => !existsSync(`${root}/${group("stray")}`));
    expect((await known.minit.execSole(command(["echo", "untouched"]))).stdout).toBe("untouched\n");
    await engine.instances.remove(known);
  });
}

function pidsOf(tag: string, id: string): number[] {
  const procs = existsSync("/sys/fs/cgroup/pids")
    ? `/sys/fs/cgroup/pids/hearth-${tag}/${id}`
    : `/sys/fs/cgroup/hearth-${tag}/${id}`;
  if (!existsSync(procs)) return [];
  return readFileSync(`${procs}/cgroup.procs`, "utf8").trim().split("\n").filter(Boolean).map(Number);
}

function isStarterOf(pid: number, id: string): boolean {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return words.includes("run") && words.includes(id);
  } catch {
    return false;
  }
}
