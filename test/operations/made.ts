/** Operations on a store, with runners that a test drives by hand. */
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import type { Log } from "../../src/base/log.ts";
import { Events } from "../../src/events/service.ts";
import { type OperationContext, type OperationResult, Operations, type Runner } from "../../src/operations/service.ts";
import type { Store } from "../../src/store/store.ts";
import { eventually } from "../support/daemon.ts";

export interface Made {
  readonly store: Store;
  readonly events: Events;
  readonly operations: Operations;
  /** Messages of level error. */
  readonly faults: string[];
}

export async function makeOperations(store: Store, clock: Clock = systemClock, tenants = ["a", "b"]): Promise<Made> {
  const faults: string[] = [];
  const ignore = () => {};
  const log: Log = { debug: ignore, info: ignore, warn: ignore, error: (message) => faults.push(message) };
  await store.write(
    tenants.map((id) => ({
      sql: "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 0) ON CONFLICT DO NOTHING",
      args: [id, id],
    })),
  );
  const events = new Events({ store, clock, log });
  return {
    store,
    events,
    operations: new Operations({ store, events, clock, log, ids: randomIds(), onEnd: ignore }),
    faults,
  };
}

/** A run that has begun, until the test ends it. */
export interface Begun {
  readonly context: OperationContext;
  succeed(result?: OperationResult): void;
  fail(error: unknown): void;
}

/** A runner whose runs the test ends; with `cancellable` they end by themselves when they are to stop. */
export function byHand(fields: Partial<Runner> = {}): { runner: Runner; begun: Begun[]; next: () => Promise<Begun> } {
  const begun: Begun[] = [];
  const state = { taken: 0 };
  const runner: Runner = {
    resumable: false,
    cancellable: false,
    timeout_ms: 60_000,
    run: (context) => {
      const { promise, resolve, reject } = Promise.withResolvers<OperationResult>();
      begun.push({ context, succeed: (result = {}) => resolve(result), fail: reject });
      if (fields.cancellable === true) context.signal.addEventListener("abort", () => reject(context.signal.reason));
      return promise;
    },
    ...fields,
  };
  const next = async () => {
    const found = await eventually("another run begins", () => begun[state.taken]);
    state.taken += 1;
    return found;
  };
  return { runner, begun, next };
}

/** `name/event_type` of all events in the log, oldest first, of one operation if it is named. */
export async function eventsOf(store: Store, operation_id?: string): Promise<string[]> {
  const rows = await store.read("SELECT event_type, operation_id FROM events ORDER BY seq");
  return rows
    .filter((row) => operation_id === undefined || row.operation_id === operation_id)
    .map(({ event_type }) => String(event_type));
}
