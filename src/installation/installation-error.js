/** An expected failure of this installation: `message` is the one line for the user, `tail` the last output of a command. */
export class InstallationError extends Error {
  /** @param {string} message @param {string} [tail] lines, each ended by a newline */
  constructor(message, tail = "") {
    super(message);
    this.name = "InstallationError";
    this.tail = tail;
  }
}
