/** Inboxes: their messages as a list or as they arrive, replays, and the counts of all. Nothing here delivers a message. */
import { LIMITS } from "../../base/limits.ts";
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { json, visible } from "../output/text.ts";
import { bytes, stamp } from "../output/time.ts";
import { eachPoll } from "../session/poll.ts";
import { type Flags, isRefusal, type Session, type Words } from "../session/session.ts";
import { type InboxMessage, inboxOf, messageColumns, payloadText } from "./message-text.ts";

type State = InboxMessage["state"];
type Stream = ResponseOf<"GET /api/icc/streams">["streams"][number];

const STATE_FORMATS = { unread: "yellow", acked: "green", failed: "red", expired: "dim" } as const;

export async function listInbox(session: Session, [address = ""]: Words, flags: Flags): Promise<void> {
  const query = {
    state: flags.state as State | undefined,
    from_seq: flags.from as number | undefined,
    limit: flags.limit as number | undefined,
    include_message: true,
  };
  const params = inboxOf(session, address);
  const answer = await session.client().request("GET /api/icc/inbox/:container_id", { params, query });
  const columns: Column<InboxMessage>[] = [
    { title: "NO", value: ({ stream_seq }) => stream_seq, side: "right" },
    {
      title: "STATE",
      value: ({ state, is_leased }) => (is_leased ? "held" : state),
      format: ({ state }) => STATE_FORMATS[state],
    },
    { title: "TRIES", value: ({ deliveries }) => deliveries, side: "right", isSpare: true },
    ...messageColumns<InboxMessage>(session),
  ];
  session.show(answer, () => session.table(columns, answer.messages, "no messages"));
}

/** The number after the last message of an inbox. */
async function nextSeq(session: Session, container_id: string): Promise<number> {
  const { streams } = await session.client().request("GET /api/icc/streams", { query: { container_id } });
  return (streams[0]?.last_seq ?? 0) + 1;
}

export async function tailInbox(session: Session, [address = ""]: Words, flags: Flags): Promise<void> {
  const params = inboxOf(session, address);
  let from_seq = (flags.from as number | undefined) ?? (await nextSeq(session, address));
  const client = session.client();
  return eachPoll(session, async () => {
    for (;;) {
      const query = { from_seq, limit: LIMITS.entries_read_default, include_message: true };
      const { messages } = await client
        .request("GET /api/icc/inbox/:container_id", { params, query })
        .catch((error) => {
          // A queue or topic has no inbox before its first message.
          if (address.includes(":") && isRefusal(error, "NOT_FOUND")) return { messages: [] };
          throw error;
        });
      for (const message of messages) {
        session.terminal.out(session.flags.json === true ? `${json(message, 0)}\n` : lineOf(session, message));
        from_seq = message.stream_seq + 1;
      }
      if (messages.length === 0) return;
    }
  });
}

function lineOf(session: Session, { created_at, stream_seq, envelope_summary, message }: InboxMessage): string {
  const { msg_id, from, type } = envelope_summary;
  const words = [stream_seq, msg_id, from, type, payloadText(message?.payload)];
  return `${session.terminal.paint("dim", stamp(created_at))}  ${words.map((word) => visible(String(word))).join("  ")}\n`;
}

export async function replay(session: Session, [address = ""]: Words, flags: Flags): Promise<void> {
  const body = {
    state: flags.state as State | undefined,
    from_seq: flags.from as number | undefined,
    to_seq: flags.to as number | undefined,
    limit: flags.limit as number | undefined,
  };
  const params = inboxOf(session, address);
  const answer = await session.client().request("POST /api/icc/inbox/:container_id/replay", { params, body });
  session.show(answer, () => answer.messages.map(({ msg_id }) => `${visible(msg_id)}\n`).join(""));
  if (session.flags.json !== true && answer.replayed === 0) session.terminal.note("no message is in that range");
}

export async function listStreams(session: Session): Promise<void> {
  const client = session.client();
  const streams: Stream[] = [];
  let after: string | undefined;
  for (let page = 0; page < LIMITS.cli_list_pages_max; page++) {
    const answer = await client.request("GET /api/icc/streams", { query: { after, limit: LIMITS.list_limit_max } });
    streams.push(...answer.streams);
    after = answer.next_after ?? undefined;
    if (after === undefined) break;
  }
  const columns: Column<Stream>[] = [
    { title: "INBOX", value: ({ container_id }) => container_id },
    { title: "UNREAD", value: ({ unread }) => unread, side: "right" },
    { title: "MESSAGES", value: ({ messages }) => messages, side: "right" },
    { title: "SIZE", value: (stream) => bytes(stream.bytes), side: "right" },
    { title: "LAST", value: ({ last_seq }) => last_seq, side: "right" },
    { title: "STREAM", value: ({ stream }) => stream, format: () => "dim", isSpare: true },
  ];
  const empty = "no inboxes yet: hearth icc send <container> hello";
  session.show({ streams, next_after: after ?? null }, () => session.table(columns, streams, empty));
}
