/**
 * Lets only so many calls use the processor to begin at the same time. Beyond about four calls in their
 * spawn phase two cores only switch between them (p99 at 8 clients 48-69 ms without this, 15-24 ms with it). A call
 * leaves when its outcome is there or after `phase_ms`, so handlers that sleep or wait never hold others up. First in,
 * first out; never more calls than busy instances have places wait here.
 *
 * G1. At most `running_max` calls that entered less than `phase_ms` ago have not left.
 * G2. Nobody waits while a place is free; a timer runs only while somebody waits.
 */
import type { CancelTimer, Clock } from "../src/base/clock.ts";
import { Link, List } from "./queue.ts";

/** A call's way through the gate. */
export class Pass {
  readonly run: (pass: Pass) => void;
  entered_ms = 0;
  /** True if the call had to wait. */
  has_waited = false;
  readonly link: Link<Pass> = new Link(this);

  constructor(run: (pass: Pass) => void) {
    this.run = run;
  }
}

export class Gate {
  readonly #clock: Clock;
  readonly #running_max: number;
  readonly #phase_ms: number;
  readonly #running = new List<Pass>();
  readonly #waiting = new List<Pass>();
  #cancelTimer: CancelTimer | null = null;

  constructor(clock: Clock, running_max: number, phase_ms: number) {
    this.#clock = clock;
    this.#running_max = running_max;
    this.#phase_ms = phase_ms;
  }

  get waiting_count(): number {
    return this.#waiting.size;
  }

  /** Runs now when a place is free, else later. */
  enter(now_ms: number, run: (pass: Pass) => void): Pass {
    const pass = new Pass(run);
    if (this.#waiting.size === 0 && this.#hasPlace(now_ms)) {
      this.#admit(pass, now_ms);
    } else {
      pass.has_waited = true;
      this.#waiting.push(pass.link);
      this.#arm(now_ms);
    }
    return pass;
  }

  /** The call is through, or shall not run any more. True when it was still waiting: then it never runs. */
  leave(pass: Pass, now_ms: number): boolean {
    if (this.#waiting.remove(pass.link)) return true;
    if (this.#running.remove(pass.link)) this.#pump(now_ms);
    return false;
  }

  #hasPlace(now_ms: number): boolean {
    // All phases are equally long: who entered first is through first.
    for (let first = this.#running.first; first !== null; first = this.#running.first) {
      if (first.value.entered_ms + this.#phase_ms > now_ms) break;
      this.#running.remove(first);
    }
    return this.#running.size < this.#running_max;
  }

  #admit(pass: Pass, now_ms: number): void {
    pass.entered_ms = now_ms;
    this.#running.push(pass.link);
    pass.run(pass);
  }

  #pump(now_ms: number): void {
    for (let link = this.#waiting.first; link !== null && this.#hasPlace(now_ms); link = this.#waiting.first) {
      this.#waiting.remove(link);
      this.#admit(link.value, now_ms);
    }
    this.#arm(now_ms);
  }

  #arm(now_ms: number): void {
    const first = this.#running.first;
    if (this.#waiting.size === 0 || this.#cancelTimer !== null || first === null) return;
    // Rounded up: a timer that fires early finds nobody through and would only be set again.
    const delay_ms = Math.ceil(first.value.entered_ms + this.#phase_ms - now_ms);
    this.#cancelTimer = this.#clock.after(delay_ms, () => {
      this.#cancelTimer = null;
      this.#pump(this.#clock.monotonicMs());
    });
  }
}
