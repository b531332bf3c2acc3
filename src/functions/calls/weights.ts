/**
 * Shares of the processor for function instances: tenants that run calls at the same time have equal shares, whatever
 * the number of their calls. An instance has the weight of its tenant divided by the tenant's running calls.
 *
 * W1 Nothing is written while one tenant alone runs calls: equal weights of its instances are fair already.
 * W2 Weights follow at an interval, off the path of a call, with a bound on the writes of each time: fairness may lag.
 */
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";

/** The part of its tenant's share that each instance has, from running instances by tenant. Empty below two tenants (W1). */
export function sharesOf(running: ReadonlyMap<string, ReadonlySet<string>>): Map<string, number> {
  const shares = new Map<string, number>();
  if (running.size < 2) return shares;
  for (const instances of running.values()) for (const id of instances) shares.set(id, 1 / instances.size);
  return shares;
}

export class Weights {
  readonly #clock: Clock;
  readonly #write: (instance_id: string, share: number) => void;
  /** Instances that run a call or load their handler, by tenant. */
  readonly #running = new Map<string, Set<string>>();
  /** Weights that were written; absent: a whole share, which every instance has from its start. */
  readonly #written = new Map<string, number>();
  #cancel: CancelTimer | null = null;

  /** `write` sets an instance's part of a share, from 0 to 1. */
  constructor(clock: Clock, write: (instance_id: string, share: number) => void) {
    this.#clock = clock;
    this.#write = write;
  }

  began(tenant_id: string, instance_id: string): void {
    const instances = this.#running.get(tenant_id);
    if (instances === undefined) this.#running.set(tenant_id, new Set([instance_id]));
    else instances.add(instance_id);
    if (this.#running.size > 1) this.#later();
  }

  ended(tenant_id: string, instance_id: string): void {
    const instances = this.#running.get(tenant_id);
    instances?.delete(instance_id);
    if (instances?.size === 0) this.#running.delete(tenant_id);
  }

  /** An instance without a call, whose work is limited, has a small share at once, whoever runs calls: W1 counts on equal ones. */
  rested(instance_id: string): void {
    this.#set(instance_id, LIMITS.idle_share);
  }

  /** It has a whole share again. */
  woke(instance_id: string): void {
    this.#set(instance_id, 1);
  }

  /** Notes that an instance is gone. */
  forget(instance_id: string): void {
    this.#written.delete(instance_id);
  }

  #later(): void {
    this.#cancel ??= this.#clock.after(LIMITS.weights_interval_ms, () => {
      this.#cancel = null;
      this.#apply();
    });
  }

  #apply(): void {
    const changed = [...sharesOf(this.#running)].filter(([id, share]) => (this.#written.get(id) ?? 1) !== share);
    for (const [id, share] of changed.slice(0, LIMITS.weights_written_max)) this.#set(id, share);
    // Calls that begin and end change the shares of those that go on.
    if (this.#running.size > 1) this.#later();
  }

  #set(instance_id: string, share: number): void {
    this.#written.set(instance_id, share);
    this.#write(instance_id, share);
  }
}
