/** The inbox of a container, a queue or a topic: its messages, the newest first, and what can be done with each. */
import { ApiError } from "./api.js";
import { askForm, confirm } from "./dialogs.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { age, bytes, count, counted, dateTime, seenText } from "./format.js";
import { messageTable, messageView } from "./message-table.js";
import { openRow } from "./open-row.js";
import { messagesOf } from "./resources.js";
import { badge, card, labelled, problem, recordButtons } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { InboxMessage, InboxFacts } from "../wire.ts" */

const COLUMNS = ["Number", "Type", "From", "State", "Published", "Actions"];
/** Payload kinds that the daemon itself applies to a container. */
const ACTIONS = ["exec_command", "file_patch", "env_patch", "state_patch", "lifecycle_action"];
const REASON_LENGTH_MAX = 1_024;

/** Asks why a message failed. @param {InboxMessage} message @returns {Promise<string | null>} null: never mind */
function askReason({ stream_seq }) {
  const field = h("input", { id: "nack-reason", maxlength: REASON_LENGTH_MAX, autocomplete: "off" });
  const hint = "No receiver gets the message any more. It becomes a dead letter with this reason.";
  return askForm(`Nack message ${stream_seq}`, [labelled("Reason", field, hint)], "Nack", () => field.value.trim());
}

/**
 * The buttons of one message: an unread one is settled, a settled one is published again.
 * @param {Context} context @param {ReturnType<typeof problem>} trouble @param {() => string} inbox @param {() => InboxMessage} current @param {() => void} onMoved
 */
function messageButtons(context, trouble, inbox, current, onMoved) {
  const { api } = context;
  const messages = messagesOf(api);
  const button = recordButtons(context, trouble, current, onMoved);
  const ack = button("Ack", "", async ({ stream_seq, msg_id }) => {
    if (!(await confirm(`Ack message ${stream_seq}?`, "No receiver gets it any more.", "Ack"))) return null;
    await messages.settle(inbox(), { msg_id, action: "ack" });
    return `message ${stream_seq} is acked`;
  });
  const nack = button("Nack", "danger", async (message) => {
    const reason = await askReason(message);
    if (reason === null) return null;
    const { stream_seq, msg_id } = message;
    await messages.settle(inbox(), { msg_id, action: "nack", ...(reason === "" ? {} : { reason }) });
    return `message ${stream_seq} is a dead letter`;
  });
  const replay = button("Replay", "", async ({ stream_seq, envelope_summary }) => {
    const applied =
      inbox().includes(":") || !ACTIONS.includes(envelope_summary.payload_kind) ? "" : " and applies it again";
    const text = `The daemon publishes a copy with a new id to this inbox${applied}.`;
    if (!(await confirm(`Replay message ${stream_seq}?`, text, "Replay"))) return null;
    await messages.replay(inbox(), stream_seq);
    return `message ${stream_seq} is published again`;
  });
  return {
    elements: [ack, nack, replay],
    /** @param {InboxMessage} message */
    update({ state, stream_seq }) {
      const may = api.may("write");
      for (const one of [ack, nack]) show(one, may && state === "unread");
      show(replay, may && state !== "unread");
      for (const one of [ack, nack, replay])
        setAttribute(one, "aria-label", `${one.textContent} message ${stream_seq}`);
    },
  };
}

/** @param {Context} context @param {ReturnType<typeof problem>} trouble @param {() => string} inbox @param {() => void} onMoved */
function rowMaker(context, trouble, inbox, onMoved) {
  /** @param {InboxMessage} first */
  return (first) => {
    let record = first;
    const { stream_seq, envelope_summary: about } = first;
    const [state, published] = [badge(), h("time", { title: dateTime(first.created_at) })];
    const buttons = messageButtons(context, trouble, inbox, () => record, onMoved);
    const [type, from] = [seenText(about.type), seenText(about.from)];
    const contents = [
      h("b", { text: type, title: type }),
      h("code", { text: from, title: from }),
      state.element,
      published,
      h("span", { class: "acts" }, ...buttons.elements),
    ];
    const attributes = { text: count(stream_seq), "aria-label": `Message ${stream_seq}` };
    const load = async () => {
      const message = await messagesOf(context.api).get(inbox(), stream_seq);
      const { deliveries, expires_at } = message ?? record;
      return messageView(message, [
        ["Deliveries", count(deliveries)],
        ["Expires", dateTime(expires_at)],
      ]);
    };
    const { element } = openRow(COLUMNS, attributes, contents, load, { "data-seq": String(stream_seq) });
    return {
      element,
      /** @param {InboxMessage} next */
      update(next) {
        record = next;
        state.update(next.state);
        setAttribute(state.element, "title", next.is_leased ? "A receiver holds it, or it waits" : null);
        setText(published, age(next.created_at, context.clock.epochMs()));
        buttons.update(next);
      },
    };
  };
}

/** @param {InboxFacts} facts */
const summaryOf = ({ unread, messages, bytes: size }) =>
  messages === 0 ? "" : `${count(unread)} unread of ${counted(messages, "message")}, ${bytes(size)}`;

/** @param {Context} context @param {() => string} inbox a container's id or name, or the address of a queue or topic */
export function inboxCard(context, inbox) {
  const [trouble, away] = [problem(), problem()];
  const summary = h("span", { class: "hint" });
  const messages = messagesOf(context.api);
  const list = messageTable(context, {
    label: "Messages",
    kind: "inbox-messages",
    columns: COLUMNS,
    none: "No messages.",
    ask: (from_seq, to_seq) => messages.list(inbox(), from_seq, to_seq),
    row: rowMaker(context, trouble, inbox, () => list.moved()),
  });
  return {
    element: card("Messages", h("p", { class: "actions" }, summary), away.element, trouble.element, ...list.elements),
    move: list.move,
    async refresh() {
      const name = inbox();
      const facts = await (name.includes(":") ? messages.ofAddress(name) : messages.ofContainer(name));
      const { last_seq, unread, messages: kept } = facts;
      setText(summary, summaryOf(facts));
      try {
        await list.follow(last_seq, kept, `${unread} ${kept}`);
        away.update(null);
      } catch (error) {
        // The server behind the messages is away: everything else still answers.
        if (!(error instanceof ApiError) || error.code !== "SERVICE_UNAVAILABLE") throw error;
        away.update(error);
      }
    },
  };
}
