/**
 * The ports of this machine that containers publish. Choosing and refusing is done here; what leads from such a port
 * into a container is the engine's, while the container runs.
 *
 * O1 A port of a protocol is one container's, whatever the address, from its creation to its deletion: one that is
 *    stopped finds its ports free when it starts again.
 * O2 A port that a process of this machine listens on, that another daemon publishes, or that this daemon needs itself is
 *    nobody's. That is looked at once, when it is given out.
 * O3 A tenant's ports lie in the range of the settings; the operator's tenant may publish any from `host_port_min`.
 */
import { createSocket } from "node:dgram";
import { createServer } from "node:net";
import type { PortRange } from "../../base/config.ts";
import { AppError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { DEFAULT_TENANT_ID } from "../../base/tenant-limits.ts";
import type { Publication, PublishedPort } from "../../engine/ports.ts";
import type { WantedPort } from "./schema.ts";

const keyOf = ({ protocol, host_port }: Pick<Publication, "protocol" | "host_port">) => `${protocol} ${host_port}`;

export interface PortsOptions {
  readonly ids: Ids;
  readonly range: PortRange;
  /** Ports that the daemon listens on or connects to. */
  readonly own: readonly number[];
  /** Of all daemons on this machine. */
  readonly publications: () => Promise<readonly Publication[]>;
}

/**
 * The port of the service that gives ports of a machine to containers. Single writer: one process knows the owners, from
 * the rows of its node; a second daemon on the same machine learns of its ports only from the packet filter (O2).
 */
export interface HostPorts {
  /** From now on the port is the daemon's own. */
  reserve(port: number): void;
  /** Ports of this machine that lead into containers, those of other daemons too. */
  publications(): Promise<readonly Publication[]>;
  /** The container that has the port, or null. */
  ownerOf(port: Pick<PublishedPort, "protocol" | "host_port">): string | null;
  /** Notes what a container has, as the store knows it. */
  keep(id: string, ports: readonly PublishedPort[]): void;
  /**
   * Takes ports for a container, all or none. Rejects with INVALID_ARGUMENT for one outside of the tenant's range,
   * PORT_TAKEN, or CAPACITY_FULL when none is left to choose.
   */
  claim(tenant_id: string, id: string, wanted: readonly WantedPort[]): Promise<readonly PublishedPort[]>;
  /** Gives back all ports of a container. */
  release(id: string): void;
}

export class LocalPorts implements HostPorts {
  readonly #options: PortsOptions;
  readonly #own: Set<number>;
  /** Container by protocol and port (O1). */
  readonly #owners = new Map<string, string>();

  constructor(options: PortsOptions) {
    this.#options = options;
    this.#own = new Set(options.own);
  }

  reserve(port: number): void {
    this.#own.add(port);
  }

  publications(): Promise<readonly Publication[]> {
    return this.#options.publications();
  }

  ownerOf(port: Pick<PublishedPort, "protocol" | "host_port">): string | null {
    return this.#owners.get(keyOf(port)) ?? null;
  }

  keep(id: string, ports: readonly PublishedPort[]): void {
    for (const port of ports) this.#owners.set(keyOf(port), id);
  }

  async claim(tenant_id: string, id: string, wanted: readonly WantedPort[]): Promise<readonly PublishedPort[]> {
    if (wanted.length === 0) return [];
    for (const { host_port } of wanted) this.#checkRange(tenant_id, host_port);
    const ports: PublishedPort[] = [];
    try {
      const elsewhere = new Set((await this.#options.publications()).map(keyOf));
      // In the order asked for, but what is given first: what is chosen must not be one of these.
      const given = await Promise.all(
        wanted.map((port) => (port.host_port ? this.#take(id, port, port.host_port, elsewhere) : null)),
      );
      for (const [i, port] of wanted.entries()) ports.push(given[i] ?? (await this.#choose(id, port, elsewhere)));
      return ports;
    } catch (error) {
      this.release(id);
      throw error;
    }
  }

  /** O3. */
  #checkRange(tenant_id: string, host_port: number | null | undefined): void {
    const { first, last } = this.#options.range;
    if (tenant_id === DEFAULT_TENANT_ID || !host_port || (host_port >= first && host_port <= last)) return;
    throw new AppError("INVALID_ARGUMENT", `host_port out of range: ${host_port} (expected ${first} to ${last})`, {
      details: { expected: [`${first}-${last}`], received: String(host_port) },
      hint: "send a host_port in that range, or leave it out to get a free one",
    });
  }

  release(id: string): void {
    for (const [key, owner] of this.#owners) if (owner === id) this.#owners.delete(key);
  }

  async #take(
    id: string,
    wanted: WantedPort,
    host_port: number,
    elsewhere: ReadonlySet<string>,
  ): Promise<PublishedPort> {
    const port = { ...wanted, host_port };
    if (await this.#tryTake(id, port, elsewhere)) return port;
    throw new AppError("PORT_TAKEN", `${port.protocol} port already in use on this machine: ${host_port}`, {
      details: { received: String(host_port) },
      hint: "send another host_port, or leave it out to get a free one",
    });
  }

  /** From a place that nobody knows, so that two daemons on a machine rarely choose the same. */
  async #choose(id: string, wanted: WantedPort, elsewhere: ReadonlySet<string>): Promise<PublishedPort> {
    const { ids, range } = this.#options;
    const count = range.last - range.first + 1;
    const begin = Number.parseInt(ids.hex(8), 16) % count;
    for (let i = 0; i < count; i++) {
      const port = { ...wanted, host_port: range.first + ((begin + i) % count) };
      if (await this.#tryTake(id, port, elsewhere)) return port;
    }
    throw new AppError("CAPACITY_FULL", `no free port on this machine from ${range.first} to ${range.last}`);
  }

  async #tryTake(id: string, port: PublishedPort, elsewhere: ReadonlySet<string>): Promise<boolean> {
    const key = keyOf(port);
    if (this.#owners.has(key) || elsewhere.has(key) || this.#own.has(port.host_port)) return false;
    this.#owners.set(key, id);
    if (await isFree(port)) return true;
    // It may have been released, and taken by another, meanwhile.
    if (this.#owners.get(key) === id) this.#owners.delete(key);
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
