/** Shapes of operations, and the answer of every route that hands its work to one. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, nextCursor, pageQuery, queryNumber } from "../base/schema.ts";
import { OPERATION_STATUSES } from "./states.ts";

export { hasEnded, operationStates } from "./states.ts";

const ABOUT = {
  operation_id: "Id of the operation.",
  status_url: "Path of the operation's record.",
};

export const operationRecord = z
  .object({
    operation_id: z.string().describe(ABOUT.operation_id),
    operation_type: z.string().describe("Type of the work: container.start, volume.delete."),
    status: z
      .enum(OPERATION_STATUSES)
      .describe("accepted, queued and running are open; succeeded, failed, cancelled and timed_out are ended."),
    target_resource_type: z.string().nullable().describe("Type of the resource that the operation changes."),
    target_resource_id: z.string().nullable().describe("Id of that resource."),
    progress_pct: z.number().nullable().describe("Progress from 0 to 100; null if it is unknown."),
    message: z.string().nullable().describe("Current step or outcome, as text."),
    result: z
      .record(z.string(), z.unknown())
      .nullable()
      .describe("Result of the work; null before the end, or without a result."),
    items: z
      .array(z.record(z.string(), z.unknown()))
      .nullable()
      .describe("Results of the parts of a batch; null for other operations."),
    error: z.string().nullable().describe("Reason of the failure; null unless the operation failed."),
    reason_code: z
      .string()
      .nullable()
      .describe("Error code of the failure, or a more precise reason; INTERRUPTED after a restart."),
    reason_message: z.string().nullable().describe("The same as error."),
    warnings: z.array(z.string()).describe("Differences between the request and the result."),
    capability_downgrades: z.array(z.string()).describe("Requested capabilities that this node lacks."),
    container_id: z.string().nullable().describe("Container that the operation changes."),
    snapshot_id: z.string().nullable().describe("Snapshot that the operation changes or creates."),
    result_container_id: z.string().nullable().describe("Container that the operation created."),
    status_url: z.string().describe(ABOUT.status_url),
    created_at: epochSeconds,
    started_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null: not yet."),
    updated_at: epochSeconds,
    completed_at: epochSeconds.nullable().describe("Seconds since the Unix epoch; null: not yet."),
  })
  .meta({ id: "Operation" });
export type OperationRecord = Readonly<z.output<typeof operationRecord>>;

/** A resource that an operation changes or makes. `id` is null while it does not exist, or if there are several. */
export interface Resource {
  readonly type: string;
  readonly id: string | null;
}

/** The fields of a record that name resources. Clients read containers and snapshots by fields of their own. */
export function resourceFields(target: Resource | null, made: Resource | null) {
  const idOf = (resource: Resource | null, type: string) => (resource?.type === type ? resource.id : null);
  return {
    target_resource_type: target?.type ?? null,
    target_resource_id: target?.id ?? null,
    container_id: idOf(target, "container"),
    snapshot_id: idOf(target, "snapshot") ?? idOf(made, "snapshot"),
    result_container_id: idOf(made, "container"),
  };
}

const operationSummary = operationRecord
  .omit({ result: true, items: true })
  .meta({ id: "OperationSummary", description: "An operation without its result and items." });

export const operationList = z
  .object({ operations: z.array(operationSummary).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "OperationList" });

export const listOperations = pageQuery.extend({
  status: z.enum(OPERATION_STATUSES).optional().describe("Only operations in this state."),
  operation_type: z.string().optional().describe("Only operations of this type."),
  target_resource_id: z.string().optional().describe("Only operations on the resource with this id."),
  container_id: z.string().optional().describe("Only operations on this container, by id or name."),
});
/** `container_ids`: only operations on these containers. */
export type OperationFilter = Omit<z.output<typeof listOperations>, keyof z.output<typeof pageQuery>> & {
  readonly container_ids?: ReadonlySet<string> | undefined;
};

export const getOperation = z.object({
  wait_seconds: queryNumber(0, LIMITS.operation_wait_seconds_max)
    .optional()
    .describe("Seconds to wait for the end of the operation; without it the answer comes at once."),
});

/** What a route that hands its work to an operation answers with 202. Concerns may add fields. */
export const acceptedOperation = z
  .object({
    success: z.literal(true).describe("Always true: the operation is accepted. Its record has the result."),
    operation_id: z.string().describe(ABOUT.operation_id),
    status_url: z.string().describe(ABOUT.status_url),
  })
  .meta({ id: "AcceptedOperation" });
export type AcceptedOperation = Readonly<z.output<typeof acceptedOperation>>;

export const statusUrl = (operation_id: string): string => `/api/operations/${operation_id}`;

/** The 202 of an accepted operation; `extra`: fields beyond those of every handle. */
export function accepted<Extra extends object = object>(
  { operation_id }: Pick<OperationRecord, "operation_id">,
  extra: Extra = {} as Extra,
): Answer<AcceptedOperation & Extra> {
  return new Answer(202, { success: true, operation_id, status_url: statusUrl(operation_id), ...extra });
}

/** `execution` in the query of a route whose work may take a while. Absent: what the route does by itself. */
export const executionField = z
  .enum(["sync", "async"])
  .optional()
  .describe(
    "sync: responds when the work is done. async: responds 202 with an operation. Default: the documented response of the route.",
  );
export type Execution = "sync" | "async";
