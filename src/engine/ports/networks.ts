/** The engine's port: the networks of API containers, read from the kernel. */
import type { ContainerSpec } from "./containers.ts";

/** Part of a container's network that is checked. */
export type NetworkCheckName =
  | "running"
  | "link"
  | "address"
  | "route"
  | "neighbour"
  | "gateway"
  | "forwarding"
  | "rules"
  | "egress"
  | "dns";

export interface NetworkCheck {
  readonly name: NetworkCheckName;
  readonly ok: boolean;
  /** The finding. */
  readonly message: string;
}

/** Values that the networks of all containers share. */
export interface CommonNetwork {
  readonly gateway: string;
  readonly subnet: string;
  readonly prefix_length: number;
  readonly bridge: string;
}

/** The link of a container that runs, without asking the kernel for more than its state. */
export interface LinkPlace {
  readonly address: string;
  /** Its end on this machine, and its end inside. */
  readonly host_interface: string;
  readonly interface: string;
  readonly name_servers: readonly string[];
  /** True if the link is in use and the gateway is there. */
  readonly is_linked: boolean;
  /** True once its container has ended, until nothing is left of it. */
  readonly is_ending: boolean;
}

/** The end of a link inside, as the kernel has it. */
export interface LinkInside {
  readonly mac_address: string;
  readonly mtu: number;
  readonly is_up: boolean;
  /** Addresses with their prefix length. */
  readonly addresses: readonly string[];
}

/** The networks of containers, and the addresses that are kept for them. */
export interface Networks {
  readonly common: CommonNetwork;
  /** First and last address that a container may have, and their number. */
  readonly addresses: { readonly first: string; readonly last: string; readonly count: number };
  /** True if a container may have the address. */
  isAddress(address: string): boolean;
  /**
   * Keeps an address for a container (`ContainerSpec.reserved_address`): no other container or instance gets it. Returns
   * false if one of these has it now, unless it is that container (`isHolder`).
   */
  reserve(address: string, isHolder: boolean): boolean;
  /** Ends a reservation. A container that has the address keeps it for its run. Safe to repeat. */
  unreserve(address: string): void;
  /** Null: it does not run. */
  place(id: string): LinkPlace | null;
  /** Reads its end inside. Null: it does not run, or has no link. Rejects with CAPACITY_FULL when too many ask. */
  inside(id: string): Promise<LinkInside | null>;
  /** Checks the link, the way to the gateway, and the rules of a container. Null: it does not run. Rejects as `inside`. */
  check(spec: ContainerSpec): Promise<readonly NetworkCheck[] | null>;
  /** Makes what `checks` found wrong as it has to be, as far as that is possible for one container. Rejects as `inside`. */
  mend(spec: ContainerSpec, checks: readonly NetworkCheck[]): Promise<void>;
  /** True if the daemon has put the policy of a specification in force. Null: the container does not run. */
  isApplied(spec: ContainerSpec): boolean | null;
  /** Has the policy of a container's specification in force, for its run. Resolves when it is. */
  apply(spec: ContainerSpec): Promise<void>;
}
