/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import type { OperationRecord } from "./schema.ts";

const summary: Omit<OperationRecord, "result" | "items"> = {
  operation_id: "op_4m0v9c2x7k1t8r6d",
  operation_type: "container.start",
  status: "succeeded",
  target_resource_type: "container",
  target_resource_id: "ctr_2h8xq0w5n7vb3kze",
  progress_pct: 100,
  message: "started",
  error: null,
  reason_code: null,
  reason_message: null,
  warnings: [],
  capability_downgrades: [],
  container_id: "ctr_2h8xq0w5n7vb3kze",
  snapshot_id: null,
  result_container_id: null,
  status_url: "/api/operations/op_4m0v9c2x7k1t8r6d",
  created_at: 1795250210,
  started_at: 1795250210,
  updated_at: 1795250210,
  completed_at: 1795250210,
};

const operation: OperationRecord = { ...summary, result: { container_id: "ctr_2h8xq0w5n7vb3kze" }, items: null };

const cancelled: OperationRecord = {
  ...operation,
  status: "cancelled",
  progress_pct: null,
  message: "cancelled before it started",
  result: null,
  started_at: null,
};

export const SAMPLES = { summary, operation, cancelled } as const;
