/** What the model of the pool (`model.ts`) keeps of calls, instances and groups. */
import type { DropReason } from "../../pool/protocol.ts";
import type { InstanceState } from "../../pool/records.ts";
import { LIMITS } from "../../src/base/limits.ts";

export interface ModelCall {
  readonly id: number;
  readonly group: string;
  readonly depth: number;
  readonly arrived_ms: number;
  readonly deadline_ms: number;
}

export interface ModelInstance {
  readonly class: string;
  state: Exclude<InstanceState, "gone">;
  /** The group that it is bound to; starts may be meant for one and bound to another. */
  group: string | null;
  /** Calls in flight, by number. */
  readonly calls: Map<number, ModelCall>;
  /** Calls in cleanup: when they finished. */
  readonly cleaning: Map<number, number>;
  /** When it came to take no more calls; null while it takes them. */
  closing_ms: number | null;
  was_ready: boolean;
  /** Its first call found it as a cell. */
  was_cell: boolean;
  /** It was given a nested call since it was last idle. */
  is_nested: boolean;
  /** When it came to its state. */
  since_ms: number;
  /** The step in which it became ready. */
  ready_step: number;
  /** Devices that it holds, from its start on. */
  holds: number;
}

/** Places that are taken. */
export function loadOf({ calls, cleaning }: ModelInstance): number {
  return calls.size + cleaning.size;
}

/** True if a busy instance has a place for a call of its group. */
export function hasPlace(instance: ModelInstance, group: ModelGroup): boolean {
  return instance.state === "busy" && instance.closing_ms === null && loadOf(instance) < group.concurrency;
}

/**
 * Closes a busy instance with a cleanup that hangs, as due work comes before the event. True if a closed instance is due
 * to be removed.
 */
export function isOverdue(instance: ModelInstance, now_ms: number): boolean {
  if (instance.state !== "busy") return false;
  for (const since_ms of instance.cleaning.values()) {
    if (since_ms + LIMITS.recycling_ms_max <= now_ms) instance.closing_ms ??= now_ms;
  }
  return instance.closing_ms !== null && instance.closing_ms + LIMITS.closing_ms_max <= now_ms;
}

/** Weight of a slower call in the time that calls take at least. */
const SERVICE_WEIGHT = 1 / 8;

export class ModelGroup {
  readonly class: string;
  owner: string | null = null;
  memory_mb = 1;
  min_instances = 0;
  max_instances = 0;
  queue_max = 0;
  concurrency = 1;
  /** The least that an idle instance stays. */
  keep_alive_ms = 0;
  dropped: DropReason | null = null;
  is_superseded = false;
  /** Groups of one family replace each other, in the order in which they were set. */
  family: string | null = null;
  order = 0;
  /** In the order of arrival. */
  readonly waiting = new Set<ModelCall>();
  nested_count = 0;
  /** The deepest call that waited when the step began, or came in it. */
  deepest = 0;
  /** Instances before the step, as `audit.ts` counted them. */
  live_count = 0;
  /** Instances that were removed in this step, and how many of them expired or evicted, and as surplus. */
  lost_count = 0;
  shrunk_count = 0;
  surplus_count = 0;
  /** What a call takes an instance at least: falls to the newest at once, rises slowly, from nothing. */
  least_service_ms = 0;

  constructor(of: string) {
    this.class = of;
  }

  /** Whether a new call from outside would be reached only after its deadline, and the group cannot grow. */
  isHopeless(ahead_count: number, wait_ms: number): boolean {
    const live_count = this.live_count - this.lost_count;
    if (live_count < this.max_instances) return false;
    const places_count = Math.max(1, live_count) * this.concurrency;
    return Math.floor(ahead_count / places_count) * this.least_service_ms > wait_ms;
  }

  served(took_ms: number): void {
    const rise_ms = took_ms - this.least_service_ms;
    this.least_service_ms = rise_ms <= 0 ? took_ms : this.least_service_ms + rise_ms * SERVICE_WEIGHT;
  }

  depth(): number {
    let depth = 0;
    if (this.nested_count > 0) for (const call of this.waiting) depth = Math.max(depth, call.depth);
    return depth;
  }

  /** When the call arrived that is served next; null where none waits. */
  firstArrival(): number | null {
    const depth = this.depth();
    for (const call of this.waiting) if (call.depth === depth) return call.arrived_ms;
    return null;
  }
}
