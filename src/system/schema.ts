/** What this daemon says of itself. */
import { z } from "zod";
import { epochSeconds } from "../base/schema.ts";
import { USERS_CHOICES } from "../base/settings.ts";

export const health = z
  .object({
    status: z.literal("ok").describe("Always the same: an unhealthy daemon does not respond."),
    uptime_seconds: z.int().min(0).describe("Whole seconds since the start of the daemon."),
    users: z
      .enum(USERS_CHOICES)
      .describe("on: people register and sign in with a password; login: they only sign in; off: API keys alone."),
  })
  .meta({ id: "Health" });
export type Health = Readonly<z.output<typeof health>>;

const engineInfo = z.object({
  oci_runtime: z.string().describe("Program that starts containers."),
  oci_runtime_version: z.string().describe("Version of that program."),
  cgroup_mode: z.enum(["v1", "hybrid", "v2"]).describe("Control group layout of this machine."),
  image: z.string().describe("Image profile of instances."),
  image_release: z.string().describe("Release of that image."),
  subnet: z.string().describe("Network of the instance addresses."),
  gateway: z.string().describe("Address of this machine inside instances."),
  bridge: z.string().describe("Network interface of that network."),
  user_namespaces: z
    .object({
      mode: z
        .enum(["on", "off", "unknown"])
        .describe(
          "on: root in a container has no rights on this machine. off: it is root of this machine, restricted by filter, capabilities and namespaces.",
        ),
      reason: z.string().nullable().describe("Reason if user namespaces are off."),
    })
    .describe("User namespaces of API containers."),
  budgets: z
    .array(
      z.object({
        name: z.string().describe("Kernel resource."),
        is_bounded: z.boolean().describe("True if each container has its own bound."),
        note: z.string().describe("The bound, or the reason for its absence."),
      }),
    )
    .readonly()
    .describe("Resources of this machine's kernel that all containers share."),
});

const gpu = z.object({
  gpu_id: z.string().describe("Id for gpu_ids."),
  device: z.string().describe("Name in the CDI files: <vendor>/<class>=<name>."),
  aliases: z.array(z.string()).readonly().describe("Further names of the same GPU in the CDI files."),
  vendor: z.string().describe("Vendor, such as nvidia.com."),
  is_held: z.boolean().describe("True while a container or an instance holds it."),
  tenant_id: z.string().nullable().describe("Tenant that holds it; null if it is free."),
  holder_id: z.string().nullable().describe("Container or instance that holds it; null if it is free."),
});

const publishedServices = z.object({
  mode: z
    .enum(["on", "off", "unavailable"])
    .describe("off: by the setting HEARTH_SERVICES_LISTEN. unavailable: the default port was taken at the start."),
  listen: z.string().nullable().describe("Address and port; null if nothing listens."),
  reason: z.string().nullable().describe("Reason if published services are unavailable."),
});

const messages = z.object({
  backend: z
    .enum(["embedded", "jetstream"])
    .describe("embedded: the store keeps messages. jetstream: NATS servers keep them, by the setting HEARTH_NATS_URL."),
  is_ready: z.boolean().describe("False while the NATS servers do not answer; GET /api/icc/health has the reason."),
});

const named = z.record(z.string(), z.string());

export const systemInfo = z
  .object({
    version: z.string().describe("Version of hearth."),
    runtime: z.string().describe("Operating system and processor, like linux/amd64."),
    start_time: epochSeconds,
    node_id: z.string().describe("Id of this node, created at the first start."),
    node_version: z.string().describe("Version of Node.js."),
    engine: engineInfo.describe("Container engine of this node."),
    gpu_count: z.int().describe("Number of GPUs of this node."),
    gpu_free_count: z.int().describe("Number of GPUs that nothing holds."),
    gpus: z.array(gpu).readonly().describe("GPUs of this node for the operator; for a tenant those that it holds."),
    gpu_warnings: z
      .array(z.string())
      .readonly()
      .describe("Faults of the CDI files that describe the GPUs; always empty for a tenant."),
    published_services: publishedServices.describe("Listener of published services."),
    messages: messages.describe("Messages between containers."),
    features: named.describe("Features of this daemon, each with a note."),
    limits: named.describe("Limits and defaults by name, as text."),
  })
  .meta({ id: "SystemInfo" });
export type SystemInfo = Readonly<z.output<typeof systemInfo>>;

export const openApi = z.looseObject({
  openapi: z.string().describe("3.1.0."),
  info: z.looseObject({}).describe("Title, version, description."),
  paths: z.record(z.string(), z.unknown()).describe("The operations by path and method."),
});

/** What this daemon offers. */
export const FEATURES = {
  functions: "shell, nodejs, python3 and custom handlers in warm containers",
  code: "archives of files, mounted read-only at /function",
  secrets: "encrypted at rest, as variables and files",
  versions: "rollback to warm instances",
  deployments: "several functions, all or none",
  api_access: "handlers may call the API",
  containers: "with files, addresses, logs, terminals and published ports",
  gpus: "described by CDI files, each held by one container or instance at a time",
  messages: "durable, between containers and to functions: see messages.backend",
  volumes: "with quotas, files and archives",
  user_namespaces: "of containers, if this machine supports them: see engine.user_namespaces",
  adoption: "instances and containers survive daemon restarts",
  tenants: "keys with scopes, access tokens, limits",
  openapi: "/api/openapi.json",
};
