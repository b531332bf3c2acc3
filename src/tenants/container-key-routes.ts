/** The keys of one container. */
import { z } from "zod";
import { acknowledgement, pageQuery } from "../base/schema.ts";
import type { Containers } from "../containers/service.ts";
import { route } from "../http/route.ts";
import type { Keys } from "./keys.ts";
import { SAMPLES } from "./samples.ts";
import { apiKeyList, byKey, createContainerKey, keyOf, newApiKey } from "./schema.ts";

export interface ContainerKeyRoutesOptions {
  readonly keys: Keys;
  readonly containers: Containers;
}

const byContainer = z.object({
  container_id: z.string().meta({ description: "Id or name of the container.", examples: ["ctr_5v1kd6p0sj3c2n8v"] }),
});
const PATH = "/api/containers/:container_id/api-keys";
const EXAMPLE = { container_id: "{container_id}" };

export function containerKeyRoutes({ keys, containers }: ContainerKeyRoutesOptions) {
  return [
    route({
      method: "GET",
      path: PATH,
      auth: "tenant",
      scope: "admin",
      operation: "listContainerKeys",
      summary: "Lists the keys that reach only this container or a few with it, newest first, without their secrets.",
      params: byContainer,
      query: pageQuery,
      response: apiKeyList,
      errors: ["NOT_FOUND"],
      example: { params: EXAMPLE, response: { api_keys: [SAMPLES.container_key], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        const { tenant_id } = request.caller;
        const { id } = await containers.row(tenant_id, request.params.container_id);
        return page.answer("api_keys", await keys.listOfContainer(tenant_id, id, page));
      },
    }),
    route({
      method: "POST",
      path: PATH,
      auth: "tenant",
      scope: "admin",
      operation: "createContainerKey",
      summary: "Creates a key that reaches only this container and ends with it; only this response contains the key.",
      params: byContainer,
      body: createContainerKey,
      status: 201,
      response: newApiKey,
      errors: ["NOT_FOUND", "QUOTA_EXCEEDED"],
      example: {
        params: EXAMPLE,
        body: { name: "agent", scopes: ["read", "invoke"] },
        response: SAMPLES.new_container_key,
      },
      handler: async ({ caller, params, body }) => {
        const { id } = await containers.row(caller.tenant_id, params.container_id);
        return keys.create(caller.tenant_id, { ...keyOf(body), container_ids: [id] }, caller);
      },
    }),
    route({
      method: "DELETE",
      path: `${PATH}/:key_id`,
      auth: "tenant",
      scope: "admin",
      operation: "revokeContainerKey",
      summary: "Revokes a key that reaches this container, and its tokens, immediately.",
      params: byContainer.extend(byKey.shape),
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: {
        params: { ...EXAMPLE, key_id: "{container_key_id}" },
        response: { success: true, message: "api key revoked" },
      },
      handler: async ({ caller, params }) => {
        const { id } = await containers.row(caller.tenant_id, params.container_id);
        await keys.revokeOfContainer(caller.tenant_id, id, params.key_id);
        return { success: true as const, message: "api key revoked" };
      },
    }),
  ];
}
