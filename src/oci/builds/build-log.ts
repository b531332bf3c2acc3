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
import { Mask } from "./mask.ts";

export interface BuildLogOptions {
  readonly emit: (events: readonly NewEvent[]) => Promise<unknown>;
  readonly operation_id: string;
  readonly reference: string;
  readonly steps_count: number;
  readonly clock: Clock;
  readonly log: Log;
}

export class BuildLog {
  readonly #options: BuildLogOptions;
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  /** Characters that no mask has seen. */
  readonly #waiting = { stdout: "", stderr: "" };
  #masks = { stdout: new Mask(), stderr: new Mask() };
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
    this.#masks = { stdout: new Mask(secrets), stderr: new Mask(secrets) };
    this.#step = step;
    this.#tail = "";
    this.#tell("step", text.slice(0, LIMITS.build_log_piece_bytes));
  }

  output(stream: OutputStream, bytes: Buffer): void {
    this.#waiting[stream] += this.#decoders[stream].write(bytes);
    // A mask looks at all that it keeps with each piece: pieces of that length cost twice what one look at the stream would.
    const piece = LIMITS.build_log_piece_bytes + this.#masks[stream].length_max;
    if (this.#waiting[stream].length >= piece) this.#drain(stream);
    if (!this.#isFull) this.#schedule();
  }

  /** Passes on what was gathered. */
  flush(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      this.#drain(stream);
      this.#pass(stream, this.#masks[stream].end());
    }
  }

  /** Resolves when all is written. Never rejects: a log that is lost fails no build. */
  async close(): Promise<void> {
    this.flush();
    this.#masks = { stdout: new Mask(), stderr: new Mask() };
    this.#send();
    await this.#sending;
  }

  get #isFull(): boolean {
    return this.#bytes > LIMITS.build_log_bytes_max;
  }

  #drain(stream: OutputStream): void {
    const text = this.#waiting[stream];
    this.#waiting[stream] = "";
    this.#pass(stream, this.#masks[stream].write(text));
  }

  /** Takes output without secrets: its end for the message of a failure, the rest for the log. */
  #pass(stream: OutputStream, text: string): void {
    if (text === "") return;
    this.#tail = `${this.#tail}${text}`.slice(-4 * LIMITS.build_tail_bytes);
    for (let at = 0; at < text.length && !this.#isFull; ) {
      const end = pieceEnd(text, at);
      this.#tell(stream, text.slice(at, end));
      at = end;
    }
  }

  #tell(stream: "step" | OutputStream, text: string): void {
    const { operation_id, reference, steps_count } = this.#options;
    const bytes = Buffer.byteLength(text);
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
      for (const stream of ["stdout", "stderr"] as const) this.#drain(stream);
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

/** End of a piece whose JSON fits an event: behind a line if there is one. */
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
