/**
 * The launcher: one small C process that starts everything the daemon starts, because a spawn from Node blocks for
 * milliseconds, and that holds the private mount namespace and the ready network namespaces. When the daemon is gone
 * its standard input ends and it exits, and the kernel takes the mounts and the idle namespaces back.
 *
 * `LauncherProcess` owns the process (the daemon has one), `LauncherClient` is a connection (the main thread and each
 * worker thread have one).
 */
import { type ChildProcess, spawn } from "node:child_process";
import { connect, type Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { FRAME, FrameReader, FrameWriter, strBytes, strsBytes } from "../minit/frames.ts";

/** Time that a reply may take beyond the time limit of the command itself. */
const REPLY_GRACE_MS = 5_000;
const READY_TIMEOUT_MS = 5_000;

export interface SpawnRequest {
  readonly argv: readonly string[];
  readonly timeout_ms: number;
  readonly environment?: readonly string[];
  readonly working_directory?: string;
  /** Paths at which listening unix sockets are made and passed as file descriptors 3, 4, … */
  readonly listen_paths?: readonly string[];
  /** Files passed as the descriptors after those, open for reading and writing, made (0600) where there are none. */
  readonly file_paths?: readonly string[];
}

export interface SpawnResult {
  readonly exit_code: number;
  readonly timed_out: boolean;
  readonly spawn_failed: boolean;
  readonly stdout: string;
  readonly stderr: string;
  readonly duration_ms: number;
}

/** A user namespace that the launcher holds. Its ids 0 to 65,535 are those from `first_id` on outside. */
export interface UserNamespace {
  readonly fd: number;
  readonly first_id: number;
}

export interface NetnsRequest {
  /** First id of the user namespace that owns the network; null for none. */
  readonly first_id: number | null;
  /** IPv4 addresses as numbers. */
  readonly address: number;
  readonly gateway: number;
  readonly host_interface: string;
  /** Group of the host's end of the link (`ip link show group`). */
  readonly group: number;
}

/** Addresses by their bits: bit n of `bits` is `first` + n, the lowest bit of a byte first. */
export interface AddressSet {
  readonly first: number;
  readonly bits: Uint8Array;
}

/** The launcher's descriptors. */
export interface Netns {
  readonly fd: number;
  readonly user: UserNamespace | null;
}

/** A request about the storage pool or a mount. runtimes/minit/protocol.h describes the fields of each type. */
export interface StorageRequest {
  readonly type: number;
  readonly texts: readonly string[];
  readonly bytes?: number;
  /** Number of the tenant's quota group, below 2^48; 0: none. */
  readonly owner?: number;
  readonly flags?: number;
  readonly user?: UserNamespace;
}

export interface StorageAnswer {
  /** 0: done. Otherwise `text` says what went wrong. */
  readonly errno: number;
  readonly values: readonly number[];
  readonly text: string;
}

export interface OverlayRequest {
  /** The image's root. With a user namespace instead its layers, the topmost first: of an overlay no ids can be mapped. */
  readonly lower: string | readonly string[];
  /** Subvolume of the storage pool with `upper` and `work`, which are created if missing. */
  readonly directory: string;
  /** Mount point of the merged tree, in the launcher's mount namespace alone. Created if missing, without parents. */
  readonly target: string;
  readonly isReadonly: boolean;
  /** User namespace as which the tree shows its ids. Written files keep the ids that they have inside. */
  readonly user?: UserNamespace;
}

/** Files of an instance, mounted in it from outside. */
export interface AttachRequest {
  /** The file that lists the processes of the instance's control group. */
  readonly procs: string;
  /** Name of a subvolume of the kind `code`; null: none. */
  readonly code: string | null;
  /** Owner of the secrets. */
  readonly uid: number;
  readonly secrets: ReadonlyMap<string, Uint8Array>;
}

/** In place of a descriptor. */
const NO_FD = 0xffffffff;
/** Descriptors of a link whose namespace this process does not hold. */
export const NO_NETNS: Netns = { fd: NO_FD, user: null };
const STORAGE_READONLY = 1;
const STORAGE_VALUES = 6;
const ENOENT = 2;
const ENOSPC = 28;
const EDQUOT = 122;

/** The environment of a command that is given no other. */
export const ENVIRONMENT = [
  "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  "LC_ALL=C.UTF-8",
  "HOME=/root",
];

/** A running launcher, and the connection of the main thread to it. */
export interface LauncherHandle {
  readonly client: LauncherClient;
  readonly pid: number;
}

interface Pending {
  resolve(body: Buffer): void;
  reject(error: Error): void;
  cancel(): void;
}

export class LauncherClient {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #pending = new Map<number, Pending>();
  #next_id = 1;
  #onClosed: () => void = () => {};

  /** Connects to the launcher's socket at `path`. Calls made before the connection stands wait for it. */
  constructor(path: string, clock: Clock) {
    this.#clock = clock;
    this.#socket = connect(path);
    const reader = new FrameReader((_type, id, body) => this.#answer(id, body));
    this.#socket.on("data", (chunk) => reader.push(chunk));
    let failure: Error | null = null;
    this.#socket.on("error", (error) => {
      failure = error;
    });
    this.#socket.on("close", () => {
      const reason = failure === null ? "it exited" : errorText(failure);
      for (const pending of this.#pending.values()) {
        pending.cancel();
        pending.reject(new AppError("INTERNAL", `lost the launcher: ${reason}`));
      }
      this.#pending.clear();
      this.#onClosed();
    });
  }

  /** One listener, called when the connection has ended: the launcher answers nothing more. */
  onClosed(listener: () => void): void {
    this.#onClosed = listener;
  }

  /** True if calls can still be answered. */
  get isOpen(): boolean {
    return !this.#socket.destroyed;
  }

  /** Runs a command to its end. Resolves whatever its exit code; rejects only when the launcher is lost. */
  async spawn(request: SpawnRequest): Promise<SpawnResult> {
    const listen = request.listen_paths ?? [];
    const files = request.file_paths ?? [];
    const environment = request.environment ?? ENVIRONMENT;
    const cwd = request.working_directory ?? "/";
    const texts = [...request.argv, ...environment, ...listen, ...files];
    const bytes = 12 + strBytes(cwd) + strsBytes(texts);
    const answer = await this.#call(FRAME.SPAWN, bytes, request.timeout_ms + REPLY_GRACE_MS, (frame) => {
      frame.u32(request.timeout_ms).u16(request.argv.length).u16(environment.length);
      frame.u16(listen.length).u16(files.length).str(cwd).strs(texts);
    });
    const flags = answer.readUInt32LE(8);
    const stdout_end = 28 + answer.readUInt32LE(24);
    return {
      exit_code: answer.readUInt32LE(0),
      timed_out: (flags & 1) !== 0,
      spawn_failed: (flags & 8) !== 0,
      stdout: answer.toString("utf8", 28, stdout_end),
      stderr: answer.toString("utf8", stdout_end),
      duration_ms: Number(answer.readBigUInt64LE(16)) / 1000,
    };
  }

  /** Like `spawn`, and throws INTERNAL with the command's last words unless it exits with 0. Resolves to its output. */
  async run(argv: readonly string[], timeout_ms: number): Promise<string> {
    const result = await this.spawn({ argv, timeout_ms });
    if (result.exit_code === 0 && !result.timed_out && !result.spawn_failed) return result.stdout;
    const why = result.timed_out ? `did not end within ${timeout_ms} ms` : `exited with ${result.exit_code}`;
    throw new AppError("INTERNAL", `${argv.join(" ")} ${why}: ${result.stderr.trim().slice(-2_000)}`);
  }

  /** Makes a network namespace with an `eth0`, and the route to it. */
  async addNetns(request: NetnsRequest): Promise<Netns> {
    const { first_id } = request;
    const bytes = 16 + strBytes(request.host_interface);
    const answer = await this.#call(FRAME.NETNS_ADD, bytes, REPLY_GRACE_MS, (frame) => {
      frame
        .u32(first_id ?? 0)
        .u32(request.address)
        .u32(request.gateway)
        .u32(request.group);
      frame.str(request.host_interface);
    });
    checkNetns(answer, request.host_interface);
    const user = first_id === null ? null : { fd: answer.readUInt32LE(8), first_id };
    return { fd: answer.readUInt32LE(4), user };
  }

  /**
   * Moves links into a group and closes descriptors. A link that is gone is no error. The descriptors are closed even if
   * the call rejects: no other call may name them.
   */
  async cutNetns(host_interfaces: readonly string[], group: number, closed: readonly Netns[]): Promise<void> {
    const fds = closed.flatMap(({ fd, user }) => [fd, user?.fd ?? NO_FD]).filter((fd) => fd !== NO_FD);
    await this.#endNetns(FRAME.NETNS_CUT, host_interfaces, group, fds, { first: 0, bits: new Uint8Array() });
  }

  /** Moves links into a group, then deletes the tracked connections of `addresses` and all links of the group. */
  async removeNetns(host_interfaces: readonly string[], group: number, addresses: AddressSet): Promise<void> {
    await this.#endNetns(FRAME.NETNS_REMOVE, host_interfaces, group, [], addresses);
  }

  /** Rejects when the launcher is lost or does not answer in time. */
  async ping(): Promise<void> {
    await this.#call(FRAME.LAUNCHER_PING, 0, REPLY_GRACE_MS, () => {});
  }

  /** File mode of `path` below `root`, resolved as inside of it (no link leads out). Null when there is no such file. */
  async statInRoot(root: string, path: string): Promise<number | null> {
    const answer = await this.#call(FRAME.STAT_IN_ROOT, strBytes(root) + strBytes(path), REPLY_GRACE_MS, (frame) =>
      frame.str(root).str(path),
    );
    return answer.readUInt32LE(0) === 0 ? answer.readUInt32LE(4) : null;
  }

  /** Like `statInRoot`, but of a link at the end of the path it gives the mode of the link itself. */
  async lstatInRoot(root: string, path: string): Promise<number | null> {
    const answer = await this.#call(FRAME.LSTAT_IN_ROOT, strBytes(root) + strBytes(path), REPLY_GRACE_MS, (frame) =>
      frame.str(root).str(path),
    );
    return answer.readUInt32LE(0) === 0 ? answer.readUInt32LE(4) : null;
  }

  /** Rejects only when the launcher is lost or does not answer in time; then the request may still be carried out. */
  async storage({ type, texts, bytes = 0, owner = 0, flags = 0, user }: StorageRequest): Promise<StorageAnswer> {
    const answer = await this.#call(type, 28 + strsBytes(texts), LIMITS.storage_timeout_ms, (frame) => {
      frame
        .u64(bytes)
        .u64(owner)
        .u32(flags)
        .u32(user?.fd ?? NO_FD)
        .u32(user?.first_id ?? 0)
        .strs(texts);
    });
    const values = Array.from({ length: STORAGE_VALUES }, (_, i) => Number(answer.readBigUInt64LE(4 + 8 * i)));
    return { errno: answer.readUInt32LE(0), values, text: strAt(answer, 4 + 8 * STORAGE_VALUES) };
  }

  /**
   * Mounts the root of a container, after unmounting the target. Only while nothing of the container runs:
   * two mounts with one `upper` spoil it. Rejects with CAPACITY_FULL, or INTERNAL with the step that failed.
   */
  async mountOverlay({ lower, directory, target, isReadonly, user }: OverlayRequest): Promise<void> {
    const flags = isReadonly ? STORAGE_READONLY : 0;
    const below = typeof lower === "string" ? lower : lower.map((layer) => `${layer}\n`).join("");
    const texts = [below, directory, target];
    const answer = await this.storage({ type: FRAME.OVERLAY_MOUNT, texts, flags, ...(user && { user }) });
    if (answer.errno !== 0) throw storageError(`root ${target}`, answer);
  }

  /** Unmounts from the launcher's namespace; a container that holds the mount keeps it. Also where nothing is mounted. */
  async unmount(target: string): Promise<void> {
    const answer = await this.storage({ type: FRAME.UNMOUNT, texts: [target] });
    if (answer.errno !== 0) throw storageError(`mount ${target}`, answer);
  }

  /** Mounts code and secrets in a running instance. After a rejection (INTERNAL) the instance may have one of both. */
  async attach({ procs, code, uid, secrets }: AttachRequest): Promise<void> {
    const name = code === null ? "" : `code/${code}`;
    let bytes = 8 + strBytes(procs) + strBytes(name);
    for (const [secret, content] of secrets) bytes += strBytes(secret) + 4 + content.length;
    const answer = await this.#call(FRAME.ATTACH, bytes, REPLY_GRACE_MS, (frame) => {
      frame.u32(uid).u32(secrets.size).str(procs).str(name);
      for (const [secret, content] of secrets) frame.str(secret).u32(content.length).raw(content);
    });
    if (answer.readUInt32LE(0) !== 0) throw new AppError("INTERNAL", strAt(answer, 4));
  }

  close(): void {
    this.#socket.destroy();
  }

  /** Lets the event loop end although this connection is open (worker threads). */
  unref(): void {
    this.#socket.unref();
  }

  async #endNetns(
    type: number,
    host_interfaces: readonly string[],
    group: number,
    fds: readonly number[],
    { first, bits }: AddressSet,
  ): Promise<void> {
    const names = host_interfaces.map((name) => `${name}\n`).join("");
    const bytes = 16 + 4 * fds.length + bits.length + strBytes(names);
    const answer = await this.#call(type, bytes, LIMITS.network_removal_timeout_ms, (frame) => {
      frame.u32(group).u32(fds.length).u32(first).u32(bits.length);
      for (const fd of fds) frame.u32(fd);
      frame.raw(bits).str(names);
    });
    checkNetns(answer, host_interfaces.join(" "));
  }

  #call(type: number, bytes: number, deadline_ms: number, fill: (frame: FrameWriter) => void): Promise<Buffer> {
    if (!this.isOpen) return Promise.reject(new AppError("INTERNAL", "the launcher has ended"));
    const id = this.#next_id++ >>> 0;
    const frame = new FrameWriter(type, id, bytes);
    fill(frame);
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.after(deadline_ms, () => {
        this.#pending.delete(id);
        reject(new AppError("INTERNAL", `the launcher did not respond within ${deadline_ms} ms`));
      });
      this.#pending.set(id, { resolve, reject, cancel });
      this.#socket.write(frame.buffer);
    });
  }

  #answer(id: number, body: Buffer): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    pending.cancel();
    pending.resolve(body);
  }
}

function checkNetns(answer: Buffer, what: string): void {
  if (answer.readUInt32LE(0) === 0) return;
  throw new AppError("INTERNAL", `network namespace ${what.slice(0, 200)}: ${strAt(answer, 12)}`);
}

function strAt(buffer: Buffer, at: number): string {
  const bytes = buffer.readUInt32LE(at);
  return buffer.toString("utf8", at + 4, at + 4 + bytes - 1);
}

/** Returns the error of a refused request: CAPACITY_FULL, NOT_FOUND, or INTERNAL with the launcher's text. */
export function storageError(what: string, { errno, text }: StorageAnswer): AppError {
  if (errno === ENOSPC || errno === EDQUOT) return new AppError("CAPACITY_FULL", `${what}: no space on the disk`);
  return new AppError(errno === ENOENT ? "NOT_FOUND" : "INTERNAL", `${what}: ${text}`);
}

export class LauncherProcess {
  readonly pid: number;
  readonly socket_path: string;
  readonly #child: ChildProcess;
  /** Resolves when the process has ended. */
  readonly exited: Promise<void>;

  private constructor(child: ChildProcess, pid: number, socket_path: string) {
    this.#child = child;
    this.pid = pid;
    this.socket_path = socket_path;
    this.exited = new Promise((resolve) => {
      child.once("exit", () => resolve());
    });
  }

  /**
   * Starts `minit launcher` and waits until it listens. `private_tmp` gives it and all it starts a /tmp of their own:
   * not where anything that containers are made from lies below /tmp. Rejects with INTERNAL and what it printed.
   */
  static async start(
    binary: string,
    socket_path: string,
    private_tmp: boolean,
    clock: Clock,
  ): Promise<LauncherProcess> {
    const child = spawn(binary, ["launcher", socket_path, ...(private_tmp ? ["private-tmp"] : [])], {
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
    });
    child.stdin?.on("error", () => {});
    let complaint = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      complaint = (complaint + chunk.toString()).slice(-2_000);
    });
    const ready = Promise.withResolvers<void>();
    child.stdout?.once("data", () => ready.resolve());
    child.once("error", ready.reject);
    child.once("exit", (code) => ready.reject(new AppError("INTERNAL", `it exited with ${code}: ${complaint.trim()}`)));
    const cancel = clock.after(READY_TIMEOUT_MS, () =>
      ready.reject(new AppError("INTERNAL", `not ready within ${READY_TIMEOUT_MS} ms`)),
    );
    try {
      await ready.promise;
    } catch (cause) {
      child.kill("SIGKILL");
      throw new AppError("INTERNAL", `cannot start the launcher: ${errorText(cause)}`, { cause });
    } finally {
      cancel();
    }
    return new LauncherProcess(child, child.pid ?? 0, socket_path);
  }

  /** Kills the launcher. */
  kill(): void {
    this.#child.kill("SIGKILL");
  }

  /** Ends the launcher by closing its standard input, by force after two seconds. */
  async stop(clock: Clock): Promise<void> {
    this.#child.stdin?.end();
    const cancel = clock.after(2_000, () => this.#child.kill("SIGKILL"));
    await this.exited;
    cancel();
  }
}
