/**
 * What the world does to the pool in one history: callers, policies, drops, cells, memory, instances of an earlier
 * process. Planned ahead from the seed; how instances answer is `launcher.ts`'s.
 *
 * Most histories are stormy: anything may fail. In a calm one nothing does, and what calls is mostly chains of calls
 * that wait for each other: then every call has to be served.
 */
import type { DropReason, PoolSettings } from "../../pool/protocol.ts";
import { Devices } from "./devices.ts";
import type { Random, Timeline } from "./timeline.ts";

const CALM_SHARE = 0.2;
/** Calls and changes of a history come within this time and some more. */
const SPAN_MS = 3_000;
/** Each disturbance of a history comes this much later than the one before, on average. */
const PACE_MS = 15;
/** Far above what the calls of a calm history can take one after the other. */
const CALM_WAIT_MS = 3_600_000;
const BUDGET_MB = 100;
/** Share of histories in which owners have limits. */
const OWNERS_SHARE = 0.6;
/** What an instance counts for its owner. */
const SIZES_MB = [128, 256, 256, 512, 1_024];

/** Share of histories in which the node has devices that some classes need. */
const DEVICES_SHARE = 0.3;

/** Classes of a history: the first is the default one. */
const CLASSES = Array.from({ length: 10 }, (_, i) => `class-${i}`);
const DEFAULT_CLASS = "class-0";
/** From the drop of a group until its class is dropped, which other groups may have. */
const CLASS_DROP_DELAY_MS = 100;

/** Calls that an instance serves at the same time. */
const CONCURRENCIES = [1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 100];
const CONCURRENCIES_CALM = [1, 1, 2, 2, 3, 8];

interface Group {
  readonly owner: string;
  readonly memory_mb: number;
  readonly min_instances: number;
}

export class History {
  readonly is_calm: boolean;
  readonly settings: PoolSettings;
  readonly groups: readonly string[];
  readonly devices: Devices;
  /** Devices that an instance of a class needs, for those that need some. */
  readonly #needs = new Map<string, number>();
  readonly #families = new Set<string>();
  readonly #classes: readonly string[];
  readonly #random: Random;
  readonly #timeline: Timeline;
  readonly #owners: readonly string[];
  /** As they were planned last. */
  readonly #planned = new Map<string, Group>();
  readonly #concurrencies = new Map<string, number>();

  constructor(random: Random, timeline: Timeline) {
    this.#random = random;
    this.#timeline = timeline;
    this.is_calm = random.chance(CALM_SHARE);
    this.#classes = CLASSES.slice(0, random.pick([1, 1, 2, 3, 10]));
    const groups_max = this.#classes.length === CLASSES.length ? 12 : 5;
    this.groups = Array.from({ length: random.whole(1, groups_max) }, (_, i) => `fn_${i}@1`);
    const hasDevices = this.#classes.length > 1 && random.chance(DEVICES_SHARE);
    this.devices = new Devices(hasDevices ? random.whole(1, 4) : 0);
    // The default class needs none: cells would hold devices.
    for (const of of hasDevices ? this.#classes.slice(1) : []) {
      if (random.chance(0.6)) this.#needs.set(of, random.pick([1, 1, 1, 2, 3]));
      if (random.chance(0.3)) this.#families.add(of);
    }
    this.#owners = random.chance(OWNERS_SHARE) ? ["ten_a", "ten_b"].slice(0, random.whole(1, 2)) : [];
    this.settings = {
      // Room for the minimum of every group and one more is what a calm history needs to serve everybody.
      instances_max: this.is_calm ? this.groups.length + random.whole(1, 8) : random.whole(1, 24),
      starts_max: random.whole(1, 4),
      start_attempts_max: random.whole(1, 3),
      instance_prefix: "i",
      default_class: DEFAULT_CLASS,
    };
  }

  write(): void {
    const random = this.#random;
    for (const group of this.groups) this.#setGroup(group);
    for (const owner of this.#owners) this.#limit(owner, this.is_calm ? 0 : random.unit() * 500);
    for (let i = random.whole(0, 6); i > 0; i--) {
      const group = random.chance(0.3) ? null : random.pick([...this.groups, "fn_unknown@1"]);
      const of = group === null || random.chance(0.1) ? random.pick(this.#classes) : this.#classOf(group);
      this.#adopt(`old${i}`, of, group);
    }
    this.#timeline.add(random.unit() * 20, {
      type: "cells_set",
      target: random.whole(0, this.is_calm ? 2 : this.#cells_max),
    });
    const turns = this.is_calm ? random.whole(5, 40) : random.whole(50, 200);
    for (let i = 0; i < turns; i++) {
      const delay_ms = random.unit() * SPAN_MS + i * PACE_MS;
      if (this.is_calm) this.#call(delay_ms);
      else this.#disturb(delay_ms);
    }
    if (random.chance(0.2)) this.#press();
    if (!this.is_calm && random.chance(0.1)) this.#timeline.add(random.unit() * SPAN_MS, { type: "drain" });
  }

  /** An instance with devices holds them since before the history, and is adopted right after the groups. */
  #adopt(instance: string, of: string, group: string | null): void {
    const count = this.needOf(of);
    const isKnown = this.groups.some((known) => this.#classOf(known) === of);
    if (count > 0 && (!isKnown || this.devices.claim(instance, count) !== null)) return;
    // After the groups, as by a daemon that starts: they tell what the class needs.
    this.#timeline.add(count > 0 ? 0.001 : this.#random.unit() * 200, { type: "adopted", instance, class: of, group });
  }

  /** Devices that an instance of a class needs. */
  needOf(of: string): number {
    return this.#needs.get(of) ?? 0;
  }

  /** Groups without devices, which a nested call may always wait for: one with devices could wait for those above it. */
  get nestable(): readonly string[] {
    if (!this.is_calm) return this.groups;
    return this.groups.filter((group) => this.needOf(this.#classOf(group)) === 0);
  }

  #disturb(delay_ms: number): void {
    const random = this.#random;
    const dice = random.unit();
    if (dice < 0.64) this.#call(delay_ms);
    else if (dice < 0.74) for (let i = random.whole(2, random.pick([8, 8, 8, 40])); i > 0; i--) this.#call(delay_ms);
    else if (dice < 0.81) this.#setGroup(random.pick(this.groups), delay_ms);
    else if (dice < 0.84) this.#timeline.add(delay_ms, { type: "group_retire", group: random.pick(this.groups) });
    else if (dice < 0.88) this.#dropGroup(delay_ms);
    else if (dice < 0.91) this.#timeline.add(delay_ms, { type: "cells_set", target: random.whole(0, this.#cells_max) });
    else if (dice < 0.92) this.#timeline.add(delay_ms, { type: "woken" });
    else if (dice < 0.95 && this.#owners.length > 0) this.#limit(random.pick(this.#owners), delay_ms);
  }

  #setGroup(group: string, delay_ms = 0): void {
    const random = this.#random;
    const concurrency = this.#concurrencyOf(group);
    const base = this.is_calm
      ? { max_instances: random.pick([1, 1, 2, 5]), min_instances: random.whole(0, 1), queue_max: 1_000 }
      : {
          // Fewer where they have many places, so that these are taken.
          max_instances: random.whole(1, concurrency === 1 ? 10 : 3),
          min_instances: random.chance(0.6) ? 0 : random.whole(0, 3),
          queue_max: random.pick([1, 5, 100]),
        };
    const keep = random.chance(0.2) ? { keep_alive_ms: random.whole(1, 2_000) } : {};
    const own = this.#own(group, base.min_instances);
    const of = this.#classOf(group);
    const devices = this.needOf(of) === 0 ? {} : { devices: this.needOf(of) };
    const family = this.#families.has(of) && !this.is_calm ? { family: of } : {};
    const rest = { ...base, ...keep, ...own, ...devices, ...family };
    this.#timeline.add(delay_ms, { type: "group_set", group, class: of, concurrency, ...rest });
  }

  /** Returns the concurrency of a group, mostly the earlier one. */
  #concurrencyOf(group: string): number {
    const random = this.#random;
    const before = random.chance(0.1) ? undefined : this.#concurrencies.get(group);
    const concurrency = before ?? random.pick(this.is_calm ? CONCURRENCIES_CALM : CONCURRENCIES);
    this.#concurrencies.set(group, concurrency);
    return concurrency;
  }

  /** A group keeps its class. */
  #classOf(group: string): string {
    return this.#classes[Math.max(0, this.groups.indexOf(group)) % this.#classes.length] ?? DEFAULT_CLASS;
  }

  get #cells_max(): number {
    return this.#classes.length === 1 ? 5 : 12;
  }

  /** Whose a group is, and what an instance of it counts: as before, mostly. */
  #own(group: string, min_instances: number): Partial<Group> {
    const random = this.#random;
    if (this.#owners.length === 0) return {};
    const before = random.chance(0.05) ? undefined : this.#planned.get(group);
    const owner = before?.owner ?? (random.chance(0.2) ? "ten_free" : random.pick(this.#owners));
    const memory_mb = before?.memory_mb ?? random.pick(SIZES_MB);
    this.#planned.set(group, { owner, memory_mb, min_instances });
    return { owner, memory_mb };
  }

  /** Sets what an owner may have. In a calm history there is room for its minimums and any one instance more. */
  #limit(owner: string, delay_ms: number): void {
    const random = this.#random;
    const own = [...this.#planned.values()].filter((group) => group.owner === owner);
    const needed_count = own.reduce((sum, { min_instances }) => sum + min_instances, 1);
    const needed_mb =
      own.reduce((sum, { min_instances, memory_mb }) => sum + min_instances * memory_mb, 0) +
      Math.max(0, ...own.map(({ memory_mb }) => memory_mb));
    const limits = this.is_calm
      ? { instances_max: needed_count + random.whole(0, 2), memory_mb_max: needed_mb + random.pick([0, 256, 1_024]) }
      : { instances_max: random.whole(random.chance(0.1) ? 0 : 1, 8), memory_mb_max: random.whole(1, 20) * 128 };
    const { instances_max, memory_mb_max } = limits;
    this.#timeline.add(delay_ms, {
      type: "owner_set",
      owner,
      instances_max: random.chance(0.25) ? null : instances_max,
      memory_mb_max: random.chance(0.4) ? null : memory_mb_max,
    });
  }

  #dropGroup(delay_ms: number): void {
    const random = this.#random;
    const group = random.pick(this.groups);
    const reject = random.pick<DropReason>(["paused", "deleted", "failed", "shutdown"]);
    this.#timeline.add(delay_ms, { type: "group_drop", group, reject, force: random.chance(0.3) });
    this.#timeline.add(delay_ms + CLASS_DROP_DELAY_MS, { type: "class_drop", class: this.#classOf(group) });
    if (random.chance(0.7)) this.#setGroup(group, delay_ms + random.unit() * 50);
  }

  #call(delay_ms: number): void {
    const random = this.#random;
    const wait_ms = this.is_calm ? CALM_WAIT_MS : random.chance(0.05) ? -1 : random.pick([20, 200, 5_000, 30_000]);
    const call = this.#timeline.addCall(delay_ms, random.pick(this.groups), wait_ms);
    if (this.is_calm || !random.chance(0.1)) return;
    this.#timeline.add(delay_ms + random.unit() * 100, { type: "call_cancelled", call });
  }

  /** Memory becomes short for a while, is read again and again, and is enough again. */
  #press(): void {
    const random = this.#random;
    let at_ms = random.unit() * SPAN_MS;
    for (let i = random.whole(1, 8); i > 0; i--) {
      this.#timeline.add(at_ms, { type: "memory_read", used_mb: random.whole(85, 160), budget_mb: BUDGET_MB });
      at_ms += 250;
    }
    if (random.chance(0.7)) this.relieve(at_ms);
  }

  relieve(delay_ms: number): void {
    this.#timeline.add(delay_ms, { type: "memory_read", used_mb: 0, budget_mb: BUDGET_MB });
  }
}
