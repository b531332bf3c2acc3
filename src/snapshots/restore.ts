/**
 * Restores a container in place: its files become those of a snapshot over the same image. Its
 * settings, volumes and name stay. A container that runs is stopped before, and started again.
 *
 * E1 The files are exchanged at once, by name: a crash leaves the old ones or the new ones, whole.
 * E2 A container that ran runs again, also where its files could not be replaced.
 */
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { ContainerRow, Containers } from "../containers/service.ts";
import type { Engine } from "../engine/ports.ts";
import type { OperationRecord } from "../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../operations/service.ts";
import type { Once, Store } from "../store/store.ts";
import type { SnapshotRow } from "./rows.ts";
import { SNAPSHOT_KIND, type Snapshots, unfinished } from "./service.ts";
import { isDraining } from "./taking.ts";

export interface RestoreOptions {
  readonly snapshots: Snapshots;
  readonly containers: Containers;
  readonly engine: Engine;
  readonly operations: Operations;
  readonly store: Store;
}

const MEGABYTE = 1024 * 1024;

interface Input {
  readonly container_id: string;
  readonly snapshot_id: string;
  readonly was_running: boolean;
}

export class Restore {
  readonly #options: RestoreOptions;

  constructor(options: RestoreOptions) {
    this.#options = options;
    options.operations.register<Input>("container.restore", {
      resumable: true,
      cancellable: false,
      timeout_ms: LIMITS.snapshot_operation_ms + LIMITS.container_operation_ms,
      running_max: LIMITS.snapshot_operations_at_once,
      running_per_tenant_max: LIMITS.snapshot_operations_per_tenant_at_once,
      run: (context) => this.#run(context),
    });
  }

  /** Throws INVALID_ARGUMENT for a snapshot of a volume, or over another image; WRONG_STATE while it is made. */
  check(row: ContainerRow, snapshot: SnapshotRow): void {
    const { settings } = snapshot.details;
    if (settings === null) throw new AppError("INVALID_ARGUMENT", "snapshot_id: the snapshot is of a volume");
    if (settings.image_id !== row.image_id) {
      throw new AppError("INVALID_ARGUMENT", "snapshot_id: the snapshot is of a container with another image", {
        details: { expected: [row.image], received: settings.image },
        hint: "clone the snapshot instead",
      });
    }
    if (snapshot.state !== "ready") throw unfinished(snapshot);
    const size_mb = Math.ceil((snapshot.size_bytes ?? 0) / MEGABYTE);
    if (row.disk_limit_mb !== null && size_mb > row.disk_limit_mb) {
      throw new AppError("INVALID_ARGUMENT", `snapshot_id: larger than the container's disk_limit_mb: ${size_mb} MiB`, {
        details: { expected: [`<= ${row.disk_limit_mb}`], received: String(size_mb) },
      });
    }
  }

  async accept(
    tenant_id: string,
    row: ContainerRow,
    snapshot: SnapshotRow,
    once: Once | null,
  ): Promise<OperationRecord> {
    this.check(row, snapshot);
    const was_running = row.state === "running" || row.state === "starting";
    const input: Input = { container_id: row.id, snapshot_id: snapshot.id, was_running };
    const target = { type: "container", id: row.id };
    return this.#options.operations.accept(tenant_id, { type: "container.restore", target, input, once });
  }

  async #run(context: OperationContext<Input>): Promise<OperationResult> {
    const { containers } = this.#options;
    const { tenant_id, input } = context;
    const { container_id, snapshot_id, was_running } = input;
    if (context.done("restored") === undefined) {
      // Without a row, so that the next start removes what a crash leaves of it.
      const other = `${container_id}-r`;
      try {
        // Before the stop: what is refused costs the container nothing.
        await this.#fill(tenant_id, input, other);
        await containers.stop(tenant_id, container_id, LIMITS.stop_grace_ms_default);
        await this.#exchange(tenant_id, input, other);
      } catch (error) {
        // E2. A start that fails is in the container's record; the error is that of the restore.
        if (!isDraining(context.signal)) await this.#resume(tenant_id, input).catch(() => {});
        throw error;
      } finally {
        await this.#options.engine.storage.remove("containers", other);
      }
      await context.finish("restored");
    }
    await this.#resume(tenant_id, input);
    return {
      result: { container_id, snapshot_id },
      message: was_running ? "container restored and started" : "container restored",
    };
  }

  async #resume(tenant_id: string, { container_id, was_running }: Input): Promise<void> {
    const { containers } = this.#options;
    const { state } = await containers.row(tenant_id, container_id);
    if (was_running && state !== "running") await containers.start(tenant_id, container_id);
  }

  async #fill(tenant_id: string, { container_id, snapshot_id }: Input, other: string): Promise<void> {
    const { snapshots, containers, engine } = this.#options;
    const { storage } = engine;
    const kind = "containers" as const;
    const row = await containers.held(tenant_id, container_id);
    await snapshots.using(tenant_id, snapshot_id, async (snapshot) => {
      this.check(row, snapshot);
      await storage.remove(kind, other);
      // One that never started may have no files yet.
      await storage.create(kind, container_id, row.disk_limit_mb, tenant_id);
      const from = { kind: SNAPSHOT_KIND, id: snapshot_id } as const;
      await storage.snapshot(from, { kind, id: other }, false, row.disk_limit_mb, tenant_id);
      // Another container's identity is not this one's.
      if (snapshot.container_id !== container_id) await engine.containers.renew(tenant_id, other);
      failpoint("snapshots.restore.filled");
    });
  }

  /** E1. */
  async #exchange(tenant_id: string, { container_id, snapshot_id }: Input, other: string): Promise<void> {
    const { snapshots, containers, engine, store } = this.#options;
    await containers.inTurn(container_id, async () => {
      const row = await containers.checkStart(tenant_id, container_id);
      await snapshots.using(tenant_id, snapshot_id, async (snapshot) => {
        this.check(row, snapshot);
        await engine.storage.exchange("containers", container_id, other);
        failpoint("snapshots.restore.exchanged");
        await store.write([snapshots.head(container_id, snapshot_id)], { durable: true });
      });
    });
  }
}
