/**
 * Connections to the containers behind services.
 *
 * U1. A connection goes to the present address of the service's container and to its port, never to what a request names.
 * U2. An idle connection is used for the run of the container that it was made to. A run that ends takes its connections
 *     along, so that no request reaches another container that has the address by then.
 * U3. Idle connections are bounded for each service and in all.
 */
import { Agent, type ClientRequest, type ClientRequestArgs } from "node:http";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { LiveContainer } from "../engine/ports.ts";

/** Idle connections of all services (U3). */
export interface FreeSockets {
  count: number;
}

/** Returns the run of a container that lives, or null. */
export type LiveOf = (container_id: string) => LiveContainer | null;

const noConnection = (cause: Error): AppError =>
  new AppError("SERVICE_UNAVAILABLE", "the container does not accept connections on the port of the service", {
    cause,
    hint: "start a process that listens on the port, on all addresses of the container",
    retry_after: 1,
  });

export const notLive = (): AppError =>
  new AppError("SERVICE_UNAVAILABLE", "the container of the service does not run", {
    hint: "start the container",
    retry_after: 1,
  });

/** Connections of one service to one run of its container. */
export class Upstream extends Agent {
  readonly run: LiveContainer;
  readonly #liveOf: LiveOf;
  readonly #clock: Clock;
  readonly #free: FreeSockets;
  readonly #port: number;
  /** Callbacks that uncount idle connections. */
  readonly #leaves = new Map<Duplex, () => void>();

  constructor(run: LiveContainer, port: number, liveOf: LiveOf, clock: Clock, free: FreeSockets) {
    super({
      keepAlive: true,
      maxFreeSockets: LIMITS.service_free_sockets_max,
      timeout: LIMITS.service_free_socket_ms,
      scheduling: "lifo",
    });
    this.run = run;
    this.#port = port;
    this.#liveOf = liveOf;
    this.#clock = clock;
    this.#free = free;
  }

  /** Connects to the container (U1). `connected` is called once. */
  override createConnection(
    _options: ClientRequestArgs,
    connected: (error: Error | null, stream: Duplex) => void,
  ): null {
    const { run } = this;
    const socket = connect({ host: run.address, port: this.#port, noDelay: true });
    const cancel = this.#clock.after(LIMITS.service_connect_ms, () => {
      socket.destroy(
        new AppError("TIMEOUT", "the container did not accept the connection in time", { retry_after: 1 }),
      );
    });
    const failed = (error: Error) => {
      cancel();
      connected(error instanceof AppError ? error : noConnection(error), socket);
    };
    socket.once("error", failed);
    socket.once("connect", () => {
      cancel();
      socket.off("error", failed);
      // The container ended meanwhile: another may have its address (U2).
      if (this.#liveOf(run.id) !== run) {
        socket.destroy();
        connected(notLive(), socket);
        return;
      }
      connected(null, socket);
    });
    return null;
  }

  /** Node's own decision, within the bound of all services (U3). */
  override keepSocketAlive(socket: Duplex): boolean {
    if (this.#free.count >= LIMITS.service_free_sockets_all_max || this.#liveOf(this.run.id) !== this.run) return false;
    const isKept: unknown = super.keepSocketAlive(socket);
    if (isKept !== true) return false;
    this.#free.count += 1;
    const leave = () => {
      socket.off("close", leave);
      this.#leaves.delete(socket);
      this.#free.count -= 1;
    };
    socket.once("close", leave);
    this.#leaves.set(socket, leave);
    return true;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.#leaves.get(socket)?.();
    super.reuseSocket(socket, request);
  }
}
