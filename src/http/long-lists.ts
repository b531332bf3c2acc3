/**
 * Answers that are long lists. Their JSON is written a piece at a time, in the turns of the tenant that they are for: thousands of
 * items in one go would keep the calls of other tenants waiting.
 *
 * J1 Items are in memory, uncounted, for as long as writing them takes: it waits for turns of the event loop, never for the
 *    tenant's part of a second.
 * J2 The bytes count in the memory of requests as they are written, until the client has them. They wait for that part of a second.
 */
import { Answer, ListAnswer, ListPieces, Streamed } from "../base/answer.ts";
import { jsonOf } from "../base/json-text.ts";
import { LIMITS } from "../base/limits.ts";
import { JSON_TYPE } from "../base/media-types.ts";
import type { TransferTurn } from "../base/transfer-turns.ts";

/** Of a piece. A short list is one. */
const PIECE_CHARACTERS_MIN = 16 * 1024;

type Fields = Readonly<Record<string, unknown>>;

interface Writing {
  readonly turn: TransferTurn;
  /** Called with the bytes of each piece. Throws where there is no room for them. */
  readonly hold: (bytes: number) => void;
}

function isLong(value: unknown): value is readonly unknown[] | ListPieces {
  return value instanceof ListPieces || (Array.isArray(value) && value.length > LIMITS.turn_items);
}

/** Returns the answer if a field of its body is a list in pieces, or one longer than `turn_items`; null for any other. */
export function longListOf(result: unknown, status: number): ListAnswer | null {
  if (result instanceof ListAnswer) return result;
  const { body, headers, ...answer } = result instanceof Answer ? result : new Answer(status, result);
  if (typeof body !== "object" || body === null || !Object.values(body).some(isLong)) return null;
  return new ListAnswer(body as Fields, { status: answer.status, headers });
}

/** Resolves to the same answer as bytes. */
export async function streamedList({ body, status, headers }: ListAnswer, writing: Writing): Promise<Streamed> {
  const pieces = await jsonPieces(body, writing);
  await writing.turn.take(0);
  const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const source = (async function* () {
    yield* pieces;
  })();
  const more_headers = { ...headers, "content-length": String(bytes) };
  return new Streamed(source, { content_type: JSON_TYPE, status, headers: more_headers, is_exclusive: true });
}

/** Resolves to the bytes that `jsonOf` gives, in order. */
export async function jsonPieces(body: Fields, { turn, hold }: Writing): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  let text = "";
  const flush = async (): Promise<void> => {
    const piece = Buffer.from(text);
    text = "";
    hold(piece.length);
    pieces.push(piece);
    await turn.pass(piece.length * LIMITS.turn_json_weight);
  };
  let before = "{";
  for (const [key, value] of Object.entries(body)) {
    const whole = isLong(value) ? "[" : jsonOf(value);
    if (whole === undefined) continue;
    text += `${before}${JSON.stringify(key)}:${whole}`;
    before = ",";
    if (!isLong(value)) continue;
    let comma = "";
    for await (const items of value instanceof ListPieces ? value.source : [value]) {
      for (const item of items) {
        text += `${comma}${jsonOf(item) ?? "null"}`;
        comma = ",";
        if (text.length >= PIECE_CHARACTERS_MIN) await flush();
      }
    }
    text += "]";
  }
  text += before === "{" ? "{}" : "}";
  await flush();
  return pieces;
}
