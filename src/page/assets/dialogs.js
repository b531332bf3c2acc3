/** The dialogs of the page: a question before something is lost, a form, and the list of keys. */
import { h } from "./dom.js";

const KEYS = [
  ["/", "filter the list"],
  ["j k", "next, previous row; arrows in a row too"],
  ["Enter", "open the row"],
  ["Esc", "leave a field, then go back"],
  ["n", "new function, container, image, volume or secret"],
  ["i", "go to the payload"],
  ["Ctrl+Enter", "submit the form"],
  ["?", "show these keys"],
];

/**
 * Shows a dialog until it is closed, and gives the focus back to where it was.
 * @param {HTMLDialogElement} dialog
 * @returns {Promise<string>} what it was closed with; empty after Escape
 */
function shown(dialog) {
  const { activeElement } = document;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (activeElement instanceof HTMLElement) activeElement.focus();
      resolve(dialog.returnValue);
    });
  });
}

/** @param {string} title @param {string} text @param {string} action */
export async function confirm(title, text, action) {
  const dialog = h("dialog", { "aria-labelledby": "confirm-title" });
  const cancel = h("button", { type: "button", autofocus: true, text: "Cancel", onclick: () => dialog.close("") });
  const go = h("button", { type: "button", class: "danger", text: action, onclick: () => dialog.close("yes") });
  dialog.append(
    h("h2", { id: "confirm-title", text: title }),
    h("p", { text }),
    h("p", { class: "actions" }, cancel, go),
  );
  return (await shown(dialog)) === "yes";
}

/**
 * Asks with a form. Resolves to what `read` returns once it is submitted; null: cancelled.
 * @template Answer
 * @param {string} title
 * @param {readonly (Node | null)[]} fields
 * @param {string} action
 * @param {() => Answer} read
 * @returns {Promise<Answer | null>}
 */
export async function askForm(title, fields, action, read) {
  const dialog = h("dialog", { "aria-labelledby": "form-title" });
  const cancel = h("button", { type: "button", text: "Cancel", onclick: () => dialog.close("") });
  const go = h("button", { class: "primary", type: "submit", text: action });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    dialog.close("yes");
  };
  dialog.append(
    h("h2", { id: "form-title", text: title }),
    h("form", { onsubmit }, ...fields, h("p", { class: "actions" }, cancel, go)),
  );
  return (await shown(dialog)) === "yes" ? read() : null;
}

/** Asks for a name. @param {string} title @param {string} name @param {string} action @returns {Promise<string>} empty: never mind */
export async function askName(title, name, action) {
  const field = h("input", { id: "asked-name", required: true, maxlength: 128, autocomplete: "off", value: name });
  const label = h("label", { for: "asked-name", text: "Name" });
  const answer = askForm(title, [label, field], action, () => field.value);
  field.select();
  return (await answer) ?? "";
}

export async function showKeys() {
  const list = h("dl", { class: "keys" });
  for (const [keys = "", meaning = ""] of KEYS) {
    const term = h("dt");
    for (const key of keys.split(" ")) term.append(h("kbd", { text: key }));
    list.append(h("div", {}, term, h("dd", { text: meaning })));
  }
  const dialog = h("dialog", { "aria-labelledby": "keys-title" });
  const close = h("button", { type: "button", autofocus: true, text: "Close", onclick: () => dialog.close("") });
  dialog.append(h("h2", { id: "keys-title", text: "Keys" }), list, h("p", { class: "actions" }, close));
  await shown(dialog);
}
