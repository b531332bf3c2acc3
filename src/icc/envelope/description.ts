/** The envelope's format as data for clients, all from jets.proto: its text, its messages, its kinds, its descriptor. */
import { readFileSync } from "node:fs";
import { DESCRIPTOR_B64, ENUMS, MESSAGES } from "./jets.generated.js";
import { PAYLOAD_KINDS } from "./message-type.ts";
import { PERMISSIONS } from "./validation.ts";

const PACKAGE = "jets";

/** Text of jets.proto. */
export const envelopeProto: string = readFileSync(new URL("./jets.proto", import.meta.url), "utf8");

/** Messages with their fields, and enumerations with their numbers. */
export const envelopeSchema = {
  syntax: "proto3",
  package: PACKAGE,
  message: `${PACKAGE}.Envelope`,
  messages: MESSAGES,
  enums: ENUMS,
} as const;

/** Payload kinds: the number in `Payload`, the message, and the permission levels that it permits, the least first. */
export const envelopeTypes = {
  types: PAYLOAD_KINDS.map((kind) => {
    const field = MESSAGES.Payload.fields.find(({ name }) => name === kind);
    return {
      type: kind,
      number: field?.number ?? 0,
      message: `${PACKAGE}.${field?.type ?? ""}`,
      description: field?.description ?? "",
      permission_levels: PERMISSIONS[kind],
    };
  }),
} as const;

/** google.protobuf.FileDescriptorSet of jets.proto, encoded, in base64. */
export const envelopeDescriptor = { package: PACKAGE, file_descriptor_set_b64: DESCRIPTOR_B64 } as const;
