/** The comparison of two versions: settings with both values, and the files of the code that differ. */
import { h, show } from "./dom.js";
import { counted, shortDigest } from "./format.js";
import { codeOf } from "./resources.js";
import { act, badge, labelled, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord, VersionDiff, VersionRecord } from "../wire.ts" */

/** @param {VersionDiff["changes"][number]["from"]} value */
const textOf = (value) => (value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value));

/** @typedef {{ field: string, from: string, to: string }} Change */

/** The variables that differ. Their values are not shown. @param {VersionDiff["changes"][number]} change @returns {Change[]} */
function variables({ from, to }) {
  const [before, after] = [from, to].map((value) => new Map(Object.entries(value ?? {})));
  const names = new Set([...(before?.keys() ?? []), ...(after?.keys() ?? [])]);
  return [...names].flatMap((name) => {
    const [old, next] = [before?.get(name), after?.get(name)];
    if (JSON.stringify(old) === JSON.stringify(next)) return [];
    const [was, is] =
      old === undefined ? ["not set", "set"] : next === undefined ? ["set", "not set"] : ["set", "changed"];
    return [{ field: `environment ${name}`, from: was, to: is }];
  });
}

/** @param {VersionDiff["changes"][number]} change @returns {Change[]} */
function rowsOf(change) {
  const { field, from, to } = change;
  if (field === "environment") return variables(change);
  const shorter = field === "code_sha256" ? shortDigest : (/** @type {string} */ text) => text;
  return [{ field, from: shorter(textOf(from)), to: shorter(textOf(to)) }];
}

/** @param {VersionDiff} diff */
function shown({ changes, files, is_truncated }) {
  const settings = h("dl", { class: "facts changes" });
  for (const { field, from, to } of changes.flatMap(rowsOf)) {
    const values = [h("del", { text: from }), " → ", h("ins", { text: to })];
    settings.append(h("div", {}, h("dt", { text: field }), h("dd", {}, ...values)));
  }
  const list = h("ul", { class: "plain changed-files", tabindex: 0, "aria-label": "Files that differ" });
  for (const { path, change } of files) list.append(h("li", {}, badge(change).element, h("code", { text: path })));
  const count = `${counted(files.length, "file")}${is_truncated ? ", the first ones," : ""} ${files.length === 1 ? "differs" : "differ"}.`;
  const none = changes.length === 0 && files.length === 0;
  return [
    settings,
    files.length > 0 ? list : null,
    h("p", { class: "hint", text: none ? "No difference." : count }),
  ].filter((part) => part !== null);
}

/** @param {Context} context */
export function versionDiff({ api }) {
  const trouble = problem();
  const from = h("select", { id: "diff-from" });
  const to = h("select", { id: "diff-to" });
  const button = h("button", { type: "submit", text: "Compare" });
  const result = h("div", { class: "diff" });
  let function_id = "";
  let listed = "";
  let isChosen = false;
  const onchange = () => {
    isChosen = true;
  };
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      result.replaceChildren(...shown(await codeOf(api).diff(function_id, Number(from.value), Number(to.value))));
    });
  };
  const form = h("form", { onsubmit, onchange, class: "compare" }, labelled("From", from), labelled("To", to), button);
  const element = h(
    "details",
    { class: "comparison", hidden: true },
    h("summary", { text: "Compare versions" }),
    form,
    trouble.element,
    result,
  );
  return {
    element,
    /** Selects the newest two, unless the user has selected others. @param {readonly VersionRecord[]} versions newest first @param {FunctionRecord} record */
    update(versions, record) {
      function_id = record.id;
      show(element, versions.length > 1);
      const numbers = versions.map(({ version }) => version);
      if (numbers.join() === listed) return;
      listed = numbers.join();
      for (const [i, select] of [to, from].entries()) {
        const { value } = select;
        select.replaceChildren(...numbers.map((number) => h("option", { value: number, text: `v${number}` })));
        select.value = isChosen && numbers.includes(Number(value)) ? value : String(numbers[i] ?? "");
      }
    },
  };
}
