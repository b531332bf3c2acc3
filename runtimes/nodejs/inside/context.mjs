/** The second argument of a handler. README.md describes it. Parts that few handlers use are made when they are read. */
import { contentOf, withoutOwnFrames } from "./errors.mjs";

const now = Date.now;

/** Returns a log whose lines are JSON on the standard error, each with the id of its invocation. */
function logOf(invocation_id) {
  const write = (level) => (message, fields) => {
    const head = { time: new Date(now()).toISOString(), level, invocation_id, message: String(message) };
    process.stderr.write(`${lineOf(head, fields)}\n`);
  };
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

function lineOf(head, fields) {
  const value = (_key, part) =>
    part instanceof Error
      ? { ...JSON.parse(contentOf(part)), stack: withoutOwnFrames(String(part.stack)) }
      : typeof part === "bigint"
        ? `${part}`
        : part;
  try {
    return JSON.stringify(fields instanceof Error ? { ...head, error: fields } : { ...fields, ...head }, value);
  } catch (error) {
    return JSON.stringify({ ...head, fields_error: String(error) });
  }
}

export class Context {
  #head;
  #abort = null;
  #log = null;
  #environment = null;
  #isLate = false;

  constructor(head, binding) {
    this.#head = head;
    this.invocation_id = head.invocation_id;
    this.function_id = binding.function_id;
    this.function_name = binding.function_name;
    this.version = binding.version;
    this.memory_limit_mb = binding.memory_limit_mb;
    this.deadline_ms = head.deadline_ms;
  }

  /** Milliseconds until the deadline, not below 0. */
  remaining_ms() {
    return Math.max(0, this.deadline_ms - now());
  }

  /** Aborts at the deadline. */
  get signal() {
    if (this.#abort === null) {
      this.#abort = new AbortController();
      if (this.#isLate) this.expire();
    }
    return this.#abort.signal;
  }

  get trace() {
    return { traceparent: this.#head.traceparent, tracestate: this.#head.tracestate ?? null };
  }

  get log() {
    this.#log ??= logOf(this.invocation_id);
    return this.#log;
  }

  /** The environment of the function with the variables of this call. */
  get environment() {
    this.#environment ??= { ...process.env, ...this.#head.environment };
    return this.#environment;
  }

  /** Address and credential of the API, or null. */
  get api() {
    return this.#head.api ?? null;
  }

  // The names of AWS Lambda, with its types: numbers of the function are strings.

  get awsRequestId() {
    return this.invocation_id;
  }

  get functionName() {
    return this.function_name;
  }

  get functionVersion() {
    return String(this.version);
  }

  get memoryLimitInMB() {
    return String(this.memory_limit_mb);
  }

  get invokedFunctionArn() {
    return `arn:aws:lambda:local:000000000000:function:${this.function_name}:${this.version}`;
  }

  get logGroupName() {
    return `/aws/lambda/${this.function_name}`;
  }

  get logStreamName() {
    return this.functionVersion;
  }

  getRemainingTimeInMillis() {
    return this.remaining_ms();
  }

  /** The runtime calls it at the deadline. */
  expire() {
    this.#isLate = true;
    this.#abort?.abort(new DOMException("the deadline of the call passed", "TimeoutError"));
  }
}
