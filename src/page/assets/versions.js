/** The versions of a function with their authors, the button that activates one, and the comparison of two. */
import { h, KeyedList, setText, show } from "./dom.js";
import { bytes, dateTime } from "./format.js";
import { versionDiff } from "./version-diff.js";
import { act, badge, card, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord, VersionRecord } from "../wire.ts" */

/** @param {VersionRecord} version */
const madeText = ({ created_at, made_by, code_size_bytes }) =>
  [
    dateTime(created_at),
    ...(made_by === null ? [] : [`by ${made_by}`]),
    ...(code_size_bytes === null ? [] : [`code ${bytes(code_size_bytes)}`]),
  ].join(" · ");

/**
 * @param {Context} context
 * @param {(record: FunctionRecord) => void} onChanged the pointer has moved
 */
export function versionsCard(context, onChanged) {
  const { api, say } = context;
  const trouble = problem();
  const rows = h("ol", { class: "versions", "aria-label": "Versions, newest first" });
  let current = 0;
  const list = new KeyedList(
    rows,
    (/** @type {VersionRecord} */ { version }) => String(version),
    (first) => {
      const { function_id, version, handler, note } = first;
      const active = badge("current").element;
      const button = h("button", {
        type: "button",
        text: "Roll back",
        "aria-label": `Roll back to version ${version}`,
      });
      button.addEventListener("click", () =>
        act(button, trouble, async () => {
          onChanged(await api.rollback(function_id, version));
          say(`Version ${version} is current`);
        }),
      );
      const element = h(
        "li",
        {},
        h("strong", { text: `v${version}` }),
        h("code", { text: handler, title: handler }),
        h("small", { text: madeText(first) }),
        note === null ? null : h("small", { class: "note", text: note }),
        h("span", { class: "end" }, active, button),
      );
      return {
        element,
        update() {
          show(active, version === current);
          show(button, version !== current);
          setText(button, version < current ? "Roll back" : "Activate");
          button.setAttribute("aria-label", `${version < current ? "Roll back to" : "Activate"} version ${version}`);
        },
      };
    },
  );
  const more = h("p", { class: "hint" });
  const diff = versionDiff(context);
  return {
    element: card("Versions", trouble.element, rows, more, diff.element),
    /** @param {readonly VersionRecord[]} versions @param {FunctionRecord} record @param {number} versions_max */
    update(versions, record, versions_max) {
      current = record.version;
      list.update(versions);
      diff.update(versions, record);
      show(more, versions.length === versions_max);
      setText(more, `The newest ${versions_max}.`);
    },
  };
}
