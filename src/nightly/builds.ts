/**
 * Builds of profiles. Each runs in a child process, which alone works with apt and dpkg.
 *
 * B1. One build of a profile at a time, for all callers of this daemon; builds of different profiles take turns. A lock of the
 *     machine holds the same between daemons, and the second finds what the first has made.
 * B2. A build that failed is not repeated by itself before its backoff has passed. The operator's own request does not wait.
 * B3. A build does not end with the caller that started it. Callers wait until it ends, and their number is bounded.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { Semaphore } from "../base/concurrency.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";

/** Progress that a child reports. */
export interface SetupProgress {
  readonly percent?: number;
  readonly message?: string;
}

/** Fails with an AppError whose `details.output` is the end of the log. */
export type RunSetup = (
  args: readonly string[],
  options: { readonly onProgress: (progress: SetupProgress) => void; readonly signal: AbortSignal },
) => Promise<Readonly<Record<string, unknown>>>;

export interface BuildView {
  readonly progress_pct: number;
  readonly message: string;
  /** Epoch seconds. */
  readonly started_at: number;
}

export interface BuildFailure {
  /** Epoch seconds. */
  readonly failed_at: number;
  readonly failures_count: number;
  /** The cause, and its remedy if there is a known one. */
  readonly error: string;
  readonly hint: string | null;
  /** The end of the log. It may name the machine's mirrors, so it is the operator's. */
  readonly log: string;
}

export interface Waiting {
  readonly signal: AbortSignal;
  readonly timeout_ms: number;
  readonly onProgress?: (build: BuildView) => void;
}

interface Build {
  view: BuildView;
  readonly listeners: Set<(build: BuildView) => void>;
  readonly abort: AbortController;
  readonly ended: Promise<void>;
}

export type BuildVerb = "build" | "rebuild" | "rebuild-only";

const VERBS: Readonly<Record<BuildVerb, { readonly verb: string; readonly flags: readonly string[] }>> = {
  build: { verb: "build", flags: [] },
  rebuild: { verb: "rebuild", flags: [] },
  "rebuild-only": { verb: "rebuild", flags: ["--only"] },
};

export interface ProfileBuildsOptions {
  readonly runSetup: RunSetup;
  readonly clock: Clock;
  readonly log: Log;
  /** Is called after each build, whatever its outcome. */
  readonly onEnd: (profile: string, outcome: "succeeded" | "failed" | "cancelled") => void;
}

export class ProfileBuilds {
  readonly #options: ProfileBuildsOptions;
  readonly #building = new Map<string, Build>();
  readonly #failures = new Map<string, BuildFailure & { readonly until_ms: number }>();
  readonly #children = new Semaphore(1, LIMITS.profile_children_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many builds of profiles are waiting", { retry_after: 30 });
  });
  /** Callers that wait for a build, by tenant (B3). */
  readonly #waiters = new Map<string, number>();
  readonly #closing = new AbortController();

  constructor(options: ProfileBuildsOptions) {
    this.#options = options;
  }

  /** Null: no build of the profile runs or waits. */
  running(profile: string): BuildView | null {
    return this.#building.get(profile)?.view ?? null;
  }

  failure(profile: string): BuildFailure | null {
    return this.#failures.get(profile) ?? null;
  }

  /** Seconds until the next caller may start a build; 0: now (B2). */
  backoffSeconds(profile: string): number {
    const until_ms = this.#failures.get(profile)?.until_ms ?? 0;
    return Math.max(0, Math.ceil((until_ms - this.#options.clock.monotonicMs()) / 1000));
  }

  /** Runs a child that is no build, in turn with the builds. */
  child(args: readonly string[], signal?: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
    const signals = [this.#closing.signal, ...(signal === undefined ? [] : [signal])];
    return this.#children.run(() =>
      this.#options.runSetup(args, { onProgress: () => {}, signal: AbortSignal.any(signals) }),
    );
  }

  /** Starts a build, or joins the one that runs. Rejects as the build fails. */
  async run(profile: string, verb: BuildVerb, waiting: Waiting): Promise<void> {
    const build = this.#building.get(profile) ?? this.#start(profile, verb);
    const { signal, timeout_ms, onProgress = () => {} } = waiting;
    const late = Promise.withResolvers<never>();
    const cancelTimer = this.#options.clock.after(timeout_ms, () => late.reject(stillBuilding(profile, build.view)));
    // A caller that has gone away is no fault of the daemon, and the build goes on (B3).
    const abort = (): void =>
      late.reject(signal.reason instanceof AppError ? signal.reason : stillBuilding(profile, build.view));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    build.listeners.add(onProgress);
    onProgress(build.view);
    try {
      await Promise.race([build.ended, late.promise]);
    } finally {
      build.listeners.delete(onProgress);
      signal.removeEventListener("abort", abort);
      cancelTimer();
    }
  }

  /** The same for a first use by a tenant: with the backoff, and the bounds on those who wait. */
  async ensure(tenant_id: string, profile: string, waiting: Waiting): Promise<void> {
    const retry_after = this.#building.has(profile) ? 0 : this.backoffSeconds(profile);
    if (retry_after > 0) throw buildFailed(profile, retry_after);
    const count = this.#waiters.get(tenant_id) ?? 0;
    const all = [...this.#waiters.values()].reduce((sum, one) => sum + one, 0);
    const { profile_waiters_per_tenant_max: own_max, profile_waiters_max: all_max } = LIMITS;
    if (count >= own_max || all >= all_max) {
      // The build runs all the same, so a retry finds it further.
      if (!this.#building.has(profile)) this.#start(profile, "build");
      throw tooManyWait(count >= own_max ? `of the tenant (limit ${own_max})` : `on this node (limit ${all_max})`);
    }
    this.#waiters.set(tenant_id, count + 1);
    try {
      await this.run(profile, "build", waiting);
    } catch (error) {
      // Its log is the operator's.
      if (error instanceof AppError && error.reason_code === "PROFILE_BUILD_FAILED") {
        throw buildFailed(profile, this.backoffSeconds(profile));
      }
      throw error;
    } finally {
      const left = (this.#waiters.get(tenant_id) ?? 1) - 1;
      if (left === 0) this.#waiters.delete(tenant_id);
      else this.#waiters.set(tenant_id, left);
    }
  }

  /** Ends a build. Those who wait for it are refused. */
  cancel(profile: string): void {
    this.#building.get(profile)?.abort.abort(new AppError("WRONG_STATE", "the build was cancelled"));
  }

  /** Ends all children, and waits for what they clear up. */
  async close(): Promise<void> {
    this.#closing.abort(new AppError("SHUTTING_DOWN", "the daemon is shutting down"));
    await Promise.allSettled([...this.#building.values()].map(({ ended }) => ended));
  }

  #start(profile: string, verb: BuildVerb): Build {
    const { clock } = this.#options;
    const abort = new AbortController();
    const ended = Promise.withResolvers<void>();
    const started_at = toEpochSeconds(clock.epochMs());
    const build: Build = {
      view: { progress_pct: 0, message: "waiting for other builds", started_at },
      listeners: new Set(),
      abort,
      ended: ended.promise,
    };
    // A build may have no caller that waits for it.
    ended.promise.catch(() => {});
    this.#building.set(profile, build);
    this.#carryOut(profile, verb, build).then(ended.resolve, ended.reject);
    return build;
  }

  async #carryOut(profile: string, verb: BuildVerb, build: Build): Promise<void> {
    const { log, onEnd, runSetup } = this.#options;
    const signal = AbortSignal.any([this.#closing.signal, build.abort.signal]);
    const onProgress = ({ percent, message }: SetupProgress): void => {
      const { progress_pct, message: before, started_at } = build.view;
      const pct = Math.min(99, Math.max(progress_pct, percent ?? 0));
      build.view = { progress_pct: pct, message: message || before, started_at };
      for (const listener of build.listeners) listener(build.view);
    };
    const { verb: word, flags } = VERBS[verb];
    let outcome: "succeeded" | "failed" | "cancelled" = "cancelled";
    try {
      await this.#children.run(() => runSetup([word, profile, ...flags], { onProgress, signal }));
      this.#failures.delete(profile);
      outcome = "succeeded";
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      outcome = "failed";
      this.#noteFailure(profile, error);
      log.warn("profile not built", {
        profile,
        error: errorText(error),
        hint: hintOf(error),
        output: outputOf(error),
      });
      throw error;
    } finally {
      this.#building.delete(profile);
      onEnd(profile, outcome);
    }
  }

  #noteFailure(profile: string, error: unknown): void {
    const { clock } = this.#options;
    const failures_count = (this.#failures.get(profile)?.failures_count ?? 0) + 1;
    const wait_ms = Math.min(LIMITS.profile_backoff_ms_max, LIMITS.profile_backoff_ms * 2 ** (failures_count - 1));
    this.#failures.set(profile, {
      failed_at: toEpochSeconds(clock.epochMs()),
      failures_count,
      error: errorText(error),
      hint: hintOf(error),
      log: outputOf(error),
      until_ms: clock.monotonicMs() + wait_ms,
    });
  }
}

const hintOf = (error: unknown): string | null => (error instanceof AppError ? error.hint : null);
const outputOf = (error: unknown): string => (error instanceof AppError ? (error.details?.output ?? "") : "");

function buildFailed(profile: string, retry_after: number): AppError {
  return new AppError("START_FAILED", `the build of profile '${profile}' failed`, {
    ...(retry_after > 0 ? { retry_after } : {}),
    reason_code: "PROFILE_BUILD_FAILED",
    hint: `ask the operator: the daemon's log has the reason, and GET /api/nightly/profiles/${profile} shows it`,
  });
}

function tooManyWait(whose: string): AppError {
  return new AppError("QUEUE_FULL", `too many requests ${whose} wait for profiles that are being built`, {
    retry_after: LIMITS.profile_retry_seconds,
  });
}

function stillBuilding(profile: string, { progress_pct }: BuildView): AppError {
  return new AppError("START_FAILED", `profile '${profile}' is still being built (${progress_pct} %)`, {
    retry_after: LIMITS.profile_retry_seconds,
    reason_code: "PROFILE_BUILDING",
    hint: `GET /api/nightly/profiles/${profile} shows the progress; retry when its state is ready`,
  });
}
