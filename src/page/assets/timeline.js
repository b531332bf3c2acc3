/**
 * Where the time of one call went. The upper lane is the whole of `total`, phase after phase. A container that was
 * started for the call was started while the call waited: those phases lie in the lower lane, below the wait that they
 * explain, and are never added to it.
 */
import { h } from "./dom.js";
import { milliseconds } from "./format.js";

/** @import { InvocationTimings } from "../wire.ts" */

/** @typedef {{ name: string, value_ms: number, about: string }} Phase */

/** @type {Readonly<Record<string, string>>} */
const ABOUT = {
  queue: "waiting for an instance",
  cell: "binding a started container (cell) to the function: limits, code, secrets, network",
  load: "loading the handler in the process of the instance",
  handler: "running the handler: from spawn to exit, or from call to result",
  other: "rest of the total: transfer into the container and back",
  network: "while queued: waiting for a network slot for the new container",
  rootfs: "while queued: writing the bundle of the new container",
  start: "while queued: the OCI runtime starts the container",
  open: "while queued: start of the process of the runtime",
};

/** @param {InvocationTimings} timings @param {readonly Exclude<keyof InvocationTimings, "total">[]} names @returns {Phase[]} */
function phases(timings, names) {
  return names.flatMap((name) => {
    const value_ms = timings[name];
    return value_ms === undefined ? [] : [{ name, value_ms, about: ABOUT[name] ?? "" }];
  });
}

/** @param {Phase} phase @param {number} from_ms @param {number} to_ms @param {number} total_ms */
function segment({ name, value_ms, about }, from_ms, to_ms, total_ms) {
  const element = h("i", { class: `phase-${name}`, title: `${name}: ${milliseconds(value_ms)} (${about})` });
  element.style.left = `${(100 * from_ms) / total_ms}%`;
  element.style.width = `${(100 * Math.max(0, to_ms - from_ms)) / total_ms}%`;
  return element;
}

/** @param {InvocationTimings} timings */
export function timeline(timings) {
  const steps = phases(timings, ["queue", "cell", "load", "handler"]);
  const known_ms = steps.reduce((sum, { value_ms }) => sum + value_ms, 0);
  // Each is rounded by itself, so they may add up to a little more than their total.
  steps.push({ name: "other", value_ms: Math.max(0, timings.total - known_ms), about: ABOUT.other ?? "" });
  const starts = phases(timings, ["network", "rootfs", "start", "open"]);
  const total_ms = Math.max(timings.total, known_ms, 0.001);

  const upper = h("div", { class: "lane" });
  let at_ms = 0;
  for (const phase of steps) {
    upper.append(segment(phase, at_ms, at_ms + phase.value_ms, total_ms));
    at_ms += phase.value_ms;
  }
  const lower = h("div", { class: "lane lower" });
  // The start ends with the hand-over; what began before the call came is cut off at its arrival.
  let start_at_ms = timings.queue - starts.reduce((sum, { value_ms }) => sum + value_ms, 0);
  for (const phase of starts) {
    lower.append(segment(phase, Math.max(0, start_at_ms), Math.max(0, start_at_ms + phase.value_ms), total_ms));
    start_at_ms += phase.value_ms;
  }

  const order = [...steps.slice(0, 1), ...starts, ...steps.slice(1)];
  const legend = h("dl", { class: "phases" });
  for (const { name, value_ms, about } of [
    ...order,
    {
      name: "total",
      value_ms: timings.total,
      about: "from the arrival to the outcome, without the commit of the record",
    },
  ]) {
    const isInside = starts.some((phase) => phase.name === name);
    legend.append(
      h(
        "div",
        { class: isInside ? "inside" : null, title: about },
        h("dt", {}, h("i", { class: `phase-${name}`, "aria-hidden": "true" }), name),
        h("dd", { text: milliseconds(value_ms) }),
      ),
    );
  }
  const said = order.map(({ name, value_ms }) => `${name} ${milliseconds(value_ms)}`).join(", ");
  return h(
    "div",
    { class: "timeline" },
    h(
      "div",
      { class: "lanes", role: "img", "aria-label": `Timeline of ${milliseconds(timings.total)}: ${said}` },
      upper,
      starts.length > 0 ? lower : null,
    ),
    h(
      "div",
      { class: "scale", "aria-hidden": "true" },
      h("span", { text: "0" }),
      h("span", { text: milliseconds(total_ms) }),
    ),
    legend,
  );
}
