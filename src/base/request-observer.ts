/**
 * Served requests: the port through which a listener reports each request once, when its answer is made. src/telemetry
 * makes metrics, log lines and spans of them, src/audit its records.
 */
import type { Caller } from "./caller.ts";
import type { ErrorCode } from "./errors.ts";
import type { Trace } from "./trace.ts";

/** What a handler tells of its request beside the answer. Nothing in it is a payload, an output or a secret. */
export interface RequestNotes {
  function?: string;
  version?: number;
  invocation_id?: string;
  /** Whether the call was a cold start. */
  cold?: boolean;
  /** How the invocation went; its request has status 200 all the same. */
  outcome?: string;
}

export interface Served {
  readonly request_id: string;
  readonly method: string;
  /** The route's pattern; null where no route answers. The path that was sent is not told. */
  readonly route: string | null;
  /** The route's name in the description of the API; null where no route answers. */
  readonly operation: string | null;
  /** Of the other end of the connection; null once it has gone. */
  readonly address: string | null;
  /** True if it asked for a change: of things, credentials, or what runs. */
  readonly is_change: boolean;
  /** Path parameters and the id of what was made, of a change or a refusal. */
  readonly target: string | null;
  readonly status: number;
  /** Null unless the request was refused or failed. */
  readonly error_code: ErrorCode | null;
  /** A GET that a console repeats, as its header `X-Hearth-Poll` says. */
  readonly is_poll: boolean;
  /** Null on public routes, and where the credential was refused. */
  readonly caller: Caller | null;
  /** Monotonic. */
  readonly begun_ms: number;
  readonly ended_ms: number;
  readonly trace: Trace;
  readonly notes: RequestNotes;
}

export interface Observer {
  /** Never throws. */
  served(request: Served): void;
}

/** Returns an observer that tells each of others of every request. */
export function inTurn(...observers: readonly Observer[]): Observer {
  return {
    served(request) {
      for (const observer of observers) observer.served(request);
    },
  };
}
