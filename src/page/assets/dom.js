/**
 * Elements made once and patched afterwards, so that focus, selection and scroll positions survive every refresh.
 *
 * D1. Text of the API becomes text nodes and attribute values, never markup: nothing here parses HTML.
 * D2. What has not changed is not written: a refresh that brings nothing new touches nothing.
 */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {string | number | boolean | null | ((event: any) => void)} Attribute */
/** @typedef {Node | string | null} Child */

/**
 * `class`, `text` and `on…` listeners by their names, `true` for an attribute without a value, all else as attributes.
 * @param {Element} element
 * @param {Readonly<Record<string, Attribute>>} attributes
 * @param {readonly Child[]} children
 */
function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice("on".length), value);
    else if (name === "text") element.textContent = String(value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Readonly<Record<string, Attribute>>} [attributes]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  furnish(element, attributes, children);
  return element;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Readonly<Record<string, Attribute>>} [attributes]
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  furnish(element, attributes, children);
  return element;
}

/** @param {Node} node @param {string | number} value */
export function setText(node, value) {
  const text = String(value);
  if (node.textContent !== text) node.textContent = text;
}

/** @param {Element} element @param {string} name @param {string | number | null} value */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** @param {HTMLElement} element @param {boolean} isShown */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/**
 * @template Item
 * @typedef {object} Entry
 * @property {HTMLElement} element
 * @property {(item: Item) => void} update
 * @property {() => void} [removed]
 */

/**
 * The children of one element as the items of a list: each is made when its key first comes and goes with it; those
 * that stay are never moved unless their order has changed.
 * @template Item
 */
export class KeyedList {
  #parent;
  #keyOf;
  #make;
  /** @type {Map<string, Entry<Item>>} */
  #entries = new Map();

  /**
   * @param {HTMLElement} parent
   * @param {(item: Item) => string} keyOf
   * @param {(item: Item) => Entry<Item>} make
   */
  constructor(parent, keyOf, make) {
    this.#parent = parent;
    this.#keyOf = keyOf;
    this.#make = make;
  }

  /** @param {string} key */
  get(key) {
    return this.#entries.get(key) ?? null;
  }

  /** @param {readonly Item[]} items */
  update(items) {
    const keys = new Set(items.map(this.#keyOf));
    for (const [key, entry] of this.#entries) {
      if (keys.has(key)) continue;
      entry.element.remove();
      entry.removed?.();
      this.#entries.delete(key);
    }
    let next = this.#parent.firstElementChild;
    for (const item of items) {
      const key = this.#keyOf(item);
      let entry = this.#entries.get(key);
      if (entry === undefined) {
        entry = this.#make(item);
        this.#entries.set(key, entry);
      }
      entry.update(item);
      if (entry.element === next) next = next.nextElementSibling;
      else this.#parent.insertBefore(entry.element, next);
    }
  }
}
