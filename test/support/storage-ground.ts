/**
 * A storage pool under test: a data directory, a launcher as the daemon starts it, the pool that it mounts. `Ground.on`
 * makes the data directory on a file system of the given kind, mounted for the test alone.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { systemClock } from "../../src/base/clock.ts";
import type { Log } from "../../src/base/log.ts";
import { LauncherClient, LauncherProcess } from "../../src/engine/launcher/launcher.ts";
import { StoragePool } from "../../src/engine/storage/storage-pool.ts";
import { engineHelper } from "./helper.ts";
import { eventually } from "./native.ts";

const COMMAND_TIMEOUT_MS = 50_000;
const MIB = 1024 * 1024;

/** What a file system below the data directory is made with. */
const HOSTS = {
  ext4: ["mkfs.ext4", "-q"],
  btrfs: ["mkfs.btrfs", "-q"],
} as const;

export class Ground {
  /** Holds the data directory and nothing else. */
  readonly root: string;
  readonly data_dir: string;
  readonly lines: string[] = [];
  launcher: LauncherProcess | null = null;
  pool: StoragePool | null = null;
  #client: LauncherClient | null = null;
  #disk: string | null = null;

  constructor(name = "d", root = mkdtempSync("/var/tmp/hearth-storage-")) {
    this.root = root;
    this.data_dir = `${root}/${name}`;
    mkdirSync(this.data_dir, { recursive: true });
  }

  /** On a new file system of `size_mb`, in a file of its own; on an overlay of two directories of this machine's. */
  static on(kind: keyof typeof HOSTS | "overlay", size_mb: number): Ground {
    const ground = new Ground();
    const disk = `${ground.root}/disk`;
    if (kind === "overlay") {
      for (const name of ["lower", "upper", "work"]) mkdirSync(`${disk}-${name}`);
      const options = `lowerdir=${disk}-lower,upperdir=${disk}-upper,workdir=${disk}-work`;
      execFileSync("mount", ["-t", "overlay", "-o", options, "overlay", ground.data_dir]);
    } else {
      execFileSync("truncate", ["-s", `${size_mb}M`, disk]);
      execFileSync("sh", ["-c", 'exec "$@" 2>&1', "sh", ...HOSTS[kind], disk]);
      execFileSync("mount", ["-o", "loop", disk, ground.data_dir]);
    }
    ground.#disk = disk;
    return ground;
  }

  get client(): LauncherClient {
    if (this.#client === null) throw new Error("there is no launcher");
    return this.#client;
  }

  get file(): string {
    return `${this.data_dir}/area.btrfs`;
  }

  async start(): Promise<void> {
    const socket = `${this.root}/launcher.sock`;
    const helper = `${this.root}/minit`;
    if (!existsSync(helper)) cpSync(engineHelper(), helper);
    this.launcher = await LauncherProcess.start(helper, socket, false, systemClock);
    this.#client = new LauncherClient(socket, systemClock);
  }

  async open(size_mb: number | null = 1_024): Promise<StoragePool> {
    if (this.launcher === null) await this.start();
    const note = (line: string) => this.lines.push(line);
    const log: Log = { debug: note, info: note, warn: note, error: note };
    const launcher = () => this.client;
    this.pool = await StoragePool.open({
      withLauncher: (work) => work(launcher()),
      data_dir: this.data_dir,
      size_mb,
      clock: systemClock,
      log,
    });
    return this.pool;
  }

  /** Ends the launcher by force, and with it its mounts. */
  async kill(): Promise<void> {
    if (this.launcher === null) return;
    process.kill(this.launcher.pid, "SIGKILL");
    await this.launcher.exited;
    this.#client?.close();
    this.launcher = null;
  }

  /** Runs a shell where the pool is mounted. Resolves to its output, followed by its exit code unless that is 0. */
  async sh(script: string): Promise<string> {
    const argv = ["bash", "-c", script];
    const { stdout, stderr, exit_code } = await this.client.spawn({ argv, timeout_ms: COMMAND_TIMEOUT_MS });
    return `${stdout}${stderr}${exit_code === 0 ? "" : `[${exit_code}]`}`.trim();
  }

  /** Writes so many megabytes, as far as that goes. Resolves to what was written, in megabytes, and to the complaint. */
  async fill(path: string, megabytes: number): Promise<{ written_mb: number; complaint: string }> {
    const said = await this.sh(`dd if=/dev/urandom of='${path}' bs=1M count=${megabytes} conv=fsync 2>&1`);
    const bytes = /(\d+) bytes/.exec(said)?.[1] ?? "0";
    return { written_mb: Number(bytes) / MIB, complaint: /dd: .*: (.*)/.exec(said)?.[1] ?? "" };
  }

  /** Loop devices that have the pool's file. */
  loops(): string[] {
    return readdirSync("/sys/block").filter((name) => {
      const path = `/sys/block/${name}/loop/backing_file`;
      try {
        return name.startsWith("loop") && readFileSync(path, "utf8").startsWith(this.file);
      } catch {
        return false;
      }
    });
  }

  /** Mounts below the root that this process sees. */
  mounts(): string[] {
    return readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .filter((line) => line.includes(this.root));
  }

  /** Takes all down and waits until nothing of it is left. */
  async stop(): Promise<void> {
    await this.pool?.close();
    this.pool = null;
    this.#client?.close();
    await this.launcher?.stop(systemClock);
    this.launcher = null;
    await eventually("the loop device to go", () => this.loops().length === 0);
    if (this.#disk !== null) execFileSync("umount", [this.data_dir]);
    await eventually("the mounts to go", () => this.mounts().length === 0);
    rmSync(this.root, { recursive: true });
  }

  /** Descriptors of the launcher. */
  descriptors(): number {
    return readdirSync(`/proc/${this.launcher?.pid}/fd`).length;
  }

  exists(path: string): boolean {
    return existsSync(`/proc/${this.launcher?.pid}/root${path}`);
  }
}
