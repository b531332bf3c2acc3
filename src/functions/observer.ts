/** The port through which the function concern reports its calls. src/telemetry makes metrics and spans of them. */
import type { Trace } from "../base/trace.ts";
import type { FunctionRecord, InvocationRecord } from "./schema.ts";

export interface ObservedCall {
  /** As it was committed. */
  readonly record: InvocationRecord;
  readonly tenant_id: string;
  readonly trace: Trace;
  /** Monotonic. */
  readonly arrived_ms: number;
  /** From the outcome until the record was committed. */
  readonly commit_ms: number;
}

export interface CallObserver {
  /** Told of each call whose record is committed. Never throws. */
  invoked(call: ObservedCall): void;
  /** Told when a function is gone. Never throws. */
  deleted(record: Pick<FunctionRecord, "tenant_id" | "name">): void;
}
