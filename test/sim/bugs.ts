/**
 * Planted bugs: each is one changed line of the real pool, of the kind that a hand slips in. `plant` writes a copy of
 * `pool/` with that line changed; the simulator runs the copy as it runs the real one. They measure the simulator.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { invariant } from "../../src/base/errors.ts";

export interface Bug {
  readonly file: string;
  readonly line: string;
  readonly instead: string;
}

const POOL = join(import.meta.dirname, "../../pool");
const SOURCE_URL = new URL("../../src/", import.meta.url).href;
/** The folder of the real scheduler. */
export const POOL_URL = new URL("../../pool/", import.meta.url).href;

export const BUGS = {
  "a-deadline-is-forgotten": {
    file: "scheduler.ts",
    line: "call.timer = state.timers.add(deadline_ms, call);",
    instead: "if (group.queue.size < 5) call.timer = state.timers.add(deadline_ms, call);",
  },
  "a-busy-instance-stays-idle": {
    file: "states.ts",
    line: "group.idle.remove(instance.rest_link);",
    instead: "if (group.idle.size > 1) group.idle.remove(instance.rest_link);",
  },
  "recycling-instances-do-not-count": {
    file: "records.ts",
    line: "return this.counts.warming + this.counts.ready + this.counts.busy + this.counts.recycling;",
    instead: "return this.counts.warming + this.counts.ready + this.counts.busy;",
  },
  "a-list-is-walked-while-it-shrinks": {
    file: "queue.ts",
    line: "link = next;",
    instead: "link = link.next;",
  },
  "a-count-drifts": {
    file: "states.ts",
    line: "group.counts[name] -= 1;",
    instead: 'if (instance.state !== "specialising") group.counts[name] -= 1;',
  },
  "the-wake-is-kept": {
    file: "scheduler.ts",
    line: 'if (event.type === "woken") state.wake_at_ms = Number.POSITIVE_INFINITY;',
    instead: "",
  },
  "the-clock-goes-back": {
    file: "scheduler.ts",
    line: "if (event.now_ms > state.now_ms) state.now_ms = event.now_ms;",
    instead: "state.now_ms = event.now_ms;",
  },
  "one-instance-too-many": {
    file: "scaling.ts",
    line: "if (state.starting_count >= state.settings.starts_max || state.room <= 0) break;",
    instead: "if (state.starting_count >= state.settings.starts_max || state.room < 0) break;",
  },
  "late-news-is-believed": {
    file: "scheduler.ts",
    line: 'return instance === undefined || instance.state === "terminating" ? null : instance;',
    instead: "return instance ?? null;",
  },
  "a-minimum-is-evicted": {
    file: "scaling.ts",
    line: "if (victim.group !== null && isNeeded(victim.group)) {",
    instead: "if (victim.group !== null && isNeeded(victim.group) && count > 1) {",
  },
  "a-heap-is-sorted-by-one-side": {
    file: "timers.ts",
    line: "if (this.#isBefore(2 * i + 2, least)) least = 2 * i + 2;",
    instead: "",
  },
  "nested-calls-get-no-room": {
    file: "policy.ts",
    line: "return bound + depth;",
    instead: "return bound + Math.min(depth, 1);",
  },
  "a-grant-outlives-its-level": {
    file: "records.ts",
    line: "return Math.max(0, Math.min(group.asked_count, held, held + this.roomFor(group, group.queue.depth)));",
    instead: "return Math.min(group.asked_count, held);",
  },
  "an-owner-has-no-levels": {
    file: "quotas.ts",
    line: "return depth > 0 && owner.roomFor(group, depth) > 0;",
    instead: "return false;",
  },
  "an-owner's-minimum-yields": {
    file: "quotas.ts",
    line: "if (isNeeded({ live_count: live_count - going_count, min_instances })) {",
    instead: "if (isNeeded({ live_count, min_instances })) {",
  },
  "an-owner-is-not-asked-again": {
    file: "quotas.ts",
    line: "if (!hasStart) delay(state, owner, group.class);",
    instead: "if (!hasStart) return false;",
  },
  "an-owner-waits-beside-those-who-take-turns": {
    file: "quotas.ts",
    line: "return state.unmet_count > 0 && owner.granted_count === 0;",
    instead: "return false;",
  },
  "an-owner-that-waited-first-is-passed-over": {
    file: "classes.ts",
    line: "if (before === 0 && state.unmet_count > 0) stirDelayed(state);",
    instead: "",
  },
  "idle-memory-drifts": {
    file: "records.ts",
    line: "if (instance.owner_link.list?.remove(instance.owner_link) === true) this.idle_mb -= group.memory_mb;",
    instead: "if (this.unneeded.remove(instance.owner_link)) this.idle_mb -= group.memory_mb;",
  },
  // The next four were real, until the simulator found them.
  "a-level-is-taken-from-above": {
    file: "states.ts",
    line: "if (live_count > boundAt(depth, this.settings.instances_max)) return true;",
    instead: "",
  },
  "a-superseded-group-is-never-forgotten": {
    file: "scheduler.ts",
    line: "if (meant !== null) forgetIfGone(state, meant);",
    instead: "",
  },
  "a-refused-group-is-never-forgotten": {
    file: "groups.ts",
    line: "for (const group of owner.groups) forgetIfGone(state, group);",
    instead: "",
  },
  "a-served-call-takes-the-cleanup-of-another": {
    file: "states.ts",
    line: 'if (group !== null && group.queue.size > 0 && (from === "recycling" || to === "recycling")) return false;',
    instead: "",
  },
  "patience-never-ends": {
    file: "states.ts",
    line: "group.patience_timer = state.timers.add(due_ms, group);",
    instead: "group.patience_timer = state.timers.add(due_ms + 50, group);",
  },
  "a-stuck-clean-up-waits-for-the-keep-alive": {
    file: "scheduler.ts",
    line: "if (instance.timer === null || instance.timer.due_ms > due_ms) armInstance(state, instance, due_ms);",
    instead: "if (instance.timer === null) armInstance(state, instance, due_ms);",
  },
  "a-cell-serves-another-class": {
    file: "scaling.ts",
    line: "for (let group = of.hungry.next; group !== null; group = of.hungry.next) {",
    instead: "for (let group = state.hungry.next; group !== null; group = state.hungry.next) {",
  },
  "a-start-goes-to-another-class": {
    file: "scaling.ts",
    line: "const instance = addInstance(state, of, group);",
    instead: "const instance = addInstance(state, group === null ? of : state.reserve.fallback, group);",
  },
  "an-adopted-cell-is-of-the-default-class": {
    file: "scheduler.ts",
    line: "const of = classOf(state, class_key);",
    instead: "const of = key === null ? state.reserve.fallback : classOf(state, class_key);",
  },
  "a-need-is-not-noted": {
    file: "scaling.ts",
    line: "clearFailures(group);\n    noteNeed(state, group.class, group.policy.owner ?? null);",
    instead: "clearFailures(group);",
  },
  "a-demand-never-ends": {
    file: "demand.ts",
    line: "claim.demand = agedDemand(claim.demand, reserve.target);",
    instead: "claim.demand = Math.max(1, agedDemand(claim.demand, reserve.target));",
  },
  "the-latest-class-gets-no-cell": {
    file: "demand.ts",
    line: "const latest = [...reserve.claims.values()].reverse();",
    instead: "const latest = [...reserve.claims.values()];",
  },
  "the-default-class-has-no-floor": {
    file: "policy.ts",
    line: "const floor = cellFloor(budget);",
    instead: "const floor = 0;",
  },
  "the-floor-is-counted-twice": {
    file: "policy.ts",
    line: "asked[i] = (asked[i] ?? 0) - count;",
    instead: "",
  },
  "an-owner-gets-cells-for-each-class": {
    file: "demand.ts",
    line: "return { owner, asked: askedCells(demand, target), is_fallback: of === fallback };",
    instead: "return { owner: of.key, asked: askedCells(demand, target), is_fallback: of === fallback };",
  },
  "an-owner's-need-is-nobody's": {
    file: "scaling.ts",
    line: "clearFailures(group);\n    noteNeed(state, group.class, group.policy.owner ?? null);",
    instead: "clearFailures(group);\n    noteNeed(state, group.class, null);",
  },
  "cells-stand-above-the-budget": {
    file: "reserve.ts",
    line: "if (state.counts.cell >= reserve.target) trim(state);",
    instead: "",
  },
  "cells-of-another-class-keep-their-room": {
    file: "scaling.ts",
    line: "for (; needed > 0 && cells.first !== null; needed--) {",
    instead: "for (; needed > 1 && cells.first !== null; needed--) {",
  },
  "an-owner-counts-on-cells-of-another-class": {
    file: "quotas.ts",
    line: "Math.max(0, of.stock - of.wanted_count);",
    instead: "state.counts.cell;",
  },
  // Several calls in one instance.
  "an-instance-has-one-call-too-many": {
    file: "states.ts",
    line: 'if (instance.state === "busy" && instance.closing === null && load < group.concurrency) {',
    instead: 'if (instance.state === "busy" && instance.closing === null && load <= group.concurrency) {',
  },
  "an-instance-that-ends-takes-calls": {
    file: "states.ts",
    line: 'if (instance.state === "busy" && instance.closing === null && load < group.concurrency) {',
    instead: 'if (instance.state === "busy" && load < group.concurrency) {',
  },
  "an-instance-outlives-its-last-call": {
    file: "scheduler.ts",
    line: "const isOpen = reuse && closing === null;",
    instead: "const isOpen = reuse;",
  },
  "a-place-in-cleanup-is-free": {
    file: "records.ts",
    line: "return this.running_count + (this.cleaning === null ? 0 : this.cleaning.size);",
    instead: "return this.running_count;",
  },
  "an-instance-rests-before-all-is-clean": {
    file: "scheduler.ts",
    line: "if (instance.load > 0) return;",
    instead: "",
  },
  "a-start-serves-one-call": {
    file: "scaling.ts",
    line: "assignWaiting(state, instance, call, is_cell);\n  fill(state, instance);",
    instead: "assignWaiting(state, instance, call, is_cell);",
  },
  "each-waiting-call-wants-an-instance": {
    file: "policy.ts",
    line: "const forCalls = Math.ceil(places / group.concurrency);",
    instead: "const forCalls = places;",
  },
  "places-in-cleanup-do-not-return": {
    file: "states.ts",
    line: "const returning = group.counts.recycling * group.concurrency + group.cleaning_count;",
    instead: "const returning = group.counts.recycling * group.concurrency;",
  },
  "a-place-of-a-deeper-call-is-taken": {
    file: "states.ts",
    line: "while (level < depth && state.isBeyondAt(group, level)) level += 1;",
    instead: "",
  },
  "a-call-waits-on-beside-a-place": {
    file: "scheduler.ts",
    line: "} while (state.blocked.size > 0 && serveBlocked(state));",
    instead: "} while (false);",
  },
  "a-lost-instance-keeps-its-calls": {
    file: "states.ts",
    line: "if (instance.running_count > 0) countCalls(state, instance, -instance.running_count);",
    instead: "if (instance.running_count > 0) countCalls(state, instance, -1);",
  },
  "a-hung-cleanup-ends-the-calls-beside-it": {
    file: "scheduler.ts",
    line: 'else if (instance.running_count > 0) close(state, instance, "stuck");',
    instead: "",
  },
  "places-above-half-are-taken-first": {
    file: "policy.ts",
    line: 'if (group.least_load < Math.ceil(group.concurrency / 2)) return "busy";',
    instead: 'if (group.least_load <= Math.ceil(group.concurrency / 2)) return "busy";',
  },
  "the-least-loaded-is-passed-over": {
    file: "places.ts",
    line: "loads.least = Math.min(loads.least, load);",
    instead: "if (loads.lists[load]?.size === 1) loads.least = load;",
  },
  "a-raised-concurrency-frees-no-place": {
    file: "groups.ts",
    line: "for (const instance of group.members) list(state, instance);",
    instead: "",
  },
  "a-call-is-timed-by-its-instance": {
    file: "scheduler.ts",
    line: "const sample_ms = state.now_ms - assigned_ms;",
    instead: "const sample_ms = state.now_ms - instance.since_ms;",
  },
} as const satisfies Record<string, Bug>;

export type BugName = keyof typeof BUGS;

export function isBug(name: string): name is BugName {
  return Object.hasOwn(BUGS, name);
}

/** A copy of the pool in a folder of its own, with a bug or, for `null`, without. */
export class Copy {
  /** What `runSeeds` takes. */
  readonly url: string;
  readonly #folder: string;

  constructor(bug: Bug | null) {
    // Before there is a folder: a line that is not there leaves none.
    const sources = readdirSync(POOL)
      .filter((name) => name.endsWith(".ts"))
      .map((file) => {
        const source = readFileSync(join(POOL, file), "utf8").replaceAll('"../src/', `"${SOURCE_URL}`);
        return [file, bug?.file === file ? this.#change(source, bug) : source] as const;
      });
    this.#folder = mkdtempSync(join(tmpdir(), "hearth-sim-"));
    const pool = join(this.#folder, "pool");
    mkdirSync(pool);
    writeFileSync(join(this.#folder, "package.json"), '{ "type": "module" }');
    for (const [file, source] of sources) writeFileSync(join(pool, file), source);
    this.url = pathToFileURL(`${pool}/`).href;
  }

  #change(source: string, { file, line, instead }: Bug): string {
    const parts = source.split(line);
    invariant(parts.length === 2, `pool/${file} has ${parts.length - 1} times: ${line}`);
    return parts.join(instead);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}
