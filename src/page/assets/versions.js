/** The versions of a function: which one is current, one click to any other, and the form that makes the next. */
import { h, KeyedList, setText, show } from "./dom.js";
import { dateTime } from "./format.js";
import { act, badge, card, problem, sendOnEnter } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord, VersionRecord } from "../wire.ts" */

/**
 * @param {Context} context
 * @param {(record: FunctionRecord) => void} onChanged the pointer has moved
 */
export function versionsCard({ api, say }, onChanged) {
  const trouble = problem();
  const rows = h("ol", { class: "versions", "aria-label": "Versions, newest first" });
  let current = 0;
  const list = new KeyedList(
    rows,
    (/** @type {VersionRecord} */ { version }) => String(version),
    ({ function_id, version, handler, created_at }) => {
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
        h("small", { text: dateTime(created_at) }),
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
  return {
    element: card("Versions", trouble.element, rows, more),
    /** @param {readonly VersionRecord[]} versions @param {FunctionRecord} record @param {number} versions_max */
    update(versions, record, versions_max) {
      current = record.version;
      list.update(versions);
      show(more, versions.length === versions_max);
      setText(more, `The newest ${versions_max}.`);
    },
  };
}

/**
 * @param {Context} context
 * @param {(record: FunctionRecord) => void} onChanged
 */
export function updateCard({ api, say }, onChanged) {
  const trouble = problem();
  const handler = h("textarea", {
    id: "next-handler",
    rows: 3,
    required: true,
    spellcheck: "false",
    onkeydown: sendOnEnter,
  });
  const button = h("button", { type: "submit", text: "Create version" });
  /** @type {FunctionRecord | null} */
  let from = null;
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      if (from === null) return;
      const record = await api.update(from.id, { handler: handler.value });
      onChanged(record);
      say(`Version ${record.version} is current`);
    });
  };
  const form = h(
    "form",
    { onsubmit },
    h("label", { for: "next-handler", text: "Handler" }),
    handler,
    trouble.element,
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" })),
  );
  return {
    element: card("New version", form),
    /** What somebody has begun to write stays. @param {FunctionRecord} record @param {number} newest_version */
    update(record, newest_version) {
      if (from === null || handler.value === from.handler) handler.value = record.handler;
      from = record;
      setText(button, `Create version ${newest_version + 1}`);
    },
  };
}
