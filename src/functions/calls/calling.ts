/** A call on its way into an instance: what its caller asked for, and what the launcher adds. */
import type { CallHead } from "../../../runtimes/index.ts";
import type { Trace } from "../../base/trace.ts";
import type { Target } from "../target.ts";

export interface Call {
  readonly target: Target;
  readonly invocation_id: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly payload: string;
  readonly timeout_ms: number;
  /** Monotonic: the deadline of the call that made it, which it does not outlast; infinite for one from outside. */
  readonly ends_ms: number;
  /** Calls above it in its chain. */
  readonly depth: number;
  readonly trace: Trace;
  /** The request that a server of the runtime custom gets; absent: `POST /`. */
  readonly http?: CallHead["http"];
}

/** Where and as whom a handler calls the API. */
export interface ApiAccess {
  readonly url: string;
  readonly token: string;
}

/** A call in an instance that is bound to its version. */
export interface Calling {
  readonly call: Call;
  /** Time that the handler has. */
  readonly timeout_ms: number;
  readonly deadline_epoch_ms: number;
  readonly api: ApiAccess | null;
  /** Variables of the version, with the values of its secrets. */
  readonly environment: Readonly<Record<string, string>>;
  /** Takes output of the call after its answer. Returns true if that begins a write. */
  onLate(text: string): boolean;
  /** True if the kernel has killed for memory in the instance since this was last asked. */
  hasOomKill(): boolean;
}
