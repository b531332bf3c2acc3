/** Shapes of topics in requests and answers. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, queryLimit } from "../base/schema.ts";

export const byTopic = z.object({
  name: z.string().meta({ description: "Name of the topic, without `topic:`.", examples: ["prices"] }),
});
export const bySubscriber = byTopic.extend({
  container_id: z.string().meta({
    description: "Id or name of the container, or `queue:<name>`.",
    examples: ["ctr_c1v8hx2m9qk4te7b"],
  }),
});
const after = z.string().max(LIMITS.icc_id_bytes_max).optional();
export const topicsQuery = z.object({
  after: after.describe("Continues after the topic of this name: next_after."),
  limit: queryLimit(),
});
export const subscribersQuery = z.object({
  after: after.describe("Continues after this subscriber: next_after."),
  limit: queryLimit(),
});

const topic = z.string().describe("Address of the topic: `topic:<name>`.");
const subscriber = z.string().describe("Inbox: the container's id, or the address of a queue.");
export const topics = z
  .object({
    topics: z
      .array(z.object({ topic, subscribers: z.int().describe("Number of its subscribers.") }).meta({ id: "Topic" }))
      .describe("By name."),
    next_after: z.string().nullable().describe("`after` of the next page; null at the end."),
  })
  .meta({ id: "Topics" });
export const subscribers = z
  .object({
    topic,
    subscribers: z
      .array(z.object({ container_id: subscriber, created_at: epochSeconds }).meta({ id: "Subscriber" }))
      .describe("By inbox; bindings of functions are not among them."),
    next_after: z.string().nullable().describe("`after` of the next page; null at the end."),
  })
  .meta({ id: "Subscribers" });
export const subscription = z
  .object({
    topic,
    container_id: subscriber,
    subscribed: z.boolean().describe("True if the inbox gets copies of messages to the topic."),
  })
  .meta({ id: "Subscription" });
