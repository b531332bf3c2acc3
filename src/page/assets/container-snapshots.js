/** The snapshots of one container, newest first, with what can be done with each; and the button that takes one. */
import { changesHash, snapshotHash } from "./addresses.js";
import { h, KeyedList, setText, show } from "./dom.js";
import { age, bytes, dateTime } from "./format.js";
import { snapshotsOf } from "./resources.js";
import { askSnapshot, snapshotButtons, snapshotName, snapshotState } from "./snapshot-actions.js";
import { expiryText } from "./snapshots.js";
import { table, tableRow } from "./table.js";
import { act, badge, card, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { ContainerRecord, SnapshotRecord } from "../wire.ts" */

/** Rows of the card; the list of all snapshots has more. */
export const SNAPSHOTS_MAX = 50;
const COLUMNS = ["Name", "State", "Size", "Taken", "Actions"];

/** @param {Context} context @param {ReturnType<typeof problem>} trouble @param {() => void} onMoved */
function rowMaker(context, trouble, onMoved) {
  /** @param {SnapshotRecord} first */
  return (first) => {
    let record = first;
    const link = h("a", { class: "open", href: snapshotHash(first.snapshot_id), title: first.snapshot_id });
    const state = badge();
    const [size, taken] = [h("span"), h("time")];
    const end = (/** @type {() => Promise<unknown>} */ work) => work().then(() => {});
    const buttons = snapshotButtons(context, trouble, () => record, onMoved, end);
    const acts = h("span", { class: "acts" }, ...buttons.elements);
    return {
      element: tableRow(COLUMNS, [link, state.element, size, taken, acts]),
      /** @param {SnapshotRecord} next */
      update(next) {
        record = next;
        setText(link, snapshotName(next));
        state.update(snapshotState(next));
        setText(size, next.size_bytes === null ? "" : bytes(next.size_bytes));
        const now_ms = context.clock.epochMs();
        setText(taken, age(next.created_at, now_ms));
        taken.title = `${dateTime(next.created_at)}; expires ${expiryText(next, now_ms)}`;
        buttons.update(next, true);
      },
    };
  };
}

/** @param {Context} context @param {() => ContainerRecord | null} current @param {() => void} onMoved */
export function snapshotsCard(context, current, onMoved) {
  const { api, say } = context;
  const trouble = problem();
  const { element: grid, rows } = table("Snapshots", "container-snapshots", COLUMNS);
  const list = new KeyedList(
    rows,
    (/** @type {SnapshotRecord} */ { snapshot_id }) => snapshot_id,
    rowMaker(context, trouble, onMoved),
  );
  const take = h("button", { type: "button", text: "Take a snapshot" });
  take.addEventListener("click", () =>
    act(take, trouble, async () => {
      const record = current();
      const body = record === null ? null : await askSnapshot(record);
      if (record === null || body === null) return;
      try {
        await snapshotsOf(api).take(record.container_id, body);
        say(`took a snapshot of ${record.name}`);
      } finally {
        onMoved();
      }
    }),
  );
  const changes = h("a", { class: "button", text: "Compare files" });
  const summary = h("span", { class: "hint" });
  const element = card("Snapshots", h("p", { class: "actions" }, take, changes, summary), trouble.element, grid);
  return {
    element,
    /** @param {ContainerRecord} record @param {{ snapshots: readonly SnapshotRecord[], next_cursor: string | null } | null} found null: refused */
    update(record, found) {
      show(element, found !== null);
      if (found === null) return;
      const { snapshots, next_cursor } = found;
      list.update(snapshots);
      show(grid, snapshots.length > 0);
      show(take, api.may("write"));
      changes.href = changesHash(record.container_id);
      const more = next_cursor === null ? "" : `The newest ${SNAPSHOTS_MAX}.`;
      setText(summary, snapshots.length === 0 ? "No snapshots." : more);
    },
  };
}
