/** Activity: operations, which can be cancelled while they run, and the newest events. */
import { containerHash } from "./addresses.js";
import { h, setText, show } from "./dom.js";
import { age, dateTime, seenText, timeOfDay } from "./format.js";
import { operationsOf } from "./resources.js";
import { followedList, table, tableRow } from "./table.js";
import { reported } from "./view.js";
import { act, badge, card, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { Happening } from "./events.js" */
/** @import { OperationSummary } from "../wire.ts" */

const OPERATIONS_MAX = 30;
const OPEN = ["accepted", "queued", "running"];
const OPERATION_COLUMNS = ["Operation", "Status", "Progress", "About", "When", "Actions"];
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

/** @param {Context} context */
function operationsCard({ api, clock, say, refresh }) {
  const trouble = problem();
  const list = followedList(
    table("Operations", "operations", OPERATION_COLUMNS),
    "No operations.",
    (/** @type {OperationSummary} */ { operation_id }) => operation_id,
    ({ operation_id, operation_type, container_id, target_resource_id, created_at }) => {
      const status = badge();
      const [progress, when] = [h("span"), h("time", { title: dateTime(created_at) })];
      const cancel = h("button", { type: "button", text: "Cancel", "aria-label": `Cancel ${operation_type}` });
      cancel.addEventListener("click", () =>
        act(cancel, trouble, async () => {
          await operationsOf(api).cancel(operation_id);
          say(`${operation_type} was cancelled`);
          refresh();
        }),
      );
      const about = container_id ?? target_resource_id ?? "";
      const subject =
        container_id === null ? h("code", { text: about }) : h("a", { href: containerHash(about), text: about });
      const name = h("span", { text: operation_type, title: operation_id });
      const element = tableRow(OPERATION_COLUMNS, [name, status.element, progress, subject, when, cancel]);
      return {
        element,
        /** @param {OperationSummary} operation */
        update(operation) {
          status.update(operation.status);
          const { progress_pct, message, error } = operation;
          const part = progress_pct === null || operation.status !== "running" ? "" : `${Math.round(progress_pct)} % `;
          setText(progress, `${part}${error ?? message ?? ""}`);
          progress.title = error ?? message ?? "";
          setText(when, age(operation.completed_at ?? operation.updated_at, clock.epochMs()));
          show(cancel, OPEN.includes(operation.status) && api.may("write"));
        },
      };
    },
  );
  return {
    element: card("Operations", trouble.element, ...list.elements),
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
