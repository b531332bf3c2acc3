/** Reports what the bus does: counts for the metrics, steps for traces, and dead letters to their tenant. */
import { AppError } from "../base/errors.ts";
import type { BusObserver, Delivery, EntryRef, Outgoing, Published } from "./bus/port.ts";
import { type DeadCause, kindOf, type MessageObserver, type Settlement } from "./observer.ts";
import type { MessageTracing } from "./tracing.ts";

export interface ObservationOptions {
  readonly observer: MessageObserver;
  readonly tracing: MessageTracing;
  /** Never throws. */
  readonly onDead: (ref: EntryRef, reason: string) => void;
}

export class Observation implements BusObserver {
  readonly #options: ObservationOptions;

  constructor(options: ObservationOptions) {
    this.#options = options;
  }

  published({ inbox, copies = [] }: Outgoing, published: Published | null, error: unknown, duration_ms: number): void {
    const { observer } = this.#options;
    observer.publishEnded(duration_ms);
    if (published === null) observer.refused(error instanceof AppError ? error.code : "INTERNAL");
    else if (published.is_duplicate) observer.repeated();
    else observer.published([inbox, ...copies].map(kindOf));
  }

  delivered(deliveries: readonly Delivery[], begun_ms: number): void {
    const { observer, tracing } = this.#options;
    tracing.delivered(deliveries, begun_ms);
    for (const { inbox, deliveries: attempts } of deliveries) observer.delivered(kindOf(inbox), attempts > 1);
  }

  settled(ref: EntryRef, how: Settlement): void {
    this.#options.observer.settled(how);
    this.#options.tracing.settled(ref, how);
  }

  died(ref: EntryRef, reason: string, cause: DeadCause): void {
    this.#options.observer.died(cause);
    this.#options.onDead(ref, reason);
  }

  expired(count: number): void {
    this.#options.observer.expired(count);
  }
}
