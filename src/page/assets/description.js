/** What a function is: the fields of its current version and of itself. Values of the environment are shown when asked for. */
import { h, KeyedList, setText, show } from "./dom.js";
import { counted, dateTime } from "./format.js";
import { card, facts } from "./widgets.js";

/** @import { FunctionRecord } from "../wire.ts" */

/** @type {readonly [string, (record: FunctionRecord) => string][]} */
const FACTS = [
  ["Runtime", ({ runtime }) => runtime],
  ["Memory", ({ memory_limit_mb }) => `${memory_limit_mb} MiB`],
  ["CPU", ({ cpu_limit_percent }) => (cpu_limit_percent === null ? "no quota" : `${cpu_limit_percent} % of a core`)],
  ["Timeout", ({ timeout_seconds }) => `${timeout_seconds} s`],
  ["Instances", ({ min_instances, max_instances }) => `${min_instances} to ${max_instances}`],
  [
    "Concurrency",
    ({ concurrency_limit }) => (concurrency_limit === null ? "no limit" : counted(concurrency_limit, "call")),
  ],
  ["Directory", ({ working_directory }) => working_directory ?? "default of the image"],
  ["Calls the API", ({ api_access }) => (api_access ? "yes, as its tenant" : "no")],
  ["After each call", ({ cleanup_on_exit }) => (cleanup_on_exit ? "/tmp is emptied" : "/tmp stays")],
  ["Created", ({ created_at }) => dateTime(created_at)],
  ["Id", ({ id }) => id],
];

export function descriptionCard() {
  const handler = h("pre", { class: "output", tabindex: 0, "aria-label": "Handler" });
  const about = h("p", { class: "about" });
  const fields = facts(FACTS);

  let isShown = false;
  const none = h("p", { class: "hint", text: "No variables." });
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false", text: "Show values" });
  const entries = h("dl", { class: "facts column environment" });
  /** @typedef {{ name: string, value: string }} Variable */
  const list = new KeyedList(
    entries,
    (/** @type {Variable} */ { name }) => name,
    ({ name }) => {
      const shown = h("code");
      return {
        element: h("div", {}, h("dt", {}, h("code", { text: name })), h("dd", {}, shown)),
        // A hidden value is not in the document at all.
        update: ({ value }) => setText(shown, isShown ? value : "••••••"),
      };
    },
  );
  /** @type {FunctionRecord["environment"]} */
  let environment = {};
  const draw = () => {
    const variables = Object.entries(environment).map(([name, value]) => ({
      name,
      value: typeof value === "string" ? value : `secret ${value.secret}`,
    }));
    list.update(variables);
    show(none, variables.length === 0);
    show(toggle, variables.length > 0);
  };
  toggle.addEventListener("click", () => {
    isShown = !isShown;
    toggle.setAttribute("aria-pressed", String(isShown));
    setText(toggle, isShown ? "Hide values" : "Show values");
    draw();
  });
  const title = h("h2", { text: "Current version" });
  const element = card(
    "Current version",
    about,
    handler,
    fields.element,
    h("h3", {}, "Environment ", toggle),
    none,
    entries,
  );
  element.querySelector("h2")?.replaceWith(title);
  return {
    element,
    /** @param {FunctionRecord} record */
    update(record) {
      setText(title, `Current version: v${record.version}`);
      setText(about, record.description ?? "");
      show(about, record.description !== null);
      setText(handler, record.handler);
      fields.update(record);
      environment = record.environment;
      draw();
    },
  };
}
