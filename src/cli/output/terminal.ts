/**
 * Where a command writes: results to standard output, all else to standard error. Colours, widths, spinners and what
 * is redrawn in place exist on a terminal only; `NO_COLOR` and `FORCE_COLOR` are honoured.
 *
 * T1. However the command ends, what it changed of the terminal (a hidden cursor) is undone first: `restore`.
 * T2. A reader that goes away (`| head`) ends the command quietly, by `onReaderGone`.
 */
import { once } from "node:events";
import type { ReadStream } from "node:tty";
import { stripVTControlCharacters, styleText } from "node:util";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { cutTo, displayWidth } from "./text.ts";

export type Format = Parameters<typeof styleText>[0];
export type Paint = (format: Format, text: string) => string;

const HIDE_CURSOR = "\x1b[?25l";
const SHOW_CURSOR = "\x1b[?25h";
const ERASE_BELOW = "\x1b[J";
const ERASE_LINE = "\r\x1b[K";

/** A line that is written again in its place. */
export interface Meter {
  show(text: string): void;
  end(): void;
}

/** Lines that are drawn again in place of what they were. */
export interface LiveView {
  draw(lines: readonly string[]): void;
}

export interface TerminalOptions {
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly clock: Clock;
  /** A terminal that cannot move its cursor. */
  readonly isDumb: boolean;
}

export class Terminal {
  readonly #stdout: NodeJS.WriteStream;
  readonly #stderr: NodeJS.WriteStream;
  readonly #clock: Clock;
  readonly #isDumb: boolean;
  readonly #undo = new Set<() => void>();
  /** Ends the command. */
  onReaderGone: () => void = () => process.exit();

  constructor({ stdout, stderr, clock, isDumb }: TerminalOptions) {
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.#clock = clock;
    this.#isDumb = isDumb;
    for (const stream of [stdout, stderr]) {
      stream.on("error", (error: NodeJS.ErrnoException) => {
        if (error.code !== "EPIPE") throw error;
        this.onReaderGone();
      });
    }
  }

  /** Of standard output in columns; null where it is no terminal. */
  get width(): number | null {
    return this.#stdout.isTTY ? this.#stdout.columns || 80 : null;
  }

  get height(): number {
    return this.#stdout.rows || 24;
  }

  /** Whether lines can be drawn again in place. */
  get isLive(): boolean {
    return this.#stdout.isTTY && !this.#isDumb;
  }

  /** Formats for standard output. */
  readonly paint: Paint = (format, text) => styleText(format, text, { stream: this.#stdout });
  /** Formats for standard error. */
  readonly paintError: Paint = (format, text) => styleText(format, text, { stream: this.#stderr });

  out(text: string): void {
    this.#stdout.write(text);
  }

  err(text: string): void {
    this.#stderr.write(text);
  }

  /** Bytes as they are, no faster than they are taken. */
  async pass(to: "out" | "err", bytes: Uint8Array): Promise<void> {
    const stream = to === "out" ? this.#stdout : this.#stderr;
    if (!stream.write(bytes)) await once(stream, "drain");
  }

  /** A line beside the result, which a pipe does not get. */
  note(text: string): void {
    this.err(`${this.paintError("dim", text)}\n`);
  }

  /** Shows a spinner with `text` when `work` takes longer than a moment. */
  async progress<T>(text: string, work: Promise<T>): Promise<T> {
    if (!this.#stderr.isTTY || this.#isDumb) return work;
    const stop = { spinner: () => {}, isOver: false };
    const cancel = this.#clock.after(LIMITS.cli_spinner_delay_ms, async () => {
      const { default: spinner } = await import("yocto-spinner");
      if (stop.isOver) return;
      // Signals are main.ts's, which restores the terminal.
      const shown = spinner({ text, stream: this.#stderr, handleSignals: false }).start();
      stop.spinner = () => shown.stop();
      this.#undo.add(stop.spinner);
    });
    try {
      return await work;
    } finally {
      stop.isOver = true;
      cancel();
      this.#undo.delete(stop.spinner);
      stop.spinner();
    }
  }

  /** How far something is, on standard error; nothing where that is no terminal. */
  meter(): Meter {
    if (!this.#stderr.isTTY || this.#isDumb) return { show: () => {}, end: () => {} };
    let shown_ms = Number.NEGATIVE_INFINITY;
    return {
      show: (text) => {
        const now_ms = this.#clock.monotonicMs();
        if (now_ms - shown_ms < LIMITS.cli_meter_interval_ms) return;
        shown_ms = now_ms;
        this.err(`${ERASE_LINE}${cutTo(text, (this.#stderr.columns || 80) - 1)}`);
      },
      end: () => {
        if (shown_ms !== Number.NEGATIVE_INFINITY) this.err(ERASE_LINE);
      },
    };
  }

  /** Keys as they are pressed, Ctrl-C too, until the returned function is called, or T1. */
  raw(stdin: ReadStream): () => void {
    const undo = () => {
      this.#undo.delete(undo);
      stdin.setRawMode(false);
    };
    stdin.setRawMode(true);
    this.#undo.add(undo);
    return undo;
  }

  /** A view in place of the lines that it drew before; only where `isLive`. */
  live(): LiveView {
    const drawn = { count: 0 };
    this.out(HIDE_CURSOR);
    this.#undo.add(() => this.out(SHOW_CURSOR));
    return {
      draw: (lines) => {
        // A line that wraps, or more of them than there is room for, and the cursor could not find back.
        const cut = lines.slice(0, this.height - 1).map((line) => fitPainted(line, this.width ?? 80));
        const up = drawn.count === 0 ? "" : `\x1b[${drawn.count}A`;
        this.out(`${up}\r${ERASE_BELOW}${cut.map((line) => `${line}\n`).join("")}`);
        drawn.count = cut.length;
      },
    };
  }

  /** T1. */
  restore(): void {
    for (const undo of this.#undo) undo();
    this.#undo.clear();
  }
}

/** A line in at most `width` columns; one that has to be cut loses its colours. */
function fitPainted(line: string, width: number): string {
  const plain = stripVTControlCharacters(line);
  return displayWidth(plain) <= width ? line : cutTo(plain, width);
}
