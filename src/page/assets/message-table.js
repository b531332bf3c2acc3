/**
 * Messages as numbered rows that open to all of their message, with the way to older ones.
 *
 * M1. Nothing moves under the reader: while a row is open the page stays where it is, and newer messages wait behind a button.
 * M2. Values from senders become text without unseen characters (format.js), truncated until the user asks for the
 *     full text.
 */
import { h, setText, show } from "./dom.js";
import { count, dateTime, seenJson, seenText } from "./format.js";
import { hasOlder, PagePlace, pageUpTo } from "./message-page.js";
import { output } from "./record-view.js";
import { followedList, table } from "./table.js";

/** Interval of reads whose counts have not changed: a delivery changes no count. */
const READ_AGAIN_MS = 30_000;

/** @import { Entry } from "./dom.js" */
/** @import { Context } from "./view.js" */
/** @import { Numbered, NumberedPage } from "./message-page.js" */
/** @import { DeadLetter, InboxMessage } from "../wire.ts" */

/**
 * @template {Numbered} Item
 * @typedef {object} MessageTable
 * @property {string} label
 * @property {string} kind class of the table
 * @property {readonly string[]} columns
 * @property {string} none the sentence of a list without messages
 * @property {(from_seq: number, to_seq: number) => Promise<readonly Item[]>} ask in the order of the numbers
 * @property {(item: Item) => Entry<Item>} row
 */

/** @template {Numbered} Item @param {Context} context @param {MessageTable<Item>} options */
export function messageTable({ clock, refresh }, { label, kind, columns, none, ask, row }) {
  const list = followedList(
    table(label, `numbered ${kind}`, columns, "presentation"),
    "Loading…",
    ({ stream_seq }) => String(stream_seq),
    row,
  );
  const newer = h("button", { type: "button", class: "quiet", text: "Newer messages", hidden: true });
  const older = h("button", { type: "button", class: "quiet", text: "Older messages", hidden: true });
  const words = h("span", { class: "hint" });
  const foot = h("p", { class: "actions pager", hidden: true }, newer, older, words);
  const { rows, move } = list;
  const place = new PagePlace();
  const opened = () => /** @type {HTMLElement[]} */ ([...rows.querySelectorAll('[aria-expanded="true"]')]);
  /** @type {NumberedPage<Item>} */
  let page = { items: [], from_seq: 1, to_seq: 0 };
  let change_count = 0;
  /** Last request and its time; empty: none, or an action has changed its result since. */
  let read_as = "";
  let read_ms = 0;

  const moved = () => {
    change_count++;
    read_as = "";
    refresh();
  };
  /** @param {() => void} step */
  const turn = (step) => () => {
    step();
    for (const open of opened()) open.click();
    moved();
  };
  newer.addEventListener(
    "click",
    turn(() => place.newer()),
  );
  older.addEventListener(
    "click",
    turn(() => place.older(page.from_seq)),
  );
  /** @param {number} last_seq @param {number | null} kept_count */
  const draw = (last_seq, kept_count) => {
    const { items } = page;
    const isNewest = place.to_seq === null;
    const isMore = hasOlder(page, isNewest ? kept_count : null);
    list.update(items, isNewest && !isMore ? none : "No messages here.");
    show(newer, !isNewest);
    show(older, isMore);
    const [first, last] = [items.at(-1), items[0]];
    const isPart = (!isNewest || isMore) && first !== undefined && last !== undefined;
    show(foot, !isNewest || isMore);
    setText(words, isPart ? `${count(first.stream_seq)} to ${count(last.stream_seq)} of ${count(last_seq)}` : "");
  };
  return {
    elements: [...list.elements, foot],
    move,
    /** Asks for the page again: an action has changed it. */
    moved,
    /**
     * Shows the reader's page, and asks for it where it has changed or is old.
     * @param {number} last_seq of the list
     * @param {number | null} kept_count items that are kept; null: unknown
     * @param {string} [state] changes with the state of an item
     */
    async follow(last_seq, kept_count, state = "") {
      if (page.to_seq > 0 && last_seq > page.to_seq && opened().length > 0) place.hold(page.to_seq);
      const change = change_count;
      const to_seq = place.to_seq ?? last_seq;
      const wanted = `${to_seq} ${state}`;
      const now_ms = clock.monotonicMs();
      if (wanted !== read_as || now_ms - read_ms > READ_AGAIN_MS) {
        const next = await pageUpTo(ask, to_seq);
        if (change !== change_count) return;
        page = next;
        [read_as, read_ms] = [wanted, now_ms];
      }
      draw(last_seq, kept_count);
    },
  };
}

/**
 * A message in full.
 * @param {InboxMessage | DeadLetter | undefined} item undefined: it is no longer kept
 * @param {readonly (readonly [string, string])[]} own what is to know beside the message
 */
export function messageView(item, own = []) {
  if (item === undefined) return h("p", { class: "hint", text: "The message is no longer kept." });
  const { envelope_summary: about, message } = item;
  /** @type {readonly (readonly [string, string])[]} */
  const wanted = [
    ["Id", about.msg_id],
    ["Kind", about.payload_kind],
    ["From", about.from],
    ["To", about.to],
    ["Permission", about.permission_level],
    ["Sent", dateTime(Math.floor(about.sent_at / 1000))],
    ["Request", about.request_id],
    ["Reply to", about.correlation_id],
    ["Caused by", about.causation_id],
    ["Trace", about.trace_id],
    ...own,
  ];
  const list = h("dl", { class: "facts" });
  for (const [name, text] of wanted) {
    if (text === "") continue;
    list.append(h("div", {}, h("dt", { text: name }), h("dd", {}, h("code", { text: seenText(text) }))));
  }
  return h("div", { class: "record" }, list, output("Payload", seenJson(message?.payload ?? null), false));
}
