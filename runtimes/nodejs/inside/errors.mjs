/** Errors of handlers as the daemon and people read them. Handlers can throw anything, objects that throw again too. */
import { inspect } from "node:util";

const MESSAGE_LENGTH_MAX = 8 * 1024;
const STACK_LENGTH_MAX = 64 * 1024;

function textOf(read, instead) {
  try {
    const text = read();
    return typeof text === "string" ? text : String(text);
  } catch {
    return instead;
  }
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

/** An error of the runtime itself, for `ErrorContent`. */
export class RuntimeError extends Error {
  constructor(type, message) {
    super(message);
    this.name = type;
  }
}

/** Returns an `ErrorContent` as JSON. */
export function contentOf(error) {
  const isObject = (typeof error === "object" && error !== null) || typeof error === "function";
  const type = isObject
    ? textOf(() => error.name || error.constructor?.name || "Object", "Object")
    : error === null
      ? "null"
      : typeof error;
  const message = isObject
    ? textOf(() => (error instanceof Error ? error.message : inspect(error, { depth: 1 })), "")
    : textOf(() => String(error), "");
  return JSON.stringify({ type: cut(type, 256), message: cut(message, MESSAGE_LENGTH_MAX) });
}

/** Returns the stack with its cause and properties, and a newline. */
export function stackOf(error) {
  const read = () => (error instanceof RuntimeError ? `${error.name}: ${error.message}` : inspect(error));
  const text = textOf(read, "an error that cannot be read");
  return `${cut(text, STACK_LENGTH_MAX)}\n`;
}
