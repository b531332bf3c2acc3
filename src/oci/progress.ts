/** Progress of a pull or push: in its operation at each change, as an event now and then. */
import type { Clock } from "../base/clock.ts";
import { errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Events } from "../events/service.ts";
import type { OperationContext } from "../operations/service.ts";
import type { PullProgress } from "./registry/gateway.ts";

export interface ProgressOptions {
  readonly events: Events;
  readonly clock: Clock;
  readonly log: Log;
}

/** Returns what tells how far an operation on `reference` is. The last 5 % are for what follows the transfer. */
export function progressTeller<Input>(
  context: OperationContext<Input>,
  reference: string,
  { events, clock, log }: ProgressOptions,
): (progress: PullProgress) => void {
  const { tenant_id, operation_id } = context;
  const state = { told_ms: clock.monotonicMs() };
  return (progress) => {
    const { done_bytes, total_bytes, layers_done, layers_total } = progress;
    const isKnown = total_bytes !== null && total_bytes > 0;
    context.progress(isKnown ? (95 * done_bytes) / total_bytes : null, progressText(progress));
    if (clock.monotonicMs() - state.told_ms < LIMITS.image_progress_interval_ms) return;
    state.told_ms = clock.monotonicMs();
    const data = { reference, done_bytes, total_bytes, layers_done, layers_total };
    events
      .emit(tenant_id, { name: "image_update", event_type: "progressed", operation_id, data })
      .catch((error) => log.warn("progress of an image not emitted", { error: errorText(error) }));
  };
}

function progressText({ done_bytes, total_bytes, layers_done, layers_total }: PullProgress): string {
  const megabytes = (bytes: number): string => (bytes / 1024 / 1024).toFixed(1);
  const bytes =
    total_bytes === null ? `${megabytes(done_bytes)} MiB` : `${megabytes(done_bytes)} of ${megabytes(total_bytes)} MiB`;
  return layers_total === null ? bytes : `${bytes}, ${layers_done} of ${layers_total} layers`;
}
