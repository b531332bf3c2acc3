/** The limits of a tenant as flags. */
import { LIMIT_NAMES, TENANT_LIMITS } from "../../base/tenant-limits.ts";
import type { RequestOf, ResponseOf } from "../../client/client.ts";
import type { Flags } from "../session/session.ts";
import { type Flag, numberOrDefault } from "../session/verb.ts";

export type Tenant = ResponseOf<"GET /api/tenants">["tenants"][number];
type Limits = NonNullable<NonNullable<RequestOf<"PATCH /api/tenants/:tenant_id">["body"]>["limits"]>;

const flagName = (limit: string) => limit.replaceAll("_", "-");

export const LIMIT_FLAGS: readonly Flag[] = LIMIT_NAMES.map((limit) => ({
  flags: `--${flagName(limit)} <n>`,
  about: TENANT_LIMITS[limit].counts,
  parse: numberOrDefault,
}));
export const NO_LIMIT_FLAGS: readonly Flag[] = LIMIT_NAMES.map((limit) => ({
  flags: `--no-${flagName(limit)}`,
  about: "remove this limit",
}));

/** Returns the given limits: null removes a limit, `default` sets the node's default again. */
export function limitsOf(flags: Flags): Limits {
  const given = LIMIT_NAMES.map((limit) => {
    const value = flags[limit.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())];
    return [limit, value === false ? null : value] as const;
  });
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}
