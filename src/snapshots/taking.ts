/**
 * Takes snapshots: operations that copy the files of a container, and of the volumes that are to be included, at one
 * moment. What forks are copied from is taken the same way, without a record.
 *
 * A1 A row is there from the acceptance on, and is complete or gone when the operation has ended. One that a crash cut
 *    short is taken anew.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import { type ContainerRow, type Containers, settingsOf } from "../containers/service.ts";
import type { Engine, SnapshotPair, SubvolumeName } from "../engine/ports.ts";
import type { OperationRecord } from "../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../operations/service.ts";
import type { Guard, Once, StoredNode } from "../store/store.ts";
import type { Volumes } from "../volumes/service.ts";
import { betweenHooks, type Hooks, hookWarnings, NO_HOOKS } from "./hooks.ts";
import type { KeptVolume, SnapshotDetails, SnapshotRow } from "./rows.ts";
import type { CreateSnapshot } from "./schema.ts";
import { SNAPSHOT_KIND, type Snapshots } from "./service.ts";

/** The modes of a snapshot of a container. */
export type Modes = Pick<CreateSnapshot, "consistency_mode" | "network_mode" | "volume_mode" | "volumes">;

/** A request, or a snapshot of a schedule. */
type Scheduled = CreateSnapshot & { readonly is_scheduled?: boolean };

/** The volumes and warnings of a snapshot, known before it is taken. */
export interface Plan {
  readonly volumes: readonly KeptVolume[];
  readonly warnings: readonly string[];
  readonly capability_downgrades: readonly string[];
}

/** A moment of a container that was taken. */
export interface Moment {
  readonly pause_ms: number | null;
  readonly hooks: Hooks;
  readonly warnings: readonly string[];
}

export interface TakingOptions {
  readonly snapshots: Snapshots;
  readonly containers: Containers;
  readonly volumes: Volumes;
  readonly engine: Engine;
  readonly operations: Operations;
  readonly node: StoredNode;
  readonly clock: Clock;
}

interface Input {
  readonly snapshot_id: string;
}

export class Taking {
  readonly #options: TakingOptions;

  constructor(options: TakingOptions) {
    this.#options = options;
    options.operations.register<Input>("snapshot.create", {
      resumable: true,
      cancellable: false,
      timeout_ms: LIMITS.snapshot_operation_ms,
      running_max: LIMITS.snapshot_operations_at_once,
      running_per_tenant_max: LIMITS.snapshot_operations_per_tenant_at_once,
      run: (context) => this.#run(context),
    });
  }

  /** Checks what is asked for against the container. `id`: prefix of the subvolumes. Throws INVALID_ARGUMENT. */
  async plan(row: ContainerRow, modes: Modes, id: string): Promise<Plan> {
    const found = await Promise.all(row.volumes.map((one) => this.#options.volumes.active(row.tenant_id, one.id)));
    const mounted = row.volumes.flatMap(({ target }, i) => {
      const volume = found[i] ?? null;
      return volume === null ? [] : [{ id: volume.id, name: volume.name, quota_mb: volume.quota_mb, target }];
    });
    const named = modes.volumes ?? null;
    const unknown = named?.find((name) => !mounted.some((volume) => volume.name === name));
    if (unknown !== undefined) {
      throw new AppError("INVALID_ARGUMENT", `volumes: the container does not mount the volume '${unknown}'`, {
        details: { expected: mounted.map(({ name }) => name), received: unknown },
      });
    }
    // `include_named` without a list names all.
    const isIncluded = ({ name }: { readonly name: string }) =>
      modes.volume_mode !== "exclude" &&
      (modes.volume_mode === "include_all_allowed" || named?.includes(name) !== false);
    const excluded = mounted.filter((volume) => !isIncluded(volume));
    return {
      volumes: mounted.filter(isIncluded).map((volume, i) => ({ ...volume, subvolume: `${id}-v${i}` })),
      warnings: excluded.map(({ name, target }) => `volume '${name}' at ${target} is not included`),
      capability_downgrades: networkDowngrades(modes),
    };
  }

  /** Throws NOT_FOUND, INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async accept(tenant_id: string, row: ContainerRow, body: Scheduled, once: Once | null): Promise<OperationRecord> {
    const { snapshots } = this.#options;
    const id = snapshots.newId();
    const plan = await this.plan(row, body, id);
    const snapshot = this.#row(id, row, body, plan);
    return this.#accept(tenant_id, snapshot, { type: "container", id: row.id }, once);
  }

  /** Takes a snapshot of a volume alone. Throws QUOTA_EXCEEDED. */
  async acceptVolume(
    tenant_id: string,
    volume: { readonly id: string; readonly name: string; readonly quota_mb: number | null },
    body: Pick<CreateSnapshot, "name" | "labels" | "ttl_seconds"> & { readonly is_scheduled?: boolean },
    once: Once | null,
  ): Promise<OperationRecord> {
    const { snapshots } = this.#options;
    const id = snapshots.newId();
    const kept = { id: volume.id, name: volume.name, quota_mb: volume.quota_mb, target: "", subvolume: id };
    const snapshot: SnapshotRow = {
      ...this.#common(id, tenant_id, body),
      container_id: null,
      volume_id: volume.id,
      source_name: volume.name,
      parent_id: await snapshots.headOfVolume(volume.id),
      details: {
        ...{ consistency_mode: "crash-consistent", network_mode: "reset", volume_mode: "include_named" },
        ...{ settings: null, volumes: [kept], pause_ms: null, hooks: NO_HOOKS },
        ...{ warnings: [], capability_downgrades: [] },
      },
    };
    return this.#accept(tenant_id, snapshot, { type: "volume", id: volume.id }, once);
  }

  /** Copies the files of a container and of volumes at one moment, as the subvolume `to` and as `volumes` says. */
  async moment(row: ContainerRow, modes: Modes, to: SubvolumeName, volumes: readonly KeptVolume[]): Promise<Moment> {
    const { containers, engine } = this.#options;
    const isLive = engine.containers.live(row.id) !== null;
    const pairs: SnapshotPair[] = volumes.map((volume) => ({
      from: { kind: "volumes", id: volume.id },
      to: { kind: SNAPSHOT_KIND, id: volume.subvolume },
    }));
    const take = () =>
      // It is neither started nor deleted meanwhile.
      containers.inTurn(row.id, async () => {
        await containers.held(row.tenant_id, row.id);
        return engine.containers.snapshot(row.id, to, pairs, row.tenant_id);
      });
    const isAppConsistent = modes.consistency_mode === "app-consistent";
    const { result, hooks } = isAppConsistent
      ? await betweenHooks(engine.containers, row, to.id, take)
      : { result: await take(), hooks: NO_HOOKS };
    const unfrozen =
      isLive && !result.isFrozen
        ? [`the container was not frozen within ${LIMITS.freeze_ms_max} ms: each of its subvolumes is of one moment`]
        : [];
    return {
      pause_ms: result.isFrozen ? result.pause_ms : null,
      hooks,
      warnings: [...(isAppConsistent ? hookWarnings(hooks, isLive) : []), ...unfrozen],
    };
  }

  #common(
    id: string,
    tenant_id: string,
    {
      name,
      labels,
      ttl_seconds,
      is_scheduled = false,
    }: Pick<CreateSnapshot, "name" | "labels" | "ttl_seconds"> & { readonly is_scheduled?: boolean },
  ) {
    const created_at = toEpochSeconds(this.#options.clock.epochMs());
    return {
      ...{ id, tenant_id, node_seq: this.#options.node.seq, state: "creating" as const, name: name ?? null },
      ...{ is_pinned: false, is_scheduled, created_at, labels, size_bytes: null },
      ...{ ttl_seconds: ttl_seconds ?? null, expires_at: ttl_seconds == null ? null : created_at + ttl_seconds },
    };
  }

  #row(
    id: string,
    row: ContainerRow,
    body: Scheduled,
    { volumes, warnings, capability_downgrades }: Plan,
  ): SnapshotRow {
    const { consistency_mode, network_mode, volume_mode } = body;
    const details: SnapshotDetails = {
      ...{ consistency_mode, network_mode, volume_mode, settings: settingsOf(row), volumes, pause_ms: null },
      ...{ hooks: NO_HOOKS, warnings, capability_downgrades },
    };
    return {
      ...this.#common(id, row.tenant_id, body),
      ...{ container_id: row.id, volume_id: null, source_name: row.name, parent_id: row.head_snapshot_id, details },
    };
  }

  async #accept(
    tenant_id: string,
    row: SnapshotRow,
    target: { readonly type: string; readonly id: string },
    once: Once | null,
  ): Promise<OperationRecord> {
    const checks: readonly Guard[] = this.#options.snapshots.insertChecks(row);
    const extra = handleOf(row);
    const made = { type: "snapshot", id: row.id };
    return this.#options.operations.accept(
      tenant_id,
      { type: "snapshot.create", target, made, input: { snapshot_id: row.id } satisfies Input, once, extra },
      {
        statements: checks.map(({ statement }) => statement),
        refusal: (index) => checks[index]?.refusal() ?? new AppError("INTERNAL", "a check has no refusal"),
      },
    );
  }

  async #run({ input, signal }: OperationContext<Input>): Promise<OperationResult> {
    const { snapshots } = this.#options;
    const row = await snapshots.byIdAlone(input.snapshot_id);
    if (row === null || row.state === "deleting") {
      throw new AppError("WRONG_STATE", "the snapshot was deleted before it was taken");
    }
    // An earlier process finished it.
    if (row.state === "ready") return resultOf(row);
    try {
      const details = row.container_id === null ? await this.#takeVolume(row) : await this.#takeContainer(row);
      failpoint("snapshots.create.taken");
      await snapshots.finish(row, details, await this.#size(row));
      return resultOf({ ...row, details });
    } catch (error) {
      // Otherwise the next process takes it.
      if (!isDraining(signal)) await snapshots.discard(row);
      throw error instanceof AppError && error.code === "NOT_FOUND" && row.container_id !== null
        ? new AppError("NOT_FOUND", "the container was deleted before its snapshot was taken")
        : error;
    }
  }

  async #takeContainer(row: SnapshotRow): Promise<SnapshotDetails> {
    const { details, tenant_id } = row;
    const container = await this.#options.containers.held(tenant_id, row.container_id ?? "");
    const modes = { ...details, volumes: details.volumes.map(({ name }) => name) };
    const moment = await this.moment(container, modes, { kind: SNAPSHOT_KIND, id: row.id }, details.volumes);
    const { pause_ms, hooks } = moment;
    return { ...details, pause_ms, hooks, warnings: [...details.warnings, ...moment.warnings] };
  }

  async #takeVolume(row: SnapshotRow): Promise<SnapshotDetails> {
    const { storage } = this.#options.engine;
    const from = { kind: "volumes" as const, id: row.volume_id ?? "" };
    await storage.snapshots([{ from, to: { kind: SNAPSHOT_KIND, id: row.id } }], true, null, row.tenant_id);
    return row.details;
  }

  /** Returns the size in bytes; if the count takes too long, an upper bound. */
  async #size(row: SnapshotRow): Promise<number> {
    const space = await this.#options.snapshots.measureNew(row);
    if (space !== null) return space.total_bytes;
    const { storage } = this.#options.engine;
    const sources = [
      ...(row.container_id === null ? [] : [{ kind: "containers" as const, id: row.container_id }]),
      ...row.details.volumes.map(({ id }) => ({ kind: "volumes" as const, id })),
    ];
    let bytes = 0;
    for (const { kind, id } of sources) bytes += (await storage.usage(kind, id)).referenced_bytes;
    return bytes;
  }
}

/** Fields of the handle of a snapshot. */
export const handleOf = ({ id, container_id, source_name }: SnapshotRow) => ({
  snapshot_id: id,
  source_container_id: container_id,
  source_container_name: container_id === null ? null : source_name,
});

function resultOf({ id, container_id, details }: SnapshotRow): OperationResult {
  const { warnings, capability_downgrades } = details;
  return {
    result: { snapshot_id: id, ...(container_id === null ? {} : { source_container_id: container_id }) },
    message: "snapshot taken",
    ...{ warnings, capability_downgrades },
  };
}

/** True where the daemon ends, so that a later process goes on. */
export function isDraining(signal: AbortSignal): boolean {
  return signal.aborted && signal.reason instanceof AppError && signal.reason.code === "SHUTTING_DOWN";
}

/** Returns the downgrades of a network mode that no node can provide in full. */
function networkDowngrades({ network_mode }: Pick<Modes, "network_mode">): string[] {
  if (network_mode === "reset") return [];
  const settings =
    "network namespace: a copy gets a new one with the same egress, and the same ports where these are free";
  if (network_mode === "preserve_ns") return [settings];
  return [settings, "connections: a copy begins without any"];
}

/** Said of every copy of a container that runs. */
export const MEMORY_DOWNGRADE = "memory: the processes of a copy start again with its command";

/** Returns the downgrade of copies of a container that asks for GPUs: each is held by one container. */
export function gpuDowngrades(source: Pick<ContainerRow, "gpu_count"> | null): string[] {
  return (source?.gpu_count ?? 0) === 0 ? [] : ["gpus: a copy has none"];
}
