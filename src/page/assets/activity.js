/** Activity: the newest operations, which can be cancelled while they run, and the newest events. */
import { h } from "./dom.js";
import { dateTime, seenText, timeOfDay } from "./format.js";
import { OPERATION_COLUMNS, operationRow } from "./operations.js";
import { operationsOf } from "./resources.js";
import { followedList, table, tableRow } from "./table.js";
import { reported } from "./view.js";
import { card, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { Happening } from "./events.js" */
/** @import { OperationSummary } from "../wire.ts" */

const OPERATIONS_MAX = 10;
const EVENT_COLUMNS = ["Time", "Event", "About", "What"];
/** Fields that name the subject of an event, the most telling first. */
const NAMES = ["name", "function_name", "volume", "target_resource_id", "snapshot_id", "container_id", "operation_id"];
/** Fields that another column shows, or that mean nothing to people. */
const HIDDEN = [
  ...NAMES,
  "event_id",
  "event_type",
  "at",
  "timestamp",
  "status",
  "target_resource_type",
  "function_id",
  "volume_id",
];

/** The newest operations. @param {Context} context */
function operationsCard(context) {
  const trouble = problem();
  const list = followedList(
    table("Operations", "operations", OPERATION_COLUMNS),
    "No operations.",
    (/** @type {OperationSummary} */ { operation_id }) => operation_id,
    (operation) => operationRow(operation, context, trouble),
  );
  const all = h("p", { class: "actions" }, h("a", { href: "#/operations", text: "All operations" }));
  return {
    element: card("Operations", trouble.element, ...list.elements, all),
    /** @param {readonly OperationSummary[]} operations */
    update: (operations) => list.update(operations),
  };
}

/** @param {Happening} event */
function eventRow({ name, event_type, at, data }) {
  const kind = name.replace("_update", "").replace("_", " ");
  const about = NAMES.map((key) => data[key]).find((value) => typeof value === "string" && value !== "") ?? "";
  const rest = Object.entries(data)
    .filter(([key, value]) => !HIDDEN.includes(key) && value !== null && typeof value !== "object")
    .map(([key, value]) => seenText(`${key} ${value}`))
    .join(", ");
  const element = tableRow(EVENT_COLUMNS, [
    h("time", { text: timeOfDay(at), title: dateTime(at) }),
    h("span", { text: `${kind} ${event_type.replace("_", " ")}` }),
    h("strong", { text: String(about) }),
    h("code", { text: rest, title: rest }),
  ]);
  return { element, update: () => {} };
}

/** @param {Context} context @returns {View} */
export function activityView(context) {
  const { api, events } = context;
  const trouble = problem();
  const title = h("h1", { tabindex: -1, text: "Activity" });
  const operations = operationsCard(context);
  const list = followedList(
    table("Events", "events", EVENT_COLUMNS),
    "No events yet.",
    (/** @type {Happening} */ { id }) => id,
    eventRow,
  );
  const shown = h("div", { class: "stack" }, operations.element, card("Events", ...list.elements));
  const round = reported(trouble, async () =>
    operations.update((await operationsOf(api).list(OPERATIONS_MAX)).operations),
  );
  return {
    element: h("div", {}, h("div", { class: "toolbar" }, title), trouble.element, shown),
    title: () => "Activity",
    refresh() {
      list.update(events());
      return round();
    },
    focus: () => title.focus(),
  };
}
