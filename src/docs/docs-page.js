/**
 * The script of the documentation: shows the page that the address names, and searches all pages. Everything is in the
 * document already, so there are no requests. Text from the document becomes text nodes, never markup.
 */

/** @typedef {{ id: string, kind: string, title: string, text: string }} Entry */

const RESULTS_MAX = 30;
const SNIPPET_LENGTH = 110;
/** Kinds in the order in which equal results are listed. */
const KINDS = ["guide", "operation", "error", "setting", "limit", "schema"];

/** @type {HTMLElement[]} */
const pages = [...document.querySelectorAll("main > .page")].map((page) => /** @type {HTMLElement} */ (page));
const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const form = /** @type {HTMLFormElement} */ (document.querySelector("form.search"));
const input = /** @type {HTMLInputElement} */ (document.querySelector("#search"));
const list = /** @type {HTMLElement} */ (document.querySelector("#found"));
const status = /** @type {HTMLElement} */ (document.querySelector("#found-count"));
const contents = /** @type {HTMLDetailsElement} */ (document.querySelector("nav details"));
const narrow = matchMedia("(max-width: 69.99rem)");

/** Shows the page with the element that the address names, or the first page. */
function show() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const page = target?.closest(".page") ?? pages[0];
  for (const one of pages) one.hidden = one !== page;
  for (const link of document.querySelectorAll("nav .page-link")) {
    const isCurrent = link.getAttribute("href") === `#${page?.id}`;
    link.parentElement?.classList.toggle("current", isCurrent);
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${page?.getAttribute("data-title")} · hearth documentation`;
  if (target === null || target === page) scrollTo(0, 0);
  else target.scrollIntoView();
}

/** Read at the first search. @type {{ all: readonly Entry[] | null }} */
const entries = { all: null };

/** Returns the text of an entry without its headings; a page has the text above its first part and operation. @param {Element} element */
function textOf(element) {
  const others = element.classList.contains("page") ? "h1, h2, h3, .part, article, tr" : "h3";
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const texts = [];
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const other = node.parentElement?.closest(others);
    if (other === null || other === undefined || other === element) texts.push(node.nodeValue ?? "");
  }
  return texts.join(" ").replace(/\s+/g, " ").trim();
}

const readEntries = () =>
  [...document.querySelectorAll("main [data-kind]")].map((element) => ({
    id: element.id,
    kind: element.getAttribute("data-kind") ?? "",
    title: element.getAttribute("data-title") ?? "",
    text: textOf(element),
  }));

/**
 * Returns the entries with all words, those with words in their title first.
 * @param {readonly string[]} words
 */
function find(words) {
  entries.all ??= readEntries();
  const scored = entries.all.flatMap((entry) => {
    const [title, text] = [entry.title.toLowerCase(), entry.text.toLowerCase()];
    let score = 0;
    for (const word of words) {
      const at = title.indexOf(word);
      if (at === 0 || (at > 0 && !/\w/.test(title.charAt(at - 1)))) score += 5;
      else if (at > 0) score += 4;
      else if (text.includes(word)) score += 1;
      else return [];
    }
    return [{ entry, score }];
  });
  const rank = (/** @type {Entry} */ { kind }) => KINDS.indexOf(kind);
  return scored.sort((a, b) => b.score - a.score || rank(a.entry) - rank(b.entry)).map(({ entry }) => entry);
}

/**
 * @param {Entry} entry
 * @param {string} word
 */
function resultOf({ id, kind, title, text }, word) {
  const link = document.createElement("a");
  link.href = `#${id}`;
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  for (const [name, content] of [
    ["kind", kind],
    ["title", title],
    ["quiet", `${at > 0 ? "…" : ""}${text.slice(at, at + SNIPPET_LENGTH)}`],
  ]) {
    const part = document.createElement("span");
    part.className = name ?? "";
    part.textContent = content ?? "";
    link.append(part);
  }
  const item = document.createElement("li");
  item.append(link);
  return item;
}

function search() {
  const words = input.value
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  const found = words.length === 0 ? [] : find(words);
  list.replaceChildren(...found.slice(0, RESULTS_MAX).map((entry) => resultOf(entry, words[0] ?? "")));
  const shown =
    found.length > RESULTS_MAX ? `the first ${RESULTS_MAX} of ${found.length} results` : `${found.length} results`;
  status.textContent = words.length === 0 ? "" : found.length === 1 ? "1 result" : shown;
  contents.hidden = words.length > 0;
}

function clear() {
  input.value = "";
  search();
}

/** Moves the focus by one result; above the first one is the field. @param {number} by */
function move(by) {
  /** @type {(Element | null)[]} */
  const stops = [input, ...list.querySelectorAll("a")];
  const at = stops.indexOf(document.activeElement);
  const next = stops[Math.min(stops.length - 1, Math.max(0, at + by))];
  if (next instanceof HTMLElement) next.focus();
}

form.hidden = false;
document.documentElement.classList.add("scripted");
contents.open = !narrow.matches;
input.addEventListener("input", search);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.querySelector("a")?.click();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Escape") {
    clear();
    input.focus();
  }
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  input.focus();
});
document.querySelector("nav")?.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (link === null) return;
  if (list.contains(link)) clear();
  if (narrow.matches) contents.open = false;
  main.focus({ preventScroll: true });
});
addEventListener("hashchange", show);
show();
