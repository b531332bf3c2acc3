/** Images of the tenant, live: the list, one image with its layers and build steps, and the form that pulls one. */
import { imageHash, operationHash } from "./addresses.js";
import { confirm } from "./dialogs.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { age, bytes, count, counted, dateTime, seenText, shortDigest } from "./format.js";
import { listView } from "./list-view.js";
import { imagesOf } from "./platform-resources.js";
import { resourcePage } from "./resource-page.js";
import { followedList, table, tableRow } from "./table.js";
import { act, card, crumbs, labelled, problem, recordButtons } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { HistoryEntry, ImageDetail, ImageRecord } from "../wire.ts" */

const COLUMNS = ["Reference", "Size", "Platform", "Used by", "Shared", "Pulled"];
const LAYER_COLUMNS = ["Layer", "Digest", "Transfer", "Size"];
const STEP_COLUMNS = ["Step", "Command", "Size"];
/** Rows that are laid out, and the length of a text: whoever made the image chose how many it has and how long it is. */
const ROWS_MAX = 200;
const TEXT_LENGTH_MAX = 1_000;
const UP = /** @type {const} */ (["Images", "#/images"]);

/** Without the algorithm. @param {string | null} digest */
const digestText = (digest) => (digest === null ? "unknown" : shortDigest(digest.replace(/^\w+:/, "")));
/** Text that the maker of the image chose. @param {string} text */
const chosen = (text) => seenText(text.length > TEXT_LENGTH_MAX ? `${text.slice(0, TEXT_LENGTH_MAX)}…` : text);
/** @param {readonly string[] | null} words @param {string} [separator] */
const words = (words, separator = " ") => chosen(words?.join(separator) || "none");
/** @param {number | null} at */
const moment = (at) => (at === null ? "unknown" : dateTime(at));

/** @param {ImageRecord} first @param {Context} context */
function row(first, { clock }) {
  const link = h("a", {
    class: "open",
    href: imageHash(first.reference),
    text: first.reference,
    title: first.reference,
  });
  const [size, platform, uses, shared, pulled] = [h("span"), h("span"), h("span"), h("span"), h("time")];
  return {
    element: tableRow(COLUMNS, [link, size, platform, uses, shared, pulled], { "data-id": first.reference }),
    /** @param {ImageRecord} next */
    update(next) {
      setText(size, bytes(next.size_bytes));
      setText(platform, `${next.os}/${next.architecture}`);
      setText(uses, next.ref_count === 0 ? "none" : count(next.ref_count));
      setAttribute(uses, "title", "Containers and function versions that use the image");
      setText(shared, next.is_shared ? "shared" : "");
      setText(pulled, age(next.pulled_at, clock.epochMs()));
      pulled.title = dateTime(next.pulled_at);
    },
  };
}

/** @param {Context} context @returns {View} */
export function imagesView(context) {
  return listView(context, {
    noun: "image",
    columns: COLUMNS,
    words: { title: "Images", filter: "Filter by reference, id", create: "Pull image", address: "#/pull-image" },
    idOf: (/** @type {ImageRecord} */ { reference }) => reference,
    matches: ({ reference, id }, wanted) => `${reference}\n${id}`.toLowerCase().includes(wanted),
    row: (record) => row(record, context),
    ask: async () => {
      const { images, next_cursor } = await imagesOf(context.api).list();
      return { resources: images, next_cursor };
    },
  }).view;
}

/** @typedef {ImageDetail & { history: readonly HistoryEntry[] }} Shown */

/** @type {readonly [string, (shown: Shown) => string][]} */
const FACTS = [
  ["Id", ({ image }) => image.id],
  ["Manifest", ({ image }) => image.manifest_digest ?? "unknown"],
  ["Registry", ({ image }) => image.registry],
  ["Size", ({ image }) => bytes(image.size_bytes)],
  ["Platform", ({ image }) => `${image.os}/${image.architecture}`],
  ["Entry point", ({ image }) => words(image.entrypoint)],
  ["Command", ({ image }) => words(image.default_cmd)],
  ["Directory", ({ image }) => chosen(image.working_dir ?? "/")],
  ["User", ({ image }) => chosen(image.user_spec ?? "root")],
  ["Ports", ({ image }) => words(image.exposed_ports, ", ")],
  ["Volumes", ({ image }) => words(image.volumes, ", ")],
  ["Used by", ({ image }) => count(image.ref_count)],
  ["Built", ({ image }) => moment(image.created_at)],
  ["Pulled", ({ image }) => moment(image.pulled_at)],
  ["Last use", ({ image }) => (image.last_used_at === null ? "never" : dateTime(image.last_used_at))],
];

function content() {
  const layers = followedList(
    table("Layers", "layers slim", LAYER_COLUMNS),
    "No layers.",
    (/** @type {{ layer: ImageDetail["layers"][number], number: number }} */ { number }) => String(number),
    ({ layer, number }) => ({
      element: tableRow(LAYER_COLUMNS, [
        `${number}`,
        h("code", { text: digestText(layer.digest), title: layer.digest }),
        bytes(layer.size_bytes),
        layer.uncompressed_size === null ? "unknown" : bytes(layer.uncompressed_size),
      ]),
      update: () => {},
    }),
  );
  const steps = followedList(
    table("Build steps", "steps slim", STEP_COLUMNS),
    "The image names no build steps.",
    (/** @type {{ step: HistoryEntry, number: number }} */ { number }) => String(number),
    ({ step, number }) => ({
      element: tableRow(STEP_COLUMNS, [
        `${number}`,
        h("code", { text: chosen(step.created_by || step.comment || "unknown") }),
        step.empty_layer ? "" : bytes(step.size_bytes),
      ]),
      update: () => {},
    }),
  );
  const more = h("p", { class: "hint", hidden: true });
  return {
    elements: [card("Layers", ...layers.elements), card("Build steps", more, ...steps.elements)],
    /** @param {Shown} shown */
    update(shown) {
      layers.update(shown.layers.slice(0, ROWS_MAX).map((layer, i) => ({ layer, number: i + 1 })));
      steps.update(shown.history.slice(0, ROWS_MAX).map((step, i) => ({ step, number: i + 1 })));
      show(more, shown.history.length > ROWS_MAX);
      setText(more, `The first ${ROWS_MAX} of ${counted(shown.history.length, "step")}.`);
    },
  };
}

/** @param {Context} context @param {string} reference @returns {View} */
export function imageView(context, reference) {
  const images = imagesOf(context.api);
  return resourcePage(context, {
    title: "Image",
    up: UP,
    facts: FACTS,
    nameOf: (/** @type {Shown} */ { image }) => image.reference,
    stateOf: () => null,
    hintOf: ({ image }) => (image.is_shared ? "shared with all tenants" : ""),
    ask: async () => ({ ...(await images.inspect(reference)), ...(await images.history(reference)) }),
    buttons: ({ trouble, current, onMoved, remove }) => {
      const button = recordButtons(context, trouble, current, onMoved);
      const deletion = button("Delete", "danger", async ({ image }) => {
        const text =
          "hearth deletes the reference, and the image if no other reference names it. It can be pulled again.";
        if (!(await confirm(`Delete ${image.reference}?`, text, "Delete"))) return null;
        await remove(() => images.remove(image.reference));
        return `${image.reference} is deleted`;
      });
      return { elements: [deletion], update: () => show(deletion, context.api.may("write")) };
    },
    content: content(),
  });
}

/** @param {Context} context @returns {View} */
export function pullImageView({ api, say, refresh }) {
  const trouble = problem();
  const reference = h("input", {
    id: "image-reference",
    required: true,
    maxlength: 512,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "alpine:3.20",
  });
  const button = h("button", { class: "primary", type: "submit", text: "Pull" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const { operation_id } = await imagesOf(api).pull(reference.value.trim());
      say(`the pull of ${reference.value.trim()} has begun`);
      location.hash = operationHash(operation_id);
      refresh();
    });
  };
  const about =
    "[<registry>/]<repository>[:<tag>][@<digest>]. Without a registry it is docker.io, without a tag latest.";
  const form = h(
    "form",
    { onsubmit },
    labelled("Reference", reference, about),
    trouble.element,
    h("p", { class: "actions" }, button),
  );
  return {
    element: h("div", { class: "narrow" }, crumbs([["Images", "#/images"]], "Pull").element, card("Pull image", form)),
    title: () => "Pull image",
    up: "#/images",
    refresh: async () => {},
    focus: () => reference.focus(),
  };
}
