/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import type { OperationRecord } from "../operations/schema.ts";
import type { ScheduleRecord, SnapshotDetail, SnapshotRecord } from "./schema.ts";

const snapshot: SnapshotRecord = {
  snapshot_id: "snp_7d2k9f0qv4xw8m1t",
  id: "snp_7d2k9f0qv4xw8m1t",
  tenant_id: "default",
  kind: "container",
  name: null,
  state: "ready",
  source_container_id: "ctr_c1v8hx2m9qk4te7b",
  source_container_name: "box",
  container_id: "ctr_c1v8hx2m9qk4te7b",
  source_volume: null,
  parent_snapshot_id: null,
  consistency_mode: "crash-consistent",
  network_mode: "reset",
  volume_mode: "exclude",
  volumes: [],
  image: "localhost/hearth-prod:latest",
  created_at: 1795262400,
  ttl_seconds: null,
  expires_at: null,
  labels: {},
  pinned: false,
  size_bytes: 16_384,
  metadata: { pause_ms: 4.2, memory: false, hooks: { pre: null, post: null } },
  warnings: [],
  capability_downgrades: [],
};

const detail: SnapshotDetail = { ...snapshot, exclusive_bytes: 0, shared_bytes: 16_384 };

const handle = {
  success: true as const,
  operation_id: "op_7bq2m9vtx4c1h8ke",
  status_url: "/api/operations/op_7bq2m9vtx4c1h8ke",
};
const source = { source_container_id: "ctr_c1v8hx2m9qk4te7b", source_container_name: "box" };
const copy = { container_id: "ctr_2h8xq0w5n7vb3kze", container_ids: ["ctr_2h8xq0w5n7vb3kze"] };
const operation: OperationRecord = {
  operation_id: handle.operation_id,
  operation_type: "container.fork",
  status: "succeeded",
  target_resource_type: "container",
  target_resource_id: "ctr_c1v8hx2m9qk4te7b",
  progress_pct: 100,
  message: "container forked",
  result: { container_id: "ctr_2h8xq0w5n7vb3kze" },
  items: null,
  error: null,
  reason_code: null,
  reason_message: null,
  warnings: [],
  capability_downgrades: [],
  container_id: "ctr_c1v8hx2m9qk4te7b",
  snapshot_id: null,
  result_container_id: "ctr_2h8xq0w5n7vb3kze",
  status_url: handle.status_url,
  created_at: 1795262400,
  started_at: 1795262400,
  updated_at: 1795262400,
  completed_at: 1795262400,
};
const done = (message: string) => ({ success: true as const, message });

const schedule: ScheduleRecord = {
  source_kind: "container",
  source_id: "ctr_c1v8hx2m9qk4te7b",
  every_seconds: 3_600,
  keep: 24,
  consistency_mode: "crash-consistent",
  volume_mode: "exclude",
  labels: {},
  created_at: 1795262400,
  due_at: 1795266000,
  last_snapshot_id: null,
  last_error: null,
};

export const SAMPLES = {
  schedule,
  volume_schedule: { ...schedule, source_kind: "volume" as const, source_id: "vol_h2m9qk4te7bc1v8x" },
  operation,
  snapshot,
  detail,
  handle,
  accepted: { ...handle, snapshot_id: snapshot.id, ...source },
  accepted_volume: { ...handle, snapshot_id: snapshot.id, source_container_id: null, source_container_name: null },
  cloned: { ...handle, ...copy, snapshot_id: snapshot.id, ...source },
  forked: { ...handle, ...copy, snapshot_id: null, ...source },
  dry_run: { success: true as const, dry_run: true as const, warnings: [], capability_downgrades: [] },
  lineage: {
    snapshot_id: snapshot.id,
    nodes: [
      {
        snapshot_id: snapshot.id,
        parent_snapshot_id: null,
        container_id: "ctr_c1v8hx2m9qk4te7b",
        name: null,
        created_at: 1795262400,
        depth: 0,
      },
    ],
    containers: [
      {
        container_id: "ctr_c1v8hx2m9qk4te7b",
        name: "box",
        state: "running" as const,
        snapshot_id: snapshot.id,
        kind: "source" as const,
        parent_container_id: null,
      },
    ],
    is_truncated: false,
  },
  changes: {
    changes: [
      { path: "/root/a", change: "changed" as const, type: "file" as const, size_bytes: 4, renamed_from: null },
    ],
    added_count: 0,
    changed_count: 1,
    deleted_count: 0,
    is_truncated: false,
  },
  pinned: { ...done("snapshot pinned"), snapshot_id: snapshot.id, pinned: true },
  unpinned: { ...done("snapshot unpinned"), snapshot_id: snapshot.id, pinned: false },
  deleted: done("snapshot deleted"),
};
