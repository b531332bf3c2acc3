/**
 * Commands whose streams are on a WebSocket of a client: the main command of a container, and commands that a client asks
 * for on its socket. Binary messages carry bytes behind one byte that names the stream (0 standard input, 1 standard
 * output, 2 standard error); text messages are frames in JSON.
 *
 * K1 Bytes pass as they are, each stream in its order, and nothing gathers here: a client that takes no output holds back the
 *    command, a command that takes no input holds back the client.
 * K2 `started` comes before all output. The last frame is `exit` or `error`; the socket is then closed with 1000.
 * K3 The end of the socket ends a command that was asked for on it. A main command goes on: its output is then in its log
 *    alone, and its input has ended.
 */
import type { Clock } from "../../base/clock.ts";
import { AppError, publicText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { CLOSE, type ServerSocket, type SocketListener, Upgrade } from "../../base/sockets.ts";
import type { TenantShares } from "../../base/tenant-shares.ts";
import type { Engine, Exec, ExecListener } from "../../engine/ports.ts";
import type { Containers } from "../service.ts";
import { type Execs, notResponding, running, unanswered } from "./exec.ts";
import { Complaint } from "./frames.ts";
import { type CommandRequest, clientFrame } from "./schema.ts";

const STREAM_OF = { stdout: 1, stderr: 2 } as const;
const STDIN = 0;

type Frame =
  | { readonly type: "started"; readonly pid: number }
  | { readonly type: "exit"; readonly code: number; readonly timed_out: boolean }
  | {
      readonly type: "error";
      readonly code: string;
      readonly message: string;
      readonly hint: string | null;
      readonly exit_code: number | null;
    };

function errorFrame(error: unknown): Frame {
  const known = error instanceof AppError ? error : null;
  return {
    type: "error",
    code: known?.code ?? "INTERNAL",
    message: publicText(error),
    hint: known?.hint ?? null,
    exit_code: known?.details?.exit_code ?? null,
  };
}

/** The streams of one command. What comes before its socket waits, and is no more than one read of its connection. */
class CommandStream {
  readonly #exec: Exec;
  readonly #begun = Promise.withResolvers<void>();
  readonly #complaint = new Complaint();
  #waiting: (Buffer | string)[] = [];
  #socket: ServerSocket | null = null;
  #isBegun = false;
  #isOver = false;

  /** `release` is called once, at the end. */
  constructor(open: (listener: ExecListener) => Exec, release: () => void) {
    this.#begun.promise.catch(() => {});
    this.#exec = open({
      onStarted: (pid) => {
        this.#isBegun = true;
        this.#say({ type: "started", pid });
        this.#begun.resolve();
      },
      onOutput: (stream, chunk) => {
        if (!this.#isBegun) return this.#complaint.add(chunk);
        const message = Buffer.allocUnsafe(1 + chunk.length);
        message[0] = STREAM_OF[stream];
        chunk.copy(message, 1);
        return this.#send(message);
      },
      onDrain: () => this.#socket?.resume(),
    });
    this.#exec.exited
      .then((end) => {
        if (!this.#isBegun) throw this.#complaint.refusal(end);
        this.#end({ type: "exit", code: end.exit_code, timed_out: end.timed_out });
      })
      .catch((error) => {
        if (this.#isBegun) this.#end(errorFrame(error));
        else this.#begun.reject(error);
      })
      .finally(release);
  }

  /** Resolves when the command has started. Rejects as it ends before. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  /** Once. */
  connect(socket: ServerSocket): void {
    this.#socket = socket;
    const waiting = this.#waiting;
    this.#waiting = [];
    // Each is sent, whatever the one before gave.
    const isTaking = waiting.map((message) => socket.send(message)).every((isTaken) => isTaken);
    if (this.#isOver) socket.close(CLOSE.done, "command ended");
    else if (isTaking) this.#exec.resume();
  }

  write(bytes: Buffer): void {
    if (!this.#exec.write(bytes)) this.#socket?.pause();
  }

  endStdin(): void {
    this.#exec.endStdin();
  }

  takeMore(): void {
    this.#exec.resume();
  }

  close(): void {
    this.#exec.close();
  }

  #say(frame: Frame): void {
    this.#send(JSON.stringify(frame));
  }

  #send(message: Buffer | string): boolean {
    if (this.#socket !== null) return this.#socket.send(message);
    this.#waiting.push(message);
    return false;
  }

  #end(frame: Frame): void {
    this.#isOver = true;
    this.#say(frame);
    this.#socket?.close(CLOSE.done, "command ended");
  }
}

/** A client of a command. Until it has asked for one there is no stream. */
class CommandSocket implements SocketListener {
  readonly #socket: ServerSocket;
  /** Makes the stream of the command that a client asks for. */
  readonly #start: (request: CommandRequest) => Promise<CommandStream>;
  /** Called once, at the end of a socket on which nothing was started. */
  readonly #unused: () => void;
  readonly #cancelWait: () => void;
  #stream: CommandStream | null = null;
  #isAsked = false;
  #isClosed = false;

  constructor(
    socket: ServerSocket,
    clock: Clock,
    start: (request: CommandRequest) => Promise<CommandStream>,
    unused: () => void,
  ) {
    this.#socket = socket;
    this.#start = start;
    this.#unused = unused;
    this.#cancelWait = clock.after(LIMITS.exec_request_ms, () => {
      this.#refuse(new AppError("REQUEST_TIMEOUT", `no start frame within ${LIMITS.exec_request_ms} ms`));
    });
  }

  onBytes(bytes: Buffer): void {
    if (this.#stream === null || bytes[0] !== STDIN) {
      this.#refuse(new AppError("INVALID_ARGUMENT", "expected standard input (0) of a command that has started"));
    } else {
      this.#stream.write(bytes.subarray(1));
    }
  }

  onText(text: string): void {
    const frame = parse(text);
    if (frame?.type === "stdin_end" && this.#stream !== null) this.#stream.endStdin();
    else if (frame?.type === "start" && !this.#isAsked) void this.#begin(frame);
    else this.#refuse(new AppError("INVALID_ARGUMENT", "expected a frame: start first, then stdin_end"));
  }

  onDrain(): void {
    this.#stream?.takeMore();
  }

  onClosed(): void {
    this.#isClosed = true;
    this.#cancelWait();
    this.#stream?.close();
    if (!this.#isAsked) this.#unused();
  }

  async #begin(request: CommandRequest): Promise<void> {
    this.#isAsked = true;
    this.#cancelWait();
    try {
      const stream = await this.#start(request);
      if (this.#isClosed) {
        stream.close();
        return;
      }
      this.#stream = stream;
      stream.connect(this.#socket);
    } catch (error) {
      this.#refuse(error);
    }
  }

  #refuse(error: unknown): void {
    if (this.#isClosed) return;
    this.#socket.send(JSON.stringify(errorFrame(error)));
    this.#socket.close(CLOSE.done, "refused");
  }
}

/** A client of the main command, which runs. */
class MainSocket implements SocketListener {
  readonly #stream: CommandStream;

  constructor(socket: ServerSocket, stream: CommandStream) {
    this.#stream = stream;
    stream.connect(socket);
  }

  onBytes(bytes: Buffer): void {
    if (bytes[0] === STDIN) this.#stream.write(bytes.subarray(1));
  }

  onText(text: string): void {
    if (parse(text)?.type === "stdin_end") this.#stream.endStdin();
  }

  onDrain(): void {
    this.#stream.takeMore();
  }

  onClosed(): void {
    this.#stream.close();
  }
}

/** Null for what is no frame. */
function parse(text: string) {
  try {
    return clientFrame.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

export interface CommandSocketsOptions {
  readonly execs: Execs;
  readonly containers: Containers;
  readonly engine: Engine;
  readonly shares: TenantShares;
  readonly clock: Clock;
}

export class CommandSockets {
  readonly #options: CommandSocketsOptions;

  constructor(options: CommandSocketsOptions) {
    this.#options = options;
  }

  /**
   * Attaches to the main command. Throws NOT_FOUND, WRONG_STATE (there is no main command, or its minit is an earlier one),
   * NOT_RUNNING, NOT_RESPONDING, IN_USE while another client is attached, CONCURRENCY_LIMIT, CAPACITY_FULL.
   */
  async attach(tenant_id: string, id: string, has_stdin: boolean): Promise<Upgrade> {
    const { engine, containers, shares } = this.#options;
    const { row, live } = await running(this.#options, tenant_id, id);
    if (!live.control.isOpen) throw notResponding(row.id);
    const give = shares.take("streams", tenant_id);
    const unuse = containers.use(row.id);
    const stream = new CommandStream(
      (listener) => engine.containers.attach(row.id, { has_stdin }, listener),
      () => {
        unuse();
        give();
      },
    );
    await stream.begun.catch((error) => {
      throw unanswered(row.id, error);
    });
    return new Upgrade(
      (socket) => new MainSocket(socket, stream),
      () => stream.close(),
    );
  }

  /** A socket for one command, which its client asks for. `check` throws what forbids it. */
  async exec(tenant_id: string, id: string, check: (request: CommandRequest) => void): Promise<Upgrade> {
    const { clock, shares } = this.#options;
    await running(this.#options, tenant_id, id);
    const give = shares.take("streams", tenant_id);
    const start = async (request: CommandRequest) => {
      try {
        check(request);
        return await this.#start(tenant_id, id, request, give);
      } catch (error) {
        give();
        throw error;
      }
    };
    return new Upgrade((socket) => new CommandSocket(socket, clock, start, give), give);
  }

  async #start(tenant_id: string, id: string, wanted: CommandRequest, give: () => void): Promise<CommandStream> {
    const { row, request, release } = await this.#options.execs.begin(tenant_id, id, wanted);
    const run = { ...request, output_bytes_max: null, is_stream: true, has_more_stdin: true };
    const stream = new CommandStream(
      (listener) => this.#options.engine.containers.exec(row.id, run, listener),
      () => {
        release();
        give();
      },
    );
    await stream.begun.catch((error) => {
      throw unanswered(row.id, error);
    });
    return stream;
  }
}
