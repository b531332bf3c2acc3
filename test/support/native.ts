/**
 * The native helper under test (helper.ts) in a directory of its own, its launcher started as the daemon starts it, and
 * `minit init` started through that launcher in a pid namespace. Init runs as an unprivileged uid with /tmp and /dev/shm
 * of its own, so that nothing a test does in there, wiping included, can reach this machine.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { FRAME, FrameReader, FrameWriter, strBytes, strsBytes } from "../../src/engine/minit/frames.ts";
import { compile, compileHelper } from "./helper.ts";
import { sendSignal } from "./signals.ts";

const DEADLINE_MS = 40_000;
/** Of the children of a process that starts others all the time. */
const READS_MAX = 100;
const INIT_UID = "65123";
/** Flags of a listening socket in /proc/net/unix. Before, it is bound and refuses connections. */
const LISTENS = " 00010000 ";

export const SOLE = 1;
export const STREAM = 2;
export const STDIN_OPEN = 4;
export const WIPE = 8;
export const ENVIRONMENT = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];

export interface Frame {
  readonly type: number;
  readonly id: number;
  readonly body: Buffer;
}

/** Polls until `check` gives something, with a deadline. */
export async function eventually<T>(
  what: string,
  check: () => T | null | undefined | false | Promise<T | null | undefined | false>,
): Promise<T> {
  const deadline = performance.now() + DEADLINE_MS;
  for (;;) {
    const found = await check();
    if (found !== null && found !== undefined && found !== false) return found;
    if (performance.now() > deadline) throw new Error(`not within ${DEADLINE_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A framed connection that keeps what came in until a test takes it. */
export class Wire {
  readonly socket: Socket;
  readonly frames: Frame[] = [];
  isClosed = false;
  #changed = Promise.withResolvers<void>();

  constructor(path: string) {
    this.socket = connect(path);
    const reader = new FrameReader((type, id, body) => this.frames.push({ type, id, body: Buffer.from(body) }));
    const change = () => {
      this.#changed.resolve();
      this.#changed = Promise.withResolvers<void>();
    };
    this.socket.on("data", (chunk) => {
      reader.push(chunk);
      change();
    });
    this.socket.on("error", () => {});
    this.socket.on("close", () => {
      this.isClosed = true;
      change();
    });
  }

  send(type: number, id: number, bytes = 0, fill: (frame: FrameWriter) => void = () => {}): void {
    const frame = new FrameWriter(type, id, bytes);
    fill(frame);
    this.socket.write(frame.buffer);
  }

  /** Takes the first frame of `type` and `id` out of what came in. */
  async next(type: number, id: number): Promise<Frame> {
    const what = `frame 0x${type.toString(16)} of ${id}`;
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Error(`not within ${DEADLINE_MS} ms: ${what}`)), DEADLINE_MS);
    try {
      for (;;) {
        const at = this.frames.findIndex((frame) => frame.type === type && frame.id === id);
        const [found] = at >= 0 ? this.frames.splice(at, 1) : [];
        if (found !== undefined) return found;
        if (this.isClosed) throw new Error(`closed before ${what}`);
        await Promise.race([this.#changed.promise, late.promise]);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  closed(): Promise<boolean> {
    return eventually("the connection to be closed", () => this.isClosed);
  }
}

export interface Exec {
  readonly argv: readonly string[];
  readonly flags?: number;
  readonly timeout_ms?: number;
  readonly stdout_max?: number;
  readonly stderr_max?: number;
  readonly cwd?: string;
  readonly env?: readonly string[];
  readonly stdin?: Uint8Array;
}

export interface Exit {
  readonly exit_code: number;
  readonly signal: number;
  readonly timed_out: boolean;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
  readonly spawn_failed: boolean;
  readonly strays: boolean;
  readonly cancelled: boolean;
  readonly errno: number;
  readonly duration_us: number;
  readonly cpu_us: number;
  readonly maxrss_kb: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** The largest output frame. */
  readonly frame_bytes_max: number;
}

/** A connection to a running init. */
export class InitWire extends Wire {
  #next_id = 1;

  /** Sends EXEC and gives its id. */
  start(exec: Exec): number {
    const id = this.#next_id++;
    const { cwd = "", env = ENVIRONMENT, stdin = new Uint8Array(0) } = exec;
    const bytes = 20 + strBytes(cwd) + strsBytes(exec.argv) + strsBytes(env) + stdin.length;
    this.send(FRAME.EXEC, id, bytes, (frame) => {
      frame.u32(exec.flags ?? 0).u32(exec.timeout_ms ?? 0);
      frame.u32(exec.stdout_max ?? 2 ** 26).u32(exec.stderr_max ?? 2 ** 26);
      frame.u16(exec.argv.length).u16(env.length).str(cwd);
      frame.strs(exec.argv).strs(env).raw(stdin);
    });
    return id;
  }

  /** Waits for EXIT, and for IDLE where it follows. */
  async end(id: number, flags = 0): Promise<Exit> {
    const { body } = await this.next(FRAME.EXIT, id);
    if (flags & SOLE) await this.next(FRAME.IDLE, id);
    const output = (type: number) => {
      const own = this.frames.filter((frame) => frame.id === id && frame.type === type);
      return own.map((frame) => frame.body);
    };
    const [stdout, stderr] = [output(FRAME.STDOUT), output(FRAME.STDERR)];
    const kept = this.frames.filter((frame) => frame.id !== id);
    this.frames.splice(0, this.frames.length, ...kept);
    const bits = body.readUInt32LE(8);
    return {
      exit_code: body.readUInt32LE(0),
      signal: body.readUInt32LE(4),
      timed_out: (bits & 1) !== 0,
      stdout_truncated: (bits & 2) !== 0,
      stderr_truncated: (bits & 4) !== 0,
      spawn_failed: (bits & 8) !== 0,
      strays: (bits & 16) !== 0,
      cancelled: (bits & 32) !== 0,
      errno: body.readUInt32LE(12),
      duration_us: Number(body.readBigUInt64LE(16)),
      cpu_us: Number(body.readBigUInt64LE(24)),
      maxrss_kb: Number(body.readBigUInt64LE(32)),
      stdout: Buffer.concat(stdout),
      stderr: Buffer.concat(stderr),
      frame_bytes_max: Math.max(0, ...[...stdout, ...stderr].map((bytes) => bytes.length)),
    };
  }

  exec(exec: Exec): Promise<Exit> {
    return this.end(this.start(exec), exec.flags);
  }

  sh(script: string, rest: Omit<Exec, "argv"> = {}): Promise<Exit> {
    return this.exec({ argv: ["sh", "-c", script], ...rest });
  }
}

export interface Spawn {
  readonly argv: readonly string[];
  readonly timeout_ms?: number;
  readonly cwd?: string;
  readonly env?: readonly string[];
  readonly listen?: readonly string[];
  readonly files?: readonly string[];
  readonly stdin?: Uint8Array;
}

/** Podman's, which are those of an API container. */
const CAPABILITIES =
  "chown dac_override fowner fsetid kill net_bind_service setfcap setgid setpcap setuid sys_chroot".split(" ");

/** What a running `minit container` is reached by. */
export interface Container {
  readonly path: string;
  readonly log_paths: readonly string[];
  readonly exit_path: string;
  /** Minit's pid outside. */
  readonly pid: number;
  /** The spawn's id: its answer comes when the container is gone. */
  readonly ended: number;
}

export interface ContainerOptions {
  readonly folder?: string;
  readonly env?: readonly string[];
  readonly cwd?: string;
  readonly flags?: readonly string[];
  readonly mounts?: readonly string[];
}

/** A running `minit launcher` and one connection to it. */
export class Native {
  readonly directory: string;
  readonly binary: string;
  readonly process: ChildProcess;
  readonly pid: number;
  readonly wire: Wire;
  #next_id = 1;
  #inits = 0;

  private constructor(directory: string, binary: string, process: ChildProcess, socket_path: string) {
    this.directory = directory;
    this.binary = binary;
    this.process = process;
    this.pid = process.pid ?? 0;
    this.wire = new Wire(socket_path);
  }

  /** Compiles the helper and starts its launcher. */
  static async start(): Promise<Native> {
    // Not below /tmp: init has another one.
    const directory = mkdtempSync("/var/tmp/hearth-native-");
    chmodSync(directory, 0o755);
    const binary = join(directory, "minit");
    compileHelper(binary);
    const socket_path = join(directory, "launcher.sock");
    const child = spawn(binary, ["launcher", socket_path], { stdio: ["pipe", "pipe", "inherit"] });
    const said: string[] = [];
    child.stdout?.on("data", (chunk) => said.push(String(chunk)));
    await eventually("the launcher to be ready", () => said.join("") === "ready\n");
    return new Native(directory, binary, child, socket_path);
  }

  /**
   * Compiles a small C program and gives its path. Inside of init there may be no program but those of the system: a
   * checkout below /tmp or /root, and the Node in it, are out of reach there.
   */
  compile(name: string, source: string): string {
    const path = join(this.directory, name);
    writeFileSync(`${path}.c`, source);
    compile(path, [`${path}.c`]);
    return path;
  }

  startSpawn(spawn: Spawn): number {
    const id = this.#next_id++;
    const { cwd = "", env = ENVIRONMENT, listen = [], files = [], stdin = new Uint8Array(0) } = spawn;
    const texts = [...spawn.argv, ...env, ...listen, ...files];
    const bytes = 12 + strBytes(cwd) + strsBytes(texts) + stdin.length;
    this.wire.send(FRAME.SPAWN, id, bytes, (frame) => {
      frame
        .u32(spawn.timeout_ms ?? 0)
        .u16(spawn.argv.length)
        .u16(env.length)
        .u16(listen.length)
        .u16(files.length)
        .str(cwd)
        .strs(texts)
        .raw(stdin);
    });
    return id;
  }

  async endSpawn(id: number) {
    const { body } = await this.wire.next(FRAME.SPAWNED, id);
    const bits = body.readUInt32LE(8);
    const stdout_end = 28 + body.readUInt32LE(24);
    return {
      exit_code: body.readUInt32LE(0),
      signal: body.readUInt32LE(4),
      timed_out: (bits & 1) !== 0,
      truncated: (bits & 2) !== 0,
      spawn_failed: (bits & 8) !== 0,
      errno: body.readUInt32LE(12),
      stdout: body.toString("utf8", 28, stdout_end),
      stderr: body.toString("utf8", stdout_end),
    };
  }

  spawn(spawn: Spawn) {
    return this.endSpawn(this.startSpawn(spawn));
  }

  /** Sends a request of the given body and gives the answer's body. */
  async ask(
    type: number,
    answer: number,
    bytes: number,
    fill: (frame: FrameWriter) => void = () => {},
  ): Promise<Buffer> {
    const id = this.#next_id++;
    this.wire.send(type, id, bytes, fill);
    return (await this.wire.next(answer, id)).body;
  }

  /** Starts `minit init` and waits for its READY. `ended` is the spawn's id: its answer comes when init is gone. */
  async init(): Promise<{ wire: InitWire; path: string; pid: number; nonce: string; ended: number }> {
    const path = join(this.directory, `init-${this.#inits++}.sock`);
    const mounts = "mount -t tmpfs -o mode=1777 none /tmp && mount -t tmpfs -o mode=1777 none /dev/shm";
    const drop = `setpriv --reuid ${INIT_UID} --regid ${INIT_UID} --clear-groups --no-new-privs --bounding-set=-all`;
    const script = `${mounts} && exec ${drop} --inh-caps=-all "$0" init`;
    const argv = ["unshare", "-pmf", "--mount-proc", "--kill-child", "sh", "-c", script, this.binary];
    const ended = this.startSpawn({ argv, listen: [path] });
    await eventually("the listening socket", () => {
      const gone = this.wire.frames.find((frame) => frame.id === ended);
      if (gone !== undefined) throw new Error(`init ended: ${gone.body.toString("utf8", 28)}`);
      const sockets = readFileSync("/proc/net/unix", "utf8").split("\n");
      return sockets.some((line) => line.endsWith(path) && line.includes(LISTENS));
    });
    const wire = new InitWire(path);
    const { body } = await wire.next(FRAME.READY, 0);
    const [pid = 0] = children(this.pid).flatMap(children).slice(-1);
    return { wire, path, pid, nonce: body.toString("hex", 4, 20), ended };
  }

  /**
   * Starts `minit container` as root of a pid namespace, with a container's capabilities, a terminal file system and
   * a /tmp of its own. `folder` keeps its log and record: give that of an earlier one to start it again. `flags` are minit's;
   * `mounts` are made before in its mount namespace.
   */
  async container(
    argv: readonly string[] | null,
    options: ContainerOptions = {},
  ): Promise<Container & { folder: string }> {
    const folder = options.folder ?? mkdtempSync(join(this.directory, "container-"));
    const path = join(folder, "socket");
    const log_paths = [0, 1, 2, 3].map((i) => join(folder, `log.${i}`));
    const exit_path = join(folder, "exit");
    const mounts = [
      "mount -t tmpfs -o mode=1777 none /tmp",
      "mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts",
      "mount --bind /dev/pts/ptmx /dev/ptmx",
      ...(options.mounts ?? []),
    ];
    const drop = `setpriv --bounding-set=-all,${CAPABILITIES.map((name) => `+${name}`).join(",")} --inh-caps=-all`;
    const script = `${mounts.join(" && ")} && exec ${drop} "$@"`;
    const init = [this.binary, "container", ...(options.flags ?? []), ...(argv === null ? [] : ["--", ...argv])];
    const others = new Set(children(this.pid));
    const ended = this.startSpawn({
      argv: ["unshare", "-pmf", "--mount-proc", "--kill-child", "sh", "-c", script, "sh", ...init],
      listen: [path],
      files: [...log_paths, exit_path],
      ...(options.env === undefined ? {} : { env: options.env }),
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });
    const pid = await eventually("minit to run or to have ended", () => {
      if (this.wire.frames.some((frame) => frame.id === ended)) return -1;
      const outer = children(this.pid).find((child) => !others.has(child)) ?? 0;
      const [inner = 0] = children(outer);
      return readText(`/proc/${inner}/comm`) === "minit\n" ? inner : null;
    });
    return { path, log_paths, exit_path, pid, ended, folder };
  }

  async stop(): Promise<void> {
    // An init that changed its uid no longer dies with the unshare that started it.
    const left = children(this.pid).flatMap((pid) => [...children(pid), pid]);
    this.process.stdin?.end();
    await eventually("the launcher to end", () => this.process.exitCode !== null);
    for (const pid of left) sendSignal(pid);
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/**
 * The direct children of a process, in the order in which they were started. The kernel's list may lack some if one that
 * it has listed ends meanwhile; the next list lacks that one, so two that are the same are whole.
 */
export function children(pid: number): number[] {
  const read = () => readText(`/proc/${pid}/task/${pid}/children`).trim();
  let text = read();
  for (let left = READS_MAX; left > 0; left--) {
    const again = read();
    if (again === text) break;
    text = again;
  }
  return text === "" ? [] : text.split(" ").map(Number);
}

/** Empty where there is no such file. */
export function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
