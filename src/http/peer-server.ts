/**
 * An HTTP server without an address of its own: whoever accepts a connection hands it over with the peer that it is of. So a
 * request has the identity of its connection, whatever its headers say. Its bounds are those of every listener
 * (plain-server.ts); the number of connections is bounded by who accepts them.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import { invariant } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { makePlainServer, plainRefusal } from "./plain-server.ts";

export interface PeerServerOptions<Peer> {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** A connection on which no byte moves for so long is closed. */
  readonly idle_ms: number;
  handle(peer: Peer, incoming: IncomingMessage, outgoing: ServerResponse): void;
}

export interface PeerServer<Peer> {
  /** Serves a connection of a peer. */
  take(peer: Peer, socket: Socket): void;
  /** Returns the bytes of a response for a connection that is refused. */
  refusal(thrown: unknown): string;
  /** Ends all connections. */
  close(): void;
}

export function servePeers<Peer extends object>(options: PeerServerOptions<Peer>): PeerServer<Peer> {
  const { clock, ids, log, idle_ms, handle } = options;
  const peers = new WeakMap<Socket, Peer>();
  const { server, endAll } = makePlainServer({
    ...{ clock, ids, log, idle_ms },
    handle: (incoming, outgoing) => {
      const peer = peers.get(incoming.socket);
      invariant(peer !== undefined, "each connection has a peer");
      handle(peer, incoming, outgoing);
    },
    isUpgrade: () => false,
    open: (_incoming, socket) => socket.destroy(),
  });
  server.requestTimeout = LIMITS.request_timeout_ms;
  // Node checks the deadlines of headers and requests from this event on, which a server without an address lacks.
  server.emit("listening");
  return {
    take: (peer, socket) => {
      peers.set(socket, peer);
      server.emit("connection", socket);
    },
    refusal: (thrown) => {
      const { status, headers, body } = plainRefusal(thrown, ids, log);
      const all = { ...headers, connection: "close", "content-length": Buffer.byteLength(body) };
      const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
      return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`;
    },
    close: () => {
      // Ends the checks. There is no address to stop listening on.
      server.close(() => {});
      endAll();
    },
  };
}
