/** The periodic work of the daemon: checks memory, and removes records and code that are too old or too many. */
import type { Pool } from "../pool/index.ts";
import { type Clock, systemClock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { errorText } from "./base/errors.ts";
import { LIMITS } from "./base/limits.ts";
import type { Log } from "./base/log.ts";
import { readSocketMemory, SocketMemoryWatch } from "./engine/kernel/kernel-budgets.ts";
import type { Engine } from "./engine/ports.ts";
import type { Call } from "./functions/calls/calling.ts";
import type { Outcome } from "./functions/calls/outcome.ts";
import type { Invocations } from "./functions/records/invocations.ts";

interface Services {
  readonly pool: Pool<Call, Outcome>;
  readonly engine: Engine;
  readonly invocations: Invocations;
  /** Records that expire, each kind pruned after the one before, whatever became of that. */
  readonly expiring: readonly { prune(): Promise<void> }[];
}

/** Starts the periodic work of the daemon. Returns the function that ends it. */
export function startPeriodicWork(
  { config, clock, log }: { readonly config: Config; readonly clock: Clock; readonly log: Log },
  { pool, engine, invocations, expiring }: Services,
): () => void {
  const sockets = new SocketMemoryWatch(log);
  const watches = [
    every(
      () => (pool.isPressed ? LIMITS.memory_pressed_interval_ms : LIMITS.memory_interval_ms),
      log,
      async () => {
        pool.noteMemory(engine.instances.memoryUsedMb(), config.memory_budget_mb);
        sockets.look(readSocketMemory());
      },
    ),
    every(
      () => LIMITS.prune_interval_ms,
      log,
      () => invocations.prune(clock, config.records_kept_max, config.records_kept_seconds),
    ),
    every(
      () => LIMITS.prune_interval_ms,
      log,
      async () => {
        for (const records of expiring) await records.prune().catch((error) => notDone(log, error));
      },
    ),
  ];
  return () => watches.forEach((stop) => void stop());
}

function notDone(log: Log, error: unknown): void {
  log.warn("background work failed", { error: errorText(error) });
}

/** Runs `work` again and again, never twice at a time, until the returned function is called. */
function every(interval_ms: () => number, log: Log, work: () => Promise<void>): () => void {
  const state = { isStopped: false };
  const next = (): void => {
    systemClock.after(interval_ms(), () => {
      if (state.isStopped) return;
      work()
        .catch((error) => notDone(log, error))
        .finally(next);
    });
  };
  next();
  return () => {
    state.isStopped = true;
  };
}
