/**
 * What a container's own command writes, as it comes.
 *
 * G1. The newest lines are in the document, and no more than `LINES_MAX`, however many come and however fast: between two
 *     drawings only as many wait.
 * G2. Who reads further up is left there; at the end new lines pull the view along.
 */
import { h, setAttribute, setText, show } from "./dom.js";
import { count, dateTime, epochSeconds, timeOfDay } from "./format.js";
import { containersOf } from "./resources.js";
import { Stream } from "./stream.js";
import { isRefusal } from "./view.js";
import { card, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { LogEntry } from "../wire.ts" */

const LINES_MAX = 1_000;
/** Characters of a line that are laid out; a thousand whole ones could be megabytes. */
const LINE_LENGTH_MAX = 2_000;
/** Between two drawings: more often than this nobody reads. */
const DRAW_MS = 100;
/** Pixels from the end that still are the end. */
const END_PX = 8;

/** @param {LogEntry} entry */
function lineView({ timestamp, stream, message }) {
  const at = epochSeconds(timestamp);
  const rest = message.length - LINE_LENGTH_MAX;
  const text = rest > 0 ? `${message.slice(0, LINE_LENGTH_MAX)}… and ${count(rest)} more characters` : message;
  return h(
    "div",
    { class: `line ${stream}` },
    h("time", { text: timeOfDay(at), title: dateTime(at) }),
    h("span", { text }),
  );
}

/** @param {Context} context @param {() => string} id */
export function logCard({ api, clock }, id) {
  const trouble = problem();
  const lines = h("div", {
    class: "output log",
    hidden: true,
    tabindex: 0,
    role: "log",
    "aria-label": "Log",
    "aria-live": "off",
  });
  const note = h("span", { class: "hint", text: "No output yet." });
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "true", text: "Follow" });
  /** @type {LogEntry[]} */
  let waiting = [];
  let seen_seq = 0;
  let line_count = 0;
  let isFollowed = true;
  let undraw = () => {};
  let isAwaited = false;

  const draw = () => {
    isAwaited = false;
    // What is hidden has no height.
    show(lines, true);
    const isAtEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight <= END_PX;
    lines.append(...waiting.map(lineView));
    waiting = [];
    while (lines.childElementCount > LINES_MAX) lines.firstElementChild?.remove();
    if (isAtEnd) lines.scrollTop = lines.scrollHeight;
    setText(note, line_count > LINES_MAX ? `the newest ${count(LINES_MAX)} lines` : "");
  };
  const stream = new Stream(clock, {
    open: (ended) => containersOf(api).log(id(), LINES_MAX, seen_seq, ended),
    onLines: (texts) => {
      trouble.update(null);
      /** @type {LogEntry[]} */
      const entries = texts.filter((text) => text !== "").map((text) => JSON.parse(text));
      if (entries.length === 0) return;
      seen_seq = entries.at(-1)?.seq ?? seen_seq;
      line_count += entries.length;
      waiting = [...waiting, ...entries].slice(-LINES_MAX);
      if (isAwaited) return;
      isAwaited = true;
      undraw = clock.after(DRAW_MS, draw);
    },
    onRefused: (error) => {
      if (isRefusal(error)) trouble.update(error);
    },
  });
  toggle.addEventListener("click", () => {
    isFollowed = !isFollowed;
    setAttribute(toggle, "aria-pressed", String(isFollowed));
    if (isFollowed) stream.ensure();
    else stream.close();
  });
  const element = card("Log", trouble.element, lines, h("p", { class: "actions" }, toggle, note));
  return {
    element,
    update() {
      if (isFollowed) stream.ensure();
    },
    /** Until the next round that somebody looks at. */
    rest: () => stream.close(),
    leave() {
      stream.close();
      undraw();
    },
  };
}
