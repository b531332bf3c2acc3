/**
 * The comparison of the files of two moments: of two snapshots, or of a container as it is now with its image or a
 * snapshot. Owns the choice of the two; the daemon compares when the user asks for it.
 */
import { containerHash } from "./addresses.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { bytes, count, counted, dateTime } from "./format.js";
import { containersOf, snapshotsOf } from "./resources.js";
import { snapshotName } from "./snapshot-actions.js";
import { table, tableRow } from "./table.js";
import { reported } from "./view.js";
import { act, badge, card, crumbs, labelled, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { FileChanges } from "../wire.ts" */
/** @typedef {FileChanges["changes"][number]} Change */
/** @typedef {{ id: string, text: string, kind: "image" | "snapshot" | "container" }} Moment */

/** Rows that are laid out; a comparison may have thousands. */
const ROWS_MAX = 500;
const COLUMNS = ["Change", "Path", "Size"];
const KINDS = /** @type {const} */ (["added", "changed", "deleted"]);
/** Snapshots that are offered. */
const SNAPSHOTS_MAX = 200;
export const IMAGE = /** @type {Moment} */ ({ id: "", text: "its image", kind: "image" });

/** @param {{ snapshot_id: string, name: string | null, created_at: number }} snapshot @returns {Moment} */
export const momentOf = (snapshot) => ({
  id: snapshot.snapshot_id,
  text: `${snapshotName(snapshot)}, ${dateTime(snapshot.created_at)}`,
  kind: "snapshot",
});

/** @param {{ container_id: string, name: string }} container @returns {Moment} */
export const nowOf = ({ container_id, name }) => ({ id: container_id, text: `${name}, now`, kind: "container" });

/** @param {Change} change */
function changeRow({ path, change, type, size_bytes, renamed_from }) {
  const shown = type === "directory" ? `${path}/` : path;
  const name = h("code", { text: shown, title: `${path} (${type})` });
  const from = renamed_from === null ? null : h("small", { text: ` was ${renamed_from}` });
  const size = h("span", { text: size_bytes === null || type === "directory" ? "" : bytes(size_bytes) });
  return tableRow(COLUMNS, [badge(change).element, h("span", {}, name, from), size]);
}

/** The changes that were found, filtered by kind and by text. */
function changeList() {
  const { element: grid, rows } = table("Changes", "file-changes slim", COLUMNS);
  const filter = h("input", { type: "search", placeholder: "Filter by path", "aria-label": "Filter changes" });
  const summary = h("p", { class: "hint", "aria-live": "polite" });
  const kinds = h("div", { class: "choice", role: "group", "aria-label": "Filter by change" });
  const bar = h("div", { class: "toolbar" }, kinds, filter);
  const element = h("div", { hidden: true }, bar, summary, grid);
  /** @type {FileChanges | null} */
  let found = null;
  let kind = "";
  const draw = () => {
    if (found === null) return;
    for (const button of kinds.children)
      setAttribute(button, "aria-pressed", String(button.getAttribute("data-kind") === kind));
    const wanted = filter.value.trim().toLowerCase();
    const matching = found.changes.filter(
      ({ path, change, renamed_from }) =>
        (kind === "" || change === kind) && `${path}\n${renamed_from ?? ""}`.toLowerCase().includes(wanted),
    );
    rows.replaceChildren(...matching.slice(0, ROWS_MAX).map(changeRow));
    show(grid, matching.length > 0);
    const all = found.changes.length;
    const cut = found.is_truncated ? " hearth lists only a part of the changes." : "";
    const first = matching.length > ROWS_MAX ? ` The first ${count(ROWS_MAX)} are shown.` : "";
    const shown =
      matching.length === all ? counted(all, "path") : `${count(matching.length)} of ${counted(all, "path")}`;
    setText(summary, all === 0 ? "No difference." : `${shown}.${first}${cut}`);
    show(bar, all > 0);
  };
  filter.addEventListener("input", draw);
  return {
    element,
    clear: () => show(element, false),
    /** @param {FileChanges} changes */
    update(changes) {
      found = changes;
      kind = "";
      const { added_count, changed_count, deleted_count } = changes;
      const counts = { added: added_count, changed: changed_count, deleted: deleted_count };
      const button = (/** @type {string} */ value, /** @type {string} */ text) => {
        const onclick = () => {
          kind = value;
          draw();
        };
        return h("button", { type: "button", "data-kind": value, text, onclick });
      };
      const all = button("", `All ${count(added_count + changed_count + deleted_count)}`);
      kinds.replaceChildren(all, ...KINDS.map((name) => button(name, `${count(counts[name])} ${name}`)));
      show(element, true);
      draw();
    },
  };
}

/**
 * Fills a select, and keeps what the user has selected as long as it is there.
 * @param {HTMLSelectElement} select @param {readonly Moment[]} moments @param {string} wanted
 */
function offer(select, moments, wanted) {
  select.replaceChildren(...moments.map(({ id, text }) => h("option", { value: id, text })));
  select.value = moments.some(({ id }) => id === wanted) ? wanted : (moments[0]?.id ?? "");
}

/** @param {Context} context @param {string} title of the card */
export function changesCard({ api }, title = "Changes") {
  const trouble = problem();
  const from = h("select", { id: "changes-from" });
  const to = h("select", { id: "changes-to" });
  const button = h("button", { type: "submit", text: "Compare" });
  const list = changeList();
  /** @type {readonly Moment[]} */
  let moments = [];
  let listed = "";
  let isChosen = false;
  const chosen = () => `${from.value} ${to.value}`;
  const compare = () =>
    act(button, trouble, async () => {
      list.clear();
      const target = moments.find(({ id }) => id === to.value);
      if (target === undefined) return;
      const asked = chosen();
      const snapshots = snapshotsOf(api);
      const isNow = target.kind === "container";
      const found = await (isNow ? snapshots.changes(target.id, from.value) : snapshots.diff(from.value, target.id));
      if (asked === chosen()) list.update(found);
    });
  /** Offers what the later moment can be compared with: the image only for a container. @param {string} wanted */
  const offerSources = (wanted) => {
    const isNow = moments.find(({ id }) => id === to.value)?.kind === "container";
    const sources = moments.filter(({ kind }) => kind === "snapshot" || (kind === "image" && isNow));
    offer(from, sources, wanted);
  };
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void compare();
  };
  const onchange = () => {
    isChosen = true;
    list.clear();
    trouble.update(null);
    offerSources(from.value);
  };
  const form = h("form", { onsubmit, onchange, class: "compare" }, labelled("From", from), labelled("To", to), button);
  const none = h("p", { class: "hint", hidden: true, text: "There is no other snapshot to compare with." });
  return {
    element: card(title, form, none, trouble.element, list.element),
    compare,
    /**
     * @param {readonly Moment[]} next all that may be compared
     * @param {string} first id of the earlier one @param {string} last id of the later one
     */
    update(next, first, last) {
      const text = JSON.stringify(next);
      if (text === listed) return;
      listed = text;
      moments = next;
      const [before, after] = isChosen ? [from.value, to.value] : [first, last];
      const targets = next.filter(({ kind }) => kind !== "image");
      offer(to, targets, after);
      offerSources(before);
      show(form, targets.length > 0 && from.options.length > 0 && next.length > 1);
      show(none, form.hidden === true);
    },
  };
}

/** Shows the files that a container has changed since its image, or since one of its snapshots. @param {Context} context @param {string} id @returns {View} */
export function containerChangesView(context, id) {
  const { api } = context;
  const trouble = problem();
  const title = h("h1", { tabindex: -1, text: "Changes" });
  const way = crumbs(
    [
      ["Containers", "#/containers"],
      [id, containerHash(id)],
    ],
    "Changes",
  );
  const name = way.element.querySelectorAll("a")[1];
  const changes = changesCard(context, "Files");
  let isFirst = true;
  const body = h("div", { hidden: true }, changes.element);
  const round = async () => {
    const record = await containersOf(api).get(id);
    const { snapshots } = await snapshotsOf(api).ofContainer(record.container_id, SNAPSHOTS_MAX);
    if (name !== undefined) setText(name, record.name);
    const ready = snapshots.filter(({ state }) => state === "ready").map(momentOf);
    changes.update([nowOf(record), IMAGE, ...ready], ready[0]?.id ?? "", record.container_id);
    show(body, true);
    if (isFirst) void changes.compare();
    isFirst = false;
  };
  return {
    element: h("div", {}, way.element, h("div", { class: "title detail-head" }, title), trouble.element, body),
    title: () => `Changes of ${name?.textContent ?? id}`,
    up: containerHash(id),
    refresh: reported(trouble, round, () => show(body, false)),
    focus: () => title.focus(),
  };
}
