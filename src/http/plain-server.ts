/**
 * A listener without routes: for content that is not the daemon's own, such as that of published services. It has the bounds
 * of every listener (server.ts, connections.ts), and knows nothing about the content.
 *
 * S1. Connections that another socket of this process accepted may be handed over: the same bounds hold for them.
 * S2. `close` ends all connections, also those that were handed over.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import { ERRORS } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { boundChunks } from "./chunk-bounds.ts";
import { authenticated, Connections } from "./connections.ts";
import { errorBody, errorResponse } from "./errors.ts";
import { answerMalformed, refuseExpectations } from "./malformed-requests.ts";
import { firstUnreached } from "./self-check.ts";
import { BACKLOG, bind, type Reachable, unlessCrowded } from "./server.ts";

export interface PlainHandlers {
  /** `isExpecting`: the client waits for 100 Continue. */
  handle(incoming: IncomingMessage, outgoing: ServerResponse, isExpecting: boolean): void;
  /** True if the connection of a request is taken over by `open`. */
  isUpgrade(incoming: IncomingMessage): boolean;
  open(incoming: IncomingMessage, socket: Socket, head: Buffer): void;
}

interface ServerParts extends PlainHandlers {
  /** A connection on which no byte moves for so long is closed. */
  readonly idle_ms: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export interface PlainServerOptions extends ServerParts {
  readonly host: string;
  readonly port: number;
  readonly connections_max: number;
}

export interface PlainServer extends Reachable {
  /** Serves a connection that another socket accepted (S1). */
  take(socket: Socket): void;
  /** Stops accepting. Connections stay. */
  stopAccepting(): void;
  /** Ends all connections (S2). */
  close(): void;
}

/** A refusal as a body with its headers, for a response without routes. */
export function plainRefusal(thrown: unknown, ids: Ids, log: Log) {
  const request_id = ids.next("req");
  const body = errorBody(thrown, request_id);
  const { headers } = errorResponse(thrown, request_id, log);
  // It would ask for a key of the daemon.
  headers.delete("www-authenticate");
  return { status: ERRORS[body.error_code].status, headers: Object.fromEntries(headers), body: JSON.stringify(body) };
}

/** Notes that the connection of a request may stay at the bound of connections. */
export function noteAuthenticated({ socket }: IncomingMessage): void {
  authenticated(socket);
}

/** An HTTP server that accepts nothing yet, and its open connections. */
export function makePlainServer({ clock, ids, log, handle, isUpgrade, open, idle_ms }: ServerParts) {
  const listener = (isExpecting: boolean) =>
    unlessCrowded((incoming, outgoing) => {
      boundChunks(incoming, clock);
      handle(incoming, outgoing, isExpecting);
    });
  const server: Server = createServer(
    {
      maxHeaderSize: LIMITS.header_bytes_max,
      headersTimeout: LIMITS.headers_timeout_ms,
      // An upload may take long, as long as its bytes move.
      requestTimeout: 0,
      keepAliveTimeout: LIMITS.connection_idle_ms,
      connectionsCheckingInterval: LIMITS.connection_check_ms,
      shouldUpgradeCallback: isUpgrade,
    },
    listener(false),
  );
  server.on("checkContinue", listener(true));
  server.on("upgrade", (incoming, socket, head) => open(incoming, socket as Socket, head));
  server.timeout = idle_ms;
  const failed = (thrown: unknown): Response => {
    const { status, headers, body } = plainRefusal(thrown, ids, log);
    return new Response(body, { status, headers });
  };
  answerMalformed(server, failed);
  refuseExpectations(server, failed);
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  const endAll = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return { server, endAll };
}

/** Throws INTERNAL with the address and the reason when it cannot be bound. */
export async function listenPlainly(options: PlainServerOptions): Promise<PlainServer> {
  const { host, port, clock, connections_max } = options;
  const { server, endAll } = makePlainServer(options);
  // It keeps itself up to date with the server's connections.
  new Connections(server, { connections_max });
  server.maxConnections = connections_max + BACKLOG;
  await bind(server, host, port);
  const { port: bound_port } = server.address() as AddressInfo;
  return {
    port: bound_port,
    take: (socket) => server.emit("connection", socket),
    unreached: () => firstUnreached(server, host, bound_port, clock),
    stopAccepting: () => void server.close(),
    close: endAll,
  };
}
