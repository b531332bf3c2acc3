/** All functions of the tenant, live: one request a round for the list, one for the instances of all of them. */

import { h, KeyedList, setAttribute, setText, show } from "./dom.js";
import { age, count, counted, dateTime } from "./format.js";
import { createForm } from "./new-function.js";
import { cell, listBar, table } from "./table.js";
import { badge, hasInstances, isRefusal, meter, problem } from "./widgets.js";

/** @import { Context, View } from "./widgets.js" */
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
  const element = h("div", { role: "row", class: "row", "data-id": first.id });
  cells.forEach((content, i) => void element.append(cell(COLUMNS[i] ?? "", content)));
  return {
    element,
    link,
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
export function listView(context) {
  const { api } = context;
  const trouble = problem();
  const { element: grid, rows, move } = table("Functions", "functions", COLUMNS, "rowgroup");
  const shown = new KeyedList(
    rows,
    (/** @type {FunctionRecord} */ { id }) => id,
    (record) => row(record, context),
  );
  const loading = h("p", { class: "hint", text: "Loading…" });
  const first = createForm(context, "Make the first function");
  show(first.element, false);

  /** @type {readonly FunctionRecord[]} */
  let records = [];
  let isCut = false;
  const draw = () => {
    const wanted = bar.filter.value.trim().toLowerCase();
    const matching = records.filter(({ name, state, runtime }) =>
      `${name}\n${state}\n${runtime}`.toLowerCase().includes(wanted),
    );
    shown.update(matching);
    const isEmpty = records.length === 0;
    show(loading, false);
    show(grid, !isEmpty);
    show(bar.element, !isEmpty);
    show(first.element, isEmpty);
    const all = isCut ? `the newest ${count(records.length)} functions` : counted(records.length, "function");
    setText(bar.summary, wanted === "" ? all : `${count(matching.length)} of ${all}`);
  };
  const bar = listBar(
    { title: "Functions", filter: "Filter by name, state, runtime", create: "New function", address: "#/new" },
    draw,
    move,
  );
  show(bar.element, false);

  return {
    element: h("div", {}, loading, bar.element, trouble.element, grid, h("div", { class: "narrow" }, first.element)),
    title: () => "Functions",
    async refresh() {
      try {
        const { functions, next_cursor } = await api.functions(FUNCTIONS_MAX);
        records = functions;
        isCut = next_cursor !== null;
        trouble.update(null);
        draw();
      } catch (error) {
        if (!isRefusal(error)) throw error;
        show(loading, false);
        trouble.update(error);
      }
    },
    focus: () => (records.length === 0 ? first.focus() : bar.focus()),
    move,
    find: () => bar.filter.focus(),
    focusRow: (id) => shown.get(id)?.element.querySelector("a")?.focus(),
  };
}
