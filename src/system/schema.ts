/** What this daemon says of itself. */
import { z } from "zod";
import { epochSeconds } from "../http/schema.ts";

export const health = z.object({ status: z.literal("ok"), uptime_seconds: z.int().min(0) }).meta({ id: "Health" });

const engineInfo = z.object({
  oci_runtime: z.string(),
  oci_runtime_version: z.string(),
  cgroup_mode: z.enum(["v1", "hybrid", "v2"]),
  image: z.string(),
  image_release: z.string(),
  subnet: z.string(),
  gateway: z.string().describe("This machine's address as seen from inside of instances."),
  bridge: z.string(),
});

const named = z.record(z.string(), z.string());

export const systemInfo = z
  .object({
    version: z.string(),
    runtime: z.string().describe("Operating system and processor, like linux/amd64."),
    start_time: epochSeconds,
    node_id: z.string(),
    node_version: z.string(),
    engine: engineInfo,
    features: named.describe("What this daemon offers, with a word on each."),
    limits: named.describe("Every bound and default by its name, as text."),
  })
  .meta({ id: "SystemInfo" });

export const openApi = z.looseObject({
  openapi: z.string(),
  info: z.looseObject({}),
  paths: z.record(z.string(), z.unknown()),
});
