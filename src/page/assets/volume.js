/** One volume: what it holds, who has it, its files. */
import { containerHash, snapshotHash, volumeHash } from "./addresses.js";
import { askName, confirm } from "./dialogs.js";
import { h, KeyedList, setText, show } from "./dom.js";
import { filesCard } from "./files.js";
import { bytes, dateTime } from "./format.js";
import { snapshotsOf, volumesOf } from "./resources.js";
import { askVolumeSnapshot } from "./snapshot-actions.js";
import { untilDeleted } from "./view.js";
import { quotaText } from "./volumes.js";
import { act, card, crumbs, facts, problem } from "./widgets.js";

/** @import { Place } from "./files.js" */
/** @import { Context, View } from "./view.js" */
/** @import { VolumeDetail } from "../wire.ts" */

/** @type {readonly [string, (record: VolumeDetail) => string][]} */
const FACTS = [
  ["Holds", ({ used_bytes }) => bytes(used_bytes)],
  ["Quota", quotaText],
  ["Made", ({ created_at }) => dateTime(created_at)],
  ["Id", ({ id }) => id],
  [
    "Labels",
    ({ labels }) =>
      Object.entries(labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(", ") || "none",
  ],
];

function aboutCard() {
  const list = facts(FACTS);
  const rows = h("ul", { class: "plain" });
  const none = h("p", { class: "hint", text: "No container mounts it." });
  const users = new KeyedList(
    rows,
    (/** @type {string} */ id) => id,
    (id) => ({ element: h("li", {}, h("a", { href: containerHash(id), text: id })), update: () => {} }),
  );
  return {
    element: card("Volume", list.element, h("h3", { text: "Containers" }), none, rows),
    /** @param {VolumeDetail} record */
    update(record) {
      list.update(record);
      users.update(record.container_ids);
      show(none, record.container_ids.length === 0);
    },
  };
}

/** @param {Context} context @param {string} name @param {Place} place @returns {View} */
export function volumeView(context, name, place) {
  const { api, say, refresh } = context;
  const volumes = volumesOf(api);
  const trouble = problem();
  const missing = problem();
  const title = h("h1", { tabindex: -1, text: name });
  const about = aboutCard();
  const files = filesCard(context, volumes.tree(name), place);
  const take = h("button", { type: "button", text: "Take a snapshot" });
  const rename = h("button", { type: "button", text: "Rename" });
  const remove = h("button", { type: "button", class: "danger", text: "Delete" });
  const holds = h("span", { class: "hint" });
  take.addEventListener("click", () =>
    act(take, trouble, async () => {
      const body = await askVolumeSnapshot(name);
      if (body === null) return;
      const { snapshot_id } = await snapshotsOf(api).takeOfVolume(name, body);
      say(`took a snapshot of ${name}`);
      location.hash = snapshotHash(snapshot_id);
    }),
  );
  rename.addEventListener("click", () =>
    act(rename, trouble, async () => {
      const wanted = await askName(`Rename ${name}`, name, "Rename");
      if (wanted === "" || wanted === name) return;
      await volumes.rename(name, wanted);
      say(`${name} is renamed to ${wanted}`);
      location.hash = volumeHash(wanted);
    }),
  );
  remove.addEventListener("click", () =>
    act(remove, trouble, async () => {
      if (!(await confirm(`Delete ${name}?`, "hearth deletes all its files, too.", "Delete"))) return;
      await rounds.remove(() => volumes.remove(name));
      say(`${name} is deleted`);
      location.hash = "#/volumes";
      refresh();
    }),
  );
  const body = h(
    "div",
    { hidden: true },
    h(
      "div",
      { class: "detail-head" },
      crumbs([["Volumes", "#/volumes"]], name).element,
      h("div", { class: "title" }, title, holds, h("span", { class: "end" }, take, rename, remove)),
      trouble.element,
    ),
    h("div", { class: "detail" }, files.element, h("div", { class: "side" }, about.element)),
  );
  const round = async () => {
    const record = await volumes.inspect(name);
    about.update(record);
    setText(holds, bytes(record.used_bytes));
    for (const button of [take, rename, remove]) show(button, api.may("write"));
    show(body, true);
    await files.refresh();
  };
  const rounds = untilDeleted(round, missing, () => show(body, false));
  return {
    element: h("div", {}, missing.element, body),
    title: () => name,
    up: "#/volumes",
    refresh: rounds.refresh,
    focus: () => title.focus(),
    move: files.move,
    leave: files.leave,
  };
}
