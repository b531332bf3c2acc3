/** The metrics as Prometheus reads them. */
import { Registry } from "prom-client";
import { route } from "../http/route.ts";
import type { Metrics } from "./metrics.ts";

export interface TelemetryRoutesOptions {
  readonly metrics: Metrics;
}

export function telemetryRoutes({ metrics }: TelemetryRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/metrics",
      auth: "tenant",
      scope: "read",
      operation: "readMetrics",
      summary: "The node's metrics in Prometheus' text format, with the series of the caller's own functions.",
      content: ["text/plain"],
      handler: async ({ caller, request_id }) => {
        const registries = metrics.registries(caller.is_operator ? null : caller.tenant_id);
        const texts = await Promise.all(registries.map((registry) => registry.metrics()));
        return new Response(texts.join("\n"), {
          headers: { "content-type": Registry.PROMETHEUS_CONTENT_TYPE, "x-request-id": request_id },
        });
      },
    }),
  ];
}
