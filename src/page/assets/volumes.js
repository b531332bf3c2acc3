/** All volumes of the tenant, live; how much each holds is asked for by row. And the form that makes one. */
import { volumeHash } from "./addresses.js";
import { h, setText } from "./dom.js";
import { age, bytes, count, dateTime } from "./format.js";
import { listView } from "./list-view.js";
import { volumesOf } from "./resources.js";
import { tableRow } from "./table.js";
import { act, badge, card, crumbs, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { VolumeRecord } from "../wire.ts" */

const COLUMNS = ["Name", "State", "Holds", "Quota", "Containers", "Made"];

/** @param {Pick<VolumeRecord, "quota_mb">} record */
export const quotaText = ({ quota_mb }) => (quota_mb === null ? "none" : bytes(quota_mb * 1024 ** 2));

/** @param {VolumeRecord} first @param {Context} context */
function row(first, { api, clock }) {
  const link = h("a", { class: "open" });
  const state = badge();
  const [holds, quota, users, made] = [h("span"), h("span"), h("span"), h("time")];
  const cells = [link, state.element, holds, quota, users, made];
  const element = tableRow(COLUMNS, cells, { "data-id": first.id });
  let record = first;
  return {
    element,
    /** @param {VolumeRecord} next */
    update(next) {
      record = next;
      setText(link, next.name);
      link.href = volumeHash(next.name);
      const isKept = next.status === "active";
      state.update(isKept ? "active" : "deleting");
      setText(quota, quotaText(next));
      setText(made, age(next.created_at, clock.epochMs()));
      made.title = dateTime(next.created_at);
    },
    look: () =>
      record.status === "active"
        ? volumesOf(api)
            .inspect(record.name)
            .then(({ used_bytes, container_ids }) => {
              setText(holds, bytes(used_bytes));
              setText(users, container_ids.length === 0 ? "none" : count(container_ids.length));
            })
        : null,
  };
}

/** @param {Context} context @returns {View} */
export function volumesView(context) {
  const { view, find } = listView(context, {
    noun: "volume",
    columns: COLUMNS,
    words: { title: "Volumes", filter: "Filter by name", create: "New volume", address: "#/new-volume" },
    idOf: (/** @type {VolumeRecord} */ { id }) => id,
    matches: ({ name }, wanted) => name.toLowerCase().includes(wanted),
    row: (record) => row(record, context),
    ask: async () => {
      const { volumes, ...rest } = await volumesOf(context.api).list();
      return { resources: volumes, ...rest };
    },
  });
  return { ...view, focusRow: (name) => view.focusRow?.(find((record) => record.name === name)?.id ?? "") };
}

/** @param {Context} context @returns {View} */
export function newVolumeView({ api, say, refresh }) {
  const trouble = problem();
  const name = h("input", { id: "volume-name", required: true, maxlength: 128, autocomplete: "off" });
  const quota = h("input", { id: "volume-quota", type: "number", min: 16, step: 1, placeholder: "none" });
  const button = h("button", { class: "primary", type: "submit", text: "Create" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const quota_mb = quota.value === "" ? null : Number(quota.value);
      const record = await volumesOf(api).create({ name: name.value, quota_mb });
      say(`${record.name} is created`);
      location.hash = volumeHash(record.name);
      refresh();
    });
  };
  const form = h(
    "form",
    { onsubmit },
    h("label", { for: "volume-name", text: "Name" }),
    name,
    h("label", { for: "volume-quota", text: "Quota" }),
    quota,
    h("p", { class: "hint", text: "Quota in MiB. Default: the node's setting." }),
    trouble.element,
    h("p", { class: "actions" }, button),
  );
  return {
    element: h("div", { class: "narrow" }, crumbs([["Volumes", "#/volumes"]], "New").element, card("New volume", form)),
    title: () => "New volume",
    up: "#/volumes",
    refresh: async () => {},
    focus: () => name.focus(),
  };
}
