/** What a function is: the fields of its current version and of itself. Values of the environment are shown when asked for. */
import { h, KeyedList, setText, show } from "./dom.js";
import { bytes, counted, dateTime, shortDigest } from "./format.js";
import { codeOf } from "./resources.js";
import { save } from "./transfer.js";
import { act, card, facts, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord } from "../wire.ts" */

/** @type {readonly [string, (record: FunctionRecord) => string][]} */
const FACTS = [
  ["Runtime", ({ runtime, protocol }) => (runtime === "custom" ? `custom, protocol ${protocol ?? "http"}` : runtime)],
  ["Memory", ({ memory_limit_mb }) => `${memory_limit_mb} MiB`],
  ["CPU", ({ cpu_limit_percent }) => (cpu_limit_percent === null ? "no quota" : `${cpu_limit_percent} % of a core`)],
  ["GPUs", ({ gpu_count }) => (gpu_count === 0 ? "none" : counted(gpu_count, "GPU"))],
  ["Timeout", ({ timeout_seconds }) => `${timeout_seconds} s`],
  ["Instances", ({ min_instances, max_instances }) => `${min_instances} to ${max_instances}`],
  ["Per instance", ({ instance_concurrency }) => `${counted(instance_concurrency, "call")} at a time`],
  [
    "Replaced after",
    ({ instance_calls_max }) => (instance_calls_max === null ? "no limit" : counted(instance_calls_max, "call")),
  ],
  [
    "Concurrency",
    ({ concurrency_limit }) => (concurrency_limit === null ? "no limit" : counted(concurrency_limit, "call")),
  ],
  ["Secret files", ({ secrets }) => secrets.map((name) => `/run/secrets/${name}`).join(", ") || "none"],
  ["Egress", ({ egress }) => (typeof egress === "string" ? egress : egress.join(", "))],
  [
    "Directory",
    ({ working_directory, code_sha256 }) => working_directory ?? (code_sha256 === null ? "/" : "/function"),
  ],
  ["Calls the API", ({ api_access }) => (api_access ? "yes, as its tenant" : "no")],
  [
    "After each call",
    ({ runtime, cleanup_on_exit, reset_between_calls }) =>
      (runtime === "shell" ? cleanup_on_exit : reset_between_calls)
        ? "leftovers are ended, /tmp is emptied"
        : "processes and /tmp stay",
  ],
  ["Created", ({ created_at }) => dateTime(created_at)],
  ["Id", ({ id }) => id],
];

/** Size and digest of the code, and its download. @param {Context} context */
function codePart(context) {
  const trouble = problem();
  const words = h("p", { class: "hint" });
  const button = h("button", { type: "button", class: "quiet", text: "Download", "aria-label": "Download the code" });
  /** @type {FunctionRecord | null} */
  let record = null;
  button.addEventListener("click", () =>
    act(button, trouble, async () => {
      if (record === null) return;
      const { id, name, version } = record;
      save(context, `${name}-v${version}.tar.gz`, await codeOf(context.api).get(id, version));
    }),
  );
  return {
    elements: [h("h3", {}, "Code ", button), words, trouble.element],
    /** @param {FunctionRecord} next */
    update(next) {
      record = next;
      const { code_sha256, code_size_bytes } = next;
      show(button, code_sha256 !== null);
      setText(
        words,
        code_sha256 === null ? "No code." : `${bytes(code_size_bytes ?? 0)}, digest ${shortDigest(code_sha256)}`,
      );
      words.title = code_sha256 ?? "";
    },
  };
}

/** @param {Context} context */
export function descriptionCard(context) {
  const code = codePart(context);
  const handler = h("pre", { class: "output", tabindex: 0, "aria-label": "Handler" });
  const about = h("p", { class: "about" });
  const fields = facts(FACTS);

  let isShown = false;
  const none = h("p", { class: "hint", text: "No variables." });
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false", text: "Show values" });
  const entries = h("dl", { class: "facts column environment" });
  /** @typedef {{ name: string, value: string, isSecret: boolean }} Variable */
  const list = new KeyedList(
    entries,
    (/** @type {Variable} */ { name }) => name,
    ({ name }) => {
      const shown = h("code");
      return {
        element: h("div", {}, h("dt", {}, h("code", { text: name })), h("dd", {}, shown)),
        // A hidden value is not in the document at all.
        update: ({ value, isSecret }) => setText(shown, isShown || isSecret ? value : "••••••"),
      };
    },
  );
  /** @type {FunctionRecord["environment"]} */
  let environment = {};
  const draw = () => {
    const variables = Object.entries(environment).map(([name, value]) => ({
      name,
      value: typeof value === "string" ? value : `secret ${value.secret}`,
      isSecret: typeof value !== "string",
    }));
    list.update(variables);
    show(none, variables.length === 0);
    show(
      toggle,
      variables.some(({ isSecret }) => !isSecret),
    );
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
    ...code.elements,
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
      code.update(record);
      fields.update(record);
      environment = record.environment;
      draw();
    },
  };
}
