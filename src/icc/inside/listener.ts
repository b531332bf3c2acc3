/**
 * The listening sockets inside of containers, one of each. A connection has the identity of the socket that accepted it.
 *
 * L1. Connections are bounded per container, per tenant and in all. Those above are refused with the reason.
 * L2. A container that connects faster than its bound, or its tenant's, is not listened to until the second is over.
 * L3. The end of a container closes its socket and its connections.
 * L4. A socket that cannot be bound is tried again, and ends nothing.
 */
import { rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { type ReachedBound, Shares } from "../../base/shares.ts";
import type { ContainerSocket, SocketListener } from "../../engine/ports.ts";
import { Windows } from "./windows.ts";

export interface ListenersOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Serves a connection of a container. */
  readonly take: (container: ContainerSocket, socket: Socket) => void;
  /** Returns the response for a connection that is refused. */
  readonly refusal: (thrown: unknown) => string;
}

interface Listening {
  readonly container: ContainerSocket;
  readonly sockets: Set<Socket>;
  server: Server | null;
  refused_count: number;
  hasFailed: boolean;
  cancelRetry: CancelTimer;
}

export class ContainerListeners implements SocketListener {
  readonly #options: ListenersOptions;
  readonly #listening = new Map<string, Listening>();
  readonly #of_container = new Shares({
    each_max: LIMITS.icc_connections_per_container_max,
    all_max: Number.POSITIVE_INFINITY,
  });
  readonly #of_tenant = new Shares({
    each_max: LIMITS.icc_connections_per_tenant_max,
    all_max: LIMITS.icc_connections_max,
    always_max: LIMITS.icc_connections_always_max,
  });
  readonly #connects: Windows;
  #isClosed = false;

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#connects = new Windows(options.clock, {
      window_ms: LIMITS.icc_connects_window_ms,
      container_max: LIMITS.icc_connects_per_container_max,
      tenant_max: LIMITS.icc_connects_per_tenant_max,
    });
  }

  /** Number of containers with a socket, and of open connections. */
  get counts(): { readonly sockets_count: number; readonly connections_count: number } {
    let connections_count = 0;
    for (const { sockets } of this.#listening.values()) connections_count += sockets.size;
    return { sockets_count: this.#listening.size, connections_count };
  }

  open(container: ContainerSocket): void {
    if (this.#isClosed) return;
    this.close(container.container_id);
    const one: Listening = {
      ...{ container, sockets: new Set(), server: null },
      ...{ refused_count: 0, hasFailed: false, cancelRetry: () => {} },
    };
    this.#listening.set(container.container_id, one);
    this.#listen(one);
  }

  /** L3. */
  close(container_id: string): void {
    const one = this.#listening.get(container_id);
    if (one === undefined) return;
    this.#listening.delete(container_id);
    this.#mute(one);
    one.cancelRetry();
    for (const socket of one.sockets) socket.destroy();
  }

  /** Stops listening. Connections stay. */
  stopAccepting(): void {
    this.#isClosed = true;
    for (const one of this.#listening.values()) {
      this.#mute(one);
      one.cancelRetry();
    }
  }

  closeAll(): void {
    this.stopAccepting();
    for (const container_id of [...this.#listening.keys()]) this.close(container_id);
  }

  /** Binds at once: a process that starts after this call can connect. */
  #listen(one: Listening): void {
    const { path, container_id } = one.container;
    // As Node's HTTP server makes its own.
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(one, server, socket));
    one.server = server;
    server.on("error", (error) => {
      if (one.server !== server) return;
      // Once: a retry may fail for as long as the container runs.
      if (!one.hasFailed) this.#options.log.warn("no socket in a container", { container_id, error: errorText(error) });
      one.hasFailed = true;
      this.#pause(one, LIMITS.icc_socket_retry_ms);
    });
    try {
      // The socket of an earlier process.
      rmSync(path, { force: true });
      server.listen({ path, backlog: LIMITS.icc_backlog, readableAll: true, writableAll: true, exclusive: true });
    } catch (error) {
      server.emit("error", error);
    }
  }

  #mute(one: Listening): void {
    one.server?.close();
    one.server = null;
  }

  /** Listens again after a time. The present connections stay. */
  #pause(one: Listening, wait_ms: number): void {
    this.#mute(one);
    one.cancelRetry();
    one.cancelRetry = this.#options.clock.after(wait_ms, () => this.#listen(one));
  }

  #accept(one: Listening, server: Server, socket: Socket): void {
    const { container, sockets } = one;
    socket.on("error", () => {});
    // The kernel accepted it before the socket was closed.
    if (one.server !== server) return void socket.destroy();
    const wait_ms = this.#connects.take(container);
    if (wait_ms > 0) {
      socket.destroy();
      this.#pause(one, wait_ms);
      return;
    }
    let release: () => void;
    try {
      release = this.#place(container);
    } catch (refusal) {
      this.#refuse(one, socket, refusal);
      return;
    }
    sockets.add(socket);
    socket.once("close", () => {
      sockets.delete(socket);
      release();
    });
    this.#options.take(container, socket);
  }

  /** L1. */
  #place({ container_id, tenant_id }: ContainerSocket): () => void {
    const refused = (whose: string) => (reached: ReachedBound, max: number) =>
      reached === "all_max"
        ? new AppError("CAPACITY_FULL", `too many connections of containers on this node (limit ${max})`)
        : new AppError("CONCURRENCY_LIMIT", `too many connections of the ${whose} (limit ${max})`);
    const leave = this.#of_container.take(container_id, refused("container"));
    try {
      const leaveTenant = this.#of_tenant.take(tenant_id, refused("tenant's containers"));
      return () => {
        leave();
        leaveTenant();
      };
    } catch (refusal) {
      leave();
      throw refusal;
    }
  }

  /** Answers without reading a request: a client that sends one first would otherwise see a broken connection alone. */
  #refuse(one: Listening, socket: Socket, refusal: unknown): void {
    if (one.refused_count >= LIMITS.icc_refused_connections_max) return void socket.destroy();
    one.refused_count++;
    one.sockets.add(socket);
    const cancel = this.#options.clock.after(LIMITS.icc_refused_ms, () => socket.destroy());
    socket.once("close", () => {
      cancel();
      one.refused_count--;
      one.sockets.delete(socket);
    });
    socket.once("end", () => socket.destroy());
    socket.resume();
    socket.end(this.#options.refusal(refusal));
  }
}
