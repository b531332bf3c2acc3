/**
 * The calls of the process: parses requests, runs the handler and answers.
 *
 * C1 Each call is answered once: `isDone` says that it was.
 * C2 A late call is answered TIMED_OUT whatever its handler does next: it has a turn of the loop for its last output.
 * C3 One timer serves all deadlines. It stands at the earliest one, or earlier.
 */
import { Context } from "./context.mjs";
import { contentOf, RuntimeError, stackOf } from "./errors.mjs";
import { load } from "./load.mjs";
import { restart } from "./restart.mjs";
import { startOf } from "./start-variables.mjs";

const RETURNED = 0;
const FAILED = 1;
const TIMED_OUT = 2;
const NOT_LOADED = 3;
const EXITING = 4;
const RESULT_BYTES_MAX = 1024 * 1024;
const TIMER_MS_MAX = 2 ** 31 - 1;

const { parse, stringify } = JSON;
const now = Date.now;
const after = setTimeout;
const soon = setImmediate;
const cancel = clearTimeout;

/** First bytes of JSON: { [ " - t f n, digits and white space. */
const JSON_STARTS = new Set([...'{["-tfn0123456789 \t\r\n'].map((character) => character.charCodeAt(0)));

/** What a number above the largest double has: an exponent of three digits, or 210 digits, which leave 99 to the exponent. */
const LARGE = /[eE]\+?\d{3}|\d{210}/u;

/** Throws for a number that no double holds: its value would be Infinity. */
function payloadOf(bytes, start, end) {
  if (start === end) return undefined;
  const text = bytes.toString("utf8", start, end);
  if (!JSON_STARTS.has(bytes[start])) return text;
  let payload;
  try {
    payload = parse(text);
  } catch {
    return text;
  }
  if (LARGE.test(text)) parse(text, refuseLarge);
  return payload;
}

function refuseLarge(_key, value, { source }) {
  if (value !== Infinity && value !== -Infinity) return value;
  throw new RuntimeError(
    "PayloadNumberTooLarge",
    `the payload has a number above ${Number.MAX_VALUE}: ${source.slice(0, 64)}`,
  );
}

const notJson = (why) => new RuntimeError("ResultNotJson", `the result cannot be expressed as JSON: ${why}`);

/** What JSON.stringify itself throws. Errors of a toJSON are the function's. */
function jsonOf(value) {
  try {
    return stringify(value);
  } catch (error) {
    const text = error instanceof TypeError ? error.message : "";
    if (text.startsWith("Converting circular structure")) throw notJson("it contains itself");
    if (text.startsWith("Do not know how to serialize")) throw notJson("it contains a value of type bigint");
    throw error;
  }
}

/** Returns the JSON text of a result, empty for undefined. Throws for what JSON cannot express and for too much. */
function resultText(value) {
  if (value === undefined) return "";
  const text = jsonOf(value);
  if (text === undefined) throw notJson(`it is a ${typeof value}`);
  // A character of UTF-16 has at most three bytes in UTF-8.
  if (text.length * 3 <= RESULT_BYTES_MAX) return text;
  const size = Buffer.byteLength(text);
  if (size <= RESULT_BYTES_MAX) return text;
  throw new RuntimeError("ResultTooLarge", `the result has ${size} bytes (limit ${RESULT_BYTES_MAX})`);
}

/** A request in flight, bind included. It is the asynchronous context of what it runs. */
class Call {
  isDone = false;
  isLate = false;
  /** True if minit knows of no other call: what comes from descriptors 1 and 2 is this one's. */
  isSole = false;
  log_bytes = 0;
  context = null;
  constructor(id, head) {
    this.id = id;
    this.head = head;
    this.isBind = head.type === "bind";
  }
}

export class Calls {
  /** Assigned once: the wire needs the calls and they need it. */
  wire = null;
  output = null;
  #isResumed;
  #contexts;
  #directories;
  #inFlight = new Map();
  /** The bind, its promise, and what came of it: a handler, or the ErrorContent of NOT_LOADED. */
  #binding = null;
  #bound = null;
  #handler = null;
  #refusal = null;
  #onBound;
  #timer_at = Infinity;
  #timer = null;
  #expire = () => this.#checkDeadlines();

  /** `isResumed`: the program has started anew for its function already. */
  constructor(contexts, directories, onBound, isResumed) {
    this.#isResumed = isResumed;
    this.#contexts = contexts;
    this.#directories = directories;
    this.#onBound = onBound;
  }

  get isIdle() {
    return this.#inFlight.size === 0;
  }

  /** True if no other call is in flight beside one, nor on its way: also while the function is loaded. */
  get isSequential() {
    return this.#handler === null || this.#binding.concurrency === 1;
  }

  /** The call of the asynchronous context, which may have been answered; undefined: there is none. */
  current() {
    return this.#contexts.getStore();
  }

  /** The only call in flight, or null. */
  sole() {
    return this.#inFlight.size === 1 ? this.#inFlight.values().next().value : null;
  }

  /** Takes a request of envelope.ts. Returns what the wire shall do with a bind for which the program has to start anew. */
  take(id, bytes, start, end) {
    const body = start + 4 + bytes.readUInt32LE(start);
    const call = new Call(id, parse(bytes.toString("utf8", start + 4, body)));
    this.#inFlight.set(id, call);
    if (call.isBind) {
      const onward = this.#binding === null ? this.#restart(call, bytes, start, end) : undefined;
      if (onward === undefined) this.#bind(call, bytes.subarray(body, end));
      return onward;
    }
    this.#watch(call.head.deadline_ms);
    let payload;
    try {
      payload = payloadOf(bytes, body, end);
    } catch (error) {
      this.fail(call, error);
      return;
    }
    if (this.#handler !== null) this.#run(call, payload);
    else this.#wait(call, payload);
  }

  /** Answers `failed` or NOT_LOADED. */
  fail(call, error, status = call.isBind ? NOT_LOADED : FAILED) {
    if (call.isDone) return;
    this.#finish(call, status, contentOf(error));
  }

  /** Answers a call whose process exits: EXITING or NOT_LOADED. */
  end(call, error) {
    this.fail(call, error, call.isBind ? NOT_LOADED : EXITING);
  }

  #restart(call, bytes, start, end) {
    if (this.#isResumed) return undefined;
    try {
      const how = startOf(call.head.environment);
      if (how === null) return undefined;
      const request = Buffer.from(bytes.subarray(start, end));
      process.chdir(call.head.working_directory);
      return (framesOf) => this.#startAnew(call, how, framesOf(call.id, request));
    } catch {
      // The bind answers with what is wrong.
      return undefined;
    }
  }

  #startAnew(call, how, frames) {
    try {
      restart(how, frames, this.#directories);
    } catch (error) {
      this.#binding = call.head;
      this.#bound = Promise.resolve();
      this.#refusal = contentOf(error);
      this.#finish(call, NOT_LOADED, this.#refusal);
    }
  }

  async #bind(call, cache) {
    if (this.#binding !== null) {
      this.fail(call, new RuntimeError("ProtocolError", "the process is bound already"), FAILED);
      return;
    }
    this.#binding = call.head;
    this.#bound = this.#load(call, cache);
    try {
      const { handler, code_cache } = await this.#bound;
      if (call.isDone) return;
      this.#onBound(call.head);
      this.#handler = handler;
      this.#finish(call, RETURNED, code_cache ?? "");
    } catch (error) {
      this.output.error(call, stackOf(error));
      this.#refusal = contentOf(error);
      if (!call.isDone) this.#finish(call, NOT_LOADED, this.#refusal);
    }
  }

  /** Resolves to what `load` does. A rejection that the module does not handle comes before that, and is the answer. */
  async #load(call, cache) {
    const loaded = await this.#contexts.run(call, load, call.head, cache, this.#directories);
    await new Promise((resolve) => soon(resolve));
    return loaded;
  }

  /** Runs a call after the bind. */
  async #wait(call, payload) {
    if (this.#binding === null) {
      this.fail(call, new RuntimeError("ProtocolError", "the process is not bound"));
      return;
    }
    // The bind is answered first, by those who waited before.
    await this.#bound.then(null, () => {});
    if (call.isDone) return;
    // minit has to know of that answer before the call's output comes.
    this.wire.flush();
    if (this.#refusal !== null) this.#finish(call, NOT_LOADED, this.#refusal);
    else this.#run(call, payload);
  }

  async #run(call, payload) {
    const context = new Context(call.head, this.#binding);
    call.context = context;
    call.isSole = this.#binding.concurrency === 1 && this.wire.isFlushed;
    if (this.#binding.concurrency === 1 && call.head.environment !== undefined) this.#lend(call);
    try {
      const value = await this.#contexts.run(call, this.#handler, payload, context);
      if (call.isDone) return;
      this.#finish(call, RETURNED, this.#contexts.run(call, resultText, value));
    } catch (error) {
      if (call.isDone) return;
      if (!call.isLate) this.output.error(call, this.#contexts.run(call, stackOf, error));
      this.fail(call, error);
    }
  }

  /** Sets the variables of the only call in process.env until it is done. */
  #lend(call) {
    const before = Object.entries(call.head.environment).map(([name]) => [name, process.env[name]]);
    Object.assign(process.env, call.head.environment);
    call.giveBack = () => {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    };
  }

  /** Answers with text, or with bytes. */
  #finish(call, status, content) {
    call.isDone = true;
    this.#inFlight.delete(call.id);
    call.giveBack?.();
    if (call.isLate) this.wire.answer(call.id, TIMED_OUT, "");
    else this.wire.answer(call.id, status, content);
  }

  #watch(deadline_ms) {
    if (deadline_ms >= this.#timer_at) return;
    if (this.#timer !== null) cancel(this.#timer);
    this.#timer_at = deadline_ms;
    this.#timer = after(this.#expire, Math.min(TIMER_MS_MAX, Math.max(0, deadline_ms - now())));
  }

  #checkDeadlines() {
    this.#timer = null;
    this.#timer_at = Infinity;
    const at = now();
    for (const call of this.#inFlight.values()) {
      if (call.isBind || call.isLate) continue;
      if (call.head.deadline_ms > at) this.#watch(call.head.deadline_ms);
      else this.#timeOut(call);
    }
  }

  #timeOut(call) {
    call.isLate = true;
    soon(() => {
      if (!call.isDone) this.#finish(call, TIMED_OUT, "");
    });
    this.#contexts.run(call, () => call.context?.expire());
  }
}
