/** One invocation in full: status, phases, result and output. A record never changes, so neither does its view. */
import { h, setText } from "./dom.js";
import { count, counted, dateTime, milliseconds } from "./format.js";
import { timeline } from "./timeline.js";
import { badge, startBadge } from "./widgets.js";

/** @import { InvocationRecord } from "../wire.ts" */

/** Characters that are laid out at once; a megabyte in one line would hold the page up. */
const SHOWN_LENGTH = 20_000;

/** @param {string} name @param {string} text @param {boolean} isTruncated */
export function output(name, text, isTruncated) {
  const pre = h("pre", { class: "output", tabindex: 0, "aria-label": name, text: text.slice(0, SHOWN_LENGTH) });
  const rest = h("button", { type: "button", class: "quiet", text: `Show all ${count(text.length)} characters` });
  rest.addEventListener("click", () => {
    setText(pre, text);
    rest.remove();
    pre.focus();
  });
  const size = text === "" ? "empty" : counted(text.length, "character");
  const cut = isTruncated ? ", truncated by hearth at 1 MiB" : "";
  return h(
    "div",
    { class: "stream" },
    h("h3", {}, name, h("small", { text: ` ${size}${cut}` })),
    text === "" ? null : pre,
    text.length > SHOWN_LENGTH ? rest : null,
  );
}

/**
 * @param {InvocationRecord} record
 * @param {number | null} round_trip_ms as the browser saw it, where it made the call
 */
export function recordView(record, round_trip_ms = null) {
  const status = badge(record.status).element;
  const hasResult = record.result !== null;
  /** @type {[string, Node | string][]} */
  const facts = [
    ["Status", status],
    ["Start", startBadge(record)],
    ["Exit code", record.exit_code === null ? "none" : String(record.exit_code)],
    ["Total", milliseconds(record.timings.total)],
    ...(round_trip_ms === null ? [] : [/** @type {[string, string]} */ (["Round trip", milliseconds(round_trip_ms)])]),
    ["Version", `v${record.version}`],
    ["Started", dateTime(record.started_at)],
    ["Invocation", h("code", { text: record.invocation_id })],
  ];
  const list = h("dl", { class: "facts" });
  for (const [name, value] of facts) list.append(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  return h(
    "div",
    { class: "record" },
    list,
    record.error_message === null ? null : h("p", { class: "problem", text: record.error_message }),
    timeline(record.timings),
    hasResult ? output("Result", JSON.stringify(record.result, null, 2), false) : null,
    hasResult && record.stdout === "" ? null : output("Standard output", record.stdout, record.stdout_truncated),
    record.stderr === "" ? null : output("Standard error", record.stderr, record.stderr_truncated),
  );
}
