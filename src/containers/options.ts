/** The dependencies of the services of containers. */
import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { Engine } from "../engine/ports.ts";
import type { Events } from "../events/service.ts";
import type { Store, StoredNode } from "../store/store.ts";
import type { Volumes } from "../volumes/service.ts";
import type { ImageContracts, ResolveImage } from "./admission.ts";
import type { CleanupTasks } from "./cleanup/tasks.ts";
import type { DesktopChecks } from "./desktop.ts";
import type { Addresses } from "./network/addresses.ts";
import type { HostPorts } from "./network/ports.ts";

export interface ContainersOptions {
  readonly store: Store;
  /** This node, which holds the containers that are created here. */
  readonly node: StoredNode;
  readonly engine: Engine;
  readonly events: Events;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly containers_max: number;
  readonly quotas: Quotas;
  readonly ports: HostPorts;
  readonly addresses: Addresses;
  readonly tasks: CleanupTasks;
  readonly resolveImage: ResolveImage;
  readonly contracts: ImageContracts;
  readonly volumes: Volumes;
  readonly desktops: DesktopChecks;
}
