/**
 * The lineage of a snapshot as a tree: lines and marks are one drawing, beside each mark stands a row of text with its
 * link. Rows are made once and patched; the drawing is made anew only when the tree has changed.
 */
import { containerHash, snapshotHash } from "./addresses.js";
import { h, KeyedList, setAttribute, setText, svg } from "./dom.js";
import { age, counted, dateTime } from "./format.js";
import { snapshotName } from "./snapshot-actions.js";
import { walked } from "./table.js";
import { treeRows } from "./tree-layout.js";
import { badge, card } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { TreeRow } from "./tree-layout.js" */
/** @import { Lineage } from "../wire.ts" */

/** As in snapshots.css. */
const ROW_HEIGHT = 32;
const LANE_WIDTH = 20;
const LEFT = 22;
const BEND = 9;
/** Of the rows' text, so that many lanes make the tree wide instead of the text narrow. */
const TEXT_WIDTH_MIN = 165;

/** @param {number} lane */
const xOf = (lane) => LEFT + lane * LANE_WIDTH;
/** @param {number} row */
const yOf = (row) => (row + 0.5) * ROW_HEIGHT;

/** The lines from parents to children: a trunk from each parent down, and a bend into the lane of each branch. @param {readonly TreeRow[]} rows */
function lines(rows) {
  /** By the parent's row, where its trunk ends. @type {Map<number, number>} */
  const trunks = new Map();
  const group = svg("g", { class: "lines" });
  rows.forEach(({ lane, parent, container }, i) => {
    const above = rows[parent];
    if (above === undefined) return;
    const isMain = above.lane === lane;
    trunks.set(parent, yOf(i) - (isMain ? 0 : BEND));
    if (isMain) return;
    const bend = `M${xOf(above.lane)} ${yOf(i) - BEND}q0 ${BEND} ${BEND} ${BEND}H${xOf(lane)}`;
    group.append(svg("path", { class: container === null ? null : "copy", d: bend }));
  });
  for (const [parent, end] of trunks) {
    const lane = rows[parent]?.lane ?? 0;
    group.append(svg("path", { d: `M${xOf(lane)} ${yOf(parent)}V${end}` }));
  }
  return group;
}

/** A circle for a snapshot, a square for a container. @param {TreeRow} row @param {number} i @param {string} current_id */
function mark({ id, lane, container }, i, current_id) {
  const [x, y] = [xOf(lane), yOf(i)];
  if (container === null)
    return svg("circle", { class: id === current_id ? "snapshot here" : "snapshot", cx: x, cy: y, r: 5.5 });
  const attributes = { class: "container", "data-state": container.state, rx: 2 };
  return svg("rect", { ...attributes, x: x - 5, y: y - 5, width: 10, height: 10 });
}

/** @param {readonly TreeRow[]} rows @param {string} current_id */
function drawing(rows, current_id) {
  const lanes = 1 + Math.max(0, ...rows.map(({ lane }) => lane));
  const size = { width: xOf(lanes), height: rows.length * ROW_HEIGHT };
  return svg(
    "svg",
    { ...size, viewBox: `0 0 ${size.width} ${size.height}`, "aria-hidden": "true" },
    lines(rows),
    ...rows.map((row, i) => mark(row, i, current_id)),
  );
}

/** @param {Context} context @param {string} current_id */
function snapshotRow({ clock }, current_id) {
  const link = h("a", { class: "open" });
  const when = h("time");
  const of = h("span", { class: "of" });
  return {
    element: h("li", { class: "tree-row" }, link, of, when),
    /** @param {TreeRow} row @param {string} owner name of the container, where it differs from the parent's */
    update({ id, node }, owner) {
      if (node === null) return;
      setText(link, snapshotName(node));
      link.href = snapshotHash(id);
      link.title = `${id}, depth ${node.depth}`;
      setAttribute(link, "aria-current", id === current_id ? "page" : null);
      setText(of, owner === "" ? "" : `of ${owner}`);
      setText(when, age(node.created_at, clock.epochMs()));
      when.title = dateTime(node.created_at);
    },
  };
}

function containerRow() {
  const link = h("a", { class: "open" });
  const state = badge();
  const kind = h("span", { class: "of" });
  return {
    element: h("li", { class: "tree-row" }, link, kind, state.element),
    /** @param {TreeRow} row */
    update({ id, container }) {
      if (container === null) return;
      setText(link, container.name);
      link.href = containerHash(id);
      link.title = id;
      setText(kind, container.kind);
      state.update(container.state);
    },
  };
}

/** The names of containers, as far as the lineage has them. @param {Lineage} lineage */
function ownersOf({ nodes, containers }) {
  const names = new Map(containers.map(({ container_id, name }) => [container_id, name]));
  const owners = new Map(nodes.map(({ snapshot_id, container_id }) => [snapshot_id, container_id]));
  /** @param {TreeRow} row */
  return ({ node }) => {
    if (node === null || node.container_id === null) return "";
    const isSame = owners.get(node.parent_snapshot_id ?? "") === node.container_id;
    return isSame ? "" : (names.get(node.container_id) ?? "a deleted container");
  };
}

/** @param {Context} context @param {string} current_id the snapshot that the view is of */
export function lineageCard(context, current_id) {
  const list = h("ol", { class: "plain tree-rows", "aria-label": "Snapshots and containers" });
  const picture = h("div", { class: "tree-picture" });
  const tree = h("div", { class: "tree" }, picture, list);
  const box = h("div", { class: "tree-box" }, tree);
  const summary = h("p", { class: "hint" });
  const legend = h(
    "p",
    { class: "legend", "aria-hidden": "true" },
    h("span", {}, h("i", { class: "snapshot" }), "snapshot"),
    h("span", {}, h("i", { class: "snapshot here" }), "this one"),
    h("span", {}, h("i", { class: "container", "data-state": "running" }), "running container"),
    h("span", {}, h("i", { class: "container" }), "container"),
  );
  let drawn = "";
  let ownerOf = (/** @type {TreeRow} */ _row) => "";
  const rows = new KeyedList(
    list,
    (/** @type {TreeRow} */ { id }) => id,
    ({ node }) => {
      const { element, update } = node === null ? containerRow() : snapshotRow(context, current_id);
      return {
        element,
        /** @param {TreeRow} row */
        update(row) {
          const indent = `${xOf(row.lane) + LANE_WIDTH - 4}px`;
          if (element.style.paddingLeft !== indent) element.style.paddingLeft = indent;
          update(row, ownerOf(row));
        },
      };
    },
  );
  return {
    element: card("Lineage", legend, summary, box),
    move: walked(list),
    /** @param {Lineage} lineage */
    update(lineage) {
      ownerOf = ownersOf(lineage);
      const all = treeRows(lineage);
      rows.update(all);
      const { nodes, containers, is_truncated } = lineage;
      const counts = `${counted(nodes.length, "snapshot")}, ${counted(containers.length, "container")}`;
      setText(summary, is_truncated ? `The first ${counts}.` : `${counts}.`);
      const shape = JSON.stringify(all.map(({ id, lane, parent, container }) => [id, lane, parent, container?.state]));
      if (shape === drawn) return;
      drawn = shape;
      picture.replaceChildren(drawing(all, current_id));
      const width = `${xOf(1 + Math.max(0, ...all.map(({ lane }) => lane))) + TEXT_WIDTH_MIN}px`;
      tree.style.minWidth = width;
    },
    /** Scrolls the tree, and not the page, to the snapshot of the view. */
    showCurrent() {
      const at = rows.get(current_id)?.element.offsetTop ?? 0;
      box.scrollTop = Math.max(0, at - box.clientHeight / 2);
    },
  };
}
