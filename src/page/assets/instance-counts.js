/** The instances of all functions of the tenant, in numbers. */
import { h, setText } from "./dom.js";
import { count } from "./format.js";

/** @import { FunctionPools } from "../wire.ts" */
/** @typedef {FunctionPools["pools"][number]} Pool */

/** @type {readonly [string, string, (pool: Pool) => number][]} */
const NUMBERS = [
  ["busy", "Busy instances: they run a call", ({ busy_count }) => busy_count],
  ["ready", "Ready instances: they wait for a call", ({ ready_count }) => ready_count],
  ["warming", "Starting instances", ({ warming_count }) => warming_count],
  ["kept", "Instances of superseded versions, kept for a rollback", ({ superseded_count }) => superseded_count],
  ["queued", "Calls waiting for an instance", ({ queued_count }) => queued_count],
];

export function instanceCounts() {
  const values = NUMBERS.map(() => h("dd", { text: "–" }));
  const element = h("dl", { class: "instance-counts", "aria-label": "Instances of all functions" });
  NUMBERS.forEach(
    ([name, about], i) => void element.append(h("div", { title: about }, h("dt", { text: name }), values[i] ?? null)),
  );
  return {
    element,
    /** @param {Iterable<Pool> | null} pools null: this key may not read them */
    update(pools) {
      const all = pools === null ? null : [...pools];
      NUMBERS.forEach(([, , numberOf], i) => {
        const sum = all?.reduce((total, pool) => total + numberOf(pool), 0);
        if (values[i]) setText(values[i], sum === undefined ? "–" : count(sum));
      });
    },
  };
}
