/** Shapes of published services: requests and records. */
import { z } from "zod";
import { PORT_MAX } from "../base/egress.ts";
import { HOSTNAME } from "../base/hostnames.ts";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, newName, nextCursor, whole } from "../base/schema.ts";
import { SERVICE_STATUSES } from "./states.ts";

const AUTH_MODES = ["service_token", "public"] as const;

const protocol = z.literal("http").describe("Protocol of the port in the container.");
const target_port = whole(1, PORT_MAX).describe("Port on which a process in the container listens.");
const enable_websockets = z.boolean().describe("Passes WebSockets on.");
const auth_mode = z
  .enum(AUTH_MODES)
  .describe(
    "service_token: requests need the token of public_url; public: every client that reaches the URL is served.",
  );
const hostname = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine((text) => text.length <= LIMITS.service_hostname_length_max && HOSTNAME.test(text), {
    error: "must be a DNS name of lower-case labels, such as app.example.com",
  })
  .meta({ type: "string" });

export const createService = z
  .object({
    name: newName.describe("Name, unique among the services of the container."),
    target_port,
    protocol: protocol.default("http"),
    enable_websockets: enable_websockets.default(false),
    auth_mode: auth_mode.default("service_token"),
    ttl_seconds: whole(1, LIMITS.container_seconds_max)
      .nullish()
      .describe("Seconds until the service expires (default: it ends with its container)."),
    hostname: hostname
      .nullish()
      .describe(
        "Host name of its own, which the operator has granted to the tenant (default: one that the daemon chooses).",
      ),
  })
  .meta({ id: "CreateService" });
export type CreateService = z.output<typeof createService>;

export const serviceRecord = z
  .object({
    service_id: z.string().describe("Id of the service."),
    container_id: z.string().describe("Container that it leads to."),
    tenant_id: z.string().describe("Tenant of the container."),
    name: z.string().describe("Name, unique among the services of the container."),
    protocol,
    target_port: z.int().describe("Port in the container."),
    enable_websockets,
    auth_mode,
    status: z
      .enum(SERVICE_STATUSES)
      .describe(
        "pending: nothing listens on the port yet; ready; unavailable: the container does not run; expired; error: see status_message.",
      ),
    status_message: z.string().nullable().describe("Cause of the status error; null otherwise."),
    hostname: z.string().nullable().describe("Host name of its own; null: one that the daemon chose."),
    public_url: z
      .string()
      .nullable()
      .describe(
        "URL of the service with its token in the query; append to its path, keep its query. Without the token for a key that has neither the scope invoke nor write. Null if the token is lost.",
      ),
    websocket_url: z.string().nullable().describe("The same for WebSockets; null without enable_websockets."),
    created_at: epochSeconds,
    rotated_at: epochSeconds.nullable().describe("Time of the last rotation of the token; null: never."),
    expires_at: epochSeconds.nullable().describe("Time of expiry; null: with its container."),
  })
  .meta({ id: "Service" });
export type ServiceRecord = Readonly<z.output<typeof serviceRecord>>;

export const serviceList = z
  .object({ services: z.array(serviceRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "ServiceList" });
