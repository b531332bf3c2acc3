/** What containers use, as people read it: counters of the API, and how fast they run between two looks. */
import { bytes } from "./format.js";

/** @import { Clock } from "./clock.js" */
/** @import { ContainerMetrics } from "../wire.ts" */

/** Two looks closer than this say more of the looking than of the container. */
const LOOK_MS_MIN = 500;

/**
 * @typedef {object} Rates
 * @property {number | null} cpu_percent of one core; null: there was one look only
 * @property {number | null} received_per_s bytes
 * @property {number | null} sent_per_s
 */

/** Follows the counters of one container. @param {Clock} clock */
export function rates(clock) {
  /** @type {{ metrics: ContainerMetrics, at_ms: number } | null} */
  let before = null;
  /** @type {Rates} */
  const none = { cpu_percent: null, received_per_s: null, sent_per_s: null };
  let shown = none;
  /** @param {ContainerMetrics} metrics @returns {Rates} */
  return (metrics) => {
    const at_ms = clock.monotonicMs();
    const passed_ms = before === null ? 0 : at_ms - before.at_ms;
    if (before !== null && passed_ms < LOOK_MS_MIN) return shown;
    // Counters begin again with the container's next start.
    const isSame = before !== null && metrics.cpu_usage_usec >= before.metrics.cpu_usage_usec;
    /** @param {"cpu_usage_usec" | "network_rx_bytes" | "network_tx_bytes"} name */
    const more = (name) => Math.max(0, metrics[name] - (before?.metrics[name] ?? 0));
    shown = isSame
      ? {
          cpu_percent: more("cpu_usage_usec") / (10 * passed_ms),
          received_per_s: (1000 * more("network_rx_bytes")) / passed_ms,
          sent_per_s: (1000 * more("network_tx_bytes")) / passed_ms,
        }
      : none;
    before = { metrics, at_ms };
    return shown;
  };
}

/** @param {number | null} value */
export const percent = (value) => (value === null ? "–" : `${value >= 10 ? Math.round(value) : value.toFixed(1)} %`);

/** @param {ContainerMetrics} metrics */
export const memory = ({ memory_current_bytes, memory_limit_bytes }) =>
  `${bytes(memory_current_bytes)} of ${bytes(memory_limit_bytes)}`;
