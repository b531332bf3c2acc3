/** Newer packages than those of releases, asked from the machine's apt sources by a child, and remembered for a while. */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
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

  constructor(builds: Pick<ProfileBuilds, "child">, clock: Clock) {
    this.#builds = builds;
    this.#clock = clock;
  }

  /** The last answer for this release; null: nobody has asked. */
  known(profile: string, version: string | null): FoundUpdates | null {
    const found = this.#found.get(profile);
    return found !== undefined && found.version === version ? found : null;
  }

  /** Asks, unless the last answer is new enough. Callers at the same time share one child. */
  async of(profile: string, version: string, isFresh: boolean): Promise<FoundUpdates> {
    const known = this.known(profile, version);
    const age_seconds = known === null ? Number.POSITIVE_INFINITY : this.#now() - known.checked_at;
    if (known !== null && !isFresh && age_seconds < LIMITS.profile_updates_kept_seconds) return known;
    const key = `${profile} ${version}`;
    const asking = this.#asking.get(key) ?? this.#ask(profile, version).finally(() => this.#asking.delete(key));
    this.#asking.set(key, asking);
    return asking;
  }

  async #ask(profile: string, version: string): Promise<FoundUpdates> {
    const { updates = [] } = await this.#builds.child(["updates", profile, `--version=${version}`]);
    const found = { version, checked_at: this.#now(), updates: updates as readonly PackageUpdate[] };
    this.#found.set(profile, found);
    return found;
  }

  #now(): number {
    return toEpochSeconds(this.#clock.epochMs());
  }
}
