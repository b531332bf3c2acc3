/**
 * All functions of the tenant, live. The list comes in one request a round; instances are asked for one function after
 * the other, and only of those whose rows are in sight, so that a thousand functions cost what thirty do.
 */
import { createForm } from "./create.js";
import { h, KeyedList, setAttribute, setText, show } from "./dom.js";
import { age, count, counted, dateTime } from "./format.js";
import { badge, hasInstances, isRefusal, meter, problem } from "./parts.js";
import { cell, stepOf, table } from "./table.js";

/** @import { Context, View } from "./parts.js" */
/** @import { FunctionPoolStatus, FunctionRecord } from "../wire.ts" */

/** The API answers no more at once. */
const FUNCTIONS_MAX = 1_000;
/** Rows in sight whose instances are asked for in one round. */
const POOLS_MAX = 50;
/** A frame or two. */
const FRAME_MS = 40;
const COLUMNS = ["Name", "Handler", "State", "Version", "Runtime", "Instances", "Calls", "Errors", "Last call"];

/** @param {FunctionRecord} first @param {() => number} now_ms */
function row(first, now_ms) {
  const link = h("a", { class: "open", href: `#/functions/${encodeURIComponent(first.id)}`, text: first.name });
  const [handler, version, runtime, calls, errors] = [h("code"), h("span"), h("span"), h("span"), h("span")];
  const [state, instances, last] = [badge(), meter(), h("time")];
  const cells = [link, handler, state.element, version, runtime, instances.element, calls, errors, last];
  const element = h("div", { role: "row", class: "row", "data-id": first.id });
  cells.forEach((content, i) => void element.append(cell(COLUMNS[i] ?? "", content)));
  let record = first;
  return {
    element,
    link,
    get record() {
      return record;
    },
    /** @param {FunctionRecord} next */
    update(next) {
      record = next;
      setText(handler, next.handler);
      state.update(next.state);
      setText(version, `v${next.version}`);
      setText(runtime, next.runtime);
      setText(calls, count(next.invocation_count));
      setText(errors, count(next.error_count));
      setAttribute(errors, "class", next.error_count > 0 ? "bad" : null);
      setText(last, age(next.last_invoked_at, now_ms()));
      setAttribute(last, "title", next.last_invoked_at === null ? null : dateTime(next.last_invoked_at));
      if (!hasInstances(next)) instances.update(null, next.max_instances);
    },
    /** @param {FunctionPoolStatus} pool */
    setPool: (pool) => instances.update(pool, record.max_instances),
  };
}

/** Ids of the rows that are in sight. */
function sight() {
  /** @type {Set<string>} */
  const seen = new Set();
  let isSettled = true;
  const observer = new IntersectionObserver((entries) => {
    isSettled = true;
    for (const { target, isIntersecting } of entries) {
      const id = /** @type {HTMLElement} */ (target).dataset.id ?? "";
      if (isIntersecting) seen.add(id);
      else seen.delete(id);
    }
  });
  return {
    seen,
    /** Whether the browser has said of every row where it is; it does so with the next frame. */
    isSettled: () => isSettled,
    /** @param {HTMLElement} element */
    watch(element) {
      isSettled = false;
      observer.observe(element);
    },
    /** @param {HTMLElement} element */
    leave(element) {
      observer.unobserve(element);
      seen.delete(element.dataset.id ?? "");
    },
  };
}

/** The rows, those in sight of them, and what instances they show. @param {Context} context @param {HTMLElement} parent */
function functionRows({ api, clock }, parent) {
  const inSight = sight();
  /** @type {Map<string, ReturnType<typeof row>>} */
  const made = new Map();
  const list = new KeyedList(
    parent,
    (/** @type {FunctionRecord} */ { id }) => id,
    (record) => {
      const entry = row(record, clock.epochMs);
      made.set(record.id, entry);
      inSight.watch(entry.element);
      return {
        element: entry.element,
        update: entry.update,
        removed() {
          inSight.leave(entry.element);
          made.delete(record.id);
        },
      };
    },
  );
  return {
    /** @param {readonly FunctionRecord[]} records */
    update: (records) => list.update(records),
    /** @param {string} id */
    focus: (id) => made.get(id)?.link.focus(),
    async refreshPools() {
      if (!inSight.isSettled()) await new Promise((resolve) => void clock.after(FRAME_MS, () => resolve(null)));
      for (const id of [...inSight.seen].slice(0, POOLS_MAX)) {
        const entry = made.get(id);
        if (entry === undefined || !hasInstances(entry.record)) continue;
        // Deleted meanwhile: the next round's list says so.
        const pool = await api.pool(id).catch((error) => (isRefusal(error) ? null : Promise.reject(error)));
        if (pool !== null) entry.setPool(pool);
      }
    },
  };
}

/** @param {() => void} onFilter @param {(step: 1 | -1) => void} move */
function listBar(onFilter, move) {
  const summary = h("p", { class: "hint", "aria-live": "polite" });
  const filter = h("input", {
    type: "search",
    placeholder: "Filter by name, state, runtime",
    "aria-label": "Filter functions",
    "aria-keyshortcuts": "/",
    oninput: onFilter,
  });
  filter.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && stepOf(event) !== 1) return;
    event.preventDefault();
    move(1);
  });
  const title = h("h1", { tabindex: -1, text: "Functions" });
  const create = h("a", { class: "button primary", href: "#/new", text: "New function", "aria-keyshortcuts": "n" });
  const slash = h("kbd", { text: "/", "aria-hidden": "true" });
  const element = h("div", { class: "toolbar", hidden: true }, title, filter, slash, summary, create);
  return { element, title, filter, summary };
}

/** @param {Context} context @returns {View & { focusRow(id: string): void }} */
export function listView(context) {
  const { api } = context;
  const trouble = problem();
  const { element: grid, rows, move } = table("Functions", "functions", COLUMNS, "rowgroup");
  const shown = functionRows(context, rows);
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
    const isAll = !isCut && records.length < FUNCTIONS_MAX;
    const all = isAll ? counted(records.length, "function") : `the newest ${count(records.length)} functions`;
    setText(bar.summary, wanted === "" ? all : `${count(matching.length)} of ${all}`);
  };
  const bar = listBar(draw, move);

  return {
    element: h("div", {}, loading, bar.element, trouble.element, grid, h("div", { class: "narrow" }, first.element)),
    title: () => "Functions",
    async refresh() {
      try {
        const { functions, truncated } = await api.functions(FUNCTIONS_MAX);
        records = functions;
        isCut = truncated === true;
        trouble.update(null);
        draw();
        await shown.refreshPools();
      } catch (error) {
        if (!isRefusal(error)) throw error;
        show(loading, false);
        trouble.update(error);
      }
    },
    focus: () => (records.length === 0 ? first.focus() : bar.title.focus()),
    move,
    find: () => bar.filter.focus(),
    focusRow: shown.focus,
  };
}
