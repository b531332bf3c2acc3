/** Composes the sockets inside of containers: the listeners, the HTTP server behind them, and the messages that it serves. */
import { type Clock, sleep } from "./base/clock.ts";
import type { Ids } from "./base/ids.ts";
import { LIMITS } from "./base/limits.ts";
import type { Log } from "./base/log.ts";
import type { Traces } from "./base/trace.ts";
import type { ContainerSocket, Containers } from "./engine/ports.ts";
import { servePeers } from "./http/peer-server.ts";
import { plainRefusal } from "./http/plain-server.ts";
import type { RateLimiter } from "./http/rates.ts";
import type { Inside } from "./icc/inside/inside.ts";
import { ContainerListeners } from "./icc/inside/listener.ts";
import { InsideServer } from "./icc/inside/routes.ts";

interface Parts {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly rates: RateLimiter;
  readonly traces: Traces;
  readonly inside: Inside;
}

/**
 * Makes the server. `begin` listens in each container, in those of an earlier process too. `close` ends polls and streams at
 * once, waits for requests in progress for a while, and closes all sockets.
 */
export function makeInside({ clock, ids, log, rates, traces, inside }: Parts) {
  const refusal = (thrown: unknown) => plainRefusal(thrown, ids, log);
  const server = new InsideServer({ inside, clock, log, rates, traces, refusal });
  const peers = servePeers<ContainerSocket>({
    ...{ clock, ids, log, idle_ms: LIMITS.icc_socket_idle_ms },
    handle: (container, incoming, outgoing) => void server.handle(container, incoming, outgoing),
  });
  const listeners = new ContainerListeners({ clock, log, take: peers.take, refusal: peers.refusal });
  return {
    server,
    listeners,
    begin: (containers: Containers): void => containers.serveSockets(listeners),
    async close(): Promise<void> {
      listeners.stopAccepting();
      server.end();
      const end_ms = clock.monotonicMs() + LIMITS.icc_socket_drain_ms;
      while (server.active_count > 0 && clock.monotonicMs() < end_ms) await sleep(clock, LIMITS.self_check_look_ms);
      listeners.closeAll();
      peers.close();
    },
  };
}
