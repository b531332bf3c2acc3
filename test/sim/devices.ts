/**
 * Devices of the node in a simulated history: the launcher gives them to starts and takes them back with removals, and a
 * model holds what the pool does for them against the events and effects (V1 to V3 of `pool/devices.ts`).
 *
 * D1. No device is held by two instances, and an instance holds all that its class needs from its start to its removal.
 * D2. After the drain no device is held, and no group lacks any.
 * D3. A call is refused for a lack of devices only if its group needs some, nothing of it serves, and no idle instance
 *     could have made room (V3). Idle instances end for devices only if that makes enough of them free (V2).
 */
import type { PoolEvent, RefuseEffect } from "../../pool/protocol.ts";
import type { PoolState } from "../../pool/states.ts";
import { invariant } from "../../src/base/errors.ts";
import type { Lack } from "../../src/base/lacking.ts";
import type { ModelCall, ModelGroup, ModelInstance } from "./records.ts";

/** The devices that the launcher gives out. */
export class Devices {
  readonly count: number;
  readonly #holders: (string | null)[];
  /** Instances whose removal failed: they hold their devices until the reaper comes. */
  readonly #leaked = new Set<string>();

  constructor(count: number) {
    this.count = count;
    this.#holders = Array.from({ length: count }, () => null);
  }

  countOf(instance: string): number {
    return this.#holders.filter((holder) => holder === instance).length;
  }

  /** Gives devices to an instance; answers what is lacking. */
  claim(instance: string, count: number): Lack | null {
    invariant(this.countOf(instance) === 0, `D1: ${instance} is started twice`);
    const free = [...this.#holders.keys()].filter((i) => this.#holders[i] === null).slice(0, count);
    if (free.length === count) {
      for (const i of free) this.#holders[i] = instance;
      return null;
    }
    return { code: "CAPACITY_FULL", missing_count: count > this.count ? null : count - free.length };
  }

  release(instance: string): void {
    this.#leaked.delete(instance);
    for (const [i, holder] of this.#holders.entries()) if (holder === instance) this.#holders[i] = null;
  }

  leak(instance: string): void {
    this.#leaked.add(instance);
  }

  /** Gives back what failed removals have left. */
  reap(): void {
    for (const instance of this.#leaked) this.release(instance);
  }

  /** D2. */
  compareEnd(): void {
    const held = this.#holders.filter((holder) => holder !== null);
    invariant(held.length === 0, `D2: devices are held after the drain by ${held.join(", ")}`);
  }
}

export class DeviceModel {
  readonly #instances: ReadonlyMap<string, ModelInstance>;
  readonly #groups: ReadonlyMap<string, ModelGroup>;
  /** Devices of each class that needs some. */
  readonly #counts = new Map<string, number>();
  #orders_count = 0;
  /** The lack that the event of this step reports, and the class that it stops. */
  #lack: { readonly class: string; readonly missing_count: number | null } | null = null;
  /** Instances that ended for devices in this step. */
  sacrificed_count = 0;

  constructor(instances: ReadonlyMap<string, ModelInstance>, groups: ReadonlyMap<string, ModelGroup>) {
    this.#instances = instances;
    this.#groups = groups;
  }

  get isLacking(): boolean {
    return this.#lack !== null;
  }

  countOf(of: string): number {
    return this.#counts.get(of) ?? 0;
  }

  /** Before the step. */
  begin(event: PoolEvent): void {
    this.sacrificed_count = 0;
    this.#lack = null;
    if (event.type !== "start_failed" || event.lack === undefined) return;
    const instance = this.#instances.get(event.instance);
    if (instance === undefined || instance.state === "terminating") return;
    this.#lack = { class: instance.class, missing_count: event.lack.missing_count };
  }

  setGroup(event: PoolEvent & { type: "group_set" }, group: ModelGroup): void {
    const { devices = 0, family = null } = event;
    if (devices > 0) this.#counts.set(event.class, devices);
    group.family = family;
    this.#orders_count += 1;
    group.order = this.#orders_count;
  }

  /** V2. Answers whether an eviction of this step is for devices; holds it against what may end. */
  isSacrifice(id: string, instance: ModelInstance): boolean {
    if (this.#lack === null || this.countOf(instance.class) === 0) return false;
    const group = this.#groups.get(instance.group ?? "");
    invariant(group !== undefined && instance.state === "ready", `V2: ${id} ends for devices while ${instance.state}`);
    const isNeeded = group.live_count - group.lost_count <= group.min_instances;
    invariant(!isNeeded || this.#isReplaced(group), `V2: ${id} ends for devices, and its minimum needs it`);
    this.sacrificed_count += 1;
    return true;
  }

  /** True if a group of the class that lacks devices takes over from the group. */
  #isReplaced(group: ModelGroup, by: ModelGroup | null = null): boolean {
    if (group.family === null) return false;
    for (const other of by === null ? this.#groups.values() : [by]) {
      const isLacking = other.class === this.#lack?.class && other !== group;
      if (isLacking && other.family === group.family && other.order > group.order) return true;
    }
    return false;
  }

  /** Devices that are about to be free. */
  #going(by: ModelGroup | null): number {
    let sum = 0;
    for (const { state, holds, group: key } of this.#instances.values()) {
      const group = this.#groups.get(key ?? "");
      const isGoing = state === "terminating" || state === "recycling";
      const isBusy = state === "busy" || state === "specialising";
      if (isGoing || (isBusy && group !== undefined && this.#isReplaced(group, by))) sum += holds;
    }
    return sum;
  }

  /** Devices of idle instances that may end for a group. */
  #idle(by: ModelGroup): number {
    let sum = 0;
    for (const [key, group] of this.#groups) {
      if (group === by) continue;
      const idle = [...this.#instances.values()].filter((one) => one.group === key && one.state === "ready");
      const spare = this.#isReplaced(group, by)
        ? idle.length
        : group.live_count - group.lost_count - group.min_instances;
      sum += Math.max(0, Math.min(idle.length, spare)) * this.countOf(group.class);
    }
    return sum;
  }

  /** V3. */
  isReason(effect: RefuseEffect, call: ModelCall, now_ms: number): boolean {
    const group = this.#groups.get(call.group);
    if (this.#lack === null || group === undefined || call.deadline_ms <= now_ms || group.class !== this.#lack.class)
      return false;
    invariant(effect.retry_after === undefined, `V3: ${effect.code} for devices says when to try again`);
    for (const [id, { group: of, state }] of this.#instances) {
      invariant(of !== call.group || state === "terminating", `V3: call ${call.id} is refused beside ${id}`);
    }
    const { missing_count } = this.#lack;
    if (missing_count === null) return true;
    const found = this.#going(group) + this.#idle(group);
    invariant(found < missing_count, `V3: call ${call.id} is refused, and ${found} of ${missing_count} can be free`);
    return true;
  }

  /** True for a call that waited for devices until its deadline: no time tells when they are free. */
  isLate({ group, deadline_ms }: ModelCall, now_ms: number): boolean {
    return deadline_ms <= now_ms && this.countOf(this.#groups.get(group)?.class ?? "") > 0;
  }

  /** After the step. V1, V2 and D1. */
  compare(state: PoolState, devices: Devices): void {
    const missing = this.#lack?.missing_count ?? 0;
    if (this.sacrificed_count > 0) {
      const going = this.#going(null);
      invariant(going >= missing, `V2: ${this.sacrificed_count} end for ${missing} devices, and ${going} become free`);
    }
    let holders = 0;
    for (const [id, { class: of, holds }] of this.#instances) {
      if (holds > 0) holders += 1;
      invariant(holds > 0 === state.holders.has(state.instances.get(id) as never), `V1: ${id} holds devices or not`);
      if (holds > 0) invariant(devices.countOf(id) === this.countOf(of), `D1: ${id} lacks devices that it needs`);
    }
    invariant(state.holders.size === holders, `V1: ${state.holders.size} holders, not ${holders}`);
  }
}
