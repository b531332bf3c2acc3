/**
 * Compares what the scheduler keeps of classes with the model after a step, made again from the instances and groups
 * themselves (S4 and S5 of `pool/states.ts`, A1 of `pool/scaling.ts`, K1 and K2 of `pool/demand.ts`, R1 to R3 of
 * `pool/reserve.ts`).
 */
import type { Group, Instance, InstanceClass } from "../../pool/records.ts";
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
}

export class CellAudit {
  readonly #state: PoolState;
  readonly #model: Model;
  readonly #coverage: Coverage;
  #classes = new Map<InstanceClass, Tallied>();

  constructor(state: PoolState, model: Model, coverage: Coverage) {
    this.#state = state;
    this.#model = model;
    this.#coverage = coverage;
  }

  compare(): void {
    const { instances, groups, classes, is_draining } = this.#state;
    this.#classes = new Map([...classes.values()].map((of) => [of, new Tallied()]));
    for (const instance of instances.values()) this.#countInstance(instance);
    for (const group of groups.values()) this.#countGroup(group);
    for (const [of, tallied] of this.#classes) this.#compareClass(of, tallied);
    this.#compareNode();
    if (!is_draining && this.#model.cells.target !== null) this.#compareReserve(this.#model.cells.target);
  }

  /** Containers that a group could have now, beyond those that groups want already. */
  startsFree(group: Group): number {
    const { settings, starting_count } = this.#state;
    const starts = this.#model.is_pressed ? 0 : settings.starts_max - starting_count;
    const { stock, wanted } = this.#tallied(group.class);
    return Math.max(0, starts - this.#sum("unmet")) + Math.max(0, stock - wanted);
  }

  /** Whether a cell stands ready, of any class. */
  get hasCell(): boolean {
    return this.#sum("cells") > 0;
  }

  /** A1: whether a cell or a spare start stands ready that the group could have. */
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

  #tallied(of: InstanceClass): Tallied {
    const tallied = this.#classes.get(of);
    invariant(tallied !== undefined, `S5: ${of.key} is forgotten too early`);
    return tallied;
  }

  #sum(name: "cells" | "spares" | "unmet"): number {
    let sum = 0;
    for (const tallied of this.#classes.values()) sum += tallied[name];
    return sum;
  }

  #countInstance({ id, class: of, state, group }: Instance): void {
    const tallied = this.#tallied(of);
    const expected = this.#model.instances.get(id)?.class;
    invariant(of.key === expected, `S5: ${id} is of ${of.key}, not of ${expected}`);
    invariant(group === null || group.class === of, `S5: ${id} serves another class`);
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
    invariant(isExpecting === group.class.expecting.has(group), `S4: ${group.key} expects a start, or does not`);
    invariant(group.wanted_count > 0 === group.class.hungry.has(group), `S4: ${group.key} is in the wrong set`);
  }

  #compareClass(of: InstanceClass, tallied: Tallied): void {
    const { key, cells, spares, hungry, expecting, member_count, wanted_count } = of;
    invariant(cells.size === tallied.cells && spares.size === tallied.spares, `S2: cells of ${key} differ`);
    invariant(hungry.size === tallied.hungry, `S4: groups of ${key} want that are gone`);
    invariant(expecting.size === tallied.expecting, `S4: groups of ${key} expect starts that are gone`);
    invariant(
      wanted_count === tallied.wanted,
      `S4: ${wanted_count} instances of ${key} are wanted, not ${tallied.wanted}`,
    );
    invariant(of.unmet_count === tallied.unmet, `S4: ${of.unmet_count} of ${key} are missing, not ${tallied.unmet}`);
    invariant(member_count === tallied.members, `S5: ${key} has ${member_count} members, not ${tallied.members}`);
    const isKept = this.#state.reserve.classes.has(of);
    invariant(isKept || member_count > 0, `S5: ${key} is never forgotten`);
  }

  #compareNode(): void {
    const { unmet_count, servable, counts, is_draining } = this.#state;
    invariant(
      unmet_count === this.#sum("unmet"),
      `S4: ${unmet_count} instances are missing, not ${this.#sum("unmet")}`,
    );
    invariant(counts.cell === this.#sum("cells") && counts.spare === this.#sum("spares"), "S2: cells differ");
    invariant(is_draining || servable.size === 0, "A1: a group waits beside a cell");
  }

  #compareReserve(target: number): void {
    const state = this.#state;
    const { cells, is_pressed } = this.#model;
    const cell_count = this.#sum("cells");
    invariant(cell_count <= target, `R1: ${cell_count} cells are kept, not ${target}`);
    const entries = [...this.#classes].map(([of, tallied]) => ({ of, tallied }));
    cells.check(new Map(entries.flatMap(({ of }) => (of.share > 0 ? [[of.key, of.share]] : []))));
    for (const { of, tallied } of entries) {
      const isKnown = of.key === cells.fallback || cells.demand.has(of.key);
      invariant(isKnown || tallied.cells === 0, `K2: ${tallied.cells} cells of ${of.key} stay without demand`);
    }
    if (cells.demand.size > 1) this.#coverage.note("cells", "shared");
    if (cells.demand.size > target) this.#coverage.note("cells", "fewer than classes");
    // R3.
    const lacking = entries.filter(({ of, tallied }) => tallied.stock < of.share);
    if (lacking.length === 0) return;
    const isAbove = entries.some(({ of, tallied }) => tallied.cells > of.share);
    const count = cell_count + this.#sum("spares");
    const isSpent = count > target || (count === target && !isAbove);
    const hasRoom = !is_pressed && state.instances.size < state.settings.instances_max;
    const hasStart = state.starting_count < state.settings.starts_max;
    const isPaused = lacking.every(({ of }) => this.#isPaused(of));
    invariant(!isPaused || state.reserve.timer !== null, "R3: nobody is woken to refill cells");
    invariant(
      isPaused || isSpent || !hasRoom || !hasStart,
      `R3: ${lacking[0]?.of.key} lacks cells beside a free start`,
    );
    const isStuck = !isPaused && !is_pressed && !hasRoom && hasStart && isAbove && state.counts.terminating === 0;
    invariant(!isStuck, `R3: ${lacking[0]?.of.key} lacks cells, and those above a share take its room`);
  }

  /** What was taken or failed a moment ago is looked at again when the timer fires. */
  #isPaused({ cells, taken_ms, retry_at_ms }: InstanceClass): boolean {
    const quiet_ms = cells.size === 0 ? 0 : taken_ms + LIMITS.cell_refill_delay_ms;
    return Math.max(quiet_ms, retry_at_ms) > this.#state.now_ms;
  }
}
