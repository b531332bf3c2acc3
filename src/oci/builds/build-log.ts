/**
 * The log of a build: events with the steps and the output of commands, gathered to pieces, and the end of the output for the
 * message of a failure.
 *
 * G1. A build has a bounded log: above it only steps are logged.
 * G2. Values of secrets are written as stars, also where a command prints them.
 */
import { StringDecoder } from "node:string_decoder";
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { OutputStream } from "../../engine/ports.ts";
import type { NewEvent } from "../../events/schema.ts";

export interface BuildLogOptions {
  readonly emit: (events: readonly NewEvent[]) => Promise<unknown>;
  readonly operation_id: string;
  readonly reference: string;
  readonly steps_count: number;
  readonly clock: Clock;
  readonly log: Log;
}

const STARS = "***";
/** Shorter values would blank words that are none. */
const SECRET_LENGTH_MIN = 4;

export class BuildLog {
  readonly #options: BuildLogOptions;
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  readonly #waiting = { stdout: "", stderr: "" };
  #secrets: readonly string[] = [];
  /** Length of the longest of them: so much of the output waits, since it may be the beginning of one. */
  #secret_length = 0;
  #step = 0;
  #bytes = 0;
  #tail = "";
  #events: NewEvent[] = [];
  #sending: Promise<unknown> = Promise.resolve();
  #cancelSend: CancelTimer | null = null;

  constructor(options: BuildLogOptions) {
    this.#options = options;
  }

  /** The end of the output of the step's command. */
  get tail(): string {
    return this.#tail.trimEnd().slice(-LIMITS.build_tail_bytes);
  }

  /** G2: values that the step's command can read. */
  begin(step: number, text: string, secrets: readonly Uint8Array[] = []): void {
    this.flush();
    this.#secrets = maskedTexts(secrets);
    this.#secret_length = this.#secrets[0]?.length ?? 0;
    this.#step = step;
    this.#tail = "";
    this.#tell("step", text.slice(0, LIMITS.build_log_piece_bytes));
  }

  output(stream: OutputStream, bytes: Buffer): void {
    this.#waiting[stream] += this.#decoders[stream].write(bytes);
    const kept = 2 * LIMITS.build_log_piece_bytes + this.#secret_length;
    // Above the bound only the end of the output counts. It is masked first: a cut through a secret would leave the rest of it.
    if (this.#isFull) {
      const text = this.#waiting[stream];
      if (text.length >= 2 * kept) this.#waiting[stream] = this.#masked(text).slice(-kept);
      return;
    }
    if (this.#waiting[stream].length >= LIMITS.build_log_piece_bytes + this.#secret_length) this.#drain(stream, false);
    this.#schedule();
  }

  /** Passes on what was gathered. */
  flush(): void {
    for (const stream of ["stdout", "stderr"] as const) this.#drain(stream, true);
  }

  /** Resolves when all is written. Never rejects: a log that is lost fails no build. */
  async close(): Promise<void> {
    this.flush();
    this.#secrets = [];
    this.#send();
    await this.#sending;
  }

  get #isFull(): boolean {
    return this.#bytes > LIMITS.build_log_bytes_max;
  }

  #drain(stream: OutputStream, isEnd: boolean): void {
    let text = this.#masked(this.#waiting[stream]);
    // The beginning of a secret waits for its end.
    const kept = isEnd ? 0 : Math.min(text.length, this.#secret_length);
    this.#waiting[stream] = text.slice(text.length - kept);
    text = text.slice(0, text.length - kept);
    if (text === "") return;
    this.#tail = `${this.#tail}${text}`.slice(-4 * LIMITS.build_tail_bytes);
    for (let at = 0; at < text.length; ) {
      const end = pieceEnd(text, at);
      this.#tell(stream, text.slice(at, end));
      at = end;
    }
  }

  #masked(text: string): string {
    return this.#secrets.reduce((masked, secret) => masked.replaceAll(secret, STARS), text);
  }

  #tell(stream: "step" | OutputStream, text: string): void {
    const { operation_id, reference, steps_count } = this.#options;
    const bytes = Buffer.byteLength(text);
    if (stream !== "step" && this.#bytes > LIMITS.build_log_bytes_max) return;
    this.#bytes += bytes;
    const isFull = stream !== "step" && this.#bytes > LIMITS.build_log_bytes_max;
    const shown = isFull ? "… the rest of the output is not in the log\n" : text;
    const data = { reference, step: this.#step, steps: steps_count, stream, text: shown };
    this.#events.push({ name: "image_update", event_type: "build_log", operation_id, data });
    this.#schedule();
  }

  /** Sends what has come within an interval. The beginning of a secret waits for the next output or the step's end. */
  #schedule(): void {
    this.#cancelSend ??= this.#options.clock.after(LIMITS.build_log_interval_ms, () => {
      for (const stream of ["stdout", "stderr"] as const) this.#drain(stream, false);
      this.#send();
    });
  }

  #send(): void {
    this.#cancelSend?.();
    this.#cancelSend = null;
    const events = this.#events.splice(0);
    if (events.length === 0) return;
    const { emit, log } = this.#options;
    this.#sending = this.#sending
      .then(() => emit(events))
      .catch((error) => log.warn("log of a build not emitted", { error: errorText(error) }));
  }
}

/** The texts that are written as stars, the longest first: each line of the values, or the values alone if the lines are too many. */
function maskedTexts(secrets: readonly Uint8Array[]): readonly string[] {
  const values = secrets.map((value) => Buffer.from(value).toString("utf8").trim());
  const lines = new Set(values.flatMap((value) => value.split("\n")).map((line) => line.trim()));
  const texts = lines.size <= LIMITS.build_masked_texts_max ? lines : new Set(values);
  return [...texts].filter(({ length }) => length >= SECRET_LENGTH_MIN).sort((a, b) => b.length - a.length);
}

/** Where a piece ends whose JSON fits an event: behind a line if there is one. */
function pieceEnd(text: string, begin: number): number {
  let [end, bytes] = [begin, 0];
  let line = begin;
  for (const char of text.slice(begin, begin + LIMITS.build_log_piece_bytes)) {
    bytes += Buffer.byteLength(JSON.stringify(char)) - 2;
    if (bytes > LIMITS.build_log_piece_bytes) break;
    end += char.length;
    if (char === "\n") line = end;
  }
  if (end === begin) return begin + 1;
  return end < text.length && line > begin ? line : end;
}
