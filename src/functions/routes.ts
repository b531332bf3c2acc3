/** Hot path. Every route of the function concern, in full, with what it takes and answers. */
import { z } from "zod";
import type { Pool } from "../../pool/index.ts";
import { type Route, route } from "../http/route.ts";
import { functionsHealth } from "./guide.ts";
import type { Invocations } from "./invocations.ts";
import type { Invoker } from "./invoke.ts";
import type { Call, Outcome } from "./launch.ts";
import { createFunction, invokeFunction, type Listed, listQuery, rollbackFunction, updateFunction } from "./schema.ts";
import type { Functions } from "./service.ts";

const byId = z.object({ function_id: z.string() });
const byName = z.object({ name: z.string() });

export interface FunctionRoutesOptions {
  readonly functions: Functions;
  readonly invoker: Invoker;
  readonly invocations: Invocations;
  readonly pool: Pool<Call, Outcome>;
}

export function functionRoutes(options: FunctionRoutesOptions): Route[] {
  return [...poolRoutes(options), ...lifecycleRoutes(options), ...versionRoutes(options), ...invocationRoutes(options)];
}

/** The answer of a list; `truncated` stands in it only where it is. */
function listed<Item>(name: string, { items, is_cut }: Listed<Item>): Record<string, unknown> {
  return is_cut ? { [name]: items, truncated: true } : { [name]: items };
}

function poolRoutes({ functions, pool }: FunctionRoutesOptions): Route[] {
  return [
    route({
      method: "GET",
      path: "/api/functions/health",
      auth: "tenant",
      summary: "Readiness of the function concern.",
      handler: () => functionsHealth(pool.totals()),
    }),
    route({
      method: "GET",
      path: "/api/functions/pool/stats",
      auth: "tenant",
      summary: "Instances of all functions by state, and the cells in reserve.",
      handler: () => pool.totals(),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/pool",
      auth: "tenant",
      summary: "Instances of one function by state; those of superseded versions apart.",
      params: byId,
      handler: async ({ caller, params }) => ({
        function_id: params.function_id,
        ...(await functions.poolStatus(caller.tenant_id, params.function_id)),
      }),
    }),
  ];
}

function lifecycleRoutes({ functions }: FunctionRoutesOptions): Route[] {
  return [
    route({
      method: "POST",
      path: "/api/functions",
      auth: "tenant",
      summary: "Registers a function in state pending; deploy makes it invocable.",
      body: createFunction,
      status: 201,
      handler: ({ caller, body }) => functions.create(caller.tenant_id, body),
    }),
    route({
      method: "GET",
      path: "/api/functions",
      auth: "tenant",
      summary: "The tenant's functions, newest first; truncated is true when they were too large for one answer.",
      query: listQuery,
      handler: async ({ caller, query }) => listed("functions", await functions.list(caller.tenant_id, query.limit)),
    }),
    route({
      method: "GET",
      path: "/api/functions/by-name/:name",
      auth: "tenant",
      summary: "A function by its name.",
      params: byName,
      handler: async ({ caller, params }) => ({
        ...(await functions.byName(caller.tenant_id, params.name)),
        found: true,
      }),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id",
      auth: "tenant",
      summary: "A function by its id.",
      params: byId,
      handler: ({ caller, params }) => functions.get(caller.tenant_id, params.function_id),
    }),
    route({
      method: "DELETE",
      path: "/api/functions/:function_id",
      auth: "tenant",
      summary: "Removes a function, its versions, instances and records; running calls may finish.",
      params: byId,
      handler: async ({ caller, params }) => {
        await functions.delete(caller.tenant_id, params.function_id);
        return { success: true, message: "function deleted" };
      },
    }),
    ...(["deploy", "resume"] as const).map((verb) =>
      route({
        method: "POST",
        path: `/api/functions/:function_id/${verb}`,
        auth: "tenant",
        summary: "Makes the function invocable and warms min_instances before it answers.",
        params: byId,
        handler: ({ caller, params }) => functions.deploy(caller.tenant_id, params.function_id),
      }),
    ),
    route({
      method: "POST",
      path: "/api/functions/:function_id/pause",
      auth: "tenant",
      summary: "Scales to zero: waiting calls are refused, running ones finish.",
      params: byId,
      handler: async ({ caller, params }) => {
        await functions.pause(caller.tenant_id, params.function_id);
        return { success: true, message: "function paused" };
      },
    }),
  ];
}

function versionRoutes({ functions }: FunctionRoutesOptions): Route[] {
  return [
    route({
      method: "PUT",
      path: "/api/functions/:function_id",
      auth: "tenant",
      summary: "Makes the next version, warms it where the function is active, and points to it.",
      params: byId,
      body: updateFunction,
      handler: ({ caller, params, body }) => functions.versions.update(caller.tenant_id, params.function_id, body),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/versions",
      auth: "tenant",
      summary: "The versions of a function, newest first; truncated is true when they were too large for one answer.",
      params: byId,
      query: listQuery,
      handler: async ({ caller, params, query }) =>
        listed("versions", await functions.versions.list(caller.tenant_id, params.function_id, query.limit)),
    }),
    route({
      method: "POST",
      path: "/api/functions/:function_id/rollback",
      auth: "tenant",
      summary: "Points back to an earlier version; calls under way finish on the version that they began with.",
      params: byId,
      body: rollbackFunction,
      handler: ({ caller, params, body }) =>
        functions.versions.rollback(caller.tenant_id, params.function_id, body.version),
    }),
  ];
}

function invocationRoutes({ functions, invoker, invocations }: FunctionRoutesOptions): Route[] {
  const keyOf = async (tenant_id: string, function_id: string) => {
    const { function_seq, record } = await functions.targetById(tenant_id, function_id);
    return { function_seq, id: record.id, name: record.name };
  };
  return [
    route({
      method: "POST",
      path: "/api/functions/invoke/:name",
      auth: "tenant",
      summary: "Invokes a function by name and answers the committed record.",
      params: byName,
      body: invokeFunction,
      handler: ({ caller, params, body }) =>
        invoker.invoke(() => functions.targetByName(caller.tenant_id, params.name), body, caller.invocation),
    }),
    route({
      method: "POST",
      path: "/api/functions/:function_id/invoke",
      auth: "tenant",
      summary: "Invokes a function by id and answers the committed record.",
      params: byId,
      body: invokeFunction,
      handler: ({ caller, params, body }) =>
        invoker.invoke(() => functions.targetById(caller.tenant_id, params.function_id), body, caller.invocation),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/invocations",
      auth: "tenant",
      summary: "The newest records of a function; truncated is true when they were too large for one answer.",
      params: byId,
      query: listQuery,
      handler: async ({ caller, params, query }) => {
        const key = await keyOf(caller.tenant_id, params.function_id);
        return listed("invocations", await invocations.list(key, query.limit));
      },
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/invocations/:invocation_id",
      auth: "tenant",
      summary: "One record.",
      params: byId.extend({ invocation_id: z.string() }),
      handler: async ({ caller, params }) => {
        const key = await keyOf(caller.tenant_id, params.function_id);
        return invocations.get(key, params.invocation_id);
      },
    }),
  ];
}
