/**
 * All routes of the daemon in one table: what app.ts mounts, what the description of the API shows, and what the types
 * of the client are read from. A new concern is a line here.
 */
import { type FunctionRoutesOptions, functionRoutes } from "./functions/routes.ts";
import { openApiDocument } from "./http/openapi.ts";
import type { Route } from "./http/route.ts";
import { descriptionRoutes, type SystemRoutesOptions, systemRoutes } from "./system/routes.ts";
import { type TelemetryRoutesOptions, telemetryRoutes } from "./telemetry/routes.ts";
import { type TenantRoutesOptions, tenantRoutes } from "./tenants/routes.ts";

export interface ApiOptions {
  readonly system: SystemRoutesOptions;
  readonly functions: FunctionRoutesOptions;
  readonly tenants: TenantRoutesOptions;
  readonly telemetry: TelemetryRoutesOptions;
}

/** What the areas of the API stand for. */
const TAGS = {
  daemon: "The daemon itself, without a credential.",
  system: "What this daemon is.",
  functions: "Code that is called by name, in versions, on warm containers.",
  tenants: "Who owns what. The operator's.",
  "api-keys": "A tenant's own keys.",
  auth: "Short-lived tokens.",
};

export function apiRoutes({ system, functions, tenants, telemetry }: ApiOptions) {
  const all: { routes: readonly Route[] } = { routes: [] };
  const routes = [
    ...systemRoutes(system),
    ...descriptionRoutes(() =>
      openApiDocument(all.routes, {
        title: "hearth",
        version: system.version,
        description: "A function platform on one Linux machine. Times are epoch seconds, sizes say their unit.",
        tags: TAGS,
      }),
    ),
    ...functionRoutes(functions),
    ...tenantRoutes(tenants),
    ...telemetryRoutes(telemetry),
  ];
  all.routes = routes;
  return routes;
}

/** Every route with its types, for the client. */
export type Api = ReturnType<typeof apiRoutes>[number];
