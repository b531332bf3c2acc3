/**
 * Names that may be public and that nobody has answered yet. A resolver goes on to its search domain when the name servers of the
 * machine fail, and there `github.com` would be the container `github` of a network `com`; containers can make queries of others
 * fail, as the tenant has a bound.
 */
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import type { PlacedMember } from "../network/members.ts";

export class UnsettledNames {
  readonly #clock: Clock;
  /** By asker: names, the oldest first, and the monotonic time at which each is forgotten. */
  readonly #names = new WeakMap<PlacedMember, Map<string, number>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Call before others are asked: a resolver may give up first. */
  begin(asker: PlacedMember, name: string): void {
    const names = this.#names.get(asker) ?? new Map<string, number>();
    this.#names.set(asker, names);
    names.delete(name);
    names.set(name, this.#clock.monotonicMs() + LIMITS.dns_unsettled_ms);
    const [oldest] = names.keys();
    if (names.size > LIMITS.dns_unsettled_per_container_max && oldest !== undefined) names.delete(oldest);
  }

  /** Call when there is an answer, also that the name does not exist. */
  settle(asker: PlacedMember, name: string): void {
    this.#names.get(asker)?.delete(name);
  }

  has(asker: PlacedMember, name: string): boolean {
    const until_ms = this.#names.get(asker)?.get(name);
    return until_ms !== undefined && this.#clock.monotonicMs() < until_ms;
  }
}
