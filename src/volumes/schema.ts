/** Shapes of the volume concern as zod schemas: requests and records. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, resourceName, text, whole } from "../http/schema.ts";
import { VOLUME_STATUSES } from "./states.ts";

/** Unlike other names one of a volume stands before a colon in a mount. */
const volumeName = resourceName.refine((value) => !value.includes(":"), { error: "must not hold ':'" });

const ABOUT = {
  name: "Unique among the tenant's volumes. Without '/', ':', control characters and spaces at its ends.",
  quota_mb: "What it may hold, in MiB; null: as much as there is.",
} as const;

const labels = z
  .record(text(LIMITS.label_length_max).min(1), text(LIMITS.label_length_max))
  .refine((map) => Object.keys(map).length <= LIMITS.labels_max, {
    error: `must not have more than ${LIMITS.labels_max} entries`,
  });

export const createVolume = z
  .object({
    name: volumeName.describe(ABOUT.name),
    driver: z.literal("local", { error: "expected local" }).default("local").describe("Where it is: on this node."),
    labels: labels.default({}).describe("For whoever looks for it."),
    quota_mb: whole(LIMITS.disk_limit_mb_min, LIMITS.disk_limit_mb_max).nullish().describe(ABOUT.quota_mb),
  })
  .meta({ id: "CreateVolume" });
export type CreateVolume = z.output<typeof createVolume>;

/** `name` is what older clients send. */
export const renameVolume = z
  .object({ new_name: volumeName.optional(), name: volumeName.optional() })
  .refine(({ new_name, name }) => (new_name ?? name) !== undefined, { path: ["new_name"], error: "is missing" })
  .transform(({ new_name, name }) => ({ new_name: new_name ?? name ?? "" }))
  .meta({ id: "RenameVolume" });

export const volumeRecord = z
  .object({
    id: z.string().describe("The volume's, also after a change of its name."),
    name: z.string().describe(ABOUT.name),
    tenant_id: z.string().describe("Of its owner."),
    driver: z.literal("local"),
    mount_point: z.string().describe("Where it is on the node; for the operator."),
    labels: z.record(z.string(), z.string()),
    options: z.record(z.string(), z.string()).describe("None exist yet."),
    quota_mb: z.int().nullable().describe(ABOUT.quota_mb),
    status: z.enum(VOLUME_STATUSES).describe("cleanup_pending: it is being deleted."),
    created_at: epochSeconds,
    updated_at: epochSeconds,
  })
  .meta({ id: "Volume" });
export type VolumeRecord = Readonly<z.output<typeof volumeRecord>>;

export const volumeDetail = volumeRecord
  .extend({
    used_bytes: z.int().describe("What it holds."),
    container_ids: z.array(z.string()).describe("Containers that have it."),
  })
  .meta({ id: "VolumeDetail" });

export const volumeList = z
  .object({
    volumes: z.array(volumeRecord).describe("Newest first."),
    truncated: z.literal(true).optional().describe("There where there are more than limit."),
  })
  .meta({ id: "VolumeList" });
