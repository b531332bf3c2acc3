/** The form that makes the next version of a function. */
import { h, setText, show } from "./dom.js";
import { versionFields } from "./version-fields.js";
import { act, card, labelled, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord } from "../wire.ts" */

function smokeField() {
  const check = h("input", { id: "next-smoke", type: "checkbox" });
  const payload = h("textarea", { id: "next-smoke-payload", rows: 2, spellcheck: "false" });
  const asked = labelled("Input of the test call", payload, "If the call fails, the current version stays.");
  const draw = () => show(asked, check.checked);
  check.addEventListener("change", draw);
  draw();
  return {
    elements: [h("label", { class: "check" }, check, "Call the new version before it becomes active"), asked],
    body: () => (check.checked ? { smoke: { payload: payload.value } } : {}),
  };
}

/**
 * @param {Context} context
 * @param {(record: FunctionRecord) => void} onChanged
 */
export function updateCard(context, onChanged) {
  const { api, say } = context;
  const trouble = problem();
  const fields = versionFields(context, "next");
  const { handler, runtime, gpus } = fields;
  const smoke = smokeField();
  const note = h("input", { id: "next-note", maxlength: 1000, autocomplete: "off" });
  const button = h("button", { type: "submit", text: "Create version" });
  /** @type {FunctionRecord | null} */
  let from = null;
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      if (from === null) return;
      const { id } = from;
      const body = { ...(await fields.body()), ...smoke.body(), ...(note.value === "" ? {} : { note: note.value }) };
      const record = await api.update(id, body);
      fields.clear();
      note.value = "";
      onChanged(record);
      say(`Version ${record.version} is current`);
    });
  };
  const form = h(
    "form",
    { onsubmit },
    ...fields.elements,
    labelled("Note", note),
    ...smoke.elements,
    trouble.element,
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" })),
  );
  return {
    element: card("New version", form),
    leave: fields.leave,
    refresh: gpus.refresh,
    /** Edited fields stay. @param {FunctionRecord} record @param {number} newest_version */
    update(record, newest_version) {
      if (from === null || handler.value === from.handler) handler.value = record.handler;
      if (from === null || runtime.value === from.runtime) runtime.value = record.runtime;
      if (from === null || Number(gpus.input.value) === from.gpu_count) gpus.set(record.gpu_count);
      from = record;
      fields.setHasCode(record.code_sha256 !== null);
      setText(button, `Create version ${newest_version + 1}`);
    },
  };
}
