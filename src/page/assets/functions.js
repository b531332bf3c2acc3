/** All functions of the tenant, live: one request a round for the list, one for the instances of all of them. */
import { h, setAttribute, setText } from "./dom.js";
import { age, count, dateTime } from "./format.js";
import { instanceCounts } from "./instance-counts.js";
import { listView } from "./list-view.js";
import { createForm } from "./new-function.js";
import { tableRow } from "./table.js";
import { badge, hasInstances, meter } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { FunctionRecord } from "../wire.ts" */

/** The API answers no more at once. */
const FUNCTIONS_MAX = 1_000;
const COLUMNS = ["Name", "Handler", "State", "Version", "Runtime", "Instances", "Calls", "Errors", "Last call"];

/** @param {FunctionRecord} first @param {Context} context */
function row(first, { pool, clock }) {
  const link = h("a", { class: "open", href: `#/functions/${encodeURIComponent(first.id)}`, text: first.name });
  const [handler, version, runtime, calls, errors] = [h("code"), h("span"), h("span"), h("span"), h("span")];
  const [state, instances, last] = [badge(), meter(), h("time")];
  const cells = [link, handler, state.element, version, runtime, instances.element, calls, errors, last];
  const element = tableRow(COLUMNS, cells, { "data-id": first.id });
  return {
    element,
    /** @param {FunctionRecord} next */
    update(next) {
      setText(handler, next.handler);
      state.update(next.state);
      setText(version, `v${next.version}`);
      setText(runtime, next.runtime);
      setText(calls, count(next.invocation_count));
      setText(errors, count(next.error_count));
      setAttribute(errors, "class", next.error_count > 0 ? "bad" : null);
      setText(last, age(next.last_invoked_at, clock.epochMs()));
      setAttribute(last, "title", next.last_invoked_at === null ? null : dateTime(next.last_invoked_at));
      instances.update(hasInstances(next) ? pool(next.id) : null, next.max_instances);
    },
  };
}

/** @param {Context} context @returns {View} */
export function functionsView(context) {
  const form = createForm(context, "Create the first function");
  const counts = instanceCounts();
  const { view } = listView(context, {
    noun: "function",
    columns: COLUMNS,
    words: {
      title: "Functions",
      filter: "Filter by name, state, runtime",
      create: "New function",
      address: "#/new",
    },
    idOf: (/** @type {FunctionRecord} */ { id }) => id,
    matches: ({ name, state, runtime }, wanted) => `${name}\n${state}\n${runtime}`.toLowerCase().includes(wanted),
    row: (record) => row(record, context),
    ask: async () => {
      const { functions, next_cursor } = await context.api.functions(FUNCTIONS_MAX);
      counts.update(context.pools());
      if (functions.length === 0) await form.refresh();
      return { resources: functions, next_cursor };
    },
    above: counts.element,
    first: { element: h("div", { class: "narrow" }, form.element), focus: form.focus },
  });
  return view;
}
