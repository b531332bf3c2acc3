/** Differences between two versions, or between a function and its entry in a deployment. */

import type { FunctionRecord, VersionedFields } from "../schema.ts";
import type { Difference } from "./schema.ts";

/** Fields of a version, in the order in which people read them. */
export const VERSIONED_FIELDS = [
  "handler",
  "runtime",
  "image",
  "oci",
  "image_id",
  "code_sha256",
  "environment",
  "secrets",
  "memory_limit_mb",
  "cpu_limit_percent",
  "timeout_seconds",
  "working_directory",
  "egress",
  "instance_concurrency",
  "instance_calls_max",
  "reset_between_calls",
  "gpu_count",
  "protocol",
] as const satisfies readonly (keyof VersionedFields)[];

/** Fields of a function that no version has. */
export const FUNCTION_FIELDS = [
  "description",
  "min_instances",
  "max_instances",
  "concurrency_limit",
  "api_access",
  "cleanup_on_exit",
] as const satisfies readonly (keyof FunctionRecord)[];

type Json = Difference["from"];

/** Returns the fields whose values differ, each with both values. */
export function differences<Field extends string>(
  from: Readonly<Record<Field, unknown>>,
  to: Readonly<Record<Field, unknown>>,
  fields: readonly Field[],
): Difference[] {
  return fields
    .filter((field) => sorted(from[field]) !== sorted(to[field]))
    .map((field) => ({ field, from: (from[field] ?? null) as Json, to: (to[field] ?? null) as Json }));
}

/** A value as text, whatever the order of its keys. */
function sorted(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value) || typeof value !== "object") return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
