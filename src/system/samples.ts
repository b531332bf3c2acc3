/** Answers of a daemon, as the description of the API shows them. */
import type { z } from "zod";
import { FEATURES, type systemInfo } from "./schema.ts";

const info: z.output<typeof systemInfo> = {
  version: "0.1.0",
  runtime: "linux/amd64",
  start_time: 1795250207,
  node_id: "node_kazrx9hwtznykwp7",
  node_version: "24.21.0",
  engine: {
    oci_runtime: "crun",
    oci_runtime_version: "crun version 1.8.1",
    cgroup_mode: "hybrid",
    image: "localhost/hearth/prod:0e40e259648c",
    image_release: "0e40e259648c",
    subnet: "10.42.0.0/16",
    gateway: "10.42.0.1",
    bridge: "hearth0",
    user_namespaces: { mode: "on", reason: null },
    budgets: [{ name: "terminals", is_bounded: true, note: "64 for each container" }],
  },
  gpu_count: 0,
  gpu_free_count: 0,
  gpus: [],
  gpu_warnings: [],
  published_services: { mode: "on", listen: "127.0.0.1:8701", reason: null },
  messages: { backend: "embedded", is_ready: true },
  features: FEATURES,
  limits: { body_bytes_max: "8388608", list_limit_max: "1000", drain_ms: "20000" },
};

export const SAMPLES = { info };
