/** Shapes of requests on the socket of a container. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { text, textBytes, whole } from "../../base/schema.ts";
import { messageSchema } from "../envelope/message-schema.ts";

const REASON_LENGTH_MAX = 1_024;
const DAY_MS = 24 * 3_600_000;

const id = textBytes(LIMITS.icc_id_bytes_max).min(1);
const inbox = id.describe("Inbox to receive from: `queue:<name>`. Absent: the container's own.");
const name = z.string().regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, { error: "must be a name of [a-z0-9._-], at most 63" });

export const topicParams = z.object({ name });

export const stateParams = z.object({
  key: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/, { error: "must be a key of [A-Za-z0-9._:-], at most 128" }),
});

export const requestBody = messageSchema.extend({
  timeout_ms: whole(1, LIMITS.message_wait_ms_max).optional().describe("Longest time until the reply."),
});

export const receiveBody = z.object({
  inbox: inbox.optional(),
  max: whole(1, LIMITS.icc_receive_max).default(1),
  wait_ms: whole(0, LIMITS.message_wait_ms_max).default(0),
  lease_ms: whole(LIMITS.lease_min_ms, LIMITS.lease_max_ms).optional(),
  ordered: z.boolean().default(false),
});

const flag = z.enum(["0", "1", "false", "true"]).transform((value) => value === "1" || value === "true");

export const streamQuery = z.object({
  inbox: inbox.optional(),
  lease_ms: z.coerce.number().pipe(whole(LIMITS.lease_min_ms, LIMITS.lease_max_ms)).optional(),
  ordered: flag.default(false),
  prefetch: z.coerce.number().pipe(whole(1, LIMITS.icc_receive_max)).default(1),
});

export const settleBody = z.object({
  msg_id: id,
  inbox: inbox.optional(),
  action: z.enum(["ack", "nack"]).default("ack"),
  lease: id.optional(),
  reason: text(REASON_LENGTH_MAX).optional(),
  requeue: z.boolean().default(false),
  delay_ms: whole(0, DAY_MS).optional(),
});

export const replyBody = z.object({
  msg_id: id.optional().describe("The message that is answered, of the container's own inbox."),
  correlation_id: id.optional(),
  to: id.optional(),
  type: messageSchema.shape.type.optional(),
  payload: z.unknown(),
});

export const stateQuery = z.object({ prefix: text(128).default(""), watch: flag.default(false) });

export const stateBody = z.object({
  value: z.unknown(),
  if_version: whole(0, Number.MAX_SAFE_INTEGER)
    .optional()
    .describe("Version that the key has; 0: there is no such key."),
});
