/** Shapes of tenants, their limits, API keys and access tokens. */
import { z } from "zod";
import { SCOPES } from "../base/caller.ts";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, nextCursor, queryFlag, wellFormed, whole } from "../base/schema.ts";
import { eachLimit, TENANT_USES, type UseName } from "../base/tenant-limits.ts";

const name = wellFormed
  .min(1)
  .max(LIMITS.tenant_name_length_max)
  .refine((value) => !/\p{Cc}/u.test(value), { error: "must not contain control characters" })
  .refine((value) => value.trim() === value, { error: "must not start or end with a space" });

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

export const createTenant = z
  .object({
    name: tenantName,
    limits: someLimits.default({}).describe("Absent or `default`: the default of this node; null: no limit."),
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

export const createKey = z
  .object({
    name: name.describe("Name for people."),
    scopes,
    expires_at: epochSeconds.nullish().describe("Time of expiry in seconds since the Unix epoch (default: never)."),
  })
  .meta({ id: "CreateApiKey" });
export type CreateKey = z.output<typeof createKey>;

const apiKeyRecord = z
  .object({
    id: z.string().describe("Id of the key, which revokes it."),
    tenant_id: z.string().describe("Tenant of the key."),
    name: z.string().describe("Name for people."),
    prefix: z.string().nullable().describe("First characters of the key; null for the operator's."),
    scopes: z.array(z.enum(SCOPES)).describe("Scopes."),
    created_at: epochSeconds,
    expires_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null if never."),
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
