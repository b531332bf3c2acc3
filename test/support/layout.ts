/** What is cut off or overlaps on a page as it is laid out: boxes of elements and of texts, compared with what clips them. */
import type { Page } from "playwright-core";

/** Runs in the page. Lets a text end in an ellipsis, and a part scroll in a box of its own; all else is to be in sight. */
const FAULTS = `(async () => {
  // The browser lays out what comes into sight with the next frame.
  for (let i = 0; i < 2; i++) await new Promise((resolve) => requestAnimationFrame(resolve));
  const width = document.documentElement.clientWidth;
  const faults = [];
  const nameOf = (one) => one.tagName.toLowerCase() + [...one.classList].map((word) => "." + word).join("") +
    ' "' + (one.textContent ?? "").trim().slice(0, 40) + '"';
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });
  // An open menu lies above the view.
  const isMenu = document.querySelector(".menu[aria-expanded=true]") !== null;
  const all = [...document.body.querySelectorAll("*")].filter((one) =>
    isShown(one) && (!isMenu || one.closest(".frame") !== null) && !one.matches(".skip, svg, svg *, option, .xterm *") && one.closest("[hidden]") === null);
  const textBox = (one) => {
    const range = document.createRange();
    const texts = [...one.childNodes].filter((node) => node.nodeType === 3 && node.data.trim() !== "");
    if (texts.length === 0) return null;
    range.setStartBefore(texts[0]);
    range.setEndAfter(texts.at(-1));
    return range.getBoundingClientRect();
  };
  const isControl = (one) => one.matches("button, select, input, textarea, a.button");
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  for (const one of all) {
    let clip = null;
    for (let above = one; above !== document.body && clip === null; above = above.parentElement) {
      const { overflowX, textOverflow } = getComputedStyle(above);
      if (overflowX === "visible" || above === one) continue;
      const isCutText = textOverflow === "ellipsis" && !isControl(one);
      clip = overflowX === "auto" || overflowX === "scroll" || isCutText ? "agreed" : above;
    }
    if (clip === "agreed") continue;
    const isOpen = getComputedStyle(one).overflowX === "visible";
    for (const box of [one.getBoundingClientRect(), isOpen ? textBox(one) : null]) {
      if (box === null || box.width === 0 || box.height === 0) continue;
      if (box.left < -1 || box.right > width + 1) faults.push("outside the window: " + nameOf(one));
      if (clip === null) continue;
      const { left, right } = clip.getBoundingClientRect();
      if (box.left < left - 1 || box.right > right + 1) faults.push("cut off by " + clip.className + ": " + nameOf(one));
    }
  }
  const seen = (one) => {
    let { left, right, top, bottom } = one.getBoundingClientRect();
    for (let above = one.parentElement; above !== null && above !== document.body; above = above.parentElement) {
      if (getComputedStyle(above).overflowX === "visible") continue;
      const box = above.getBoundingClientRect();
      [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
      [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
    }
    return { left, right, top, bottom };
  };
  const check = (ones) => {
    const boxes = ones.map((one) => [one, seen(one)]).filter(([, box]) => box.right > box.left && box.bottom > box.top);
    boxes.forEach(([one, a], i) => {
      for (const [other, b] of boxes.slice(i + 1)) {
        if (one.contains(other) || other.contains(one)) continue;
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 2) faults.push("overlap: " + nameOf(one) + " and " + nameOf(other));
      }
    });
  };
  check(all.filter((one) => one.matches("button, select, input, textarea, a")).slice(0, 300));
  for (const row of all.filter((one) => one.matches(".row, .title, .toolbar, .facts > div, .session"))) check([...row.children].filter(isShown));
  check(all.filter((one) => one.matches("header.frame, main")));
  return [...new Set(faults)];
})()`;

/** What is cut off or overlaps, in words; empty: nothing. */
export function layoutFaults(page: Page): Promise<string[]> {
  return page.evaluate(FAULTS);
}
