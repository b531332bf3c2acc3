/**
 * Listening sockets of services. One has a fixed address and serves the host names. Without a domain each service has a
 * loopback address of its own beside it: an address is a host for cookies and origins, and reaches this machine without DNS.
 *
 * L1. The address of a service is random in a range that depends on the daemon, no other process listens there, and the
 *     service keeps it until its end.
 * L2. The connections of all sockets are served by one server, with its bounds.
 */
import { createServer, type Server, type Socket } from "node:net";
import { AppError, errorText } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";

/** First and last second octet: 127.0.x.x has the names of this machine. */
const [FIRST, COUNT] = [16, 208] as const;

export interface ListenersOptions {
  readonly ids: Ids;
  /** Names this daemon on the machine. */
  readonly host_tag: string;
  /** Serves a connection. */
  readonly take: (socket: Socket) => void;
  readonly port: () => number;
}

export class Listeners {
  readonly #options: ListenersOptions;
  readonly #servers = new Map<string, Server>();

  constructor(options: ListenersOptions) {
    this.#options = options;
  }

  /** Listens on an address of its own. Throws CAPACITY_FULL where none is free. */
  async choose(isTaken: (address: string) => boolean): Promise<string> {
    for (let i = 0; i < LIMITS.service_address_attempts_max; i++) {
      const address = this.#random();
      if (isTaken(address) || this.#servers.has(address)) continue;
      if ((await this.listen(address)) === null) return address;
    }
    throw new AppError("CAPACITY_FULL", "no free loopback address for a service", {
      hint: "set HEARTH_SERVICES_LISTEN to a port on which no process listens",
    });
  }

  /** Listens on an address. Resolves to the reason where that fails. */
  listen(address: string): Promise<string | null> {
    const { take, port } = this.#options;
    // As Node's HTTP server makes its own.
    const server = createServer({ allowHalfOpen: true, noDelay: true }, take);
    return new Promise((resolve) => {
      server.once("error", (error) => resolve(errorText(error)));
      server.listen({ host: address, port: port(), exclusive: true }, () => {
        server.removeAllListeners("error");
        // A connection that could not be accepted ends nothing.
        server.on("error", () => {});
        this.#servers.set(address, server);
        resolve(null);
      });
    });
  }

  /** Stops listening on an address. Its connections stay. */
  release(address: string): void {
    this.#servers.get(address)?.close();
    this.#servers.delete(address);
  }

  close(): void {
    for (const address of [...this.#servers.keys()]) this.release(address);
  }

  /** L1. */
  #random(): string {
    const { ids, host_tag } = this.#options;
    const second = FIRST + (Number.parseInt(host_tag, 16) % COUNT);
    const octet = () => 1 + (Number.parseInt(ids.hex(4), 16) % 254);
    return `127.${second}.${octet()}.${octet()}`;
  }
}
