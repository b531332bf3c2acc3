/** The actions of snapshots: their dialogs, and the buttons that a row and a view share. */
import { containerHash } from "./addresses.js";
import { askForm, confirm } from "./dialogs.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { snapshotsOf } from "./resources.js";
import { labelled, recordButtons } from "./widgets.js";

/** @import { Context, Removal } from "./view.js" */
/** @import { problem } from "./widgets.js" */
/** @import { ContainerRecord, SnapshotRecord } from "../wire.ts" */

const HOUR_SECONDS = 3_600;
/** Lives that the dialogs offer. @type {readonly (readonly [string, number | null])[]} */
const LIVES = [
  ["never", null],
  ["after an hour", HOUR_SECONDS],
  ["after a day", 24 * HOUR_SECONDS],
  ["after 7 days", 7 * 24 * HOUR_SECONDS],
  ["after 30 days", 30 * 24 * HOUR_SECONDS],
];
const ID_LENGTH = 12;

/** Its name, or the beginning of its id. @param {{ name: string | null, snapshot_id: string }} snapshot */
export const snapshotName = ({ name, snapshot_id }) => name ?? `${snapshot_id.slice(0, ID_LENGTH)}…`;

/** A pinned snapshot is ready. @param {SnapshotRecord} record */
export const snapshotState = ({ state, pinned }) => (pinned ? "pinned" : state);

/** @param {string} id @param {readonly (readonly [string, string])[]} options words and their values */
const select = (id, options) => h("select", { id }, ...options.map(([text, value]) => h("option", { value, text })));

/** A choice of lives. @param {string} id @param {string} unlimited the words of the life without an end */
export function lifeField(id, unlimited) {
  const lives = LIVES.map(([text, seconds], i) => {
    return /** @type {const} */ ([seconds === null ? unlimited : text, String(i)]);
  });
  const life = select(id, lives);
  return {
    element: labelled("Expires", life),
    read: () => ({ ttl_seconds: LIVES[Number(life.value)]?.[1] ?? null }),
  };
}

/** The fields of every new snapshot, and what they say. */
function commonFields() {
  const name = h("input", { id: "snapshot-name", maxlength: 128, autocomplete: "off", spellcheck: "false" });
  const life = lifeField("snapshot-life", "never");
  return {
    name: labelled("Name", name, "Optional."),
    life: life.element,
    read: () => ({ ...(name.value.trim() === "" ? {} : { name: name.value.trim() }), ...life.read() }),
  };
}

/** Asks how to take a snapshot of a volume. @param {string} volume @returns {Promise<object | null>} null: never mind */
export function askVolumeSnapshot(volume) {
  const { name, life, read } = commonFields();
  return askForm(`Take a snapshot of ${volume}`, [name, life], "Take", read);
}

/** Asks how to take a snapshot of a container. @param {ContainerRecord} record @returns {Promise<object | null>} null: never mind */
export function askSnapshot({ name: container }) {
  const { name, life, read } = commonFields();
  const consistency = select("snapshot-consistency", [
    ["crash-consistent: files at one moment", "crash-consistent"],
    ["app-consistent: with the container's hooks", "app-consistent"],
  ]);
  const included = h("input", { id: "snapshot-volumes", type: "checkbox" });
  const hint = "The hooks are /etc/hearth/pre-snapshot and /etc/hearth/post-snapshot in the container.";
  const fields = [
    name,
    labelled("Consistency", consistency, hint),
    h("label", { class: "check" }, included, "Include its volumes"),
    life,
  ];
  return askForm(`Take a snapshot of ${container}`, fields, "Take", () => ({
    ...read(),
    consistency_mode: consistency.value,
    volume_mode: included.checked ? "include_all_allowed" : "exclude",
  }));
}

/** Asks what to make of a snapshot. @param {SnapshotRecord} record @returns {Promise<object | null>} null: never mind */
function askClone(record) {
  const isVolume = record.kind === "volume";
  const name = h("input", { id: "clone-name", maxlength: 128, autocomplete: "off", spellcheck: "false" });
  const starts = h("input", { id: "clone-start", type: "checkbox", checked: true });
  const fields = [
    labelled("Name", name, "Default: the name of the source and a random suffix."),
    isVolume ? null : h("label", { class: "check" }, starts, "Start the container"),
  ];
  return askForm(`Clone ${snapshotName(record)}`, fields, "Clone", () => ({
    ...(name.value.trim() === "" ? {} : { name: name.value.trim() }),
    resume_policy: starts.checked && !isVolume ? "immediate" : "manual",
  }));
}

/**
 * @param {Context} context @param {SnapshotRecord} record
 * @returns {Promise<string | null>} what was done; null: never mind
 */
async function clone({ api }, record) {
  const body = await askClone(record);
  if (body === null) return null;
  const container_id = await snapshotsOf(api).clone(record.snapshot_id, body);
  location.hash = container_id === null ? "#/volumes" : containerHash(container_id);
  return `${snapshotName(record)} is cloned`;
}

/**
 * @param {Context} context @param {SnapshotRecord} record
 * @returns {Promise<string | null>} what was done; null: never mind
 */
async function restore({ api }, record) {
  const { source_container_id, source_container_name, snapshot_id } = record;
  if (source_container_id === null) return null;
  const text =
    "hearth replaces the container's files by those of the snapshot. Files written since are lost. Settings, name and volumes stay. A running container is stopped and started again.";
  const name = snapshotName(record);
  if (!(await confirm(`Restore ${source_container_name ?? "the container"} to ${name}?`, text, "Restore"))) return null;
  await snapshotsOf(api).restore(source_container_id, snapshot_id);
  return `${source_container_name} is restored to ${name}`;
}

/**
 * The buttons of one snapshot.
 * @param {Context} context
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => SnapshotRecord | null} current
 * @param {() => void} onMoved
 * @param {Removal} end the deletion
 */
export function snapshotButtons(context, trouble, current, onMoved, end) {
  const { api } = context;
  const snapshots = snapshotsOf(api);
  const button = recordButtons(context, trouble, current, onMoved);
  const copy = button("Clone", "", (record) => clone(context, record));
  const back = button("Restore", "", (record) => restore(context, record));
  const pin = button("Pin", "", async (record) => {
    await snapshots.pin(record.snapshot_id, record.pinned ? "unpin" : "pin");
    return `${snapshotName(record)} is ${record.pinned ? "unpinned" : "pinned"}`;
  });
  const remove = button("Delete", "danger", async (record) => {
    const text = "hearth deletes its files. Containers that were cloned from it stay whole.";
    if (!(await confirm(`Delete ${snapshotName(record)}?`, text, "Delete"))) return null;
    await end(() => snapshots.remove(record.snapshot_id));
    return `${snapshotName(record)} is deleted`;
  });
  return {
    elements: [copy, back, pin, remove],
    /** @param {SnapshotRecord} record @param {boolean} hasSource */
    update(record, hasSource) {
      const may = api.may("write") && record.state === "ready";
      show(copy, may);
      show(back, may && hasSource);
      show(pin, may);
      show(remove, may && !record.pinned);
      setText(pin, record.pinned ? "Unpin" : "Pin");
      // A list has as many of each as it has rows.
      for (const one of [copy, back, pin, remove])
        setAttribute(one, "aria-label", `${one.textContent} ${snapshotName(record)}`);
      const about = record.pinned ? "Ends the protection" : "Protects it from deletion and expiry";
      setAttribute(pin, "title", about);
    },
  };
}
