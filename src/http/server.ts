/**
 * The table of routes and the listening socket: which route a path means, timeouts and bounds of connections, and the
 * orderly end. What happens inside a request is serve.ts's. A daemon may listen at several places; each is an `App` of
 * its own, with the same routes and the credentials that are good there.
 *
 * M0. A request target with dot segments is refused before all of this (target.ts).
 * M1. Literal path segments are matched before parameters, in whatever order concerns mount.
 * M2. A known path with another method is 405 with `Allow`, any other path 404, both without looking at a credential.
 * L1. After `close` has begun no connection is accepted, every answer says `Connection: close`, connections end as
 *     connections.ts says, and at the deadline the rest is cut: `close` always resolves.
 * L2. The number of connections has a bound; connections.ts decides which of them stay.
 * L3. At most `pipelined_requests_max` requests of a connection wait behind the one that is answered: Node hands out all
 *     that came in one packet at the same time. A connection with more is closed.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { getRequestListener, type HttpBindings } from "@hono/node-server";
import { Hono } from "hono";
import type { Clock } from "../base/clock.ts";
import { AppError, errorText, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { boundChunks } from "./chunk-bounds.ts";
import { type ConnectionLimits, Connections, DrainingResponse, type TenantOfAddress } from "./connections.ts";
import { answerOrigin } from "./cors.ts";
import { answerMalformed, refuseExpectations } from "./malformed-requests.ts";
import { MemoryBudget } from "./memory-budget.ts";
import type { Route } from "./route.ts";
import { firstUnreached, type Unreached } from "./self-check.ts";
import { type AppDeps, type Env, serve } from "./serve.ts";
import { checkTarget } from "./target.ts";
import { refuse, refuseUnserved } from "./unserved.ts";
import { asksUpgrade, type SocketLimits, Sockets, serveUpgrades } from "./websocket.ts";

export interface App {
  /** The hono application, for `listen`. */
  readonly hono: Hono<Env>;
  /** All mounted routes, in the order in which they are matched. */
  readonly routes: readonly Route[];
  /** What requests have become. */
  readonly sockets: Sockets;
  /** Called once per concern, before `listen`. */
  mount(routes: readonly Route[]): void;
  /** Origins of pages in browsers that may read answers (cors.ts). */
  readonly cors_origins: ReadonlySet<string>;
  /** The error body for what is thrown before there is a request; with `incoming` it is told as that request's. */
  failed(thrown: unknown, incoming?: IncomingMessage): Response;
}

type AppOptions = Omit<AppDeps, "budget" | "sockets"> & {
  /** May be given to watch it; each application has one of its own. */
  readonly budget?: MemoryBudget;
  readonly socket_limits?: Partial<SocketLimits>;
  /** None unless given. */
  readonly cors_origins?: ReadonlySet<string>;
};

const NO_ORIGINS: ReadonlySet<string> = new Set();

export function createApp({
  budget = new MemoryBudget(),
  socket_limits,
  cors_origins = NO_ORIGINS,
  ...rest
}: AppOptions): App {
  const sockets = new Sockets({ clock: rest.clock, ...(socket_limits && { limits: socket_limits }) });
  const deps: AppDeps = { ...rest, budget, sockets };
  const routes: Route[] = [];
  const hono = new Hono<Env>();
  const failed = (thrown: unknown, incoming?: IncomingMessage): Response =>
    refuseUnserved(thrown, incoming?.headers ?? {}, incoming?.method ?? "-", deps);

  hono.notFound((c) => refuse(c, allowedMethods(routes, c.req.path), cors_origins.size > 0, deps));
  hono.onError((thrown) => failed(thrown));
  return {
    hono,
    routes,
    sockets,
    cors_origins,
    failed,
    mount(added) {
      const ordered = [...added].sort((a, b) => comparePaths(a.path, b.path));
      for (const route of ordered) {
        const other = routes.find(({ method, path }) => method === route.method && matches(path, route.path));
        invariant(other === undefined, `${route.method} ${route.path} is never reached behind ${other?.path}`);
        routes.push(route);
        hono.on(route.method, route.path.replace(/\*$/, ":path{.+}"), (c) => serve(c, route, deps));
      }
    },
  };
}

const isParameter = (segment: string): boolean => segment.startsWith(":") || segment === "*";

/** Literal segments first, at the first place where two paths differ in kind (M1). */
export function comparePaths(a: string, b: string): number {
  const [left, right] = [a.split("/"), b.split("/")];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const [is_left, is_right] = [isParameter(left[i] ?? ""), isParameter(right[i] ?? "")];
    if (is_left !== is_right) return is_left ? 1 : -1;
  }
  return 0;
}

/** Whether `pattern` matches a path, or takes every request of another pattern. */
export function matches(pattern: string, path: string): boolean {
  const [wanted, found] = [pattern.split("/"), path.split("/")];
  for (const [i, segment] of wanted.entries()) {
    if (segment === "*") return found.slice(i).join("/") !== "";
    const is_match = segment.startsWith(":") ? (found[i] ?? "") !== "" : segment === found[i];
    if (!is_match) return false;
  }
  return wanted.length === found.length;
}

function allowedMethods(routes: readonly Route[], path: string): string[] {
  const allowed = new Set<string>();
  for (const route of routes) if (matches(route.path, path)) allowed.add(route.method);
  // Hono answers HEAD from the GET route.
  if (allowed.has("GET")) allowed.add("HEAD");
  return [...allowed].sort();
}

export interface ServerLimits extends ConnectionLimits {
  readonly header_bytes_max: number;
  readonly headers_timeout_ms: number;
  readonly request_timeout_ms: number;
  readonly connection_idle_ms: number;
  readonly connection_check_ms: number;
}

export interface ListenOptions {
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits?: Partial<ServerLimits>;
  /** Admits clients by address; absent: all clients are admitted. */
  readonly admit?: TenantOfAddress;
}

/** A listening socket whose connections may be led elsewhere. */
export interface Reachable {
  readonly port: number;
  /** True if connections to the address arrive here: the first address that leads elsewhere, or null. */
  unreached(): Promise<Unreached | null>;
}

export interface Listening extends Reachable {
  /** URL of the bound address: `http://127.0.0.1:8700`. */
  readonly url: string;
  /** Stops accepting and waits for running requests, at most `drain_ms`. Returns how many connections had to be cut. */
  close(drain_ms: number): Promise<{ readonly cut_count: number }>;
}

/** Throws INTERNAL with the address and the reason when it cannot be bound. */
export async function listen(app: App, { host, port, clock, log, limits, admit }: ListenOptions): Promise<Listening> {
  const bounds: ServerLimits = { ...LIMITS, ...limits };
  const { server, connections } = makeServer(app, clock, bounds, admit ?? null);
  await bind(server, host, port);
  server.on("error", (error) => log.error("http server", { error: errorText(error) }));
  const { port: bound_port } = server.address() as AddressInfo;
  const shown_host = host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${shown_host}:${bound_port}`,
    port: bound_port,
    unreached: () => firstUnreached(server, host, bound_port, clock),
    close: (drain_ms) => {
      app.sockets.close();
      return connections.drain(server, clock, drain_ms);
    },
  };
}

/** New connections in one turn of the event loop; those that they displace are closed at its end. */
export const BACKLOG = 1_024;

function makeServer(
  app: App,
  clock: Clock,
  limits: ServerLimits,
  admit: TenantOfAddress | null,
): { server: Server; connections: Connections } {
  const handle = getRequestListener(
    (request, env) => {
      const { incoming } = env as HttpBindings;
      try {
        checkTarget(incoming.url ?? "");
      } catch (refusal) {
        return app.failed(refusal, incoming);
      }
      return app.hono.fetch(request, env as HttpBindings);
    },
    {
      hostname: "localhost",
      // What hono never sees: a request target or Host header that makes no URL.
      errorHandler: (cause) =>
        app.failed(
          new AppError("INVALID_ARGUMENT", `invalid request target or Host header: ${urlProblem(cause)}`, { cause }),
        ),
    },
  );
  const listener = unlessCrowded((incoming, outgoing) => {
    boundChunks(incoming, clock);
    return answerOrigin(incoming, outgoing, app.cors_origins) ? undefined : handle(incoming, outgoing);
  });
  const server = createServer(
    {
      ServerResponse: DrainingResponse,
      maxHeaderSize: limits.header_bytes_max,
      headersTimeout: limits.headers_timeout_ms,
      requestTimeout: limits.request_timeout_ms,
      keepAliveTimeout: limits.connection_idle_ms,
      connectionsCheckingInterval: limits.connection_check_ms,
      shouldUpgradeCallback: (incoming) => asksUpgrade(incoming, app.routes, matches),
    },
    listener,
  );
  // Without this event Node invites every body. `readBody` does it, once the request has passed all that needs none.
  server.on("checkContinue", listener);
  serveUpgrades(server, listener);
  answerMalformed(server, app.failed);
  refuseExpectations(server, app.failed);
  server.maxConnections = limits.connections_max + BACKLOG;
  return { server, connections: new Connections(server, limits, admit) };
}

/** The words of the adapter for a request that makes no URL. */
const urlProblem = (cause: unknown): string =>
  errorText(cause)
    .replace(/^\w*Error: /, "")
    .toLowerCase();

type Listener = (incoming: IncomingMessage, outgoing: ServerResponse) => unknown;

/** Hands on all requests but those of a connection on which too many wait (L3). */
export function unlessCrowded(handle: Listener): Listener {
  const counts = new WeakMap<Socket, number>();
  return (incoming, outgoing) => {
    // An answer has its socket from the start, unless another is on it.
    if (outgoing.socket !== null) return handle(incoming, outgoing);
    const { socket } = incoming;
    const count = counts.get(socket) ?? 0;
    if (socket.destroyed || count >= LIMITS.pipelined_requests_max) {
      socket.destroy();
      return;
    }
    counts.set(socket, count + 1);
    outgoing.once("close", () => counts.set(socket, (counts.get(socket) ?? 1) - 1));
    return handle(incoming, outgoing);
  };
}

/** Rejects with INTERNAL, the address and the reason. */
export function bind(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const reason =
        cause.code === "EADDRINUSE"
          ? "the address is in use by another process"
          : cause.code === "EADDRNOTAVAIL" || cause.code === "ENOTFOUND"
            ? "this machine does not have the address"
            : errorText(cause);
      reject(new AppError("INTERNAL", `cannot listen on ${host}:${port}: ${reason}`, { cause }));
    });
    server.listen({ host, port, backlog: BACKLOG }, () => {
      server.removeAllListeners("error");
      resolve();
    });
  });
}
