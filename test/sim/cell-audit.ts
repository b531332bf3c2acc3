/**
 * Compares what the scheduler keeps of classes with the model after a step, made again from the instances and groups
 * themselves (S4 and S5 of `pool/states.ts`, A1 of `pool/scaling.ts`, K1 to K3 of `pool/demand.ts`, R1 to R3 of
 * `pool/reserve.ts`).
 */
import type { Group, Instance, PoolClass } from "../../pool/records.ts";
import type { PoolState } from "../../pool/states.ts";
import { invariant } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Coverage } from "./coverage.ts";
import type { Model } from "./model.ts";

/** A class as its instances and groups are. */
class Tallied {
  cells = 0;
  spares = 0;
  members = 0;
  wanted = 0;
  hungry = 0;
  expecting = 0;

  get stock(): number {
    return this.cells + this.spares;
  }

  get unmet(): number {
    return Math.max(0, this.wanted - this.stock);
  }

  clear(): void {
    this.cells = 0;
    this.spares = 0;
    this.members = 0;
    this.wanted = 0;
    this.hungry = 0;
    this.expecting = 0;
  }
}

/** Makes its message only where it is needed: it runs after each of millions of steps. */
function same(actual: number, expected: number, what: string, whose: string): void {
  if (actual !== expected) invariant(false, `${what} of ${whose} are ${actual}, not ${expected}`);
}

export class CellAudit {
  readonly #state: PoolState;
  readonly #model: Model;
  readonly #coverage: Coverage;
  readonly #classes = new Map<PoolClass, Tallied>();
  /** The one that was asked for last: most histories have one class. */
  #latest: { readonly of: PoolClass; readonly tallied: Tallied } | null = null;
  /** The shares were held against the model's demand of this version. */
  #checked_version = -1;

  constructor(state: PoolState, model: Model, coverage: Coverage) {
    this.#state = state;
    this.#model = model;
    this.#coverage = coverage;
  }

  compare(): void {
    const { instances, groups, classes, is_draining } = this.#state;
    for (const [of, tallied] of this.#classes) {
      if (classes.get(of.key) === of) tallied.clear();
      else this.#classes.delete(of);
    }
    this.#latest = null;
    for (const of of classes.values()) if (!this.#classes.has(of)) this.#classes.set(of, new Tallied());
    for (const instance of instances.values()) this.#countInstance(instance);
    for (const group of groups.values()) this.#countGroup(group);
    for (const [of, tallied] of this.#classes) this.#compareClass(of, tallied);
    this.#compareNode();
    if (!is_draining && this.#model.cells.target !== null) this.#compareReserve(this.#model.cells.target);
  }

  /** Instances that groups want and no cell or spare start is there for. */
  unmet(): number {
    return this.#sum("unmet");
  }

  /** Containers that a group could have now, beyond those that groups want already. */
  startsFree(group: Group): number {
    const { settings, starting_count } = this.#state;
    const starts = this.#model.is_pressed ? 0 : settings.starts_max - starting_count;
    const { stock, wanted } = this.#tallied(group.class);
    return Math.max(0, starts - this.unmet()) + Math.max(0, stock - wanted);
  }

  /** A1: true if a cell or a spare start of its class is available to the group. */
  canServe(group: Group): boolean {
    return this.#tallied(group.class).stock > 0;
  }

  /** Nothing was needed for long: all cells are of the fallback. */
  compareRest(): void {
    const { cells } = this.#model;
    const { room } = this.#state;
    for (const [of, { cells: count }] of this.#classes) {
      const isAlone = of.key === cells.fallback;
      invariant(isAlone || count === 0, `K2: ${count} cells of ${of.key} stay for ever`);
      invariant(!isAlone || count >= (cells.target ?? 0) || room <= 0, "cells are missing");
    }
  }

  #tallied(of: PoolClass): Tallied {
    if (this.#latest?.of === of) return this.#latest.tallied;
    const tallied = this.#classes.get(of);
    invariant(tallied !== undefined, `S5: ${of.key} is forgotten too early`);
    this.#latest = { of, tallied };
    return tallied;
  }

  #sum(name: "cells" | "spares" | "unmet"): number {
    let sum = 0;
    for (const tallied of this.#classes.values()) sum += tallied[name];
    return sum;
  }

  #countInstance({ id, class: of, state, group }: Instance): void {
    const tallied = this.#tallied(of);
    if (group !== null && group.class !== of) invariant(false, `S5: ${id} serves another class`);
    tallied.members += 1;
    if (state === "cell") tallied.cells += 1;
    if (state === "starting" && group === null) tallied.spares += 1;
  }

  #countGroup(group: Group): void {
    const tallied = this.#tallied(group.class);
    tallied.members += 1;
    tallied.wanted += group.wanted_count;
    if (group.wanted_count > 0) tallied.hungry += 1;
    const isExpecting = group.queue.size > 0 && group.starting.size > 0;
    if (isExpecting) tallied.expecting += 1;
    const { expecting, hungry } = group.class;
    const isRight = isExpecting === expecting.has(group) && group.wanted_count > 0 === hungry.has(group);
    if (!isRight) invariant(false, `S4: ${group.key} is in the wrong set of its class`);
  }

  #compareClass(of: PoolClass, tallied: Tallied): void {
    const { key } = of;
    same(of.cells.size, tallied.cells, "S2: cells", key);
    same(of.spares.size, tallied.spares, "S2: spare starts", key);
    same(of.hungry.size, tallied.hungry, "S4: groups that want", key);
    same(of.expecting.size, tallied.expecting, "S4: groups that expect starts", key);
    same(of.wanted_count, tallied.wanted, "S4: wanted instances", key);
    same(of.unmet_count, tallied.unmet, "S4: missing instances", key);
    same(of.member_count, tallied.members, "S5: groups and instances", key);
    if (of.member_count === 0) invariant(this.#state.reserve.classes.has(of), `S5: ${key} is never forgotten`);
  }

  #compareNode(): void {
    const { unmet_count, servable, is_draining } = this.#state;
    same(unmet_count, this.#sum("unmet"), "S4: missing instances", "the node");
    invariant(is_draining || servable.size === 0, "A1: a group waits beside a cell");
  }

  #compareReserve(target: number): void {
    const { cells } = this.#model;
    const cell_count = this.#sum("cells");
    if (cell_count > target) invariant(false, `R1: ${cell_count} cells are kept, not ${target}`);
    let share_sum = 0;
    let isAbove = false;
    let lacking: PoolClass | null = null;
    let isPaused = true;
    for (const [of, tallied] of this.#classes) {
      share_sum += of.share;
      if (tallied.cells > of.share) isAbove = true;
      if (tallied.stock < of.share) {
        lacking = of;
        if (!this.#isPaused(of)) isPaused = false;
      }
      const isKnown = of.key === cells.fallback || cells.asked.has(of.key);
      if (!isKnown) same(tallied.cells, 0, "K2: cells without demand", of.key);
    }
    same(share_sum, target, "K1: shares", "all classes");
    if (cells.version !== this.#checked_version) this.#checkShares();
    if (lacking !== null) this.#compareLacking(lacking, target, isAbove, isPaused);
  }

  #checkShares(): void {
    const { cells } = this.#model;
    this.#checked_version = cells.version;
    const shares = new Map<string, number>();
    for (const { key, share } of this.#classes.keys()) if (share > 0) shares.set(key, share);
    if (cells.check(shares)) this.#coverage.note("cells", "fewer than owners ask for");
    if (cells.asked.size > 1) this.#coverage.note("cells", "shared");
    if (cells.asked.size > (cells.target ?? 0)) this.#coverage.note("cells", "fewer than classes");
  }

  /** R3. `isAbove`: a class has cells above its share. `isPaused`: all that lack some wait for their timer. */
  #compareLacking({ key }: PoolClass, target: number, isAbove: boolean, isPaused: boolean): void {
    const { instances, settings, starting_count, counts, reserve } = this.#state;
    const { is_pressed } = this.#model;
    const count = this.#sum("cells") + this.#sum("spares");
    const isSpent = count > target || (count === target && !isAbove);
    const hasRoom = !is_pressed && instances.size < settings.instances_max;
    const hasStart = starting_count < settings.starts_max;
    invariant(!isPaused || reserve.timer !== null, "R3: nobody is woken to refill cells");
    invariant(isPaused || isSpent || !hasRoom || !hasStart, `R3: ${key} lacks cells beside a free start`);
    const isStuck = !isPaused && !is_pressed && !hasRoom && hasStart && isAbove && counts.terminating === 0;
    invariant(!isStuck, `R3: ${key} lacks cells, and those above a share take its room`);
  }

  /** True if the class waits for its timer: a cell was taken or a start failed a moment ago. */
  #isPaused({ cells, taken_ms, retry_at_ms }: PoolClass): boolean {
    const quiet_ms = cells.size === 0 ? 0 : taken_ms + LIMITS.cell_refill_delay_ms;
    return Math.max(quiet_ms, retry_at_ms) > this.#state.now_ms;
  }
}
