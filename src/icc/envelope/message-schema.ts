/** The shape of a message in plain JSON, for bodies of requests. See messages.ts for what it becomes. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { textBytes, whole } from "../../base/schema.ts";
import { ENUMS, type PermissionLevel } from "./jets.generated.js";
import { MESSAGE_TYPE } from "./message-type.ts";

const id = textBytes(LIMITS.icc_id_bytes_max);
/** Levels that a sender may name. */
export const PERMISSION_LEVELS = Object.keys(ENUMS.PermissionLevel).slice(1) as [PermissionLevel, ...PermissionLevel[]];

export const messageSchema = z.object({
  to: id
    .min(1)
    .describe("Address of the receiver: a container's id or name, `queue:<name>`, `topic:<name>` or `state:<key>`."),
  from: id.min(1).optional().describe("Address of the sender; by default the caller's own."),
  type: z
    .string()
    .regex(MESSAGE_TYPE, {
      error: "must be 1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    })
    .describe("Payload kind, such as `exec_command`; any other type is an application message."),
  payload: z
    .unknown()
    .optional()
    .meta({
      type: ["string", "number", "boolean", "object", "array", "null"],
      description: "Any JSON of an application message, or the fields of the payload kind; null by default.",
    }),
  ttl_ms: whole(1, Number.MAX_SAFE_INTEGER)
    .optional()
    .describe("Time until the message expires, in milliseconds; 7 days by default and at most."),
  msg_id: id.min(1).optional().describe("Identifier, unique per inbox; by default the daemon chooses one."),
  request_id: id.optional().describe("Identifier of the request that caused the message."),
  trace_id: id.optional().describe("Trace that the message belongs to; by default that of the request."),
  correlation_id: id.optional().describe("Identifier that replies repeat."),
  causation_id: id.optional().describe("msg_id of the message that caused this one."),
  stream_key: id.optional().describe("Stream that the sender numbers its messages in."),
  seq: whole(0, Number.MAX_SAFE_INTEGER).optional().describe("Number of the message in the sender's stream."),
  idempotency_key: id.optional().describe("Key under which the receiver accepts one message in 24 hours."),
  permission_level: z
    .enum(PERMISSION_LEVELS)
    .optional()
    .describe("Permission that the payload needs; by default the least that its kind permits."),
});

export type JsonMessage = z.infer<typeof messageSchema>;
