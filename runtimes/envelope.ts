/**
 * What the daemon and a resident process say to each other: the content of the calls that minit passes on
 * (minit/protocol.h, "A resident process"). minit does not look into it.
 *
 * A request is a u32 (little endian) with the length of the head, the head as JSON in UTF-8, and the body. Its first
 * request is a `bind`, which has no body: the process takes on a function, once. Every later one is a `call`, whose body is
 * the payload. The daemon may send the first call right behind the bind: the process answers in this order.
 *
 * An answer is CALL_RESULT with a status below and its content. Console output of a call goes into CALL_LOG.
 */

/** Tells a started process which function it serves. Answer: RETURNED, or NOT_LOADED with an `ErrorContent`. */
export interface BindHead {
  readonly type: "bind";
  /** As the version has it: what it names is the runtime's. */
  readonly handler: string;
  /** Of the runtime `custom`: how its command takes calls. Null otherwise. */
  readonly protocol: "http" | "lambda" | null;
  readonly function_id: string;
  readonly function_name: string;
  readonly version: number;
  readonly memory_limit_mb: number;
  /** Timeout of a call unless the call has its own. */
  readonly timeout_ms: number;
  /** Calls that may be in flight at the same time. */
  readonly concurrency: number;
  /** True: what a call leaves behind (timers, children, open handles) ends when no call is in flight. */
  readonly cleanup: boolean;
  /** Absolute path. */
  readonly working_directory: string;
  /** The whole environment of the process from now on. */
  readonly environment: Readonly<Record<string, string>>;
}

/** One call. */
export interface CallHead {
  readonly type: "call";
  readonly invocation_id: string;
  /** Milliseconds since the epoch. The process answers TIMED_OUT at this time if it still can; minit kills it soon after. */
  readonly deadline_ms: number;
  readonly traceparent: string;
  readonly tracestate?: string;
  /** Variables of this call alone. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Address and credential of the API, for a function with `api_access`. */
  readonly api?: { readonly url: string; readonly token: string };
}

/** Statuses of CALL_RESULT. */
export const STATUS = {
  /** The handler returned. Content: its result as JSON; empty if it returned nothing. */
  returned: 0,
  /** The handler failed. Content: `ErrorContent`. */
  failed: 1,
  /** The deadline passed before the handler returned. No content. The daemon ends the process after its other calls. */
  timed_out: 2,
  /** The function cannot be loaded; a call gets it too. Content: `ErrorContent`. The daemon ends the process. */
  not_loaded: 3,
  /** The handler failed, and the process exits. Content: `ErrorContent`. The daemon sends it no more calls. */
  exiting: 4,
} as const;

/** Content of `failed`, `not_loaded` and `exiting`, as JSON. The stack, if any, is written to the standard error of the call. */
export interface ErrorContent {
  /** Name of the error's class. */
  readonly type: string;
  readonly message: string;
}

/** Largest result in bytes. A process answers `failed` for a larger one; the daemon cuts what comes all the same. */
export const RESULT_BYTES_MAX = 1024 * 1024;
