/** Name of the field at a position of malformed bytes, for the refusal: `payload.exec_command.env`. */
import protobuf from "protobufjs/minimal.js";
import { type DescribedMessage, MESSAGES } from "./jets.generated.js";

const LENGTH_DELIMITED = 2;
/** Refusals cost at most this many steps; a later field is named by its message. */
const STEPS_MAX = 1_000;

/** Returns the path of the field that contains byte `pos`, or `envelope` if none does. */
export function fieldAt(bytes: Uint8Array, pos: number): string {
  return pathAt(protobuf.Reader.create(bytes), MESSAGES.Envelope, bytes.length, pos).join(".") || "envelope";
}

function pathAt(reader: protobuf.Reader, message: DescribedMessage, end: number, pos: number): string[] {
  for (let step = 0; step < STEPS_MAX && reader.pos < end; step++) {
    let name: string | undefined;
    try {
      const tag = reader.tag();
      const field = message.fields.find(({ number }) => number === tag >>> 3);
      name = field?.name;
      if (field === undefined || (tag & 7) !== LENGTH_DELIMITED) {
        reader.skipType(tag & 7, 0, tag >>> 3);
      } else {
        const length = reader.size();
        const begin = reader.pos;
        if (begin + length > end) return [field.name];
        // The check of text ends behind its last byte.
        if (begin + length >= pos) {
          const inner = field.map_key_type === undefined ? messageOf(field.type) : undefined;
          return [field.name, ...(inner === undefined ? [] : pathAt(reader, inner, begin + length, pos))];
        }
        reader.pos = begin + length;
      }
    } catch {
      return name === undefined ? [] : [name];
    }
    if (reader.pos >= pos) return name === undefined ? [] : [name];
  }
  return [];
}

function messageOf(type: string): DescribedMessage | undefined {
  return (MESSAGES as Readonly<Record<string, DescribedMessage>>)[type];
}
