/** Messages of the tenant: its inboxes with their counts, its dead letters, and the inbox of one queue or topic. */
import { askForm } from "./dialogs.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { age, bytes, count, dateTime, seenText } from "./format.js";
import { inboxCard } from "./inbox.js";
import { inboxNames } from "./inbox-names.js";
import { messageTable, messageView } from "./message-table.js";
import { openRow } from "./open-row.js";
import { messagesOf } from "./resources.js";
import { followedList, table, tableRow } from "./table.js";
import { reported } from "./view.js";
import { card, crumbs, labelled, problem, recordButtons } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { DeadLetter, InboxFacts } from "../wire.ts" */

const INBOXES_MAX = 50;
const INBOX_COLUMNS = ["Inbox", "Unread", "Messages", "Size"];
const DEAD_COLUMNS = ["Number", "Inbox", "Type", "From", "Reason", "Failed", "Replayed", "Actions"];
/** The daemon's own bound on an address. */
const ADDRESS_LENGTH_MAX = 256;

/** @typedef {ReturnType<typeof inboxNames>} Names */

/** @param {Context} context @param {Names} names */
function inboxesCard({ api, refresh }, names) {
  const list = followedList(
    table("Inboxes", "inboxes slim", INBOX_COLUMNS),
    "Loading…",
    (/** @type {InboxFacts} */ { container_id }) => container_id,
    ({ container_id }) => {
      const link = names.link(container_id, "open");
      const [unread, kept, size] = [h("span"), h("span"), h("span")];
      return {
        element: tableRow(INBOX_COLUMNS, [link.element, unread, kept, size]),
        /** @param {InboxFacts} facts */
        update(facts) {
          link.update();
          setText(unread, count(facts.unread));
          setText(kept, count(facts.messages));
          setText(size, bytes(facts.bytes));
        },
      };
    },
  );
  /** Starts of the pages before this one, in order. @type {string[]} */
  const before = [];
  let after = "";
  let next = "";
  const first = h("button", { type: "button", class: "quiet", text: "Previous inboxes", hidden: true });
  const more = h("button", { type: "button", class: "quiet", text: "More inboxes", hidden: true });
  const foot = h("p", { class: "actions pager", hidden: true }, first, more);
  first.addEventListener("click", () => {
    after = before.pop() ?? "";
    refresh();
  });
  more.addEventListener("click", () => {
    before.push(after);
    after = next;
    refresh();
  });
  return {
    element: card("Inboxes", ...list.elements, foot),
    move: list.move,
    focusRow: (/** @type {string} */ id) =>
      /** @type {HTMLElement | null} */ (list.get(id)?.querySelector(".open"))?.focus(),
    async refresh() {
      const asked = after;
      const { streams, next_after } = await messagesOf(api).inboxes(INBOXES_MAX, after);
      await names.learn(streams.map(({ container_id }) => container_id));
      if (asked !== after) return;
      list.update(streams, after === "" ? "No messages yet." : "No further inboxes.");
      next = next_after ?? after;
      show(more, next_after !== null);
      show(first, after !== "");
      show(foot, next_after !== null || after !== "");
    },
  };
}

/** Asks where a dead letter goes. @param {DeadLetter} letter @returns {Promise<string | null>} null: never mind */
function askInbox({ stream_seq, container_id }) {
  const field = h("input", {
    id: "replay-inbox",
    required: true,
    maxlength: ADDRESS_LENGTH_MAX,
    autocomplete: "off",
    spellcheck: "false",
    value: container_id,
  });
  const hint = "Id or name of a container, or queue:<name>. The daemon publishes a copy with a new id.";
  const fields = [labelled("Inbox", field, hint)];
  return askForm(`Replay dead letter ${stream_seq}`, fields, "Replay", () => field.value.trim());
}

/** @param {Context} context @param {Names} names @param {ReturnType<typeof problem>} trouble @param {() => void} onMoved */
function letterMaker(context, names, trouble, onMoved) {
  const messages = messagesOf(context.api);
  /** @param {DeadLetter} first */
  return (first) => {
    let record = first;
    const { stream_seq, container_id, envelope_summary: about } = first;
    const [type, from, reason] = [about.type, about.from, first.reason].map(seenText);
    const [failed, replayed] = [h("time", { title: dateTime(first.created_at) }), h("time")];
    const replay = recordButtons(
      context,
      trouble,
      () => record,
      onMoved,
    )("Replay", "", async (letter) => {
      const inbox = await askInbox(letter);
      if (inbox === null) return null;
      const answer = await messages.replayDead(stream_seq, inbox === letter.container_id ? null : inbox);
      return `dead letter ${stream_seq} is message ${answer.stream_seq} of ${seenText(answer.container_id)}`;
    });
    setAttribute(replay, "aria-label", `Replay dead letter ${stream_seq}`);
    const link = names.link(container_id);
    const contents = [
      link.element,
      h("b", { text: type ?? "", title: type ?? "" }),
      h("code", { text: from ?? "", title: from ?? "" }),
      h("span", { text: reason ?? "", title: reason ?? "" }),
      failed,
      replayed,
      h("span", { class: "acts" }, replay),
    ];
    const load = async () =>
      messageView(await messages.deadLetter(stream_seq), [
        ["Reason", first.reason],
        ["Deliveries", count(first.deliveries)],
        ["Number in the inbox", count(first.original_stream_seq)],
      ]);
    const attributes = { text: count(stream_seq), "aria-label": `Dead letter ${stream_seq}` };
    const { element } = openRow(DEAD_COLUMNS, attributes, contents, load, { "data-seq": String(stream_seq) });
    return {
      element,
      /** @param {DeadLetter} next */
      update(next) {
        record = next;
        link.update();
        const now_ms = context.clock.epochMs();
        setText(failed, age(next.created_at, now_ms));
        setText(replayed, age(next.replayed_at, now_ms));
        setAttribute(replayed, "title", next.replayed_at === null ? null : dateTime(next.replayed_at));
        show(replay, context.api.may("write"));
      },
    };
  };
}

/** @param {Context} context @param {Names} names */
function deadCard(context, names) {
  const trouble = problem();
  const messages = messagesOf(context.api);
  const list = messageTable(context, {
    label: "Dead letters",
    kind: "dead-letters",
    columns: DEAD_COLUMNS,
    none: "No dead letters.",
    ask: async (from_seq, to_seq) => {
      const found = (await messages.dead(from_seq, to_seq - from_seq + 1)).messages;
      const letters = found.filter(({ stream_seq }) => stream_seq <= to_seq);
      await names.learn(letters.map(({ container_id }) => container_id));
      return letters;
    },
    row: letterMaker(context, names, trouble, () => list.moved()),
  });
  const summary = h("p", {
    class: "hint",
    text: "Messages that failed, or that receivers got too often without an ack.",
  });
  return {
    element: card("Dead letters", summary, trouble.element, ...list.elements),
    move: list.move,
    refresh: async () => list.follow(await messages.lastDead(), null),
  };
}

/** @param {Context} context @returns {View} */
export function messagesView(context) {
  const trouble = problem();
  const title = h("h1", { tabindex: -1, text: "Messages" });
  const names = inboxNames(context);
  const inboxes = inboxesCard(context, names);
  const dead = deadCard(context, names);
  const shown = h("div", { class: "stack" }, inboxes.element, dead.element);
  return {
    element: h("div", {}, h("div", { class: "toolbar" }, title), trouble.element, shown),
    title: () => "Messages",
    refresh: reported(trouble, async () => {
      await inboxes.refresh();
      await dead.refresh();
    }),
    focus: () => title.focus(),
    move: inboxes.move,
    focusRow: inboxes.focusRow,
  };
}

/** @param {Context} context @param {string} inbox address of a queue or topic @returns {View} */
export function inboxView(context, inbox) {
  const trouble = problem();
  const title = h("h1", { tabindex: -1, text: seenText(inbox) });
  const way = crumbs([["Messages", "#/messages"]], seenText(inbox));
  const messages = inboxCard(context, () => inbox);
  const head = h("div", { class: "detail-head" }, way.element, title);
  return {
    element: h("div", {}, head, trouble.element, messages.element),
    title: () => seenText(inbox),
    up: "#/messages",
    refresh: reported(trouble, messages.refresh, () => show(messages.element, false)),
    focus: () => title.focus(),
    move: messages.move,
  };
}
