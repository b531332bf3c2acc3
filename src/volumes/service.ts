/**
 * Volumes: file systems with a name and a quota of their own, which containers mount and which outlive them. The bytes
 * are the engine's (subvolumes of the storage pool, reached through a jailed helper); here are names, records and who may.
 *
 * M1 A volume is not deleted while a container has it, whether it runs or not: both sides are held in SQL beside the
 *    change itself.
 */
import { unknownCredential } from "../base/caller.ts";
import type { Clock } from "../base/clock.ts";
import { toEpochSeconds } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import { counted } from "../base/plurals.ts";
import { Retries } from "../base/retries.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { Storage, SubvolumeName } from "../engine/ports.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import { type Guard, heldElsewhere, type Store, type StoredNode } from "../store/store.ts";
import { type VolumeRow, VolumeRows } from "./rows.ts";
import type { CreateVolume, VolumeRecord } from "./schema.ts";
import { volumeStates } from "./states.ts";

/** Largest number of volumes that one log line names. */
const LOST_NAMED_MAX = 10;

export interface VolumesOptions {
  readonly store: Store;
  readonly node: StoredNode;
  /** There when the engine has booted. */
  readonly storage: () => Storage;
  readonly events: Events;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Quotas;
}

export class Volumes {
  readonly #options: VolumesOptions;
  readonly #rows: VolumeRows;
  /** Removals that failed. */
  readonly #retries: Retries;

  constructor(options: VolumesOptions) {
    this.#options = options;
    this.#rows = new VolumeRows(options.store, options.node);
    const { clock, log } = options;
    this.#retries = new Retries({ clock, log, what: "volume", later: (_id, attempt) => attempt() });
  }

  /** Begins no more attempts at removals. */
  close(): void {
    this.#retries.close();
  }

  /** Finds what a crash left, before anything is made, and removes it in the background. */
  async boot(): Promise<void> {
    const { storage, log } = this.#options;
    const { all, held, ending } = await this.#rows.ids();
    const found = new Set(await storage().list("volumes"));
    const lost = held.filter((id) => !found.has(id));
    if (lost.length > 0) {
      const volumes = lost.slice(0, LOST_NAMED_MAX).join(" ");
      log.error("the storage pool lacks files of volumes: restore it from a backup", { count: lost.length, volumes });
    }
    const known = new Set(all);
    const unknown = [...found].filter((id) => !known.has(id));
    await this.limitDisks(null);
    const clear = async () => {
      for (const id of unknown) await this.#sweep(id);
      for (const id of ending) await this.#erase(id).catch(() => {});
    };
    void clear();
  }

  /**
   * Gives volumes without a quota the one that a new volume would get, if their tenant has a limit by now. `tenant_id`:
   * null for all tenants.
   */
  async limitDisks(tenant_id: string | null): Promise<void> {
    for (const one of await this.#rows.withoutQuota(tenant_id)) await this.#limit(one);
  }

  async #limit({ id, tenant_id }: Pick<VolumeRow, "id" | "tenant_id">): Promise<void> {
    const { storage, quotas, store, log } = this.#options;
    const quota_mb = quotas.diskLimitMb(tenant_id, null);
    if (quota_mb === null) return;
    try {
      await storage().setLimit("volumes", id, quota_mb);
      await store.write([this.#rows.setQuota(id, quota_mb)]);
    } catch (error) {
      log.warn("cannot set the quota of a volume", { volume_id: id, error: errorText(error) });
    }
  }

  /** Throws NAME_TAKEN, QUOTA_EXCEEDED, CAPACITY_FULL. */
  create(tenant_id: string, input: Pick<CreateVolume, "name" | "labels" | "quota_mb">): Promise<VolumeRecord> {
    return this.#create(tenant_id, input, async (id, quota_mb) => {
      await this.#options.storage().create("volumes", id, quota_mb, tenant_id);
    });
  }

  /** Makes a volume with the files of a subvolume. Throws as `create`, and NOT_FOUND where that is gone. */
  copy(
    tenant_id: string,
    from: SubvolumeName,
    input: Pick<CreateVolume, "name" | "labels" | "quota_mb">,
  ): Promise<VolumeRecord> {
    return this.#create(tenant_id, input, async (id, quota_mb) => {
      await this.#options.storage().snapshot(from, { kind: "volumes", id }, false, quota_mb, tenant_id);
    });
  }

  async #create(
    tenant_id: string,
    input: Pick<CreateVolume, "name" | "labels" | "quota_mb">,
    make: (id: string, quota_mb: number | null) => Promise<void>,
  ): Promise<VolumeRecord> {
    const { ids, quotas } = this.#options;
    const id = ids.next("vol");
    const quota_mb = quotas.diskLimitMb(tenant_id, input.quota_mb);
    const guards = quotas.guards(tenant_id, { volumes_max: 1, disk_mb_max: quota_mb ?? 0 });
    // Once more in the batch below; here, so that a tenant at its limit makes no work for the disk.
    await this.#check(guards);
    try {
      await make(id, quota_mb);
      failpoint("volumes.create.made");
      const [tenant, insert] = this.#rows.insert(tenant_id, id, { ...input, quota_mb }, this.#now());
      const checks: readonly Guard[] = [
        { statement: tenant, refusal: unknownCredential },
        ...guards,
        { statement: insert, refusal: () => nameTaken(input.name) },
      ];
      const statements = checks.map(({ statement }) => statement);
      const { conflict } = await this.#write(statements, { id, name: input.name, tenant_id }, "created");
      if (conflict !== null) throw checks[conflict]?.refusal();
    } catch (error) {
      await this.#sweep(id);
      throw error;
    }
    // The tenant may have got its limit while the volume was made.
    if (quota_mb === null) await this.#limit({ id, tenant_id });
    return this.get(tenant_id, input.name);
  }

  async #check(guards: readonly Guard[]): Promise<void> {
    if (guards.length === 0) return;
    const { conflict } = await this.#options.store.write(guards.map(({ statement }) => statement));
    if (conflict !== null) throw guards[conflict]?.refusal();
  }

  /** Throws NAME_TAKEN if the tenant has a volume of the name now. */
  async checkFree(tenant_id: string, name: string): Promise<void> {
    const isTaken = await this.row(tenant_id, name).then(
      () => true,
      (error) => {
        if (error instanceof AppError && error.code === "NOT_FOUND") return false;
        throw error;
      },
    );
    if (isTaken) throw nameTaken(name);
  }

  async get(tenant_id: string, name: string): Promise<VolumeRecord> {
    return this.#record(await this.row(tenant_id, name));
  }

  list(tenant_id: string, place: Place): Promise<Listed<VolumeRecord>> {
    return this.#rows.list(tenant_id, place, (row) => this.#record(row));
  }

  /** With what it holds and who has it. */
  async inspect(tenant_id: string, name: string) {
    const row = await this.held(tenant_id, name);
    const [{ referenced_bytes }, container_ids] = await Promise.all([
      this.#options.storage().usage("volumes", row.id),
      this.#rows.users(row.id),
    ]);
    return { ...this.#record(row), used_bytes: referenced_bytes, container_ids };
  }

  async row(tenant_id: string, name: string): Promise<VolumeRow> {
    const row = await this.#rows.byName(tenant_id, name);
    if (row === null) throw new AppError("NOT_FOUND", `volume '${name}' not found`);
    return row;
  }

  /** Null: the tenant has no such volume, or it is being deleted. */
  async active(tenant_id: string, id: string): Promise<VolumeRow | null> {
    const row = await this.#rows.byId(id);
    return row?.tenant_id === tenant_id && row.status === "active" ? row : null;
  }

  /** Like `row`, for work that needs more than the store. Throws WRONG_STATE if another node holds the volume. */
  async held(tenant_id: string, name: string): Promise<VolumeRow> {
    const row = await this.row(tenant_id, name);
    this.#checkHeld(row);
    return row;
  }

  #checkHeld(row: VolumeRow): void {
    if (!this.#rows.isHeld(row)) throw heldElsewhere(`volume '${row.name}'`);
  }

  /** Where its files are, as the engine's helpers see it. Throws NOT_FOUND, WRONG_STATE while it is being deleted. */
  async root(tenant_id: string, name: string): Promise<{ readonly row: VolumeRow; readonly root: string }> {
    const row = await this.held(tenant_id, name);
    volumeStates.next(row.status, "delete");
    return { row, root: this.#options.storage().subvolume("volumes", row.id) };
  }

  async rename(tenant_id: string, name: string, new_name: string): Promise<VolumeRow> {
    const row = await this.row(tenant_id, name);
    volumeStates.next(row.status, "delete");
    const statement = this.#rows.rename(tenant_id, row.id, new_name, this.#now());
    const { conflict } = await this.#write([statement], { ...row, name: new_name }, "renamed");
    if (conflict !== null) throw nameTaken(new_name);
    return row;
  }

  /** Throws NOT_FOUND, WRONG_STATE, IN_USE. */
  async checkDelete(tenant_id: string, name: string): Promise<VolumeRow> {
    const row = await this.held(tenant_id, name);
    const users = await this.#rows.users(row.id);
    if (users.length > 0) throw inUse(row, users);
    return row;
  }

  /** Deletes a volume by id, also one whose deletion was begun; nothing to do for one that is gone. Throws WRONG_STATE, IN_USE. */
  async delete(id: string): Promise<void> {
    const row = await this.#rows.byId(id);
    if (row === null) return;
    this.#checkHeld(row);
    if (row.status === "active") {
      const { conflict } = await this.#write([this.#rows.end(id, this.#now())], row, "removing");
      if (conflict !== null) throw inUse(row, await this.#rows.users(id));
    }
    failpoint("volumes.delete.ended");
    await this.#erase(id);
  }

  /**
   * Deletes all that a tenant has on this node, for the tenant's own deletion: after its containers. Safe to repeat. Throws
   * WRONG_STATE where another node still holds some.
   */
  async eraseAll(tenant_id: string): Promise<void> {
    for (const id of await this.#rows.ofTenant(tenant_id)) await this.delete(id);
  }

  /** Removes a volume whose deletion was begun. A removal that fails is repeated for a while, and at the next start. */
  #erase(id: string): Promise<void> {
    return this.#retries.run(id, async () => {
      const row = await this.#rows.byId(id);
      await this.#options.storage().remove("volumes", id);
      failpoint("volumes.delete.removed");
      if (row !== null) await this.#write([this.#rows.delete(id)], row, "removed");
    });
  }

  /** Removes the files of a volume that the store does not know. Resolves after the first attempt; repeated like `#erase`. */
  async #sweep(id: string): Promise<void> {
    const sweeping = this.#retries.run(id, async () => {
      // A write that was refused may have been carried out.
      if ((await this.#rows.byId(id)) === null) await this.#options.storage().remove("volumes", id);
    });
    await sweeping.catch(() => {});
  }

  #write(
    statements: Parameters<Events["write"]>[0],
    row: Pick<VolumeRow, "id" | "name" | "tenant_id">,
    event_type: string,
  ) {
    const event: NewEvent = { name: "volume_update", event_type, data: { volume_id: row.id, volume: row.name } };
    return this.#options.events.write(statements, row.tenant_id, [event], { durable: true });
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }

  #record({ node_seq: _, ...row }: VolumeRow): VolumeRecord {
    return {
      ...row,
      labels: { ...row.labels },
      driver: "local",
      mount_point: `/volumes/${row.name}`,
      options: {},
    };
  }
}

function nameTaken(name: string): AppError {
  return new AppError("NAME_TAKEN", `a volume named '${name}' exists`, { hint: "delete it, or choose another name" });
}

function inUse({ name }: VolumeRow, users: readonly string[]): AppError {
  return new AppError("IN_USE", `volume '${name}' is in use by ${counted(users.length, "container")}`, {
    details: { received: users.slice(0, 10).join(", ") },
    hint: "delete the containers first",
  });
}
