/**
 * The content of requests and answers between the daemon and a resident process. minit passes it on without reading it
 * (minit/protocol.h, "A resident process").
 *
 * A request is a u32 (little endian) with the length of the head, the head as JSON in UTF-8, and the body. The first
 * request is a `bind`: the process loads its function, once. Its body is a code cache or empty. Every later request is a
 * `call`, whose body is the payload. The daemon may send the first call before the bind is answered: the process answers in
 * this order.
 *
 * An answer is CALL_RESULT with a status below and its content. Console output of a call goes into CALL_LOG.
 */

/**
 * Tells a started process which function it serves. Answer: RETURNED, or NOT_LOADED with an `ErrorContent`.
 *
 * A code cache is what a process compiled of the version while it loaded it. The daemon does not look into it: it keeps the
 * content of the first such answer, and sends it to later processes of the same version alone. A process may ignore it.
 */
export interface BindHead {
  readonly type: "bind";
  /** The handler of the version, in the form that the runtime defines. */
  readonly handler: string;
  /** Protocol of the command of the runtime `custom`. Null in other runtimes. */
  readonly protocol: "http" | "lambda" | null;
  readonly function_id: string;
  readonly function_name: string;
  readonly version: number;
  readonly memory_limit_mb: number;
  /** Timeout of a call unless the call has its own. */
  readonly timeout_ms: number;
  /** Calls that may be in flight at the same time. */
  readonly concurrency: number;
  /**
   * `reset_between_calls`. True: timers, children and open handles that calls leave behind end when no call is in flight. False:
   * nothing of the process is touched between calls.
   */
  readonly cleanup: boolean;
  /** Absolute path. */
  readonly working_directory: string;
  /** The whole environment of the process from now on. */
  readonly environment: Readonly<Record<string, string>>;
  /** True: the content of RETURNED is a code cache of at most `result_bytes_max` bytes, or empty. */
  readonly code_cache?: true;
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
  /** Of the runtime `custom` with the protocol http: the request, checked. Absent: `POST /` without further headers. */
  readonly http?: {
    readonly method: string;
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
  };
}

/** Statuses of CALL_RESULT. */
export const STATUS = {
  /**
   * The handler returned. Content: its result as JSON, of at most `result_bytes_max` bytes (src/base/function-limits.ts);
   * empty if it returned nothing. The process answers `failed` for a larger one. The daemon fails the call too.
   */
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

/** Type of the error when the command of the runtime custom ended by itself: the daemon adds what it said last. */
export const COMMAND_EXITED = "CommandExited";

/** Content of `failed`, `not_loaded` and `exiting`, as JSON. The stack, if any, is written to the standard error of the call. */
export interface ErrorContent {
  /** Name of the error's class. */
  readonly type: string;
  readonly message: string;
}
