/** The engine's port: the network policy of a container. */

export type Protocol = "tcp" | "udp";

/** Where a container may send to. */
export interface AllowRule {
  /** The base address of a network. */
  readonly address: string;
  readonly prefix_length: number;
  readonly port_min: number;
  readonly port_max: number;
  /** Null: both. */
  readonly protocol: Protocol | null;
}

export interface PublishedPort {
  readonly container_port: number;
  readonly host_port: number;
  /** 127.0.0.1: for this machine alone; 0.0.0.0: on all addresses that it has. */
  readonly host_address: "127.0.0.1" | "0.0.0.0";
  readonly protocol: Protocol;
}

export interface NetworkPolicy {
  readonly egress: "on" | "off" | readonly AllowRule[];
  readonly ports: readonly PublishedPort[];
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
