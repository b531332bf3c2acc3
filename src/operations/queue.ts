/**
 * Operations that have not ended: which waits, which runs, and every change of their state.
 *
 * O2. Every change of state is one batch with its event, by compare-and-set; states follow `operationStates`.
 * O3. An operation is open from its acceptance to its end. It counts against the bounds on what runs until its runner
 *     has returned, also where that is after its end. It does not while it only waits for work that others share, as the build
 *     of a profile: after that it takes the next place that is free.
 * O4. Tenants whose operations of a type wait take turns, and each tenant's go in the order of acceptance. Of all types whose
 *     next operation may run, the one accepted first does: past those whose type or tenant has its share already.
 */
import { type CancelTimer, type Clock, sleep, toEpochSeconds } from "../base/clock.ts";
import { KeyedMutex } from "../base/concurrency.ts";
import { errorText, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { Turns } from "../base/turns.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import type { Store, Value } from "../store/store.ts";
import { type End, endFields } from "./outcomes.ts";
import type { Failure, OperationRows } from "./rows.ts";
import { Run, type Runner, type Stop } from "./run.ts";
import { type Resource, resourceFields } from "./schema.ts";
import { hasEnded, type OperationStatus, type OperationVerb, operationStates } from "./states.ts";

/** An operation that has not ended. */
export interface Open {
  readonly id: string;
  readonly tenant_id: string;
  readonly type: string;
  readonly attachment: unknown;
  readonly target: Resource | null;
  readonly made: Resource | null;
  readonly ended: PromiseWithResolvers<void>;
  status: OperationStatus;
  /** In the order of acceptance. */
  readonly number: number;
  /** Whether it has had its turn. */
  isTaken: boolean;
  run: Run | null;
  /** Why it is to stop, also before there is a run. */
  stop: Stop | null;
  cancelTimer: CancelTimer;
}

export type OpenRow = Omit<Open, "attachment" | "ended" | "number" | "isTaken" | "run" | "stop" | "cancelTimer">;

export interface QueueOptions {
  readonly store: Store;
  readonly events: Events;
  readonly clock: Clock;
  readonly log: Log;
  readonly rows: OperationRows;
  /** Is called for each operation that has ended, after its end is stored. */
  readonly onEnd: (operation_type: string, status: OperationStatus) => void;
}

/** A running operation that gave its place up, and is about to go on. */
interface Returning {
  readonly open: Open;
  /** Gives it a place. */
  readonly enter: () => void;
}

const IN_ALL = Symbol("in all");
/** Operations of one type of one tenant. */
const ownShare = ({ type, tenant_id }: Pick<Open, "type" | "tenant_id">): string => `${tenant_id} ${type}`;
/** The target of an operation that was to make it and failed. */
const UNMADE = { target_resource_id: null } as const;

/**
 * The port of the service that executes operations. Single writer: one process holds every open operation and resumes all
 * of them at its start. A second node would need a claim on each, with a lease, or both would execute it.
 */
export interface OperationQueue {
  readonly isDraining: boolean;
  readonly open_count: number;
  openCountOf(tenant_id: string): number;
  openOf(tenant_id: string): Open[];
  find(tenant_id: string, id: string): Open | null;
  /** Once for each type, before its first operation. */
  register(type: string, runner: Runner): void;
  knows(type: string): boolean;
  runner(type: string): Runner;
  /** Makes an operation open; it does not wait for its turn yet. */
  admit(row: OpenRow, attachment: unknown): Open;
  /** Forgets an operation that has ended, was never accepted, or is left to the next process. */
  dismiss(open: Open): void;
  /** Enqueues an operation; its turn may come at once. */
  enqueue(open: Open, left_ms: number): void;
  /** Ends a queued operation, and asks a running one to stop. The first reason counts. */
  stop(open: Open, why: Stop): Promise<void>;
  /** Resolves when it has ended, time is up, the signal fires, or the daemon is shutting down. */
  ended(open: Open, timeout_ms: number, signal?: AbortSignal): Promise<void>;
  /** The last change of an operation. Rejects where it could not be stored for long; the next process finds it open. */
  end(open: Open, end: End): Promise<void>;
  /** The event that tells of a state. */
  event(open: OpenRow, status: OperationStatus): NewEvent;
  /** Begins no other operation. Running ones have `ms` to finish, or less if the next process can resume them. */
  drain(ms: number): Promise<void>;
}

export class LocalQueue implements OperationQueue {
  readonly #options: QueueOptions;
  readonly #runners = new Map<string, Runner>();
  readonly #open = new Map<string, Open>();
  readonly #openCounts = new Map<string, number>();
  /** By type. */
  readonly #waiting = new Map<string, Turns<Open>>();
  /** Until the runner has returned (O3). */
  readonly #carried = new Map<Open, Promise<void>>();
  /** Of these, those that gave up their place (O3), and those of them that wait for one again, in that order. */
  readonly #away = new Set<Open>();
  readonly #returning = new Set<Returning>();
  /** Of these that have a place, by type, by tenant, by both, and in all. */
  readonly #counts = new Map<string | typeof IN_ALL, number>();
  /** Changes of state, by operation. */
  readonly #moves = new KeyedMutex();
  readonly #draining = Promise.withResolvers<void>();
  #isDraining = false;
  #next_number = 1;

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  get open_count(): number {
    return this.#open.size;
  }

  openCountOf(tenant_id: string): number {
    return this.#openCounts.get(tenant_id) ?? 0;
  }

  openOf(tenant_id: string): Open[] {
    return [...this.#open.values()].filter((open) => open.tenant_id === tenant_id);
  }

  find(tenant_id: string, id: string): Open | null {
    const open = this.#open.get(id);
    return open?.tenant_id === tenant_id ? open : null;
  }

  register(type: string, runner: Runner): void {
    invariant(!this.#runners.has(type), `operation type ${type} is registered twice`);
    invariant(runner.timeout_ms <= LIMITS.operation_timeout_ms_max, `operation type ${type} allows too long a time`);
    this.#runners.set(type, runner);
  }

  knows(type: string): boolean {
    return this.#runners.has(type);
  }

  runner(type: string): Runner {
    const runner = this.#runners.get(type);
    invariant(runner !== undefined, `there is no operation type ${type}`);
    return runner;
  }

  admit(row: OpenRow, attachment: unknown): Open {
    const ended = Promise.withResolvers<void>();
    const number = this.#next_number++;
    const open: Open = {
      ...{ ...row, attachment, ended, number },
      ...{ isTaken: false, run: null, stop: null, cancelTimer: () => {} },
    };
    this.#open.set(open.id, open);
    this.#openCounts.set(open.tenant_id, this.openCountOf(open.tenant_id) + 1);
    return open;
  }

  dismiss(open: Open): void {
    if (!this.#open.delete(open.id)) return;
    const left = this.openCountOf(open.tenant_id) - 1;
    if (left === 0) this.#openCounts.delete(open.tenant_id);
    else this.#openCounts.set(open.tenant_id, left);
    open.cancelTimer();
    open.ended.resolve();
  }

  enqueue(open: Open, left_ms: number): void {
    const { clock, log } = this.#options;
    open.cancelTimer = clock.after(left_ms, () => {
      this.stop(open, "expire").catch((error) =>
        log.error("operation did not end", { operation_id: open.id, error: errorText(error) }),
      );
    });
    const turns = this.#waiting.get(open.type) ?? new Turns<Open>();
    this.#waiting.set(open.type, turns);
    turns.add(open.tenant_id, open);
    this.#startNext();
    // One that begins at once was never queued.
    if (!open.isTaken && open.status === "accepted") void this.#move(open, "queue", {}).catch(() => {});
  }

  async stop(open: Open, why: Stop): Promise<void> {
    open.stop ??= why;
    if (open.isTaken) return open.run?.stop(open.stop);
    if (why === "drain") return;
    open.isTaken = true;
    this.#waiting.get(open.type)?.leave(open.tenant_id, open);
    const message = why === "cancel" ? "cancelled before it started" : "not started before its deadline";
    await this.end(open, { verb: why, message });
  }

  async ended(open: Open, timeout_ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted === true) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const leave = (): void => resolve();
    const cancel = this.#options.clock.after(timeout_ms, leave);
    signal?.addEventListener("abort", leave);
    await Promise.race([open.ended.promise, this.#draining.promise, promise]);
    cancel();
    signal?.removeEventListener("abort", leave);
  }

  async drain(ms: number): Promise<void> {
    const { clock } = this.#options;
    this.#isDraining = true;
    this.#draining.resolve();
    const timers = [...this.#carried.keys()].map((open) => {
      const given_ms = this.runner(open.type).resumable ? Math.min(ms, LIMITS.operation_drain_ms) : ms;
      return clock.after(given_ms, () => void this.stop(open, "drain"));
    });
    await Promise.race([Promise.all(this.#carried.values()), sleep(clock, ms + LIMITS.operation_drain_ms)]);
    for (const cancel of timers) cancel();
  }

  async end(open: Open, end: End, notes: Readonly<Record<string, Value>> = {}): Promise<void> {
    const { clock, log } = this.#options;
    const isUnmade = end.verb === "fail" && this.#runners.get(open.type)?.makes_target === true;
    const unmade = isUnmade ? UNMADE : {};
    const fields = { ...notes, ...endFields(end), ...unmade, completed_at: toEpochSeconds(clock.epochMs()) };
    try {
      for (let attempt = 1; ; attempt++) {
        try {
          return await this.#move(open, end.verb, fields, true);
        } catch (error) {
          if (attempt >= LIMITS.operation_end_attempts_max) throw error;
          log.warn("cannot store the end of an operation", { operation_id: open.id, error: errorText(error) });
          await sleep(clock, LIMITS.operation_end_retry_ms);
        }
      }
    } finally {
      this.dismiss(open);
    }
  }

  event(open: OpenRow, status: OperationStatus, failure: Failure | null = null): NewEvent {
    const { id, type, target, made } = open;
    const { container_id, snapshot_id, target_resource_type, target_resource_id } = resourceFields(target, made);
    const failed = failure === null ? {} : { error: failure.message, reason_code: failure.code };
    return {
      name: "operation_update",
      event_type: status === "running" ? "started" : status,
      operation_id: id,
      container_id,
      snapshot_id,
      data: { operation_type: type, status, target_resource_type, target_resource_id, ...failed },
    };
  }

  /** Runs `work` while the operation has no place (O3). One that is to stop gets a place at once. */
  async #aside<T>(open: Open, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    invariant(!this.#away.has(open), `operation ${open.id} gave up its place twice`);
    this.#away.add(open);
    this.#add(open, -1);
    this.#startNext();
    try {
      return await work();
    } finally {
      const { promise, resolve } = Promise.withResolvers<void>();
      const returning: Returning = { open, enter: () => this.#enter(returning, resolve) };
      this.#returning.add(returning);
      signal.addEventListener("abort", returning.enter);
      if (signal.aborted) returning.enter();
      else this.#startNext();
      await promise;
      signal.removeEventListener("abort", returning.enter);
    }
  }

  #enter(returning: Returning, resolve: () => void): void {
    if (!this.#returning.delete(returning)) return;
    // One that was given up meanwhile counts no more.
    if (this.#away.delete(returning.open)) this.#add(returning.open, 1);
    resolve();
  }

  #startNext(): void {
    for (const { open, enter } of this.#returning) {
      if (this.#count(IN_ALL) < LIMITS.operations_running_max && this.#may(open.type, open.tenant_id)) enter();
    }
    while (!this.#isDraining && this.#count(IN_ALL) < LIMITS.operations_running_max) {
      const open = this.#next();
      if (open === null) return;
      open.isTaken = true;
      this.#waiting.get(open.type)?.take(open.tenant_id, open);
      this.#add(open, 1);
      const carried = this.#carryOut(open).finally(() => {
        this.#carried.delete(open);
        if (!this.#away.delete(open)) this.#add(open, -1);
        this.#startNext();
      });
      this.#carried.set(open, carried);
    }
  }

  /** The operation that begins next (O4); null: none may. */
  #next(): Open | null {
    let first: Open | null = null;
    for (const [type, turns] of this.#waiting) {
      const { running_max = LIMITS.operations_running_max } = this.runner(type);
      if (this.#count(type) >= running_max) continue;
      const next = turns.next((tenant_id) => this.#may(type, tenant_id));
      if (next !== null && (first === null || next.number < first.number)) first = next;
    }
    return first;
  }

  /** Whether the bounds of a type and a tenant leave a place. */
  #may(type: string, tenant_id: string): boolean {
    const { running_max = LIMITS.operations_running_max, running_per_tenant_max = running_max } = this.runner(type);
    return (
      this.#count(type) < running_max &&
      this.#count(ownShare({ type, tenant_id })) < running_per_tenant_max &&
      this.#count(tenant_id) < LIMITS.operations_running_per_tenant_max
    );
  }

  #count(share: string | typeof IN_ALL): number {
    return this.#counts.get(share) ?? 0;
  }

  #add(open: Open, count: 1 | -1): void {
    for (const share of [IN_ALL, open.type, open.tenant_id, ownShare(open)] as const) {
      const sum = this.#count(share) + count;
      if (sum === 0) this.#counts.delete(share);
      else this.#counts.set(share, sum);
    }
  }

  /** From its turn to the return of its runner. Never rejects. */
  async #carryOut(open: Open): Promise<void> {
    const { log, clock, store, rows } = this.#options;
    const { id: operation_id, tenant_id, attachment } = open;
    try {
      const runner = this.runner(open.type);
      const work = await rows.work(operation_id);
      invariant(work !== null, `operation ${operation_id} has no row`);
      const isNew = open.status !== "running";
      // A power cut must not make one look as if it had not begun that cannot begin twice.
      await this.#move(open, "start", { started_at: toEpochSeconds(clock.epochMs()) }, !runner.resumable);
      const aside = <T>(signal: AbortSignal, wait: () => Promise<T>) => this.#aside(open, signal, wait);
      const run = new Run({ tenant_id, operation_id, runner, attachment, work, store, rows, clock, log, aside });
      open.run = run;
      if (open.stop !== null) run.stop(open.stop);
      // There is nothing to be undone of one that has not begun.
      const outcome = isNew && open.stop !== null ? run.unbegun() : await run.outcome();
      if (outcome.verb === null) return this.dismiss(open);
      await this.end(open, outcome, run.notes);
      await run.settled;
    } catch (error) {
      log.error("operation not executed", { operation_id, error: errorText(error) });
      this.dismiss(open);
    }
  }

  /** One change of state with its event (O2). One that has begun meanwhile is not queued any more. */
  #move(open: Open, verb: OperationVerb, fields: Readonly<Record<string, Value>>, durable = false): Promise<void> {
    return this.#moves.run(open.id, async () => {
      if (verb === "queue" && open.status !== "accepted") return;
      const { events, clock, rows } = this.#options;
      const to = operationStates.next(open.status, verb);
      const move = rows.move(open.id, open.status, to, fields, toEpochSeconds(clock.epochMs()));
      const failure = typeof fields.failure === "string" ? (JSON.parse(fields.failure) as Failure) : null;
      const isUnmade = fields.target_resource_id === null && open.target !== null;
      const told = isUnmade ? { ...open, target: { ...open.target, id: null } } : open;
      const { conflict } = await events.write([move], open.tenant_id, [this.event(told, to, failure)], { durable });
      if (conflict !== null) {
        // A write that failed before may have been committed all the same.
        const row = await rows.byId(open.tenant_id, open.id);
        invariant(row?.record.status === to, `operation ${open.id} is ${row?.record.status}, not ${open.status}`);
      }
      open.status = to;
      if (hasEnded(to)) this.#options.onEnd(open.type, to);
    });
  }
}
