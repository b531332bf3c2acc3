/** The limits of a tenant as flags. */
import { LIMIT_NAMES, TENANT_LIMITS } from "../base/tenant-limits.ts";
import type { ResponseOf } from "../client/client.ts";
import type { Flags } from "./session.ts";
import { type Flag, number } from "./verb.ts";

export type Tenant = ResponseOf<"GET /api/tenants">["tenants"][number];
type Limits = Tenant["limits"];

const flagName = (limit: string) => limit.replaceAll("_", "-");

export const LIMIT_FLAGS: readonly Flag[] = LIMIT_NAMES.map((limit) => ({
  flags: `--${flagName(limit)} <n>`,
  about: TENANT_LIMITS[limit].counts,
  parse: number,
}));
export const NO_LIMIT_FLAGS: readonly Flag[] = LIMIT_NAMES.map((limit) => ({
  flags: `--no-${flagName(limit)}`,
  about: "without this limit",
}));

/** What was given; null for a limit that was taken away. */
export function limitsOf(flags: Flags): Partial<Limits> {
  const given = LIMIT_NAMES.map((limit) => {
    const value = flags[limit.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())];
    return [limit, value === false ? null : value] as const;
  });
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}
