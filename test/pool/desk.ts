/** The driver with a clock and a launcher that are moved by hand. */
import { Pool, type PoolEvent } from "../../pool/index.ts";
import { HandClock, HandLauncher, settled } from "./hand-clock.ts";
import { CLASS, ROOMY } from "./scene.ts";

export const F = "fn_a@1";
export const POLICY = { class: CLASS, min_instances: 0, max_instances: 4, queue_max: 10 };

export interface Desk {
  readonly clock: HandClock;
  readonly launcher: HandLauncher;
  readonly pool: Pool<string, string>;
  readonly faults: unknown[];
  submit(call: string, wait_ms?: number, signal?: AbortSignal): Promise<string>;
  /** A ready instance. */
  ready(): Promise<void>;
}

export function desk(dispatch_running_max = 4, settings = ROOMY): Desk {
  const clock = new HandClock();
  const launcher = new HandLauncher();
  const faults: unknown[] = [];
  const pool = new Pool<string, string>({
    settings,
    clock,
    launcher,
    dispatch_running_max,
    onFault: (fault: unknown, _recent: readonly PoolEvent[]) => faults.push(fault),
  });
  const submit = (call: string, wait_ms = 30_000, signal?: AbortSignal): Promise<string> =>
    pool.submit(F, call, { deadline_ms: clock.now_ms + wait_ms, ...(signal === undefined ? {} : { signal }) });
  const ready = async (): Promise<void> => {
    pool.setGroup(F, { ...POLICY, min_instances: 1 });
    launcher.starts.get("i1")?.resolve();
    await settled();
    launcher.specialises.get("i1")?.resolve();
    await settled();
  };
  return { clock, launcher, pool, faults, submit, ready };
}
