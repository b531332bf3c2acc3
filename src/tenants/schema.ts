/** Shapes of tenants, their limits, API keys and access tokens. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { queryFlag, queryLimit } from "../http/input.ts";
import { SCOPES } from "../http/route.ts";
import { epochSeconds, whole } from "../http/schema.ts";

const name = z
  .string()
  .min(1)
  .max(LIMITS.tenant_name_length_max)
  .refine((value) => !/\p{Cc}/u.test(value), { error: "must not hold control characters" })
  .refine((value) => value.trim() === value, { error: "must not start or end with a space" });

const bound = (max: number) => whole(0, max).nullable();

/** Null: no limit. */
const limitFields = {
  requests_per_second: z
    .number()
    .min(LIMITS.requests_per_second_min)
    .max(LIMITS.requests_per_second_max)
    .nullable()
    .describe("Requests of all its keys; a second's worth may come at once."),
  functions_max: bound(1_000_000),
  instances_max: bound(1_000_000).describe("Instances of all its functions at the same time."),
  memory_mb_max: bound(100_000_000).describe("Sum of memory_limit_mb of its instances."),
  storage_mb_max: bound(100_000_000).describe(
    "Functions, versions and records. Above it nothing is created and the oldest records go.",
  ),
};

export const tenantLimits = z.object(limitFields).meta({ id: "TenantLimits" });
export type TenantLimits = Readonly<z.output<typeof tenantLimits>>;

export const NO_LIMITS: TenantLimits = {
  requests_per_second: null,
  functions_max: null,
  instances_max: null,
  memory_mb_max: null,
  storage_mb_max: null,
};

const someLimits = z.object(limitFields).partial();

export const createTenant = z.object({ name, limits: someLimits.default({}) }).meta({ id: "CreateTenant" });
export type CreateTenant = z.output<typeof createTenant>;

/** What is absent stays, a limit of null is off. */
export const updateTenant = z
  .object({ name: name.optional(), limits: someLimits.default({}) })
  .meta({ id: "UpdateTenant" });
export type UpdateTenant = z.output<typeof updateTenant>;

export const TENANT_STATES = ["active", "deleting"] as const;

export const tenantRecord = z
  .object({
    tenant_id: z.string(),
    name: z.string(),
    state: z.enum(TENANT_STATES),
    limits: tenantLimits,
    created_at: epochSeconds,
  })
  .meta({ id: "Tenant" });
export type TenantRecord = Readonly<z.output<typeof tenantRecord>>;

export const tenantDetail = tenantRecord
  .extend({
    usage: z.object({
      api_keys: z.int(),
      functions: z.int(),
      storage_bytes: z.int().describe("What its functions, versions and records take."),
    }),
  })
  .meta({ id: "TenantDetail" });
export type TenantDetail = Readonly<z.output<typeof tenantDetail>>;

export const tenantList = z.object({ tenants: z.array(tenantRecord) });
export const listTenants = z.object({ limit: queryLimit() });
export const deleteTenant = z.object({ force: queryFlag().describe("Delete what it owns too.") });

const scopes = z
  .array(z.enum(SCOPES))
  .min(1)
  .refine((list) => new Set(list).size === list.length, { error: "must not name a scope twice" })
  .optional()
  .describe("All four unless given.");

export const createKey = z
  .object({
    name,
    scopes,
    expires_at: epochSeconds.nullish().describe("Seconds since the Unix epoch; never unless given."),
  })
  .meta({ id: "CreateApiKey" });
export type CreateKey = z.output<typeof createKey>;

export const apiKeyRecord = z
  .object({
    id: z.string(),
    tenant_id: z.string(),
    name: z.string(),
    prefix: z.string().nullable().describe("How the key begins; null for the operator's."),
    scopes: z.array(z.enum(SCOPES)),
    created_at: epochSeconds,
    expires_at: epochSeconds.nullable(),
  })
  .meta({ id: "ApiKey" });
export type ApiKeyRecord = Readonly<z.output<typeof apiKeyRecord>>;

export const newApiKey = apiKeyRecord
  .extend({ key: z.string().describe("Shown this once.") })
  .meta({ id: "NewApiKey" });
export type NewApiKey = Readonly<z.output<typeof newApiKey>>;

export const apiKeyList = z.object({ api_keys: z.array(apiKeyRecord) });

export const requestToken = z
  .object({
    scopes,
    expires_in: whole(1, LIMITS.access_token_seconds_max)
      .default(LIMITS.access_token_seconds_default)
      .describe("Seconds."),
  })
  .meta({ id: "RequestToken" });

export type RequestToken = z.output<typeof requestToken>;

export const accessToken = z
  .object({
    access_token: z.string(),
    token_type: z.literal("Bearer"),
    expires_in: z.int().describe("Seconds."),
    scopes: z.array(z.enum(SCOPES)),
  })
  .meta({ id: "AccessToken" });
export type AccessToken = z.output<typeof accessToken>;
