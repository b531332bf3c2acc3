/**
 * The navigation: the areas of the page in their groups. On wide windows it is a bar at the side, on narrow ones a menu
 * below the bar at the top (frame.css decides).
 */
import { h, setAttribute } from "./dom.js";

/** @import { Group, Section } from "./routing.js" */

/** @param {readonly Group[]} groups */
export function navigation(groups) {
  /** @type {Map<Section, HTMLAnchorElement>} */
  const links = new Map();
  const areas = h("nav", { id: "areas", class: "areas", "aria-label": "Areas" });
  groups.forEach(({ title, sections }, i) => {
    const id = `areas-${i + 1}`;
    const list = h("ul", { "aria-labelledby": id });
    for (const section of sections) {
      const link = h("a", { href: section.address, text: section.title });
      links.set(section, link);
      list.append(h("li", {}, link));
    }
    areas.append(h("div", { class: "group" }, h("p", { id, class: "group-title", text: title }), list));
  });
  const menu = h("button", {
    type: "button",
    class: "quiet menu",
    text: "Menu",
    "aria-expanded": "false",
    "aria-controls": "areas",
    onclick: () => set(!isOpen()),
  });
  const isOpen = () => menu.getAttribute("aria-expanded") === "true";
  /** @param {boolean} isWanted */
  const set = (isWanted) => setAttribute(menu, "aria-expanded", String(isWanted));
  areas.addEventListener("click", (event) => event.target instanceof HTMLAnchorElement && set(false));
  // Whoever goes on elsewhere has done with it.
  for (const name of ["pointerdown", "focusin"]) {
    document.addEventListener(name, ({ target }) => {
      if (target instanceof Node && !areas.contains(target) && !menu.contains(target)) set(false);
    });
  }
  return {
    areas,
    menu,
    /** @param {Section} current */
    update(current) {
      for (const [section, link] of links) setAttribute(link, "aria-current", section === current ? "page" : null);
    },
    /** Closes the menu and returns the focus to its button. Returns false if it is closed. */
    close() {
      if (!isOpen()) return false;
      set(false);
      menu.focus();
      return true;
    },
  };
}
