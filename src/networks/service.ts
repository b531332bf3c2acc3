/**
 * Private networks and names of containers, as the API shows them. A network exists while a container names it, and an
 * entry while such a container runs: both are read from the containers, and nothing is stored here.
 */
import { AppError } from "../base/errors.ts";
import { readNetworkMembers } from "../containers/network/membership.ts";
import type { Containers } from "../containers/service.ts";
import type { Engine } from "../engine/ports.ts";
import type { Store } from "../store/store.ts";
import type { PrivateNetwork } from "./schema.ts";

export interface NetworksOptions {
  readonly store: Store;
  readonly containers: Containers;
  readonly engine: Pick<Engine, "containers">;
}

export class Networks {
  readonly #store: Store;
  readonly #containers: Containers;
  readonly #engine: NetworksOptions["engine"];

  constructor({ store, containers, engine }: NetworksOptions) {
    this.#store = store;
    this.#containers = containers;
    this.#engine = engine;
  }

  async list(tenant_id: string): Promise<readonly PrivateNetwork[]> {
    const networks = new Map<string, PrivateNetwork["members"]>();
    for (const { id, name, state, network } of await readNetworkMembers(this.#store, tenant_id)) {
      const members = networks.get(network) ?? [];
      networks.set(network, members);
      const ip_address = this.#engine.containers.live(id)?.address ?? null;
      members.push({ container_id: id, name, state, ip_address });
    }
    return [...networks].map(([name, members]) => ({ name, members }));
  }

  entries(tenant_id: string) {
    return this.#engine.containers.names(tenant_id).map(({ id, name, address, network, full_names, ttl_seconds }) => ({
      container_id: id,
      container_name: name,
      ip_address: address,
      network,
      names: [...full_names],
      ttl: ttl_seconds,
    }));
  }

  /** Renames a container by its name. Throws NOT_FOUND unless it has names, and as `Containers.rename`. */
  async rename(tenant_id: string, name: string, new_name: string) {
    const found = await this.#containers.byName(tenant_id, name);
    if (found === null || (found.network === null && !found.dns)) {
      throw new AppError("NOT_FOUND", `DNS entry '${name}' not found`, {
        hint: "containers with network or dns have entries",
      });
    }
    const { id, ...renamed } = await this.#containers.rename(tenant_id, found.container_id, new_name);
    return { container_id: id, new_name, ...renamed };
  }
}
