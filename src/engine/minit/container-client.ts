/**
 * Clients of the minit of an API container: one connection per command, one per other request. minit and log.ts handle
 * the main command, its log and its end: they need no daemon.
 *
 * Frames from minit are untrusted: lengths are bounded by the reader, gathered output by its cap, an answer to nothing
 * is dropped, and one out of order ends the connection.
 *
 * Invariants:
 * X1 `started` and `exited` of a command settle exactly once: with minit's word, or with an error when it refuses or
 *    the connection ends. That error is INTERNAL, START_FAILED where minit never greeted, CAPACITY_FULL where the
 *    container has as many commands as it may, NOT_RUNNING where the container is ending.
 * X2 A command ends with its connection (SIGTERM, its grace, SIGKILL of the whole tree; a terminal hangs up), unless
 *    it is detached.
 * X3 Nothing is buffered here: a reader that pauses stops the command's output, and no other command.
 * X4 A container outlives the daemon and may have an earlier minit: what that does not know is not sent to it, and is
 *    WRONG_STATE.
 */
import { connect, type Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { AppError, type ErrorCode, errorText } from "../../base/errors.ts";
import { GatheredOutput } from "../../base/gathered-output.ts";
import { LIMITS } from "../../base/limits.ts";
import type {
  AttachRequest,
  Exec,
  ExecListener,
  ExitAnswer,
  Gathering,
  RunRequest,
  TerminalSize,
} from "../ports/commands.ts";
import type { ContainerControl } from "../ports/containers.ts";
import { type Greeting, readExit, readGreeting, readRefusal } from "./answers.ts";
import { bareFrame, FRAME, FRAME_HEAD_BYTES, FrameReader, FrameWriter, strBytes, strsBytes } from "./frames.ts";

const FLAG_STREAM = 2;
const FLAG_STDIN_OPEN = 4;
const FLAG_TTY = 16;
const FLAG_DETACHED = 32;
const FLAG_USER = 64;
/** Of MAIN_ATTACH. */
const FLAG_STDIN = 1;
const UNLIMITED = 0xffff_ffff;
/** The only command of its connection. */
const EXEC_ID = 1;
const ID = 1;
/** To the main command. */
const MAIN_ID = 0;
const SIGKILL = 9;
const ENOENT = 2;
const EBUSY = 16;
const ETIMEDOUT = 110;
const ESHUTDOWN = 108;

/** Codes of what minit refuses by errno; INTERNAL otherwise. */
type Refusals = Readonly<Record<number, ErrorCode>>;
const RUN_REFUSALS: Refusals = { [EBUSY]: "CAPACITY_FULL", [ESHUTDOWN]: "NOT_RUNNING" };
const ATTACH_REFUSALS: Refusals = { [EBUSY]: "IN_USE", [ENOENT]: "WRONG_STATE", [ETIMEDOUT]: "REQUEST_TIMEOUT" };

/** A request that begins a stream of a command. */
interface Opening {
  readonly frame: Buffer;
  readonly refusals: Refusals;
  /** What minit's greeting must say first (X4); null: every minit knows the request. Nothing else is sent before. */
  readonly needs: "knowsAttach" | "knowsUser" | null;
}

const isOutput = (type: number): boolean => type === FRAME.STDOUT || type === FRAME.STDERR;

/** A connection until it ends: frames in, and one word about how it ended. */
class Connection {
  readonly socket: Socket;
  /** Resolves with minit's READY. Rejects with START_FAILED. */
  readonly greeting: Promise<Greeting>;

  constructor(
    path: string,
    clock: Clock,
    timeout_ms: number,
    onFrame: (type: number, id: number, body: Buffer) => void,
    onClosed: (error: AppError) => void,
  ) {
    const greeting = Promise.withResolvers<Greeting>();
    this.greeting = greeting.promise;
    this.greeting.catch(() => {});
    const socket = connect(path);
    this.socket = socket;
    const cancel = clock.after(timeout_ms, () => {
      socket.destroy(new AppError("START_FAILED", `minit did not respond within ${timeout_ms} ms`));
    });
    let isGreeted = false;
    const reader = new FrameReader((type, id, body) => {
      if (type !== FRAME.READY) {
        onFrame(type, id, body);
        return;
      }
      greeting.resolve(readGreeting(body));
      isGreeted = true;
      cancel();
    }, isOutput);
    let failure = "it closed the connection";
    socket.on("data", (chunk) => {
      try {
        reader.push(chunk);
      } catch (cause) {
        socket.destroy(new AppError("INTERNAL", `minit violated the protocol: ${errorText(cause)}`));
      }
    });
    socket.on("error", (error) => {
      failure = errorText(error);
    });
    socket.on("close", () => {
      cancel();
      const error = isGreeted
        ? new AppError("INTERNAL", `lost the connection to minit: ${failure}`)
        : new AppError("START_FAILED", `cannot connect to minit: ${failure}`);
      greeting.reject(error);
      onClosed(error);
    });
  }
}

class ExecConnection implements Exec {
  readonly started: Promise<{ readonly pid: number }>;
  readonly exited: Promise<ExitAnswer>;
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #listener: ExecListener;
  readonly #refusals: Refusals;
  readonly #started = Promise.withResolvers<{ readonly pid: number }>();
  readonly #exited = Promise.withResolvers<ExitAnswer>();
  #cancelKill: () => void = () => {};

  constructor(path: string, { frame, refusals, needs }: Opening, listener: ExecListener, clock: Clock) {
    this.#listener = listener;
    this.#refusals = refusals;
    this.#clock = clock;
    this.started = this.#started.promise;
    this.exited = this.#exited.promise;
    // A caller that awaits only one of them must not get an unhandled rejection of the other.
    this.started.catch(() => {});
    this.exited.catch(() => {});
    this.#connection = new Connection(
      path,
      clock,
      LIMITS.minit_answer_ms,
      (type, id, body) => this.#frame(type, id, body),
      (error) => this.#end(error),
    );
    this.#connection.socket.on("drain", () => listener.onDrain?.());
    if (needs === null) this.#connection.socket.write(frame);
    else void this.#connection.greeting.then((greeting) => this.#begin(greeting[needs], frame)).catch(() => {});
  }

  /** X4. */
  #begin(isKnown: boolean, frame: Buffer): void {
    if (isKnown) {
      this.#send(frame);
      return;
    }
    this.#end(
      new AppError("WRONG_STATE", "the container was started by an earlier version of the daemon", {
        hint: "stop and start the container first",
      }),
    );
    this.close();
  }

  write(bytes: Uint8Array): boolean {
    const { socket } = this.#connection;
    if (!socket.writable) return true;
    socket.cork();
    let isTaken = true;
    for (let at = 0; at < bytes.length; at += LIMITS.stdin_frame_bytes_max) {
      const piece = bytes.subarray(at, at + LIMITS.stdin_frame_bytes_max);
      const head = Buffer.allocUnsafe(FRAME_HEAD_BYTES);
      head.writeUInt32LE(FRAME_HEAD_BYTES - 4 + piece.length, 0);
      head[4] = FRAME.STDIN;
      head.writeUInt32LE(EXEC_ID, 5);
      socket.write(head);
      isTaken = socket.write(piece);
    }
    socket.uncork();
    return isTaken;
  }

  endStdin(): void {
    this.#send(bareFrame(FRAME.STDIN_CLOSE, EXEC_ID));
  }

  resize({ cols, rows }: TerminalSize): void {
    this.#send(new FrameWriter(FRAME.RESIZE, EXEC_ID, 4).u16(cols).u16(rows).buffer);
  }

  signal(signal: number): void {
    this.#send(new FrameWriter(FRAME.KILL, EXEC_ID, 4).u32(signal).buffer);
  }

  kill(): void {
    this.signal(SIGKILL);
    this.#cancelKill();
    this.#cancelKill = this.#clock.after(LIMITS.exec_kill_ms, () => this.close());
  }

  pause(): void {
    this.#connection.socket.pause();
  }

  resume(): void {
    this.#connection.socket.resume();
  }

  close(): void {
    this.#connection.socket.destroy();
  }

  #send(frame: Buffer): void {
    if (this.#connection.socket.writable) this.#connection.socket.write(frame);
  }

  #end(error: AppError): void {
    this.#cancelKill();
    this.#started.reject(error);
    this.#exited.reject(error);
  }

  #frame(type: number, id: number, body: Buffer): void {
    if (id !== EXEC_ID) return;
    if (isOutput(type)) {
      if (this.#listener.onOutput(type === FRAME.STDOUT ? "stdout" : "stderr", body) === false) this.pause();
    } else if (type === FRAME.STARTED) {
      const pid = body.readUInt32LE(0);
      this.#listener.onStarted?.(pid);
      this.#started.resolve({ pid });
    } else if (type === FRAME.EXIT) {
      const exit = readExit(body);
      // A command that could not be started has this frame alone.
      this.#started.reject(new AppError("INTERNAL", "the command was not started"));
      this.#exited.resolve(exit);
      this.close();
    } else if (type === FRAME.ERROR) {
      const errno = body.readUInt32LE(0);
      const text = readRefusal(body);
      const message = errno === ETIMEDOUT ? text : `minit refused the command: ${text}`;
      this.#end(new AppError(this.#refusals[errno] ?? "INTERNAL", message));
      this.close();
    }
  }
}

function runFrame(request: RunRequest): Buffer {
  const { argv, environment, working_directory, terminal, user = null } = request;
  const stdin = request.stdin ?? Buffer.alloc(0);
  const output_bytes_max = request.output_bytes_max ?? UNLIMITED;
  const flags =
    (request.is_stream ? FLAG_STREAM : 0) |
    (request.has_more_stdin === true ? FLAG_STDIN_OPEN : 0) |
    (terminal === undefined ? 0 : FLAG_TTY) |
    (request.is_detached === true ? FLAG_DETACHED : 0) |
    (user === null ? 0 : FLAG_USER);
  const frame = new FrameWriter(
    FRAME.RUN,
    EXEC_ID,
    28 +
      (user === null ? 0 : strBytes(user)) +
      strBytes(working_directory) +
      strsBytes(argv) +
      strsBytes(environment) +
      stdin.length,
  );
  frame.u32(flags).u32(request.timeout_ms).u32(output_bytes_max).u32(output_bytes_max);
  frame.u16(argv.length).u16(environment.length);
  frame
    .u32(request.grace_ms)
    .u16(terminal?.cols ?? 0)
    .u16(terminal?.rows ?? 0);
  if (user !== null) frame.str(user);
  return frame.str(working_directory).strs(argv).strs(environment).raw(stdin).buffer;
}

/** Starts a command in the container whose minit listens at `path`. */
export function openExec(path: string, request: RunRequest, listener: ExecListener, clock: Clock): Exec {
  const needs = (request.user ?? null) === null ? null : "knowsUser";
  return new ExecConnection(path, { frame: runFrame(request), refusals: RUN_REFUSALS, needs }, listener, clock);
}

/**
 * Attaches to the main command of a container. `exited` is the container's end. Write no input before `started`. Rejects
 * with IN_USE while another client is attached, WRONG_STATE where there is no main command, REQUEST_TIMEOUT where the client took
 * nothing for `attach_stall_ms` and is no longer attached.
 */
export function openAttach(path: string, { has_stdin }: AttachRequest, listener: ExecListener, clock: Clock): Exec {
  const frame = new FrameWriter(FRAME.MAIN_ATTACH, EXEC_ID, 4).u32(has_stdin ? FLAG_STDIN : 0).buffer;
  return new ExecConnection(path, { frame, refusals: ATTACH_REFUSALS, needs: "knowsAttach" }, listener, clock);
}

/** Runs a command to its end and keeps its output, of each stream at most the request's cap. */
export function runExec(
  path: string,
  request: RunRequest & { readonly output_bytes_max: number },
  clock: Clock,
): Gathering {
  const stdout = new GatheredOutput(request.output_bytes_max);
  const stderr = new GatheredOutput(request.output_bytes_max);
  const listener: ExecListener = {
    onOutput(stream, chunk) {
      (stream === "stdout" ? stdout : stderr).add(chunk);
      return true;
    },
  };
  const exec = openExec(path, request, listener, clock);
  const latest_ms = request.timeout_ms + request.grace_ms + LIMITS.minit_answer_ms;
  const cancel = request.timeout_ms === 0 ? () => {} : clock.after(latest_ms, () => exec.close());
  const exited = exec.exited
    .then((exit) => ({ ...exit, stdout: stdout.bytes(), stderr: stderr.bytes() }))
    .finally(cancel);
  return { started: exec.started, exited, close: () => exec.close() };
}

type Answer = Pick<PromiseWithResolvers<void>, "resolve" | "reject">;

/**
 * A connection that is kept for as long as the container lives: its end is the container's, and over it the first
 * process is asked whether it answers.
 */
export class ControlConnection implements ContainerControl {
  readonly nonce: string;
  readonly #connection: Connection;
  readonly #pongs: Map<number, Answer>;
  readonly #closed: Promise<void>;
  #next_id = 1;

  private constructor(nonce: string, connection: Connection, pongs: Map<number, Answer>, closed: Promise<void>) {
    this.nonce = nonce;
    this.#connection = connection;
    this.#pongs = pongs;
    this.#closed = closed;
  }

  /** Resolves when the container's minit answers. Rejects with START_FAILED when it does not within `timeout_ms`. */
  static async connect(path: string, timeout_ms: number, clock: Clock): Promise<ControlConnection> {
    const pongs = new Map<number, Answer>();
    const closed = Promise.withResolvers<void>();
    const connection = new Connection(
      path,
      clock,
      timeout_ms,
      (type, id) => {
        if (type !== FRAME.PONG) return;
        pongs.get(id)?.resolve();
        pongs.delete(id);
      },
      (error) => {
        for (const { reject } of pongs.values()) reject(error);
        pongs.clear();
        closed.resolve();
      },
    );
    try {
      const { nonce } = await connection.greeting;
      return new ControlConnection(nonce, connection, pongs, closed.promise);
    } catch (error) {
      connection.socket.destroy();
      throw error;
    }
  }

  get isOpen(): boolean {
    return !this.#connection.socket.destroyed;
  }

  /** Calls `listener` once when the connection has ended, however it ended. */
  onClosed(listener: () => void): void {
    void this.#closed.then(listener);
  }

  async ping(timeout_ms: number, clock: Clock): Promise<void> {
    if (!this.isOpen) throw new AppError("INTERNAL", "lost the connection to minit");
    const id = this.#next_id++ >>> 0;
    const answer = Promise.withResolvers<void>();
    const cancel = clock.after(timeout_ms, () => {
      this.#pongs.delete(id);
      answer.reject(new AppError("NOT_RESPONDING", `minit did not respond within ${timeout_ms} ms`));
    });
    this.#pongs.set(id, answer);
    this.#connection.socket.write(bareFrame(FRAME.PING, id));
    await answer.promise.finally(cancel);
  }

  close(): void {
    this.#connection.socket.destroy();
  }
}

/** Sends one frame and gives the errno that SIGNALLED answers. */
async function ask(path: string, frame: Buffer, clock: Clock): Promise<number> {
  const answer = Promise.withResolvers<number>();
  const connection = new Connection(
    path,
    clock,
    LIMITS.minit_answer_ms,
    (type, _id, body) => {
      if (type === FRAME.SIGNALLED) answer.resolve(body.readUInt32LE(0));
    },
    answer.reject,
  );
  const cancel = clock.after(LIMITS.minit_answer_ms, () => connection.socket.destroy());
  connection.socket.write(frame);
  try {
    return await answer.promise;
  } finally {
    cancel();
    connection.socket.destroy();
  }
}

/** Signals a process of the container by its pid there. Gives 0 or the errno; EPERM for what belongs to minit. */
export function signalPid(path: string, pid: number, signal: number, clock: Clock): Promise<number> {
  return ask(path, new FrameWriter(FRAME.SIGNAL_PID, ID, 8).u32(pid >>> 0).u32(signal).buffer, clock);
}

/**
 * Signals the main command's process. Without one TERM, INT and QUIT end the container with 0, KILL with 137. Gives 0
 * or the errno; ESRCH where there is nothing to signal.
 */
export function stopMain(path: string, signal: number, clock: Clock): Promise<number> {
  return ask(path, new FrameWriter(FRAME.KILL, MAIN_ID, 4).u32(signal).buffer, clock);
}

/** Kills everything in the container. Resolves when its minit is gone, its exit record written. */
export async function shutdown(path: string, timeout_ms: number, clock: Clock): Promise<void> {
  const closed = Promise.withResolvers<void>();
  const connection = new Connection(
    path,
    clock,
    timeout_ms,
    () => {},
    () => closed.resolve(),
  );
  let isLate = false;
  const cancel = clock.after(timeout_ms, () => {
    isLate = true;
    connection.socket.destroy();
  });
  connection.socket.write(bareFrame(FRAME.SHUTDOWN, ID));
  await closed.promise;
  cancel();
  await connection.greeting;
  if (isLate) throw new AppError("INTERNAL", `the container did not exit within ${timeout_ms} ms`);
}
