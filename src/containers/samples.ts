/** Answers of a daemon to the examples of the routes, as the description of the API shows them. */

import type { OperationRecord } from "../operations/schema.ts";
import type { ExecResult, JobRecord } from "./exec/schema.ts";
import type { ContainerRecord } from "./schema.ts";

const running: ContainerRecord = {
  container_id: "ctr_c1v8hx2m9qk4te7b",
  tenant_id: "default",
  name: "box",
  state: "running",
  pid: 4_711,
  exit_code: null,
  oom_killed: false,
  error_message: null,
  restart_count: 0,
  ip_address: "10.42.0.7",
  created_at: "2026-11-21T12:00:00.120Z",
  started_at: "2026-11-21T12:00:00.151Z",
  exited_at: null,
  working_directory: "/",
  user: null,
  stop_signal: "SIGTERM",
  exposed_ports: [],
  declared_volumes: [],
  health: null,
  memory_limit_mb: 512,
  cpu_limit_percent: null,
  disk_limit_mb: null,
  strict: false,
  read_only_root: false,
  restart: "no",
  ttl_seconds: null,
  idle_seconds: null,
  ports: [{ container_port: 80, host_port: 20_480, host_address: "127.0.0.1", protocol: "tcp" }],
  egress: "on",
  gpu_count: 0,
  gpu_ids: [],
  labels: {},
  origin: null,
  exec_ready: true,
  network_ready: true,
  checks: { state_running: true, minit_responsive: true, network_configured: true, managed_image_valid: true },
};

const exited: ContainerRecord = {
  ...running,
  state: "exited",
  pid: null,
  exit_code: 143,
  ip_address: null,
  exited_at: "2026-11-21T12:00:01.300Z",
  exec_ready: false,
  network_ready: false,
  checks: { state_running: false, minit_responsive: false, network_configured: false, managed_image_valid: true },
};

const batch: OperationRecord = {
  operation_id: "op_4m0v9c2x7k1t8r6d",
  operation_type: "container.batch",
  status: "succeeded",
  target_resource_type: "container",
  target_resource_id: null,
  progress_pct: 100,
  message: "1 of 2 containers created; 1 failed: 'two': NAME_TAKEN, a container named 'two' exists",
  result: { created_count: 1, failed_count: 1 },
  items: [
    { name: "one", status: "succeeded", container_id: running.container_id },
    {
      name: "two",
      status: "failed",
      error_code: "NAME_TAKEN",
      error: "a container named 'two' exists",
      retryable: false,
    },
  ],
  error: null,
  reason_code: null,
  reason_message: null,
  warnings: [],
  capability_downgrades: [],
  container_id: null,
  snapshot_id: null,
  result_container_id: null,
  status_url: "/api/operations/op_4m0v9c2x7k1t8r6d",
  created_at: 1795250210,
  started_at: 1795250210,
  updated_at: 1795250211,
  completed_at: 1795250211,
};

const exec: ExecResult = {
  container_id: running.container_id,
  job_id: "job_4w9q0nhx2m8c1vte",
  exit_code: 0,
  stdout: "hello\n",
  stderr: "",
  stdout_truncated: false,
  stderr_truncated: false,
  execution_time_ms: 1,
  timed_out: false,
};

const job: JobRecord = {
  job_id: exec.job_id,
  container_id: running.container_id,
  command: ["echo", "hello"],
  status: "completed",
  success: true,
  exit_code: 0,
  pid: 12,
  started_at: 1795262401,
  completed_at: 1795262401,
  duration_ms: 1,
  timed_out: false,
  error_message: null,
  stdout_truncated: false,
  stderr_truncated: false,
  status_url: `/api/containers/${running.container_id}/jobs/${exec.job_id}`,
};

const { container_id, state, exec_ready, network_ready, checks } = running;

const done = (message: string) => ({ success: true as const, message });
const { container_id: id } = running;

/** Path of the container of an example. */
export const ID_EXAMPLE = { container_id: "{container_id}" };

export const SAMPLES = {
  running,
  exited,
  handle: {
    success: true as const,
    operation_id: "op_7bq2m9vtx4c1h8ke",
    status_url: "/api/operations/op_7bq2m9vtx4c1h8ke",
  },
  stopped: { ...exited, ...done("container stopped") },
  killed: { ...exited, exit_code: 137, ...done("container stopped") },
  deleted: done("container deleted"),
  environment_set: done("applies to later commands and the next start"),
  signalled: done("sent signal 15 to process 12"),
  renamed: { success: true as const, container_id: id, old_name: "box", new_name: "crate", dns_updated: false },
  metrics: {
    container_id: id,
    timestamp: 1795262401,
    cpu_usage_usec: 28_590,
    cpu_user_usec: 10_000,
    cpu_system_usec: 20_000,
    cpu_throttled_usec: 0,
    memory_current_bytes: 5_443_584,
    memory_peak_bytes: 8_257_536,
    memory_limit_bytes: 536_870_912,
    memory_cache_bytes: 5_029_888,
    memory_rss_bytes: 81_920,
    network_rx_bytes: 540,
    network_tx_bytes: 0,
    network_rx_packets: 6,
    network_tx_packets: 0,
    network_rx_errors: 0,
    network_tx_errors: 0,
    disk_read_bytes: 0,
    disk_write_bytes: 0,
    disk_read_count: 0,
    disk_write_count: 0,
    processes_count: 1,
  },
  batch,
  exec,
  job,
  ready: { container_id, state, exec_ready, network_ready, checks },
  log: {
    seq: 1,
    timestamp: "2026-11-21T12:00:00.153Z",
    stream: "stdout" as const,
    level: "info" as const,
    message: "listening",
    partial: false,
  },
  process: {
    pid: 1,
    ppid: 0,
    command: "/dev/init container",
    state: "S",
    memory_kb: 124,
    started_at: running.created_at,
  },
};
