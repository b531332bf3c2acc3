/** The small parts that every view uses: states as colour and word, instances as a meter, problems, and busy buttons. */
import { ApiError } from "./api.js";
import { h, setAttribute, setText, show } from "./dom.js";

/** @import { Context } from "./view.js" */
/** @import { FunctionRecord, GroupStatus, InvocationRecord } from "../wire.ts" */

/** @param {string} [state] */
export function badge(state = "") {
  const element = h("span", { class: "badge" });
  /** @param {string} value @param {string} [text] */
  const update = (value, text = value) => {
    setAttribute(element, "data-state", value);
    setText(element, text);
  };
  update(state);
  return { element, update };
}

/** @param {InvocationRecord} record */
export function startBadge({ cold_start }) {
  const { element, update } = badge();
  update(cold_start ? "cold" : "warm");
  return element;
}

/**
 * Busy, ready and warming instances of a function as a bar whose full width is `max_instances`, and in words.
 * Null: it has none by its state, and nobody asked.
 */
export function meter() {
  const bars = {
    busy: h("i", { class: "busy" }),
    ready: h("i", { class: "ready" }),
    warming: h("i", { class: "warming" }),
  };
  const words = h("span", { class: "meter-words" });
  const element = h(
    "span",
    { class: "meter" },
    h("span", { class: "meter-bar", "aria-hidden": "true" }, bars.busy, bars.ready, bars.warming),
    words,
  );
  /** @param {GroupStatus | null} pool @param {number} instances_max */
  const update = (pool, instances_max) => {
    const { busy_count = 0, ready_count = 0, warming_count = 0, total_count = 0, queued_count = 0 } = pool ?? {};
    const counts = { busy: busy_count, ready: ready_count, warming: warming_count };
    const full = Math.max(instances_max, total_count, 1);
    const said = [];
    for (const [name, bar] of Object.entries(bars)) {
      const value = counts[/** @type {keyof typeof counts} */ (name)];
      const width = `${(100 * value) / full}%`;
      if (bar.style.width !== width) bar.style.width = width;
      if (value > 0) said.push(`${value} ${name}`);
    }
    if (queued_count > 0) said.push(`${queued_count} queued`);
    setText(words, said.length === 0 ? "none" : said.join(", "));
    setAttribute(element, "title", `${said.join(", ") || "no instances"} of at most ${instances_max}`);
  };
  return { element, update };
}

/** Whether a function of this state can have instances. @param {FunctionRecord} record */
export const hasInstances = ({ state }) => state === "active" || state === "deploying";

/** The text of a failure, beside the part of the page that failed. */
export function problem() {
  const text = h("span");
  const more = h("span", { class: "problem-more" });
  const output = h("code", { class: "problem-output" });
  const element = h("p", { class: "problem", role: "alert", hidden: true }, text, more, output);
  return {
    element,
    /** @param {unknown} error null: nothing is wrong any more */
    update(error) {
      show(element, error !== null);
      const {
        code,
        hint,
        request_id,
        output: shown,
      } = error instanceof ApiError ? error : { code: null, hint: null, request_id: null, output: null };
      setText(output, shown?.trimEnd() ?? "");
      show(output, shown !== null);
      setText(text, error === null ? "" : error instanceof Error ? error.message : String(error));
      setText(more, [code, hint, request_id === null ? null : `request ${request_id}`].filter(Boolean).join(" · "));
    },
  };
}

/**
 * A button (or the button of a form) that does one thing at a time. It keeps the focus while it is busy.
 * @param {HTMLButtonElement} button
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => Promise<void>} work
 */
export async function act(button, trouble, work) {
  if (button.getAttribute("aria-disabled") === "true") return;
  setAttribute(button, "aria-disabled", "true");
  trouble.update(null);
  try {
    await work();
  } catch (error) {
    trouble.update(error);
  } finally {
    setAttribute(button, "aria-disabled", null);
  }
}

/**
 * Returns a function that makes the buttons of one record: each does its work on the record as it is now, shows the message
 * that the work returns (null: none), then calls `onMoved`, also after a failure.
 * @template Shown
 * @param {Context} context
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => Shown | null} current
 * @param {() => void} onMoved
 */
export function recordButtons({ say }, trouble, current, onMoved) {
  /** @param {string} text @param {string} kind @param {(record: Shown) => Promise<string | null>} work */
  return (text, kind, work) => {
    const element = h("button", { type: "button", class: kind, text });
    element.addEventListener("click", () =>
      act(element, trouble, async () => {
        const record = current();
        if (record === null) return;
        try {
          const done = await work(record);
          if (done !== null) say(done);
        } finally {
          onMoved();
        }
      }),
    );
    return element;
  };
}

/** @param {string} title @param {(Node | string | null)[]} children */
export function card(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("h2", { text: title }), ...children);
}

/** A label with its field, and what to know of it. @param {string} text @param {HTMLElement} field @param {string} hint */
export function labelled(text, field, hint = "") {
  return h(
    "div",
    { class: "field" },
    h("label", { for: field.id, text }),
    field,
    hint === "" ? null : h("p", { class: "hint", text: hint }),
  );
}

/**
 * One of several words.
 * @param {string} label
 * @param {readonly string[]} names
 * @param {(name: string) => void} onChoice
 */
export function choice(label, names, onChoice) {
  const element = h("div", { class: "choice", role: "group", "aria-label": label });
  /** @param {string} chosen */
  const choose = (chosen) => {
    for (const button of element.children) setAttribute(button, "aria-pressed", String(button.textContent === chosen));
    onChoice(chosen);
  };
  for (const name of names) element.append(h("button", { type: "button", text: name, onclick: () => choose(name) }));
  return { element, choose };
}

/**
 * Where the view is: the way up, then its own names.
 * @param {readonly [string, string][]} links words and their addresses
 * @param {string} here
 */
export function crumbs(links, here) {
  const element = h("nav", { class: "crumbs", "aria-label": "Where you are" });
  links.forEach(([text, href], i) => {
    const link = h("a", { href, text });
    element.append(i === 0 ? link : h("span", {}, link));
  });
  const last = h("span", { text: here });
  element.append(last);
  const update = (/** @type {string} */ text) => setText(last, text);
  return { element, update };
}

/** @typedef {string | { text: string, href: string }} Fact a text, or a link */

/** @param {HTMLElement} place @param {Fact} fact */
function setFact(place, fact) {
  if (typeof fact === "string") {
    if (place.firstElementChild !== null) place.replaceChildren();
    return setText(place, fact);
  }
  if (place.firstElementChild === null) place.replaceChildren(h("a"));
  const link = place.firstElementChild;
  if (link === null) return;
  setText(link, fact.text);
  setAttribute(link, "href", fact.href);
}

/**
 * Facts by their names, patched as they change.
 * @template Item
 * @param {readonly (readonly [string, (item: Item) => Fact])[]} wanted
 * @param {string} [kind] class
 */
export function facts(wanted, kind = "facts column") {
  const values = wanted.map(() => h("dd"));
  const element = h("dl", { class: kind });
  wanted.forEach(([name], i) => void element.append(h("div", {}, h("dt", { text: name }), values[i] ?? null)));
  return {
    element,
    /** @param {Item} item */
    update: (item) => wanted.forEach(([, factOf], i) => void (values[i] && setFact(values[i], factOf(item)))),
  };
}

/** Ctrl+Enter (on a Mac ⌘+Enter) in a text area sends its form. @param {KeyboardEvent} event */
export function sendOnEnter(event) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (event.target instanceof HTMLTextAreaElement) event.target.form?.requestSubmit();
}
