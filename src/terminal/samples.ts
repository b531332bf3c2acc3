/** Answers of a daemon to the examples of the routes, as the description of the API shows them. */
import type { SessionRecord } from "./schema.ts";

const session: SessionRecord = {
  id: "sess_3fa85f64c1d2",
  session_id: "sess_3fa85f64c1d2",
  tenant_id: "default",
  target: "container",
  container_id: "ctr_c1v8hx2m9qk4te7b",
  child_container_id: "ctr_c1v8hx2m9qk4te7b",
  state: "ready",
  shell: "/bin/bash",
  is_shell: true,
  cols: 80,
  rows: 24,
  pid: 12,
  attach_url: "/ws/terminal/attach?session_id=sess_3fa85f64c1d2",
  created_at: 1795262401,
  last_activity_at: 1795262401,
  expires_at: 1795276801,
  exit_code: null,
  signal: null,
  error_code: null,
  error_message: null,
  retry_count: 0,
};

export const SAMPLES = { session };
