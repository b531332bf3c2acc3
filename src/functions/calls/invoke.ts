/**
 * Hot path. One invocation: from a target and a request to a committed record. The answer leaves after the commit.
 */
import type { Pool } from "../../../pool/index.ts";
import type { Caller, Scope } from "../../base/caller.ts";
import type { Clock } from "../../base/clock.ts";
import { toEpochSeconds } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { RequestNotes } from "../../base/request-observer.ts";
import type { Trace } from "../../base/trace.ts";
import { heldElsewhere } from "../../store/store.ts";
import { httpOf } from "../http-fields.ts";
import type { CallObserver } from "../observer.ts";
import type { Invocations } from "../records/invocations.ts";
import type { FunctionRecord, InvocationRecord, InvokeFunction } from "../schema.ts";
import { functionStates } from "../states.ts";
import type { Target } from "../target.ts";
import { secretNames } from "./bindings.ts";
import type { Call } from "./calling.ts";
import type { ConcurrencyLimiter } from "./concurrency.ts";
import type { Outcome } from "./outcome.ts";

function wrongState(state: string): AppError {
  return new AppError("WRONG_STATE", `cannot invoke a function that is ${state}`, {
    details: { state, expected: ["active"] },
    hint: state === "paused" ? "resume it first" : "deploy it first",
  });
}

function tooDeep(): AppError {
  return new AppError("CHAIN_TOO_DEEP", `chain of calls too deep (limit ${LIMITS.chain_depth_max})`, {
    details: { expected: [`<= ${LIMITS.chain_depth_max}`] },
    hint: "check for functions that call each other in a cycle",
  });
}

/** A field that lets a handler do or read more than a caller who only invokes, and what a caller needs to change the handler. */
interface Guard {
  readonly field: "api_access" | "secrets";
  readonly scopes: readonly Scope[];
}

/**
 * Returns what guards the variables of a call; null: any caller may set them. Variables can make a handler run anything
 * (`BASH_ENV`, `NODE_OPTIONS`, another `HEARTH_URL`): use the token of its call, or print its secrets.
 */
function guardOf(record: FunctionRecord): Guard | null {
  if (record.api_access) return { field: "api_access", scopes: ["write", ...record.api_scopes] };
  return secretNames(record).length > 0 ? { field: "secrets", scopes: ["write"] } : null;
}

function mayNotSetVariables({ name }: FunctionRecord, { field }: Guard, lacking: Scope): AppError {
  return new AppError(
    "FORBIDDEN",
    `the key lacks the scope '${lacking}', required to set variables of '${name}' because of its ${field}`,
    {
      details: { expected: [lacking] },
      hint: `send the values in the payload, or use a key with the scope ${lacking}`,
    },
  );
}

/** The pool speaks of groups. A call that meets its group on the way out hears what became of the function. */
function inFunctionTerms(error: unknown, { name, owner_node_id }: FunctionRecord, node_id: string): unknown {
  if (!(error instanceof AppError)) return error;
  const state = error.details?.state ?? null;
  if (error.code === "WRONG_STATE" && state !== null) return wrongState(state);
  if (error.code !== "NOT_FOUND") return error;
  if (owner_node_id !== node_id) return heldElsewhere(`function '${name}'`);
  if (state === "deleted") return new AppError("NOT_FOUND", `function '${name}' not found`, { cause: error });
  return new AppError("WRONG_STATE", "cannot invoke the function: its state changed at the same time", {
    hint: "read the function and retry",
    cause: error,
  });
}

/** Whether the pool does not know the group: it went with the last instance of a version that was superseded. */
function isForgotten(error: unknown): boolean {
  return error instanceof AppError && error.code === "NOT_FOUND" && error.details === null;
}

export interface InvokerOptions {
  readonly pool: Pool<Call, Outcome>;
  readonly invocations: Invocations;
  readonly clock: Clock;
  readonly concurrency: ConcurrencyLimiter;
  /** Calls that any one tenant may have in flight; null: no limit. */
  readonly tenant_limit: number | null;
  readonly observer: CallObserver;
}

/** What a call is made with beside its input: who calls, in which trace, and where to note what became of it. */
export interface CallingRequest {
  readonly caller: Caller;
  readonly trace: Trace;
  note(notes: RequestNotes): void;
}

export class Invoker {
  readonly #pool: Pool<Call, Outcome>;
  readonly #invocations: Invocations;
  readonly #clock: Clock;
  readonly #concurrency: ConcurrencyLimiter;
  readonly #tenant_limit: number | null;
  readonly #observer: CallObserver;

  constructor({ pool, invocations, clock, concurrency, tenant_limit, observer }: InvokerOptions) {
    this.#pool = pool;
    this.#invocations = invocations;
    this.#clock = clock;
    this.#concurrency = concurrency;
    this.#tenant_limit = tenant_limit;
    this.#observer = observer;
  }

  /**
   * Runs one call and commits its record. Whatever the handler does is data in the record; thrown are refusals:
   * WRONG_STATE (not deployed, paused), NOT_FOUND (deleted meanwhile), QUEUE_FULL, QUEUE_TIMEOUT, CAPACITY_FULL,
   * START_FAILED, CONCURRENCY_LIMIT, CHAIN_TOO_DEEP, FORBIDDEN (variables for a function with `api_access` or secrets),
   * INVALID_ARGUMENT (a path, method or headers for a function that takes no HTTP requests).
   * `find` finds the target, and finds it anew where the version was forgotten between the two. A request from inside of an
   * invocation makes a nested call.
   */
  async invoke(
    find: () => Target | Promise<Target>,
    input: InvokeFunction,
    request: CallingRequest,
  ): Promise<InvocationRecord> {
    const found = find();
    const target = found instanceof Promise ? await found : found;
    const { id, tenant_id, concurrency_limit, name, version } = target.record;
    request.note({ function: name, version });
    this.#concurrency.enter(id, concurrency_limit, tenant_id, this.#tenant_limit);
    try {
      return await this.#run(target, find, input, request);
    } finally {
      this.#concurrency.leave(id, tenant_id);
    }
  }

  async #run(
    first: Target,
    find: () => Target | Promise<Target>,
    input: InvokeFunction,
    request: CallingRequest,
  ): Promise<InvocationRecord> {
    let target = first;
    const arrived_epoch_ms = this.#clock.epochMs();
    const arrived_ms = this.#clock.monotonicMs();
    const number = this.#invocations.number();
    let outcome: Outcome;
    try {
      outcome = await this.#submit(target, input, number.id, arrived_ms, request);
    } catch (error) {
      const newer = isForgotten(error) ? await find() : target;
      if (newer.group === target.group) throw inFunctionTerms(error, target.record, this.#invocations.node_id);
      target = newer;
      outcome = await this.#submit(target, input, number.id, arrived_ms, request).catch((again) => {
        throw inFunctionTerms(again, newer.record, this.#invocations.node_id);
      });
    }
    failpoint("functions.invoke.ended");
    const { record } = target;
    const ended_ms = this.#clock.monotonicMs();
    const total_ms = Math.round((ended_ms - arrived_ms) * 1000) / 1000;
    const result: InvocationRecord = {
      invocation_id: number.id,
      function_id: record.id,
      function_name: record.name,
      version: record.version,
      execution_node_id: this.#invocations.node_id,
      status: outcome.status,
      started_at: toEpochSeconds(arrived_epoch_ms),
      ended_at: toEpochSeconds(arrived_epoch_ms + total_ms),
      duration_ms: Math.round(outcome.timings.handler),
      exit_code: outcome.exit_code,
      result: outcome.result?.value ?? null,
      stdout: outcome.stdout,
      stderr: outcome.stderr,
      stdout_truncated: outcome.stdout_truncated,
      stderr_truncated: outcome.stderr_truncated,
      error_message: outcome.error_message,
      cold_start: outcome.cold_start,
      instance_nonce: outcome.instance_nonce,
      timings: { ...outcome.timings, total: total_ms },
    };
    await this.#invocations.append(target.function_seq, number, result, outcome.result?.json ?? null);
    const { version, status: how, cold_start: cold } = result;
    request.note({ version, invocation_id: number.id, cold, outcome: how });
    const commit_ms = this.#clock.monotonicMs() - ended_ms;
    const { trace } = request;
    this.#observer.invoked({ record: result, tenant_id: record.tenant_id, trace, arrived_ms, commit_ms });
    return result;
  }

  async #submit(
    target: Target,
    input: InvokeFunction,
    invocation_id: string,
    arrived_ms: number,
    { caller: { invocation: parent, scopes }, trace }: CallingRequest,
  ): Promise<Outcome> {
    const { record } = target;
    const { timeout_seconds, environment, payload } = input;
    if (!functionStates.can(record.state, "invoke")) throw wrongState(record.state);
    if (Object.keys(environment).length > 0) {
      const guard = guardOf(record);
      const lacking = guard?.scopes.find((scope) => !scopes.includes(scope));
      if (guard !== null && lacking !== undefined) throw mayNotSetVariables(record, guard, lacking);
    }
    const http = httpOf(input, record);
    const depth = parent === null ? 0 : parent.depth + 1;
    if (depth > LIMITS.chain_depth_max) throw tooDeep();
    const own_ms = (timeout_seconds ?? record.timeout_seconds) * 1000;
    // Who waits for a nested call is ended at its own deadline: nothing is worked on past that.
    const timeout_ms = parent === null ? own_ms : Math.min(own_ms, Math.ceil(parent.deadline_ms - arrived_ms));
    const ends_ms = parent === null ? Number.POSITIVE_INFINITY : parent.deadline_ms;
    const call: Call = {
      ...{ target, invocation_id, environment, payload, timeout_ms, ends_ms, depth, trace },
      ...(http === null ? {} : { http }),
    };
    return this.#pool.submit(target.group, call, { deadline_ms: arrived_ms + timeout_ms, depth });
  }
}
