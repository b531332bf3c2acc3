/**
 * Makes a container from a snapshot of another one. A copy has an identity of its own: id, name, address, host name, machine
 * id. Its files are a writable snapshot over the same image; its volumes are copies, too.
 *
 * C1 The files of a copy are complete before its row is there: what a crash leaves has no row, and the next start removes
 *    it. A row is the end of the work on files.
 * C2 A copy that fails leaves nothing: no files, no volumes, no row.
 */
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { ContainerCopy, ContainerOrigin, ContainerSettings, Containers } from "../containers/service.ts";
import type { Engine } from "../engine/ports.ts";
import type { Volumes } from "../volumes/service.ts";
import type { KeptVolume } from "./rows.ts";
import type { CloneSnapshot } from "./schema.ts";
import { SNAPSHOT_KIND } from "./service.ts";
import type { Modes } from "./taking.ts";

export interface CopyMakerOptions {
  readonly containers: Containers;
  readonly volumes: Volumes;
  readonly engine: Engine;
  readonly log: Log;
}

/** The settings that all copies of one request share. */
export type CopySettings = Pick<CloneSnapshot, "resume_policy" | "labels" | "ttl_seconds">;

/** The settings of one copy. */
export interface Own extends CopySettings {
  readonly name: string;
}

/** The source of a copy. */
export interface Source {
  readonly settings: ContainerSettings;
  /** Subvolume of the container's files; null: the copy has them already. */
  readonly subvolume: string | null;
  readonly volumes: readonly KeptVolume[];
  readonly network_mode: Modes["network_mode"];
  readonly origin: ContainerOrigin;
  readonly head_snapshot_id: string | null;
}

/** Label of a volume that was copied for a container: the container's id. */
const VOLUME_LABEL = "hearth.copied_for";

export class CopyMaker {
  readonly #options: CopyMakerOptions;

  constructor(options: CopyMakerOptions) {
    this.#options = options;
  }

  /** Makes a copy at rest (C1, C2). Resolves to warnings. */
  async make(tenant_id: string, id: string, own: Own, source: Source): Promise<string[]> {
    const { engine } = this.#options;
    const made: string[] = [];
    const { storage } = engine;
    const target = { kind: "containers" as const, id };
    const { disk_limit_mb } = source.settings;
    try {
      if (source.subvolume !== null) {
        // An earlier daemon process may have left an unfinished one.
        await storage.remove(target.kind, id);
        const from = { kind: SNAPSHOT_KIND, id: source.subvolume } as const;
        await storage.snapshot(from, target, false, disk_limit_mb, tenant_id);
      }
      await engine.containers.create(id, disk_limit_mb);
      await engine.containers.renew(tenant_id, id);
      failpoint("snapshots.copy.filled");
      const mounts: { id: string; target: string }[] = [];
      for (const [i, kept] of source.volumes.entries()) {
        const volume = await this.#copyVolume(tenant_id, id, i, kept, made);
        mounts.push({ id: volume, target: kept.target });
      }
      failpoint("snapshots.copy.volumes");
      const { settings, origin, head_snapshot_id, network_mode } = source;
      const warnings = await this.#insert(tenant_id, id, {
        ...settings,
        // A GPU is held by one container: a copy has none.
        ...{ gpu_count: 0, gpu_ids: [] },
        ...{ name: own.name, labels: own.labels ?? settings.labels, origin, head_snapshot_id, volumes: mounts },
        ttl_seconds: own.ttl_seconds ?? settings.ttl_seconds,
        ...(network_mode === "reset" ? { ports: [], network: null, dns: false } : { ports: settings.ports }),
      });
      failpoint("snapshots.copy.noted");
      return warnings;
    } catch (error) {
      await this.#undo(id, made);
      throw error;
    }
  }

  /** Takes the ports of the source where they are free, others where they are not. */
  async #insert(tenant_id: string, id: string, copy: ContainerCopy): Promise<string[]> {
    const { containers } = this.#options;
    try {
      await containers.insertCopy(tenant_id, copy, id);
      return [];
    } catch (error) {
      const isTaken = error instanceof AppError && (error.code === "PORT_TAKEN" || error.code === "INVALID_ARGUMENT");
      if (!isTaken || copy.ports.length === 0) throw error;
      const ports = copy.ports.map(({ host_port: _, ...port }) => port);
      await containers.insertCopy(tenant_id, { ...copy, ports }, id);
      return [`the host ports of '${copy.name}' are new: those of its source are taken`];
    }
  }

  /** Copies a volume under a name that a later process finds again. Resolves to its id. */
  async #copyVolume(tenant_id: string, id: string, index: number, kept: KeptVolume, made: string[]): Promise<string> {
    const { volumes } = this.#options;
    const suffix = `-${id.slice(-8)}-${index}`;
    const name = `${kept.name.slice(0, LIMITS.name_length_max - suffix.length).trimEnd()}${suffix}`;
    const labels = { [VOLUME_LABEL]: id };
    const before = await volumes.row(tenant_id, name).catch(() => null);
    const isOwn = before?.labels[VOLUME_LABEL] === id;
    const volume =
      before !== null && isOwn
        ? before
        : await volumes.copy(
            tenant_id,
            { kind: SNAPSHOT_KIND, id: kept.subvolume },
            { name, labels, quota_mb: kept.quota_mb },
          );
    made.push(volume.id);
    return volume.id;
  }

  /** C2. Never rejects: what is left has no row, and goes at the next start. */
  async #undo(id: string, made: readonly string[]): Promise<void> {
    const { engine, volumes, log, containers } = this.#options;
    try {
      // A write that was refused may have been carried out.
      if (await containers.exists(id)) return;
      await engine.containers.remove(id);
      for (const volume of made) await volumes.delete(volume);
    } catch (error) {
      log.warn("leftovers of a copy not removed", { container_id: id, error: errorText(error) });
    }
  }

  /** Starts a copy that is to be started, once. */
  async resume(tenant_id: string, container_id: string, { resume_policy }: Pick<Own, "resume_policy">): Promise<void> {
    if (resume_policy === "manual") return;
    const { containers } = this.#options;
    const { state, exit_code } = await containers.row(tenant_id, container_id);
    // A crash of the daemon may have cut its start short: then its end is unknown.
    const isStarted = state !== "created" && (state !== "exited" || exit_code !== null);
    if (isStarted) return;
    try {
      await containers.start(tenant_id, container_id);
    } catch (error) {
      // C2: the client asked for a running container, so a failed start leaves none.
      await this.#undoMade(tenant_id, container_id);
      throw error;
    }
  }

  /** Deletes a copy that did not start, with its volumes. Never rejects. */
  async #undoMade(tenant_id: string, container_id: string): Promise<void> {
    const { containers, volumes, log } = this.#options;
    try {
      const { volumes: own } = await containers.row(tenant_id, container_id);
      await containers.delete(tenant_id, container_id);
      for (const { id } of own) await volumes.delete(id);
    } catch (error) {
      log.warn("a copy that did not start is not removed", { container_id, error: errorText(error) });
    }
  }

  async isThere(tenant_id: string, container_id: string): Promise<boolean> {
    return (await this.#options.containers.get(tenant_id, container_id).catch(() => null)) !== null;
  }
}
