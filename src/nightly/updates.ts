/**
 * Newer packages than those of releases, asked from the machine's apt sources by a child, and remembered for a while. A failure is
 * remembered too: only the operator asks again before its time has passed. Its log names the machine's mirrors and proxies,
 * so it is in the daemon's log alone.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { ProfileBuilds } from "./builds.ts";
import type { PackageUpdate } from "./schema.ts";

export interface FoundUpdates {
  readonly version: string;
  /** Epoch seconds. */
  readonly checked_at: number;
  readonly updates: readonly PackageUpdate[];
}

export class ProfileUpdates {
  readonly #builds: Pick<ProfileBuilds, "child">;
  readonly #clock: Clock;
  /** The last answer for each profile. */
  readonly #found = new Map<string, FoundUpdates>();
  readonly #asking = new Map<string, Promise<FoundUpdates>>();
  /** Profiles whose last question failed: monotonic time until which none follows. */
  readonly #failed = new Map<string, number>();
  readonly #log: Log;

  constructor(builds: Pick<ProfileBuilds, "child">, clock: Clock, log: Log) {
    this.#builds = builds;
    this.#clock = clock;
    this.#log = log;
  }

  /** The last answer for this release; null: there was no question yet. */
  known(profile: string, version: string | null): FoundUpdates | null {
    const found = this.#found.get(profile);
    return found !== undefined && found.version === version ? found : null;
  }

  /** Asks, unless the last answer is new enough. Callers at the same time share one child. */
  async of(profile: string, version: string, isFresh: boolean): Promise<FoundUpdates> {
    const known = this.known(profile, version);
    const age_seconds = known === null ? Number.POSITIVE_INFINITY : this.#now() - known.checked_at;
    if (known !== null && !isFresh && age_seconds < LIMITS.profile_updates_kept_seconds) return known;
    const rest_ms = (this.#failed.get(profile) ?? 0) - this.#clock.monotonicMs();
    if (!isFresh && rest_ms > 0) throw notAnswered(rest_ms);
    const key = `${profile} ${version}`;
    const asking = this.#asking.get(key) ?? this.#ask(profile, version).finally(() => this.#asking.delete(key));
    this.#asking.set(key, asking);
    return asking;
  }

  async #ask(profile: string, version: string): Promise<FoundUpdates> {
    const asked = this.#builds.child(["updates", profile, `--version=${version}`]);
    const { updates = [] } = await asked.catch((error) => {
      throw this.#failure(profile, error);
    });
    this.#failed.delete(profile);
    const found = { version, checked_at: this.#now(), updates: updates as readonly PackageUpdate[] };
    this.#found.set(profile, found);
    return found;
  }

  /** The refusal for a failed question. Others, as that of a daemon that ends, stay as they are. */
  #failure(profile: string, error: unknown): unknown {
    if (!(error instanceof AppError) || error.reason_code !== "PROFILE_BUILD_FAILED") return error;
    this.#log.warn("updates of a profile not read", {
      ...{ profile, error: errorText(error), output: error.details?.output ?? "" },
    });
    this.#failed.set(profile, this.#clock.monotonicMs() + LIMITS.profile_backoff_ms);
    return notAnswered(LIMITS.profile_backoff_ms);
  }

  #now(): number {
    return toEpochSeconds(this.#clock.epochMs());
  }
}

function notAnswered(rest_ms: number): AppError {
  return new AppError("START_FAILED", "the machine's apt sources gave no answer", {
    retry_after: Math.ceil(rest_ms / 1_000),
    reason_code: "PROFILE_UPDATES_FAILED",
    hint: "ask the operator: the daemon's log has the reason",
  });
}
