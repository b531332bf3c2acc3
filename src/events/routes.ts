/** The stream of events, and the list of the newest ones. */
import { Streamed } from "../base/answer.ts";
import { route } from "../http/route.ts";
import {
  type ActivityEntry,
  activityList,
  activityQuery,
  EVENTS_SUMMARY,
  eventsQuery,
  parseEventId,
} from "./schema.ts";
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
    route({
      method: "GET",
      path: "/api/activity",
      auth: "tenant",
      scope: "read",
      operation: "listActivity",
      summary: "Lists the newest events of the tenant; the audit log names the authors of changes.",
      query: activityQuery,
      response: activityList,
      example: { query: { limit: "10" }, response: { activities: [SAMPLE], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("activities", await events.recent(request.caller.tenant_id, page));
      },
    }),
  ];
}

const SAMPLE: ActivityEntry = {
  activity_id: "42",
  timestamp: 1_795_229_416,
  type: "container_update",
  event_type: "started",
  message: "container box started",
  container_id: "ctr_c1v8hx2m9qk4te7b",
  operation_id: null,
  snapshot_id: null,
  data: { event_type: "started", at: 1_795_229_416, name: "box", state: "running" },
};
