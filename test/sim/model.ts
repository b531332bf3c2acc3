/**
 * What must be the case in the pool, known from the events and effects alone: who waits, who serves, what each instance
 * does. Every effect is held against it (P1, P2, P4, P5 of `pool/scheduler.ts`, and the rules named here); the
 * scheduler's own state is never read. `records.ts` has what is kept, `audit.ts` compares the two after each step.
 *
 * M1. A call is refused for a reason that holds, and at once where it cannot be served in time.
 * M2. Within a group the deepest waiting call is next, the one that came first among equals.
 * M3. While memory is short nothing is started but for a group with a nested call.
 * M4. What is lost, failed, dropped or not to be used again is removed in the same step; a call is ended for no other
 *     reason.
 * M5. A new call gets the least loaded busy instance below half of the concurrency, else the idle one that was used last,
 *     else the least loaded one with a free place.
 * M6. A waiting call is within the queue's bound.
 * M7. No idle instance expires before its time.
 * M8. For another group of an owner with limits an idle instance of one of its groups goes, of a superseded version first.
 * M9. An instance is bound to a group of its class alone, and a start that is meant for a group is of the group's class.
 * M10. An instance runs no more calls than its group's concurrency. One that is not to be used again takes no call, and is
 *     removed when its last one has finished.
 */
import type {
  AssignEffect,
  DropReason,
  PoolEffect,
  PoolEvent,
  RefuseEffect,
  RemoveReason,
} from "../../pool/protocol.ts";
import { Tally } from "../../pool/tallies.ts";
import { invariant } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { ModelCells } from "./cells.ts";
import * as choices from "./choices.ts";
import { DeviceModel } from "./devices.ts";
import { ModelOwners } from "./owners.ts";
import { isOverdue, type ModelCall, ModelGroup, type ModelInstance } from "./records.ts";

/** Share of the budget below which memory is enough again. */
export const RELIEVED_SHARE = 0.9;

export class Model {
  /** The latest time that was shown: the scheduler's time, which never goes back. */
  now_ms = 0;
  wake_ms = Number.POSITIVE_INFINITY;
  is_draining = false;
  is_pressed = false;
  /** Over all groups, as in each. */
  deepest = 0;
  /** Instances before the step. */
  size = 0;
  /** Counts of the step: evicted idle instances and cells, cells that ended for other cells. True if a cell was started. */
  evicted_count = 0;
  trimmed_count = 0;
  is_refilling = false;
  /** A call of the step joined others after an eviction: it may have needed no more than one of those that went. */
  is_relieved = false;
  readonly instances = new Map<string, ModelInstance>();
  readonly groups = new Map<string, ModelGroup>();
  /** Those with limits. */
  readonly owners = new ModelOwners();
  /** Calls that wait. */
  readonly calls = new Map<number, ModelCall>();
  readonly cells: ModelCells;
  readonly devices = new DeviceModel(this.instances, this.groups);
  readonly tally = new Tally();
  readonly #onAnswer: (call: number) => void;
  #event: PoolEvent = { type: "woken", now_ms: 0 };
  /** The waiting call with the earliest deadline; null when it is not known. */
  #first_due: ModelCall | null = null;
  /** Instances that have to be removed in this step (M4). */
  readonly #doomed = new Set<string>();
  #steps_count = 0;

  /** `onAnswer` hears of each call that has ended, in whatever way. */
  constructor(default_class: string, onAnswer: (call: number) => void) {
    this.cells = new ModelCells(default_class);
    this.#onAnswer = onAnswer;
  }

  /** The waiting call with the earliest deadline. */
  firstDue(): ModelCall | null {
    if (this.#first_due !== null) return this.#first_due;
    for (const call of this.calls.values()) {
      if (this.#first_due === null || call.deadline_ms < this.#first_due.deadline_ms) this.#first_due = call;
    }
    return this.#first_due;
  }

  // Events

  /** Before the step. */
  hear(event: PoolEvent): void {
    this.#event = event;
    this.now_ms = Math.max(this.now_ms, event.now_ms);
    this.#steps_count += 1;
    this.#doomed.clear();
    this.deepest = 0;
    this.size = this.instances.size;
    this.evicted_count = 0;
    this.trimmed_count = 0;
    this.is_refilling = false;
    this.is_relieved = false;
    this.cells.begin(this.now_ms);
    this.devices.begin(event);
    for (const group of this.groups.values()) {
      group.lost_count = 0;
      group.shrunk_count = 0;
      group.surplus_count = 0;
      group.deepest = group.depth();
      this.deepest = Math.max(this.deepest, group.deepest);
    }
    this.owners.begin(this.groups.values());
    for (const [id, instance] of this.instances) if (isOverdue(instance, this.now_ms)) this.#doomed.add(id);
    switch (event.type) {
      case "call_arrived":
        this.#arrived(event);
        break;
      case "group_set":
        this.#setGroup(event);
        break;
      case "group_retire":
        this.#supersede(event.group);
        break;
      case "group_drop":
        this.#drop(event.group, event.reject, event.force === true);
        break;
      case "drain":
        this.is_draining = true;
        for (const key of this.groups.keys()) this.#drop(key, "shutdown", event.force === true);
        for (const [id, instance] of this.instances) if (instance.state === "cell") this.#doomed.add(id);
        break;
      case "memory_read":
        this.is_pressed =
          this.instances.size > 0 && event.used_mb > event.budget_mb * (this.is_pressed ? RELIEVED_SHARE : 1);
        break;
      case "woken":
        this.wake_ms = Number.POSITIVE_INFINITY;
        break;
      case "adopted":
        this.#adopted(event);
        break;
      case "owner_set":
        this.owners.limit(event, this.groups.values());
        break;
      case "cells_set":
        this.cells.setTarget(event.target);
        break;
      case "class_drop":
        if (![...this.groups.values()].some((group) => group.class === event.class)) this.cells.drop(event.class);
        break;
      case "call_cancelled":
        break;
      default:
        this.#heardOf(event);
    }
  }

  #arrived(event: PoolEvent & { type: "call_arrived" }): void {
    const { call: id, group, depth, deadline_ms } = event;
    const call = { id, group, depth, deadline_ms, arrived_ms: this.now_ms };
    this.calls.set(id, call);
    if (this.#first_due !== null && deadline_ms < this.#first_due.deadline_ms) this.#first_due = call;
    const known = this.groups.get(group);
    if (known === undefined) return;
    known.waiting.add(call);
    if (depth > 0) known.nested_count += 1;
    known.deepest = Math.max(known.deepest, depth);
    this.deepest = Math.max(this.deepest, depth);
    this.owners.note(known);
  }

  #setGroup(event: PoolEvent & { type: "group_set" }): void {
    const group = this.groups.get(event.group) ?? new ModelGroup(event.class);
    group.max_instances = event.max_instances;
    group.min_instances = Math.min(event.min_instances, event.max_instances);
    group.queue_max = event.queue_max;
    group.concurrency = event.concurrency ?? 1;
    group.keep_alive_ms = event.keep_alive_ms ?? LIMITS.keep_alive_ms_min;
    group.dropped = null;
    group.is_superseded = false;
    group.owner = event.owner ?? null;
    group.memory_mb = event.memory_mb ?? 1;
    this.devices.setGroup(event, group);
    this.owners.note(group);
    this.groups.set(event.group, group);
  }

  #supersede(key: string): void {
    const group = this.groups.get(key);
    if (group === undefined || group.dropped !== null) return;
    group.is_superseded = true;
    group.keep_alive_ms = LIMITS.retired_keep_alive_ms;
    group.min_instances = 0;
  }

  #drop(key: string, reason: DropReason, isForced: boolean): void {
    const group = this.groups.get(key);
    if (group === undefined) return;
    group.dropped = reason;
    for (const [id, instance] of this.instances) {
      if (instance.group === key && (instance.state !== "busy" || isForced)) this.#doomed.add(id);
    }
  }

  #adopted({ instance: id, class: of, group: key }: PoolEvent & { type: "adopted" }): void {
    invariant(!this.instances.has(id), `the simulator adopts ${id} twice`);
    const known = key === null ? undefined : this.groups.get(key);
    const group = known?.class === of ? known : undefined;
    const isOpen = !this.is_draining && (key === null || group?.dropped === null);
    const holds = this.devices.countOf(of);
    if (!isOpen || (key === null && holds > 0)) this.#doomed.add(id);
    else if (key === null) this.cells.need(of, null, this.now_ms);
    this.#add(id, of, key === null ? "cell" : "ready", group === undefined ? null : key, holds);
    this.#instance(id).was_ready = key !== null;
  }

  #add(id: string, of: string, state: ModelInstance["state"], group: string | null, holds = 0): void {
    const { now_ms: since_ms } = this;
    const ready_step = this.#steps_count;
    const flags = { closing_ms: null, was_ready: false, was_cell: false, is_nested: false };
    const calls = { calls: new Map(), cleaning: new Map() };
    this.instances.set(id, { class: of, state, group, ...calls, ...flags, since_ms, ready_step, holds });
  }

  /** M9. */
  #bind(id: string, instance: ModelInstance, key: string): void {
    const { class: of, owner = null } = this.groups.get(key) ?? {};
    invariant(instance.class === of, `M9: ${id} of ${instance.class} is bound to ${key} of ${of}`);
    instance.group = key;
    this.cells.need(instance.class, owner, this.now_ms, this.devices.countOf(instance.class));
  }

  #heardOf(event: PoolEvent & { instance: string }): void {
    const { type } = event;
    const instance = this.instances.get(event.instance);
    // Late ones too: what they left behind is to be looked for.
    if (type === "remove_failed") this.tally.remove_failed_count += 1;
    if (instance === undefined) return;
    if (type === "removed" || type === "remove_failed") {
      this.instances.delete(event.instance);
      return;
    }
    if (instance.state === "terminating") return;
    if (type === "finished") {
      this.#finished(event, instance);
      return;
    }
    if (type === "idle") {
      instance.cleaning.delete(event.call);
      if (instance.state === "busy" || instance.cleaning.size > 0) return;
    }
    // One that is lost may have been due in this very step.
    if (type !== "crashed") instance.since_ms = this.now_ms;
    instance.ready_step = this.#steps_count;
    if (type === "started") {
      this.tally.started_count += 1;
      instance.holds = this.devices.countOf(instance.class);
      instance.state = "cell";
    } else if (type === "specialised" || type === "idle") {
      instance.state = "ready";
    } else {
      this.#end(instance);
      this.#doomed.add(event.instance);
    }
  }

  #finished(event: PoolEvent & { type: "finished" }, instance: ModelInstance): void {
    const { instance: id, call, assigned_ms, reuse } = event;
    invariant(instance.calls.delete(call), `the simulator finishes call ${call} on ${id} twice`);
    this.groups.get(instance.group ?? "")?.served(this.now_ms - assigned_ms);
    this.#onAnswer(call);
    instance.was_ready = true;
    instance.ready_step = this.#steps_count;
    if (reuse) instance.cleaning.set(call, this.now_ms);
    else instance.closing_ms ??= this.now_ms;
    if (instance.calls.size > 0) return;
    instance.state = "recycling";
    instance.since_ms = this.now_ms;
    if (instance.closing_ms !== null) this.#doomed.add(id);
  }

  #end(instance: ModelInstance): void {
    for (const call of instance.calls.keys()) this.#onAnswer(call);
    instance.calls.clear();
  }

  #leave(call: ModelCall): void {
    this.calls.delete(call.id);
    if (this.#first_due === call) this.#first_due = null;
    const group = this.groups.get(call.group);
    if (group?.waiting.delete(call) === true && call.depth > 0) group.nested_count -= 1;
  }

  // Effects

  /** Holds an effect of the step against the model, and lets it be. */
  obey(effect: PoolEffect): void {
    switch (effect.type) {
      case "start":
        invariant(!this.instances.has(effect.instance), `P5: ${effect.instance} is started twice`);
        if (this.is_pressed) {
          const depth = effect.group === null ? 0 : (this.groups.get(effect.group)?.deepest ?? 0);
          invariant(depth > 0, `M3: ${effect.instance} is started while memory is short`);
        }
        this.#add(effect.instance, effect.class, "starting", null);
        if (effect.group === null) {
          this.is_refilling = true;
        } else {
          const of = this.groups.get(effect.group)?.class;
          invariant(effect.class === of, `M9: ${effect.instance} of ${effect.class} is started for ${effect.group}`);
        }
        break;
      case "assign":
        this.#assigned(effect);
        break;
      case "specialise": {
        const instance = this.#instance(effect.instance);
        invariant(instance.state === "cell", `P2: ${effect.instance} is specialised while ${instance.state}`);
        instance.state = "specialising";
        this.#bind(effect.instance, instance, effect.group);
        break;
      }
      case "refuse":
        this.#refused(effect);
        break;
      case "remove":
        this.#removed(effect.instance, effect.reason);
        break;
      case "wake":
        invariant(effect.at_ms < this.wake_ms, "the wake is put off");
        this.wake_ms = effect.at_ms;
        break;
      case "gave_up":
        choices.checkSurrender(effect, this.groups.get(effect.group));
        break;
      case "group_gone":
        this.#forgotten(effect.group);
        break;
    }
  }

  #removed(id: string, reason: RemoveReason): void {
    const instance = this.#instance(id);
    invariant(instance.state !== "terminating", `P5: ${id} is removed twice`);
    invariant(instance.state !== "busy" || this.#doomed.has(id), `M4: ${id} is ${reason} while it runs a call`);
    if (reason === "expired") this.#isOver(id, instance);
    const isSacrifice = reason === "evicted" && this.devices.isSacrifice(id, instance);
    if (reason === "evicted" && !isSacrifice) this.evicted_count += 1;
    if (reason === "surplus" && instance.state === "cell") this.trimmed_count += 1;
    if (reason === "yielded") this.#yielded(id, instance);
    this.#end(instance);
    instance.state = "terminating";
    const group = instance.group === null ? undefined : this.groups.get(instance.group);
    if (group !== undefined) group.lost_count += 1;
    const isShrunk = reason === "expired" || (reason === "evicted" && !isSacrifice) || reason === "yielded";
    if (group !== undefined && isShrunk) group.shrunk_count += 1;
    if (group !== undefined && reason === "surplus") group.surplus_count += 1;
    const name = `${reason}_count`;
    const isLack = reason === "start_failed" && this.devices.isLacking;
    if (name in this.tally && !isLack) this.tally[name as keyof Tally] += 1;
  }

  #yielded(id: string, instance: ModelInstance): void {
    this.tally.evicted_count += 1;
    const group = this.groups.get(instance.group ?? "");
    const owner = this.owners.of(group);
    invariant(instance.state === "ready" && owner !== null, `M8: ${id} goes for nobody`);
    owner.yielded_count += 1;
    choices.checkYield(id, group, this.instances.values(), this.groups);
  }

  #isOver(id: string, instance: ModelInstance): void {
    const event = this.#event;
    // What is due goes before the event: the keep-alive was another then.
    if ("group" in event && event.group === instance.group) return;
    choices.checkExpiry(id, instance, this.groups.get(instance.group ?? ""), this.now_ms);
  }

  #instance(id: string): ModelInstance {
    const instance = this.instances.get(id);
    invariant(instance !== undefined, `P5: ${id} does not exist`);
    return instance;
  }

  #assigned(effect: AssignEffect): void {
    const { instance: id } = effect;
    const instance = this.#instance(id);
    const call = this.calls.get(effect.call);
    invariant(call !== undefined, `P1: call ${effect.call} is assigned but does not wait`);
    invariant(call.deadline_ms > this.now_ms, `P4: call ${call.id} is assigned after its deadline`);
    const group = this.groups.get(call.group);
    const isJoining = instance.state === "busy";
    const isFree = instance.state === "cell" || instance.state === "ready";
    invariant(isFree || isJoining, `P2: ${id} serves while ${instance.state}`);
    if (isJoining) choices.checkJoin(id, instance, group);
    invariant(effect.group === call.group, `P2: call ${call.id} goes to another group`);
    invariant(effect.specialise === (instance.group === null), `P2: ${id} is bound twice or not at all`);
    invariant(instance.group === null || instance.group === call.group, `P2: ${id} is bound elsewhere`);
    // Adopted instances that serve a call at once have not been ready in this process.
    invariant(effect.cold === !instance.was_ready, `${id} has the wrong warmth`);
    const isFresh = this.#event.type === "started" && this.#event.instance === id;
    const isHit = instance.state === "cell" && !isFresh;
    // It rested before the call's owner had room, in the same step: an idle instance went, or another group had its turn.
    const hasRested = isFresh && this.owners.of(this.groups.get(call.group)) !== null;
    const isCell = isJoining ? effect.cold && instance.was_cell : isHit;
    invariant(effect.cell_hit === isCell || hasRested, `${id} is wrongly called a cell`);
    if (effect.specialise) instance.was_cell = effect.cell_hit;
    invariant(effect.waited_ms === this.now_ms - call.arrived_ms, `call ${call.id} has waited for another time`);
    if (effect.cold && !isJoining) this.tally[effect.cell_hit ? "cell_hit_count" : "cell_miss_count"] += 1;
    choices.checkNext(group, call);
    if (this.#event.type === "call_arrived" && group !== undefined) {
      choices.checkPlace(this.instances.values(), id, instance, group);
    } else if (!isJoining && group !== undefined) {
      choices.checkNeed(id, this.instances.values(), call, group);
    }
    this.#leave(call);
    if (effect.specialise) this.#bind(id, instance, call.group);
    if (isJoining && this.evicted_count > 0) this.is_relieved = true;
    if (!isJoining) {
      instance.state = "busy";
      instance.since_ms = this.now_ms;
      instance.is_nested = false;
    }
    if (call.depth > 0) instance.is_nested = true;
    instance.calls.set(call.id, call);
  }

  #refused(effect: RefuseEffect): void {
    const call = this.calls.get(effect.call);
    invariant(call !== undefined, `P1: call ${effect.call} is refused but does not wait`);
    const isLack = effect.code === "CAPACITY_FULL" && this.devices.isReason(effect, call, this.now_ms);
    choices.checkPromise(effect, isLack || this.devices.isLate(call, this.now_ms));
    invariant(
      isLack || this.#isReason(effect, call),
      `M1: call ${call.id} is refused with ${effect.code}: ${effect.reason}`,
    );
    this.#leave(call);
    this.#onAnswer(call.id);
  }

  #isReason(effect: RefuseEffect, call: ModelCall): boolean {
    const { now_ms, is_draining } = this;
    const group = this.groups.get(call.group);
    const is_beyond_quota = group !== undefined && this.owners.isBeyondQuota(group);
    return choices.isReason(effect, call, group, { now_ms, is_draining, is_beyond_quota, event: this.#event });
  }

  #forgotten(key: string): void {
    const group = this.groups.get(key);
    if (group === undefined) {
      invariant(this.#event.type === "group_drop", `${key} goes twice`);
      return;
    }
    const reset = this.#event.type === "group_set" && this.#event.group === key ? this.#event : null;
    invariant(group.dropped !== null || group.is_superseded || reset !== null, `${key} is forgotten while it is open`);
    if (this.#event.type === "call_cancelled") this.#cancelled(this.#event.call, key);
    if (this.#event.type === "call_arrived") this.#unknown(group, this.#event.call);
    invariant(group.waiting.size === 0, `P1: ${key} is forgotten while calls wait`);
    for (const [id, instance] of this.instances) invariant(instance.group !== key, `${key} is forgotten before ${id}`);
    this.groups.delete(key);
    // What is due goes before the event: it was forgotten first, and made anew.
    if (reset !== null) this.#setGroup(reset);
  }

  /** The last that waited was due in this very step: the call that comes finds its group forgotten. */
  #unknown(group: ModelGroup, id: number): void {
    const call = this.calls.get(id);
    if (call !== undefined) group.waiting.delete(call);
  }

  /** Unless it was due in this very step and has been refused; of one group, where that is named. */
  #cancelled(id: number, group?: string): void {
    const call = this.calls.get(id);
    if (call === undefined || (group ?? call.group) !== call.group) return;
    this.#leave(call);
    this.#onAnswer(id);
  }

  /** A new call that waits has a place in the queue and may be served in time. */
  #isWelcome(id: number): void {
    const call = this.calls.get(id);
    const group = call === undefined ? undefined : this.groups.get(call.group);
    if (call === undefined || group === undefined) return;
    invariant(!this.owners.isBeyondQuota(group), `M1: call ${id} waits for what its owner may never have`);
    choices.checkWelcome(call, group, this.now_ms);
  }

  /** After the step and all its effects. */
  conclude(): void {
    const event = this.#event;
    if (event.type === "call_cancelled") this.#cancelled(event.call);
    if (event.type === "specialised") {
      // Bound and not taken by a waiting call: it has become ready, so its calls are warm from now on.
      const instance = this.instances.get(event.instance);
      if (instance?.state === "ready") instance.was_ready = true;
    }
    for (const id of this.#doomed) invariant(this.#instance(id).state === "terminating", `M4: ${id} is not removed`);
    if (event.type === "call_arrived") this.#isWelcome(event.call);
  }
}
