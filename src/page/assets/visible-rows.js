/**
 * The rows of a list of which each costs a request of its own: only those in sight are asked about, one after the other,
 * so that a thousand cost what thirty do.
 */
import { KeyedList } from "./dom.js";
import { isRefusal } from "./widgets.js";

/** @import { Clock } from "./clock.js" */

/** Rows in sight that are asked about in one round. */
const LOOKS_MAX = 50;
/** A frame or two. */
const FRAME_MS = 40;

/**
 * @template Item
 * @typedef {object} Row
 * @property {HTMLElement} element with the id as its `data-id`
 * @property {HTMLElement} link takes the focus
 * @property {(item: Item) => void} update
 * @property {() => Promise<void> | null} look asks what the list does not tell; null: there is nothing to ask
 */

/** Ids of the rows that are in sight, as their `data-id`. */
function sight() {
  /** @type {Set<string>} */
  const seen = new Set();
  let isSettled = true;
  const observer = new IntersectionObserver((entries) => {
    isSettled = true;
    for (const { target, isIntersecting } of entries) {
      const id = /** @type {HTMLElement} */ (target).dataset.id ?? "";
      if (isIntersecting) seen.add(id);
      else seen.delete(id);
    }
  });
  return {
    seen,
    /** Whether the browser has said of every row where it is; it does so with the next frame. */
    isSettled: () => isSettled,
    /** @param {HTMLElement} element */
    watch(element) {
      isSettled = false;
      observer.observe(element);
    },
    /** @param {HTMLElement} element */
    leave(element) {
      observer.unobserve(element);
      seen.delete(element.dataset.id ?? "");
    },
  };
}

/**
 * @template Item
 * @param {Clock} clock
 * @param {HTMLElement} parent
 * @param {(item: Item) => string} idOf
 * @param {(item: Item) => Row<Item>} make
 */
export function visibleRows(clock, parent, idOf, make) {
  const inSight = sight();
  /** @type {Map<string, Row<Item>>} */
  const made = new Map();
  const list = new KeyedList(parent, idOf, (item) => {
    const id = idOf(item);
    const row = make(item);
    made.set(id, row);
    inSight.watch(row.element);
    return {
      element: row.element,
      update: row.update,
      removed() {
        inSight.leave(row.element);
        made.delete(id);
      },
    };
  });
  return {
    /** @param {readonly Item[]} items */
    update: (items) => list.update(items),
    /** @param {string} id */
    focus: (id) => made.get(id)?.link.focus(),
    async look() {
      if (!inSight.isSettled()) await new Promise((resolve) => void clock.after(FRAME_MS, () => resolve(null)));
      for (const id of [...inSight.seen].slice(0, LOOKS_MAX)) {
        // Gone meanwhile: the next round's list says so.
        await made
          .get(id)
          ?.look()
          ?.catch((error) => (isRefusal(error) ? undefined : Promise.reject(error)));
      }
    },
  };
}
