/**
 * Structured log: one JSON object a line on standard error, on a terminal a line to read. Secrets, payloads and
 * environment values are never passed in. A level below the configured one costs one comparison.
 *
 * G1. Writing never throws and never waits: lines gather for `log_flush_ms` and are then written by another thread
 *     (pino's destination). What a slow or closed reader does not take is bounded by `log_buffer_bytes_max`; lines
 *     above it are dropped and counted.
 * G2. An end of the process by any way but a signal that cannot be caught writes what has gathered, and waits for a
 *     full pipe at most `END_TRIES` times a tenth of a second.
 */
import { writeSync } from "node:fs";
import { isatty } from "node:tty";
import { pino } from "pino";
import { type Clock, type EpochMs, toIsoTime } from "./clock.ts";
import { LIMITS } from "./limits.ts";

const LEVELS = { debug: 20, info: 30, warn: 40, error: 50, silent: 100 } as const;
export type LogLevel = keyof typeof LEVELS;
export const LOG_LEVELS = Object.keys(LEVELS) as LogLevel[];

export type LogFields = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

/** The process's own log, which knows what it could not write. */
export interface CountedLog extends Log {
  /** Lines that nobody took (G1). */
  readonly dropped_count: number;
}

const STDERR = 2;
const END_TRIES = 5;
/** As sonic-boom does, which writes before the end. */
const END_WAIT_MS = 100;

/** A log that writes lines at or above `level` to the descriptor. */
export function createLog(level: LogLevel, clock: Pick<Clock, "epochMs" | "after">, fd = STDERR): CountedLog {
  const lines = new Lines(clock, fd);
  const write = isatty(fd) ? toTerminal(lines, clock) : toJson(lines, clock);
  const at = (name: Exclude<LogLevel, "silent">) => (message: string, fields?: LogFields) => {
    if (LEVELS[name] < LEVELS[level]) return;
    write(name, message, fields);
    // What is wrong may be the last that is heard of this process.
    if (LEVELS[name] >= LEVELS.warn) lines.flush();
  };
  return {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    get dropped_count() {
      return lines.dropped_count;
    },
  };
}

type Write = (name: Exclude<LogLevel, "silent">, message: string, fields?: LogFields) => void;

/** Not by pino's own serializer: in the running daemon a request's line takes that 10.8 µs, this 3.6. */
function toJson(lines: Lines, clock: Pick<Clock, "epochMs">): Write {
  return (level, message, fields) => {
    const time = toIsoTime(clock.epochMs());
    lines.write(`${printable(JSON.stringify({ time, level, message, ...fields }))}\n`);
  };
}

function toTerminal(lines: Lines, clock: Pick<Clock, "epochMs">): Write {
  return (name, message, fields) => lines.write(`${readableLine(clock.epochMs(), name, message, fields)}\n`);
}

/** `08:12:12.345 info  request method=GET status=200`. Nothing in it can move the cursor. */
export function readableLine(epoch_ms: EpochMs, level: LogLevel, message: string, fields: LogFields = {}): string {
  const shown = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => ` ${name}=${readableValue(value ?? null)}`);
  return `${toIsoTime(epoch_ms).slice(11, 23)} ${level.padEnd(5)} ${printable(message)}${shown.join("")}`;
}

function readableValue(value: string | number | boolean | null): string {
  return typeof value === "string" && !/^[\x21\x23-\x7e]+$/.test(value)
    ? printable(JSON.stringify(value))
    : String(value);
}

/** Controls of both halves, separators of lines, marks of writing direction: what makes a line look like another. */
const UNSEEN = /[\p{Cc}\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** With what cannot be seen as escapes, which mean the same where the text is JSON. */
function printable(text: string): string {
  return text.replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Lines on their way to a descriptor (G1, G2). It is opened with the first line. */
class Lines {
  readonly #clock: Pick<Clock, "after">;
  readonly #fd: number;
  #stream: ReturnType<typeof pino.destination> | null = null;
  #pending = "";
  #isDue = false;
  #isClosed = false;
  #end_tries_left = Number.POSITIVE_INFINITY;
  dropped_count = 0;

  constructor(clock: Pick<Clock, "after">, fd: number) {
    this.#clock = clock;
    this.#fd = fd;
  }

  write(line: string): void {
    // With it comes what happens at the end of the process.
    this.#open();
    this.#pending += line;
    if (this.#pending.length >= LIMITS.log_chunk_length) {
      this.flush();
    } else if (!this.#isDue) {
      this.#isDue = true;
      this.#clock.after(LIMITS.log_flush_ms, () => {
        this.#isDue = false;
        this.flush();
      });
    }
  }

  flush(): void {
    if (this.#pending === "") return;
    const text = this.#pending;
    this.#pending = "";
    if (this.#isClosed) this.#drop(text);
    else this.#open().write(text);
  }

  #drop(text: string): void {
    this.dropped_count += text.split("\n").length - 1;
  }

  #open(): ReturnType<typeof pino.destination> {
    if (this.#stream !== null) return this.#stream;
    const stream = pino.destination({
      dest: this.#fd,
      sync: false,
      maxLength: LIMITS.log_buffer_bytes_max,
      retryEAGAIN: () => this.#end_tries_left-- > 0,
    });
    stream.on("drop", (text: string) => this.#drop(text));
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // Of anything else, a full disk for one, it may recover: what waits is tried again with the next lines.
      if (error.code === "EPIPE") this.#isClosed = true;
    });
    // Before the hook that pino has set, which would wait for a full pipe for ever.
    process.prependListener("exit", () => this.#end(stream));
    this.#stream = stream;
    return stream;
  }

  #end(stream: ReturnType<typeof pino.destination>): void {
    this.#end_tries_left = END_TRIES;
    const text = this.#pending;
    this.#pending = "";
    try {
      if (!this.#isClosed) {
        stream.flushSync();
        this.#writeNow(text);
      }
    } catch {
      // Nobody takes it, and there is nowhere left to say so.
    }
    stream.destroy();
  }

  /** Not by the stream, which would leave it to a thread that the process does not wait for. */
  #writeNow(text: string): void {
    for (let left = Buffer.from(text); left.length > 0; ) {
      try {
        left = left.subarray(writeSync(this.#fd, left));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN" || this.#end_tries_left-- <= 0) throw error;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, END_WAIT_MS);
      }
    }
  }
}
