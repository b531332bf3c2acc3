/**
 * Classes of tenants, which differ in their default limits: the operator's own has none, those that the operator made have
 * shares of the node, and those that users registered themselves have a part of these.
 */
import { LIMITS } from "./limits.ts";

export type TenantClass = "operator" | "tenant" | "user";

/** The least that a user's tenant has, however small the part: one thing of each kind, with its own default limits. */
const LEAST: Readonly<Record<string, number>> = {
  functions_max: 1,
  instances_max: 1,
  memory_mb_max: LIMITS.memory_limit_mb_default,
  processes_max: LIMITS.instance_pids_max,
  storage_mb_max: 16,
  containers_max: 1,
  networks_max: 1,
  volumes_max: 1,
  secrets_max: 1,
  images_max: 1,
  image_mb_max: LIMITS.user_image_mb_min,
  build_contexts_max: 1,
  disk_mb_max: 2 * LIMITS.disk_limit_mb_min,
  snapshots_max: 1,
  services_max: 1,
  messages_mb_max: 1,
  container_memory_mb_max: LIMITS.container_memory_mb_default,
  execs_max: 1,
  streams_max: 1,
  terminals_max: 1,
};

/** What others have without a limit, but not a user's tenant. */
const WITHOUT: Readonly<Record<string, number>> = { requests_per_second: LIMITS.user_requests_per_second_default };

/**
 * Returns the defaults of a user's tenant: `percent` of those of other tenants, in whole numbers, but never more than they
 * have. Null, no limit, becomes a number where there is one.
 */
export function userDefaults<Limits extends Readonly<Record<string, number | null>>>(
  defaults: Limits,
  percent: number,
): Limits {
  if (percent >= 100) return defaults;
  const part = (name: string, value: number) =>
    Math.min(value, Math.max(Math.floor((value * percent) / 100), LEAST[name] ?? 0));
  const entries = Object.entries(defaults).map(([name, value]) => [
    name,
    value === null ? (WITHOUT[name] ?? null) : part(name, value),
  ]);
  return Object.fromEntries(entries) as Limits;
}
