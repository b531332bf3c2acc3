/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import type { ServiceRecord } from "./schema.ts";

const service: ServiceRecord = {
  service_id: "svc_q9m2hx4k7tb1c8ve",
  container_id: "ctr_c1v8hx2m9qk4te7b",
  tenant_id: "default",
  name: "web",
  protocol: "http",
  target_port: 8_080,
  enable_websockets: false,
  auth_mode: "service_token",
  status: "ready",
  status_message: null,
  hostname: null,
  public_url: "http://127.83.201.14:8701/?service_token=hst_q3Yw0d1uW8p2bCxJ5sKfT7nZrLhVgEo4iAyM6tUcPQk",
  websocket_url: null,
  created_at: 1_795_262_400,
  rotated_at: null,
  expires_at: null,
};

export const SAMPLES = { service };
