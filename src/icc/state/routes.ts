/** Routes of the tenant's keys and values. */
import { closing, Streamed } from "../../base/answer.ts";
import type { Clock } from "../../base/clock.ts";
import { route } from "../../http/route.ts";
import { serverSentEvents } from "../inside/events.ts";
import { API_SENDER } from "../publishing.ts";
import type { Waits } from "../replies.ts";
import { JSON_CONTENT, newsItem, stateItem } from "./entries.ts";
import * as shapes from "./schema.ts";
import type { States } from "./service.ts";

export interface StateRoutesOptions {
  readonly states: States;
  readonly waits: Waits;
  readonly clock: Clock;
}

const SAMPLE = {
  key: "build.status",
  version: 1,
  content_type: JSON_CONTENT,
  value: { step: "test", ok: true },
  from: API_SENDER,
  updated_at: 1_795_600_000,
};
const BY_KEY = { key: SAMPLE.key };
const EVENT_STREAM = "text/event-stream";

export function stateRoutes({ states, waits, clock }: StateRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/icc/state",
      auth: "tenant",
      scope: "read",
      operation: "listStates",
      summary: "Lists the tenant's states by key, or with watch sends them and then each change as server-sent events.",
      query: shapes.statesQuery,
      content: [JSON_CONTENT, EVENT_STREAM],
      response: shapes.stateList,
      errors: ["CONCURRENCY_LIMIT", "CAPACITY_FULL"],
      example: { response: { entries: [SAMPLE], next_after: null } },
      handler: async ({ caller, query, signal, recheck }) => {
        const { prefix, after = "", limit } = query;
        if (!query.watch) {
          const page = await states.list(caller.tenant_id, { prefix, after, entries_max: limit });
          return { entries: page.entries.map(stateItem), next_after: page.next_after };
        }
        const end = waits.begin(caller.tenant_id);
        const watch = states.watch(caller.tenant_id, prefix, signal);
        const events = serverSentEvents("state", watch, ({ version }) => version, clock, { itemOf: newsItem, recheck });
        const source = closing(events.source, () => {
          end();
          void watch.return?.();
        });
        const headers = { "cache-control": "no-store", "x-accel-buffering": "no" };
        return new Streamed(source, { content_type: EVENT_STREAM, headers });
      },
    }),
    route({
      method: "GET",
      path: "/api/icc/state/:key",
      auth: "tenant",
      scope: "read",
      operation: "getState",
      summary: "Returns the state of a key.",
      params: shapes.byKey,
      response: shapes.stateEntry,
      errors: ["NOT_FOUND"],
      example: { params: BY_KEY, response: SAMPLE },
      handler: async ({ caller, params }) => stateItem(await states.get(caller.tenant_id, params.key)),
    }),
    route({
      method: "PUT",
      path: "/api/icc/state/:key",
      auth: "tenant",
      scope: "write",
      operation: "putState",
      summary: "Writes the state of a key, as JSON.",
      params: shapes.byKey,
      body: shapes.putState,
      response: shapes.stateEntry,
      errors: ["WRONG_STATE", "BODY_TOO_LARGE", "QUOTA_EXCEEDED"],
      example: { params: BY_KEY, body: { value: SAMPLE.value }, response: SAMPLE },
      handler: async ({ caller, params, body }) =>
        stateItem(await states.putJson(caller.tenant_id, { ...params, ...body, from: API_SENDER })),
    }),
    route({
      method: "DELETE",
      path: "/api/icc/state/:key",
      auth: "tenant",
      scope: "write",
      operation: "deleteState",
      summary: "Deletes a key with its state.",
      params: shapes.byKey,
      query: shapes.deleteQuery,
      response: shapes.deletedState,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: BY_KEY, response: { key: SAMPLE.key, version: 1, is_deleted: true as const } },
      handler: async ({ caller, params, query }) => {
        const version = await states.delete(caller.tenant_id, params.key, query.if_version ?? null);
        return { key: params.key, version, is_deleted: true as const };
      },
    }),
  ];
}
