/** Shapes of tenants, their limits, API keys and access tokens. */
import { z } from "zod";
import { SCOPES, type Scope } from "../base/caller.ts";
import { GRANT } from "../base/hostnames.ts";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, hasIdForm, nextCursor, queryFlag, wellFormed, whole } from "../base/schema.ts";
import { eachLimit, TENANT_USES, type UseName } from "../base/tenant-limits.ts";

const name = wellFormed
  .min(1)
  .max(LIMITS.tenant_name_length_max)
  .refine((value) => !/\p{Cc}/u.test(value), { error: "must not contain control characters" })
  .refine((value) => value.trim() === value, { error: "must not start or end with a space" })
  .refine((value) => !hasIdForm(value), { error: "must not have the form of an id" });

const limitNumber = ({
  min,
  max,
  isWhole,
}: {
  readonly min: number;
  readonly max: number;
  readonly isWhole: boolean;
}) => (isWhole ? whole(min, max) : z.number().min(min).max(max));

export const tenantLimits = z
  .object(eachLimit((_, row) => limitNumber(row).nullable().describe(row.about)))
  .meta({ id: "TenantLimits", description: "Limits of a tenant; null: no limit." });

/** The text instead of a number: the limit is that of this node again. */
export const NODE_DEFAULT = "default";

const someLimits = z
  .object(
    eachLimit((_, row) =>
      z
        .union([limitNumber(row), z.literal(NODE_DEFAULT)])
        .nullable()
        .describe(row.about),
    ),
  )
  .partial();
export type GivenLimits = z.output<typeof someLimits>;

const tenantName = name.describe("Unique among tenants.");

const serviceHostnames = z
  .array(
    z.string().max(LIMITS.service_hostname_length_max).regex(GRANT, { error: "must be a host name, or *. and one" }),
  )
  .max(LIMITS.service_hostname_grants_max)
  .describe("Host names that its published services may have: app.example.com, or *.example.com for all below it.");

export const createTenant = z
  .object({
    name: tenantName,
    limits: someLimits.default({}).describe("Absent or `default`: the default of this node; null: no limit."),
    service_hostnames: serviceHostnames.default([]),
  })
  .meta({ id: "CreateTenant" });
export type CreateTenant = z.output<typeof createTenant>;

/** Absent fields stay; null removes a limit, `default` sets that of the node again. */
export const updateTenant = z
  .object({
    name: tenantName.optional(),
    limits: someLimits
      .default({})
      .describe("Absent limits stay; null: no limit; `default`: the default of this node again."),
    service_hostnames: serviceHostnames.optional(),
  })
  .meta({ id: "UpdateTenant" });
export type UpdateTenant = z.output<typeof updateTenant>;

const TENANT_STATES = ["active", "deleting"] as const;

export const tenantRecord = z
  .object({
    tenant_id: z.string().describe("Id of the tenant."),
    name: z.string().describe("Unique among tenants."),
    state: z.enum(TENANT_STATES).describe("deleting: its keys are revoked, and the daemon removes its resources."),
    limits: tenantLimits,
    service_hostnames: z.array(z.string()).describe("Host names that its published services may have."),
    created_at: epochSeconds,
  })
  .meta({ id: "Tenant" });
export type TenantRecord = Readonly<z.output<typeof tenantRecord>>;

const uses = Object.fromEntries(TENANT_USES.map(({ name, about }) => [name, z.int().describe(about)])) as Record<
  UseName,
  z.ZodInt
>;

export const tenantDetail = tenantRecord
  .extend({
    usage: z
      .object({ api_keys: z.int().describe("Number of keys."), ...uses })
      .meta({ id: "TenantUsage", description: "Usage of a tenant." }),
  })
  .meta({ id: "TenantDetail" });
export type TenantDetail = Readonly<z.output<typeof tenantDetail>>;

export const tenantList = z
  .object({ tenants: z.array(tenantRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "TenantList" });
export const deleteTenant = z.object({ force: queryFlag().describe("Deletes the tenant's resources too.") });

const scopes = z
  .array(z.enum(SCOPES))
  .min(1)
  .refine((list) => new Set(list).size === list.length, { error: "must not name a scope twice" })
  .optional()
  .describe("Scopes of the new credential (default: scopes of the caller's key).");

export const byKey = z.object({
  key_id: z.string().meta({ description: "Id of the key, not its secret.", examples: ["key_w2fz7h9xq4mt0c8b"] }),
});

/** The value of `permissions` that stands for all scopes. Existing clients send it. */
const ALL_PERMISSIONS = "*";

const createKeyFields = z.object({
  name: name.describe("Name for people."),
  scopes,
  permissions: z
    .array(z.enum([...SCOPES, ALL_PERMISSIONS]))
    .min(1)
    .nullish()
    .describe("The same as scopes, under the name that existing clients send; * means all."),
  expires_at: epochSeconds.nullish().describe("Time of expiry in seconds since the Unix epoch (default: never)."),
});

/** The scopes that a body names in one of its fields. */
function scopesOf({ scopes, permissions }: z.output<typeof createKeyFields>): readonly Scope[] | undefined {
  if (permissions === undefined || permissions === null) return scopes;
  return SCOPES.filter((scope) => permissions.includes(scope) || permissions.includes(ALL_PERMISSIONS));
}

function areSame({ scopes, permissions }: z.output<typeof createKeyFields>): boolean {
  if (scopes === undefined || permissions === undefined || permissions === null) return true;
  const other = permissions.includes(ALL_PERMISSIONS) ? SCOPES : permissions;
  return SCOPES.every((scope) => scopes.includes(scope) === other.includes(scope));
}

const CONTRADICTION = { path: ["permissions"], error: "must name the same as scopes" };

/** A key of the container in the path. */
export const createContainerKey = createKeyFields.refine(areSame, CONTRADICTION).meta({ id: "CreateContainerKey" });
export type CreateContainerKey = z.output<typeof createContainerKey>;

/** `container_ids`: null for all of the tenant. */
export const createKey = createKeyFields
  .extend({
    scope_type: z
      .enum(["full", "container", "project"])
      .refine((type) => type !== "project", {
        error: "this service has no projects",
        params: { expected: ["full", "container"] },
      })
      .default("full")
      .describe("container: the key reaches only the containers of scope_resource_ids. project is refused."),
    scope_resource_ids: z
      .array(z.string())
      .max(LIMITS.key_containers_max)
      .nullish()
      .describe("Ids of the containers of a key with scope_type container."),
  })
  .refine(areSame, CONTRADICTION)
  .refine(
    ({ scope_type, scope_resource_ids }) => (scope_type === "container") === (scope_resource_ids ?? []).length > 0,
    {
      path: ["scope_resource_ids"],
      error: "must name containers if scope_type is container, and nothing otherwise",
    },
  )
  .refine(({ scope_resource_ids }) => new Set(scope_resource_ids ?? []).size === (scope_resource_ids ?? []).length, {
    path: ["scope_resource_ids"],
    error: "must not name a container twice",
  })
  .transform(({ scope_type, scope_resource_ids, ...fields }) => ({
    ...keyOf(fields),
    container_ids: scope_type === "container" ? (scope_resource_ids ?? []) : null,
  }))
  .meta({ id: "CreateApiKey" });
export type CreateKey = z.output<typeof createKey>;

/** The key that a body asks for, whatever it reaches. */
export function keyOf(fields: z.output<typeof createKeyFields>) {
  return { name: fields.name, scopes: scopesOf(fields), expires_at: fields.expires_at };
}

const apiKeyRecord = z
  .object({
    id: z.string().describe("Id of the key, which revokes it."),
    tenant_id: z.string().describe("Tenant of the key."),
    name: z.string().describe("Name for people."),
    prefix: z.string().nullable().describe("First characters of the key; null for the operator's."),
    scopes: z.array(z.enum(SCOPES)).describe("Scopes."),
    permissions: z.array(z.enum(SCOPES)).describe("The same as scopes."),
    scope_type: z.enum(["full", "container"]).describe("container: the key reaches only some containers."),
    scope_resource_ids: z.array(z.string()).describe("Ids of these containers."),
    created_at: epochSeconds,
    expires_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null if never."),
    last_used_at: epochSeconds
      .nullable()
      .describe(
        "Last request with the key or a token of it, in seconds since the Unix epoch; null if none. A crash may lose the last minute.",
      ),
  })
  .meta({ id: "ApiKey" });
export type ApiKeyRecord = Readonly<z.output<typeof apiKeyRecord>>;

export const newApiKey = apiKeyRecord
  .extend({ key: z.string().describe("The key; only this response contains it.") })
  .meta({ id: "NewApiKey" });
export type NewApiKey = Readonly<z.output<typeof newApiKey>>;

export const apiKeyList = z
  .object({ api_keys: z.array(apiKeyRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "ApiKeyList" });

export const requestToken = z
  .object({
    scopes,
    expires_in: whole(1, LIMITS.access_token_seconds_max)
      .default(LIMITS.access_token_seconds_default)
      .describe("Lifetime in seconds; the token ends earlier if its key does."),
  })
  .meta({ id: "RequestToken" });

export type RequestToken = z.output<typeof requestToken>;

export const accessToken = z
  .object({
    access_token: z.string().describe("The token, for the header 'Authorization: Bearer <token>'."),
    token_type: z.literal("Bearer").describe("Always Bearer."),
    expires_in: z.int().describe("Lifetime in seconds."),
    scopes: z.array(z.enum(SCOPES)).describe("Scopes."),
  })
  .meta({ id: "AccessToken" });
export type AccessToken = z.output<typeof accessToken>;

export const rotateOperatorKey = z
  .object({
    overlap_seconds: whole(0, LIMITS.operator_key_overlap_seconds_max)
      .default(0)
      .describe("Seconds for which the previous key and its tokens stay valid; 0 ends them at once."),
  })
  .meta({ id: "RotateOperatorKey" });

export const rotatedKey = z
  .object({
    key: z.string().describe("The new key, also in the key file of the data directory."),
    previous_expires_at: epochSeconds.describe("End of the previous key, in seconds since the Unix epoch."),
  })
  .meta({ id: "RotatedKey" });
export type RotatedKey = Readonly<z.output<typeof rotatedKey>>;

export const rotateTokenKey = z
  .object({
    overlap_seconds: whole(0, LIMITS.access_token_seconds_max)
      .default(LIMITS.access_token_seconds_max)
      .describe("Seconds for which tokens of earlier keys stay valid, unless they expire before; 0 ends them at once."),
  })
  .meta({ id: "RotateTokenKey" });

export const rotatedTokenKey = z
  .object({
    previous_expires_at: epochSeconds.describe(
      "Time at which tokens of earlier keys end, in seconds since the Unix epoch.",
    ),
  })
  .meta({ id: "RotatedTokenKey" });
