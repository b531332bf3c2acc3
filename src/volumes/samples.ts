/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import type { VolumeRecord } from "./schema.ts";

const volume: VolumeRecord = {
  id: "vol_h2m9qk4te7bc1v8x",
  name: "data",
  tenant_id: "default",
  driver: "local",
  mount_point: "/volumes/data",
  labels: {},
  options: {},
  quota_mb: null,
  status: "active",
  created_at: 1795262400,
  updated_at: 1795262400,
};

const handle = {
  success: true as const,
  operation_id: "op_7bq2m9vtx4c1h8ke",
  status_url: "/api/operations/op_7bq2m9vtx4c1h8ke",
};
const done = (message: string) => ({ success: true as const, message });

export const SAMPLES = {
  volume,
  handle,
  deleted: done("volume deleted"),
  removed: done("deleted /notes/a.txt"),
  content: { content: "aGVsbG8K", path: "/notes/a.txt", mode: 644 },
  written: { ...done("file written"), path: "/notes/a.txt" },
  renamed: { success: true as const, old_name: "data", new_name: "archive" },
};
