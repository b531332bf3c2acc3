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

  /** @param {string} line of a command, or `@ {…}` of the build of an image */
  detail(line) {
    const progress = parseProgress(line);
    if (progress !== null) {
      if (this.#stream.isTTY) this.#detail = `${progress.percent} % ${progress.message}`.replace(/[^\x20-\x7e]/g, "");
      return;
    }
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

/**
 * Parses a line that the build of an image prints.
 *
 * @param {string} line
 * @returns {{ phase?: string, percent: number, message: string } | null} null: another line
 */
function parseProgress(line) {
  if (!line.startsWith("@ ")) return null;
  try {
    return JSON.parse(line.slice(2));
  } catch {
    return null;
  }
}

/** The same for a program: each line of the stream is an object. */
export class JsonProgress {
  #stream;
  #profile = "";
  #index = 0;
  #count = 1;

  /** @param {Pick<NodeJS.WriteStream, "write">} stream */
  constructor(stream) {
    this.#stream = stream;
  }

  /** @param {string} message */
  note(message) {
    this.#write({ message });
  }

  /** @param {string} _name @param {string} what */
  begin(_name, what) {
    this.#profile = what;
  }

  /** @param {string} line */
  detail(line) {
    const progress = parseProgress(line);
    if (progress === null) return;
    const percent = Math.floor((100 * this.#index + progress.percent) / this.#count);
    const message = [this.#profile, progress.phase, progress.message].filter((word) => word).join(": ");
    this.#write({ percent, message });
  }

  /** Of several images, this one is being built. @param {number} index @param {number} count */
  part(index, count) {
    this.#index = index;
    this.#count = count;
  }

  /** @param {object} result */
  result(result) {
    this.#write({ result });
  }

  done() {}

  failed() {}

  /** @param {object} line */
  #write(line) {
    this.#stream.write(`${JSON.stringify(line)}\n`);
  }
}
