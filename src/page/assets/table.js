/** The tables of the page: a row each for what can be opened, walked with j and k or, from inside, with the arrows. */
import { h } from "./dom.js";

/** @param {string} column */
const classOf = (column) => `cell col-${column.toLowerCase().replace(" ", "-")}`;

/** @param {string} column @param {(Node | string)[]} children */
export function cell(column, ...children) {
  return h("span", { role: "cell", class: classOf(column), "data-label": column }, ...children);
}

/** The step that an arrow key means. @param {KeyboardEvent} event @returns {1 | -1 | 0} */
export const stepOf = ({ key }) => (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0);

/**
 * An empty one, hidden until there is something to show. Its rows hold one `.open` each, which takes the focus.
 * @param {string} label
 * @param {string} kind class of the whole
 * @param {readonly string[]} columns
 * @param {string} rows_role of what the rows lie in
 */
export function table(label, kind, columns, rows_role) {
  const head = h("div", { role: "row", class: "row head" });
  for (const name of columns) head.append(h("span", { role: "columnheader", class: classOf(name), text: name }));
  const rows = h("div", { role: rows_role, class: "rows" });
  const groups = [h("div", { role: "rowgroup" }, head), rows];
  const element = h("div", { role: "table", class: `table ${kind}`, "aria-label": label, hidden: true }, ...groups);
  /** @param {1 | -1} step */
  const move = (step) => {
    const all = /** @type {HTMLElement[]} */ ([...rows.querySelectorAll(".open")]);
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))]?.focus();
  };
  rows.addEventListener("keydown", (event) => {
    const step = stepOf(event);
    if (step === 0 || !(event.target instanceof Element) || !event.target.matches(".open")) return;
    event.preventDefault();
    move(step);
  });
  return { element, rows, move };
}

/**
 * What stands above a list: its title, a filter, how many there are, and the way to a new one.
 * @param {{ title: string, filter: string, create: string, address: string }} words
 * @param {() => void} onFilter
 * @param {(step: 1 | -1) => void} move
 */
export function listBar(words, onFilter, move) {
  const summary = h("p", { class: "hint", "aria-live": "polite" });
  const filter = h("input", {
    type: "search",
    placeholder: words.filter,
    "aria-label": `Filter ${words.title.toLowerCase()}`,
    "aria-keyshortcuts": "/",
    oninput: onFilter,
  });
  filter.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && stepOf(event) !== 1) return;
    event.preventDefault();
    move(1);
  });
  const title = h("h1", { tabindex: -1, text: words.title });
  const create = h("a", { class: "button primary", href: words.address, text: words.create, "aria-keyshortcuts": "n" });
  const slash = h("kbd", { text: "/", "aria-hidden": "true" });
  const element = h("div", { class: "toolbar" }, title, filter, slash, summary, create);
  return { element, filter, summary, create, focus: () => title.focus() };
}
