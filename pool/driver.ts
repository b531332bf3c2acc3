/**
 * Hot path. The pool as its users see it. Owns the scheduler's state, turns effects into launcher calls and what comes
 * of them into events. Decides nothing.
 *
 * D1. `step` runs to its end before the next event: events that arise while effects are carried out wait in the inbox.
 * D2. When an instance has a place for the call, `submit` has called `launcher.invoke` before it returns (unless the gate is full).
 * D3. Every call is settled once: by its outcome, by the launcher's rejection, by a refusal, or by its abort signal.
 * D4. What throws where nobody waits for it is a fault and reported: no event is lost for it, no rejection unhandled.
 *
 * The waits, all of them: W1 invoke, W2 idle, W3 start, W4 specialise, W5 remove; W6 drop, W7 warm and W8 drain wait
 * for the pool itself. W3 to W8 have deadlines here, W1 and W2 the launcher's and the scheduler's: an
 * instance that takes no more calls is removed `closing_ms_max` later, whatever its W1 brings.
 */
import type { CancelTimer, Clock } from "../src/base/clock.ts";
import { AppError, errorText } from "../src/base/errors.ts";
import { LackingError } from "../src/base/lacking.ts";
import { LIMITS } from "../src/base/limits.ts";
import { type GiveUp, goneCondition, refusal, warmCondition } from "./conditions.ts";
import { Gate, type Pass } from "./gate.ts";
import type {
  AssignEffect,
  DropReason,
  GroupOptions,
  GroupStatus,
  Invoked,
  Launcher,
  OwnerLimits,
  PoolEffect,
  PoolEvent,
  PoolOptions,
  PoolTotals,
  SubmitOptions,
} from "./protocol.ts";
import { step } from "./scheduler.ts";
import { PoolState } from "./states.ts";
import { ownerUseOf, statusOf, totalsOf } from "./stats.ts";
import { Watches } from "./watches.ts";

/** The launcher keeps its own deadlines; these catch one that does not. */
const START_WAIT_MS = LIMITS.start_timeout_ms + LIMITS.deadline_grace_ms;
/** A removal may have to wait for a start to end. */
const REMOVE_WAIT_MS = START_WAIT_MS + LIMITS.remove_timeout_ms;

interface Pending<Call, Outcome> {
  readonly id: number;
  readonly group: string;
  readonly call: Call;
  readonly submitted_ms: number;
  readonly deadline_ms: number;
  readonly depth: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
  /** The scheduler's time when the call got its instance. */
  assigned_ms: number;
  stopListening: (() => void) | null;
}

export class Pool<Call, Outcome> {
  readonly #state: PoolState;
  readonly #clock: Clock;
  readonly #launcher: Launcher<Call, Outcome>;
  readonly #gate: Gate;
  readonly #onFault: PoolOptions<Call, Outcome>["onFault"];
  /** Calls that wait for an instance. */
  readonly #calls = new Map<number, Pending<Call, Outcome>>();
  /** Calls that have an instance and wait at the gate, by instance. */
  readonly #atGate = new Map<string, { readonly pass: Pass; readonly pending: Pending<Call, Outcome> }[]>();
  readonly #ungated = new Set<string>();
  readonly #inbox: PoolEvent[] = [];
  readonly #watches: Watches;
  /** Groups that ran out of start attempts, with the reason; kept while a caller waits for a group to be warm. */
  readonly #giveUps = new Map<string, GiveUp>();
  /** D4. The listener's own failure has nowhere to go and must not stop the pool. */
  readonly #fault = (fault: unknown): void => {
    try {
      this.#onFault(fault, this.recent());
    } catch {}
  };
  #isFeeding = false;
  #nextCall = 1;
  #cancelWake: CancelTimer | null = null;

  constructor(options: PoolOptions<Call, Outcome>) {
    this.#state = new PoolState(options.settings);
    this.#clock = options.clock;
    this.#launcher = options.launcher;
    this.#gate = new Gate(options.clock, options.dispatch_running_max, LIMITS.dispatch_phase_ms);
    this.#watches = new Watches(options.clock);
    this.#onFault = options.onFault;
    options.launcher.onCrash((instance, reason) => {
      this.#feed({ type: "crashed", instance, reason, now_ms: this.#clock.monotonicMs() });
    });
  }

  /**
   * Runs a call on an instance of its group; resolves to what `launcher.invoke` brought. Refusals (`AppError`):
   * QUEUE_FULL, QUEUE_TIMEOUT, CAPACITY_FULL, QUOTA_EXCEEDED, START_FAILED, SHUTTING_DOWN, NOT_FOUND, WRONG_STATE.
   */
  submit(group: string, call: Call, options: SubmitOptions): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const { signal, deadline_ms, depth = 0 } = options;
      if (signal?.aborted === true) {
        reject(signal.reason);
        return;
      }
      const id = this.#nextCall++;
      const submitted_ms = this.#clock.monotonicMs();
      const pending: Pending<Call, Outcome> = {
        id,
        group,
        call,
        submitted_ms,
        deadline_ms,
        depth,
        resolve,
        reject,
        assigned_ms: submitted_ms,
        stopListening: null,
      };
      if (signal !== undefined) this.#listen(pending, signal);
      this.#calls.set(id, pending);
      this.#feed({ type: "call_arrived", call: id, group, deadline_ms, depth, now_ms: submitted_ms });
    });
  }

  /** Makes a group or replaces its policy; starts warming to `min_instances`. */
  setGroup(group: string, options: GroupOptions): void {
    const { is_ungated, ...policy } = options;
    if (is_ungated === true) this.#ungated.add(group);
    else this.#ungated.delete(group);
    this.#feed({ type: "group_set", group, ...policy, now_ms: this.#clock.monotonicMs() });
  }

  /** A superseded version: its calls finish, its idle instances stay for the grace period, then the group is forgotten. */
  retireGroup(group: string): void {
    this.#feed({ type: "group_retire", group, now_ms: this.#clock.monotonicMs() });
  }

  /**
   * Sets what the instances of an owner's groups may be together; without any limit the owner is forgotten. Nothing that
   * runs ends by it. A call that no instance could serve within the limits is refused with QUOTA_EXCEEDED.
   */
  setOwner(owner: string, { instances_max, memory_mb_max }: OwnerLimits): void {
    this.#feed({ type: "owner_set", owner, instances_max, memory_mb_max, now_ms: this.#clock.monotonicMs() });
  }

  /** Adopts an instance of an earlier process that the launcher knows, of a class: a cell, or ready for a group. */
  adopt(instance: string, of: string, group: string | null): void {
    this.#feed({ type: "adopted", instance, class: of, group, now_ms: this.#clock.monotonicMs() });
  }

  /** Sets the memory use of all instances. Above the budget, idle instances end, least recently used first. */
  noteMemory(used_mb: number, budget_mb: number): void {
    this.#feed({ type: "memory_read", used_mb, budget_mb, now_ms: this.#clock.monotonicMs() });
  }

  /** True if the memory budget was used up at the last `noteMemory`. */
  get isPressed(): boolean {
    return this.#state.is_pressed;
  }

  /**
   * Refuses a group's waiting calls and ends its instances, busy ones when they finish or at once with `force`.
   * Resolves when the last one is gone; rejects with INTERNAL when that takes longer than `deadline_ms` from now, or
   * when the group is set again meanwhile. The drop itself goes on.
   */
  dropGroup(group: string, reason: DropReason, options: { deadline_ms: number; force?: boolean }): Promise<void> {
    this.#feed({
      type: "group_drop",
      group,
      reject: reason,
      force: options.force === true,
      now_ms: this.#clock.monotonicMs(),
    });
    // W6.
    return this.#watches.until(options.deadline_ms, goneCondition(this.#state, group, options.deadline_ms));
  }

  /**
   * Resolves when the group has `min_instances` that serve. Rejects with START_FAILED when all attempts to start one
   * failed or when `deadline_ms` from now have passed, with QUOTA_EXCEEDED when its owner's limits can never hold so
   * many; with the drop's refusal when the group is dropped.
   */
  warm(group: string, deadline_ms: number): Promise<void> {
    this.#giveUps.delete(group);
    // W7.
    return this.#watches.until(deadline_ms, warmCondition(this.#state, group, this.#giveUps, deadline_ms));
  }

  /** Sets how many cells are kept ready, of all classes together. None are before the first call. */
  setCells(target: number): void {
    this.#feed({ type: "cells_set", target, now_ms: this.#clock.monotonicMs() });
  }

  /** Ends the cells of a class that no group has any more, instead of keeping them by past demand. */
  dropClass(of: string): void {
    this.#feed({ type: "class_drop", class: of, now_ms: this.#clock.monotonicMs() });
  }

  /**
   * Shuts down: refuses what waits and what comes, ends what is idle, lets running calls finish for `deadline_ms`, then
   * ends them too. Resolves to whether every instance is gone; never rejects.
   */
  async drain(deadline_ms: number): Promise<boolean> {
    for (const force of [false, true]) {
      this.#feed({ type: "drain", force, now_ms: this.#clock.monotonicMs() });
      // W8.
      const isGone = await this.#watches
        .until(force ? REMOVE_WAIT_MS : deadline_ms, {
          check: (resolve) => {
            if (this.#state.instances.size === 0) resolve();
          },
          late: () => new AppError("INTERNAL", "instances are left"),
        })
        .then(
          () => true,
          () => false,
        );
      if (isGone) return true;
    }
    return false;
  }

  /** All zero for a group that has no instances here. */
  status(group: string): GroupStatus {
    return statusOf(this.#state.groups.get(group) ?? null);
  }

  /** Instances of an owner's groups, and the sum of their memory limits; those on their way out left aside. */
  ownerUse(owner: string): { readonly count: number; readonly mb: number } {
    return ownerUseOf(this.#state, owner);
  }

  totals(): PoolTotals {
    return totalsOf(this.#state);
  }

  /** The last events, oldest first. */
  recent(): PoolEvent[] {
    return this.#state.recent.list();
  }

  #listen(pending: Pending<Call, Outcome>, signal: AbortSignal): void {
    const onAbort = (): void => {
      if (!this.#calls.delete(pending.id)) return;
      this.#feed({ type: "call_cancelled", call: pending.id, now_ms: this.#clock.monotonicMs() });
      pending.stopListening?.();
      pending.reject(signal.reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    pending.stopListening = () => signal.removeEventListener("abort", onAbort);
  }

  /** One event into the scheduler, its effects out (D1). */
  #feed(event: PoolEvent): void {
    if (this.#isFeeding) {
      this.#inbox.push(event);
      return;
    }
    this.#isFeeding = true;
    this.#process(event);
    // Bounded: each event in the inbox stems from an effect just carried out.
    for (let i = 0; i < this.#inbox.length; i++) {
      const next = this.#inbox[i];
      if (next !== undefined) this.#process(next);
    }
    if (this.#inbox.length > 0) this.#inbox.length = 0;
    this.#isFeeding = false;
    if (this.#watches.open_count > 0) {
      this.#watches.check();
      if (this.#watches.open_count === 0) this.#giveUps.clear();
    }
  }

  #process(event: PoolEvent): void {
    try {
      step(this.#state, event);
    } catch (fault) {
      this.#fault(fault);
      if (event.type === "call_arrived") this.#reject(event.call, fault);
    }
    // After a fault too: what was decided before it stands in the state.
    for (const effect of this.#state.effects) {
      try {
        this.#perform(effect);
      } catch (fault) {
        this.#fault(fault);
      }
    }
  }

  #reject(call: number, error: unknown): void {
    const pending = this.#calls.get(call);
    if (pending === undefined) return;
    this.#calls.delete(call);
    pending.stopListening?.();
    pending.reject(error);
  }

  #perform(effect: PoolEffect): void {
    switch (effect.type) {
      case "assign":
        this.#dispatch(effect);
        break;
      case "refuse":
        this.#reject(effect.call, refusal(effect));
        break;
      case "start":
        this.#start(effect.instance, effect.class).catch(this.#fault);
        break;
      case "specialise":
        this.#specialise(effect.instance, effect.group).catch(this.#fault);
        break;
      case "remove":
        this.#remove(effect.instance, effect.reason).catch(this.#fault);
        break;
      case "wake":
        this.#wake(effect.at_ms);
        break;
      case "gave_up":
        if (this.#watches.open_count > 0) this.#giveUps.set(effect.group, effect);
        break;
      case "group_gone":
        // Its last call was due when it was set again: it is another group of that name by now.
        if (this.#state.groups.has(effect.group)) break;
        this.#ungated.delete(effect.group);
        this.#launcher.forget(effect.group);
        break;
    }
  }

  #wake(at_ms: number): void {
    this.#cancelWake?.();
    const delay_ms = Math.min(LIMITS.wake_ms_max, Math.max(0, Math.ceil(at_ms - this.#clock.monotonicMs())));
    this.#cancelWake = this.#clock.after(delay_ms, () => {
      this.#cancelWake = null;
      this.#feed({ type: "woken", now_ms: this.#clock.monotonicMs() });
    });
  }

  // Calls

  #dispatch(effect: AssignEffect): void {
    const pending = this.#calls.get(effect.call);
    if (pending === undefined) {
      this.#skip(effect);
      return;
    }
    this.#calls.delete(effect.call);
    pending.assigned_ms = this.#state.now_ms;
    if (this.#ungated.size > 0 && this.#ungated.has(effect.group)) {
      this.#invoke(effect, pending, null);
      return;
    }
    const pass = this.#gate.enter(this.#state.now_ms, (through) => this.#invoke(effect, pending, through));
    if (!pass.has_waited) return;
    const waiting = this.#atGate.get(effect.instance);
    if (waiting === undefined) this.#atGate.set(effect.instance, [{ pass, pending }]);
    else waiting.push({ pass, pending });
  }

  /** Ends a call that was aborted while its arrival waited in the inbox. The instance that it would have bound is removed. */
  #skip({ instance, call, specialise }: AssignEffect): void {
    const now_ms = this.#state.now_ms;
    this.#feed({ type: "finished", instance, call, assigned_ms: now_ms, reuse: !specialise, now_ms });
    if (!specialise) this.#feed({ type: "idle", instance, call, now_ms });
  }

  /** Removes a call from those that wait at the gate. */
  #passGate(instance: string, id: number): void {
    const waiting = this.#atGate.get(instance);
    const left = waiting?.filter(({ pending }) => pending.id !== id) ?? [];
    if (left.length === 0) this.#atGate.delete(instance);
    else this.#atGate.set(instance, left);
  }

  #invoke(effect: AssignEffect, pending: Pending<Call, Outcome>, pass: Pass | null): void {
    const { instance, group, cold, specialise, cell_hit } = effect;
    let now_ms = this.#state.now_ms;
    if (pass?.has_waited === true) {
      this.#passGate(instance, pending.id);
      now_ms = this.#clock.monotonicMs();
    }
    const waited_ms = now_ms - pending.submitted_ms;
    let running: Promise<Invoked<Outcome>>;
    try {
      running = this.#launcher.invoke(instance, group, pending.call, { cold, specialise, cell_hit, waited_ms });
    } catch (error) {
      running = Promise.reject(error);
    }
    // W1.
    running
      .then(
        (invoked) => this.#invoked(instance, pending, pass, invoked),
        (error) => {
          pending.stopListening?.();
          pending.reject(error);
          const now_ms = this.#clock.monotonicMs();
          this.#feed({ type: "crashed", instance, reason: errorText(error), now_ms });
          if (pass !== null) this.#gate.leave(pass, now_ms);
        },
      )
      .catch(this.#fault);
  }

  #invoked(instance: string, pending: Pending<Call, Outcome>, pass: Pass | null, invoked: Invoked<Outcome>): void {
    pending.stopListening?.();
    pending.resolve(invoked.outcome);
    const now_ms = this.#clock.monotonicMs();
    const { id: call, assigned_ms } = pending;
    this.#feed({ type: "finished", instance, call, assigned_ms, reuse: invoked.reuse, now_ms });
    if (pass !== null) this.#gate.leave(pass, now_ms);
    // W2. A rejection is heard even where the instance is not used again: it must not count as unhandled.
    invoked.idle
      .then(
        () => {
          if (invoked.reuse) this.#feed({ type: "idle", instance, call, now_ms: this.#clock.monotonicMs() });
        },
        (error) => {
          this.#feed({ type: "crashed", instance, reason: errorText(error), now_ms: this.#clock.monotonicMs() });
        },
      )
      .catch(this.#fault);
  }

  /** Submits calls again that waited at the gate for a lost instance: none of them has begun. */
  #rescue(instance: string): void {
    const waiting = this.#atGate.get(instance);
    if (waiting === undefined) return;
    this.#atGate.delete(instance);
    for (const { pending, pass } of waiting) {
      this.#gate.leave(pass, this.#state.now_ms);
      const { id, group, deadline_ms, depth } = pending;
      this.#calls.set(id, pending);
      this.#feed({ type: "call_arrived", call: id, group, deadline_ms, depth, now_ms: this.#state.now_ms });
    }
  }

  // Instances

  async #start(instance: string, of: string): Promise<void> {
    try {
      // W3.
      await this.#within(START_WAIT_MS, "start", () => this.#launcher.start(instance, of));
      this.#feed({ type: "started", instance, now_ms: this.#clock.monotonicMs() });
    } catch (error) {
      const lack = error instanceof LackingError ? { lack: error.lack } : {};
      const reason = errorText(error);
      this.#feed({ type: "start_failed", instance, reason, ...lack, now_ms: this.#clock.monotonicMs() });
    }
  }

  async #specialise(instance: string, group: string): Promise<void> {
    try {
      // W4.
      await this.#within(START_WAIT_MS, "specialise", () => this.#launcher.specialise(instance, group));
      this.#feed({ type: "specialised", instance, now_ms: this.#clock.monotonicMs() });
    } catch (error) {
      this.#feed({ type: "start_failed", instance, reason: errorText(error), now_ms: this.#clock.monotonicMs() });
    }
  }

  async #remove(instance: string, reason: (PoolEffect & { type: "remove" })["reason"]): Promise<void> {
    this.#rescue(instance);
    try {
      // W5.
      await this.#within(REMOVE_WAIT_MS, "remove", () => this.#launcher.remove(instance, reason));
      this.#feed({ type: "removed", instance, now_ms: this.#clock.monotonicMs() });
    } catch (error) {
      this.#feed({ type: "remove_failed", instance, reason: errorText(error), now_ms: this.#clock.monotonicMs() });
    }
  }

  #within(wait_ms: number, what: string, work: () => Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.after(wait_ms, () => {
        reject(new AppError("INTERNAL", `${what} has not ended after ${wait_ms} ms`));
      });
      Promise.try(work).then(resolve, reject).finally(cancel);
    });
  }
}
