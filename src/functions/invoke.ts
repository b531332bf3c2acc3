/**
 * Hot path. One invocation: from a target and a request to a committed record. The answer leaves after the commit.
 */
import type { Pool } from "../../pool/index.ts";
import type { Clock } from "../base/clock.ts";
import { toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Invocations } from "./invocations.ts";
import type { Call, Outcome } from "./launch.ts";
import type { FunctionRecord, InvocationRecord, InvokeFunction } from "./schema.ts";
import { functionStates } from "./states.ts";
import type { Target } from "./target.ts";

function wrongState(state: string): AppError {
  return new AppError("WRONG_STATE", `cannot invoke a function that is ${state}`, {
    details: { state, expected: ["active"] },
    hint: state === "paused" ? "resume it first" : "deploy it first",
  });
}

/** The pool speaks of groups. A call that meets its group on the way out hears what became of the function. */
function inFunctionTerms(error: unknown, { name }: FunctionRecord): unknown {
  if (!(error instanceof AppError)) return error;
  const state = error.details?.state ?? null;
  if (error.code === "WRONG_STATE" && state !== null) return wrongState(state);
  if (error.code !== "NOT_FOUND") return error;
  if (state === "deleted") return new AppError("NOT_FOUND", `function '${name}' not found`, { cause: error });
  return new AppError("WRONG_STATE", "cannot invoke the function: its state changed at the same time", {
    hint: "read the function and try again",
    cause: error,
  });
}

export class Invoker {
  readonly #pool: Pool<Call, Outcome>;
  readonly #invocations: Invocations;
  readonly #clock: Clock;
  readonly #node_id: string;

  constructor(pool: Pool<Call, Outcome>, invocations: Invocations, clock: Clock, node_id: string) {
    this.#pool = pool;
    this.#invocations = invocations;
    this.#clock = clock;
    this.#node_id = node_id;
  }

  /**
   * Runs one call and commits its record. Whatever the handler does is data in the record; thrown are refusals:
   * WRONG_STATE (not deployed, paused), NOT_FOUND (deleted meanwhile), QUEUE_FULL, QUEUE_TIMEOUT, CAPACITY_FULL,
   * START_FAILED.
   */
  async invoke(target: Target, input: InvokeFunction): Promise<InvocationRecord> {
    const { record } = target;
    if (!functionStates.can(record.state, "invoke")) throw wrongState(record.state);
    const arrived_epoch_ms = this.#clock.epochMs();
    const arrived_ms = this.#clock.monotonicMs();
    const number = this.#invocations.number();
    const timeout_ms = (input.timeout_seconds ?? record.timeout_seconds) * 1000;
    const call = {
      target,
      invocation_id: number.id,
      environment: input.environment,
      payload: input.payload,
      timeout_ms,
    };
    let outcome: Outcome;
    try {
      outcome = await this.#pool.submit(target.group, call, { deadline_ms: arrived_ms + timeout_ms });
    } catch (error) {
      throw inFunctionTerms(error, record);
    }
    const total_ms = Math.round((this.#clock.monotonicMs() - arrived_ms) * 1000) / 1000;
    const result: InvocationRecord = {
      invocation_id: number.id,
      function_id: record.id,
      function_name: record.name,
      version: record.current_version,
      execution_node_id: this.#node_id,
      status: outcome.status,
      started_at: toEpochSeconds(arrived_epoch_ms),
      ended_at: toEpochSeconds(arrived_epoch_ms + total_ms),
      duration_ms: Math.round(outcome.timings.handler),
      exit_code: outcome.exit_code,
      stdout: outcome.stdout,
      stderr: outcome.stderr,
      stdout_truncated: outcome.stdout_truncated,
      stderr_truncated: outcome.stderr_truncated,
      error_message: outcome.error_message,
      cold_start: outcome.cold_start,
      instance_nonce: outcome.instance_nonce,
      timings: { ...outcome.timings, total: total_ms },
    };
    await this.#invocations.append(target.function_seq, number, result);
    return result;
  }
}
