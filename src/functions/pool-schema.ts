/** Shapes of what the pool reports: instances by state, cells, readiness. */
import { z } from "zod";

const count = z.int().min(0);

const instanceCounts = z.object({
  warming_count: count.describe("Starting instances."),
  ready_count: count.describe("Idle instances that can serve a call."),
  busy_count: count.describe("Instances that serve a call."),
  recycling_count: count.describe("Instances in clean-up after a call."),
  terminating_count: count.describe("Instances in removal."),
  total_count: count.describe("Sum of the five."),
});

export const functionPool = instanceCounts
  .extend({
    function_id: z.string().describe("Id of the function."),
    calls_running: count.describe("Calls in flight. Instances of a runtime with concurrency serve several at once."),
    queued_count: count.describe("Calls waiting for an instance."),
    last_error: z.string().nullable().describe("Reason why the last start failed; null if it succeeded."),
    superseded_count: count.describe(
      "Instances of superseded versions, kept for a rollback and not counted in max_instances.",
    ),
  })
  .meta({ id: "FunctionPool" });

export const functionPools = z
  .object({
    pools: z.array(functionPool).describe("Functions with an instance or a waiting call, newest first."),
  })
  .meta({ id: "FunctionPools" });

/** Cells of one instance class. */
const cellClass = z
  .object({
    class: z.string().describe("Key of the class: its runtime, then a digest of image, runtime and engine options."),
    cells_target: count.describe("Cells that the class has by its share of the budget."),
    cells: count.describe("Started containers of the class that belong to no function yet."),
    cells_starting: count.describe("Cells of the class that are being started."),
    cell_hit_count: count.describe("Cold calls of its functions that found a cell."),
    cell_miss_count: count.describe("Cold calls of its functions that found no cell."),
  })
  .meta({ id: "CellClass" });

/** Counts of the node and of all tenants: in answers to the operator alone. */
const nodeCounts = {
  cells: count.optional().describe("Cells: started containers that belong to no function yet."),
  cells_starting: count.optional().describe("Starting cells."),
  started_count: count.optional().describe("Containers started; all counts from here on start with the daemon."),
  start_failed_count: count.optional().describe("Failed starts."),
  crashed_count: count.optional().describe("Instances that exited unexpectedly."),
  evicted_count: count.optional().describe("Idle instances evicted for capacity or memory."),
  expired_count: count.optional().describe("Idle instances removed at the end of their keep-alive."),
  remove_failed_count: count.optional().describe("Failed removals, which are retried."),
  cell_hit_count: count.optional().describe("Cold calls with a ready cell."),
  cell_miss_count: count.optional().describe("Cold calls without a ready cell."),
  classes: z
    .array(cellClass)
    .optional()
    .describe(
      "Instance classes that share the cells, the one needed last at the end. A class without need is not listed.",
    ),
};

export const poolStats = instanceCounts
  .extend({
    calls_running: count.describe("Calls in flight."),
    queued: count.describe("Calls waiting for an instance."),
    ...nodeCounts,
  })
  .meta({
    id: "PoolStats",
    description: "For the operator: all tenants. For others: their own functions, without the counts of the node.",
  });
export type PoolStats = z.output<typeof poolStats>;

export const functionsReadiness = z
  .object({
    status: z
      .enum(["ok", "degraded"])
      .describe("degraded: every container start since the start of the daemon failed."),
    concern: z.literal("functions").describe("Concern of this health report."),
    runtimes: z.array(z.string()).describe("Available runtimes."),
    pool: poolStats,
  })
  .meta({ id: "FunctionsHealth" });

export type FunctionsReadiness = z.output<typeof functionsReadiness>;
