/**
 * All routes of the daemon in one table: what app.ts mounts, what the description of the API shows, and what the types
 * of the client are read from. A new concern is a line here.
 */
import { type AuditRoutesOptions, auditRoutes } from "./audit/routes.ts";
import { type ContainerRoutesOptions, containerRoutes } from "./containers/routes.ts";
import { openApiDocument } from "./docs/openapi.ts";
import { type EventRoutesOptions, eventRoutes } from "./events/routes.ts";
import { type FunctionRoutesOptions, functionRoutes } from "./functions/routes.ts";
import { schemaRoutes } from "./functions/schema-routes.ts";
import { type GuiRoutesOptions, guiRoutes } from "./gui/routes.ts";
import type { Route } from "./http/route.ts";
import { type IccRoutesOptions, iccRoutes } from "./icc/routes.ts";
import { type NetworkRoutesOptions, networkRoutes } from "./networks/routes.ts";
import { type NightlyRoutesOptions, nightlyRoutes } from "./nightly/routes.ts";
import { type ImageRoutesOptions, imageRoutes } from "./oci/routes.ts";
import { type OperationRoutesOptions, operationRoutes } from "./operations/routes.ts";
import { type SecretRoutesOptions, secretRoutes } from "./secrets/routes.ts";
import { type ServiceRoutesOptions, serviceRoutes } from "./services/routes.ts";
import { type SnapshotRoutesOptions, snapshotRoutes } from "./snapshots/routes.ts";
import { descriptionRoutes, type SystemRoutesOptions, systemRoutes } from "./system/routes.ts";
import { type TelemetryRoutesOptions, telemetryRoutes } from "./telemetry/routes.ts";
import { type TenantRoutesOptions, tenantRoutes } from "./tenants/routes.ts";
import { type TerminalRoutesOptions, terminalRoutes } from "./terminal/routes.ts";
import { type UserRoutesOptions, userRoutes } from "./users/routes.ts";
import { type VolumeRoutesOptions, volumeRoutes } from "./volumes/routes.ts";

export interface ApiOptions {
  readonly system: SystemRoutesOptions;
  readonly functions: FunctionRoutesOptions;
  readonly containers: ContainerRoutesOptions;
  readonly networks: NetworkRoutesOptions;
  readonly volumes: VolumeRoutesOptions;
  readonly snapshots: SnapshotRoutesOptions;
  readonly oci: ImageRoutesOptions;
  readonly nightly: NightlyRoutesOptions;
  readonly secrets: SecretRoutesOptions;
  readonly services: ServiceRoutesOptions;
  readonly icc: IccRoutesOptions;
  readonly terminal: TerminalRoutesOptions;
  readonly gui: GuiRoutesOptions;
  readonly tenants: TenantRoutesOptions;
  readonly users: UserRoutesOptions;
  readonly telemetry: TelemetryRoutesOptions;
  readonly operations: OperationRoutesOptions;
  readonly events: EventRoutesOptions;
  readonly audit: AuditRoutesOptions;
}

/** What holds for all of it. Backquotes mark code. */
const DESCRIPTION = `hearth runs functions and containers on one Linux machine. A function is versioned code that runs in a warm container when it is called. A container is isolated, has its own files and address, and lives until it is deleted. \`GET /api/functions/help\` and \`GET /api/containers/help\` return guides for programs; \`…/examples\` returns scripts.

A request carries one credential: an API key or an access token, in \`X-Api-Key: <key>\` or \`Authorization: Bearer <key or token>\`. The scopes of a key are \`read\`, \`invoke\`, \`write\` and \`admin\`. A resource of another tenant returns 404, like a missing one.

Bodies are JSON whatever their content type, except on routes that accept raw bytes. The daemon rejects unknown fields with 422 and ignores unknown query parameters. \`null\` in an optional field means the same as its absence, unless the field says otherwise. Times are seconds since the Unix epoch; those of containers and their logs are ISO 8601 in UTC, and \`timestamp\` of an event is milliseconds. Names of sizes and durations contain their unit. Ids are opaque.

Every response has an \`X-Request-Id\`. Every refusal has an \`error_code\`. If \`retryable\` is true, the same request may succeed later; \`Retry-After\` says when.`;

/** Descriptions of the concerns of the API. */
const TAGS = {
  daemon: "The daemon: health, description and metrics.",
  system: "Version, engine and features of this daemon.",
  functions: "Versioned code that runs in warm containers when it is called.",
  containers: "Isolated processes with their own file system and address, which live until they are deleted.",
  networks: "Private networks, in which containers of a tenant reach each other.",
  dns: "Names of containers, which other containers of the tenant resolve.",
  oci: "OCI images, which containers are made of.",
  "build-contexts": "Files that builds of images copy from; they expire.",
  nightly: "Profiles: curated images with their releases and channels.",
  snapshots: "Copies of the files of containers and volumes at one moment.",
  volumes: "Files that containers mount and that outlive them.",
  secrets: "Encrypted values of the tenant for its functions; no response contains them.",
  icc: "Durable messages between containers: inboxes, queues, topics, dead letters.",
  services: "HTTP ports of containers behind URLs with a token, each on a host of its own.",
  terminal: "Interactive shells in containers.",
  tenant: "The tenant of the caller: its limits and its usage.",
  tenants: "Owners of functions, containers and volumes. Operator only.",
  operator: "Keys of the daemon. Operator only.",
  "api-keys": "API keys of the tenant.",
  auth: "Users, sign-in and short-lived access tokens.",
  users: "People who sign in with a password. Operator only.",
  operations: "Accepted work that runs in the background.",
  events: "Stream of changes of the tenant's resources.",
  network: "Addresses of the tenant's containers.",
  monitors: "How the daemon watches containers.",
  cleanup: "Removal of what containers leave on the machine.",
  activity: "The newest changes of the tenant's resources.",
  audit: "Log of changes and of refused requests, with their authors.",
};

export function apiRoutes(options: ApiOptions) {
  const { system, functions, containers, networks, volumes, snapshots, oci, secrets, terminal, tenants, gui } = options;
  const { users, telemetry, operations, events, audit } = options;
  const all: { routes: readonly Route[] } = { routes: [] };
  const copies = snapshotRoutes(snapshots);
  const published = serviceRoutes(options.services);
  const access = tenantRoutes(tenants);
  const desktops = guiRoutes(gui);
  const messages = iccRoutes(options.icc);
  const routes = [
    ...systemRoutes(system),
    ...descriptionRoutes(() =>
      openApiDocument(all.routes, {
        title: "hearth",
        version: system.version,
        description: DESCRIPTION,
        tags: TAGS,
      }),
    ),
    ...schemaRoutes(),
    ...functionRoutes(functions),
    ...containerRoutes(
      containers,
      [...copies, ...published, ...access, ...desktops, ...messages].filter(({ path }) =>
        path.startsWith("/api/containers/"),
      ),
    ),
    ...networkRoutes(networks),
    ...volumeRoutes(volumes),
    ...copies,
    ...imageRoutes(oci),
    ...nightlyRoutes(options.nightly),
    ...secretRoutes(secrets),
    ...published,
    ...messages,
    ...terminalRoutes(terminal),
    ...desktops,
    ...access,
    ...userRoutes(users),
    ...telemetryRoutes(telemetry),
    ...operationRoutes(operations),
    ...eventRoutes(events),
    ...auditRoutes(audit),
  ];
  all.routes = routes;
  return routes;
}

/** Every route with its types, for the client. */
export type Api = ReturnType<typeof apiRoutes>[number];
