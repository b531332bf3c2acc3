/**
 * The output of a command as a stream of frames, one JSON object a line. The first one is `started`: a command that does not
 * start has no frame, but a refusal.
 *
 * F1 A reader that does not read stops its own command, by the pipe, and nobody else's: what was not taken waits here up to a
 *    bound, and then in the pipe.
 */
import { AppError, publicText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Exec, ExecListener, ExitAnswer } from "../../engine/ports.ts";

/** Of a frame of a stream: above it a copy costs more than a write. */
const LARGE_LINE_BYTES = 16 * 1024;
/** What minit writes of a command that it could not start is one line of 511 bytes at most. */
const COMPLAINT_BYTES_MAX = 512;

export class Frames implements AsyncIterableIterator<Uint8Array> {
  readonly #exec: Exec;
  readonly #release: () => void;
  #waiting: Buffer[] = [];
  #bytes = 0;
  #isBegun = false;
  #isOver = false;
  #wake: () => void = () => {};
  readonly #complaint = new Complaint();
  readonly #begun = Promise.withResolvers<void>();

  constructor(container_id: string, open: (listener: ExecListener) => Exec, release: () => void) {
    this.#release = release;
    this.#exec = open({
      onStarted: (pid) => {
        this.#say({ type: "started", container_id, pid });
        this.#begun.resolve();
        this.#isBegun = true;
      },
      onOutput: (type, bytes) => {
        if (!this.#isBegun) return this.#complaint.add(bytes);
        this.#add(Buffer.from(`{"type":"${type}","data_b64":"${bytes.toString("base64")}"}\n`, "latin1"));
        return this.#bytes < LIMITS.stream_buffer_bytes;
      },
    });
    this.#begun.promise.catch(() => {});
    this.#exec.exited
      .then((end) => {
        if (!this.#isBegun) throw this.#complaint.refusal(end);
        const { duration_ms, timed_out, exit_code } = end;
        const elapsed_ms = Math.round(duration_ms);
        if (timed_out) this.#say({ type: "timeout", elapsed_ms, message: "killed at timeout_ms" });
        this.#say({ type: "exit", code: exit_code, elapsed_ms });
      })
      .catch((error) => {
        if (this.#isBegun) this.#say({ type: "error", message: publicText(error) });
        else this.#begun.reject(error);
      })
      .finally(() => this.#end());
  }

  /** Resolves when the command has started, with the first frame. Rejects as it ends before. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    while (this.#bytes === 0 && !this.#isOver) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#bytes === 0) return { done: true, value: undefined };
    const value = this.#take();
    this.#bytes -= value.length;
    if (this.#bytes < LIMITS.stream_buffer_bytes / 2) this.#exec.resume();
    return { done: false, value };
  }

  /** The reader has gone, and the command goes too. */
  async return(): Promise<IteratorResult<Uint8Array>> {
    this.#exec.close();
    this.#end();
    return { done: true, value: undefined };
  }

  /** A large line as it is, without a copy; small ones together, for fewer writes. */
  #take(): Buffer {
    const [first] = this.#waiting;
    if (first !== undefined && (first.length >= LARGE_LINE_BYTES || this.#waiting.length === 1)) {
      this.#waiting.shift();
      return first;
    }
    const end = this.#waiting.findIndex(({ length }) => length >= LARGE_LINE_BYTES);
    return Buffer.concat(this.#waiting.splice(0, end < 0 ? this.#waiting.length : end));
  }

  #say(frame: object): void {
    this.#add(Buffer.from(`${JSON.stringify(frame)}\n`));
  }

  #add(line: Buffer): void {
    this.#waiting.push(line);
    this.#bytes += line.length;
    this.#wake();
  }

  #end(): void {
    this.#isOver = true;
    this.#release();
    this.#wake();
  }
}

/** What minit says of a command that it cannot start, in place of its output. */
export class Complaint {
  #text = "";

  /** Gives that more is taken. */
  add(bytes: Buffer): true {
    this.#text += bytes.toString("utf8", 0, COMPLAINT_BYTES_MAX - this.#text.length);
    return true;
  }

  /** The refusal of a command that ended without a start. */
  refusal({ timed_out, cancelled, exit_code }: ExitAnswer): AppError {
    if (timed_out) return new AppError("TIMEOUT", "the command did not start before timeout_ms");
    if (cancelled) return new AppError("NOT_RUNNING", "the container ended before the command started");
    const problem = this.#text.replace(/^minit: /, "").trimEnd();
    if (problem.startsWith("spawn ")) {
      const text = `the container has no room for another process: ${problem.slice("spawn ".length)}`;
      return new AppError("CAPACITY_FULL", text, { details: { exit_code }, retry_after: 1 });
    }
    return new AppError("INVALID_ARGUMENT", `the command cannot be started: ${problem}`, {
      details: { exit_code },
      hint: "send a command, a working_directory and a user that the container has",
    });
  }
}
