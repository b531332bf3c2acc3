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
      summary:
        "Returns metrics in the Prometheus text format: series of the tenant's functions; for the operator, of all tenants and the node.",
      content: ["text/plain"],
      handler: async ({ caller }) => {
        const registries = metrics.registries(caller.is_operator ? null : caller.tenant_id);
        const texts = await Promise.all(registries.map((registry) => registry.metrics()));
        const text = texts.join("\n");
        // By its length it counts among what answers hold: a thousand functions make half a megabyte.
        const length = String(Buffer.byteLength(text));
        return new Response(text, {
          headers: { "content-type": Registry.PROMETHEUS_CONTENT_TYPE, "content-length": length },
        });
      },
    }),
  ];
}
