/** The scheduler with a hand-held clock: each verb feeds one event and returns what is to be done. */
import type { GroupPolicy, OwnerLimits, PoolEffect, PoolEvent, PoolSettings } from "../../pool/protocol.ts";
import { step } from "../../pool/scheduler.ts";
import { PoolState } from "../../pool/states.ts";

type Untimed = PoolEvent extends infer E ? (E extends PoolEvent ? Omit<E, "now_ms"> : never) : never;

/** The class of everything that names no other one. */
export const CLASS = "shell-1";

export const ROOMY: PoolSettings = {
  instances_max: 100,
  starts_max: 10,
  start_attempts_max: 3,
  instance_prefix: "i",
  default_class: CLASS,
};

export class Scene {
  readonly state: PoolState;
  now_ms = 1_000_000;
  #nextCall = 1;
  /** Calls in flight by instance, and calls in cleanup, oldest first. */
  readonly #running = new Map<string, { readonly call: number; readonly assigned_ms: number }[]>();
  readonly #cleaning = new Map<string, number[]>();

  constructor(settings: Partial<PoolSettings> = {}) {
    this.state = new PoolState({ ...ROOMY, ...settings });
  }

  feed(event: Untimed): PoolEffect[] {
    const effects = step(this.state, { ...event, now_ms: this.now_ms } as PoolEvent);
    for (const effect of effects) {
      if (effect.type !== "assign") continue;
      const { instance, call } = effect;
      this.#running.set(instance, [...(this.#running.get(instance) ?? []), { call, assigned_ms: this.state.now_ms }]);
    }
    return effects;
  }

  /** Lets time pass, and wakes the scheduler whenever it asked for it. */
  pass(ms: number): PoolEffect[] {
    const until_ms = this.now_ms + ms;
    const effects: PoolEffect[] = [];
    while (this.state.wake_at_ms <= until_ms) {
      this.now_ms = Math.max(this.now_ms, this.state.wake_at_ms);
      effects.push(...this.feed({ type: "woken" }));
    }
    this.now_ms = until_ms;
    return effects;
  }

  group(group: string, policy: Partial<GroupPolicy> = {}): PoolEffect[] {
    const usual = { class: CLASS, min_instances: 0, max_instances: 10, queue_max: 1_000 };
    return this.feed({ type: "group_set", group, ...usual, ...policy });
  }

  /** Limits of an owner, none unless given. */
  owner(owner: string, limits: Partial<OwnerLimits>): PoolEffect[] {
    return this.feed({ type: "owner_set", owner, instances_max: null, memory_mb_max: null, ...limits });
  }

  call(group: string, wait_ms = 30_000, depth = 0): PoolEffect[] {
    const deadline_ms = this.now_ms + wait_ms;
    return this.feed({ type: "call_arrived", call: this.#nextCall++, group, deadline_ms, depth });
  }

  started(instance: string): PoolEffect[] {
    return this.feed({ type: "started", instance });
  }

  failed(instance: string, reason = "no luck"): PoolEffect[] {
    return this.feed({ type: "start_failed", instance, reason });
  }

  specialised(instance: string): PoolEffect[] {
    return this.feed({ type: "specialised", instance });
  }

  /** A call of the instance is over: the oldest unless given. */
  finished(instance: string, reuse = true, call = this.#running.get(instance)?.[0]?.call ?? 0): PoolEffect[] {
    const running = this.#running.get(instance) ?? [];
    const assigned_ms = running.find((run) => run.call === call)?.assigned_ms ?? this.state.now_ms;
    this.#running.set(
      instance,
      running.filter((run) => run.call !== call),
    );
    this.#cleaning.set(instance, [...(this.#cleaning.get(instance) ?? []), call]);
    return this.feed({ type: "finished", instance, call, assigned_ms, reuse });
  }

  /** A call is cleaned up after: the one that finished first unless given. */
  idle(instance: string, call = this.#cleaning.get(instance)?.[0] ?? 0): PoolEffect[] {
    const cleaning = this.#cleaning.get(instance) ?? [];
    this.#cleaning.set(
      instance,
      cleaning.filter((other) => other !== call),
    );
    return this.feed({ type: "idle", instance, call });
  }

  /** The call is over and its place free again. */
  freed(instance: string, call?: number): PoolEffect[] {
    return [...this.finished(instance, true, call), ...this.idle(instance, call)];
  }

  adopted(instance: string, group: string | null, of = CLASS): PoolEffect[] {
    return this.feed({ type: "adopted", instance, class: of, group });
  }

  removed(instance: string): PoolEffect[] {
    return this.feed({ type: "removed", instance });
  }

  /** A group with so many ready instances, the one with the lowest number used last. */
  ready(group: string, count: number, policy: Partial<GroupPolicy> = {}): string[] {
    this.group(group, { ...(policy.class === undefined ? {} : { class: policy.class }), max_instances: count });
    const names: string[] = [];
    for (let i = 0; i < count; i++) names.push(...started(this.call(group)));
    for (const name of names) this.started(name);
    for (const name of names.toReversed()) this.freed(name);
    this.group(group, policy);
    return names;
  }
}

/** The effects without the wakes. */
export function deeds(effects: readonly PoolEffect[]): PoolEffect[] {
  return effects.filter((effect) => effect.type !== "wake");
}

export function started(effects: readonly PoolEffect[]): string[] {
  return effects.filter((effect) => effect.type === "start").map((effect) => effect.instance);
}

export function removed(effects: readonly PoolEffect[]): string[] {
  return effects.filter((effect) => effect.type === "remove").map((effect) => effect.instance);
}
