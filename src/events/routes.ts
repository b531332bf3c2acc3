/** The stream of events. */
import { Streamed } from "../base/answer.ts";
import { route } from "../http/route.ts";
import { EVENTS_SUMMARY, eventsQuery, parseEventId } from "./schema.ts";
import type { Events } from "./service.ts";

export interface EventRoutesOptions {
  readonly events: Events;
}

export function eventRoutes({ events }: EventRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/events",
      auth: "tenant",
      scope: "read",
      query_credential: true,
      operation: "streamEvents",
      summary: EVENTS_SUMMARY,
      query: eventsQuery,
      content: ["text/event-stream"],
      errors: ["CONCURRENCY_LIMIT", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: { query: { name: "function_update" } },
      handler: async (request) => {
        const { caller, query, signal, recheck } = request;
        const { last_event_id, ...filter } = query;
        const resumed = parseEventId(request.header("last-event-id") ?? "") ?? last_event_id ?? null;
        const { tenant_id, container_ids } = caller;
        const wanted = { filter: { ...filter, container_ids }, last_event_id: resumed, recheck, signal };
        const stream = await events.open(tenant_id, wanted);
        // Proxies that gather answers are told not to.
        const headers = { "cache-control": "no-store", "x-accel-buffering": "no" };
        return new Streamed(stream, { content_type: "text/event-stream", headers });
      },
    }),
  ];
}
