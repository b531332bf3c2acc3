/**
 * Queries in a second: of one container, of one tenant, of all. The packet filter counts packets and their bytes, and one
 * packet may hold many queries: a stream does, and so does a datagram that its sender lets the kernel cut (UDP_SEGMENT).
 */
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import type { PlacedMember } from "../network/members.ts";

const WINDOW_MS = 1_000;

export class QueryRates {
  readonly #clock: Clock;
  readonly #containers = new Map<string, number>();
  readonly #tenants = new Map<string, number>();
  #count = 0;
  #began_ms = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts a query. Returns 0; beyond a bound, which counts nothing, the milliseconds until the next second. */
  take({ id, tenant_id }: Pick<PlacedMember, "id" | "tenant_id">): number {
    const now_ms = this.#clock.monotonicMs();
    if (now_ms - this.#began_ms >= WINDOW_MS) this.#begin(now_ms);
    const of_container = (this.#containers.get(id) ?? 0) + 1;
    const of_tenant = (this.#tenants.get(tenant_id) ?? 0) + 1;
    const isOver =
      of_container > LIMITS.dns_container_packets_per_second ||
      of_tenant > LIMITS.dns_tenant_packets_per_second ||
      this.#count >= LIMITS.dns_packets_per_second;
    if (isOver) return Math.max(1, this.#began_ms + WINDOW_MS - now_ms);
    this.#containers.set(id, of_container);
    this.#tenants.set(tenant_id, of_tenant);
    this.#count++;
    return 0;
  }

  #begin(now_ms: number): void {
    this.#began_ms = now_ms;
    this.#containers.clear();
    this.#tenants.clear();
    this.#count = 0;
  }
}
