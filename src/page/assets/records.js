/**
 * The newest records as rows that open to their output and timeline. While one is open, or the focus is among them,
 * new records wait behind a button: nothing moves under the reader.
 */
import { h, setText, show } from "./dom.js";
import { counted, dateTime, milliseconds, timeOfDay } from "./format.js";
import { openRow } from "./open-row.js";
import { RECORDS_MAX } from "./recent-records.js";
import { recordView } from "./record-view.js";
import { followedList, table } from "./table.js";
import { badge, card, choice, startBadge } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { InvocationRecord } from "../wire.ts" */

/** Rows at first; more are laid out when somebody asks for them. */
const ROWS = 25;
const COLUMNS = ["When", "Status", "Start", "Version", "Total", "Handler", "Output"];
/** @type {Readonly<Record<string, (record: InvocationRecord) => boolean>>} */
const FILTERS = {
  All: () => true,
  Failed: ({ status }) => status !== "success",
  Cold: ({ cold_start }) => cold_start,
};

/** @param {InvocationRecord} record */
const preview = ({ error_message, result, stdout, stderr }) =>
  (error_message ?? (typeof result === "string" ? result : stdout.trim() || stderr.trim())).split("\n", 1)[0] ?? "";

/** @param {Context} context @param {InvocationRecord} record */
function row({ api }, record) {
  const started = { text: timeOfDay(record.started_at), title: dateTime(record.started_at) };
  const contents = [
    badge(record.status).element,
    startBadge(record),
    `v${record.version}`,
    milliseconds(record.timings.total),
    milliseconds(record.timings.handler),
    h("code", { text: preview(record) }),
  ];
  const { element, button } = openRow(COLUMNS, started, contents, async () =>
    recordView(await api.invocation(record.function_id, record.invocation_id)),
  );
  return { element, update: () => {}, open: () => button.click() };
}

/** @param {Context} context */
export function recordsCard(context) {
  const newer = h("button", { type: "button", class: "quiet newer", hidden: true });
  const older = h("button", { type: "button", class: "quiet", text: "Show older records", hidden: true });
  const list = followedList(
    table("Records", "records slim", COLUMNS, "presentation"),
    "",
    (/** @type {InvocationRecord} */ { invocation_id }) => invocation_id,
    (record) => row(context, record),
  );
  const { rows, move } = list;
  const isRead = () => rows.querySelector('[aria-expanded="true"]') !== null || rows.contains(document.activeElement);
  /** @type {readonly InvocationRecord[]} */
  let records = [];
  /** What the reader has before them while newer ones wait. @type {readonly InvocationRecord[] | null} */
  let held = null;
  let wanted = "All";
  let rows_max = ROWS;

  const draw = () => {
    const isWanted = FILTERS[wanted] ?? (() => true);
    const all = records.filter(isWanted);
    const shown = held?.filter(isWanted) ?? all;
    const known = new Set(shown.map(({ invocation_id }) => invocation_id));
    const waiting_count = all.filter(({ invocation_id }) => !known.has(invocation_id)).length;
    const none =
      records.length === 0 ? "No calls yet." : `None of the newest ${records.length} is ${wanted.toLowerCase()}.`;
    list.update(shown.slice(0, rows_max), none);
    show(newer, waiting_count > 0);
    setText(newer, `Show ${counted(waiting_count, "new record")}`);
    show(older, shown.length > rows_max);
  };
  const filters = choice("Filter records", Object.keys(FILTERS), (name) => {
    wanted = name;
    held = null;
    rows_max = ROWS;
    draw();
  });
  newer.addEventListener("click", () => {
    held = null;
    draw();
    rows.querySelector("button")?.focus();
  });
  older.addEventListener("click", () => {
    const next = rows.childElementCount;
    rows_max = RECORDS_MAX;
    draw();
    rows.children.item(next)?.querySelector("button")?.focus();
  });
  filters.choose(wanted);

  const bar = h("div", { class: "actions" }, filters.element, newer);
  const note = h("p", { class: "hint", text: `The page keeps the newest ${RECORDS_MAX}; the API has more.` });
  return {
    element: card("Records", bar, ...list.elements, h("div", { class: "actions" }, older, note)),
    move,
    /** @param {readonly InvocationRecord[]} next newest first */
    update(next) {
      held = isRead() ? (held ?? records) : null;
      records = next;
      draw();
    },
    /** @param {string} invocation_id */
    open(invocation_id) {
      filters.choose("All");
      rows_max = RECORDS_MAX;
      draw();
      const button = list.get(invocation_id)?.querySelector("button");
      if (button?.getAttribute("aria-expanded") === "false") button.click();
      button?.focus();
      button?.scrollIntoView({ block: "nearest" });
    },
  };
}
