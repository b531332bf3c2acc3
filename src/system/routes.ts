/** Liveness and what this daemon is: the only routes that need no concern. */
import type { EpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import type { EngineInfo } from "../engine/engine.ts";
import { type Route, route } from "../http/route.ts";

export interface SystemRoutesOptions {
  readonly version: string;
  readonly node_id: string;
  readonly started_at: EpochSeconds;
  readonly uptime_seconds: () => number;
  readonly engine: () => EngineInfo;
  /** Names of what this daemon offers, with a word on each. */
  readonly features: Readonly<Record<string, string>>;
}

export function systemRoutes(options: SystemRoutesOptions): Route[] {
  const limits = Object.fromEntries(Object.entries(LIMITS).map(([name, value]) => [name, String(value)]));
  return [
    route({
      method: "GET",
      path: "/health",
      auth: "public",
      summary: "Liveness of the daemon; says nothing about its subsystems.",
      handler: () => ({ status: "ok", uptime_seconds: Math.floor(options.uptime_seconds()) }),
    }),
    route({
      method: "GET",
      path: "/api/system/info",
      auth: "tenant",
      summary: "Version, machine, engine, features and limits.",
      handler: () => ({
        version: options.version,
        runtime: `linux/${process.arch === "x64" ? "amd64" : process.arch}`,
        start_time: options.started_at,
        node_id: options.node_id,
        node_version: process.versions.node,
        engine: options.engine(),
        features: options.features,
        limits,
      }),
    }),
  ];
}
