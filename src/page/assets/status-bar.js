/** The status bar at the top: the instances of the tenant's functions, and whether the page is up to date. */
import { h, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";

/** @import { FunctionPools } from "../wire.ts" */
/** @import { PollState } from "./poll.js" */
/** @typedef {FunctionPools["pools"][number]} Pool */

/** @type {readonly [string, string, (pool: Pool) => number][]} */
const NUMBERS = [
  ["busy", "Busy instances: they run a call", ({ busy_count }) => busy_count],
  ["ready", "Ready instances: they wait for a call", ({ ready_count }) => ready_count],
  ["warming", "Starting instances", ({ warming_count }) => warming_count],
  ["kept", "Instances of superseded versions, kept for a rollback", ({ superseded_count }) => superseded_count],
  ["queued", "Calls waiting for an instance", ({ queued_count }) => queued_count],
];

export function statusBar() {
  const values = NUMBERS.map(() => h("dd", { text: "–" }));
  const numbers = h("dl", { class: "instance-counts", "aria-label": "Instances of all functions" });
  NUMBERS.forEach(
    ([name, about], i) => void numbers.append(h("div", { title: about }, h("dt", { text: name }), values[i] ?? null)),
  );
  const state = h("span", { class: "connection", role: "status", "data-state": "connecting", text: "connecting" });
  return {
    numbers,
    state,
    /** @param {Iterable<Pool> | null} pools null: this key may not read them */
    update(pools) {
      const all = pools === null ? null : [...pools];
      NUMBERS.forEach(([, , numberOf], i) => {
        const sum = all?.reduce((total, pool) => total + numberOf(pool), 0);
        if (values[i]) setText(values[i], sum === undefined ? "–" : count(sum));
      });
    },
    /** @param {PollState} value @param {string} reason */
    setState(value, reason) {
      setAttribute(state, "data-state", value);
      setText(state, value);
      setAttribute(state, "title", reason === "" ? null : reason);
    },
  };
}
