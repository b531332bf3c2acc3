/** The routes of topics and their subscribers. */
import { route } from "../http/route.ts";
import { SAMPLES } from "./samples.ts";
import * as shapes from "./topic-schema.ts";
import type { Topics } from "./topics.ts";

const EXAMPLE = { name: "prices", container_id: "{container_id}" };

export function topicRoutes({ topics }: { readonly topics: Topics }) {
  const subscriber = {
    auth: "tenant",
    scope: "write",
    params: shapes.bySubscriber,
    response: shapes.subscription,
  } as const;
  const path = "/api/icc/topics/:name/subscribers/:container_id" as const;
  return [
    route({
      method: "GET",
      path: "/api/icc/topics",
      auth: "tenant",
      scope: "read",
      operation: "listTopics",
      summary: "Lists the topics that have subscribers, by name.",
      query: shapes.topicsQuery,
      response: shapes.topics,
      example: { response: SAMPLES.topics },
      handler: ({ caller, query }) => topics.list(caller.tenant_id, query),
    }),
    route({
      method: "GET",
      path: "/api/icc/topics/:name/subscribers",
      auth: "tenant",
      scope: "read",
      operation: "listSubscribers",
      summary: "Lists the containers and queues that get a copy of each message to the topic.",
      params: shapes.byTopic,
      query: shapes.subscribersQuery,
      response: shapes.subscribers,
      errors: ["NOT_FOUND"],
      example: { params: { name: EXAMPLE.name }, response: SAMPLES.subscribers },
      handler: ({ caller, params, query }) => topics.subscribers(caller.tenant_id, params.name, query),
    }),
    route({
      ...subscriber,
      method: "PUT",
      path,
      operation: "subscribe",
      summary: "Gives the container or queue a copy of each message that is published to the topic from now on.",
      errors: ["NOT_FOUND", "QUOTA_EXCEEDED"],
      example: { params: EXAMPLE, response: SAMPLES.subscription },
      handler: ({ caller, params }) => topics.subscribe(caller.tenant_id, params.name, params.container_id),
    }),
    route({
      ...subscriber,
      method: "DELETE",
      path,
      operation: "unsubscribe",
      summary: "Ends the subscription; messages that were copied stay in the inbox.",
      errors: ["NOT_FOUND"],
      example: { params: EXAMPLE, response: { ...SAMPLES.subscription, subscribed: false } },
      handler: ({ caller, params }) => topics.unsubscribe(caller.tenant_id, params.name, params.container_id),
    }),
  ];
}
