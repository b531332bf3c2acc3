/**
 * The ports of this machine that containers publish. Choosing and refusing is done here; what leads from such a port
 * into a container is the engine's, while the container runs.
 *
 * O1 A port of a protocol is one container's, whatever the address, from its creation to its deletion: one that is
 *    stopped finds its ports free when it starts again.
 * O2 A port that a process of this machine listens on is nobody's. That is looked at once, when it is given out.
 */
import { createSocket } from "node:dgram";
import { createServer } from "node:net";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { PublishedPort } from "../engine/engine.ts";
import type { WantedPort } from "./network-schema.ts";

const keyOf = ({ protocol, host_port }: Pick<PublishedPort, "protocol" | "host_port">) => `${protocol} ${host_port}`;

export class Ports {
  readonly #ids: Ids;
  /** Container by protocol and port (O1). */
  readonly #owners = new Map<string, string>();

  constructor(ids: Ids) {
    this.#ids = ids;
  }

  /** Notes what a container has, as the store knows it. */
  keep(id: string, ports: readonly PublishedPort[]): void {
    for (const port of ports) this.#owners.set(keyOf(port), id);
  }

  /** Takes ports for a container, all or none. Rejects with PORT_TAKEN, or CAPACITY_FULL when none is left to choose. */
  async claim(id: string, wanted: readonly WantedPort[]): Promise<readonly PublishedPort[]> {
    const ports: PublishedPort[] = [];
    try {
      // In the order asked for, but what is given first: what is chosen must not be one of these.
      const given = await Promise.all(
        wanted.map((port) => (port.host_port ? this.#take(id, port, port.host_port) : null)),
      );
      for (const [i, port] of wanted.entries()) ports.push(given[i] ?? (await this.#choose(id, port)));
      return ports;
    } catch (error) {
      this.release(id);
      throw error;
    }
  }

  /** Gives back all ports of a container. */
  release(id: string): void {
    for (const [key, owner] of this.#owners) if (owner === id) this.#owners.delete(key);
  }

  async #take(id: string, wanted: WantedPort, host_port: number): Promise<PublishedPort> {
    const port = { ...wanted, host_port };
    if (await this.#tryTake(id, port)) return port;
    throw new AppError("PORT_TAKEN", `port ${host_port} of ${port.protocol} is taken on this machine`, {
      details: { received: String(host_port) },
      hint: "ask for another host_port, or leave it out to get a free one",
    });
  }

  /** From a place that nobody knows, so that two daemons on a machine rarely choose the same. */
  async #choose(id: string, wanted: WantedPort): Promise<PublishedPort> {
    const { host_port_first, host_port_last } = LIMITS;
    const count = host_port_last - host_port_first + 1;
    const begin = Number.parseInt(this.#ids.hex(8), 16) % count;
    for (let i = 0; i < count; i++) {
      const port = { ...wanted, host_port: host_port_first + ((begin + i) % count) };
      if (await this.#tryTake(id, port)) return port;
    }
    throw new AppError("CAPACITY_FULL", `no port from ${host_port_first} to ${host_port_last} is free on this machine`);
  }

  async #tryTake(id: string, port: PublishedPort): Promise<boolean> {
    const key = keyOf(port);
    if (this.#owners.has(key)) return false;
    this.#owners.set(key, id);
    if (await isFree(port)) return true;
    this.#owners.delete(key);
    return false;
  }
}

/** Whether a process could listen there now (O2). */
function isFree({ protocol, host_address, host_port: port }: PublishedPort): Promise<boolean> {
  return new Promise((resolve) => {
    if (protocol === "tcp") {
      const server = createServer((socket) => socket.destroy());
      server.once("error", () => resolve(false));
      server.listen({ port, host: host_address, exclusive: true }, () => server.close(() => resolve(true)));
    } else {
      const socket = createSocket("udp4");
      socket.once("error", () => socket.close(() => resolve(false)));
      socket.bind({ port, address: host_address, exclusive: true }, () => socket.close(() => resolve(true)));
    }
  });
}
