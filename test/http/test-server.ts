/** A real server on loopback with the routes a test needs, and a raw client for what `fetch` hides. */

import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { Authenticator } from "../../src/base/caller.ts";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import type { Log, LogFields } from "../../src/base/log.ts";
import type { Served as Told } from "../../src/base/request-observer.ts";
import { temporaryFiles } from "../../src/base/reservations.ts";
import { Traces } from "../../src/base/trace.ts";
import { TransferTurns } from "../../src/base/transfer-turns.ts";
import type { TenantOfAddress } from "../../src/http/connections.ts";
import { Cursors } from "../../src/http/cursors.ts";
import { Idempotency } from "../../src/http/idempotency.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { LocalRates, type RateLimiter } from "../../src/http/rates.ts";
import { type Route, route } from "../../src/http/route.ts";
import { type App, createApp, type Listening, listen, type ServerLimits } from "../../src/http/server.ts";
import { Spools } from "../../src/http/spool.ts";
import type { SocketLimits } from "../../src/http/websocket.ts";
import type { Store } from "../../src/store/store.ts";
import type { Keys } from "../../src/tenants/keys.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { scratchStores } from "../store/scratch.ts";
import { testKeys } from "../tenants/test-keys.ts";

export const KEY = "operator-key-0123456789";

/** The route that a listener asks of itself. */
export const healthRoute = route({
  method: "GET",
  path: "/health",
  auth: "public",
  operation: "tested",
  summary: "Liveness.",
  handler: () => ({ status: "ok" }),
});

export interface Served {
  readonly app: App;
  readonly server: Listening;
  readonly keys: Keys;
  readonly rates: RateLimiter;
  readonly store: Store;
  /** Messages of level error with their fields. */
  readonly faults: { readonly message: string; readonly fields: LogFields }[];
  /** What the observer was told. */
  readonly told: readonly Told[];
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** With the operator's key; a body that is no string goes as JSON. */
  call(method: string, path: string, body?: unknown): Promise<Response>;
}

export interface Place {
  /** A loopback address; 127.0.0.1 unless given. */
  readonly host?: string;
  /** API keys unless given. */
  readonly authenticator?: Authenticator;
  readonly budget?: MemoryBudget;
  /** Of the routes; the system's unless given. */
  readonly clock?: Clock;
  readonly socket_limits?: Partial<SocketLimits>;
  readonly admit?: TenantOfAddress;
}

/** Call in a describe block. What a test serves is taken down after it. */
export function serving(): (
  routes: readonly Route[],
  limits?: Partial<ServerLimits>,
  place?: Place,
) => Promise<Served> {
  const servers: Listening[] = [];
  // Runs after the stores' own clean-up was registered, so before it.
  const scratch = scratchStores();
  afterEach(async () => {
    await Promise.all(servers.splice(0).map((server) => server.close(0)));
  });
  return async (
    routes,
    limits,
    { host = "127.0.0.1", authenticator, budget = new MemoryBudget(), clock = systemClock, admit, socket_limits } = {},
  ) => {
    const faults: Served["faults"] = [];
    const told: Told[] = [];
    const ignore = () => {};
    const log: Log = {
      debug: ignore,
      info: ignore,
      warn: ignore,
      error: (message, fields = {}) => faults.push({ message, fields }),
    };
    const ids = randomIds();
    const made = scratch();
    const store = made.open();
    const keys = testKeys(store, systemClock);
    await keys.ensureBootstrap(KEY);
    const turns = new TransferTurns(systemClock);
    const rates = new LocalRates(systemClock, turns);
    const temporary = temporaryFiles(nodeQuotas(), 100_000);
    const spools = new Spools({ directory: join(made.directory, "uploads"), temporary, ids, clock });
    await spools.begin();
    const app = createApp({
      log,
      ids,
      clock,
      authenticator: authenticator ?? keys,
      budget,
      ...(socket_limits && { socket_limits }),
      rates,
      turns,
      spools,
      idempotency: new Idempotency({ store, clock: systemClock, log }),
      cursors: new Cursors(Buffer.alloc(32)),
      traces: new Traces(ids, 0),
      observer: { served: (one) => told.push(one) },
    });
    app.mount(routes);
    const server = await listen(app, { host, port: 0, clock: systemClock, log, limits, ...(admit && { admit }) });
    servers.push(server);
    const get = (path: string, init?: RequestInit) => fetch(`${server.url}${path}`, init);
    return {
      app,
      server,
      keys,
      rates,
      store,
      faults,
      told,
      fetch: get,
      call: (method, path, body) =>
        get(path, {
          method,
          headers: { "x-api-key": KEY },
          ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
        }),
    };
  };
}

export interface RawClient {
  readonly socket: Socket;
  /** All text received so far. */
  text(): string;
  /** Resolves with the text once it matches. Rejects when the connection ends before, or after `deadline_ms`. */
  until(pattern: RegExp, deadline_ms?: number): Promise<string>;
  /** Resolves with all text when the server has closed. */
  closed(deadline_ms?: number): Promise<string>;
}

/** A connection to a loopback address, from one. */
export async function rawClient(port: number, host = "127.0.0.1", localAddress = "127.0.0.1"): Promise<RawClient> {
  const socket = connect({ port, host, localAddress });
  const state = { text: "", isClosed: false };
  const waiting = new Set<() => void>();
  const changed = () => {
    for (const look of waiting) look();
  };
  socket.setEncoding("utf8");
  socket.on("data", (chunk) => {
    state.text += chunk;
    changed();
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    state.isClosed = true;
    changed();
  });
  await new Promise<void>((resolve) => socket.once("connect", resolve));

  const wait = (what: string, isDone: () => boolean, deadline_ms: number): Promise<string> =>
    new Promise((resolve, reject) => {
      const end = (error: Error | null) => {
        clearTimeout(timer);
        waiting.delete(look);
        if (error === null) resolve(state.text);
        else reject(error);
      };
      const look = () => {
        if (isDone()) end(null);
        else if (state.isClosed) end(new Error(`closed before ${what}: ${state.text}`));
      };
      const timer = setTimeout(() => end(new Error(`not within ${deadline_ms} ms: ${what}`)), deadline_ms);
      waiting.add(look);
      look();
    });
  return {
    socket,
    text: () => state.text,
    until: (pattern, deadline_ms = 40_000) => wait(String(pattern), () => pattern.test(state.text), deadline_ms),
    closed: (deadline_ms = 40_000) => wait("the end", () => state.isClosed, deadline_ms),
  };
}
