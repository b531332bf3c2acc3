/** Liveness, what this daemon is, and the description of its API: the routes that need no concern. */
import type { Caller } from "../base/caller.ts";
import type { EpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import { type DocsPage, docsPage } from "../docs/docs-page.ts";
import type { ApiDocument } from "../docs/openapi-document.ts";
import type { EngineInfo, GpuStates } from "../engine/ports.ts";
import { route } from "../http/route.ts";
import { SAMPLES } from "./samples.ts";
import { FEATURES, type Health, health, openApi, type SystemInfo, systemInfo } from "./schema.ts";

export interface SystemRoutesOptions {
  readonly version: string;
  /** Of the setting HEARTH_USERS. */
  readonly users: Health["users"];
  readonly node_id: string;
  readonly started_at: EpochSeconds;
  readonly uptime_seconds: () => number;
  /** Waits until it is known whether containers have user namespaces. */
  readonly engine: () => Promise<EngineInfo>;
  readonly gpus: () => Promise<GpuStates>;
  readonly services: () => SystemInfo["published_services"];
  readonly messages: () => SystemInfo["messages"];
}

export function systemRoutes(options: SystemRoutesOptions) {
  const limits = Object.fromEntries(Object.entries(LIMITS).map(([name, value]) => [name, String(value)]));
  return [
    route({
      method: "GET",
      path: "/health",
      auth: "public",
      operation: "health",
      response: health,
      summary: "Reports that the daemon is alive; says nothing about its subsystems.",
      example: { response: { status: "ok", uptime_seconds: 86_400, users: "off" } },
      handler: () => ({
        status: "ok" as const,
        uptime_seconds: Math.floor(options.uptime_seconds()),
        users: options.users,
      }),
    }),
    route({
      method: "GET",
      path: "/api/system/info",
      auth: "tenant",
      scope: "read",
      operation: "systemInfo",
      response: systemInfo,
      summary: "Returns version, machine, engine, features and limits.",
      example: { response: SAMPLES.info },
      handler: async ({ caller }) => ({
        version: options.version,
        runtime: `linux/${process.arch === "x64" ? "amd64" : process.arch}`,
        start_time: options.started_at,
        node_id: options.node_id,
        node_version: process.versions.node,
        engine: await options.engine(),
        ...gpusFor(caller, await options.gpus()),
        published_services: options.services(),
        messages: options.messages(),
        features: FEATURES,
        limits,
      }),
    }),
  ];
}

/** The operator sees all GPUs; a tenant sees how many there are, and its own. */
function gpusFor({ is_operator, tenant_id }: Caller, { gpus, warnings }: GpuStates) {
  const visible = gpus.filter(({ holder }) => is_operator || holder?.tenant_id === tenant_id);
  return {
    gpu_count: gpus.length,
    gpu_free_count: gpus.filter(({ holder }) => holder === null).length,
    gpus: visible.map(({ holder, ...gpu }) => ({
      ...gpu,
      is_held: holder !== null,
      tenant_id: holder?.tenant_id ?? null,
      holder_id: holder?.id ?? null,
    })),
    gpu_warnings: is_operator ? warnings : [],
  };
}

/** The description of the API, for programs and for people. Each is made once, when it is first asked for. */
export function descriptionRoutes(describe: () => ApiDocument) {
  const made: { document: ApiDocument | null; page: DocsPage | null } = { document: null, page: null };
  const document = (): ApiDocument => {
    made.document ??= describe();
    return made.document;
  };
  return [
    route({
      method: "GET",
      path: "/api/openapi.json",
      auth: "public",
      operation: "openapi",
      summary: "Returns this API description as OpenAPI 3.1.",
      response: openApi,
      errors: ["CAPACITY_FULL"],
      handler: document,
    }),
    route({
      method: "GET",
      path: "/api/docs",
      auth: "public",
      operation: "docs",
      summary: "Returns the documentation as an HTML page.",
      content: ["text/html"],
      errors: ["CAPACITY_FULL"],
      handler: () => {
        made.page ??= docsPage(document());
        return new Response(made.page.html, { headers: made.page.headers });
      },
    }),
  ];
}
