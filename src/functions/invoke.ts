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

/** Whether the pool does not know the group: it went with the last instance of a version that was superseded. */
function isForgotten(error: unknown): boolean {
  return error instanceof AppError && error.code === "NOT_FOUND" && error.details === null;
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
   * START_FAILED. `find` finds the target, and finds it anew where the version was forgotten between the two.
   */
  async invoke(find: () => Target | Promise<Target>, input: InvokeFunction): Promise<InvocationRecord> {
    const found = find();
    let target = found instanceof Promise ? await found : found;
    const arrived_epoch_ms = this.#clock.epochMs();
    const arrived_ms = this.#clock.monotonicMs();
    const number = this.#invocations.number();
    let outcome: Outcome;
    try {
      outcome = await this.#submit(target, input, number.id, arrived_ms);
    } catch (error) {
      const newer = isForgotten(error) ? await find() : target;
      if (newer.group === target.group) throw inFunctionTerms(error, target.record);
      target = newer;
      outcome = await this.#submit(target, input, number.id, arrived_ms).catch((again) => {
        throw inFunctionTerms(again, newer.record);
      });
    }
    const { record } = target;
    const total_ms = Math.round((this.#clock.monotonicMs() - arrived_ms) * 1000) / 1000;
    const result: InvocationRecord = {
      invocation_id: number.id,
      function_id: record.id,
      function_name: record.name,
      version: record.version,
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

  #submit(target: Target, input: InvokeFunction, invocation_id: string, arrived_ms: number): Promise<Outcome> {
    const { record } = target;
    if (!functionStates.can(record.state, "invoke")) throw wrongState(record.state);
    const timeout_ms = (input.timeout_seconds ?? record.timeout_seconds) * 1000;
    const call = { target, invocation_id, environment: input.environment, payload: input.payload, timeout_ms };
    return this.#pool.submit(target.group, call, { deadline_ms: arrived_ms + timeout_ms });
  }
}
