/** Routes of stored credentials of registries. None answers a password, and none takes an Idempotency-Key. */
import { z } from "zod";
import { Answer } from "../../base/answer.ts";
import { acknowledgement, pageQuery } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import {
  type RegistryCredentialsRecord,
  registryCredentials,
  registryCredentialsList,
  setRegistryCredentials,
} from "./schema.ts";
import type { RegistryCredentials } from "./service.ts";

const byRegistry = z.object({
  registry: z.string().meta({
    description: "Host of the registry as references name it, with its port if it has its own.",
    examples: ["registry.example.com"],
  }),
});
const EXAMPLE = { registry: "registry.example.com" };

const SAMPLE: RegistryCredentialsRecord = {
  registry: "registry.example.com",
  username: "ada",
  created_at: 1_795_262_400,
  updated_at: 1_795_262_400,
};

export function registryRoutes(credentials: RegistryCredentials) {
  return [
    route({
      method: "GET",
      path: "/api/oci/registries",
      auth: "tenant",
      scope: "read",
      operation: "listRegistries",
      summary: "Lists the registries for which the tenant stores credentials, without passwords, newest first.",
      query: pageQuery,
      response: registryCredentialsList,
      example: { response: { registries: [SAMPLE], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("registries", await credentials.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "PUT",
      path: "/api/oci/registries/:registry",
      auth: "tenant",
      scope: "write",
      operation: "setRegistry",
      summary: "Stores credentials for a registry (201) or replaces them (200); the daemon does not try them.",
      params: byRegistry,
      body: setRegistryCredentials,
      response: registryCredentials,
      other: { status: 201, response: registryCredentials, example: SAMPLE },
      errors: ["QUOTA_EXCEEDED"],
      example: { params: EXAMPLE, body: { username: "ada", password: "t0ken-of-the-registry" }, response: SAMPLE },
      handler: async ({ caller, params, body }) => {
        const { record, is_new } = await credentials.set(caller.tenant_id, params.registry, body);
        return is_new ? new Answer(201, record) : record;
      },
    }),
    route({
      method: "GET",
      path: "/api/oci/registries/:registry",
      auth: "tenant",
      scope: "read",
      operation: "getRegistry",
      summary: "Returns the stored credentials for a registry without the password.",
      params: byRegistry,
      response: registryCredentials,
      errors: ["NOT_FOUND"],
      example: { params: EXAMPLE, response: SAMPLE },
      handler: ({ caller, params }) => credentials.get(caller.tenant_id, params.registry),
    }),
    route({
      method: "DELETE",
      path: "/api/oci/registries/:registry",
      auth: "tenant",
      scope: "write",
      operation: "deleteRegistry",
      summary: "Deletes the stored credentials for a registry; pulls and pushes that run keep them.",
      params: byRegistry,
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: { params: EXAMPLE, response: { success: true, message: "credentials deleted" } },
      handler: async ({ caller, params }) => {
        await credentials.remove(caller.tenant_id, params.registry);
        return { success: true as const, message: "credentials deleted" };
      },
    }),
  ];
}
