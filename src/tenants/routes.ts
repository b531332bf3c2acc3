/** Every route of tenants, their keys and access tokens, with what it takes and answers. */
import { z } from "zod";
import { lacksScope } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { acknowledgement, pageQuery } from "../base/schema.ts";
import { route } from "../http/route.ts";
import { type ContainerKeyRoutesOptions, containerKeyRoutes } from "./container-key-routes.ts";
import type { Keys } from "./keys.ts";
import type { OperatorKey } from "./operator-key.ts";
import { SAMPLES } from "./samples.ts";
import {
  accessToken,
  apiKeyList,
  byKey,
  createKey,
  createTenant,
  deleteTenant,
  newApiKey,
  requestToken,
  rotatedKey,
  rotatedTokenKey,
  rotateOperatorKey,
  rotateTokenKey,
  tenantDetail,
  tenantList,
  tenantRecord,
  updateTenant,
} from "./schema.ts";
import type { Tenants } from "./service.ts";

const byTenant = z.object({
  tenant_id: z.string().meta({ description: "Id of the tenant.", examples: ["ten_6p0sj3c2n8v1k5wd"] }),
});
const TENANT_EXAMPLE = { tenant_id: "{tenant_id}" };

export interface TenantRoutesOptions extends ContainerKeyRoutesOptions {
  readonly tenants: Tenants;
  readonly keys: Keys;
  readonly operator_key: OperatorKey;
}

export function tenantRoutes(options: TenantRoutesOptions) {
  return [
    ...operatorRoutes(options),
    ...operatorKeyRoutes(options),
    ...rotationRoutes(options),
    ...ownRoutes(options),
    ...keyRoutes(options),
    ...containerKeyRoutes(options),
  ];
}

function operatorRoutes({ tenants }: TenantRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/tenants",
      auth: "operator",
      scope: "admin",
      operation: "createTenant",
      summary: "Creates a tenant; absent limits have the node's defaults.",
      headers: ["Idempotency-Key"],
      body: createTenant,
      status: 201,
      response: tenantRecord,
      errors: ["NAME_TAKEN"],
      example: {
        body: { name: "acme", limits: { requests_per_second: 100, functions_max: 50 } },
        response: SAMPLES.tenant,
      },
      handler: ({ body }) => tenants.create(body),
    }),
    route({
      method: "GET",
      path: "/api/tenants",
      auth: "operator",
      scope: "admin",
      operation: "listTenants",
      summary: "Lists all tenants, newest first.",
      query: pageQuery,
      response: tenantList,
      example: { query: { limit: "10" }, response: { tenants: [SAMPLES.tenant], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("tenants", await tenants.list(page));
      },
    }),
    route({
      method: "GET",
      path: "/api/tenants/:tenant_id",
      auth: "operator",
      scope: "admin",
      operation: "getTenant",
      summary: "Returns a tenant with its limits and usage.",
      params: byTenant,
      response: tenantDetail,
      errors: ["NOT_FOUND"],
      example: {
        params: TENANT_EXAMPLE,
        response: SAMPLES.detail,
      },
      handler: ({ params }) => tenants.get(params.tenant_id),
    }),
    route({
      method: "PATCH",
      path: "/api/tenants/:tenant_id",
      auth: "operator",
      scope: "admin",
      operation: "updateTenant",
      summary:
        "Renames a tenant or changes its limits. Absent fields stay; null means no limit, default the node's default.",
      params: byTenant,
      body: updateTenant,
      response: tenantRecord,
      errors: ["NOT_FOUND", "NAME_TAKEN"],
      example: {
        params: TENANT_EXAMPLE,
        body: { limits: { instances_max: 20, requests_per_second: null, functions_max: "default" } },
        response: SAMPLES.limited,
      },
      handler: ({ params, body }) => tenants.update(params.tenant_id, body),
    }),
    route({
      method: "DELETE",
      path: "/api/tenants/:tenant_id",
      auth: "operator",
      scope: "admin",
      operation: "deleteTenant",
      summary: "Deletes a tenant and its keys. Without force, the tenant must not own any resource.",
      params: byTenant,
      query: deleteTenant,
      response: acknowledgement,
      errors: ["NOT_FOUND", "NOT_EMPTY", "WRONG_STATE"],
      example: {
        params: TENANT_EXAMPLE,
        query: { force: "true" },
        response: { success: true, message: "tenant deleted" },
      },
      handler: async ({ params, query }) => {
        await tenants.delete(params.tenant_id, query.force);
        return { success: true as const, message: "tenant deleted" };
      },
    }),
  ];
}

function operatorKeyRoutes({ tenants, keys }: TenantRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/tenants/:tenant_id/api-keys",
      auth: "operator",
      scope: "admin",
      operation: "createTenantKey",
      summary: "Creates a key for a tenant; only this response contains the key.",
      params: byTenant,
      body: createKey,
      status: 201,
      response: newApiKey,
      errors: ["NOT_FOUND", "QUOTA_EXCEEDED"],
      example: { params: TENANT_EXAMPLE, body: { name: "first" }, response: SAMPLES.new_key },
      handler: ({ caller, params, body }) => keys.create(params.tenant_id, body, caller),
    }),
    route({
      method: "GET",
      path: "/api/tenants/:tenant_id/api-keys",
      auth: "operator",
      scope: "admin",
      operation: "listTenantKeys",
      summary: "Lists the keys of a tenant, newest first, without their secrets.",
      params: byTenant,
      query: pageQuery,
      response: apiKeyList,
      errors: ["NOT_FOUND"],
      example: { params: TENANT_EXAMPLE, response: { api_keys: [SAMPLES.key], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        const { tenant_id } = await tenants.get(request.params.tenant_id);
        return page.answer("api_keys", await keys.list(tenant_id, page));
      },
    }),
    route({
      method: "DELETE",
      path: "/api/tenants/:tenant_id/api-keys/:key_id",
      auth: "operator",
      scope: "admin",
      operation: "revokeTenantKey",
      summary: "Revokes a key of a tenant and its tokens immediately.",
      params: byTenant.extend(byKey.shape),
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: {
        params: { ...TENANT_EXAMPLE, key_id: "{tenant_key_id}" },
        response: { success: true, message: "api key revoked" },
      },
      handler: async ({ params }) => {
        await keys.revoke(params.tenant_id, params.key_id);
        return { success: true as const, message: "api key revoked" };
      },
    }),
  ];
}

function ownRoutes({ tenants }: TenantRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/tenant",
      auth: "tenant",
      scope: "read",
      operation: "getOwnTenant",
      summary: "Returns the caller's tenant with its limits and usage.",
      response: tenantDetail,
      errors: ["NOT_FOUND"],
      example: { response: SAMPLES.detail },
      handler: ({ caller }) => tenants.get(caller.tenant_id),
    }),
  ];
}

function rotationRoutes({ keys, operator_key }: TenantRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/operator/key/rotate",
      auth: "operator",
      scope: "admin",
      operation: "rotateOperatorKey",
      summary: "Replaces the operator's key and its file; not possible if a setting provides the key.",
      body: rotateOperatorKey,
      response: rotatedKey,
      errors: ["WRONG_STATE"],
      example: {
        body: { overlap_seconds: 600 },
        response: { key: "hk_w2fz7h9xq4mt_0c8b5v1kd6p0sj3c2n8v1k5wd7r4t9yq", previous_expires_at: 1_795_229_416 },
      },
      handler: ({ body }) => operator_key.rotate(body.overlap_seconds),
    }),
    route({
      method: "POST",
      path: "/api/operator/token-key/rotate",
      auth: "operator",
      scope: "admin",
      operation: "rotateTokenKey",
      summary: "Replaces the key that signs access tokens; earlier tokens stay valid for the overlap.",
      body: rotateTokenKey,
      response: rotatedTokenKey,
      errors: ["QUOTA_EXCEEDED"],
      example: { body: { overlap_seconds: 3_600 }, response: { previous_expires_at: 1_795_229_416 } },
      handler: ({ body }) => ({ previous_expires_at: keys.rotateTokenKey(body.overlap_seconds) }),
    }),
  ];
}

function keyRoutes({ keys }: TenantRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/api-keys",
      auth: "tenant",
      scope: "admin",
      operation: "listKeys",
      summary: "Lists the tenant's keys, newest first, without their secrets.",
      query: pageQuery,
      response: apiKeyList,
      example: { response: { api_keys: [SAMPLES.key], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("api_keys", await keys.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "POST",
      path: "/api/api-keys",
      auth: "tenant",
      scope: "admin",
      operation: "createKey",
      summary: "Creates a key with at most the caller's scopes; only this response contains the key.",
      body: createKey,
      status: 201,
      response: newApiKey,
      errors: ["NOT_FOUND", "QUOTA_EXCEEDED"],
      example: { body: { name: "ci", scopes: ["read", "invoke"] }, response: SAMPLES.new_key },
      handler: ({ caller, body }) => keys.create(caller.tenant_id, body, caller),
    }),
    route({
      method: "DELETE",
      path: "/api/api-keys/:key_id",
      auth: "tenant",
      operation: "revokeKey",
      summary:
        "Revokes a key and its tokens immediately; to revoke another key than its own, the caller needs scope admin.",
      params: byKey,
      response: acknowledgement,
      errors: ["FORBIDDEN", "NOT_FOUND", "WRONG_STATE"],
      example: { params: { key_id: "{key_id}" }, response: { success: true, message: "api key revoked" } },
      handler: async ({ caller, params }) => {
        const isOwn = caller.kind === "key" && caller.key_id === params.key_id;
        if (!isOwn && !caller.scopes.includes("admin")) throw lacksScope("admin");
        await keys.revoke(caller.tenant_id, params.key_id);
        return { success: true as const, message: "api key revoked" };
      },
    }),
    route({
      method: "POST",
      path: "/api/auth/token",
      auth: "tenant",
      operation: "requestToken",
      summary: "Creates a short-lived bearer token from an API key or a user's access token, with at most its scopes.",
      body: requestToken,
      response: accessToken,
      errors: ["FORBIDDEN"],
      example: { body: { scopes: ["read"], expires_in: 300 }, response: SAMPLES.token },
      handler: async ({ caller, body }) => {
        if (caller.kind !== "key" && caller.kind !== "user") {
          throw new AppError("FORBIDDEN", "a token cannot create tokens: use an API key or a user's access token");
        }
        return keys.token(caller, body);
      },
    }),
  ];
}
