/**
 * One simulated history: the real `step`, driven from a seed. It plays the timeline, keeps the clock (which stalls, jumps
 * ahead and goes back), loses instances, and has every effect checked by the model and every state by the audit.
 */
import type { PoolEffect, PoolEvent, PoolSettings } from "../../pool/protocol.ts";
import type { PoolState } from "../../pool/states.ts";
import { InvariantError, invariant } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Audit } from "./audit.ts";
import { CLOCK_FAULTS, Coverage } from "./coverage.ts";
import { History } from "./history.ts";
import { type Run, SimulatedLauncher } from "./launcher.ts";
import { Model } from "./model.ts";
import { Random, Timeline, type Untimed } from "./timeline.ts";

/** The scheduler under test: the real one, or a copy with a bug. */
export interface PoolCode {
  readonly step: (state: PoolState, event: PoolEvent) => PoolEffect[];
  readonly PoolState: new (settings: PoolSettings) => PoolState;
}

export interface Report {
  readonly steps_count: number;
  readonly calls_count: number;
  readonly coverage: Readonly<Record<string, number>>;
}

/** A broken invariant, with what led to it. */
export class Violation extends InvariantError {
  readonly step: number;
  /** The last steps, the one that broke it at the end, a line each. */
  readonly recent: readonly string[];

  constructor(cause: unknown, step: number, recent: readonly string[]) {
    super(cause instanceof Error ? cause.message : String(cause));
    this.step = step;
    this.recent = recent;
  }
}

const STEPS_MAX = 30_000;
const RECENT_MAX = 12;
/** Long enough for every back-off, start and keep-alive of a history. */
const QUIET_MS = 900_000;
/** All that a history plans has happened by then. */
const RELIEF_MS = 60_000;
/** Far beyond any history: a clock that was set right again. */
const BACK_MS = [1, 300, 20_000, 3_600_000];
const AHEAD_MS = [100, 5_000, 700_000];

function line(what: PoolEvent | PoolEffect): string {
  const { type, ...rest } = what;
  const fields = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === "number" ? Math.round(value * 1000) / 1000 : value}`,
  );
  return [type, ...fields].join(" ");
}

export class Simulation {
  readonly #code: PoolCode;
  readonly #random: Random;
  readonly #timeline = new Timeline();
  readonly #history: History;
  readonly #launcher: SimulatedLauncher;
  readonly #model: Model;
  readonly #state: PoolState;
  readonly #audit: Audit;
  readonly #coverage = new Coverage();
  /** Calls in flight, by instance and number. */
  readonly #runs = new Map<string, Map<number, Run>>();
  /** The last steps, as a ring. */
  readonly #recent: ({ event: PoolEvent; effects: readonly PoolEffect[] } | undefined)[] = [];
  readonly #trace: ((line: string) => void) | null;
  /** Share of steps before which the clock misbehaves. */
  readonly #clock_share: number;
  /** The clock that is shown, less the time of the world. */
  #skew_ms = 0;
  /** By the time of the world. */
  #wake_at_ms = Number.POSITIVE_INFINITY;
  #steps_count = 0;
  /** Whether every call has to be served. */
  #is_generous: boolean;

  constructor(seed: number, code: PoolCode, trace: ((line: string) => void) | null = null) {
    this.#code = code;
    this.#trace = trace;
    this.#random = new Random(seed);
    this.#history = new History(this.#random, this.#timeline);
    this.#launcher = new SimulatedLauncher(this.#random, this.#timeline, this.#history);
    this.#is_generous = this.#history.is_calm;
    this.#clock_share = this.#history.is_calm ? 0 : this.#random.pick([0, 0.002, 0.01]);
    const { default_class } = this.#history.settings;
    this.#model = new Model(default_class, (call) => this.#launcher.answered(call));
    this.#state = new code.PoolState(this.#history.settings);
    this.#audit = new Audit(this.#state, this.#model, this.#coverage);
  }

  run(): Report {
    try {
      this.#coverage.note("history", this.#history.is_calm ? "calm" : "stormy");
      this.#history.write();
      this.#play(this.#random.pick([2_000, 10_000, 20_000]));
      if (this.#history.is_calm || this.#random.chance(0.5)) this.#settle();
      this.#is_generous = false;
      this.#shutDown();
    } catch (cause) {
      const next = (this.#steps_count + 1) % RECENT_MAX;
      const recent = [...this.#recent.slice(next), ...this.#recent.slice(0, next)];
      const lines = recent.flatMap((kept) => (kept === undefined ? [] : this.#lines(kept.event, kept.effects)));
      throw new Violation(cause, this.#steps_count, lines);
    }
    const counts = this.#coverage.counts();
    return { steps_count: this.#steps_count, calls_count: counts["event call_arrived"] ?? 0, coverage: counts };
  }

  #lines(event: PoolEvent, effects: readonly PoolEffect[]): string[] {
    return [line(event), ...effects.map((effect) => `    ${line(effect)}`)];
  }

  /** Plays what is planned for the next while. */
  #play(for_ms: number): void {
    const timeline = this.#timeline;
    const until_ms = timeline.now_ms + for_ms;
    for (;;) {
      const due_ms = Math.min(timeline.nextDue(), this.#wake_at_ms);
      if (due_ms > until_ms) break;
      timeline.now_ms = Math.max(timeline.now_ms, due_ms);
      const blip_ms = this.#launcher.is_healthy || !this.#random.chance(this.#clock_share) ? 0 : this.#disturbClock();
      const planned = timeline.nextDue() <= this.#wake_at_ms ? timeline.takeDue() : null;
      if (planned === null) {
        this.#wake_at_ms = Number.POSITIVE_INFINITY;
        this.#feed({ type: "woken" }, blip_ms);
      } else {
        this.#happen(planned, blip_ms);
      }
      if (!this.#launcher.is_healthy && this.#random.chance(this.#launcher.loss_share)) this.#loseAny();
    }
    timeline.now_ms = Math.max(timeline.now_ms, until_ms);
  }

  /** Answers how much the clock is behind for one event. */
  #disturbClock(): number {
    const fault = this.#random.pick(CLOCK_FAULTS);
    this.#coverage.note("clock", fault);
    if (fault === "stall") this.#timeline.now_ms += this.#random.pick(AHEAD_MS);
    else if (fault === "ahead") this.#skew_ms += this.#random.pick(AHEAD_MS);
    else if (fault === "back") this.#skew_ms -= this.#random.pick(BACK_MS);
    else return this.#random.pick(BACK_MS);
    return 0;
  }

  /** A planned event. What comes too late of an instance comes through now and then, as it does in life. */
  #happen(event: Untimed, blip_ms: number): void {
    if ("instance" in event && event.type !== "adopted") {
      const state = this.#model.instances.get(event.instance)?.state;
      const isLate = state === undefined || (state === "terminating" && !event.type.startsWith("remove"));
      if (isLate && this.#random.chance(0.5)) return;
      // Answered meanwhile, with its process.
      if (event.type === "finished" && !isLate && !this.#runs.get(event.instance)?.has(event.call)) return;
    }
    this.#giveBack(event);
    if (event.type === "call_arrived") {
      const deadline_ms = event.deadline_ms + this.#skew_ms;
      this.#feed(Object.assign(event, { deadline_ms }), blip_ms);
    } else {
      this.#feed(event, blip_ms);
    }
  }

  /** Devices are free when the removal is done; those of a failed one later, without a word. */
  #giveBack(event: Untimed): void {
    const { devices } = this.#history;
    if (event.type === "removed") devices.release(event.instance);
    else if (event.type === "remove_failed") devices.leak(event.instance);
    else if (this.#random.chance(0.02)) devices.reap();
  }

  #loseAny(): void {
    const alive = [...this.#model.instances].filter(([, instance]) => instance.state !== "terminating");
    if (alive.length > 0) this.#feed({ type: "crashed", instance: this.#random.pick(alive)[0], reason: "lost" });
  }

  #settle(): void {
    this.#heal();
    this.#history.relieve(RELIEF_MS);
    this.#play(QUIET_MS);
    this.#audit.compareRest(this.#history.devices.count);
  }

  #shutDown(): void {
    this.#heal();
    this.#feed({ type: "drain" });
    this.#play(this.#random.pick([1, 100]));
    this.#feed({ type: "drain", force: true });
    this.#play(QUIET_MS);
    this.#audit.compareEnd();
    this.#history.devices.reap();
    this.#history.devices.compareEnd();
  }

  /** From now on nothing fails, and the clock is right: not behind what it has shown. */
  #heal(): void {
    this.#launcher.is_healthy = true;
    this.#history.devices.reap();
    this.#skew_ms = Math.max(this.#skew_ms, this.#model.now_ms - this.#timeline.now_ms);
  }

  #feed(untimed: Untimed, blip_ms = 0): void {
    this.#steps_count += 1;
    invariant(this.#steps_count < STEPS_MAX, "the simulation does not come to rest");
    const now_ms = this.#timeline.now_ms + this.#skew_ms - blip_ms;
    const event = Object.assign(untimed, { now_ms }) as PoolEvent;
    this.#noteEvent(event);
    this.#model.hear(event);
    const effects = this.#step(event);
    for (const effect of effects) this.#obey(effect);
    this.#model.conclude();
    this.#noteDevices();
    if (event.type === "finished") this.#noteEnd(event);
    if (event.type === "adopted") this.#noteAdoption(event.instance);
    this.#audit.compare(event);
  }

  #step(event: PoolEvent): readonly PoolEffect[] {
    try {
      return this.#code.step(this.#state, event);
    } finally {
      // After a fault too: what was decided before it stands in the state.
      const { effects } = this.#state;
      this.#recent[this.#steps_count % RECENT_MAX] = { event, effects };
      if (this.#trace !== null) for (const text of this.#lines(event, effects)) this.#trace(text);
    }
  }

  #noteEnd({ instance: id, call, reuse }: PoolEvent & { type: "finished" }): void {
    const runs = this.#runs.get(id);
    runs?.delete(call);
    const instance = this.#model.instances.get(id);
    if (instance === undefined || instance.state === "terminating") return;
    if (reuse) this.#launcher.clean(id, call);
    if (instance.state !== "busy") return;
    if (instance.closing_ms !== null) this.#coverage.note("shared", reuse ? "finished while it closes" : "closes");
    if (!reuse && runs !== undefined && this.#launcher.endBeside(runs.values())) {
      this.#coverage.note("shared", "all end with their process");
    }
  }

  #obey(effect: PoolEffect): void {
    const coverage = this.#coverage;
    coverage.note("effect", effect.type);
    const depth = effect.type === "assign" ? (this.#model.calls.get(effect.call)?.depth ?? 0) : 0;
    if (effect.type === "refuse") this.#noteRefusal(effect);
    const was = effect.type === "remove" ? this.#model.instances.get(effect.instance)?.state : undefined;
    this.#model.obey(effect);
    if (effect.type === "assign") {
      const isSuperseded = this.#model.groups.get(effect.group)?.is_superseded === true;
      coverage.note("served", effect.cold ? "cold" : "warm");
      if (effect.cell_hit) coverage.note("served", "from a cell");
      if (effect.cell_hit && this.#model.groups.get(effect.group)?.class !== this.#history.settings.default_class) {
        coverage.note("served", "from a cell of another class than the default");
      }
      if (depth > 0) coverage.note("served", "nested");
      if (isSuperseded) coverage.note("served", "after its group was superseded");
      const { instance, call } = effect;
      const runs = this.#runs.get(instance) ?? new Map<number, Run>();
      const run = { instance, call, assigned_ms: this.#model.now_ms };
      this.#runs.set(instance, runs.set(call, run));
      if (runs.size > 1) coverage.note("shared", effect.cold ? "joined cold" : "joined");
      if (runs.size > 1 && depth > 0) coverage.note("shared", "joined by a nested call");
      this.#launcher.run(run, depth);
    } else if (effect.type === "wake") {
      const delay_ms = Math.ceil(effect.at_ms - this.#timeline.now_ms - this.#skew_ms);
      this.#wake_at_ms = this.#timeline.now_ms + Math.min(LIMITS.wake_ms_max, Math.max(0, delay_ms));
    } else {
      if (effect.type === "remove") {
        coverage.note("removed", effect.reason);
        if ((this.#runs.get(effect.instance)?.size ?? 0) > 1) coverage.note("shared", "lost with several calls");
        this.#runs.delete(effect.instance);
      }
      if (was === "cell" && effect.type === "remove" && (effect.reason === "evicted" || effect.reason === "surplus")) {
        coverage.note("cells", effect.reason);
      }
      if (this.#model.is_pressed) {
        if (effect.type === "remove" && effect.reason === "evicted") coverage.note("pressed", "evicted");
        if (effect.type === "start") coverage.note("pressed", "started for a nested call");
      }
      this.#launcher.obey(effect);
    }
  }

  #noteDevices(): void {
    const { devices } = this.#model;
    devices.compare(this.#state, this.#history.devices);
    if (devices.isLacking) this.#coverage.note("devices", devices.sacrificed_count > 0 ? "made free" : "lacking");
  }

  #noteRefusal(effect: PoolEffect & { type: "refuse" }): void {
    this.#coverage.note("refused", effect.code);
    const call = this.#model.calls.get(effect.call);
    const depth = call?.depth ?? 0;
    const isLack = effect.code === "CAPACITY_FULL" && this.#model.devices.isLacking;
    if (isLack) this.#coverage.note("devices", "refused");
    invariant(
      isLack || !this.#is_generous,
      `C1: call ${effect.call} of depth ${depth} is refused although nothing failed`,
    );
    if (effect.code === "QUEUE_TIMEOUT" && (call?.deadline_ms ?? 0) > this.#model.now_ms) {
      this.#coverage.note("hopeless", "before its deadline passed");
    }
  }

  #noteEvent(event: PoolEvent): void {
    const coverage = this.#coverage;
    coverage.note("event", event.type);
    if (event.type === "group_drop") coverage.note("dropped", event.reject);
    if (event.type === "owner_set") this.#noteLimits(event);
    if (event.type === "call_cancelled") {
      const isRunning = (): boolean => [...this.#model.instances.values()].some(({ calls }) => calls.has(event.call));
      const what = this.#model.calls.has(event.call) ? "waiting" : isRunning() ? "running" : "answered";
      coverage.note("cancelled", what);
    }
    if (!("instance" in event) || event.type === "adopted") return;
    const state = this.#model.instances.get(event.instance)?.state;
    if (state === undefined) coverage.note("gone", event.type);
    else if (state === "terminating" && !event.type.startsWith("remove")) coverage.note("leaving", event.type);
    else if (event.type === "crashed") coverage.note("crashed", state);
  }

  #noteLimits({ owner, instances_max, memory_mb_max }: PoolEvent & { type: "owner_set" }): void {
    const known = this.#model.owners.get(owner);
    if (known === undefined) return;
    if (instances_max === null && memory_mb_max === null) this.#coverage.note("owner", "forgotten");
    else if ((instances_max ?? Number.POSITIVE_INFINITY) > known.instances_max) this.#coverage.note("owner", "raised");
  }

  #noteAdoption(id: string): void {
    const state = this.#model.instances.get(id)?.state;
    if (state !== undefined) this.#coverage.note("adopted and", state);
  }
}
