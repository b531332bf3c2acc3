/**
 * One snapshot: its facts, the tree of its relatives, and the comparison with one of them. The record is asked for only
 * when it may have changed, since the daemon counts bytes for it.
 */
import { containerHash, volumeHash } from "./addresses.js";
import { changesCard, IMAGE, momentOf, nowOf } from "./changes.js";
import { h, setText, show } from "./dom.js";
import { age, bytes, dateTime, milliseconds } from "./format.js";
import { lineageCard } from "./lineage.js";
import { snapshotsOf } from "./resources.js";
import { snapshotButtons, snapshotName, snapshotState } from "./snapshot-actions.js";
import { expiryText, labelsText, sourceName } from "./snapshots.js";
import { untilDeleted } from "./view.js";
import { badge, card, crumbs, facts, problem } from "./widgets.js";

/** @import { Moment } from "./changes.js" */
/** @import { Context, Removal, View } from "./view.js" */
/** @import { Lineage, SnapshotDetail, SnapshotRecord } from "../wire.ts" */

const UNKNOWN = "not counted";
/** @param {number | null} value */
const sizeText = (value) => (value === null ? UNKNOWN : bytes(value));
/** @param {{ exit_code: number | null } | null} hook */
const hookText = (hook) => (hook === null ? "not run" : `exit code ${hook.exit_code ?? "none"}`);

/** @type {readonly [string, (record: SnapshotDetail) => string][]} */
const FACTS = [
  ["Id", ({ snapshot_id }) => snapshot_id],
  ["Image", ({ image }) => image ?? "none"],
  ["Size", ({ size_bytes }) => sizeText(size_bytes)],
  ["Freed by deletion", ({ exclusive_bytes }) => sizeText(exclusive_bytes)],
  ["Shared", ({ shared_bytes }) => sizeText(shared_bytes)],
  ["Consistency", ({ consistency_mode }) => consistency_mode],
  ["Hooks", ({ metadata: { hooks } }) => `before: ${hookText(hooks.pre)}, after: ${hookText(hooks.post)}`],
  ["Pause", ({ metadata: { pause_ms } }) => (pause_ms === null ? "none" : milliseconds(pause_ms))],
  ["Volumes", ({ volumes }) => volumes.map(({ name, target }) => `${name} at ${target}`).join(", ") || "none"],
  ["Taken", ({ created_at }) => dateTime(created_at)],
  ["Expires", (record) => (record.expires_at === null || record.pinned ? "never" : dateTime(record.expires_at))],
  ["Labels", (record) => labelsText(record) || "none"],
  ["Warnings", ({ warnings }) => warnings.join("; ") || "none"],
];

/** @param {Context} context @param {() => SnapshotDetail | null} current @param {() => void} onMoved @param {Removal} end */
function header(context, current, onMoved, end) {
  const { clock } = context;
  const trouble = problem();
  const name = h("h1", { tabindex: -1 });
  const way = crumbs([["Snapshots", "#/snapshots"]], "");
  const state = badge();
  const since = h("span", { class: "hint" });
  const source = h("a");
  const of = h("span", { class: "hint" }, "of ", source);
  const buttons = snapshotButtons(context, trouble, current, onMoved, async (work) => {
    await end(work);
    location.hash = "#/snapshots";
  });
  return {
    element: h(
      "div",
      { class: "detail-head" },
      way.element,
      h("div", { class: "title" }, name, state.element, of, since),
      h("p", { class: "actions above" }, ...buttons.elements),
      trouble.element,
    ),
    focus: () => name.focus(),
    /** @param {SnapshotRecord} record @param {boolean} hasSource */
    update(record, hasSource) {
      setText(name, snapshotName(record));
      way.update(snapshotName(record));
      state.update(snapshotState(record));
      setText(source, sourceName(record));
      const { source_container_id, source_volume } = record;
      if (source_container_id !== null) source.href = containerHash(source_container_id);
      else if (source_volume !== null) source.href = volumeHash(source_volume);
      const now_ms = clock.epochMs();
      const expiry = record.pinned || record.expires_at === null ? "" : `, expires ${expiryText(record, now_ms)}`;
      setText(since, `taken ${age(record.created_at, now_ms)}${expiry}`);
      buttons.update(record, hasSource);
    },
  };
}

/**
 * Returns the moments that the user may compare, and the two that are compared by default: a snapshot with its parent, the
 * first one with its successor.
 * @param {SnapshotDetail} record @param {Lineage} lineage
 * @returns {[Moment[], string, string]}
 */
function momentsOf({ snapshot_id: id, state, parent_snapshot_id }, { nodes, containers }) {
  const ready = nodes.filter(({ snapshot_id }) => snapshot_id !== id || state === "ready");
  const moments = [...ready.toReversed().map(momentOf), ...containers.map(nowOf), IMAGE];
  if (parent_snapshot_id !== null) return [moments, parent_snapshot_id, id];
  const later = nodes.find(({ snapshot_id }) => snapshot_id !== id)?.snapshot_id ?? containers[0]?.container_id;
  return [moments, id, later ?? ""];
}

/** @param {Context} context @param {string} id @returns {View} */
export function snapshotView(context, id) {
  const { api, events } = context;
  const snapshots = snapshotsOf(api);
  const trouble = problem();
  const loading = h("p", { class: "hint", text: "Loading…" });
  /** @type {SnapshotDetail | null} */
  let shown = null;
  let isStale = true;
  let news = "";
  const onRefused = () => {
    show(loading, false);
    show(element, false);
  };
  const rounds = untilDeleted(() => round(), trouble, onRefused);
  const moved = () => {
    isStale = true;
    context.refresh();
  };
  const top = header(context, () => shown, moved, rounds.remove);
  const lineage = lineageCard(context, id);
  const changes = changesCard(context);
  const about = facts(FACTS);
  const side = h("div", { class: "side" }, card("Snapshot", about.element));
  const body = h("div", { class: "detail" }, lineage.element, side, changes.element);
  const element = h("div", { hidden: true }, top.element, body);

  /** @param {SnapshotDetail} record @param {Lineage} found */
  const draw = (record, found) => {
    shown = record;
    top.update(
      record,
      found.containers.some(({ container_id }) => container_id === record.source_container_id),
    );
    about.update(record);
    lineage.update(found);
    changes.update(...momentsOf(record, found));
    show(loading, false);
    if (!element.hidden) return;
    show(element, true);
    lineage.showCurrent();
    if (document.activeElement === document.body) top.focus();
  };
  const round = async () => {
    const newest = events().find(({ data }) => data.snapshot_id === id)?.id ?? "";
    const isAsked = isStale || newest !== news || shown === null || shown.state === "creating";
    isStale = false;
    news = newest;
    const record = isAsked || shown === null ? await snapshots.get(id) : shown;
    draw(record, await snapshots.lineage(id));
  };
  return {
    element: h("div", {}, trouble.element, loading, element),
    title: () => (shown === null ? "Snapshot" : snapshotName(shown)),
    up: "#/snapshots",
    refresh: rounds.refresh,
    focus: () => (shown === null ? undefined : top.focus()),
    move: lineage.move,
  };
}
