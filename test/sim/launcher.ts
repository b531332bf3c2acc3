/**
 * The simulated launcher: what becomes of the scheduler's effects. Starts are slow, fail, or take ten seconds; calls
 * call others and wait for them; instances are lost; clean-ups hang; messages come when an instance is on its way out,
 * or gone; a process that ends takes all calls of its instance with it. While `is_healthy` nothing fails.
 */
import type { PoolEffect } from "../../pool/protocol.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { LATE_EVENTS } from "./coverage.ts";
import type { History } from "./history.ts";
import type { Random, Timeline, Untimed } from "./timeline.ts";

/** Share of removals of which something is heard too late, before or after they are done. */
const LATE_SHARE = 0.1;
/** Share of calls that call others: in stormy histories, and in calm ones. */
const NESTED_SHARE = 0.1;
const NESTED_SHARE_CALM = 0.7;
const WHY = "no luck";
/** Share of calls with which the process ends: all calls of the instance are answered at once. */
const DEATH_SHARE = 0.02;
const LEAVING_EVENTS = LATE_EVENTS.filter((type) => !type.startsWith("remove"));

/** A call that runs. */
export interface Run {
  readonly instance: string;
  readonly call: number;
  /** By the scheduler's clock. */
  readonly assigned_ms: number;
}

/** A call that waits for the calls that it has made. */
interface Caller {
  readonly run: Run;
  readonly waits_for: Set<number>;
}

export class SimulatedLauncher {
  is_healthy: boolean;
  /** Share of steps after which an instance is lost, whatever it does. */
  readonly loss_share: number;
  readonly #random: Random;
  readonly #timeline: Timeline;
  readonly #history: History;
  readonly #fail_share: number;
  readonly #crash_share: number;
  readonly #callers = new Map<number, Caller>();
  /** Nested call → the call that made it. */
  readonly #caller_of = new Map<number, number>();

  constructor(random: Random, timeline: Timeline, history: History) {
    this.#random = random;
    this.#timeline = timeline;
    this.#history = history;
    this.is_healthy = history.is_calm;
    this.#fail_share = random.pick([0, 0, 0.1, 0.5, 1]);
    this.#crash_share = random.pick([0, 0.02, 0.2]);
    this.loss_share = this.#crash_share / 5;
  }

  #fails(share: number): boolean {
    return !this.is_healthy && this.#random.chance(share);
  }

  obey(effect: PoolEffect): void {
    const random = this.#random;
    switch (effect.type) {
      case "start":
        if (this.#lacksDevices(effect)) return;
        this.#start(effect.instance, random.chance(0.05) ? random.unit() * 10_000 : 5 + random.unit() * 45, "started");
        break;
      case "specialise":
        this.#start(effect.instance, 3, "specialised");
        break;
      case "remove":
        this.#remove(effect.instance);
        break;
    }
  }

  #start(instance: string, delay_ms: number, type: "started" | "specialised"): void {
    if (this.#fails(this.#fail_share)) this.#timeline.add(delay_ms, { type: "start_failed", instance, reason: WHY });
    else this.#timeline.add(delay_ms, { type, instance });
  }

  /** Gives a start its devices; true if there are too few. */
  #lacksDevices({ instance, class: of }: PoolEffect & { type: "start" }): boolean {
    const count = this.#history.needOf(of);
    const lack = count === 0 ? null : this.#history.devices.claim(instance, count);
    if (lack === null) return false;
    const reason = "not enough devices";
    this.#timeline.add(this.#random.unit() * 5, { type: "start_failed", instance, reason, lack });
    return true;
  }

  #remove(instance: string): void {
    const delay_ms = 1 + this.#random.unit() * 20;
    if (this.#fails(this.#fail_share)) this.#timeline.add(delay_ms, { type: "remove_failed", instance, reason: WHY });
    else this.#timeline.add(delay_ms, { type: "removed", instance });
    if (!this.#fails(LATE_SHARE)) return;
    const isEarly = this.#random.chance(0.5);
    const late_ms = isEarly ? this.#random.unit() * delay_ms : delay_ms + this.#random.unit() * 200;
    const type = this.#random.pick(isEarly ? LEAVING_EVENTS : LATE_EVENTS);
    this.#timeline.add(late_ms, { type, instance, reason: WHY, reuse: true } as Untimed);
  }

  /** The clean-up after a call: done soon, or it hangs. */
  clean(instance: string, call: number): void {
    if (!this.#fails(this.#crash_share / 4)) {
      this.#timeline.add(this.#random.unit() * 5, { type: "idle", instance, call });
    }
  }

  // Calls

  /** Runs a call; one that calls others ends after they have. */
  run(run: Run, depth: number): void {
    const { instance } = run;
    const random = this.#random;
    const delay_ms = random.chance(0.1) ? random.unit() * 3_000 : random.unit() * 50;
    if (this.#fails(this.#crash_share)) this.#timeline.add(delay_ms, { type: "crashed", instance, reason: WHY });
    else if (this.#nests(depth)) this.#nest(run, depth + 1);
    else this.#finish(run, delay_ms);
  }

  #nests(depth: number): boolean {
    if (depth >= LIMITS.chain_depth_max || this.#history.nestable.length === 0) return false;
    return this.#random.chance(this.#history.is_calm ? NESTED_SHARE_CALM : NESTED_SHARE);
  }

  #finish(run: Run, delay_ms: number): void {
    this.#timeline.add(delay_ms, { type: "finished", ...run, reuse: this.#random.chance(0.9) });
  }

  /** Ends the process of a call that has ended, sometimes, and with it the calls beside it. True if it did. */
  endBeside(others: Iterable<Run>): boolean {
    if (!this.#fails(DEATH_SHARE)) return false;
    for (const run of others) {
      this.#timeline.add(this.#random.unit() * 2, { type: "finished", ...run, reuse: false });
    }
    return true;
  }

  #nest(run: Run, depth: number): void {
    const { call } = run;
    const random = this.#random;
    const waits_for = new Set<number>();
    for (let i = random.chance(0.1) ? 2 : 1; i > 0; i--) {
      const wait_ms = this.#history.is_calm ? 3_600_000 : random.pick([20, 5_000, 30_000]);
      const nested = this.#timeline.addCall(random.unit() * 20, random.pick(this.#history.nestable), wait_ms, depth);
      waits_for.add(nested);
      this.#caller_of.set(nested, call);
    }
    this.#callers.set(call, { run, waits_for });
  }

  /** A call has its answer, or is lost: who waits for it goes on, those that it waits for may be given up. */
  answered(call: number): void {
    const own = this.#callers.get(call);
    if (own !== undefined) {
      this.#callers.delete(call);
      for (const nested of own.waits_for) {
        this.#caller_of.delete(nested);
        if (this.#random.chance(0.5))
          this.#timeline.add(this.#random.unit() * 20, { type: "call_cancelled", call: nested });
      }
    }
    const above = this.#caller_of.get(call);
    this.#caller_of.delete(call);
    const caller = above === undefined ? undefined : this.#callers.get(above);
    if (above === undefined || caller === undefined) return;
    caller.waits_for.delete(call);
    if (caller.waits_for.size > 0) return;
    this.#callers.delete(above);
    this.#finish(caller.run, this.#random.unit() * 20);
  }
}
