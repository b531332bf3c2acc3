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

/** A package that Node did not find, by ECMAScript's import and by require. */
const PACKAGE = /^Cannot find (?:package|module) '(?![./])/u;

/** The message of an error on one line. Of a missing package it says how to install it. */
function messageOf({ code, message }) {
  if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") return message;
  const [line] = message.split("\n", 1);
  if (!PACKAGE.test(line)) return line;
  return `${line}: name it in package.json and run hearth deploy --build, which installs dependencies`;
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
    ? textOf(() => (error instanceof Error ? messageOf(error) : inspect(error, { depth: 1 })), "")
    : textOf(() => String(error), "");
  return JSON.stringify({ type: cut(type, 256), message: cut(message, MESSAGE_LENGTH_MAX) });
}

const FRAME = /^\s+at /u;
const OWN = import.meta.url.slice(0, import.meta.url.lastIndexOf("/") + 1);
/** Of Node itself, as it writes its own modules. */
const BUILTIN = /[ (]node:[\w/:.]+\)?$/u;

/** In place of frames that an error has in common with its cause, those of the runtime among them. */
const MATCHING = /^\s+\.\.\. \d+ lines matching cause stack trace \.\.\.$/u;

/** Returns a stack without the frames of the runtime, and those of Node between and around them. */
export function withoutOwnFrames(stack) {
  if (!stack.includes(OWN)) return stack;
  const kept = [];
  let run = [];
  let isOwn = false;
  const end = () => {
    if (!isOwn) kept.push(...run);
    run = [];
    isOwn = false;
  };
  for (const line of stack.split("\n")) {
    // inspect() opens the properties of an error, or its cause, behind the last frame.
    const opened = FRAME.test(line) ? / ([{[])$/u.exec(line) : null;
    const frame = opened === null ? line : line.slice(0, opened.index);
    const isOwnFrame = FRAME.test(frame) && frame.includes(OWN);
    if (isOwnFrame || (FRAME.test(frame) && BUILTIN.test(frame))) {
      run.push(line);
      isOwn ||= isOwnFrame;
      if (opened === null) continue;
      const isCut = isOwn;
      end();
      if (isCut) kept[kept.length - 1] += ` ${opened[1]}`;
      continue;
    }
    if (MATCHING.test(line)) {
      end();
      kept.push(line);
      isOwn = true;
      continue;
    }
    end();
    kept.push(line);
  }
  end();
  return kept.join("\n");
}

/** Returns the stack with its cause and properties, and a newline. */
export function stackOf(error) {
  const read = () =>
    error instanceof RuntimeError ? `${error.name}: ${error.message}` : withoutOwnFrames(inspect(error));
  const text = textOf(read, "an error that cannot be read");
  return `${cut(text, STACK_LENGTH_MAX)}\n`;
}
