/** Columns of a list of messages; the payload is text. */
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { json } from "../output/text.ts";
import { relative } from "../output/time.ts";
import type { Session } from "../session/session.ts";

export type InboxMessage = ResponseOf<"GET /api/icc/inbox/:container_id">["messages"][number];

/** JSON text of a payload; a text is shown as it is. */
export function payloadText(payload: unknown): string {
  return typeof payload === "string" ? payload : json(payload ?? null, 0);
}

/** The path parameter of an inbox. A container is sought by its name if there is none. */
export function inboxOf(session: Session, address: string): { readonly container_id: string } {
  if (!address.includes(":") && !session.isContainerId(address)) {
    session.sought = { word: address, names: () => session.containerNames() };
  }
  return { container_id: address };
}

/** Columns that lists of messages share. */
export function messageColumns<Row extends Pick<InboxMessage, "envelope_summary" | "message" | "created_at">>(
  session: Session,
): Column<Row>[] {
  return [
    { title: "TYPE", value: ({ envelope_summary }) => envelope_summary.type },
    { title: "FROM", value: ({ envelope_summary }) => envelope_summary.from, isSpare: true },
    { title: "WHEN", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "PAYLOAD", value: ({ message }) => payloadText(message?.payload), isLong: true },
    { title: "MESSAGE", value: ({ envelope_summary }) => envelope_summary.msg_id, format: () => "dim" },
  ];
}
