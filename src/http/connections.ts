/**
 * The open connections of one listener: which of them a new one may displace, and their orderly end.
 *
 * C1. A connection is a stranger until a request on it was authenticated. At the bound a new connection displaces the
 *     oldest stranger of the source with the most strangers, so that connections without a key shut nobody out.
 * C2. Without strangers it displaces the oldest authenticated connection that waits for its next request. Connections
 *     with a request in progress, and WebSockets, stay; if all are like that, the new connection is closed.
 * C3. A connection above the bound of its own address or of its tenant, or from an address that may not connect, is closed
 *     before anything of it is read.
 * C4. `drain` closes connections without a request in progress at once, and each other one after its last answer was
 *     flushed, whether or not that answer had announced it.
 */
import { type IncomingMessage, type OutgoingHttpHeaders, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { sourceOf } from "../base/addresses.ts";
import type { Clock } from "../base/clock.ts";
import { invariant } from "../base/errors.ts";

/** Node keeps the answer that a socket is in the middle of here. */
type Answering = Socket & { readonly _httpMessage?: object | null };

function isAnswering(socket: Socket): boolean {
  const { _httpMessage } = socket as Answering;
  return _httpMessage !== undefined && _httpMessage !== null;
}

/** The listener of each stranger (C1). */
const STRANGERS = new WeakMap<Socket, Connections>();
/** Open connections of listeners that are closing. */
const DRAINING = new WeakSet<Socket>();

/** Notes that a request on this connection was authenticated. */
export function authenticated(socket: Socket): void {
  STRANGERS.get(socket)?.prove(socket);
}

/**
 * The cheapest place to add `Connection: close` to answers of requests that were already running. One class for all
 * listeners: with one each, answers differ in shape and every request pays for it (8 % of an empty one, measured).
 */
export class DrainingResponse<R extends IncomingMessage = IncomingMessage> extends ServerResponse<R> {
  override writeHead(status: number, ...rest: unknown[]): this {
    if (DRAINING.has(this.req.socket)) this.shouldKeepAlive = false;
    return super.writeHead(status, ...(rest as [OutgoingHttpHeaders]));
  }

  /** Called when the last byte is with the kernel; a pipelined answer takes the socket right after. */
  override detachSocket(socket: Socket): void {
    super.detachSocket(socket);
    if (!DRAINING.has(socket)) return;
    process.nextTick(() => {
      if (!isAnswering(socket)) socket.destroySoon();
    });
  }
}

export interface ConnectionLimits {
  readonly connections_max: number;
  /** Connections among these from one remote address. Unbounded unless given. */
  readonly per_address_connections_max?: number;
  /** Connections among these from one tenant, which `TenantOfAddress` tells. Unbounded unless given. */
  readonly per_tenant_connections_max?: number;
}

/** Returns the tenant of an address; null: the address may not connect. */
export type TenantOfAddress = (address: string) => string | null;

export class Connections {
  readonly #limits: ConnectionLimits;
  readonly #open = new Set<Socket>();
  readonly #strangers = new Crowd();
  /** In the order in which they were authenticated. */
  readonly #proven = new Set<Socket>();
  readonly #upgraded = new WeakSet<Socket>();
  readonly #admit: TenantOfAddress | null;
  readonly #of_address = new Map<string, number>();
  readonly #of_tenant = new Map<string, number>();

  constructor(server: Server, limits: ConnectionLimits, admit: TenantOfAddress | null = null) {
    this.#limits = limits;
    this.#admit = admit;
    server.on("connection", (socket) => this.#add(socket));
    server.on("upgrade", ({ socket }) => this.#upgraded.add(socket));
  }

  /** For `authenticated`. */
  prove(socket: Socket): void {
    if (!this.#strangers.delete(socket)) return;
    STRANGERS.delete(socket);
    this.#proven.add(socket);
  }

  /** Closes the listener and waits for its connections (C4), at most `drain_ms`. Returns how many it had to cut. */
  drain(server: Server, clock: Clock, drain_ms: number): Promise<{ readonly cut_count: number }> {
    return new Promise((resolve) => {
      let cut_count = 0;
      const cancel = clock.after(drain_ms, () => {
        cut_count = this.#open.size;
        for (const socket of this.#open) socket.destroy();
      });
      // Node's own would destroy connections whose answer is made and not flushed.
      server.closeIdleConnections = () => {};
      server.close(() => {
        cancel();
        resolve({ cut_count });
      });
      for (const socket of this.#open) {
        DRAINING.add(socket);
        if (!isAnswering(socket) && !this.#upgraded.has(socket)) socket.destroy();
      }
    });
  }

  #add(socket: Socket): void {
    // Undefined when the peer has already gone.
    const address = socket.remoteAddress;
    const tenant_id = address === undefined ? null : this.#admit === null ? "" : this.#admit(address);
    if (address === undefined || tenant_id === null || !this.#hasRoom(address, tenant_id)) {
      socket.destroy();
      return;
    }
    this.#open.add(socket);
    count(this.#of_address, address, 1);
    count(this.#of_tenant, tenant_id, 1);
    this.#strangers.add(socket, sourceOf(address));
    STRANGERS.set(socket, this);
    socket.once("close", () => {
      this.#forget(socket);
      count(this.#of_address, address, -1);
      count(this.#of_tenant, tenant_id, -1);
    });
  }

  /** Displaces another connection where that makes room. */
  #hasRoom(address: string, tenant_id: string): boolean {
    const { connections_max, per_address_connections_max, per_tenant_connections_max } = this.#limits;
    const unbounded = Number.POSITIVE_INFINITY;
    if ((this.#of_address.get(address) ?? 0) >= (per_address_connections_max ?? unbounded)) return false;
    if ((this.#of_tenant.get(tenant_id) ?? 0) >= (per_tenant_connections_max ?? unbounded)) return false;
    return this.#open.size < connections_max || this.#displace();
  }

  /** Makes room for one connection. Returns false if there is none to displace (C1, C2). */
  #displace(): boolean {
    const found = this.#strangers.oldest() ?? this.#oldestIdle();
    if (found === undefined) return false;
    this.#forget(found);
    found.destroy();
    return true;
  }

  #oldestIdle(): Socket | undefined {
    for (const socket of this.#proven) if (!isAnswering(socket) && !this.#upgraded.has(socket)) return socket;
    return undefined;
  }

  #forget(socket: Socket): void {
    this.#open.delete(socket);
    this.#proven.delete(socket);
    this.#strangers.delete(socket);
  }
}

/** Keys without any take no memory. */
function count(counts: Map<string, number>, key: string, change: number): void {
  const sum = (counts.get(key) ?? 0) + change;
  if (sum > 0) counts.set(key, sum);
  else counts.delete(key);
}

/** Sockets by source, oldest first. All calls take constant time. */
class Crowd {
  readonly #sources = new Map<Socket, string>();
  readonly #sockets = new Map<string, Set<Socket>>();
  /** Sources by their number of sockets; the last entry is never empty. */
  readonly #ranks: Set<string>[] = [];

  add(socket: Socket, source: string): void {
    const sockets = this.#sockets.get(source) ?? new Set();
    this.#sockets.set(source, sockets);
    sockets.add(socket);
    this.#sources.set(socket, source);
    this.#rank(source, sockets.size - 1, sockets.size);
  }

  /** Returns false if it is not here. */
  delete(socket: Socket): boolean {
    const source = this.#sources.get(socket);
    if (source === undefined) return false;
    const sockets = this.#sockets.get(source);
    invariant(sockets !== undefined, "a stranger is listed under its source");
    sockets.delete(socket);
    this.#sources.delete(socket);
    if (sockets.size === 0) this.#sockets.delete(source);
    this.#rank(source, sockets.size + 1, sockets.size);
    return true;
  }

  /** Returns the oldest socket of the source with the most sockets. */
  oldest(): Socket | undefined {
    const [source] = this.#ranks.at(-1) ?? [];
    return source === undefined ? undefined : this.#sockets.get(source)?.values().next().value;
  }

  #rank(source: string, from: number, to: number): void {
    this.#ranks[from]?.delete(source);
    if (to > 0) {
      this.#ranks[to] ??= new Set();
      this.#ranks[to].add(source);
    }
    while (this.#ranks.length > 0 && (this.#ranks.at(-1)?.size ?? 0) === 0) this.#ranks.pop();
  }
}
