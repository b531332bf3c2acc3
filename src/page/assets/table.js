/** Tables: rows that follow a list, walked with j and k or, from inside, with the arrows. */
import { h, KeyedList, setAttribute, setText, show } from "./dom.js";

/** @import { Child, Entry } from "./dom.js" */

/** @param {string} column */
const classOf = (column) => `cell col-${column.toLowerCase().replace(" ", "-")}`;

/**
 * A row with a cell for each column.
 * @param {readonly string[]} columns
 * @param {readonly Child[]} contents
 * @param {Readonly<Record<string, string>>} [attributes]
 */
export function tableRow(columns, contents, attributes = {}) {
  const element = h("div", { role: "row", class: "row", ...attributes });
  columns.forEach((column, i) => {
    const cell = h("span", { role: "cell", class: classOf(column), "data-label": column }, contents[i] ?? null);
    element.append(cell);
  });
  return element;
}

/** The step that an arrow key means. @param {KeyboardEvent} event @returns {1 | -1 | 0} */
export const stepOf = ({ key }) => (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0);

/**
 * Moves the focus between the `.open` parts of rows, with the arrows too. Returns what does a step.
 * @param {HTMLElement} rows
 */
export function walked(rows) {
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
  return move;
}

/**
 * Gives a cell whose text is cut its whole text as a title, when the pointer comes to it: only then is it known what is cut.
 * @param {HTMLElement} rows
 */
function entitled(rows) {
  /** @type {WeakSet<Element>} */
  const own = new WeakSet();
  rows.addEventListener("pointerover", ({ target }) => {
    const cell = target instanceof Element ? target.closest(".cell") : null;
    if (!(cell instanceof HTMLElement) || (!own.has(cell) && cell.querySelector("[title]") !== null)) return;
    const isCut = [cell, ...cell.children].some(
      ({ scrollWidth, clientWidth }) => scrollWidth > clientWidth && clientWidth > 0,
    );
    if (isCut) own.add(cell);
    if (own.has(cell)) setAttribute(cell, "title", isCut ? cell.textContent : null);
  });
}

/**
 * A table without rows, hidden until it is shown. Each of its rows has one `.open`, which takes the focus.
 * @param {string} label
 * @param {string} kind class of the whole
 * @param {readonly string[]} columns
 * @param {string} [rows_role] of the parent of the rows
 */
export function table(label, kind, columns, rows_role = "rowgroup") {
  const head = h("div", { role: "row", class: "row head" });
  for (const name of columns) head.append(h("span", { role: "columnheader", class: classOf(name), text: name }));
  const rows = h("div", { role: rows_role, class: "rows" });
  entitled(rows);
  const groups = [h("div", { role: "rowgroup" }, head), rows];
  const element = h("div", { role: "table", class: `table ${kind}`, "aria-label": label, hidden: true }, ...groups);
  return { element, rows, move: walked(rows) };
}

/**
 * A table whose rows follow a list, and a sentence in its place while the list is empty.
 * @template Item
 * @param {ReturnType<typeof table>} table
 * @param {string} none the sentence
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Entry<Item>} rowOf
 */
export function followedList({ element, rows, move }, none, keyOf, rowOf) {
  const sentence = h("p", { class: "hint", text: none });
  const list = new KeyedList(rows, keyOf, rowOf);
  return {
    elements: [sentence, element],
    rows,
    move,
    /** @param {string} key */
    get: (key) => list.get(key)?.element ?? null,
    /** @param {readonly Item[]} items @param {string} [noneText] the sentence from now on */
    update(items, noneText = none) {
      list.update(items);
      show(element, items.length > 0);
      show(sentence, items.length === 0);
      setText(sentence, noneText);
    },
    /** Shows neither table nor sentence. */
    hide() {
      show(element, false);
      show(sentence, false);
    },
  };
}

/**
 * The bar above a list: its title, a filter, how many there are, and the link to the form for a new one.
 * @param {{ title: string, filter: string, create?: string, address?: string }} words without `create` there is no such form
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
  const { create: text = "", address = "" } = words;
  const create = h("a", {
    class: "button primary",
    href: address,
    text,
    hidden: text === "",
    "aria-keyshortcuts": "n",
  });
  const slash = h("kbd", { text: "/", "aria-hidden": "true" });
  const element = h("div", { class: "toolbar" }, title, filter, slash, summary, create);
  return { element, filter, summary, create, focus: () => title.focus() };
}
