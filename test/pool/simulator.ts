/**
 * Drives the real `step` with a simulated launcher, all from one seed: arrivals, slow and failing starts, crashes in
 * every state, timeouts, cancellations, policy changes, drops, clock jumps. A model of its own, fed by effects alone,
 * is compared with the scheduler's state after each step.
 */

import { isNeeded } from "../../pool/policy.ts";
import type { DropReason, PoolEffect, PoolEvent } from "../../pool/protocol.ts";
import { step } from "../../pool/scheduler.ts";
import { Counts, PoolState } from "../../pool/states.ts";
import { Timers } from "../../pool/timers.ts";
import { invariant } from "../../src/base/errors.ts";

type Untimed = PoolEvent extends infer E ? (E extends PoolEvent ? Omit<E, "now_ms"> : never) : never;

interface ModelInstance {
  phase: "starting" | "started" | "specialising" | "idle" | "busy" | "recycling" | "removing";
  group: string | null;
  call: number | null;
  was_ready: boolean;
}

interface ModelCall {
  readonly group: string;
  readonly deadline_ms: number;
  state: "waiting" | "running" | "done";
}

const STEPS_MAX = 30_000;
const QUIET_MS = 900_000;

/** Mulberry32: 32 bits of state, good enough to pick events and the same everywhere. */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export interface SimulationReport {
  readonly steps: number;
  readonly calls: number;
  readonly refused: number;
  readonly warm: number;
  readonly cold: number;
  readonly removed: ReadonlySet<string>;
  readonly refusal_codes: ReadonlySet<string>;
}

export class Simulation {
  readonly #random: () => number;
  readonly #state: PoolState;
  readonly #future = new Timers<Untimed>();
  readonly #instances = new Map<string, ModelInstance>();
  readonly #calls = new Map<number, ModelCall>();
  readonly #groups: string[];
  readonly #removeReasons = new Set<string>();
  readonly #refusalCodes = new Set<string>();
  #now_ms = 0;
  #wake_ms = Number.POSITIVE_INFINITY;
  #steps = 0;
  #nextCall = 1;
  #refused = 0;
  #warm = 0;
  #cold = 0;
  #isHealthy = false;
  readonly #failRate: number;
  readonly #crashRate: number;

  constructor(seed: number) {
    this.#random = generator(seed);
    this.#groups = Array.from({ length: this.#whole(1, 5) }, (_, i) => `fn_${i}@1`);
    this.#failRate = this.#pick([0, 0, 0.1, 0.5, 1]);
    this.#crashRate = this.#pick([0, 0.02, 0.2]);
    this.#state = new PoolState({
      instances_max: this.#whole(1, 24),
      starts_max: this.#whole(1, 4),
      start_attempts_max: this.#whole(1, 3),
      instance_prefix: "i",
    });
  }

  run(): SimulationReport {
    for (const group of this.#groups) this.#setGroup(group);
    this.#at(0, { type: "cells_set", target: this.#whole(0, 4) });
    const turns = this.#whole(50, 200);
    for (let i = 0; i < turns; i++) this.#disturb(this.#random() * 3_000 + i * 15);
    if (this.#random() < 0.3) this.#at(this.#random() * 3_000, { type: "drain" });
    this.#play(this.#pick([2_000, 20_000]));
    if (this.#random() < 0.5) this.#settle();
    this.#shutDown();
    return {
      steps: this.#steps,
      calls: this.#calls.size,
      refused: this.#refused,
      warm: this.#warm,
      cold: this.#cold,
      removed: this.#removeReasons,
      refusal_codes: this.#refusalCodes,
    };
  }

  // What happens

  #whole(min: number, max: number): number {
    return min + Math.floor(this.#random() * (max - min + 1));
  }

  #pick<T>(options: readonly T[]): T {
    const picked = options[Math.floor(this.#random() * options.length)];
    invariant(picked !== undefined, "the simulator picked from nothing");
    return picked;
  }

  #at(delay_ms: number, event: Untimed): void {
    this.#future.add(this.#now_ms + delay_ms, event);
  }

  #setGroup(group: string, delay_ms = 0): void {
    const max_instances = this.#whole(1, 10);
    this.#at(delay_ms, {
      type: "group_set",
      group,
      max_instances,
      min_instances: this.#random() < 0.6 ? 0 : this.#whole(0, 3),
      queue_max: this.#pick([1, 5, 100]),
      ...(this.#random() < 0.2 ? { keep_alive_ms: this.#whole(1, 2_000) } : {}),
    });
    if (this.#random() < 0.15) this.#at(delay_ms, { type: "group_retire", group });
  }

  #arrive(delay_ms: number): void {
    const call = this.#nextCall++;
    const wait_ms = this.#pick([-1, 20, 200, 5_000, 30_000]);
    const event: Untimed = {
      type: "call_arrived",
      call,
      group: this.#pick(this.#groups),
      deadline_ms: this.#now_ms + delay_ms + wait_ms,
      depth: 0,
    };
    this.#at(delay_ms, event);
    if (this.#random() < 0.1) this.#at(delay_ms + this.#random() * 100, { type: "call_cancelled", call });
  }

  #disturb(delay_ms: number): void {
    const dice = this.#random();
    if (dice < 0.5) this.#arrive(delay_ms);
    else if (dice < 0.6) for (let i = this.#whole(2, 40); i > 0; i--) this.#arrive(delay_ms);
    else if (dice < 0.68) this.#setGroup(this.#pick(this.#groups), delay_ms);
    else if (dice < 0.72) {
      const reject = this.#pick<DropReason>(["paused", "deleted"]);
      const group = this.#pick(this.#groups);
      this.#at(delay_ms, { type: "group_drop", group, reject, force: this.#random() < 0.3 });
      if (this.#random() < 0.7) this.#setGroup(group, delay_ms + this.#random() * 50);
    } else if (dice < 0.75) this.#at(delay_ms, { type: "cells_set", target: this.#whole(0, 5) });
    else if (dice < 0.76) this.#at(delay_ms, { type: "woken" });
    else if (dice < 0.9) this.#arrive(delay_ms);
  }

  /** Plays what is planned for the next while; now and then the clock jumps ahead. */
  #play(for_ms: number): void {
    const until_ms = this.#now_ms + for_ms;
    for (;;) {
      const due_ms = Math.min(this.#future.nextDue(), this.#wake_ms);
      if (due_ms > until_ms) break;
      this.#now_ms = Math.max(this.#now_ms, due_ms);
      if (!this.#isHealthy && this.#random() < 0.002) this.#now_ms += this.#pick([100, 5_000, 700_000]);
      const planned = this.#future.nextDue() <= this.#wake_ms ? this.#future.takeDue(this.#now_ms) : null;
      if (planned === null) {
        this.#wake_ms = Number.POSITIVE_INFINITY;
        this.#feed({ type: "woken", now_ms: this.#now_ms });
      } else {
        this.#happen(planned.subject);
      }
      if (!this.#isHealthy && this.#random() < this.#crashRate * 0.2) this.#crashAny();
    }
    this.#now_ms = Math.max(this.#now_ms, until_ms);
  }

  /** A planned event, unless the instance is on its way out; such ones come through now and then, as they do in life. */
  #happen(event: Untimed): void {
    if ("instance" in event) {
      const instance = this.#instances.get(event.instance);
      if (instance === undefined) return;
      if (instance.phase === "removing" && !event.type.startsWith("remove") && this.#random() < 0.5) return;
    }
    this.#feed({ ...event, now_ms: this.#now_ms } as PoolEvent);
  }

  #crashAny(): void {
    const alive = [...this.#instances].filter(([, instance]) => instance.phase !== "removing");
    if (alive.length === 0) return;
    const [instance] = this.#pick(alive);
    this.#feed({ type: "crashed", instance, reason: "lost", now_ms: this.#now_ms });
  }

  /** Nothing fails and nobody calls any more: every call is answered, minimums and cells are there. */
  #settle(): void {
    this.#isHealthy = true;
    this.#play(QUIET_MS);
    const state = this.#state;
    invariant(state.calls.size === 0, "calls still wait after everything was quiet");
    if (state.is_draining) return;
    let needed = 0;
    for (const group of state.groups.values()) needed += group.policy.min_instances;
    for (const group of state.groups.values()) {
      if (group.dropped !== null || needed > state.settings.instances_max) continue;
      invariant(group.counts.ready >= group.policy.min_instances, `${group.key} is below its minimum`);
    }
    invariant(state.cells.size >= state.reserve.target || state.room === 0, "cells are missing");
  }

  #shutDown(): void {
    this.#isHealthy = true;
    this.#feed({ type: "drain", now_ms: this.#now_ms });
    this.#play(this.#pick([1, 100]));
    this.#feed({ type: "drain", force: true, now_ms: this.#now_ms });
    this.#play(QUIET_MS);
    invariant(this.#instances.size === 0 && this.#state.instances.size === 0, "instances are left after the drain");
    invariant(this.#state.groups.size === 0 || this.#state.counts.busy === 0, "groups are busy after the drain");
    for (const [id, call] of this.#calls)
      invariant(call.state === "done", `P1: call ${id} is ${call.state} at the end`);
    invariant(this.#state.timers.live_count === 0, "timers are left after the drain");
  }

  // One step, and what comes of it

  #feed(event: PoolEvent): void {
    this.#steps += 1;
    invariant(this.#steps < STEPS_MAX, "the simulation does not come to rest");
    if (event.type === "call_arrived") {
      this.#calls.set(event.call, { group: event.group, deadline_ms: event.deadline_ms, state: "waiting" });
    }
    if ("instance" in event) this.#note(event);
    const before = new Map([...this.#state.groups.values()].map((group) => [group.key, group.live_count]));
    const effects = step(this.#state, event);
    for (const effect of effects) this.#obey(effect);
    if (event.type === "call_cancelled") {
      // Unless it was due in this very step and has been refused.
      const call = this.#calls.get(event.call);
      if (call?.state === "waiting") call.state = "done";
    }
    if (event.type !== "group_set" && event.type !== "group_drop") this.#compareSizes(before, effects);
    if (event.type === "specialised") {
      const instance = this.#instances.get(event.instance);
      // Bound and not taken by a waiting call: it has become ready, so its calls are warm from now on.
      if (instance?.phase === "idle") instance.was_ready = true;
    }
    this.#compare();
  }

  #note(event: PoolEvent & { instance: string }): void {
    const instance = this.#instances.get(event.instance);
    if (instance === undefined) return;
    if (event.type === "removed" || event.type === "remove_failed") {
      this.#instances.delete(event.instance);
      return;
    }
    if (instance.call !== null && (event.type === "finished" || event.type === "crashed")) this.#end(instance.call);
    if (instance.phase === "removing") return;
    if (event.type === "finished" || event.type === "crashed") instance.call = null;
    if (event.type === "started") instance.phase = "started";
    if (event.type === "finished") {
      instance.phase = "recycling";
      instance.was_ready = true;
      if (event.reuse && this.#random() > this.#crashRate / 4) {
        this.#at(this.#random() * 5, { type: "idle", instance: event.instance });
      }
    }
    if (event.type === "idle" || event.type === "specialised") instance.phase = "idle";
  }

  #end(id: number): void {
    const call = this.#calls.get(id);
    invariant(call?.state === "running", `P1: call ${id} ends but does not run`);
    call.state = "done";
  }

  #fails(): boolean {
    return !this.#isHealthy && this.#random() < this.#failRate;
  }

  #obey(effect: PoolEffect): void {
    switch (effect.type) {
      case "start": {
        invariant(!this.#instances.has(effect.instance), `${effect.instance} is started twice`);
        this.#instances.set(effect.instance, { phase: "starting", group: null, call: null, was_ready: false });
        const { instance } = effect;
        const delay_ms = this.#random() < 0.05 ? this.#random() * 10_000 : 5 + this.#random() * 45;
        if (this.#fails()) this.#at(delay_ms, { type: "start_failed", instance, reason: "no luck" });
        else this.#at(delay_ms, { type: "started", instance });
        break;
      }
      case "assign":
        this.#assigned(effect);
        break;
      case "specialise": {
        const instance = this.#instances.get(effect.instance);
        invariant(instance?.phase === "started" && instance.group === null, `${effect.instance} cannot be specialised`);
        instance.phase = "specialising";
        instance.group = effect.group;
        if (this.#fails()) this.#at(3, { type: "start_failed", instance: effect.instance, reason: "no luck" });
        else this.#at(3, { type: "specialised", instance: effect.instance });
        break;
      }
      case "refuse": {
        const call = this.#calls.get(effect.call);
        invariant(call?.state === "waiting", `P1: call ${effect.call} is refused but does not wait`);
        call.state = "done";
        this.#refused += 1;
        this.#refusalCodes.add(effect.code);
        break;
      }
      case "remove": {
        const instance = this.#instances.get(effect.instance);
        invariant(instance !== undefined && instance.phase !== "removing", `P5: ${effect.instance} is removed twice`);
        instance.phase = "removing";
        this.#removeReasons.add(effect.reason);
        if (instance.call !== null) this.#end(instance.call);
        instance.call = null;
        const type = this.#fails() ? "remove_failed" : "removed";
        this.#at(1 + this.#random() * 20, { type, instance: effect.instance, reason: "no luck" });
        break;
      }
      case "wake":
        this.#wake_ms = effect.at_ms;
        break;
    }
  }

  #assigned(effect: PoolEffect & { type: "assign" }): void {
    const instance = this.#instances.get(effect.instance);
    const call = this.#calls.get(effect.call);
    invariant(call?.state === "waiting", `P1: call ${effect.call} is assigned but does not wait`);
    invariant(call.deadline_ms > this.#now_ms, `P4: call ${effect.call} is assigned after its deadline`);
    invariant(instance !== undefined, `${effect.instance} does not exist`);
    invariant(["started", "idle"].includes(instance.phase), `P2: ${effect.instance} serves while ${instance.phase}`);
    invariant(effect.group === call.group, "P2: a call goes to another group");
    invariant(effect.specialise === (instance.group === null), `P2: ${effect.instance} is bound twice or not at all`);
    invariant(instance.group === null || instance.group === call.group, `P2: ${effect.instance} is bound elsewhere`);
    invariant(effect.cold === !instance.was_ready, `${effect.instance} has the wrong warmth`);
    call.state = "running";
    instance.phase = "busy";
    instance.group = call.group;
    instance.call = effect.call;
    if (effect.cold) this.#cold += 1;
    else this.#warm += 1;
    const delay_ms = this.#random() < 0.1 ? this.#random() * 3_000 : this.#random() * 50;
    if (!this.#isHealthy && this.#random() < this.#crashRate) {
      this.#at(delay_ms, { type: "crashed", instance: effect.instance, reason: "lost" });
    } else {
      this.#at(delay_ms, { type: "finished", instance: effect.instance, reuse: this.#random() < 0.9 });
    }
  }

  // The comparison

  #compare(): void {
    const state = this.#state;
    const { settings } = state;
    invariant(state.instances.size <= settings.instances_max, "A2: more instances than the node may have");
    invariant(state.starting_count <= settings.starts_max, "A2: more starts than allowed");
    invariant(state.instances.size === this.#instances.size, "P5: the model has other instances");
    const node = new Counts();
    const members = new Map<string, Counts>();
    let starting = 0;
    let unneeded = 0;
    for (const [id, instance] of state.instances) {
      const model = this.#instances.get(id);
      invariant((model?.phase === "removing") === (instance.state === "terminating"), `P5: ${id} is ${instance.state}`);
      invariant((model?.phase === "busy") === (instance.state === "busy"), `P2: ${id} is ${instance.state}`);
      if (instance.state === "starting") starting += 1;
      if (instance.unneeded_link.list !== null) unneeded += 1;
      invariant(instance.unneeded_link.list === null || instance.state === "ready", `S3: ${id} is listed as idle`);
      invariant(instance.unneeded_link.list === null || instance.timer !== null, `S3: ${id} has no timer`);
      invariant(instance.state !== "recycling" || instance.timer !== null, `${id} may be cleaned up for ever`);
      const { group } = instance;
      if (group !== null) invariant(state.groups.get(group.key) === group, `${id} belongs to a forgotten group`);
      const column = this.#column(instance.state, group === null);
      node[column] += 1;
      if (group === null) continue;
      const counts = members.get(group.key) ?? new Counts();
      counts[column] += 1;
      members.set(group.key, counts);
    }
    invariant(starting === state.starting_count && unneeded === state.unneeded.size, "S2: node counts differ");
    sameCounts(state.counts, node, "the node");
    let waiting = 0;
    let wanted = 0;
    for (const group of state.groups.values()) {
      sameCounts(group.counts, members.get(group.key) ?? new Counts(), group.key);
      this.#compareGroup(group);
      waiting += group.queue.size;
      wanted += group.wanted_count;
    }
    invariant(wanted === state.wanted_count, "S4: the sum of wanted instances differs");
    let modelWaiting = 0;
    for (const call of this.#calls.values()) if (call.state === "waiting") modelWaiting += 1;
    invariant(waiting === state.calls.size && waiting === modelWaiting, "P1: a waiting call was lost");
    if (state.hungry.size > 0 && !state.is_draining) {
      this.#compareRoom();
      invariant(state.cells.size === 0 && state.spares.size === 0, "A1: a group waits beside a cell");
      invariant(
        state.room <= 0 || state.starting_count === settings.starts_max,
        "A1: a group waits beside a free start",
      );
    }
    invariant(state.wake_at_ms <= state.timers.nextDue(), "a timer is due that nobody is woken for");
    invariant(state.timers.nextDue() > this.#now_ms, "P4: a timer is overdue");
  }

  /** No group grows past its maximum, and none is shrunk below its minimum by choice. */
  #compareSizes(before: ReadonlyMap<string, number>, effects: readonly PoolEffect[]): void {
    const ended = new Map<string, number>();
    for (const effect of effects) {
      if (effect.type !== "remove" || (effect.reason !== "expired" && effect.reason !== "evicted")) continue;
      const key = this.#state.instances.get(effect.instance)?.group?.key;
      if (key !== undefined) ended.set(key, (ended.get(key) ?? 0) + 1);
    }
    for (const group of this.#state.groups.values()) {
      const had = before.get(group.key) ?? 0;
      const { min_instances, max_instances } = group.policy;
      invariant(group.live_count <= Math.max(had, max_instances), `${group.key} grew past its maximum`);
      const lost = ended.get(group.key) ?? 0;
      invariant(lost === 0 || had - lost >= min_instances, `${group.key} was shrunk below its minimum`);
    }
  }

  /** A1: where a start waits for room, nothing could be evicted for it, or enough is on its way out. */
  #compareRoom(): void {
    const state = this.#state;
    const free = Math.min(state.wanted_count, state.settings.starts_max - state.starting_count);
    if (free <= state.room + state.counts.terminating) return;
    for (const instance of state.unneeded) {
      invariant(
        instance.group === null || isNeeded(instance.group),
        "A1: a start waits for room beside an idle instance",
      );
    }
  }

  #column(state: string, isSpare: boolean): keyof Counts {
    if (state === "specialising") return "warming";
    if (state === "starting") return isSpare ? "spare" : "warming";
    return state as keyof Counts;
  }

  #compareGroup(group: PoolState["groups"] extends Map<string, infer G> ? G : never): void {
    const { key } = group;
    invariant(group.queue.size === 0 || group.counts.ready === 0, `P3: calls of ${key} wait beside a ready instance`);
    invariant(group.idle.size === group.counts.ready, `S3: idle instances of ${key} differ`);
    invariant(group.wanted_count > 0 === this.#state.hungry.has(group), `S4: ${key} is in the wrong set`);
    const isExpecting = group.queue.size > 0 && group.starting.size > 0;
    invariant(isExpecting === this.#state.expecting.has(group), `S4: ${key} is in the wrong set`);
    let needed = 0;
    for (const instance of group.idle) if (instance.unneeded_link.list === null) needed += 1;
    invariant(needed === group.needed_idle_count, `S3: needed instances of ${key} differ`);
    invariant(needed === 0 || isNeeded(group), `S3: an idle instance of ${key} would stay for ever`);
    invariant(group.dropped === null || group.members.size > 0, `${key} should be forgotten`);
    for (const call of group.queue) {
      invariant(call.deadline_ms > this.#now_ms, `P4: call ${call.id} waits past its deadline`);
    }
  }
}

function sameCounts(actual: Counts, expected: Counts, whose: string): void {
  for (const name of Object.keys(expected) as (keyof Counts)[]) {
    invariant(actual[name] === expected[name], `S2: ${name} of ${whose} is ${actual[name]}, not ${expected[name]}`);
  }
}

/** Runs one seed; a failure names it and how to see it again. */
export function simulate(seed: number): SimulationReport {
  try {
    return new Simulation(seed).run();
  } catch (cause) {
    const again = `SEED=${seed} npx vitest run --config test/vitest.config.ts --project unit test/pool/simulation`;
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`seed ${seed}: ${text}\nagain with: ${again}`, { cause });
  }
}
