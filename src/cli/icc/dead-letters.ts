/** Dead letters: the list, and publishing one again. */
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { visible } from "../output/text.ts";
import { relative } from "../output/time.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { messageColumns } from "./message-text.ts";

type DeadLetter = ResponseOf<"GET /api/icc/dlq">["messages"][number];

export async function listDead(session: Session, _words: Words, flags: Flags): Promise<void> {
  const query = {
    from_seq: flags.from as number | undefined,
    limit: flags.limit as number | undefined,
    include_message: true,
  };
  const answer = await session.client().request("GET /api/icc/dlq", { query });
  const columns: Column<DeadLetter>[] = [
    { title: "NO", value: ({ stream_seq }) => stream_seq, side: "right" },
    { title: "INBOX", value: ({ container_id }) => container_id },
    { title: "REASON", value: ({ reason }) => reason, isLong: true },
    { title: "TRIES", value: ({ deliveries }) => deliveries, side: "right", isSpare: true },
    ...messageColumns<DeadLetter>(session),
    {
      title: "REPLAYED",
      value: ({ replayed_at }) => (replayed_at === null ? null : relative(replayed_at, session.now)),
      isSpare: true,
    },
  ];
  session.show(answer, () => session.table(columns, answer.messages, "no dead letters"));
}

export async function replayDead(session: Session, [stream_seq = ""]: Words, flags: Flags): Promise<void> {
  const params = { stream_seq };
  const body = { replay_to_container: flags.to as string | undefined };
  const answer = await session.client().request("POST /api/icc/dlq/:stream_seq/replay", { params, body });
  session.show(answer, () => `${visible(answer.msg_id)}\n`);
}
