/** The secrets of the tenant: their names and sizes, and the forms that set them. No answer of the API has a value. */
import { secretHash } from "./addresses.js";
import { confirm } from "./dialogs.js";
import { h, setText, show } from "./dom.js";
import { age, bytes, dateTime } from "./format.js";
import { listView } from "./list-view.js";
import { secretsOf } from "./resources.js";
import { tableRow } from "./table.js";
import { untilDeleted } from "./view.js";
import { act, card, crumbs, facts, labelled, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { SecretRecord } from "../wire.ts" */

const COLUMNS = ["Name", "Size", "Changed", "Created"];
/** @type {readonly [string, (record: SecretRecord) => string][]} */
const FACTS = [
  ["Size", ({ size_bytes }) => bytes(size_bytes)],
  ["Changed", ({ updated_at }) => dateTime(updated_at)],
  ["Created", ({ created_at }) => dateTime(created_at)],
  ["As a variable", ({ name }) => JSON.stringify({ secret: name })],
  ["As a file", ({ name }) => `/run/secrets/${name}`],
];

/** @param {SecretRecord} first @param {Context} context */
function row(first, { clock }) {
  const link = h("a", { class: "open", href: secretHash(first.name), text: first.name });
  const [size, changed, created] = [h("span"), h("time"), h("time")];
  return {
    element: tableRow(COLUMNS, [link, size, changed, created], { "data-id": first.name }),
    /** @param {SecretRecord} next */
    update({ size_bytes, updated_at, created_at }) {
      setText(size, bytes(size_bytes));
      setText(changed, age(updated_at, clock.epochMs()));
      changed.title = dateTime(updated_at);
      setText(created, age(created_at, clock.epochMs()));
      created.title = dateTime(created_at);
    },
  };
}

/** @param {Context} context @returns {View} */
export function secretsView(context) {
  const { view } = listView(context, {
    noun: "secret",
    columns: COLUMNS,
    words: { title: "Secrets", filter: "Filter by name", create: "New secret", address: "#/new-secret" },
    idOf: (/** @type {SecretRecord} */ { name }) => name,
    matches: ({ name }, wanted) => name.toLowerCase().includes(wanted),
    row: (record) => row(record, context),
    ask: async () => {
      const { secrets, next_cursor } = await secretsOf(context.api).list();
      return { resources: secrets, next_cursor };
    },
  });
  return view;
}

/** The value as text, or a file as it is. */
function valueFields() {
  const text = h("textarea", { id: "secret-value", rows: 3, autocomplete: "off", spellcheck: "false" });
  const file = h("input", { id: "secret-file", type: "file" });
  return {
    elements: [
      labelled("Value", text, "1 byte to 64 KiB. hearth encrypts it and shows it nowhere."),
      labelled("Or a file", file),
    ],
    async body() {
      const [chosen] = file.files ?? [];
      if (chosen === undefined) return { value: text.value };
      const content = new Uint8Array(await chosen.arrayBuffer());
      return { value_base64: btoa(Array.from(content, (byte) => String.fromCharCode(byte)).join("")) };
    },
    clear() {
      text.value = "";
      file.value = "";
    },
  };
}

/** @param {Context} context @returns {View} */
export function newSecretView({ api, say, refresh }) {
  const trouble = problem();
  const name = h("input", {
    id: "secret-name",
    required: true,
    maxlength: 64,
    pattern: "[A-Za-z_][A-Za-z0-9_.\\-]*",
    title: "ASCII letters, digits, '_', '.' and '-', beginning with a letter or '_'",
    autocomplete: "off",
    spellcheck: "false",
  });
  const value = valueFields();
  const button = h("button", { class: "primary", type: "submit", text: "Set" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const record = await secretsOf(api).set(name.value, await value.body());
      value.clear();
      say(`${record.name} is set`);
      location.hash = "#/secrets";
      refresh();
    });
  };
  const form = h(
    "form",
    { onsubmit },
    labelled("Name", name, "A secret of this name gets the new value."),
    ...value.elements,
    trouble.element,
    h("p", { class: "actions" }, button),
  );
  return {
    element: h("div", { class: "narrow" }, crumbs([["Secrets", "#/secrets"]], "New").element, card("New secret", form)),
    title: () => "New secret",
    up: "#/secrets",
    refresh: async () => {},
    focus: () => name.focus(),
  };
}

/** @param {Context} context @param {string} name @returns {View} */
export function secretView({ api, say, refresh }, name) {
  const secrets = secretsOf(api);
  const missing = problem();
  const trouble = problem();
  const title = h("h1", { tabindex: -1, text: name });
  const about = facts(FACTS);
  const value = valueFields();
  const button = h("button", { class: "primary", type: "submit", text: "Replace the value" });
  const remove = h("button", { type: "button", class: "danger", text: "Delete" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      about.update(await secrets.set(name, await value.body()));
      value.clear();
      say(`${name} has a new value`);
    });
  };
  remove.addEventListener("click", () =>
    act(remove, trouble, async () => {
      const question = "Instances that run keep it until they end. Functions that name it cannot start new instances.";
      if (!(await confirm(`Delete ${name}?`, question, "Delete"))) return;
      await rounds.remove(() => secrets.remove(name));
      say(`${name} is deleted`);
      location.hash = "#/secrets";
      refresh();
    }),
  );
  const form = h("form", { onsubmit }, ...value.elements, h("p", { class: "actions" }, button));
  const hint = h("p", {
    class: "hint",
    text: "New instances of functions get it. Running ones keep the previous value.",
  });
  const body = h(
    "div",
    { class: "wide", hidden: true },
    h("div", { class: "title" }, title, h("span", { class: "end" }, remove)),
    trouble.element,
    card("Secret", about.element),
    card("New value", form, hint),
  );
  const round = async () => {
    about.update(await secrets.get(name));
    for (const part of [remove, form]) show(part, api.may("write"));
    show(body, true);
  };
  const rounds = untilDeleted(round, missing, () => show(body, false));
  return {
    element: h("div", { class: "narrow" }, crumbs([["Secrets", "#/secrets"]], name).element, missing.element, body),
    title: () => name,
    up: "#/secrets",
    refresh: rounds.refresh,
    focus: () => title.focus(),
  };
}
