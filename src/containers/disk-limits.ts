/** Limits of the disks of containers that were made without one, in a tenant that has a limit since then. */
import { errorText } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Ended, Engine } from "../engine/ports.ts";
import type { Store } from "../store/store.ts";
import type { Admission } from "./admission.ts";
import type { ContainerRow } from "./rows.ts";

interface Parts {
  readonly engine: Engine;
  readonly store: Store;
  readonly log: Log;
}

/** Sets the limit that a new container would get, also on running containers. `tenant_id`: null for all tenants. */
export async function limitDisks(admission: Admission, parts: Parts, tenant_id: string | null): Promise<void> {
  for (const one of await admission.rows.withoutDiskLimit(tenant_id)) await limitDisk(admission, parts, one);
}

async function limitDisk(
  { rows, quotas }: Admission,
  { engine, store, log }: Parts,
  { id, tenant_id }: Pick<ContainerRow, "id" | "tenant_id">,
): Promise<void> {
  const limit_mb = quotas.diskLimitMb(tenant_id, null);
  if (limit_mb === null) return;
  try {
    await engine.storage.setLimit("containers", id, limit_mb);
    await store.write([rows.setDiskLimit(id, limit_mb)]);
  } catch (error) {
    log.warn("cannot set the disk limit of a container", { container_id: id, error: errorText(error) });
  }
}

/** Starts a container. The start sets the limit of the row, so a limit that came meanwhile is set again. */
export async function startLimited(admission: Admission, parts: Parts, row: ContainerRow): Promise<Ended | null> {
  const ended = await parts.engine.containers.start({ ...row, has_socket: true });
  if (row.disk_limit_mb === null) await limitDisk(admission, parts, row);
  return ended;
}
