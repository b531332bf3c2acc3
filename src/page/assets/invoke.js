/** The form that calls the function, and the record of the last call made with it. */
import { h, setText, show } from "./dom.js";
import { recordView } from "./record-view.js";
import { act, card, problem, sendOnEnter } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord } from "../wire.ts" */

/** @type {Readonly<Record<string, string>>} */
const REFUSING = {
  pending: "Not deployed: deploy the function to call it.",
  paused: "Paused: resume the function to call it.",
  error: "The last deployment failed: deploy the function again to call it.",
  deleting: "Deletion in progress: calls are refused.",
};

/** @param {Context} context */
export function invokeCard({ api, clock, say, refresh }) {
  const trouble = problem();
  const note = h("p", { class: "hint" });
  const result = h("div", { class: "result" });
  const payload = h("textarea", {
    id: "payload",
    rows: 3,
    spellcheck: "false",
    onkeydown: sendOnEnter,
    "aria-keyshortcuts": "i",
  });
  const button = h("button", { class: "primary", type: "submit", text: "Invoke" });
  /** @type {FunctionRecord | null} */
  let target = null;
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      if (target === null) return;
      const begun_ms = clock.monotonicMs();
      const record = await api.invoke(target, payload.value);
      result.replaceChildren(recordView(record, clock.monotonicMs() - begun_ms));
      say(`${record.status}, ${record.cold_start ? "cold" : "warm"}`);
      refresh();
    });
  };
  const form = h(
    "form",
    { onsubmit },
    h("label", { for: "payload", text: "Payload" }),
    payload,
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" }), note),
    trouble.element,
  );
  return {
    element: card("Invoke", form, result),
    focus: () => payload.focus(),
    /** @param {FunctionRecord} record */
    update(record) {
      target = record;
      const refusal = REFUSING[record.state] ?? "";
      setText(note, refusal);
      show(note, refusal !== "");
    },
  };
}
