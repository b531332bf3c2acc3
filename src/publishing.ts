/** Composes the parts that publish services of containers: the concern and the listener that serves them. */
import { isIPv6 } from "node:net";
import { sleep } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { AppError, errorText } from "./base/errors.ts";
import { LIMITS } from "./base/limits.ts";
import type { Engine } from "./engine/ports.ts";
import { listenPlainly, noteAuthenticated, type PlainServer, plainRefusal } from "./http/plain-server.ts";
import type { Reachable } from "./http/server.ts";
import type { SecretsKeys } from "./secrets/keys.ts";
import { Secrets } from "./secrets/service.ts";
import type { SecretValues } from "./secrets/values.ts";
import { TenantConnections } from "./services/connections.ts";
import { Listeners } from "./services/listeners.ts";
import { ServiceProxy } from "./services/proxy.ts";
import { Directory, Origins } from "./services/published.ts";
import { SERVICE_KIND, Services, type ServicesOptions } from "./services/service.ts";
import { ServiceSockets } from "./services/sockets.ts";
import type { Metrics } from "./telemetry/metrics.ts";

const ANOTHER_PORT = "set HEARTH_SERVICES_LISTEN to an address with a free port, or to off";

type Parts = Omit<ServicesOptions, "liveOf" | "directory" | "secrets" | "values"> & {
  readonly config: Config;
  readonly engine: Engine;
  readonly secrets_keys: SecretsKeys;
  readonly service_values: SecretValues;
  readonly metrics: Metrics;
};

/**
 * Makes the concern. `listen` binds the listener, none where published services are off, and serves the services of the
 * store. It rejects if a setting names the listener and it cannot be bound, or connections to it arrive elsewhere. `close`
 * refuses new requests and waits for those in progress for a while; WebSockets end at once.
 */
export function makeServices(parts: Parts) {
  const { config, engine, clock, ids, log } = parts;
  const liveOf = (container_id: string) => engine.containers.live(container_id);
  const origins = new Origins(config.services ?? { port: 0, domain: null });
  const directory = new Directory(origins);
  const secrets = new Secrets({ ...parts, keys: parts.secrets_keys, kind: SERVICE_KIND });
  const services = new Services({ ...parts, secrets, values: parts.service_values, liveOf, directory });
  const connections = new TenantConnections();
  const proxy = new ServiceProxy({
    ...{ clock, directory, origins, liveOf, served: (status, code) => parts.metrics.services.served(status, code) },
    use: (container_id) => parts.containers.use(container_id),
    refusal: (thrown) => plainRefusal(thrown, ids, log),
    authenticated: (incoming, tenant_id) => {
      noteAuthenticated(incoming);
      return connections.note(incoming, tenant_id);
    },
  });
  const sockets = new ServiceSockets(proxy);

  let server: PlainServer | null = null;
  const endListener = () => {
    server?.stopAccepting();
    server?.close();
    server = null;
  };
  parts.metrics.services.read(() => ({ active_count: proxy.active_count, count: directory.count }));
  return {
    services,
    async listen(checkReached: (listener: Reachable) => Promise<void>): Promise<void> {
      if (config.services === null) return services.boot({ error: null });
      const { host, port, is_default } = config.services;
      try {
        server = await listenPlainly({
          ...{ host, port, clock, ids, log },
          connections_max: LIMITS.service_connections_max,
          idle_ms: LIMITS.service_idle_ms,
          handle: (incoming, outgoing, isExpecting) => proxy.handle(incoming, outgoing, isExpecting),
          isUpgrade: (incoming) => sockets.isUpgrade(incoming),
          open: (incoming, socket, head) => sockets.open(incoming, socket, head),
        });
        await checkReached(server);
      } catch (cause) {
        endListener();
        const error = errorText(cause);
        if (!is_default) throw new AppError("INTERNAL", `published services: ${error}`, { cause, hint: ANOTHER_PORT });
        log.warn("published services not served", { host, port, error, hint: ANOTHER_PORT });
        return services.boot({ error });
      }
      const { port: bound_port, take } = server;
      origins.port = bound_port;
      await services.boot({
        ...{ origins, listen: `${isIPv6(host) ? `[${host}]` : host}:${bound_port}` },
        listeners: new Listeners({ ids, host_tag: config.host_tag, take, port: () => bound_port }),
        forget: (id) => proxy.forget(id),
        look: () => proxy.look(),
        own_names: [host, config.listen_host],
      });
    },
    async close(): Promise<void> {
      proxy.close();
      services.close();
      server?.stopAccepting();
      sockets.close();
      const end_ms = clock.monotonicMs() + LIMITS.service_drain_ms;
      while (proxy.active_count > 0 && clock.monotonicMs() < end_ms) await sleep(clock, LIMITS.self_check_look_ms);
      server?.close();
    },
  };
}
