/**
 * Hot path. One connection to the minit of one instance: starts a command, gathers its output, says when it ended and
 * when the instance can take the next call. Frames from minit are untrusted: lengths are bounded by the reader, output
 * by the caps that the call named, an answer to nothing is dropped, and one out of order ends the connection.
 *
 * Invariants:
 * C1 Each exec settles exactly once: with its exit, or with an error when the connection ends.
 * C2 `idle` of a sole exec settles after its outcome, and rejects when the connection ends first.
 * C3 An exec holds at most twice the bytes of its caps, in however small pieces they come.
 */
import { connect, type Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { GatheredOutput } from "../../base/gathered-output.ts";
import type { ExecOutcome, ExecRequest, InstanceMinit } from "../ports/instances.ts";
import type { Resident, ServeRequest } from "../ports/residents.ts";
import { type Greeting, readExit, readGreeting } from "./answers.ts";
import { bareFrame, FRAME, FrameReader, FrameWriter, strBytes, strsBytes } from "./frames.ts";
import { type OnLog, ResidentClient } from "./resident-client.ts";

const FLAG_SOLE = 1;
const FLAG_WIPE = 8;

interface Running {
  stdout: GatheredOutput;
  stderr: GatheredOutput;
  resolve(outcome: ExecOutcome): void;
  reject(error: Error): void;
  idle: PromiseWithResolvers<void> | null;
}

export class MinitClient implements InstanceMinit {
  readonly #socket: Socket;
  readonly #running = new Map<number, Running>();
  readonly #pings = new Map<number, () => void>();
  readonly #reader: FrameReader;
  #next_id = 1;
  /** Frames of this turn of the event loop that are not written yet. */
  #frames: Buffer[] = [];
  #resident: ResidentClient | null = null;
  #closed: Error | null = null;
  #hasEnded = false;
  #onReady: ((greeting: Greeting) => void) | null = null;
  #onClosed: () => void = () => {};

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#reader = new FrameReader((type, id, body) => this.#frame(type, id, body));
    socket.on("data", (chunk) => {
      try {
        this.#reader.push(chunk);
      } catch (cause) {
        socket.destroy(new AppError("INTERNAL", `minit violated the protocol: ${errorText(cause)}`));
      }
    });
    socket.on("error", (error) => {
      this.#closed ??= error;
    });
    socket.on("close", () => this.#end());
  }

  /** Connects and waits for minit's READY, within `timeout_ms`. Rejects with START_FAILED. */
  static async connect(path: string, timeout_ms: number, clock: Clock): Promise<Greeting & { client: MinitClient }> {
    const client = new MinitClient(connect(path));
    const ready = Promise.withResolvers<Greeting>();
    client.#onReady = ready.resolve;
    client.onClosed(() => ready.reject(client.#lost()));
    const cancel = clock.after(timeout_ms, () => {
      ready.reject(new AppError("START_FAILED", `minit did not respond within ${timeout_ms} ms`));
    });
    try {
      return { client, ...(await ready.promise) };
    } catch (cause) {
      client.close();
      throw new AppError("START_FAILED", `cannot connect to minit: ${errorText(cause)}`, { cause });
    } finally {
      cancel();
      client.#onClosed = () => {};
    }
  }

  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.#hasEnded) setImmediate(listener);
  }

  get isOpen(): boolean {
    return this.#closed === null && !this.#socket.destroyed;
  }

  execSole(request: ExecRequest): Promise<ExecOutcome> {
    if (!this.isOpen) return Promise.reject(this.#lost());
    const id = this.#nextId();
    const { argv, environment, working_directory, payload } = request;
    const payload_bytes = Buffer.byteLength(payload);
    const frame = new FrameWriter(
      FRAME.EXEC,
      id,
      20 + strBytes(working_directory) + strsBytes(argv) + strsBytes(environment) + payload_bytes,
    );
    frame
      .u32(FLAG_SOLE | (request.wipe ? FLAG_WIPE : 0))
      .u32(request.timeout_ms)
      .u32(request.stdout_bytes_max)
      .u32(request.stderr_bytes_max)
      .u16(argv.length)
      .u16(environment.length)
      .str(working_directory)
      .strs(argv)
      .strs(environment);
    if (payload_bytes > 0) frame.text(payload);
    return new Promise((resolve, reject) => {
      const stdout = new GatheredOutput(request.stdout_bytes_max);
      const stderr = new GatheredOutput(request.stderr_bytes_max);
      this.#running.set(id, { stdout, stderr, resolve, reject, idle: null });
      this.#socket.write(frame.buffer);
      failpoint("engine.exec.sent");
    });
  }

  serve(request: ServeRequest, onLog: OnLog | null = null): Resident {
    return this.#served(request, onLog);
  }

  /** Takes over the open resident process of an earlier connection. `opened` rejects if there is none. */
  take(): Resident {
    return this.#served(null, null);
  }

  #served(request: ServeRequest | null, onLog: OnLog | null): Resident {
    const wire = {
      write: (frame: Buffer) => this.#writeLater(frame),
      nextId: () => this.#nextId(),
    };
    const resident = new ResidentClient(wire, request, onLog);
    if (this.isOpen) this.#resident = resident;
    else resident.lose(this.#lost());
    return resident;
  }

  ping(timeout_ms: number, clock: Clock): Promise<void> {
    if (!this.isOpen) return Promise.reject(this.#lost());
    const id = this.#nextId();
    return new Promise((resolve, reject) => {
      const cancel = clock.after(timeout_ms, () => {
        this.#pings.delete(id);
        reject(new AppError("INTERNAL", `minit did not respond to a ping within ${timeout_ms} ms`));
      });
      this.#pings.set(id, () => {
        cancel();
        resolve();
      });
      this.#socket.write(bareFrame(FRAME.PING, id));
    });
  }

  /** Asks minit to kill everything and exit: the quickest way to end a container. */
  shutdown(): void {
    if (this.isOpen) this.#socket.write(bareFrame(FRAME.SHUTDOWN, 0));
  }

  close(): void {
    this.#socket.destroy();
  }

  /**
   * Writes all frames of one turn of the event loop at its end, with one system call, which costs more than the rest
   * of a call. `process.nextTick` would write after each single request of the turn.
   */
  #writeLater(frame: Buffer): void {
    if (this.#frames.length === 0) setImmediate(() => this.#writeFrames());
    this.#frames.push(frame);
  }

  #writeFrames(): void {
    const frames = this.#frames;
    this.#frames = [];
    if (this.isOpen) this.#socket.write(frames.length === 1 ? (frames[0] as Buffer) : Buffer.concat(frames));
  }

  /** Returns the next id, never 0: that is no id of a call. */
  #nextId(): number {
    const id = this.#next_id;
    this.#next_id = id === 0xffff_ffff ? 1 : id + 1;
    return id;
  }

  #lost(): AppError {
    const reason = this.#closed === null ? "it closed the connection" : errorText(this.#closed);
    return new AppError("INTERNAL", `lost the connection to minit: ${reason}`);
  }

  #end(): void {
    this.#hasEnded = true;
    const error = this.#lost();
    this.#closed ??= error;
    const running = [...this.#running.values()];
    this.#running.clear();
    for (const exec of running) {
      if (exec.idle === null) exec.reject(error);
      else exec.idle.reject(error);
    }
    this.#resident?.lose(error);
    this.#onClosed();
  }

  /** Throws where minit breaks the protocol: what follows in the stream is then not looked at. */
  #frame(type: number, id: number, body: Buffer): void {
    if (type === FRAME.READY) {
      const greeting = readGreeting(body);
      this.#onReady?.(greeting);
      this.#onReady = null;
      return;
    }
    if (type === FRAME.PONG) {
      this.#pings.get(id)?.();
      this.#pings.delete(id);
      return;
    }
    const exec = this.#running.get(id);
    if (exec === undefined) {
      this.#resident?.frame(type, id, body);
      return;
    }
    if (type === FRAME.IDLE) {
      if (exec.idle === null) throw new AppError("INTERNAL", "an instance reported idle before its command exited");
      this.#running.delete(id);
      failpoint("engine.exec.idle");
      exec.idle.resolve();
      return;
    }
    if (exec.idle !== null) throw new AppError("INTERNAL", `frame ${type} came after the end of its command`);
    if (type === FRAME.STDOUT) exec.stdout.add(body);
    else if (type === FRAME.STDERR) exec.stderr.add(body);
    else if (type === FRAME.EXIT) this.#exit(exec, body);
    else if (type === FRAME.ERROR) {
      const errno = body.readUInt32LE(0);
      this.#running.delete(id);
      exec.reject(new AppError("INTERNAL", `minit refused the command (errno ${errno})`));
    }
  }

  #exit(exec: Running, body: Buffer): void {
    const exit = readExit(body);
    exec.idle = Promise.withResolvers<void>();
    // A caller that does not await the idle state must not get an unhandled rejection when the instance dies first.
    exec.idle.promise.catch(() => {});
    exec.resolve({
      exit_code: exit.exit_code,
      signal: exit.signal,
      timed_out: exit.timed_out,
      spawn_failed: exit.spawn_failed,
      stdout_truncated: exit.stdout_truncated,
      stderr_truncated: exit.stderr_truncated,
      stdout: exec.stdout.text(),
      stderr: exec.stderr.text(),
      handler_ms: exit.duration_ms,
      cpu_ms: exit.cpu_ms,
      memory_peak_kb: exit.memory_peak_kb,
      idle: exec.idle.promise,
    });
    // Not needed any more, and the instance may take a while to be idle.
    exec.stdout = new GatheredOutput(0);
    exec.stderr = exec.stdout;
  }
}
