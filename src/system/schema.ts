/** What this daemon says of itself. */
import { z } from "zod";
import { epochSeconds } from "../base/schema.ts";

export const health = z
  .object({
    status: z.literal("ok").describe("Always the same: a daemon that is not well does not answer."),
    uptime_seconds: z.int().min(0).describe("Whole seconds since its start."),
  })
  .meta({ id: "Health" });

const engineInfo = z.object({
  oci_runtime: z.string().describe("The program that starts containers."),
  oci_runtime_version: z.string().describe("Its version."),
  cgroup_mode: z.enum(["v1", "hybrid", "v2"]).describe("Layout of this machine's control groups."),
  image: z.string().describe("The profile that instances are made from."),
  image_release: z.string().describe("Build of the image."),
  subnet: z.string().describe("Network of the instances' addresses."),
  gateway: z.string().describe("This machine's address as seen from inside of instances."),
  bridge: z.string().describe("The network interface that leads to them."),
  user_namespaces: z
    .object({
      mode: z
        .enum(["on", "off", "unknown"])
        .describe(
          "on: root in a container has no rights on this machine. off: it is root of this machine, restricted by filter, capabilities and namespaces.",
        ),
      reason: z.string().nullable().describe("Why there are none."),
    })
    .describe("Of API containers."),
  budgets: z
    .array(
      z.object({
        name: z.string().describe("The resource."),
        is_bounded: z.boolean().describe("True if each container has a bound of its own."),
        note: z.string().describe("The bound, or the reason for its absence."),
      }),
    )
    .readonly()
    .describe("Resources of this machine's kernel that all containers share."),
});

const named = z.record(z.string(), z.string());

export const systemInfo = z
  .object({
    version: z.string().describe("Of hearth."),
    runtime: z.string().describe("Operating system and processor, like linux/amd64."),
    start_time: epochSeconds,
    node_id: z.string().describe("Of this machine, made at its first start."),
    node_version: z.string().describe("Of Node."),
    engine: engineInfo.describe("Container engine of this node."),
    features: named.describe("Features of this daemon, each with a short note."),
    limits: named.describe("Every bound and default by its name, as text."),
  })
  .meta({ id: "SystemInfo" });

export const openApi = z.looseObject({
  openapi: z.string().describe("3.1.0."),
  info: z.looseObject({}).describe("Title, version, description."),
  paths: z.record(z.string(), z.unknown()).describe("The operations by path and method."),
});

/** What this daemon offers. */
export const FEATURES = {
  functions: "shell handlers in warm containers",
  versions: "rollback to warm instances",
  api_access: "handlers call the API",
  containers: "with files, addresses, logs, terminals, published ports",
  volumes: "with quotas, files and archives",
  user_namespaces: "of containers, if this machine supports them: see engine.user_namespaces",
  adoption: "instances and containers outlive the daemon",
  tenants: "keys with scopes, access tokens, limits",
  openapi: "/api/openapi.json",
};
