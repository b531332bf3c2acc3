/**
 * What the user sees: one line per step with its seconds. On a terminal the line ticks and shows the newest output of
 * the running command; elsewhere it is written in two parts, before and after the work.
 */
const TICK_MS = 200;
const WIDTH_DEFAULT = 80;

/** @param {number} since_ms @returns {string} */
function seconds(since_ms) {
  return `${((performance.now() - since_ms) / 1000).toFixed(1)} s`;
}

export class Progress {
  #stream;
  #title = "";
  #detail = "";
  #since_ms = 0;
  /** @type {NodeJS.Timeout | null} */
  #ticker = null;

  /** @param {Pick<NodeJS.WriteStream, "write" | "isTTY" | "columns">} stream */
  constructor(stream) {
    this.#stream = stream;
  }

  /** @param {string} text a line of its own, outside any step */
  note(text) {
    this.#stream.write(`set-up: ${text}\n`);
  }

  /** @param {string} name @param {string} what */
  begin(name, what) {
    this.#title = `set-up: ${name} (${what})`;
    this.#detail = "";
    this.#since_ms = performance.now();
    if (this.#stream.isTTY) {
      this.#tick();
      this.#ticker = setInterval(() => this.#tick(), TICK_MS);
    } else {
      this.#stream.write(`${this.#title} … `);
    }
  }

  /** @param {string} line */
  detail(line) {
    // Colours and cursor movements of the command must not reach the ticking line.
    this.#detail = line.replace(/[^\x20-\x7e]/g, "");
  }

  done() {
    this.#end(seconds(this.#since_ms));
  }

  /** Ends the line of a step that did not succeed; without one it does nothing. */
  failed() {
    if (this.#title !== "") this.#end(`failed after ${seconds(this.#since_ms)}`);
  }

  /** @param {string} result */
  #end(result) {
    if (this.#ticker !== null) clearInterval(this.#ticker);
    this.#ticker = null;
    this.#stream.write(this.#stream.isTTY ? `\r\x1b[K${this.#title} ${result}\n` : `${result}\n`);
    this.#title = "";
  }

  #tick() {
    const width = (this.#stream.columns || WIDTH_DEFAULT) - 1;
    this.#stream.write(`\r\x1b[K${`${this.#title} ${seconds(this.#since_ms)} ${this.#detail}`.slice(0, width)}`);
  }
}
