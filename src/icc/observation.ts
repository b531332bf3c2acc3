/** Reports what the bus does: counts for the metrics, and dead letters to their tenant. */
import { AppError } from "../base/errors.ts";
import type { BusObserver, Delivery, EntryRef, Outgoing, Published } from "./bus/port.ts";
import type { DeadCause, InboxKind, MessageObserver, Settlement } from "./observer.ts";

export interface ObservationOptions {
  readonly observer: MessageObserver;
  /** Never throws. */
  readonly onDead: (ref: EntryRef, reason: string) => void;
}

/** The kind of an inbox by its name. */
export function kindOf(inbox: string): InboxKind {
  const prefix = inbox.slice(0, Math.max(inbox.indexOf(":"), 0));
  return prefix === "queue" || prefix === "topic" || prefix === "binding" ? prefix : "container";
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

  delivered(deliveries: readonly Delivery[]): void {
    const { observer } = this.#options;
    for (const { inbox, deliveries: attempts } of deliveries) observer.delivered(kindOf(inbox), attempts > 1);
  }

  settled(_ref: EntryRef, how: Settlement): void {
    this.#options.observer.settled(how);
  }

  died(ref: EntryRef, reason: string, cause: DeadCause): void {
    this.#options.observer.died(cause);
    this.#options.onDead(ref, reason);
  }

  expired(count: number): void {
    this.#options.observer.expired(count);
  }
}
