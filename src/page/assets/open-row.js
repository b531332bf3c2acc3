/** A row that opens to more of its item. The page asks for it then, and keeps it no longer than it is looked at. */
import { h, setAttribute, show } from "./dom.js";
import { tableRow } from "./table.js";
import { problem } from "./widgets.js";

/** @import { Attribute, Child } from "./dom.js" */

/**
 * @param {readonly string[]} columns
 * @param {Readonly<Record<string, Attribute>>} attributes of the button in the first column
 * @param {readonly Child[]} contents of the other columns
 * @param {() => Promise<Node>} load makes the part that the row opens to
 * @param {Readonly<Record<string, string>>} [own] attributes of the whole
 */
export function openRow(columns, attributes, contents, load, own = {}) {
  const detail = h("div", { role: "row", class: "opened", hidden: true });
  const button = h("button", { type: "button", class: "open", "aria-expanded": "false", ...attributes });
  const trouble = problem();
  const open = async () => {
    if (detail.childElementCount > 0) return;
    const loading = h("p", { class: "hint", text: "Loading…" });
    const whole = h("div", { role: "cell", "aria-colspan": columns.length }, trouble.element, loading);
    detail.append(whole);
    try {
      whole.replaceChildren(await load());
    } catch (error) {
      whole.replaceChildren(trouble.element);
      trouble.update(error);
    }
  };
  button.addEventListener("click", () => {
    const isOpen = button.getAttribute("aria-expanded") !== "true";
    setAttribute(button, "aria-expanded", String(isOpen));
    show(detail, isOpen);
    if (isOpen) void open();
    else detail.replaceChildren();
  });
  const line = tableRow(columns, [button, ...contents]);
  return { element: h("div", { class: "entry", role: "rowgroup", ...own }, line, detail), button };
}
