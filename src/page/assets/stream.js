/**
 * An answer of the daemon that goes on, line by line. After its end `ensure` opens the next one; the rounds of the page
 * call it, so that a daemon that is away is asked no more often than it is polled.
 *
 * S1. One connection at a time; after `close` no line comes any more.
 * S2. One that says nothing for `silence_ms` is given up, where the daemon has promised to say something.
 * S3. A line that never ends is not kept.
 */

/** @import { Clock } from "./clock.js" */

const LINE_LENGTH_MAX = 4 * 1024 * 1024;

/**
 * @typedef {object} StreamOptions
 * @property {(ended: AbortSignal) => Promise<Response>} open
 * @property {(lines: readonly string[]) => void} onLines
 * @property {(error: unknown) => void} [onRefused] it could not be opened
 * @property {number} [silence_ms]
 */

export class Stream {
  #clock;
  #options;
  /** Of the connection that there is. @type {AbortController | null} */
  #ender = null;

  /** @param {Clock} clock @param {StreamOptions} options */
  constructor(clock, options) {
    this.#clock = clock;
    this.#options = options;
  }

  ensure() {
    if (this.#ender !== null) return;
    this.#ender = new AbortController();
    void this.#read(this.#ender);
  }

  close() {
    this.#ender?.abort();
    this.#ender = null;
  }

  /** @param {AbortController} ender */
  async #read(ender) {
    const { open, onLines, onRefused, silence_ms } = this.#options;
    const { signal } = ender;
    let unwatch = () => {};
    try {
      const { body } = await open(signal);
      const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; rest.length < LINE_LENGTH_MAX; ) {
        if (silence_ms !== undefined) unwatch = this.#clock.after(silence_ms, () => ender.abort());
        const piece = await reader?.read();
        unwatch();
        if (piece === undefined || piece.done || signal.aborted) break;
        const lines = (rest + piece.value).split("\n");
        rest = lines.pop() ?? "";
        if (lines.length > 0) onLines(lines);
      }
    } catch (error) {
      // Before the first line it is a refusal; later ones are broken connections, and the next round says so.
      if (!signal.aborted) onRefused?.(error);
    } finally {
      unwatch();
      ender.abort();
      if (this.#ender === ender) this.#ender = null;
    }
  }
}
