/** An expected failure of set-up: `message` is the one line that the user reads, `tail` the last output of a command. */
export class SetupError extends Error {
  /** @param {string} message @param {string} [tail] lines, each ended by a newline */
  constructor(message, tail = "") {
    super(message);
    this.name = "SetupError";
    this.tail = tail;
  }
}
