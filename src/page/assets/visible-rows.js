/**
 * Rows that each cost a request of their own. Only rows in the visible part of the page are asked about, one after the
 * other, so that a thousand rows cost as much as thirty.
 */
import { unlessRefused } from "./view.js";

/** @import { Clock } from "./clock.js" */
/** @import { Entry } from "./dom.js" */

/** Visible rows that are asked about in one round. */
const LOOKS_MAX = 50;
/** A frame or two. */
const FRAME_MS = 40;

/**
 * @template Item
 * @typedef {object} Row
 * @property {HTMLElement} element with the id as its `data-id`
 * @property {(item: Item) => void} update
 * @property {() => Promise<void> | null} [look] asks for the values that the list does not have; null: there are none
 */

/** @param {Clock} clock */
export function visibleRows(clock) {
  /** By id. @type {Map<string, () => Promise<void> | null>} */
  const looks = new Map();
  /** @type {Set<string>} */
  const visible = new Set();
  /** The browser has told of every row whether it is visible, which it does with the next frame. */
  let isSettled = true;
  /** @param {Element} element */
  const idOf = (element) => /** @type {HTMLElement} */ (element).dataset.id ?? "";
  const observer = new IntersectionObserver((entries) => {
    isSettled = true;
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) visible.add(idOf(target));
      else visible.delete(idOf(target));
    }
  });
  return {
    /** Makes an entry of a list from a row. @template Item @param {Row<Item>} row @returns {Entry<Item>} */
    entry({ element, update, look }) {
      if (look === undefined) return { element, update };
      const id = idOf(element);
      looks.set(id, look);
      isSettled = false;
      observer.observe(element);
      return {
        element,
        update,
        removed() {
          observer.unobserve(element);
          visible.delete(id);
          looks.delete(id);
        },
      };
    },
    /** Asks about the visible rows. */
    async look() {
      if (!isSettled) await new Promise((resolve) => void clock.after(FRAME_MS, () => resolve(null)));
      for (const id of [...visible].slice(0, LOOKS_MAX)) {
        // The daemon refuses if the resource is gone; the next round's list lacks it.
        const answer = looks.get(id)?.();
        if (answer) await unlessRefused(answer);
      }
    },
  };
}
