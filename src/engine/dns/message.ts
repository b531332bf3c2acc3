/**
 * Messages of the DNS (RFC 1035, RFC 6891) as the name server reads and writes them. dns-packet parses and composes; here are the
 * checks before and after, because containers send arbitrary bytes.
 *
 * D1 A query has one question and at most one EDNS record, and nothing else. The parser sees no other message, so its work is
 *    bounded by the length of a query.
 * D2 A question is repeated in the answer byte for byte. A name that cannot be composed to the same bytes is malformed.
 */
import {
  type Answer,
  AUTHORITATIVE_ANSWER,
  CHECKING_DISABLED,
  DNSSEC_OK,
  decode,
  encode,
  type Question,
  RECURSION_AVAILABLE,
  RECURSION_DESIRED,
  TRUNCATED_RESPONSE,
} from "dns-packet";
import { LIMITS } from "../../base/limits.ts";

/** Response codes (RFC 1035, section 4.1.1). */
export const RCODE = { ok: 0, malformed: 1, failed: 2, unknown_name: 3, not_implemented: 4, refused: 5 } as const;
export type Rcode = (typeof RCODE)[keyof typeof RCODE];

const HEADER_BYTES = 12;
const RESPONSE_BIT = 0x80;
const OPCODE_BITS = 0x78;
/** Answers by UDP to clients without EDNS (RFC 1035, section 2.3.4). */
const PLAIN_UDP_BYTES = 512;

export interface Query {
  readonly id: number;
  /** As it was asked, for the answer. */
  readonly question: Question;
  /** In lower case, without a dot at the end; empty for the root. */
  readonly name: string;
  /** Flags that an answer repeats and that a forwarded query has, too. */
  readonly flags: number;
  readonly has_edns: boolean;
  readonly is_dnssec_ok: boolean;
  /** Length of an answer by UDP. */
  readonly udp_bytes_max: number;
}

/** A refusal that needs no parsed question. */
export interface Unreadable {
  readonly answer: Buffer;
}

/** Reads a query. Null: the message deserves no answer, as it is a response or too short. */
export function readQuery(bytes: Buffer): Query | Unreadable | null {
  if (bytes.length < HEADER_BYTES || ((bytes[2] ?? 0) & RESPONSE_BIT) !== 0) return null;
  if (((bytes[2] ?? 0) & OPCODE_BITS) !== 0) return { answer: bareAnswer(bytes, RCODE.not_implemented) };
  const [questions, answers, authorities, additionals] = [4, 6, 8, 10].map((at) => bytes.readUInt16BE(at));
  const isPlain = questions === 1 && answers === 0 && authorities === 0 && (additionals ?? 0) <= 1;
  if (!isPlain || bytes.length > LIMITS.dns_query_bytes_max) return { answer: bareAnswer(bytes, RCODE.malformed) };
  try {
    return parsed(bytes) ?? { answer: bareAnswer(bytes, RCODE.malformed) };
  } catch {
    return { answer: bareAnswer(bytes, RCODE.malformed) };
  }
}

function parsed(bytes: Buffer): Query | null {
  const packet = decode(bytes);
  const question = packet.questions?.[0];
  const edns = packet.additionals?.[0];
  if (question === undefined || (edns !== undefined && edns.type !== "OPT")) return null;
  if (!hasQuestion(bytes, question)) return null;
  const flags = (packet.flags ?? 0) & (RECURSION_DESIRED | CHECKING_DISABLED);
  const wanted = edns?.udpPayloadSize ?? PLAIN_UDP_BYTES;
  return {
    id: packet.id ?? 0,
    question,
    name: question.name === "." ? "" : question.name.toLowerCase(),
    flags,
    has_edns: edns !== undefined,
    is_dnssec_ok: edns !== undefined && (edns.flags & DNSSEC_OK) !== 0,
    udp_bytes_max: Math.min(Math.max(wanted, PLAIN_UDP_BYTES), LIMITS.dns_udp_bytes_max),
  };
}

/** D2. */
function hasQuestion(bytes: Buffer, question: Question): boolean {
  const composed = encode({ type: "query", questions: [question] }).subarray(HEADER_BYTES);
  return composed.equals(bytes.subarray(HEADER_BYTES, HEADER_BYTES + composed.length));
}

/** The header of a query alone, as an answer. */
function bareAnswer(bytes: Buffer, rcode: Rcode): Buffer {
  const answer = Buffer.alloc(HEADER_BYTES);
  bytes.copy(answer, 0, 0, 3);
  answer[2] = ((answer[2] ?? 0) | RESPONSE_BIT) & ~0x06;
  answer[3] = rcode;
  return answer;
}

export interface Reply {
  readonly rcode: Rcode;
  readonly answers?: readonly Answer[];
  readonly authorities?: readonly Answer[];
  /** True if the name server owns the name. */
  readonly isAuthoritative: boolean;
}

export function composeReply(query: Query, { rcode, answers = [], authorities = [], isAuthoritative }: Reply): Buffer {
  return encode({
    type: "response",
    id: query.id,
    flags: query.flags | RECURSION_AVAILABLE | (isAuthoritative ? AUTHORITATIVE_ANSWER : 0) | rcode,
    questions: [query.question],
    answers: [...answers],
    authorities: [...authorities],
    additionals: ednsOf(query),
  });
}

/** The query as it is sent to a name server of the machine, under another id. */
export function composeForward(query: Query, id: number): Buffer {
  const { flags, question } = query;
  return encode({ type: "query", id, flags, questions: [question], additionals: ednsOf(query) });
}

function ednsOf({ has_edns, is_dnssec_ok }: Query): Answer[] {
  if (!has_edns) return [];
  const flags = is_dnssec_ok ? DNSSEC_OK : 0;
  const edns = { ...{ type: "OPT" as const, name: "." }, udpPayloadSize: LIMITS.dns_udp_bytes_max, extendedRcode: 0 };
  return [{ ...edns, ednsVersion: 0, flags, flag_do: is_dnssec_ok, options: [] }];
}

/** True if a message of a name server answers a query that was sent under this id. */
export function isReplyTo(query: Query, id: number, bytes: Buffer): boolean {
  if (bytes.length < HEADER_BYTES || bytes.readUInt16BE(0) !== id || ((bytes[2] ?? 0) & RESPONSE_BIT) === 0)
    return false;
  // Servers that fail may leave the question out.
  if (bytes.readUInt16BE(4) === 0) return ((bytes[3] ?? 0) & 0x0f) !== RCODE.ok;
  if (bytes.readUInt16BE(4) !== 1) return false;
  const composed = encode({ type: "query", questions: [query.question] }).subarray(HEADER_BYTES);
  const received = bytes.subarray(HEADER_BYTES, HEADER_BYTES + composed.length);
  // A server may change the case of letters.
  return received.toString("latin1").toLowerCase() === composed.toString("latin1").toLowerCase();
}

/** A message of a name server as the answer to a query; by UDP without its records if they do not fit. */
export function passedOn(query: Query, bytes: Buffer, bytes_max: number): Buffer {
  if (bytes.length > bytes_max) {
    const rcode = ((bytes[3] ?? 0) & 0x0f) as Rcode;
    const answer = composeReply(query, { rcode, isAuthoritative: false });
    answer.writeUInt16BE(answer.readUInt16BE(2) | TRUNCATED_RESPONSE, 2);
    return answer;
  }
  const answer = Buffer.from(bytes);
  answer.writeUInt16BE(query.id, 0);
  return answer;
}
