/** Composes the parts that hold API containers and volumes, and that run commands, terminals and desktops in containers. */
import type { Clock } from "./base/clock.ts";
import { type Config, ownPorts } from "./base/config.ts";
import type { Ids } from "./base/ids.ts";
import type { Log } from "./base/log.ts";
import type { Quotas } from "./base/tenant-limits.ts";
import { TenantShares } from "./base/tenant-shares.ts";
import { Cleanup } from "./containers/cleanup/service.ts";
import { CleanupTasks } from "./containers/cleanup/tasks.ts";
import { Execs } from "./containers/exec/exec.ts";
import { Jobs } from "./containers/exec/jobs.ts";
import { CommandSockets } from "./containers/exec/sockets.ts";
import { Monitors } from "./containers/monitors/service.ts";
import { Addresses, type Reservation } from "./containers/network/addresses.ts";
import { LocalPorts } from "./containers/network/ports.ts";
import { ContainerNetworks } from "./containers/network/service.ts";
import { Preparation } from "./containers/preparation.ts";
import { Containers } from "./containers/service.ts";
import { ContainerVerbs } from "./containers/verbs.ts";
import type { Engine } from "./engine/ports.ts";
import type { Events } from "./events/service.ts";
import { Backends } from "./gui/backends.ts";
import { Desktops } from "./gui/service.ts";
import type { ImageContracts } from "./nightly/contracts.ts";
import type { Profiles } from "./nightly/service.ts";
import type { TenantImages } from "./oci/service.ts";
import type { Operations } from "./operations/service.ts";
import { imageResolver } from "./profiles.ts";
import type { Store, StoredNode } from "./store/store.ts";
import { Terminals } from "./terminal/service.ts";
import { Volumes } from "./volumes/service.ts";
import { VolumeVerbs } from "./volumes/verbs.ts";

interface Parts {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly ids: Ids;
  readonly store: Store;
  readonly node: StoredNode;
  readonly engine: Engine;
  readonly events: Events;
  readonly operations: Operations;
  readonly quotas: Quotas;
  readonly tenant_images: TenantImages;
  /** Addresses that containers of this node keep. */
  readonly reserved: readonly Reservation[];
  readonly profiles: Profiles;
  readonly contracts: ImageContracts;
}

export function makeContainers(parts: Parts) {
  const { config, clock, log, ids, store, node, engine, events, operations, quotas } = parts;
  const { tenant_images, reserved, profiles, contracts } = parts;
  const shares = new TenantShares(quotas);
  const ports = new LocalPorts({
    ids,
    range: config.host_ports,
    own: ownPorts(config),
    publications: () => engine.containers.publications(),
  });
  const addresses = new Addresses(() => engine.networks, reserved);
  const tasks = new CleanupTasks({ clock, ids });
  const volumes = new Volumes({ store, node, storage: () => engine.storage, events, clock, ids, log, quotas });
  const backends = new Backends({ containers: engine.containers, clock });
  const containers = new Containers({
    store,
    node,
    engine,
    events,
    clock,
    log,
    ids,
    containers_max: config.containers_max,
    quotas,
    ports,
    addresses,
    tasks,
    resolveImage: imageResolver(profiles, tenant_images),
    contracts,
    volumes,
    desktops: backends,
  });
  const jobs = new Jobs(store, node, events);
  const execs = new Execs({ containers, engine, jobs, shares, clock, ids, log });
  const commandSockets = new CommandSockets({ execs, containers, engine, shares, clock });
  const idle_ms = config.terminal_idle_seconds * 1_000;
  const ttl_ms = config.terminal_ttl_seconds * 1_000;
  const terminals = new Terminals({ shells: execs, shares, engine, events, clock, ids, log, idle_ms, ttl_ms });
  const desktops = new Desktops({ containers, commands: execs, engine, backends, clock, ids });
  const volumeVerbs = new VolumeVerbs(volumes, operations, () => engine.files);
  const verbs = new ContainerVerbs(containers, operations, new Preparation(profiles));
  const views = {
    networks: new ContainerNetworks({ containers, addresses, engine, events, store, node, clock }),
    monitors: new Monitors({ containers, engine, store, node, clock }),
    cleanup: new Cleanup({ tasks, containers, volumes }),
  };
  return {
    containers,
    volumes,
    volumeVerbs,
    execs,
    commandSockets,
    jobs,
    verbs,
    terminals,
    desktops,
    shares,
    ports,
    views,
  };
}
