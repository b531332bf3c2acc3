/**
 * One run of an operation: what its runner is given, and how it ends. What is finished is in the journal before the
 * runner goes on, so that a run in a later process can begin there.
 *
 * R1. `finish` resolves when the step is on the disk; a step is finished once.
 * R2. A run that is stopped (cancelled, past its deadline, the daemon ends) sees its signal fire, and is waited for no
 *     longer than `operation_stop_ms`. What it has achieved all the same counts: a run that succeeds has succeeded.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { KeyedMutex } from "../base/concurrency.ts";
import { AppError, errorText, invariant, isFault, withoutRoom } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Statement, Store, Value } from "../store/store.ts";
import type { OperationRows, Work } from "./rows.ts";
import type { Resource } from "./schema.ts";

export type Json = Readonly<Record<string, unknown>>;

/** Statements for the batch of an operation's own change. Each is to expect its changes; `refusal` is for the one missed. */
export interface Alongside {
  readonly statements: readonly Statement[];
  readonly refusal: (index: number) => AppError;
}

/** What a runner works with. */
export interface OperationContext<Input = unknown> {
  readonly tenant_id: string;
  readonly operation_id: string;
  readonly input: Input;
  /** What was given beside the input and lives in this process only: the body of the request. */
  readonly attachment: unknown;
  /** Fires when the operation is cancelled, past its deadline, or the daemon ends; its reason is an AppError. */
  readonly signal: AbortSignal;
  /** What a step that was finished left, null where it left nothing; undefined where it was not. */
  done(step: string): unknown;
  /** Notes a finished step, with what later ones need of it, and in the same batch what else changes by it (R1). */
  finish(step: string, data?: unknown, alongside?: Alongside): Promise<void>;
  /** Tells how far it is; written now and then. */
  progress(pct: number | null, message?: string): void;
  /**
   * Runs what only waits for work that others share: meanwhile the operation takes no place from others that are to run.
   * One at a time.
   */
  aside<T>(wait: () => Promise<T>): Promise<T>;
  /** Of a batch: what has become of each part so far. */
  items(items: readonly Json[]): void;
}

/** What came out of an operation that succeeded. */
export interface OperationResult {
  readonly result?: Json;
  readonly items?: readonly Json[];
  readonly message?: string;
  readonly warnings?: readonly string[];
  readonly capability_downgrades?: readonly string[];
  /** In place of the one that was named at its acceptance. */
  readonly made?: Resource;
}

/** How operations of a type are carried out. */
export interface Runner<Input = unknown> {
  /** Whether a later process may call `run` again; it finds what was finished in the journal. */
  readonly resumable: boolean;
  /** Whether one that runs stops when its signal fires, and leaves nothing half-made. One that waits can always be cancelled. */
  readonly cancellable: boolean;
  /** From its acceptance to its end, unless one says otherwise. */
  readonly timeout_ms: number;
  /** True if its target is what it makes: where it fails, there is none, and its record names none. */
  readonly makes_target?: boolean;
  /** At once, in all; `operations_running_max` unless given. */
  readonly running_max?: number;
  /** At once, of one tenant; no bound but that of all its operations unless given. */
  readonly running_per_tenant_max?: number;
  /** An AppError that it throws is the operation's failure; anything else is a fault. */
  run(context: OperationContext<Input>): Promise<OperationResult>;
}

export type Stop = "cancel" | "expire" | "drain";

export type Outcome =
  | { readonly verb: "succeed"; readonly result: OperationResult }
  | { readonly verb: "fail"; readonly error: unknown }
  | { readonly verb: "cancel" | "expire"; readonly message: string }
  /** It is open as before, for the next process. */
  | { readonly verb: null };

export interface RunOptions {
  readonly tenant_id: string;
  readonly operation_id: string;
  readonly runner: Runner;
  readonly attachment: unknown;
  readonly work: Work;
  readonly store: Store;
  readonly rows: OperationRows;
  readonly clock: Clock;
  readonly log: Log;
  readonly aside: <T>(signal: AbortSignal, wait: () => Promise<T>) => Promise<T>;
}

const REASONS: Readonly<Record<Stop, AppError>> = {
  cancel: new AppError("WRONG_STATE", "the operation was cancelled"),
  expire: new AppError("TIMEOUT", "the operation exceeded its deadline"),
  drain: new AppError("SHUTTING_DOWN", "the daemon is shutting down"),
};

export class Run implements OperationContext {
  readonly tenant_id: string;
  readonly operation_id: string;
  readonly input: unknown;
  readonly attachment: unknown;
  /** Done when the runner has returned, however late. */
  settled: Promise<void> = Promise.resolve();
  readonly #options: RunOptions;
  readonly #abort = new AbortController();
  /** The journal is written as a whole, so steps that are finished at the same time take turns. */
  readonly #finishing = new KeyedMutex();
  readonly #late = Promise.withResolvers<void>();
  #stop: Stop | null = null;
  #notes: Record<string, Value> = {};
  #noted_ms = Number.NEGATIVE_INFINITY;
  #cancelNote: (() => void) | null = null;
  #isOver = false;

  constructor(options: RunOptions) {
    this.#options = options;
    this.tenant_id = options.tenant_id;
    this.operation_id = options.operation_id;
    this.input = options.work.input;
    this.attachment = options.attachment;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Asks the runner to stop. The first reason counts. */
  stop(why: Stop): void {
    if (this.#stop !== null) return;
    this.#stop = why;
    this.#options.clock.after(LIMITS.operation_stop_ms, () => this.#late.resolve());
    this.#abort.abort(REASONS[why]);
  }

  /** Never rejects. */
  async outcome(): Promise<Outcome> {
    const { runner, log } = this.#options;
    const work: Promise<Outcome> = (async () => runner.run(this))().then(
      (result) => ({ verb: "succeed", result }),
      (error) => this.#failed(error),
    );
    this.settled = work.then(() => {});
    const outcome = await Promise.race([work, this.#late.promise.then(() => this.#failed(null))]);
    this.#isOver = true;
    this.#cancelNote?.();
    if (outcome.verb === "fail" && isFault(outcome.error)) {
      const { error } = outcome;
      const stack = error instanceof Error ? error.stack : undefined;
      log.error("operation failed", { operation_id: this.operation_id, error: errorText(error), stack });
    }
    return outcome;
  }

  /** The outcome of one that was to stop before it began. */
  unbegun(): Outcome {
    return this.#failed(null);
  }

  done(step: string): unknown {
    return Object.hasOwn(this.#journal, step) ? this.#journal[step] : undefined;
  }

  finish(step: string, data: unknown = null, alongside: Alongside = NOTHING): Promise<void> {
    return this.#finishing.run("", () => this.#finish(step, data, alongside));
  }

  async #finish(step: string, data: unknown, { statements, refusal }: Alongside): Promise<void> {
    invariant(!Object.hasOwn(this.#journal, step), `step ${step} of ${this.operation_id} is finished twice`);
    const { store, rows } = this.#options;
    const journal = JSON.stringify({ ...this.#journal, [step]: data });
    invariant(Buffer.byteLength(journal) <= LIMITS.operation_journal_bytes_max, `the journal at ${step} is too large`);
    const note = rows.note(this.operation_id, { journal }, this.#now);
    const { conflict } = await store.write([note, ...statements], { durable: true });
    invariant(conflict !== 0, `operation ${this.operation_id} finishes ${step} after its end`);
    if (conflict !== null) throw refusal(conflict - 1);
    this.#journal[step] = data;
  }

  progress(pct: number | null, message?: string): void {
    const progress_pct = pct === null ? null : Math.min(100, Math.max(0, pct));
    const text = message?.slice(0, LIMITS.operation_message_length_max);
    this.#note({ progress_pct, ...(text === undefined ? {} : { message: text }) });
  }

  aside<T>(wait: () => Promise<T>): Promise<T> {
    return this.#options.aside(this.signal, wait);
  }

  items(items: readonly Json[]): void {
    this.#note({ items: JSON.stringify(items) });
  }

  /** What was told and not written yet. */
  get notes(): Readonly<Record<string, Value>> {
    return this.#notes;
  }

  get #journal(): Record<string, unknown> {
    return this.#options.work.journal;
  }

  get #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }

  #failed(error: unknown): Outcome {
    switch (this.#stop) {
      case "cancel":
      case "expire":
        return { verb: this.#stop, message: REASONS[this.#stop].message };
      case "drain":
        return { verb: null };
      default:
        return { verb: "fail", error: withoutRoom(error) };
    }
  }

  #note(fields: Record<string, Value>): void {
    Object.assign(this.#notes, fields);
    if (this.#isOver || this.#cancelNote !== null) return;
    const { clock } = this.#options;
    const rest_ms = this.#noted_ms + LIMITS.operation_progress_interval_ms - clock.monotonicMs();
    if (rest_ms <= 0) this.#write();
    else this.#cancelNote = clock.after(rest_ms, () => this.#write());
  }

  #write(): void {
    const { store, rows, clock } = this.#options;
    this.#cancelNote = null;
    if (this.#isOver) return;
    const notes = this.#notes;
    this.#notes = {};
    this.#noted_ms = clock.monotonicMs();
    // What is lost of it is told again, or the end tells more.
    store.write([rows.note(this.operation_id, notes, this.#now)]).catch(() => {});
  }
}

export const NOTHING: Alongside = {
  statements: [],
  refusal: () => new AppError("INTERNAL", "nothing was expected"),
};
