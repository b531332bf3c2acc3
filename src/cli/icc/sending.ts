/** `hearth icc send`: publishes a message or an envelope; as a request it waits for the reply. */
import { LIMITS } from "../../base/limits.ts";
import type { RequestOf } from "../../client/client.ts";
import { visible } from "../output/text.ts";
import { usage } from "../session/failure.ts";
import { readBytes, readInput } from "../session/input.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { inboxOf, payloadText } from "./message-text.ts";

type Message = RequestOf<"POST /api/icc/request">["body"];

const DEFAULT_TYPE = "message";
const MS = 1_000;

/** The value of JSON text; any other text is itself. */
export function parsedPayload(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

async function messageOf(session: Session, to: string, word: string | undefined, flags: Flags): Promise<Message> {
  const text =
    word === "-"
      ? await session.terminal.progress("reading the payload from standard input", readInput("-"))
      : (word ?? "null");
  const ttl = flags.ttl as number | undefined;
  return {
    to,
    from: flags.from as string | undefined,
    type: (flags.type as string | undefined) ?? DEFAULT_TYPE,
    payload: parsedPayload(text),
    ttl_ms: ttl === undefined ? undefined : ttl * MS,
    idempotency_key: flags.idempotencyKey as string | undefined,
    correlation_id: flags.correlationId as string | undefined,
    permission_level: flags.permissionLevel as Message["permission_level"],
  };
}

/** Flags that describe a message, which an envelope has already. */
const OF_MESSAGE = ["from", "type", "ttl", "idempotencyKey", "correlationId", "permissionLevel", "request"] as const;

async function sendEnvelope(session: Session, file: string, address: string | undefined, flags: Flags): Promise<void> {
  if (address !== undefined) throw usage("an address and --envelope exclude each other", "the envelope names it");
  const other = OF_MESSAGE.find((name) => flags[name] !== undefined);
  if (other !== undefined) throw usage(`--envelope and a flag of messages exclude each other: ${other}`);
  const bytes = await readBytes(file, LIMITS.icc_message_bytes_max);
  const body = { envelope_b64: bytes.toString("base64") };
  const sent = await session.client().request("POST /api/icc/publish", { body });
  session.show(sent, () => sentLine(session, sent));
}

function sentLine(session: Session, { msg_id, duplicate }: { readonly msg_id: string; readonly duplicate: boolean }) {
  if (duplicate) session.terminal.note("the inbox has the message already; nothing was sent");
  return `${visible(msg_id)}\n`;
}

export async function send(session: Session, [address, word]: Words, flags: Flags): Promise<void> {
  const file = flags.envelope as string | undefined;
  if (file !== undefined) return sendEnvelope(session, file, address, flags);
  if (address === undefined) throw usage("no receiver", "hearth icc send <address> [payload]");
  inboxOf(session, address);
  const body = await messageOf(session, address, word, flags);
  if (flags.request !== true) {
    if (flags.replyTimeout !== undefined) throw usage("--reply-timeout needs --request");
    const sent = await session.client().request("POST /api/icc/messages", { body });
    return session.show(sent, () => sentLine(session, sent));
  }
  session.advice = { TIMEOUT: "give a longer --reply-timeout; the message stays in its inbox until it is acked" };
  const timeout = flags.replyTimeout as number | undefined;
  const request = { ...body, timeout_ms: timeout === undefined ? undefined : timeout * MS };
  const answer = await session.terminal.progress(
    "waiting for the reply",
    session.client().request("POST /api/icc/request", { body: request }),
  );
  session.show(answer, () => `${payloadText(answer.reply.payload)}\n`);
}
