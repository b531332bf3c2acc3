/** The guide of messages; examples.ts has the scripts. */
import { z } from "zod";
import type { Guide } from "../docs/guide.ts";
import { ICC_EXAMPLES } from "./examples.ts";
import { messageStates } from "./states.ts";

export const iccGuide: Guide<"icc"> = {
  concern: "icc",
  about:
    "Durable messages between containers of a tenant. Each container has an inbox; queues are inboxes that receivers share, and topics copy each message to their subscribers. The daemon keeps a message until it is acked, fails or expires, across its restarts.",
  steps: [
    "GET /api/icc/health returns status ok if the daemon can store messages.",
    "POST /api/icc/messages publishes a message in plain JSON; POST /api/icc/publish takes the envelope in base64.",
    "POST /api/icc/inbox/{container_id}/receive delivers messages, each with a lease. A process in the container uses the socket /run/hearth/icc.sock instead, without a key.",
    "POST /api/icc/ack with the msg_id settles a message; action nack makes it a dead letter.",
    "GET /api/icc/inbox/{container_id} lists messages without delivering them, by stream_seq and state.",
    "GET /api/icc/dlq lists dead letters; POST /api/icc/dlq/{stream_seq}/replay publishes one again.",
    "POST /api/icc/request publishes a message and returns the reply to it.",
    "PUT /api/icc/topics/{name}/subscribers/{container_id} subscribes a container to topic:{name}; each subscriber gets a copy of a message.",
    "POST /api/icc/bindings calls a function for each message of a queue, of an address or of a type.",
    "PUT /api/icc/state/{key} writes a value that all containers of the tenant read; GET /api/icc/state?watch=true streams the changes.",
    "POST /api/icc/request with the type exec_command, file_patch, env_patch, lifecycle_action or state_patch changes the container that it is sent to, and returns the outcome.",
    "PUT /api/icc/containers/{container_id}/permission lets a container send such messages to others.",
  ],
  machine: messageStates,
  states: {
    unread: "No receiver has settled it; a receiver may hold it.",
    acked: "A receiver has processed it.",
    failed: "A receiver has refused it, or it was delivered max_deliver times without an ack. It is a dead letter too.",
    expired: "Its ttl_ms ended before a receiver settled it.",
  },
  limits: [
    "icc_message_bytes_max",
    "inbox_unread_max",
    "icc_message_kept_ms",
    "lease_default_ms",
    "max_deliver_default",
  ],
  examples: ICC_EXAMPLES,
};

export const iccReadiness = z
  .object({
    status: z.enum(["ok", "unavailable"]).describe("ok: the daemon can store and deliver messages."),
    concern: z.literal("icc").describe("Name of the concern."),
    backend: z.enum(["embedded", "jetstream"]).describe("What keeps the messages."),
    reason: z.string().nullable().describe("Reason if the status is unavailable."),
  })
  .meta({ id: "IccReadiness" });
