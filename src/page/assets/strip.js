/** The strip at the top: the instances of the whole node, its reserve of cells, and whether the page is up to date. */
import { h, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";

/** @import { PoolTotals } from "../wire.ts" */
/** @import { PollState } from "./poll.js" */

/** @type {readonly [string, string, (totals: PoolTotals) => number][]} */
const NUMBERS = [
  ["busy", "Instances that run a call", ({ busy_count }) => busy_count],
  ["ready", "Instances that wait for a call", ({ ready_count }) => ready_count],
  ["warming", "Instances that are being started", ({ warming_count }) => warming_count],
  ["queued", "Calls that wait for an instance", ({ queued }) => queued],
  ["cells", "Started containers in reserve that belong to no function yet", ({ cells }) => cells],
  ["crashed", "Instances that ended by themselves since the daemon's start", ({ crashed_count }) => crashed_count],
];

export function strip() {
  const values = NUMBERS.map(() => h("dd", { text: "–" }));
  const numbers = h("dl", { class: "strip", "aria-label": "The whole node" });
  NUMBERS.forEach(
    ([name, about], i) => void numbers.append(h("div", { title: about }, h("dt", { text: name }), values[i] ?? null)),
  );
  const state = h("span", { class: "connection", role: "status", "data-state": "connecting", text: "connecting" });
  return {
    numbers,
    state,
    /** @param {PoolTotals | null} totals null: this key may not read them */
    update(totals) {
      NUMBERS.forEach(
        ([, , numberOf], i) => void (values[i] && setText(values[i], totals === null ? "–" : count(numberOf(totals)))),
      );
    },
    /** @param {PollState} value @param {string} reason */
    setState(value, reason) {
      setAttribute(state, "data-state", value);
      setText(state, value);
      setAttribute(state, "title", reason === "" ? null : reason);
    },
  };
}
