/**
 * xterm.js under the page's policy. It writes its rules into style elements and colours into style attributes, both of
 * which the policy forbids; style sheets and properties that are set by script are allowed, so the elements that it makes
 * turn the one into the other. Nothing of xterm.js itself is changed.
 */

/** @import { Terminal } from "@xterm/xterm" */
/** @import { FitAddon } from "@xterm/addon-fit" */

/** @typedef {{ Terminal: typeof Terminal, FitAddon: typeof FitAddon }} Library */

/** Served from their packages, and loaded when the first terminal is opened. */
const PARTS = ["/page/xterm-core.js", "/page/xterm-fit.js"];
const RULES = "/page/xterm.css";

/** @returns {Promise<Library>} */
export async function loadLibrary() {
  if (document.querySelector(`link[href="${RULES}"]`) === null) {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = RULES;
    document.head.append(link);
    await new Promise((resolve, reject) => {
      link.onload = resolve;
      link.onerror = () => {
        link.remove();
        reject(new TypeError("the terminal has not loaded"));
      };
    });
  }
  const [core, fit] = await Promise.all(PARTS.map((part) => import(part)));
  return { Terminal: core.Terminal, FitAddon: fit.FitAddon };
}

/** As `setAttribute` of an element, but a style goes the way that the policy allows. @this {HTMLElement} @param {string} name @param {string} value */
function setAllowed(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

/**
 * Elements are made so from now on, until what this gives is called: parts of xterm.js take the page's document whatever
 * they are told. For the page itself nothing changes, since it has neither style elements nor style attributes.
 */
export function underPolicy() {
  /** @type {CSSStyleSheet[]} */
  const sheets = [];
  /** @param {string} name */
  const create = (name) => {
    const element = Document.prototype.createElement.call(document, name === "style" ? "template" : name);
    if (name === "span") element.setAttribute = setAllowed;
    if (name !== "style") return element;
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
    return element;
  };
  document.createElement = /** @type {typeof document.createElement} */ (create);
  return () => {
    Reflect.deleteProperty(document, "createElement");
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
  };
}
