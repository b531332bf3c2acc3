/** `hearth icc receive` and `hearth icc ack`: messages are held between the two. */
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { visible } from "../output/text.ts";
import { usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { inboxOf, messageColumns } from "./message-text.ts";

type Delivery = ResponseOf<"POST /api/icc/inbox/:container_id/receive">["messages"][number];

const MS = 1_000;
const milliseconds = (seconds: unknown): number | undefined => (typeof seconds === "number" ? seconds * MS : undefined);

export async function receive(session: Session, [address = ""]: Words, flags: Flags): Promise<void> {
  const body = {
    max: flags.max as number | undefined,
    wait_ms: milliseconds(flags.wait),
    lease_ms: milliseconds(flags.lease),
  };
  const params = inboxOf(session, address);
  const answer = await session.terminal.progress(
    "waiting for messages",
    session.client().request("POST /api/icc/inbox/:container_id/receive", { params, body }),
  );
  const columns: Column<Delivery>[] = [
    { title: "NO", value: ({ stream_seq }) => stream_seq, side: "right" },
    { title: "TRIES", value: ({ deliveries }) => deliveries, side: "right" },
    ...messageColumns<Delivery>(session),
    { title: "LEASE", value: ({ lease }) => lease, isSpare: true },
  ];
  session.show(answer, () => session.table(columns, answer.messages, "no message is due"));
  if (session.flags.json !== true && answer.messages.length > 0) {
    session.terminal.note("to settle a message: hearth icc ack <msg-id>");
  }
}

export async function ack(session: Session, [msg_id = ""]: Words, flags: Flags): Promise<void> {
  const isFailed = flags.nack === true || flags.requeue === true;
  if (flags.reason !== undefined && !isFailed) throw usage("--reason needs --nack");
  const body = {
    msg_id,
    container_id: flags.inbox as string | undefined,
    action: isFailed ? ("nack" as const) : ("ack" as const),
    reason: flags.reason as string | undefined,
    requeue: flags.requeue === true,
    lease: flags.lease as string | undefined,
  };
  const answer = await session.client().request("POST /api/icc/ack", { body });
  const dead = answer.dlq_forwarded ? ", a dead letter" : "";
  session.show(answer, () => `${visible(answer.msg_id)} is ${answer.new_state}${dead}\n`);
}
