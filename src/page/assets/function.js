/**
 * One function: what it is, its versions, its calls. Owns the order of a round: the record first, and then only what
 * the record says has changed.
 *
 * V1. What a round has asked before an action was answered is thrown away: an old answer never covers a newer one.
 */
import { descriptionCard } from "./description.js";
import { confirm } from "./dialogs.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { counted } from "./format.js";
import { invokeCard } from "./invoke.js";
import { updateCard } from "./new-version.js";
import { plotsCard } from "./plots.js";
import { Recent } from "./recent-records.js";
import { recordsCard } from "./records.js";
import { versionsCard } from "./versions.js";
import { untilDeleted } from "./view.js";
import { act, badge, crumbs, hasInstances, meter, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { FunctionPoolStatus, FunctionRecord, InvocationRecord, VersionRecord } from "../wire.ts" */

const VERSIONS_MAX = 100;

/** @typedef {"deploy" | "resume" | "pause"} Verb */
/** @type {Readonly<Record<string, readonly [Verb, string, string]>>} */
const MOVES = {
  pending: ["deploy", "Deploy", "is deployed"],
  error: ["deploy", "Deploy", "is deployed"],
  active: ["pause", "Pause", "is paused"],
  paused: ["resume", "Resume", "is resumed"],
};

/**
 * @param {Context} context
 * @param {() => FunctionRecord | null} current
 * @param {() => void} onMoved
 * @param {(record: FunctionRecord) => Promise<void>} remove
 */
function header({ api, say }, current, onMoved, remove) {
  const trouble = problem();
  const name = h("h1", { tabindex: -1 });
  const crumb = crumbs([["Functions", "#/"]], "");
  const state = badge();
  const instances = meter();
  const kept = h("span", { class: "hint" });
  const calls = h("span", { class: "hint" });
  const failure = h("p", { class: "problem" });
  const mover = h("button", { type: "button" });
  const remover = h("button", { type: "button", class: "danger", text: "Delete" });
  mover.addEventListener("click", () =>
    act(mover, trouble, async () => {
      const record = current();
      const [verb, , done] = MOVES[record?.state ?? ""] ?? [];
      if (record === null || verb === undefined) return;
      try {
        await api.move(record.id, verb);
        say(`${record.name} ${done}`);
      } finally {
        onMoved();
      }
    }),
  );
  remover.addEventListener("click", () =>
    act(remover, trouble, async () => {
      const record = current();
      if (record === null) return;
      const question = "hearth deletes its versions and records, too. Running calls have ten seconds to finish.";
      if (!(await confirm(`Delete ${record.name}?`, question, "Delete"))) return;
      await remove(record);
      say(`${record.name} is deleted`);
      location.hash = "#/";
    }),
  );
  const element = h(
    "header",
    { class: "detail-head" },
    crumb.element,
    h(
      "div",
      { class: "title" },
      name,
      state.element,
      instances.element,
      kept,
      calls,
      h("span", { class: "end" }, mover, remover),
    ),
    failure,
    trouble.element,
  );
  return {
    element,
    focus: () => name.focus(),
    /** @param {FunctionRecord} record @param {FunctionPoolStatus | null} pool */
    update(record, pool) {
      setText(name, record.name);
      crumb.update(record.name);
      state.update(record.state);
      instances.update(pool, record.max_instances);
      setText(kept, pool === null || pool.superseded_count === 0 ? "" : `${pool.superseded_count} kept for a rollback`);
      setText(calls, `${counted(record.invocation_count, "call")}, ${counted(record.error_count, "error")}`);
      const [, label] = MOVES[record.state] ?? [];
      show(mover, label !== undefined);
      setText(mover, label ?? "");
      setAttribute(mover, "class", record.state === "active" ? null : "primary");
      show(remover, record.state !== "deleting");
      show(failure, record.error_message !== null);
      setText(failure, record.error_message ?? "");
    },
  };
}

/**
 * @typedef {object} Shown
 * @property {FunctionRecord} record
 * @property {FunctionPoolStatus | null} pool
 * @property {readonly VersionRecord[]} versions
 */

/**
 * The cards of a function, hidden until there is one.
 * @param {Context} context
 * @param {() => FunctionRecord | null} current
 * @param {(record: FunctionRecord | null) => void} onChanged null: it has, in a way that the next round will tell
 * @param {(record: FunctionRecord) => Promise<void>} remove
 */
function cards(context, current, onChanged, remove) {
  const top = header(context, current, () => onChanged(null), remove);
  const invoke = invokeCard(context);
  const records = recordsCard(context);
  const plots = plotsCard(records.open);
  const description = descriptionCard(context);
  const versionList = versionsCard(context, onChanged);
  const update = updateCard(context, onChanged);
  const side = h("div", { class: "side" }, versionList.element, update.element, description.element);
  const body = h("div", { class: "detail" }, invoke.element, plots.element, side, records.element);
  const element = h("div", { hidden: true }, top.element, body);
  return {
    element,
    focus: top.focus,
    move: records.move,
    leave: update.leave,
    refresh: update.refresh,
    /** @param {Shown} shown */
    update({ record, pool, versions }) {
      top.update(record, pool);
      invoke.update(record);
      description.update(record);
      update.update(record, versions[0]?.version ?? record.version);
      versionList.update(versions, record, VERSIONS_MAX);
      if (!element.hidden) return;
      show(element, true);
      if (document.activeElement === document.body) top.focus();
    },
    /** @param {readonly InvocationRecord[]} newest */
    updateRecords(newest) {
      plots.update(newest);
      records.update(newest);
    },
  };
}

/** @param {Context} context @param {string} id @returns {View} */
export function functionView(context, id) {
  const { api, refresh } = context;
  const recent = new Recent(api);
  const trouble = problem();
  const loading = h("p", { class: "hint", text: "Loading…" });
  /** @type {Shown | null} */
  let shown = null;
  let versions_of = "";
  let change_count = 0;
  /** @param {FunctionRecord | null} record */
  const changed = (record) => {
    change_count++;
    if (record !== null && shown !== null) draw({ ...shown, record });
    refresh();
  };
  /** @param {FunctionRecord} record */
  const remove = async (record) => {
    try {
      await rounds.remove(() => {
        changed({ ...record, state: "deleting" });
        return api.remove(record.id);
      });
    } catch (error) {
      changed(record);
      throw error;
    }
  };
  const parts = cards(context, () => shown?.record ?? null, changed, remove);
  /** @param {Shown} next */
  const draw = (next) => {
    shown = next;
    show(loading, false);
    parts.update(next);
  };
  const round = async () => {
    const change = change_count;
    const record = await api.functionById(id);
    const pool = hasInstances(record) ? await api.pool(id) : null;
    const of = `${record.current_version} ${record.updated_at}`;
    const versions = of === versions_of ? shown?.versions : (await api.versions(id, VERSIONS_MAX)).versions;
    if (change !== change_count) return;
    versions_of = of;
    draw({ record, pool, versions: versions ?? [] });
    await parts.refresh();
    if (await recent.follow(record)) parts.updateRecords(recent.records);
  };
  const rounds = untilDeleted(round, trouble, () => show(loading, false));
  return {
    element: h("div", {}, trouble.element, loading, parts.element),
    title: () => shown?.record.name ?? "Function",
    refresh: rounds.refresh,
    focus: () => (shown === null ? undefined : parts.focus()),
    move: parts.move,
    leave: parts.leave,
  };
}
