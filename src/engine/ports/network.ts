/** The engine's port: the published ports of containers. */

export type Protocol = "tcp" | "udp";

export interface PublishedPort {
  readonly container_port: number;
  readonly host_port: number;
  /** 127.0.0.1: for this machine alone; 0.0.0.0: on all addresses that it has. */
  readonly host_address: "127.0.0.1" | "0.0.0.0";
  readonly protocol: Protocol;
}

/** A port of this machine that a hearth daemon leads into a container. */
export interface Publication {
  /** Of the daemon: `hearth_<tag>`. */
  readonly table: string;
  readonly protocol: string;
  readonly host_port: number;
  /** `<address>:<port>` of the container. */
  readonly target: string;
}
