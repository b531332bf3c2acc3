/**
 * Compares the scheduler's state with the model after a step: every count, list and set is made again from the
 * instances and calls themselves (S2 to S4 of `pool/states.ts`, P3 to P5 of `pool/scheduler.ts`, A1 and A2 of
 * `pool/scaling.ts`). What the state derives from its own counts is not used, so that a wrong count cannot hide itself.
 *
 * B1. No group has more instances than its maximum, and the node none more than its own, but for what was there before
 *     and for the depth of the deepest call that waited.
 * B2. No group is shrunk below its minimum by choice, or below its maximum when that is lowered.
 * B3. No more is evicted than the starts that wait for room need, or than memory is short, unless an eviction gave a
 *     waiting call a place beside others.
 * B4. Cells are started up to their number.
 */
import type { PoolEvent } from "../../pool/protocol.ts";
import { Counts, type Group, type Instance } from "../../pool/records.ts";
import type { PoolState } from "../../pool/states.ts";
import type { Tally } from "../../pool/tallies.ts";
import { invariant } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { CellAudit } from "./cell-audit.ts";
import type { Coverage } from "./coverage.ts";
import { type Model, RELIEVED_SHARE } from "./model.ts";
import { OwnerAudit } from "./owner-audit.ts";
import { hasPlace, loadOf, type ModelGroup, type ModelInstance } from "./records.ts";

const COLUMNS = Object.keys(new Counts()) as (keyof Counts)[];

function columnOf(instance: Instance): keyof Counts {
  const { state } = instance;
  if (state === "specialising") return "warming";
  if (state === "starting") return instance.group === null ? "spare" : "warming";
  invariant(state !== "gone", `P5: ${instance.id} is gone and counts`);
  return state;
}

function liveOf(counts: Counts): number {
  return counts.warming + counts.ready + counts.busy + counts.recycling;
}

function sameCounts(actual: Counts, expected: Counts, whose: string): void {
  for (const name of COLUMNS) {
    if (actual[name] === expected[name]) continue;
    invariant(false, `S2: ${name} of ${whose} is ${actual[name]}, not ${expected[name]}`);
  }
}

function clear(counts: Counts): void {
  for (const name of COLUMNS) counts[name] = 0;
}

/** A group as its instances are. */
class Tallied {
  readonly counts = new Counts();
  starting = 0;
  needed_idle = 0;
  running = 0;
  cleaning = 0;
  /** Busy instances with a free place. */
  readonly open: ModelInstance[] = [];
}

export class Audit {
  readonly #state: PoolState;
  readonly #model: Model;
  readonly #coverage: Coverage;
  readonly #owners: OwnerAudit;
  readonly #cells: CellAudit;
  readonly #node = new Counts();
  readonly #groups = new Map<string, Tallied>();
  #starting = 0;
  #unneeded = 0;
  #running = 0;

  constructor(state: PoolState, model: Model, coverage: Coverage) {
    this.#state = state;
    this.#model = model;
    this.#coverage = coverage;
    this.#cells = new CellAudit(state, model, coverage);
    this.#owners = new OwnerAudit(state, model, coverage, {
      countsOf: (key) => this.#tallied(key).counts,
      startsFree: (group) => this.#cells.startsFree(group),
      unmet: () => this.#cells.unmet(),
    });
  }

  compare(event: PoolEvent): void {
    const isAdoption = event.type === "adopted";
    this.#count();
    this.#compareNode(isAdoption);
    const state = this.#state;
    let waiting = 0;
    let wanted = 0;
    for (const group of state.groups.values()) {
      const model = this.#model.groups.get(group.key);
      invariant(model !== undefined, `${group.key} should be forgotten`);
      const tallied = this.#tallied(group.key);
      this.#compareGroup(group, tallied, model);
      if (event.type === "group_set" && event.group === group.key) this.#compareNewSize(group.key, tallied, model);
      else if (event.type !== "group_drop") this.#compareSize(group.key, tallied, model, isAdoption);
      model.live_count = liveOf(tallied.counts);
      waiting += group.queue.size;
      wanted += group.wanted_count;
    }
    invariant(state.groups.size === this.#model.groups.size, "a group was lost");
    invariant(wanted === state.wanted_count, "S4: the sum of wanted instances differs");
    const { size } = this.#model.calls;
    invariant(waiting === state.calls.size && waiting === size, `P1: ${waiting} calls wait, not ${size}`);
    this.#cells.compare();
    if (!state.is_draining) {
      this.#compareHunger();
      this.#compareCells();
    }
    this.#owners.compare(event);
    this.#compareEvicted(event);
    this.#compareTime();
  }

  #count(): void {
    clear(this.#node);
    for (const tallied of this.#groups.values()) {
      clear(tallied.counts);
      tallied.starting = 0;
      tallied.needed_idle = 0;
      tallied.running = 0;
      tallied.cleaning = 0;
      tallied.open.length = 0;
    }
    this.#starting = 0;
    this.#unneeded = 0;
    this.#running = 0;
    for (const instance of this.#state.instances.values()) {
      const model = this.#model.instances.get(instance.id);
      invariant(model !== undefined, `P5: ${instance.id} does not exist`);
      this.#compareInstance(instance, model);
      const column = columnOf(instance);
      this.#node[column] += 1;
      if (instance.state === "starting") this.#starting += 1;
      if (instance.unneeded_link.list !== null) this.#unneeded += 1;
      if (instance.group === null) continue;
      const tallied = this.#tallied(instance.group.key);
      tallied.counts[column] += 1;
      if (instance.state === "starting") tallied.starting += 1;
      if (instance.state === "ready" && instance.unneeded_link.list === null) tallied.needed_idle += 1;
      tallied.running += model.calls.size;
      this.#running += model.calls.size;
      this.#countPlaces(instance, model, tallied);
    }
  }

  /** S6 and F1. */
  #countPlaces(instance: Instance, model: ModelInstance, tallied: Tallied): void {
    const { id, running_count } = instance;
    invariant(running_count === model.calls.size, `S6: ${id} runs ${model.calls.size} calls, not ${running_count}`);
    const group = this.#model.groups.get(instance.group?.key ?? "");
    const isOpen = group !== undefined && hasPlace(model, group);
    invariant(isOpen === (instance.place_link.list !== null), `F1: the free places of ${id} differ`);
    if (isOpen) tallied.open.push(model);
    if (model.state !== "busy") return;
    const { closing_ms, cleaning } = model;
    invariant((instance.closing !== null) === (closing_ms !== null), `M10: ${id} closes or not`);
    if (closing_ms === null) {
      invariant(instance.load === loadOf(model), `S6: ${id} has a load of ${loadOf(model)}, not ${instance.load}`);
      tallied.cleaning += cleaning.size;
    }
    const isBounded = instance.timer !== null || (closing_ms === null && cleaning.size === 0);
    invariant(isBounded, `M10: ${id} may stay for ever`);
  }

  #tallied(key: string): Tallied {
    let tallied = this.#groups.get(key);
    if (tallied === undefined) {
      tallied = new Tallied();
      this.#groups.set(key, tallied);
    }
    return tallied;
  }

  #compareInstance(instance: Instance, model: ModelInstance): void {
    const { id, class: of, state, group } = instance;
    invariant(state === model.state, `P5: ${id} is ${state}, not ${model.state}`);
    if (of.key !== model.class) invariant(false, `S5: ${id} is of ${of.key}, not of ${model.class}`);
    const isListed = instance.unneeded_link.list !== null;
    invariant(!isListed || state === "ready", `S3: ${id} is listed as idle`);
    invariant(!isListed || instance.timer !== null, `S3: ${id} has no timer`);
    if (state === "recycling") {
      const since_ms = Math.min(model.since_ms, ...model.cleaning.values());
      const isStuck = since_ms + LIMITS.recycling_ms_max <= this.#model.now_ms;
      invariant(instance.timer !== null && !isStuck, `${id} may be cleaned up for ever`);
    }
    if (state !== "starting" && state !== "terminating") {
      invariant((group?.key ?? null) === model.group, `P2: ${id} belongs to ${group?.key}, not to ${model.group}`);
    }
    if (group !== null) invariant(this.#state.groups.get(group.key) === group, `${id} belongs to a forgotten group`);
  }

  #compareNode(isAdoption: boolean): void {
    const state = this.#state;
    const model = this.#model;
    const { instances_max, starts_max } = state.settings;
    const { size } = state.instances;
    invariant(size === model.instances.size, `P5: there are ${model.instances.size} instances, not ${size}`);
    const bound = Math.max(model.size, instances_max + model.deepest) + (isAdoption ? 1 : 0);
    invariant(size <= bound, `B1: ${size} instances on a node that may have ${bound}`);
    if (size > instances_max && model.deepest > 0 && size > model.size) {
      this.#coverage.note("nested", "beyond the node's maximum");
    }
    invariant(this.#starting <= starts_max, `A2: ${this.#starting} starts at once`);
    invariant(this.#starting === state.starting_count, "S2: the count of starts differs");
    invariant(this.#unneeded === state.unneeded.size, "S3: the order of eviction differs");
    invariant(state.is_pressed === model.is_pressed, "M3: the pool and the model differ on memory");
    invariant(this.#running === state.calls_running, `S6: ${this.#running} calls run, not ${state.calls_running}`);
    sameCounts(state.counts, this.#node, "the node");
  }

  #compareGroup(group: Group, tallied: Tallied, model: ModelGroup): void {
    const { key } = group;
    const { counts } = tallied;
    const waiting = model.waiting.size;
    sameCounts(group.counts, counts, key);
    invariant(group.queue.size === waiting, `P1: ${group.queue.size} calls wait for ${key}, not ${waiting}`);
    invariant(waiting === 0 || counts.ready === 0, `P3: calls of ${key} wait beside a ready instance`);
    invariant(waiting === 0 || model.dropped === null, `P1: calls wait for ${key}, which was dropped`);
    invariant(group.idle.size === counts.ready, `S3: idle instances of ${key} differ`);
    invariant(group.starting.size === tallied.starting, `S2: earmarked starts of ${key} differ`);
    invariant(tallied.needed_idle === group.needed_idle_count, `S3: needed instances of ${key} differ`);
    const live = liveOf(counts);
    const isAbove = live > model.min_instances;
    invariant(tallied.needed_idle === 0 || !isAbove, `S3: an idle instance of ${key} would stay for ever`);
    invariant(group.calls_running === tallied.running, `S6: calls of ${key} that run differ`);
    invariant(group.cleaning_count === tallied.cleaning, `S6: calls of ${key} in cleanup differ`);
    const depth = model.depth();
    this.#comparePlaces(key, tallied, model, depth);
    this.#compareWanted(group, counts, model, depth);
    const isOpen = model.dropped === null && !model.is_superseded;
    invariant(isOpen || group.members.size > 0 || waiting > 0, `${key} should be forgotten`);
  }

  /** P3 and F2: a call waits beside a free place only if there is an instance too many for it, and that serves deeper ones. */
  #comparePlaces(key: string, tallied: Tallied, model: ModelGroup, depth: number): void {
    if (model.waiting.size === 0 || tallied.open.length === 0 || this.#model.is_draining) return;
    invariant(this.#isBeyond(tallied, model, depth), `P3: calls of ${key} wait beside a free place`);
    for (const { calls } of tallied.open) {
      for (const call of calls.values()) {
        const isKept = call.depth > depth;
        invariant(isKept, `P3: calls of ${key} of depth ${depth} wait beside one of depth ${call.depth}`);
      }
    }
    this.#coverage.note("places", "kept for deeper calls");
  }

  #isBeyond(tallied: Tallied, model: ModelGroup, depth: number): boolean {
    const { size } = this.#model.instances;
    if (size - this.#node.terminating > this.#state.settings.instances_max + depth) return true;
    if (liveOf(tallied.counts) > model.max_instances + depth) return true;
    const owner = this.#model.owners.of(model);
    if (owner === null) return false;
    const live = { count: 0, mb: 0 };
    for (const [name, other] of this.#model.groups) {
      if (other.owner !== model.owner) continue;
      const count = liveOf(this.#tallied(name).counts);
      live.count += count;
      live.mb += count * other.memory_mb;
    }
    const beyond_mb = depth * Math.min(owner.largest_mb, owner.memory_mb_max);
    return live.count > owner.instances_max + depth || live.mb > owner.memory_mb_max + beyond_mb;
  }

  /** S4, with what the policy says made again. */
  #compareWanted(group: Group, counts: Counts, model: ModelGroup, depth: number): void {
    const state = this.#state;
    const live = liveOf(counts);
    const first_ms = model.firstArrival();
    const isPatient = first_ms !== null && state.now_ms < first_ms + LIMITS.recycling_patience_ms;
    const { concurrency } = model;
    const returning = isPatient ? counts.recycling * concurrency + group.cleaning_count : 0;
    if (returning > 0) this.#coverage.note("patience", "a call waits for a cleanup");
    const forCalls = Math.ceil((model.waiting.size - counts.warming * concurrency - returning) / concurrency);
    const forMinimum = state.now_ms < group.warm_retry_at_ms ? 0 : model.min_instances - live;
    const free = model.max_instances + depth - live;
    const isClosed = model.dropped !== null || this.#model.is_draining || state.now_ms < group.lacking_until_ms;
    const asked = isClosed ? 0 : Math.max(0, Math.min(free, Math.max(forCalls, forMinimum)));
    invariant(group.asked_count === asked, `S4: ${group.key} asks for ${group.asked_count}, not ${asked}`);
    const wanted = group.wanted_count;
    const isGranted = wanted === asked || (this.#model.owners.of(model) !== null && wanted >= 0 && wanted < asked);
    invariant(isGranted, `S4: ${group.key} wants ${wanted}, not ${asked}`);
    invariant(wanted > 0 === state.hungry.has(group), `S4: ${group.key} is in the wrong set`);
    invariant((wanted > 0 && depth > 0) === state.nested.has(group), `S4: ${group.key} is in the wrong set`);
  }

  #compareSize(key: string, tallied: Tallied, model: ModelGroup, isAdoption: boolean): void {
    const live = liveOf(tallied.counts);
    const bound = Math.max(model.live_count, model.max_instances + model.deepest) + (isAdoption ? 1 : 0);
    invariant(live <= bound, `B1: ${key} has ${live} instances and may have ${bound}`);
    if (live > model.max_instances && live > model.live_count && model.deepest > 0) {
      this.#coverage.note("nested", "beyond the group's maximum");
    }
    const lost = model.shrunk_count;
    const had = model.live_count + (isAdoption ? 1 : 0);
    invariant(lost === 0 || had - lost >= model.min_instances, `B2: ${key} is below its minimum`);
  }

  /** A group whose bounds have just been set: what stands or starts beyond them goes, and no more. */
  #compareNewSize(key: string, tallied: Tallied, model: ModelGroup): void {
    const live = liveOf(tallied.counts);
    const bound = model.max_instances + model.depth();
    const { ready } = tallied.counts;
    invariant(
      live <= bound || ready + tallied.starting === 0,
      `B1: ${key} keeps ${live} instances and may have ${bound}`,
    );
    const { surplus_count, shrunk_count } = model;
    // What is too much for its owner goes too.
    const isWhole = surplus_count === 0 || this.#model.owners.of(model) !== null || live + shrunk_count >= bound;
    invariant(isWhole, `B2: ${key} is shrunk to ${live}, below ${bound}`);
  }

  /** B3. */
  #compareEvicted(event: PoolEvent): void {
    const model = this.#model;
    const going = this.#node.terminating;
    if (event.type === "memory_read" && model.is_pressed) {
      const each_mb = event.used_mb / Math.max(1, model.size);
      const needed = Math.ceil((event.used_mb - event.budget_mb * RELIEVED_SHARE) / each_mb);
      const isEnough = going >= needed;
      invariant(model.evicted_count === 0 || going <= needed, `B3: ${going} instances go for memory, not ${needed}`);
      invariant(isEnough || !this.#canEvict(), `B3: ${going} instances go for memory, not ${needed}`);
    } else if (model.evicted_count > 0) {
      const { instances_max, starts_max } = this.#state.settings;
      const needed = Math.min(this.#state.wanted_count, starts_max - this.#starting);
      // Cells that end for cells of other classes end independently of waiting calls.
      const room = instances_max - this.#state.instances.size + going - model.trimmed_count;
      invariant(
        room <= needed || model.is_relieved,
        `B3: there is room for ${room} instances, and ${needed} are needed`,
      );
    }
  }

  /** Whether an idle instance is left that no minimum needs. */
  #canEvict(): boolean {
    for (const { group } of this.#state.unneeded) {
      const key = group?.key ?? "";
      const live = liveOf(this.#tallied(key).counts);
      if (live > (this.#model.groups.get(key)?.min_instances ?? 0)) return true;
    }
    return false;
  }

  /** B4. */
  #compareCells(): void {
    const count = this.#node.cell + this.#node.spare;
    const { cells, is_refilling } = this.#model;
    const target = cells.target ?? 0;
    invariant(!is_refilling || count <= target, `B4: ${count} cells are kept or started, not ${target}`);
  }

  /** A1: who wants an instance waits for room or for a start, never beside what could serve it. */
  #compareHunger(): void {
    const state = this.#state;
    if (state.hungry.size === 0) return;
    const { instances_max, starts_max } = state.settings;
    const { size } = state.instances;
    const bound = this.#model.is_pressed ? Math.min(size, instances_max) : instances_max;
    const room = bound - size;
    const isBusyStarting = this.#starting === starts_max;
    for (const group of state.hungry) {
      invariant(!this.#cells.canServe(group), `A1: ${group.key} waits beside a cell`);
    }
    invariant(room <= 0 || isBusyStarting, "A1: a group waits beside a free start");
    for (const group of state.nested) {
      const depth = this.#model.groups.get(group.key)?.depth() ?? 0;
      const isExpecting = group.starting.size > 0;
      invariant(isBusyStarting || isExpecting || room + depth <= 0, `A1: a nested call of ${group.key} gets no start`);
    }
    if (this.#model.is_pressed) return;
    const free = Math.min(state.wanted_count, starts_max - this.#starting);
    if (free <= room + this.#node.terminating) return;
    invariant(this.#node.cell === 0, "A1: a start waits for room beside a cell of another class");
    invariant(!this.#canEvict(), "A1: a start waits for room beside an idle instance");
  }

  /** P4: nothing is overdue, and the wake that was asked for comes in time. */
  #compareTime(): void {
    const state = this.#state;
    const model = this.#model;
    invariant(state.now_ms === model.now_ms, "the scheduler's time is not the latest that was shown");
    const first = model.firstDue();
    if (first !== null) {
      invariant(first.deadline_ms > model.now_ms, `P4: call ${first.id} waits past its deadline`);
      invariant(first.deadline_ms >= model.wake_ms, `P4: nobody is woken at the deadline of call ${first.id}`);
    }
    const due_ms = state.timers.nextDue();
    invariant(model.wake_ms <= due_ms, "a timer is due that nobody is woken for");
    invariant(due_ms > model.now_ms, "P4: a timer is overdue");
  }

  /** Nothing fails and nobody calls any more: every call is answered, minimums and cells are there, and no more than may. */
  compareRest(devices_count: number): void {
    const state = this.#state;
    const model = this.#model;
    const left = [...model.calls.values()].map(({ id, group, depth }) => `${id} of ${group} at depth ${depth}`);
    invariant(left.length === 0, `calls still wait after everything was quiet: ${left.join(", ")}`);
    if (model.is_draining) return;
    const groups = [...model.groups].filter(([, group]) => group.dropped === null);
    const needed = groups.reduce((sum, [, group]) => sum + group.min_instances, 0);
    const needed_devices = groups.reduce((sum, [, group]) => sum + group.min_instances * this.#devicesOf(group), 0);
    const holding = this.#owners.compareRest();
    for (const [key, group] of groups) {
      const { counts } = this.#tallied(key);
      const isWithin = this.#model.owners.of(group) === null || holding.has(group.owner ?? "");
      // Those without devices never wait for those with.
      const isHeld = isWithin && (this.#devicesOf(group) === 0 || needed_devices <= devices_count);
      const { ready, busy } = counts;
      invariant(busy === 0, `${key} is busy after everything was quiet`);
      invariant(liveOf(counts) <= group.max_instances, `B1: ${key} stays above its maximum`);
      if (isHeld && needed <= state.settings.instances_max)
        invariant(ready >= group.min_instances, `${key} is below its minimum`);
    }
    this.#cells.compareRest();
  }

  #devicesOf(group: ModelGroup): number {
    return this.#model.devices.countOf(group.class);
  }

  /** After a drain that ended everything. */
  compareEnd(): void {
    const state = this.#state;
    invariant(this.#model.instances.size === 0 && state.instances.size === 0, "instances are left after the drain");
    invariant(this.#model.calls.size === 0, "P1: calls wait after the drain");
    invariant(state.timers.live_count === 0, "timers are left after the drain");
    invariant(state.holders.size === 0 && state.lacking.size === 0, "D2: devices are lacked after the drain");
    for (const [name, count] of Object.entries(this.#model.tally)) {
      const actual = state.tally[name as keyof Tally];
      invariant(actual === count, `${name} is ${actual}, not ${count}`);
    }
  }
}
