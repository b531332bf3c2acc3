/** Shapes of messages in requests and answers. The envelope itself is envelope/jets.proto. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import {
  absolutePath,
  epochSeconds,
  queryFlag,
  queryLimit,
  queryNumber,
  text,
  textBytes,
  whole,
} from "../base/schema.ts";
import { argv } from "../containers/schema.ts";
import { ENTRY_STATES } from "./bus/port.ts";
import { messageSchema, PERMISSION_LEVELS } from "./envelope/message-schema.ts";

const id = textBytes(LIMITS.icc_id_bytes_max).min(1);
const seq = whole(1, 2 ** 32 - 1);
const state = z.enum(ENTRY_STATES).describe("unread (also while a receiver holds it), acked, failed or expired.");
const inboxName = id.describe("Id or name of the container, or `queue:<name>` or `topic:<name>`.");
export const permissionLevel = z
  .enum(PERMISSION_LEVELS)
  .describe("READ_ONLY, WRITE_STATE, EXECUTE, ADMIN or FULL, in this order.");

const envelopeField = z
  .string()
  .max(Math.ceil(LIMITS.icc_message_bytes_max / 3) * 4)
  .describe("Envelope (protobuf message jets.Envelope) in base64.");

export const byContainer = z.object({
  container_id: z.string().meta({ description: "Id or name of the container.", examples: ["ctr_c1v8hx2m9qk4te7b"] }),
});
export const byInbox = z.object({
  container_id: z.string().meta({
    description: "Id or name of the container, `queue:<name>` or `topic:<name>`.",
    examples: ["ctr_c1v8hx2m9qk4te7b"],
  }),
});
export const byMessage = z.object({
  msg_id: z.string().meta({ description: "Id of the message.", examples: ["msg_7k2m9qx4hx1v8c0b"] }),
});
export const byDeadLetter = z.object({
  stream_seq: z.string().meta({ description: "Number of the dead letter.", examples: ["1"] }),
});

export const publishEnvelope = z.object({ envelope_b64: envelopeField }).meta({ id: "PublishEnvelope" });
/** An envelope, or a message in plain JSON; `contentOf` checks which. */
export const publishMessage = messageSchema
  .partial({ to: true, type: true })
  .extend({ envelope_b64: envelopeField.optional().describe("Envelope in base64, in place of all other fields.") })
  .meta({ id: "PublishMessage" });

const addresses = z.array(textBytes(LIMITS.icc_id_bytes_max)).max(LIMITS.broadcast_targets_max);
const targetFields = {
  include_non_running: z
    .boolean()
    .default(false)
    .describe("Includes containers that do not run; otherwise one in container_ids fails."),
  limit: whole(1, Number.MAX_SAFE_INTEGER).nullish().describe("Maximum number of targets."),
};
const targets = z
  .object({
    container_ids: addresses
      .nullish()
      .describe("Targets: ids or names of containers, queues, topics (default: all containers of the tenant)."),
    ...targetFields,
  })
  .default({ include_non_running: false })
  .describe("Which containers; by default all running ones.");

const NO_TARGETS = "expected the containers that run the command";
const commandTargets = z
  .object({
    container_ids: addresses.nullish().describe("Targets: ids or names of containers, at least one."),
    ...targetFields,
  })
  .refine(({ container_ids }) => container_ids?.some((name) => name.trim() !== "") === true, {
    error: NO_TARGETS,
    path: ["container_ids"],
  })
  .nullish()
  .transform((wanted, context) => {
    if (wanted != null) return wanted;
    context.addIssue({ code: "custom", message: NO_TARGETS });
    return z.NEVER;
  })
  .describe("Which containers: required, as a command in all of them is rarely meant.");

export const broadcastMessage = z.object({ envelope_b64: envelopeField, targets }).meta({ id: "BroadcastMessage" });

export const broadcastCommand = z
  .object({
    command: argv.describe("Command as argv."),
    timeout_ms: whole(1, LIMITS.exec_timeout_ms_max)
      .nullish()
      .describe(
        `Milliseconds until the daemon kills the command in a target. Default: ${LIMITS.exec_timeout_ms_default}.`,
      ),
    workdir: absolutePath.nullish().describe("Working directory (default: the container's)."),
    capture_output: z.boolean().default(true).describe("Keeps the output."),
    detach: z.boolean().default(false).describe("Answers when the command has started in each target."),
    targets: commandTargets,
  })
  .meta({ id: "BroadcastCommand" });

const ackFields = {
  action: z
    .enum(["ack", "nack"])
    .default("ack")
    .describe("ack: the message is done; nack: it failed and becomes a dead letter."),
  reason: text(1_024).nullish().describe("Why it failed; the dead letter has it."),
  lease: text(64).nullish().describe("Lease of the delivery; an earlier one is refused with 409."),
  requeue: z.boolean().default(false).describe("With nack: delivers the message again, until max_deliver."),
  delay_ms: whole(0, LIMITS.lease_max_ms).default(0).describe("With requeue: milliseconds until the next delivery."),
};
const someInbox = inboxName.nullish().describe("Inbox; needed if the msg_id is in several.");
const sameInbox = inboxName.nullish().describe("The inbox of the path, if it is sent at all.");
export const ackInInbox = z
  .object({ msg_id: id.describe("Id of the message."), container_id: sameInbox, ...ackFields })
  .meta({ id: "AckMessage" });
export const ackAnywhere = ackInInbox.extend({ container_id: someInbox }).meta({ id: "AckMessageAnywhere" });
export const ackById = z
  .object({
    msg_id: id.nullish().describe("The msg_id of the path, if it is sent at all."),
    container_id: someInbox,
    ...ackFields,
  })
  .meta({ id: "AckMessageById" });
export const ackAnswer = z
  .object({
    msg_id: z.string().describe("Id of the message."),
    container_id: z.string().describe("Inbox of the message."),
    new_state: state,
    dlq_forwarded: z.boolean().describe("True if the message became a dead letter."),
  })
  .meta({ id: "AckedMessage" });

const range = {
  from_seq: seq.nullish().describe("First stream_seq (default: the first)."),
  to_seq: seq.nullish().describe("Last stream_seq (default: the last)."),
  state: state.nullish().describe("Only messages in this state."),
  limit: whole(1, Number.MAX_SAFE_INTEGER)
    .nullish()
    .describe(`Maximum number of messages; default ${LIMITS.entries_read_default}.`),
};
export const replayInInbox = z.object({ container_id: sameInbox, ...range }).meta({ id: "ReplayInbox" });
export const replayMessages = z
  .object({ container_id: id.describe("Id or name of the container."), ...range })
  .meta({ id: "ReplayMessages" });
export const replayDead = z
  .object({ replay_to_container: inboxName.nullish().describe("Another inbox (default: the original one).") })
  .meta({ id: "ReplayDeadLetter" });

const include_message = queryFlag().describe("Includes each message in plain JSON.");
export const inboxQuery = z.object({
  from_seq: queryNumber(1, 2 ** 32 - 1)
    .optional()
    .describe("First stream_seq."),
  to_seq: queryNumber(1, 2 ** 32 - 1)
    .optional()
    .describe("Last stream_seq."),
  state: z.enum(ENTRY_STATES).optional().describe("Only messages in this state."),
  limit: queryLimit(LIMITS.entries_read_default, LIMITS.entries_read_max),
  include_message,
});
export const messagesQuery = inboxQuery.extend({ container_id: id.describe("Id or name of the container.") });
export const deadQuery = z.object({
  from_seq: queryNumber(1, 2 ** 32 - 1)
    .optional()
    .describe("First stream_seq."),
  limit: queryLimit(LIMITS.entries_read_default, LIMITS.entries_read_max),
  include_message,
});
export const streamsQuery = z.object({
  container_id: inboxName.optional().describe("Only this inbox, also if nothing was published to it yet."),
  after: z
    .string()
    .max(LIMITS.icc_id_bytes_max)
    .optional()
    .describe("Continues after the inbox of this name: next_after."),
  limit: queryLimit(),
});

export const receiveMessages = z
  .object({
    max: whole(1, LIMITS.entries_read_max).default(1).describe("Maximum number of messages."),
    wait_ms: whole(0, LIMITS.message_wait_ms_max).default(0).describe("Milliseconds to wait for the first message."),
    lease_ms: whole(LIMITS.lease_min_ms, LIMITS.lease_max_ms)
      .default(LIMITS.lease_default_ms)
      .describe("Milliseconds for which no other receiver gets them."),
    max_deliver: whole(1, LIMITS.max_deliver_max)
      .default(LIMITS.max_deliver_default)
      .describe("Deliveries after which a message without an ack is a dead letter."),
    ordered: z.boolean().default(false).describe("Delivers nothing while an earlier message is held or delayed."),
  })
  .meta({ id: "ReceiveMessages" });

export const requestMessage = messageSchema
  .extend({
    timeout_ms: whole(1, LIMITS.message_wait_ms_max).default(30_000).describe("Milliseconds to wait for the reply."),
  })
  .meta({ id: "RequestMessage" });

export const published = z
  .object({
    msg_id: z.string().describe("Id of the message."),
    container_id: z.string().describe("Inbox that has it: the container's id, or the address of a queue or topic."),
    stream: z.string().describe("Name of the inbox's stream."),
    subject: z.string().describe("Subject of the inbox."),
    stream_seq: z.int().describe("Number of the message in the inbox, from 1."),
    duplicate: z.boolean().describe("True if the inbox had the message already; nothing was written."),
  })
  .meta({ id: "PublishedMessage" });

const summary = z
  .object({
    msg_id: z.string().describe("Id of the message."),
    from: z.string().describe("Sender."),
    to: z.string().describe("Address of the receiver."),
    request_id: z.string().describe("Id of the request that caused it."),
    permission_level: z.string().describe("Permission level of the message."),
    payload_kind: z.string().describe("Kind of the payload."),
    type: z.string().describe("Type of an application message; otherwise the payload kind."),
    trace_id: z.string().describe("Trace that it belongs to."),
    correlation_id: z.string().describe("Message that it replies to."),
    causation_id: z.string().describe("Message that caused it."),
    sent_at: z.int().describe("Milliseconds since the Unix epoch."),
    ttl_ms: z.int().describe("Time until it expires, in milliseconds."),
  })
  .meta({ id: "EnvelopeSummary" });

const message = z
  .looseObject({
    msg_id: z.string().describe("Id of the message."),
    from: z.string().describe("Sender."),
    to: z.string().describe("Address of the receiver."),
    type: z.string().describe("Type of an application message; otherwise the payload kind."),
    payload: z
      .unknown()
      .meta({ type: ["string", "number", "boolean", "object", "array", "null"], description: "Payload in JSON." }),
  })
  .meta({ id: "Message" });

const plainMessage = message.optional().describe("The message in plain JSON, if include_message is true.");

const messageFields = {
  msg_id: z.string().describe("Id of the message."),
  stream: z.string().describe("Name of the inbox's stream."),
  stream_seq: z.int().describe("Number of the message in the inbox."),
  envelope_b64: z.string().describe("Envelope in base64."),
  envelope_summary: summary,
  state,
  deliveries: z.int().describe("Number of deliveries so far."),
  is_leased: z.boolean().describe("True while a receiver holds it, or a delay runs."),
  created_at: epochSeconds,
  expires_at: epochSeconds,
};
export const inboxMessages = z
  .object({
    container_id: z.string().describe("Inbox."),
    stream: z.string().describe("Name of its stream."),
    messages: z
      .array(z.object({ ...messageFields, message: plainMessage }).meta({ id: "InboxMessage" }))
      .describe("In the order of stream_seq."),
  })
  .meta({ id: "InboxMessages" });

export const received = z
  .object({
    messages: z
      .array(
        z
          .object({
            ...messageFields,
            lease: z.string().describe("Names this delivery; an ack may carry it."),
            lease_expires_at: epochSeconds,
            message: message.describe("The message in plain JSON."),
          })
          .meta({ id: "DeliveredMessage" }),
      )
      .describe("In the order of stream_seq; empty: none came within wait_ms."),
  })
  .meta({ id: "ReceivedMessages" });

export const replied = published.extend({ reply: message }).meta({ id: "RepliedMessage" });

export const replayed = z
  .object({
    replayed: z.int().describe("Number of messages published again."),
    messages: z.array(published).describe("The new messages."),
  })
  .meta({ id: "ReplayedMessages" });

export const deadLetters = z
  .object({
    stream: z.string().describe("Name of the stream."),
    last_seq: z.int().describe("Number of the tenant's last dead letter; 0: none yet."),
    messages: z
      .array(
        z
          .object({
            msg_id: z.string().describe("Id of the message."),
            stream: z.string().describe("Name of the stream."),
            stream_seq: z.int().describe("Number among the tenant's dead letters."),
            envelope_b64: z.string().describe("Envelope in base64."),
            envelope_summary: summary,
            message: plainMessage,
            container_id: z.string().describe("Inbox that it was in."),
            original_stream: z.string().describe("Stream that it was in."),
            original_stream_seq: z.int().describe("Its number in that inbox."),
            reason: z.string().describe("The nack's reason, or max_deliver."),
            deliveries: z.int().describe("Number of deliveries."),
            created_at: epochSeconds,
            replayed_at: epochSeconds.nullable().describe("Time of the last replay; null: never."),
          })
          .meta({ id: "DeadLetter" }),
      )
      .describe("In the order of stream_seq."),
  })
  .meta({ id: "DeadLetters" });

export const broadcastAnswer = z
  .object({
    request_id: z.string().describe("Id of the request that caused it."),
    accepted: z.int().describe("Targets that have the message."),
    failed: z.int().describe("Number of targets that failed."),
    results: z
      .array(
        z.object({
          target: z.string().describe("Target as the request named it."),
          msg_id: z.string().describe("Id of the message."),
          result: published.nullable().describe("Where the message is; null if the target failed."),
          error: z.string().nullable().describe("Why the target failed; null otherwise."),
        }),
      )
      .describe("One of each target, in their order."),
  })
  .meta({ id: "BroadcastResult" });

export const commandAnswer = z
  .object({
    succeeded: z.int().describe("Number of targets in which the command ran, whatever its exit code."),
    failed: z.int().describe("Number of targets that failed."),
    results: z
      .array(
        z.object({
          container_id: z.string().describe("Inbox: the id of the container, or the address of a queue or topic."),
          job_id: z.string().nullable().describe("Id of the job record; null if the command did not run."),
          exit_code: z.int().nullable().describe("Exit code; null if the command did not end."),
          stdout: z.string().describe("Output as UTF-8."),
          stderr: z.string().describe("Output as UTF-8."),
          timed_out: z.boolean().describe("True if the daemon killed the command at timeout_ms."),
          error: z.string().nullable().describe("Why it did not run; null if it ran."),
        }),
      )
      .describe("One of each target, in their order."),
  })
  .meta({ id: "BroadcastCommandResult" });

const streamFields = {
  container_id: z.string().describe("Inbox: the container's id, or the address of a queue or topic."),
  stream: z.string().describe("Name of the stream."),
  subject: z.string().describe("Subject of the inbox."),
  last_seq: z.int().describe("Number of the last message; 0: none yet."),
  unread: z.int().describe("Number of messages that are not settled."),
  messages: z.int().describe("Number of messages that are kept, settled ones included."),
  bytes: z.int().describe("Size of the kept messages."),
  state_version: z.int().describe("Number of actions that were applied to the container."),
};
export const streams = z
  .object({
    streams: z.array(z.object(streamFields).meta({ id: "MessageStream" })).describe("By name of the inbox."),
    next_after: z.string().nullable().describe("`after` of the next page; null at the end."),
  })
  .meta({ id: "MessageStreams" });
export const containerMessaging = z
  .object({ ...streamFields, permission_level: permissionLevel })
  .meta({ id: "ContainerMessaging" });
export const stateVersion = z
  .object({
    container_id: z.string().describe("Inbox: the id of the container, or the address of a queue or topic."),
    state_version: z.int().describe("Number of actions that were applied."),
  })
  .meta({ id: "StateVersion" });
export const permissionBody = z.object({ permission_level: permissionLevel }).meta({ id: "SetMessagePermission" });
export const permission = z
  .object({
    container_id: z.string().describe("Inbox: the id of the container, or the address of a queue or topic."),
    permission_level: permissionLevel,
  })
  .meta({ id: "MessagePermission" });

export const overview = z
  .object({
    backend: z.enum(["embedded", "jetstream"]).describe("What keeps the messages."),
    sync_mode: z.string().describe("How messages reach the disk."),
    dlq: z
      .object({ stream: z.string().describe("Name of the stream."), subject: z.string().describe("Its subject.") })
      .describe("Dead letters of the tenant."),
    socket: z.string().describe("Path of the socket in each container."),
  })
  .meta({ id: "MessagingOverview" });
export const anyObject = z.looseObject({});
