/**
 * The engine on this machine: function instances (instances/), API containers (containers/), and the resources that both
 * share (host/). This file puts them together and defines the order of start and end.
 */

import { sleep } from "../base/clock.ts";
import { together } from "../base/concurrency.ts";
import { errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import { LocalContainers } from "./containers/containers.ts";
import type { Sorted } from "./host/adoption.ts";
import { EngineHost, type HostOptions } from "./host/host.ts";
import { LocalInstances } from "./instances/instances.ts";
import { removeGroup } from "./kernel/control-groups.ts";
import { connectionBudget } from "./kernel/kernel-budgets.ts";
import type { Files } from "./ports/files.ts";
import type { Gpus } from "./ports/gpus.ts";
import type { Images } from "./ports/images.ts";
import type { Adopted } from "./ports/instances.ts";
import type { EngineInfo } from "./ports/machine.ts";
import type { Networks } from "./ports/networks.ts";
import type { Storage } from "./ports/storage.ts";
import type { Engine } from "./ports.ts";
import { isPoolHeld } from "./storage/storage-pool.ts";

/** Interval between attempts to mount a storage pool that the dead still hold. */
const POOL_LOOK_MS = 50;

export type EngineOptions = HostOptions;

export class LocalEngine implements Engine {
  readonly instances: LocalInstances;
  readonly containers: LocalContainers;
  readonly #host: EngineHost;

  constructor(options: EngineOptions) {
    this.#host = new EngineHost(options);
    this.instances = new LocalInstances(this.#host);
    this.containers = new LocalContainers(this.#host);
  }

  get networks(): Networks {
    return this.containers.networks;
  }

  get images(): Images {
    return this.#host.images;
  }

  get files(): Files {
    return this.#host.files;
  }

  get gpus(): Gpus {
    return this.#host.gpus;
  }

  get storage(): Storage {
    return this.#host.storage;
  }

  async boot(reserved: readonly string[] = []): Promise<readonly Adopted[]> {
    const host = this.#host;
    for (const address of reserved) host.network.reserve(address, true);
    const found = await host.begin();
    const areAdoptable = await this.instances.begin();
    host.writeResolvConf();
    host.writeTrust();
    const mounting = host.images.pin(found, areAdoptable);
    const [{ sorted, adopted }] = await together(
      this.#openStorage().then(() => this.#takeOver()),
      mounting,
    );
    failpoint("engine.boot.adopted");
    host.startThreads();
    await this.instances.prepare(sorted);
    await this.containers.begin();
    this.instances.clear(sorted);
    return adopted;
  }

  flowsRefused(): Promise<number> {
    return this.#host.network.flowsRefused();
  }

  openPort(port: number): Promise<void> {
    return this.#host.network.openPort(port);
  }

  async openNames(): Promise<void> {
    const { names, network } = this.#host;
    await network.openNames(await names.open());
  }

  info(): EngineInfo {
    const { config } = this.#host.options;
    const { runtime } = this.#host;
    return {
      oci_runtime: runtime.command,
      oci_runtime_version: runtime.version,
      cgroup_mode: this.#host.mode,
      image: this.#host.images.pinned.reference,
      image_release: this.#host.images.pinned.release,
      subnet: config.subnet,
      gateway: this.#host.network.gateway,
      bridge: config.bridge,
      user_namespaces: this.#host.users.info,
      budgets: [...this.#host.budgets, connectionBudget(config.flows_max, this.#host.refused_count)],
    };
  }

  async shutdown(): Promise<void> {
    const host = this.#host;
    const { log } = host.options;
    host.endRetries();
    host.names.close();
    await host.launcher().catch(() => {});
    await this.instances.settle();
    failpoint("engine.stop.begun");
    host.tenants.leaveHelpers();
    const living = await this.containers.letGo();
    if (living?.length === 0) await host.closeStorage();
    await host.endThreads();
    await this.instances.removeAll();
    const failed = (error: unknown) => log.warn("cannot remove the network", { error: errorText(error) });
    // Containers that this boot has not found may run: the next start adopts them with the network and the sockets.
    if (living !== null) await host.network.shutdown(living).catch(failed);
    failpoint("engine.stop.unlinked");
    removeGroup(host.mode, host.instances.cgroup);
    await host.end(living?.length === 0);
  }

  /**
   * Mounts the storage pool. A file system that an error has made read-only, such as that of a full disk, can be mounted again once
   * nothing holds it: then all that an earlier process left is ended, as by a reboot.
   */
  async #openStorage(): Promise<void> {
    const { log, clock } = this.#host.options;
    const end_ms = clock.monotonicMs() + LIMITS.storage_pool_free_wait_ms;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#host.openStorage();
      } catch (error) {
        if (!isPoolHeld(error) || clock.monotonicMs() > end_ms) throw error;
        if (attempt === 1) {
          const why = { error: errorText(error) };
          log.error("the storage pool is read-only after an error: ending all containers, to mount it again", why);
          await together(this.instances.removeAll(), this.containers.endLeft());
        }
        // The kernel lets go of it some moments after the last process.
        await sleep(clock, POOL_LOOK_MS);
      }
    }
  }

  /** Adopts or removes the containers of an earlier process, and brings up the network around those that live on. */
  async #takeOver(): Promise<{ readonly sorted: Sorted; readonly adopted: readonly Adopted[] }> {
    const { network, options } = this.#host;
    const [sorted, kept] = await together(this.instances.sort(), this.containers.takeOver());
    const adopted = await this.instances.adopt(sorted);
    const { survivors, doomed } = sorted;
    await network.boot([...[...survivors, ...doomed].map(({ slot }) => slot), ...kept], survivors.length === 0);
    if (survivors.length + doomed.length > 0) {
      options.log.info("found instances of a previous daemon", {
        adopted: survivors.length,
        removing: doomed.length,
      });
    }
    return { sorted, adopted };
  }
}
