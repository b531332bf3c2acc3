/** Shapes of bindings in requests and answers. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { epochSeconds, textBytes, whole } from "../../base/schema.ts";

const MESSAGE_TYPE = /^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127}\*?|\*)$/;

export const byBinding = z.object({
  binding_id: z.string().meta({ description: "Id of the binding.", examples: ["bnd_6t1v8hx2m9qk4te7"] }),
});

export const bindFunction = z
  .object({
    function: textBytes(LIMITS.icc_id_bytes_max).min(1).describe("Id or name of the function."),
    subject: textBytes(LIMITS.icc_id_bytes_max)
      .min(1)
      .nullish()
      .describe(
        "Address whose messages it handles: id or name of a container, `queue:<name>`, `topic:<name>`, or one of them after `jets.cmd.` (default: each address).",
      ),
    message_type: z
      .string()
      .regex(MESSAGE_TYPE, { error: "must be a type, or the beginning of one and '*'" })
      .nullish()
      .describe("Type of the messages, or its beginning and `*` (default: each type). Not for queues."),
    ordered: z.boolean().default(false).describe("Handles one message at a time, in the order of stream_seq."),
    reply: z.boolean().default(false).describe("Publishes what a call returns to the sender of the message."),
    max_deliver: whole(1, LIMITS.binding_max_deliver_max)
      .default(LIMITS.max_deliver_default)
      .describe("Failed calls after which a message is a dead letter."),
    backoff_ms: whole(LIMITS.binding_backoff_ms_min, LIMITS.binding_backoff_ms_max)
      .default(LIMITS.binding_backoff_ms_default)
      .describe("Milliseconds until the next call after the first that failed; doubled with each."),
    concurrency: whole(1, LIMITS.binding_concurrency_max)
      .default(LIMITS.binding_concurrency_default)
      .describe("Calls at the same time."),
  })
  .meta({ id: "BindFunction" });
export type BindFunction = z.output<typeof bindFunction>;

export const bindingRecord = z
  .object({
    binding_id: z.string().describe("Id of the binding."),
    function_id: z.string().describe("Id of the function."),
    function_name: z.string().describe("Name of the function."),
    subject: z.string().nullable().describe("Address whose messages it handles; null: each."),
    message_type: z.string().nullable().describe("Type of the messages, or its beginning and `*`; null: each."),
    ordered: z.boolean().describe("Handles one message at a time, in the order of stream_seq."),
    reply: z.boolean().describe("Publishes what a call returns to the sender of the message."),
    max_deliver: z.int().describe("Failed calls after which a message is a dead letter."),
    backoff_ms: z.int().describe("Milliseconds until the next call after the first that failed."),
    concurrency: z.int().describe("Calls at the same time."),
    inbox: z.string().describe("Inbox that it receives from: that of the queue, or its own."),
    in_flight: z.int().describe("Calls in flight."),
    last_error: z
      .string()
      .nullable()
      .describe("Why the last call failed or was refused; null: it succeeded, or none yet."),
    created_at: epochSeconds,
  })
  .meta({ id: "FunctionBinding" });

export const bindingList = z
  .object({ bindings: z.array(bindingRecord).describe("By id.") })
  .meta({ id: "FunctionBindings" });
