/**
 * Work that is accepted now and done in its own time: one mechanism behind every 202. An operation is durable before it
 * is answered, runs once at a time, and ends in one of four states whatever becomes of this process.
 *
 * O1. What was accepted ends: it runs, or a later process runs it again where its type can be taken up, or it fails as
 *     INTERRUPTED.
 *
 * Turns, bounds and states are queue.ts's (O2 to O4), one run is run.ts's.
 */
import type { Answer } from "../base/answer.ts";
import { unknownCredential } from "../base/caller.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import type { Events } from "../events/service.ts";
import type { Once, Store } from "../store/store.ts";
import { refusalOf } from "./outcomes.ts";
import { LocalQueue, type OperationQueue } from "./queue.ts";
import { OperationRows } from "./rows.ts";
import { type Alongside, NOTHING, type Runner } from "./run.ts";
import {
  type AcceptedOperation,
  accepted,
  type Execution,
  type OperationFilter,
  type OperationRecord,
  type Resource,
} from "./schema.ts";
import { hasEnded, type OperationStatus, operationStates } from "./states.ts";

export { failureOf } from "./outcomes.ts";
export type { Alongside, Json, OperationContext, OperationResult, Runner } from "./run.ts";

export interface NewOperation {
  /** One that was registered. */
  readonly type: string;
  readonly target?: Resource;
  /** Resource that the operation makes beside its target, if its id is known. */
  readonly made?: Resource;
  /** What the runner gets; JSON. Forgotten when the operation has ended. */
  readonly input?: unknown;
  /** What lives in this process only. One that has it is not taken up by a later process. */
  readonly attachment?: unknown;
  /** In place of the type's. */
  readonly timeout_ms?: number;
  /** Fields of the handle beyond those that each has. */
  readonly extra?: object;
  /** Of a request with an Idempotency-Key: its record, the handle, is accepted together with the operation. */
  readonly once?: Once | null;
}

export interface Waiting {
  readonly timeout_ms: number;
  /** Of the request: a client that has gone waits for nothing. */
  readonly signal?: AbortSignal;
}

export interface Execute<Extra extends object, Done> {
  readonly execution: Execution;
  /** Of the request. */
  readonly signal: AbortSignal;
  /** Fields of the handle beyond those that each has. */
  readonly extra?: Extra;
  /** The answer of one that was waited for and succeeded. */
  readonly finished: (operation: OperationRecord) => Done | Promise<Done>;
}

export interface OperationsOptions {
  readonly store: Store;
  readonly events: Events;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Is called for each operation that has ended, after its end is stored. */
  readonly onEnd: (operation_type: string, status: OperationStatus) => void;
}

export class Operations {
  readonly #options: OperationsOptions;
  readonly #rows: OperationRows;
  readonly #queue: OperationQueue;
  /** Tenants with new operations since theirs were counted. */
  readonly #uncounted = new Set<string>();

  constructor(options: OperationsOptions) {
    this.#options = options;
    this.#rows = new OperationRows(options.store);
    this.#queue = new LocalQueue({ ...options, rows: this.#rows });
  }

  /** Says how operations of a type are carried out. Before `boot`. */
  register<Input>(type: string, runner: Runner<Input>): void {
    // Inputs are what `accept` was given for this type.
    this.#queue.register(type, runner as Runner);
  }

  /**
   * Accepts an operation, in one durable batch with what stands `alongside`. Throws QUEUE_FULL, CAPACITY_FULL,
   * SHUTTING_DOWN, and what `alongside` refuses; then nothing has changed.
   */
  async accept(tenant_id: string, asked: NewOperation, alongside: Alongside = NOTHING): Promise<OperationRecord> {
    const { ids, clock, events } = this.#options;
    const { type, once = null } = asked;
    const timeout_ms = Math.min(
      asked.timeout_ms ?? this.#queue.runner(type).timeout_ms,
      LIMITS.operation_timeout_ms_max,
    );
    const input = JSON.stringify(asked.input ?? {});
    if (Buffer.byteLength(input) > LIMITS.operation_input_bytes_max) {
      throw new AppError("BODY_TOO_LARGE", "the request is too large for an operation");
    }
    this.#checkRoom(tenant_id);
    const fields = {
      tenant_id,
      id: ids.next("op"),
      target: asked.target ?? null,
      made: asked.made ?? null,
    };
    const open = this.#queue.admit({ ...fields, type, status: "accepted" }, asked.attachment);
    const own = this.#rows.insert(
      {
        ...fields,
        operation_type: type,
        input,
        is_attached: asked.attachment === undefined ? 0 : 1,
        deadline_ms: Math.floor(clock.epochMs()) + timeout_ms,
      },
      toEpochSeconds(clock.epochMs()),
    );
    const event = this.#queue.event(open, "accepted");
    const handle = accepted({ operation_id: open.id }, asked.extra);
    const record = once === null ? [] : [once.record(handle.status, handle.body)];
    const { conflict } = await events
      .write([...own, ...alongside.statements, ...record], tenant_id, [event], { durable: true })
      .catch(async (error) => {
        // It may be committed and not be synced; then it is there, and is done.
        if ((await this.#rows.byId(tenant_id, open.id).catch(() => null)) === null) this.#queue.dismiss(open);
        else this.#queue.enqueue(open, timeout_ms);
        throw error;
      });
    if (conflict === null) {
      this.#uncounted.add(tenant_id);
      this.#queue.enqueue(open, timeout_ms);
      return this.get(tenant_id, open.id);
    }
    this.#queue.dismiss(open);
    if (conflict === 0) throw unknownCredential();
    throw alongside.refusal(conflict - own.length);
  }

  /** Throws NOT_FOUND. */
  async get(tenant_id: string, id: string): Promise<OperationRecord> {
    return (await this.#row(tenant_id, id)).record;
  }

  /** The container that an operation changes; null: there is no such operation, or it changes none. */
  async containerOf(tenant_id: string, id: string): Promise<string | null> {
    return (await this.#rows.byId(tenant_id, id))?.record.container_id ?? null;
  }

  /** Newest first, without results and items. */
  list(tenant_id: string, filter: OperationFilter, place: Place): Promise<Listed<OperationRecord>> {
    return this.#rows.list(tenant_id, filter, place);
  }

  /** Whether the daemon is about to end, so that nothing waits any more. */
  get isDraining(): boolean {
    return this.#queue.isDraining;
  }

  /**
   * Waits until the operation has ended, its time is up, the signal fires, or the daemon is about to end. Resolves to
   * the record as it is then. Throws NOT_FOUND.
   */
  async wait(tenant_id: string, id: string, { timeout_ms, signal }: Waiting): Promise<OperationRecord> {
    const open = this.#queue.find(tenant_id, id);
    if (open !== null) await this.#queue.ended(open, timeout_ms, signal);
    return this.get(tenant_id, id);
  }

  /**
   * Answers a request as it asks: with the handle, or when the operation has ended. Where that takes longer than a
   * request may wait, or the daemon is about to end, the handle too. Throws as the operation has failed.
   */
  async answer<Done, Extra extends object = object>(
    tenant_id: string,
    operation: OperationRecord,
    { execution, signal, extra, finished }: Execute<Extra, Done>,
  ): Promise<Done | Answer<AcceptedOperation & Extra>> {
    if (execution === "async") return accepted(operation, extra);
    await this.wait(tenant_id, operation.operation_id, { timeout_ms: LIMITS.operation_wait_ms_max, signal });
    const row = await this.#row(tenant_id, operation.operation_id);
    if (!hasEnded(row.record.status)) return accepted(operation, extra);
    if (row.record.status !== "succeeded") throw refusalOf(row);
    return finished(row.record);
  }

  /**
   * Cancels an operation and waits a while for its end. Throws NOT_FOUND, and WRONG_STATE where it has ended, or runs and
   * cannot be stopped.
   */
  async cancel(tenant_id: string, id: string): Promise<OperationRecord> {
    const { store, clock } = this.#options;
    const open = this.#queue.find(tenant_id, id);
    if (open === null) {
      const { status } = await this.get(tenant_id, id);
      operationStates.next(status, "cancel");
      throw new AppError("SHUTTING_DOWN", "the next start of the daemon recovers the operation");
    }
    if (open.isTaken) {
      if (!this.#queue.runner(open.type).cancellable) {
        const text = `cannot cancel a running operation of type ${open.type}`;
        throw new AppError("WRONG_STATE", text, { details: { state: open.status } });
      }
      // Without a change where it is about to begin, or has ended.
      const note = this.#rows.note(id, { is_cancel_asked: 1 }, toEpochSeconds(clock.epochMs()));
      await store.write([note], { durable: true });
    }
    await this.#queue.stop(open, "cancel");
    return this.wait(tenant_id, id, { timeout_ms: LIMITS.operation_stop_ms });
  }

  /** Takes up what an earlier process has left. Every type is registered by then. */
  async boot(): Promise<void> {
    const now_ms = this.#options.clock.epochMs();
    for await (const { seq: _seq, deadline_ms, is_attached, is_cancel_asked, ...row } of this.#rows.open()) {
      const open = this.#queue.admit(row, undefined);
      const runner = this.#queue.knows(row.type) ? this.#queue.runner(row.type) : null;
      if (runner !== null && !is_attached && (runner.resumable || row.status !== "running")) {
        if (is_cancel_asked) open.stop = "cancel";
        // The clock may have been set back meanwhile.
        this.#queue.enqueue(open, Math.min(Math.max(0, deadline_ms - now_ms), LIMITS.operation_timeout_ms_max));
      } else {
        const message = "the daemon stopped while the operation was running";
        await this.#queue.end(open, { verb: "fail", failure: { code: "INTERRUPTED", message } });
      }
    }
  }

  /**
   * The end of the daemon: nothing else begins. What runs gets `ms` to finish, `operation_drain_ms` where the next
   * process can take it up; what has not ended stays in the store as it is.
   */
  drain(ms: number): Promise<void> {
    return this.#queue.drain(ms);
  }

  /** Stops and deletes what a tenant has that is being deleted. */
  async erase(tenant_id: string): Promise<void> {
    const own = this.#queue.openOf(tenant_id);
    await Promise.all(own.map((open) => this.#queue.stop(open, "cancel").catch(() => {})));
    await Promise.all(own.map(({ ended }) => ended.promise));
    this.#uncounted.delete(tenant_id);
    await this.#rows.erase(tenant_id);
  }

  /** Deletes what has ended long ago, and what is too much. */
  async prune(): Promise<void> {
    const now = toEpochSeconds(this.#options.clock.epochMs());
    await this.#rows.prune(now - LIMITS.operations_kept_seconds);
    for (const tenant_id of this.#uncounted) {
      this.#uncounted.delete(tenant_id);
      await this.#rows.trim(tenant_id);
    }
  }

  async #row(tenant_id: string, id: string) {
    const row = await this.#rows.byId(tenant_id, id);
    if (row === null) throw new AppError("NOT_FOUND", `operation '${id}' not found`);
    return row;
  }

  #checkRoom(tenant_id: string): void {
    if (this.#queue.isDraining) throw new AppError("SHUTTING_DOWN", "the daemon is shutting down");
    if (this.#queue.openCountOf(tenant_id) >= LIMITS.operations_open_per_tenant_max) {
      throw new AppError(
        "QUEUE_FULL",
        `too many open operations of the tenant (limit ${LIMITS.operations_open_per_tenant_max})`,
        { retry_after: 1 },
      );
    }
    if (this.#queue.open_count >= LIMITS.operations_open_max) {
      throw new AppError(
        "CAPACITY_FULL",
        `too many open operations on this node (limit ${LIMITS.operations_open_max})`,
        { retry_after: 1 },
      );
    }
  }
}
