/** Operations of the tenant, live: the list, the row that Activity has too, and one operation with its result. */
import { containerHash, imageHash, operationHash, snapshotHash } from "./addresses.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { age, dateTime, duration, seenJson } from "./format.js";
import { listView } from "./list-view.js";
import { output } from "./record-view.js";
import { resourcePage } from "./resource-page.js";
import { operationsOf, PAGE_SIZE } from "./resources.js";
import { tableRow } from "./table.js";
import { act, badge, card, choice, recordButtons } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { problem } from "./widgets.js" */
/** @import { OperationRecord, OperationSummary } from "../wire.ts" */

export const OPERATION_COLUMNS = ["Operation", "Status", "Progress", "About", "When", "Actions"];
const OPEN = ["accepted", "queued", "running"];
const FAILED = ["failed", "timed_out"];
/** @type {Readonly<Record<string, (status: string) => boolean>>} */
const FILTERS = {
  All: () => true,
  Open: (status) => OPEN.includes(status),
  Failed: (status) => FAILED.includes(status),
};

/** Where the page shows the resource that an operation changes; null: nowhere. @param {OperationSummary} operation */
function subjectHash({ container_id, target_resource_type, target_resource_id: id }) {
  if (container_id !== null) return containerHash(container_id);
  if (id === null) return null;
  if (target_resource_type === "snapshot") return snapshotHash(id);
  return target_resource_type === "image" ? imageHash(id) : null;
}

/** @param {OperationSummary} operation */
const subjectOf = ({ container_id, target_resource_id }) => container_id ?? target_resource_id ?? "";

/** @param {OperationSummary} operation */
function progressText({ progress_pct, status, message, error }) {
  const part = progress_pct === null || status !== "running" ? "" : `${Math.round(progress_pct)} % `;
  return `${part}${error ?? message ?? ""}`;
}

/** @param {OperationSummary} first @param {Context} context @param {ReturnType<typeof problem>} trouble */
export function operationRow(first, { api, clock, say, refresh }, trouble) {
  const { operation_id, operation_type, created_at } = first;
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
  const [about, href] = [subjectOf(first), subjectHash(first)];
  const subject =
    href === null
      ? h("code", { text: about, title: about })
      : h("a", { href, text: about, title: about, class: "above-row" });
  const name = h("a", { class: "open", href: operationHash(operation_id), text: operation_type, title: operation_id });
  return {
    element: tableRow(OPERATION_COLUMNS, [name, status.element, progress, subject, when, cancel], {
      "data-id": operation_id,
    }),
    /** @param {OperationSummary} operation */
    update(operation) {
      status.update(operation.status);
      const text = progressText(operation);
      setText(progress, text);
      setAttribute(progress, "title", text === "" ? null : text);
      setText(when, age(operation.completed_at ?? operation.updated_at, clock.epochMs()));
      show(cancel, OPEN.includes(operation.status) && api.may("write"));
    },
  };
}

/** @param {Context} context @returns {View} */
export function operationsView(context) {
  let isWanted = FILTERS.All ?? (() => true);
  const { view, filter, draw } = listView(context, {
    noun: "operation",
    columns: OPERATION_COLUMNS,
    words: { title: "Operations", filter: "Filter by type, resource" },
    idOf: (/** @type {OperationSummary} */ { operation_id }) => operation_id,
    matches: (record, wanted) =>
      isWanted(record.status) &&
      `${record.operation_type}\n${subjectOf(record)}\n${record.operation_id}`.toLowerCase().includes(wanted),
    row: (record, trouble) => operationRow(record, context, trouble),
    ask: async () => {
      const { operations, next_cursor } = await operationsOf(context.api).list(PAGE_SIZE);
      return { resources: operations, next_cursor };
    },
  });
  const states = choice("Filter by status", Object.keys(FILTERS), (name) => {
    isWanted = FILTERS[name] ?? isWanted;
    draw();
  });
  states.choose("All");
  filter.after(states.element);
  return view;
}

/** @param {number | null} at @param {string} none */
const moment = (at, none) => (at === null ? none : dateTime(at));
/** @param {string | null} id @param {(id: string) => string} hash */
const linked = (id, hash) => (id === null ? "none" : { text: id, href: hash(id) });

/** @type {readonly [string, (operation: OperationRecord) => string | { text: string, href: string }][]} */
const FACTS = [
  ["Id", ({ operation_id }) => operation_id],
  [
    "Resource",
    ({ target_resource_type, target_resource_id: id }) =>
      [target_resource_type, id].filter(Boolean).join(" ") || "none",
  ],
  ["Container", ({ container_id }) => linked(container_id, containerHash)],
  ["Snapshot", ({ snapshot_id }) => linked(snapshot_id, snapshotHash)],
  ["New container", ({ result_container_id }) => linked(result_container_id, containerHash)],
  ["Reason", ({ reason_code }) => reason_code ?? "none"],
  ["Warnings", ({ warnings }) => warnings.join("; ") || "none"],
  ["Accepted", ({ created_at }) => dateTime(created_at)],
  ["Started", ({ started_at }) => moment(started_at, "not yet")],
  ["Ended", ({ completed_at }) => moment(completed_at, "not yet")],
  [
    "Took",
    ({ started_at, completed_at }) =>
      started_at === null || completed_at === null ? "unknown" : duration(completed_at - started_at),
  ],
];

/** Step, result and parts. An operation changes only until its end. */
function content() {
  const step = h("p", { class: "about" });
  const bar = h("progress", { max: 100, "aria-label": "Progress" });
  const result = h("div");
  const results = card("Result", result);
  let shown = "";
  return {
    elements: [card("Progress", step, bar), results],
    /** @param {OperationRecord} operation */
    update(operation) {
      const { progress_pct, message, status, items, result: found } = operation;
      setText(step, message ?? status);
      show(bar, progress_pct !== null && OPEN.includes(status));
      if (progress_pct !== null) bar.value = progress_pct;
      const text = found === null && items === null ? "" : seenJson(items === null ? found : { ...found, items });
      show(results, text !== "");
      if (text === shown) return;
      shown = text;
      result.replaceChildren(output("JSON", text, false));
    },
  };
}

/** @param {Context} context @param {string} id @returns {View} */
export function operationView(context, id) {
  const { api, clock } = context;
  return resourcePage(context, {
    title: "Operation",
    up: ["Operations", "#/operations"],
    facts: FACTS,
    nameOf: (/** @type {OperationRecord} */ { operation_type }) => operation_type,
    stateOf: ({ status }) => [status, status],
    hintOf: ({ updated_at }) => age(updated_at, clock.epochMs()),
    failureOf: ({ error }) => error,
    ask: () => operationsOf(api).get(id),
    buttons: ({ trouble, current, onMoved }) => {
      const button = recordButtons(context, trouble, current, onMoved);
      const cancel = button("Cancel", "danger", async ({ operation_id, operation_type }) => {
        await operationsOf(api).cancel(operation_id);
        return `${operation_type} was cancelled`;
      });
      return {
        elements: [cancel],
        update: ({ status }) => show(cancel, OPEN.includes(status) && api.may("write")),
      };
    },
    content: content(),
  });
}
