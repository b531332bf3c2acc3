/**
 * Every route of published services. Their answers show tokens, to keys that may use or change a service: an Idempotency-Key
 * records the id of a service alone.
 */
import { z } from "zod";
import type { Caller } from "../base/caller.ts";
import { acknowledgement, pageQuery } from "../base/schema.ts";
import { route } from "../http/route.ts";
import { SAMPLES } from "./samples.ts";
import { createService, type ServiceRecord, serviceList, serviceRecord } from "./schema.ts";
import type { Services } from "./service.ts";

export interface ServiceRoutesOptions {
  readonly services: Services;
}

const byService = z.object({
  service_id: z.string().meta({ description: "Id of the service.", examples: ["svc_q9m2hx4k7tb1c8ve"] }),
});
const byContainer = z.object({
  container_id: z.string().meta({ description: "Id or name of the container.", examples: ["ctr_c1v8hx2m9qk4te7b"] }),
});
const EXAMPLE = { service_id: "{service_id}" };
const CONTAINER_EXAMPLE = { container_id: "{container_id}" };

/** A record as a caller may see it: who only reads must not use the service by its URL. */
function shownTo({ scopes }: Caller, record: ServiceRecord): ServiceRecord {
  if (scopes.includes("invoke") || scopes.includes("write")) return record;
  const { public_url, websocket_url } = record;
  return { ...record, public_url: withoutQuery(public_url), websocket_url: withoutQuery(websocket_url) };
}

const withoutQuery = (url: string | null): string | null => url?.split("?", 1)[0] ?? null;

export function serviceRoutes(options: ServiceRoutesOptions) {
  return [...containerServiceRoutes(options), ...oneServiceRoutes(options)];
}

function containerServiceRoutes({ services }: ServiceRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/services",
      auth: "tenant",
      scope: "write",
      operation: "publishService",
      summary: "Publishes an HTTP port of a container behind a URL on a host of its own, with a token in the URL.",
      headers: ["Idempotency-Key"],
      params: byContainer,
      body: createService,
      status: 201,
      response: serviceRecord,
      errors: [
        ...(["FORBIDDEN", "NOT_FOUND", "NAME_TAKEN", "QUOTA_EXCEEDED", "CAPACITY_FULL", "WRONG_STATE"] as const),
        "SERVICE_UNAVAILABLE",
      ],
      example: {
        params: CONTAINER_EXAMPLE,
        body: { name: "web", target_port: 8_080 },
        response: SAMPLES.service,
      },
      recorded: {
        keep: ({ service_id }) => ({ service_id }),
        recall: (tenant_id, { service_id = "" }) => services.get(tenant_id, service_id),
      },
      handler: ({ caller, params, body, once }) => services.create(caller.tenant_id, params.container_id, body, once),
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/services",
      auth: "tenant",
      scope: "read",
      operation: "listContainerServices",
      summary: "Lists the published services of a container, newest first.",
      params: byContainer,
      query: pageQuery,
      response: serviceList,
      errors: ["NOT_FOUND"],
      example: { params: CONTAINER_EXAMPLE, response: { services: [SAMPLES.service], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        const { caller, params } = request;
        const { items, last } = await services.list(caller.tenant_id, params.container_id, page);
        return page.answer("services", { items: items.map((one) => shownTo(caller, one)), last });
      },
    }),
  ];
}

function oneServiceRoutes({ services }: ServiceRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/services",
      auth: "tenant",
      scope: "read",
      operation: "listServices",
      summary: "Lists the tenant's published services, newest first.",
      query: pageQuery,
      response: serviceList,
      example: { response: { services: [SAMPLES.service], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        const { caller } = request;
        const { items, last } = await services.list(caller.tenant_id, null, page);
        return page.answer("services", { items: items.map((one) => shownTo(caller, one)), last });
      },
    }),
    route({
      method: "GET",
      path: "/api/services/:service_id",
      auth: "tenant",
      scope: "read",
      operation: "getService",
      summary: "Returns a published service; tries whether its port accepts connections.",
      params: byService,
      response: serviceRecord,
      errors: ["NOT_FOUND"],
      example: { params: EXAMPLE, response: SAMPLES.service },
      handler: async ({ caller, params }) => shownTo(caller, await services.get(caller.tenant_id, params.service_id)),
    }),
    route({
      method: "POST",
      path: "/api/services/:service_id/rotate",
      auth: "tenant",
      scope: "write",
      operation: "rotateService",
      summary:
        "Gives a published service another token; the earlier URL ends at once, with its requests and WebSockets.",
      params: byService,
      response: serviceRecord,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: EXAMPLE, response: SAMPLES.service },
      handler: ({ caller, params }) => services.rotate(caller.tenant_id, params.service_id),
    }),
    route({
      method: "DELETE",
      path: "/api/services/:service_id",
      auth: "tenant",
      scope: "write",
      operation: "deleteService",
      summary: "Deletes a published service and ends its requests and WebSockets.",
      params: byService,
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: { params: EXAMPLE, response: { success: true, message: "service deleted" } },
      handler: async ({ caller, params }) => {
        await services.delete(caller.tenant_id, params.service_id);
        return { success: true as const, message: "service deleted" };
      },
    }),
  ];
}
