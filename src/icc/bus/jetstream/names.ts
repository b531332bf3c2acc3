/**
 * Names on the server: subjects, message ids, headers. Texts of tenants become tokens without a dot, a wildcard or a space.
 * A subject ends in the number of the inbox: an inbox that is removed and made again has another subject.
 */
import type { MsgHdrs } from "@nats-io/transport-node";
import type { Outgoing } from "../port.ts";

const PLAIN = /[A-Za-z0-9_-]/;
const ENCODED = /^(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+$/;
/** Messages with copies in several inboxes; no token of an inbox starts with a dollar. */
const SHARED = "$shared";

/** Headers beside the server's own `Nats-Msg-Id`. */
export const HEADERS = {
  /** The number that the publisher chose; the ledger decides. */
  seq: "Hearth-Seq",
  message: "Hearth-Message",
  expires: "Hearth-Expires",
  key: "Hearth-Key",
  /** `settled`, `action`, or absent. */
  kind: "Hearth-Kind",
} as const;

/** Encodes a text as one token of a subject, at least one character. */
export function toToken(text: string): string {
  let token = "";
  for (const byte of Buffer.from(text)) {
    const character = String.fromCharCode(byte);
    token += PLAIN.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return token === "" ? "%" : token;
}

/** Decodes a token; null: it is none. */
export function fromToken(token: string): string | null {
  if (token === "%") return "";
  if (!ENCODED.test(token)) return null;
  const bytes = token.replace(/%([0-9A-F]{2})|([^%])/g, (_, hex, plain) => hex ?? plain.charCodeAt(0).toString(16));
  return Buffer.from(bytes, "hex").toString();
}

export interface Address {
  readonly tenant_id: string;
  /** Null: the message has copies in several inboxes. */
  readonly inbox: string | null;
  readonly inbox_no: number;
}

export class Names {
  readonly stream: string;
  readonly #prefix: string;

  constructor(host_tag: string) {
    this.stream = `HEARTH_ICC_${toToken(host_tag)}`;
    this.#prefix = `hearth.icc.${toToken(host_tag)}.`;
  }

  /** All subjects of the stream. */
  get subjects(): string {
    return `${this.#prefix}>`;
  }

  subject({ tenant_id, inbox, inbox_no }: Address): string {
    return `${this.#prefix}${toToken(tenant_id)}.${inbox === null ? SHARED : toToken(inbox)}.${inbox_no}`;
  }

  /** Messages of one inbox, whatever its name. */
  filter(inbox_no: number): string {
    return `${this.#prefix}*.*.${inbox_no}`;
  }

  durable(inbox_no: number): string {
    return `inbox_${inbox_no}`;
  }

  /** Null: no subject of this stream. */
  address(subject: string): Address | null {
    if (!subject.startsWith(this.#prefix)) return null;
    const [tenant = "", inbox = "", number = "", ...others] = subject.slice(this.#prefix.length).split(".");
    const tenant_id = fromToken(tenant);
    const name = inbox === SHARED ? null : fromToken(inbox);
    if (tenant_id === null || (name === null && inbox !== SHARED)) return null;
    if (others.length > 0 || !/^[1-9]\d{0,8}$/.test(number)) return null;
    return { tenant_id, inbox: name, inbox_no: Number(number) };
  }
}

/** The id by which the server knows a message again. */
export function duplicateId(message: Outgoing, inbox_no: number): string {
  return `${toToken(message.tenant_id)}/${toToken(message.inbox)}/${inbox_no}:${toToken(message.msg_id)}`;
}

export function setHeaders(headers: MsgHdrs, message: Outgoing, stream_seq: number): void {
  headers.set(HEADERS.seq, String(stream_seq));
  headers.set(HEADERS.message, toToken(message.msg_id));
  headers.set(HEADERS.expires, String(message.expires_ms));
  if (message.idempotency_key !== "") headers.set(HEADERS.key, toToken(message.idempotency_key));
  if (message.is_settled === true) headers.set(HEADERS.kind, "settled");
  else if (message.is_action === true) headers.set(HEADERS.kind, "action");
}

/** A message of the stream, with the number that its publisher chose. */
export interface StoredMessage extends Address {
  readonly message: Outgoing;
  readonly stream_seq: number;
}

/** Reads a message of the stream; null: this program has not written it, or it has copies. */
export function toStored(address: Address, headers: MsgHdrs | undefined, envelope: Uint8Array): StoredMessage | null {
  const msg_id = fromToken(headers?.get(HEADERS.message) ?? "");
  const expires = headers?.get(HEADERS.expires) ?? "";
  const key = headers?.get(HEADERS.key) ?? "";
  const idempotency_key = key === "" ? "" : fromToken(key);
  if (address.inbox === null || msg_id === null || idempotency_key === null) return null;
  const stream_seq = headers?.get(HEADERS.seq) ?? "";
  if (!/^\d{1,15}$/.test(expires) || !/^[1-9]\d{0,9}$/.test(stream_seq) || envelope.byteLength === 0) return null;
  const kind = headers?.get(HEADERS.kind);
  const message = {
    ...{ tenant_id: address.tenant_id, inbox: address.inbox, msg_id, idempotency_key, envelope },
    ...{ expires_ms: Number(expires), is_settled: kind === "settled", is_action: kind === "action" },
  };
  return { ...address, message, stream_seq: Number(stream_seq) };
}
