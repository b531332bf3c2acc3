/**
 * The heartbeat of the page: does its work again and again while somebody looks.
 *
 * L1. One round at a time, and in a round one request at a time: the page never has two refreshes under way.
 * L2. The pause is at least nine times the round, so that a slow daemon is asked less, and doubles with every failure.
 *     News makes it shorter, and not shorter than that.
 * L3. A hidden tab asks nothing; it catches up when it is seen again.
 */

/** @import { Clock } from "./clock.js" */
/** @typedef {"live" | "reconnecting"} PollState */

const INTERVAL_MS = 2_000;
/** After news: what changes once often changes again at once. */
const NEWS_MS = 200;
const INTERVAL_MS_MAX = 30_000;
const PAUSE_PER_ROUND = 9;
const DOUBLINGS_MAX = 4;

export class Poll {
  #clock;
  #work;
  #onState;
  #isStarted = false;
  #isRunning = false;
  #isWanted = false;
  #failure_count = 0;
  #start_count = 0;
  #cancel = () => {};
  #ended_ms = 0;
  #round_ms = 0;
  #hasNews = false;

  /**
   * @param {Clock} clock
   * @param {() => Promise<void>} work
   * @param {(state: PollState, reason: string) => void} onState
   */
  constructor(clock, work, onState) {
    this.#clock = clock;
    this.#work = work;
    this.#onState = onState;
    document.addEventListener("visibilitychange", () => this.soon());
    addEventListener("online", () => this.soon());
  }

  start() {
    this.#isStarted = true;
    this.#start_count++;
    this.#failure_count = 0;
    this.soon();
  }

  stop() {
    this.#isStarted = false;
    this.#cancel();
  }

  /** Begins a round now, or right after the one that runs. */
  soon() {
    this.#cancel();
    this.#isWanted = true;
    if (!this.#isRunning) void this.#round();
  }

  /** Something has changed: begins a round as soon as it may, all changes until then together. */
  hint() {
    if (this.#hasNews || this.#failure_count > 0) return;
    this.#hasNews = true;
    if (this.#isRunning || !this.#isStarted) return;
    this.#cancel();
    const pause_ms = Math.max(NEWS_MS, PAUSE_PER_ROUND * this.#round_ms);
    const passed_ms = this.#clock.monotonicMs() - this.#ended_ms;
    this.#cancel = this.#clock.after(Math.max(NEWS_MS, pause_ms - passed_ms), () => this.soon());
  }

  async #round() {
    if (!this.#isStarted || document.hidden) return;
    this.#isRunning = true;
    this.#isWanted = false;
    this.#hasNews = false;
    const start_count = this.#start_count;
    const begun_ms = this.#clock.monotonicMs();
    /** @type {unknown} */
    let failure = null;
    try {
      await this.#work();
    } catch (error) {
      failure = error;
    }
    this.#isRunning = false;
    // What belongs to a round of before says nothing about now.
    if (start_count !== this.#start_count) return this.soon();
    if (!this.#isStarted) return;
    this.#failure_count = failure === null ? 0 : this.#failure_count + 1;
    this.#onState(
      failure === null ? "live" : "reconnecting",
      failure === null ? "" : failure instanceof Error ? failure.message : String(failure),
    );
    this.#ended_ms = this.#clock.monotonicMs();
    this.#round_ms = this.#ended_ms - begun_ms;
    const interval_ms = this.#hasNews ? NEWS_MS : INTERVAL_MS;
    const wanted_ms = Math.max(interval_ms, PAUSE_PER_ROUND * this.#round_ms);
    const pause_ms = Math.min(INTERVAL_MS_MAX, wanted_ms * 2 ** Math.min(this.#failure_count, DOUBLINGS_MAX));
    const isNext = this.#isWanted && failure === null;
    this.#cancel = this.#clock.after(isNext ? 0 : pause_ms, () => this.soon());
  }
}
