/** All snapshots of the tenant, live. */
import { snapshotHash } from "./addresses.js";
import { h, setAttribute, setText } from "./dom.js";
import { age, bytes, dateTime, duration } from "./format.js";
import { listView } from "./list-view.js";
import { snapshotsOf } from "./resources.js";
import { snapshotName, snapshotState } from "./snapshot-actions.js";
import { tableRow } from "./table.js";
import { badge, choice } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { SnapshotRecord } from "../wire.ts" */

const COLUMNS = ["Name", "State", "Source", "Labels", "Size", "Expires", "Taken"];
/** @type {Readonly<Record<string, (record: SnapshotRecord) => boolean>>} */
const FILTERS = {
  All: () => true,
  Containers: ({ kind }) => kind === "container",
  Volumes: ({ kind }) => kind === "volume",
  Pinned: ({ pinned }) => pinned,
};

/** @param {SnapshotRecord} record */
export const labelsText = ({ labels }) =>
  Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

/** @param {SnapshotRecord} record */
export const sourceName = ({ source_container_name, source_volume }) => source_container_name ?? source_volume ?? "";

/** When the daemon deletes it. @param {Pick<SnapshotRecord, "expires_at" | "pinned">} record @param {number} now_ms */
export function expiryText({ expires_at, pinned }, now_ms) {
  if (pinned || expires_at === null) return "never";
  return `in ${duration(Math.max(0, expires_at - Math.floor(now_ms / 1000)))}`;
}

/** @param {SnapshotRecord} first @param {Context} context */
function row(first, { clock }) {
  const link = h("a", { class: "open", href: snapshotHash(first.snapshot_id), title: first.snapshot_id });
  const state = badge();
  const [source, labels, size, expires, taken] = [h("span"), h("code"), h("span"), h("span"), h("time")];
  const cells = [link, state.element, source, labels, size, expires, taken];
  return {
    element: tableRow(COLUMNS, cells, { "data-id": first.snapshot_id }),
    /** @param {SnapshotRecord} next */
    update(next) {
      setText(link, snapshotName(next));
      state.update(snapshotState(next));
      setText(source, `${next.kind === "volume" ? "volume " : ""}${sourceName(next)}`);
      const text = labelsText(next);
      setText(labels, text);
      setAttribute(labels, "title", text === "" ? null : text);
      setText(size, next.size_bytes === null ? "" : bytes(next.size_bytes));
      setText(expires, expiryText(next, clock.epochMs()));
      setAttribute(expires, "title", next.expires_at === null ? null : dateTime(next.expires_at));
      setText(taken, age(next.created_at, clock.epochMs()));
      taken.title = dateTime(next.created_at);
    },
  };
}

/** @param {Context} context @returns {View} */
export function snapshotsView(context) {
  let isWanted = FILTERS.All ?? (() => true);
  const { view, filter, draw } = listView(context, {
    noun: "snapshot",
    columns: COLUMNS,
    words: { title: "Snapshots", filter: "Filter by name, container, label" },
    idOf: (/** @type {SnapshotRecord} */ { snapshot_id }) => snapshot_id,
    // Every word must be found, so that a container and a label can be combined.
    matches: (record, wanted) => {
      const { name, snapshot_id, source_container_id } = record;
      const text = [name, snapshot_id, source_container_id, sourceName(record), labelsText(record)]
        .join("\n")
        .toLowerCase();
      return isWanted(record) && wanted.split(/\s+/).every((word) => text.includes(word));
    },
    row: (record) => row(record, context),
    ask: async () => {
      const { snapshots, next_cursor } = await snapshotsOf(context.api).list();
      return { resources: snapshots, next_cursor };
    },
  });
  const kinds = choice("Filter by kind", Object.keys(FILTERS), (name) => {
    isWanted = FILTERS[name] ?? isWanted;
    draw();
  });
  kinds.choose("All");
  filter.after(kinds.element);
  return view;
}
