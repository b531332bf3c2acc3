/** The record of a call of a function, for what counts calls. */
import type { InvocationRecord } from "../../src/functions/schema.ts";

export const called = (function_name: string, parts: Partial<InvocationRecord> = {}): InvocationRecord => ({
  invocation_id: "inv_1_a",
  function_id: "fn_1",
  function_name,
  version: 1,
  execution_node_id: "node_1",
  status: "success",
  started_at: 0,
  ended_at: 0,
  duration_ms: 1,
  exit_code: 0,
  result: null,
  stdout: "",
  stderr: "",
  stdout_truncated: false,
  stderr_truncated: false,
  error_message: null,
  cold_start: false,
  instance_nonce: null,
  timings: { queue: 0, handler: 1, total: 500 },
  ...parts,
});
