/**
 * The events and effects of the scheduler, the port to the launcher of instances, and the settings of the pool's users.
 * Data only.
 *
 * *group*: one version of one function, a key chosen by the caller (`fn_x@3`). *instance*: a container of the pool.
 * *cell*: a started instance that belongs to no group yet. *class*: what an instance is made of, a key chosen by the
 * caller; an instance serves groups of its own class alone. *call*: one invocation, waiting or running. *earmarked*: a
 * start that a group waits for. *owner*: a tenant, whose groups share its limits. Times are monotonic milliseconds.
 */
import type { Clock } from "../src/base/clock.ts";
import type { ErrorCode } from "../src/base/errors.ts";
import type { Lack } from "../src/base/lacking.ts";

export interface GroupPolicy {
  /** The class of the group's instances. It never changes. */
  readonly class: string;
  readonly min_instances: number;
  readonly max_instances: number;
  readonly queue_max: number;
  /** Calls that one instance serves at the same time: whole, 1 to `resident_calls_max`. 1 unless given. */
  readonly concurrency?: number;
  /** Overrides the keep-alive learnt from the group's arrivals. */
  readonly keep_alive_ms?: number;
  /** The tenant for whose limits the group's instances count; nobody's unless given. */
  readonly owner?: string;
  /** The memory limit of one instance, which counts for its owner's memory. 1 unless given. */
  readonly memory_mb?: number;
  /** Devices of the node that each instance of the class holds (`devices.ts`). 0 unless given. */
  readonly devices?: number;
  /** Groups of one family replace each other. */
  readonly family?: string;
}

/** Limits on all instances of an owner's groups together; null for no limit. */
export interface OwnerLimits {
  readonly instances_max: number | null;
  readonly memory_mb_max: number | null;
}

/** The reason for dropping a group; decides the refusal of its waiting calls. */
export type DropReason = "paused" | "failed" | "deleted" | "shutdown";

export type PoolEvent = { readonly now_ms: number } & (
  | ({ readonly type: "group_set"; readonly group: string } & GroupPolicy)
  /**
   * A superseded version: it keeps no minimum, serves the calls that it still gets, and its idle instances stay for the
   * grace period of a rollback. Without instances and calls it is forgotten. A dropped or unknown group stays as it is.
   */
  | { readonly type: "group_retire"; readonly group: string }
  /** `force` ends running calls too. */
  | { readonly type: "group_drop"; readonly group: string; readonly reject: DropReason; readonly force?: boolean }
  | {
      readonly type: "call_arrived";
      readonly call: number;
      readonly group: string;
      readonly deadline_ms: number;
      /** Calls above it in its chain: 0 for a call from outside, at most `chain_depth_max`. */
      readonly depth: number;
    }
  /** The caller is gone: a waiting call leaves the queue, a running one is left to the driver. */
  | { readonly type: "call_cancelled"; readonly call: number }
  /**
   * Taken over from an earlier process: a cell, or ready for a group. Removed where that group is not open, or of
   * another class.
   */
  | { readonly type: "adopted"; readonly instance: string; readonly class: string; readonly group: string | null }
  | { readonly type: "started"; readonly instance: string }
  | { readonly type: "specialised"; readonly instance: string }
  /** The start, or the specialising without a call, failed. */
  | { readonly type: "start_failed"; readonly instance: string; readonly reason: string; readonly lack?: Lack }
  /**
   * A call's result is known. Without `reuse` the instance takes no more calls, and is removed when its last call has
   * finished.
   */
  | {
      readonly type: "finished";
      readonly instance: string;
      readonly call: number;
      /** The scheduler's time when the call got the instance. */
      readonly assigned_ms: number;
      readonly reuse: boolean;
    }
  /** The cleanup after a call that finished with `reuse` has ended. */
  | { readonly type: "idle"; readonly instance: string; readonly call: number }
  | { readonly type: "crashed"; readonly instance: string; readonly reason: string }
  | { readonly type: "removed"; readonly instance: string }
  | { readonly type: "remove_failed"; readonly instance: string; readonly reason: string }
  | { readonly type: "woken" }
  /** Sets how many cells all classes share. */
  | { readonly type: "cells_set"; readonly target: number }
  /** Ends the claims on cells of a class, and its cells. Ignored for the default class, and while a group has the class. */
  | { readonly type: "class_drop"; readonly class: string }
  /**
   * Before or after its groups, and at any time again; no limit at all forgets the owner. Below what is there, idle
   * instances end and nothing that runs does.
   */
  | ({ readonly type: "owner_set"; readonly owner: string } & OwnerLimits)
  /** The memory use of all instances, and its budget. */
  | { readonly type: "memory_read"; readonly used_mb: number; readonly budget_mb: number }
  /** `force` ends running calls too. */
  | { readonly type: "drain"; readonly force?: boolean }
);

export type RemoveReason =
  | "expired"
  | "evicted"
  /** Idle, for the room of another group of its owner. */
  | "yielded"
  | "surplus"
  | "used_up"
  | "crashed"
  | "start_failed"
  | "stuck"
  | "dropped"
  | "drained";

export interface AssignEffect {
  readonly type: "assign";
  readonly instance: string;
  readonly call: number;
  readonly group: string;
  /** The instance belonged to nobody: bind it to the group first. */
  readonly specialise: boolean;
  /** The instance had neither been ready for this group before nor finished a call of it. */
  readonly cold: boolean;
  /** It was a cell that stood ready. */
  readonly cell_hit: boolean;
  readonly waited_ms: number;
}

export interface RefuseEffect {
  readonly type: "refuse";
  readonly call: number;
  readonly code: ErrorCode;
  readonly reason: string;
  /** Whole seconds, at least 1. */
  readonly retry_after?: number;
  /** The state of the group, where that is the reason. */
  readonly state?: string;
}

export type PoolEffect =
  /** `group` is what the start is meant for at this moment; it may be given to another one later. */
  | { readonly type: "start"; readonly instance: string; readonly class: string; readonly group: string | null }
  | AssignEffect
  /** Bind a started instance to a group without a call. */
  | { readonly type: "specialise"; readonly instance: string; readonly group: string }
  | RefuseEffect
  | { readonly type: "remove"; readonly instance: string; readonly reason: RemoveReason }
  /** Replaces the previous wake. */
  | { readonly type: "wake"; readonly at_ms: number }
  /** `start_attempts_max` starts in a row failed, or devices are missing (`code`); the waiting calls were refused. */
  | { readonly type: "gave_up"; readonly group: string; readonly reason: string; readonly code?: Lack["code"] }
  | { readonly type: "group_gone"; readonly group: string };

export interface GroupStatus {
  readonly warming_count: number;
  readonly ready_count: number;
  readonly busy_count: number;
  readonly recycling_count: number;
  readonly terminating_count: number;
  /** The sum of the five above. */
  readonly total_count: number;
  /** Calls in flight: at most `busy_count` times the concurrency. */
  readonly calls_running: number;
  readonly queued_count: number;
  readonly last_error: string | null;
}

/** The cells of one class. */
export interface ClassStatus {
  readonly class: string;
  /** Its share of the cells that are kept. */
  readonly cells_target: number;
  readonly cells: number;
  readonly cells_starting: number;
  readonly cell_hit_count: number;
  readonly cell_miss_count: number;
}

export interface PoolTotals {
  readonly warming_count: number;
  readonly ready_count: number;
  readonly busy_count: number;
  readonly recycling_count: number;
  readonly terminating_count: number;
  /** The sum of the five above: cells belong to no function and stand apart. */
  readonly total_count: number;
  readonly cells: number;
  readonly cells_starting: number;
  /** Calls in flight, of all groups. */
  readonly calls_running: number;
  readonly queued: number;
  readonly started_count: number;
  readonly start_failed_count: number;
  readonly crashed_count: number;
  readonly evicted_count: number;
  readonly expired_count: number;
  /** Removals that failed: what they left behind is for the reaper of the engine. */
  readonly remove_failed_count: number;
  /** Cold calls that found a cell. Calls that joined another on an instance count in neither. */
  readonly cell_hit_count: number;
  /** Cold calls that found no cell. */
  readonly cell_miss_count: number;
  /** The default class, and those with claims on cells: at most `cell_claims_max`. */
  readonly classes: ClassStatus[];
}

export interface InvokeInfo {
  /**
   * The instance had neither been ready for the group before nor finished a call of it. The pool does not hear when a
   * binding ends: only the launcher knows whether a cold call without `specialise` had to wait for it.
   */
  readonly cold: boolean;
  /** True for the first call after a cell or a fresh start was taken: that call binds the instance. */
  readonly specialise: boolean;
  /** The instance was a ready cell when its first call took it. False for warm calls. */
  readonly cell_hit: boolean;
  /** Milliseconds from submit to dispatch. */
  readonly waited_ms: number;
}

export interface Invoked<Outcome> {
  readonly outcome: Outcome;
  /**
   * True if the instance may serve again. Otherwise it takes no more calls, `idle` is ignored, and the instance is
   * removed when its last call has finished: at once if it runs no other.
   */
  readonly reuse: boolean;
  /** Resolves when the call's place may be taken again; rejects when the instance is lost, with all its calls. */
  readonly idle: Promise<void>;
}

/**
 * Starts, runs and removes instances. Called by the pool only; calls for different instances run at the same time, calls
 * for one instance never do, with two exceptions: `remove` may come at any moment, and `invoke` may run up to the
 * group's `concurrency` times at once. Every promise settles by a deadline of its own.
 */
export interface Launcher<Call, Outcome> {
  /**
   * Starts a container of a class that belongs to no group. After a rejection `remove` is called to clean up what is
   * left.
   */
  start(instance: string, of: string): Promise<void>;
  /** Binds a started instance to a group. A rejection costs the instance its life. */
  specialise(instance: string, group: string): Promise<void>;
  /**
   * Runs a call; binds the instance first when `info.specialise`. Resolves when the outcome is known, a failed, timed
   * out or killed invocation included. A rejection means that the instance is lost, and goes to the caller as it is.
   *
   * In a group with concurrency, further calls without `specialise` may come while the first one still binds: the
   * launcher lets them wait for that binding, and rejects them if it fails or never began. If the process of an instance
   * ends, the launcher settles all its calls at once: none waits for its own deadline.
   */
  invoke(instance: string, group: string, call: Call, info: InvokeInfo): Promise<Invoked<Outcome>>;
  /**
   * Ends the instance and all that belongs to it, in any state, also while it starts or runs a call (whose promise
   * then settles); resolves when nothing is left, also when nothing was there.
   */
  remove(instance: string, reason: RemoveReason): Promise<void>;
  /** A dropped group's last instance is gone: what is kept for the group can go too. Not called when it is set again before. */
  forget(group: string): void;
  /** Called once, before all else: `listener` hears of every instance that is lost without being asked to go. */
  onCrash(listener: (instance: string, reason: string) => void): void;
}

export interface PoolSettings {
  readonly instances_max: number;
  readonly starts_max: number;
  readonly start_attempts_max: number;
  /** Instances are named `<prefix><number>`: choose one that no earlier process used. */
  readonly instance_prefix: string;
  /** The class that gets the cells that no other class needs. */
  readonly default_class: string;
}

export interface PoolOptions<Call, Outcome> {
  readonly settings: PoolSettings;
  readonly clock: Clock;
  readonly launcher: Launcher<Call, Outcome>;
  /** Calls that may be in their spawn phase at once, about the number of cores plus one. */
  readonly dispatch_running_max: number;
  /** Called with each fault (a bug of the pool) and the events that led to it. The pool continues. */
  readonly onFault: (fault: unknown, recent: readonly PoolEvent[]) => void;
}

export interface GroupOptions extends GroupPolicy {
  /** Calls pass by the dispatch gate: for resident runtimes, which spawn nothing. */
  readonly is_ungated?: boolean;
}

export interface SubmitOptions {
  /** Monotonic; until when the call may wait. */
  readonly deadline_ms: number;
  /** Calls above it in its chain; 0 unless given. */
  readonly depth?: number;
  /** Aborted while the call waits: it leaves the queue. Later: no effect. */
  readonly signal?: AbortSignal;
}
