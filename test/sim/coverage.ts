/**
 * How often each thing happened in the histories. The simulator proves nothing about what it does not exercise, so
 * everything in `MUST_OCCUR` has to come up; the compiler asks for a new event, effect or reason to be listed here.
 */
import type { DropReason, PoolEffect, PoolEvent, RemoveReason } from "../../pool/protocol.ts";
import type { InstanceState } from "../../pool/records.ts";

const EVENTS = {
  group_set: 1,
  group_retire: 1,
  group_drop: 1,
  call_arrived: 1,
  call_cancelled: 1,
  adopted: 1,
  started: 1,
  specialised: 1,
  start_failed: 1,
  finished: 1,
  idle: 1,
  crashed: 1,
  removed: 1,
  remove_failed: 1,
  woken: 1,
  cells_set: 1,
  class_drop: 1,
  owner_set: 1,
  memory_read: 1,
  drain: 1,
} satisfies Record<PoolEvent["type"], 1>;

const EFFECTS = {
  start: 1,
  assign: 1,
  specialise: 1,
  refuse: 1,
  remove: 1,
  wake: 1,
  gave_up: 1,
  group_gone: 1,
} satisfies Record<PoolEffect["type"], 1>;

const REMOVALS = {
  expired: 1,
  evicted: 1,
  yielded: 1,
  surplus: 1,
  used_up: 1,
  crashed: 1,
  start_failed: 1,
  stuck: 1,
  dropped: 1,
  drained: 1,
} satisfies Record<RemoveReason, 1>;

const DROPS = { paused: 1, failed: 1, deleted: 1, shutdown: 1 } satisfies Record<DropReason, 1>;

/** States in which an instance can be lost. */
const CRASHES = {
  starting: 1,
  cell: 1,
  specialising: 1,
  ready: 1,
  busy: 1,
  recycling: 1,
} satisfies Record<Exclude<InstanceState, "terminating" | "gone">, 1>;

/** What may be heard of an instance that is on its way out or gone. */
export const LATE_EVENTS = [
  "started",
  "specialised",
  "start_failed",
  "finished",
  "idle",
  "crashed",
  "removed",
  "remove_failed",
] as const satisfies readonly PoolEvent["type"][];

const REFUSALS = [
  "CAPACITY_FULL",
  "NOT_FOUND",
  "QUEUE_FULL",
  "QUEUE_TIMEOUT",
  "QUOTA_EXCEEDED",
  "SHUTTING_DOWN",
  "START_FAILED",
  "WRONG_STATE",
];

/** Ways in which the clock misbehaves: all late at once, ahead, back for good, back for one event. */
export const CLOCK_FAULTS = ["stall", "ahead", "back", "blip"] as const;

export const MUST_OCCUR: readonly string[] = [
  ...Object.keys(EVENTS).map((name) => `event ${name}`),
  ...Object.keys(EFFECTS).map((name) => `effect ${name}`),
  ...Object.keys(REMOVALS).map((name) => `removed ${name}`),
  ...Object.keys(DROPS).map((name) => `dropped ${name}`),
  ...Object.keys(CRASHES).map((name) => `crashed ${name}`),
  // One that is on its way out is gone when it is removed: that is no late message.
  ...LATE_EVENTS.filter((name) => !name.startsWith("remove")).map((name) => `leaving ${name}`),
  ...LATE_EVENTS.map((name) => `gone ${name}`),
  ...REFUSALS.map((name) => `refused ${name}`),
  ...CLOCK_FAULTS.map((name) => `clock ${name}`),
  ...["waiting", "running", "answered"].map((name) => `cancelled ${name}`),
  ...["warm", "cold", "from a cell", "nested", "after its group was superseded"].map((name) => `served ${name}`),
  "served from a cell of another class than the default",
  ...["cell", "specialising", "ready", "busy", "terminating"].map((name) => `adopted and ${name}`),
  ...["the group's maximum", "the owner's limits", "the node's maximum"].map((name) => `nested beyond ${name}`),
  ...["evicted", "started for a nested call"].map((name) => `pressed ${name}`),
  ...["lowered below what is there", "raised", "forgotten", "full"].map((name) => `owner ${name}`),
  ...["before its deadline passed"].map((name) => `hopeless ${name}`),
  "patience a call waits for a cleanup",
  "places kept for deeper calls",
  ...["joined", "joined cold", "joined by a nested call", "lost with several calls"].map((name) => `shared ${name}`),
  ...["closes", "finished while it closes", "all end with their process"].map((name) => `shared ${name}`),
  ...["shared", "fewer than classes", "fewer than owners ask for", "evicted", "surplus"].map((name) => `cells ${name}`),
  ...["lacking", "made free", "refused"].map((name) => `devices ${name}`),
  ...["calm", "stormy"].map((name) => `history ${name}`),
];

/** Counts of what happened, by kind and name (`removed`, `evicted`). */
export class Coverage {
  readonly #kinds: Record<string, Record<string, number>> = {};

  note(kind: string, name: string): void {
    let names = this.#kinds[kind];
    if (names === undefined) {
      names = {};
      this.#kinds[kind] = names;
    }
    names[name] = (names[name] ?? 0) + 1;
  }

  /** By both together (`removed evicted`). */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const [kind, names] of Object.entries(this.#kinds)) {
      for (const [name, count] of Object.entries(names)) counts[`${kind} ${name}`] = count;
    }
    return counts;
  }
}

/** Adds the counts of one history to those of others. */
export function addCounts(sum: Record<string, number>, counts: Readonly<Record<string, number>>): void {
  for (const [what, count] of Object.entries(counts)) sum[what] = (sum[what] ?? 0) + count;
}
