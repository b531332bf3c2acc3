/** Composes the parts that take snapshots and make copies of containers from them. */
import type { Clock } from "./base/clock.ts";
import type { Ids } from "./base/ids.ts";
import type { Log } from "./base/log.ts";
import type { Quotas } from "./base/tenant-limits.ts";
import type { Containers } from "./containers/service.ts";
import type { Engine } from "./engine/ports.ts";
import type { Events } from "./events/service.ts";
import type { Operations } from "./operations/service.ts";
import { Comparisons } from "./snapshots/changes.ts";
import { Copies } from "./snapshots/copies.ts";
import { Exports, type ImageMaker } from "./snapshots/exports.ts";
import { Restore } from "./snapshots/restore.ts";
import { Schedules } from "./snapshots/schedules.ts";
import { Snapshots } from "./snapshots/service.ts";
import { Settling } from "./snapshots/settling.ts";
import { Taking } from "./snapshots/taking.ts";
import type { Store, StoredNode } from "./store/store.ts";
import type { Volumes } from "./volumes/service.ts";

interface Parts {
  readonly store: Store;
  readonly node: StoredNode;
  readonly engine: Engine;
  readonly events: Events;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Quotas;
  readonly operations: Operations;
  readonly containers: Containers;
  readonly volumes: Volumes;
  readonly commits: ImageMaker;
}

export function makeSnapshots(parts: Parts) {
  const snapshots = new Snapshots({ ...parts, storage: () => parts.engine.storage });
  const settling = new Settling({ ...parts, snapshots });
  const taking = new Taking({ ...parts, snapshots });
  const copies = new Copies({ ...parts, snapshots, taking });
  const restore = new Restore({ ...parts, snapshots });
  const comparisons = new Comparisons({ ...parts, snapshots });
  const exports = new Exports({ ...parts, snapshots, settling, images: parts.commits });
  const schedules = new Schedules({ ...parts, snapshots, taking });
  return { snapshots, settling, taking, copies, restore, comparisons, exports, schedules };
}
