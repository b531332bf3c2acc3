/**
 * Containers made from snapshots (clones) and from other containers (forks). A copy has an identity of its own: id, name,
 * address, host name, machine id. Its files are a writable snapshot over the same image; its volumes are copies, too.
 *
 * C1 The files of a copy are complete before its row is there: what a crash leaves has no row, and the next start removes
 *    it. A row is the end of the work on files.
 * C2 A copy that fails leaves nothing: no files, no volumes, no row.
 * C3 Forks of one request are of one moment.
 */
import type { z } from "zod";
import { each } from "../base/concurrency.ts";
import { AppError, type ErrorCode, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Containers } from "../containers/service.ts";
import {
  type ContainerCopy,
  type ContainerOrigin,
  type ContainerRow,
  type ContainerSettings,
  settingsOf,
} from "../containers/service.ts";
import type { Engine } from "../engine/ports.ts";
import type { AcceptedOperation, OperationRecord } from "../operations/schema.ts";
import {
  failureOf,
  type Json,
  type OperationContext,
  type OperationResult,
  type Operations,
} from "../operations/service.ts";
import type { Once } from "../store/store.ts";
import type { Volumes } from "../volumes/service.ts";
import type { KeptVolume, SnapshotRow } from "./rows.ts";
import type { acceptedCopy, CloneSnapshot, ForkContainer } from "./schema.ts";
import { MOMENT, notFound, SNAPSHOT_KIND, type Snapshots } from "./service.ts";
import { isDraining, MEMORY_DOWNGRADE, type Modes, type Plan, type Taking } from "./taking.ts";

export interface CopiesOptions {
  readonly snapshots: Snapshots;
  readonly taking: Taking;
  readonly containers: Containers;
  readonly volumes: Volumes;
  readonly engine: Engine;
  readonly operations: Operations;
  readonly ids: Ids;
  readonly log: Log;
}

/** What a copy has of its own. */
interface Own extends Pick<CloneSnapshot, "resume_policy" | "labels" | "ttl_seconds"> {
  readonly name: string;
}

/** The operation of a copy, and the fields of its handle beyond those that each has. */
interface AcceptedCopy {
  readonly operation: OperationRecord;
  readonly extra: Omit<z.output<typeof acceptedCopy>, keyof AcceptedOperation>;
}

/** What a copy is made of. */
interface Source {
  readonly settings: ContainerSettings;
  /** Subvolume of the container's files. */
  readonly subvolume: string;
  readonly volumes: readonly KeptVolume[];
  readonly network_mode: Modes["network_mode"];
  readonly origin: ContainerOrigin;
  readonly head_snapshot_id: string | null;
}

interface CloneInput extends Own {
  readonly snapshot_id: string;
  /** Null: the snapshot is of a volume, which is copied. */
  readonly container_id: string | null;
}

interface ForkInput extends Modes, Pick<Own, "resume_policy" | "labels" | "ttl_seconds"> {
  readonly container_id: string;
  /** What the forks are copied from. */
  readonly moment_id: string;
  readonly kept: readonly KeptVolume[];
  readonly forks: readonly { readonly container_id: string; readonly name: string }[];
  readonly warnings: readonly string[];
  readonly capability_downgrades: readonly string[];
}

export class Copies {
  readonly #options: CopiesOptions;

  constructor(options: CopiesOptions) {
    this.#options = options;
    const bounds = {
      resumable: true,
      running_max: LIMITS.snapshot_operations_at_once,
      running_per_tenant_max: LIMITS.snapshot_operations_per_tenant_at_once,
    };
    options.operations.register<CloneInput>("snapshot.clone", {
      ...bounds,
      cancellable: false,
      timeout_ms: LIMITS.snapshot_operation_ms + LIMITS.container_operation_ms,
      run: (context) => this.#clone(context),
    });
    options.operations.register<ForkInput>("container.fork", {
      ...bounds,
      cancellable: false,
      timeout_ms: LIMITS.fork_operation_ms,
      run: (context) => this.#fork(context),
    });
  }

  /** Throws NOT_FOUND, WRONG_STATE. */
  async acceptClone(
    tenant_id: string,
    row: SnapshotRow,
    { name, resume_policy, labels, ttl_seconds }: CloneSnapshot,
    once: Once | null,
  ): Promise<AcceptedCopy> {
    const { operations, containers } = this.#options;
    const container_id = row.volume_id === null ? containers.newId() : null;
    const input: CloneInput = {
      ...{ snapshot_id: row.id, container_id, name: name ?? this.#nameLike(row.source_name) },
      ...{ resume_policy, labels: labels ?? null, ttl_seconds: ttl_seconds ?? null },
    };
    const target = { type: "snapshot", id: row.id };
    const made = container_id === null ? {} : { made: { type: "container", id: container_id } };
    const extra = cloneHandle(row, container_id);
    const asked = { type: "snapshot.clone", target, input, once, extra, ...made };
    return { operation: await operations.accept(tenant_id, asked), extra };
  }

  /** What a clone of a snapshot would lack. */
  clonePlan({ details, volume_id }: SnapshotRow): Pick<Plan, "warnings" | "capability_downgrades"> {
    const memory = volume_id === null ? [MEMORY_DOWNGRADE] : [];
    return { warnings: details.warnings, capability_downgrades: [...details.capability_downgrades, ...memory] };
  }

  /** The ids and names that the forks of a request would get. Throws INVALID_ARGUMENT. */
  forksOf(row: ContainerRow, { name, count }: Pick<ForkContainer, "name" | "count">): ForkInput["forks"] {
    const pattern = name ?? this.#nameLike(row.name);
    const forks = Array.from({ length: count }, (_, i) => ({
      container_id: this.#options.containers.newId(),
      name: nameOf(pattern, i + 1, count),
    }));
    const tooLong = forks.find((fork) => fork.name.length > LIMITS.name_length_max);
    if (tooLong !== undefined) {
      throw new AppError("INVALID_ARGUMENT", `name: too long with its number: '${tooLong.name}'`, {
        details: { expected: [`<= ${LIMITS.name_length_max} characters`] },
      });
    }
    return forks;
  }

  /** Throws INVALID_ARGUMENT. */
  async acceptFork(
    tenant_id: string,
    row: ContainerRow,
    body: ForkContainer,
    once: Once | null,
  ): Promise<AcceptedCopy> {
    const { operations, ids } = this.#options;
    const { consistency_mode, network_mode, volume_mode, volumes, resume_policy, labels, ttl_seconds } = body;
    const moment_id = ids.next(MOMENT);
    const plan = await this.forkPlan(row, body, moment_id);
    const forks = this.forksOf(row, body);
    const input: ForkInput = {
      ...{ container_id: row.id, moment_id, kept: plan.volumes, forks },
      ...{ consistency_mode, network_mode, volume_mode, volumes, resume_policy },
      ...{ labels: labels ?? null, ttl_seconds: ttl_seconds ?? null },
      ...{ warnings: plan.warnings, capability_downgrades: plan.capability_downgrades },
    };
    const [first, ...others] = forks;
    const made = { type: "container", id: others.length === 0 ? (first?.container_id ?? null) : null };
    const target = { type: "container", id: row.id };
    const extra = forkHandle(row, forks);
    const asked = { type: "container.fork", target, made, input, once, extra };
    return { operation: await operations.accept(tenant_id, asked), extra };
  }

  /** Throws INVALID_ARGUMENT. */
  async forkPlan(row: ContainerRow, modes: Modes, moment_id: string): Promise<Plan> {
    const plan = await this.#options.taking.plan(row, modes, moment_id);
    const isLive = this.#options.engine.containers.live(row.id) !== null;
    const downgrades = isLive ? [MEMORY_DOWNGRADE] : [];
    return { ...plan, capability_downgrades: [...plan.capability_downgrades, ...downgrades] };
  }

  async #clone({ tenant_id, input, signal }: OperationContext<CloneInput>): Promise<OperationResult> {
    const { snapshots, volumes } = this.#options;
    const { snapshot_id, container_id } = input;
    await this.#whenReady(tenant_id, snapshot_id, signal);
    if (container_id === null) {
      const made = await snapshots.using(tenant_id, snapshot_id, async ({ details }) => {
        const [kept] = details.volumes;
        if (kept === undefined) throw notFound(snapshot_id);
        return volumes.copy(
          tenant_id,
          { kind: SNAPSHOT_KIND, id: kept.subvolume },
          { ...kept, name: input.name, labels: input.labels ?? {} },
        );
      });
      return { result: { snapshot_id, volume_id: made.id, volume: made.name }, message: "volume made" };
    }
    const isMade = await this.#isThere(tenant_id, container_id);
    const warnings = isMade
      ? []
      : await snapshots.using(tenant_id, snapshot_id, (row) => {
          const { settings, volumes, network_mode } = row.details;
          if (settings === null) throw notFound(snapshot_id);
          const origin = { kind: "clone" as const, snapshot_id, container_id: row.container_id ?? "" };
          const source = { settings, subvolume: row.id, volumes, network_mode, origin, head_snapshot_id: row.id };
          return this.#make(tenant_id, container_id, input, source);
        });
    await this.#resume(tenant_id, container_id, input);
    const row = await snapshots.row(tenant_id, snapshot_id).catch(() => null);
    return {
      result: { container_id, snapshot_id },
      message: input.resume_policy === "immediate" ? "container made and started" : "container made",
      warnings,
      capability_downgrades: row === null ? [MEMORY_DOWNGRADE] : this.clonePlan(row).capability_downgrades,
    };
  }

  async #fork(context: OperationContext<ForkInput>): Promise<OperationResult> {
    const { snapshots, containers, taking } = this.#options;
    const { tenant_id, input, signal } = context;
    const { forks, moment_id, kept } = input;
    const parts = [moment_id, ...kept.map(({ subvolume }) => subvolume)];
    const warnings = [...input.warnings];
    try {
      const missing: (typeof forks)[number][] = [];
      for (const fork of forks) if (!(await this.#isThere(tenant_id, fork.container_id))) missing.push(fork);
      if (context.done("taken") !== undefined && missing.length > 0) {
        // The start of the daemon has removed what they were to be copied from.
        warnings.push(`the daemon restarted: ${missing.length} forks are of a later moment than the others`);
      }
      const source = await containers.held(tenant_id, input.container_id);
      let pause_ms: number | null = null;
      if (missing.length > 0) {
        const moment = await taking.moment(source, input, moment_id, kept);
        await context.finish("taken");
        failpoint("snapshots.fork.taken");
        warnings.push(...moment.warnings);
        pause_ms = moment.pause_ms;
      }
      const isMissing = new Set(missing.map(({ container_id }) => container_id));
      const results = new Map<string, Json>();
      const told = (): Json[] =>
        forks.flatMap(({ container_id }) => {
          const result = results.get(container_id);
          return result === undefined ? [] : [result];
        });
      await each(forks, LIMITS.fork_starts_at_once, async (fork) => {
        const result = await this.#forkOne(tenant_id, fork, input, source, isMissing.has(fork.container_id), warnings);
        results.set(fork.container_id, result);
        context.items(told());
        context.progress((100 * results.size) / forks.length, `${results.size} of ${forks.length} done`);
      });
      return forkResult(input, told(), pause_ms, warnings);
    } finally {
      if (!isDraining(signal)) void snapshots.discardParts(parts);
    }
  }

  async #forkOne(
    tenant_id: string,
    { container_id, name }: ForkInput["forks"][number],
    input: ForkInput,
    source: ContainerRow,
    isMissing: boolean,
    warnings: string[],
  ): Promise<Json> {
    try {
      if (isMissing) {
        const { moment_id, kept, network_mode } = input;
        const origin = { kind: "fork" as const, snapshot_id: null, container_id: source.id };
        const { head_snapshot_id } = source;
        warnings.push(
          ...(await this.#make(
            tenant_id,
            container_id,
            { ...input, name },
            {
              ...{ settings: settingsOf(source), subvolume: moment_id, volumes: kept },
              ...{ network_mode, origin, head_snapshot_id },
            },
          )),
        );
      }
      await this.#resume(tenant_id, container_id, input);
      return { name, status: "succeeded", container_id };
    } catch (error) {
      const { code, message, retryable = false } = failureOf(error);
      return { name, status: "failed", error_code: code, error: message, retryable };
    }
  }

  /** Makes a copy at rest (C1, C2). Resolves to warnings. */
  async #make(tenant_id: string, id: string, own: Own, source: Source): Promise<string[]> {
    const { engine } = this.#options;
    const made: string[] = [];
    const { storage } = engine;
    const target = { kind: "containers" as const, id };
    const { disk_limit_mb } = source.settings;
    try {
      // What an earlier process may have left unfinished.
      await storage.remove(target.kind, id);
      await storage.snapshot({ kind: SNAPSHOT_KIND, id: source.subvolume }, target, false, disk_limit_mb);
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
        ...{ name: own.name, labels: own.labels ?? settings.labels, origin, head_snapshot_id, volumes: mounts },
        ttl_seconds: own.ttl_seconds ?? settings.ttl_seconds,
        ports: network_mode === "reset" ? [] : settings.ports,
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

  async #resume(tenant_id: string, container_id: string, { resume_policy }: Pick<Own, "resume_policy">): Promise<void> {
    if (resume_policy === "manual") return;
    const { containers } = this.#options;
    const { state } = await containers.row(tenant_id, container_id);
    if (state !== "created") return;
    try {
      await containers.start(tenant_id, container_id);
    } catch (error) {
      // C2: whoever asked for a container that runs has none.
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

  async #isThere(tenant_id: string, container_id: string): Promise<boolean> {
    return (await this.#options.containers.get(tenant_id, container_id).catch(() => null)) !== null;
  }

  /** A clone may be asked for while its snapshot is being taken. */
  async #whenReady(tenant_id: string, snapshot_id: string, signal: AbortSignal): Promise<void> {
    while ((await this.#options.snapshots.row(tenant_id, snapshot_id)).state !== "ready") {
      signal.throwIfAborted();
      await this.#options.snapshots.changed();
    }
  }

  #nameLike(name: string): string {
    const suffix = `-${this.#options.ids.random(6)}`;
    return `${name.slice(0, LIMITS.name_length_max - suffix.length).trimEnd()}${suffix}`;
  }
}

/** Label of a volume that was copied for a container: the container's id. */
const VOLUME_LABEL = "hearth.copied_for";

function nameOf(pattern: string, number: number, count: number): string {
  if (pattern.includes("{n}")) return pattern.replaceAll("{n}", String(number));
  return count === 1 ? pattern : `${pattern}-${number}`;
}

const cloneHandle = (row: SnapshotRow, container_id: string | null) => ({
  container_id,
  container_ids: container_id === null ? [] : [container_id],
  snapshot_id: row.id,
  source_container_id: row.container_id,
  source_container_name: row.container_id === null ? null : row.source_name,
});

const forkHandle = (row: ContainerRow, forks: ForkInput["forks"]) => ({
  container_id: forks[0]?.container_id ?? null,
  container_ids: forks.map(({ container_id }) => container_id),
  snapshot_id: null,
  source_container_id: row.id,
  source_container_name: row.name,
});

interface ForkFailure {
  readonly error_code: ErrorCode;
  readonly error: string;
  readonly retryable: boolean;
}

/** The end of a fork. Throws as the first failure where none succeeded. */
function forkResult(
  { forks, capability_downgrades }: ForkInput,
  items: readonly Json[],
  pause_ms: number | null,
  warnings: readonly string[],
): OperationResult {
  const failed = items.filter(({ status }) => status === "failed");
  const [first] = failed;
  const container_ids = items.flatMap(({ container_id }) => (typeof container_id === "string" ? [container_id] : []));
  if (container_ids.length === 0 && first !== undefined) {
    const { error_code, error, retryable } = first as unknown as ForkFailure;
    throw new AppError(error_code, forks.length === 1 ? error : `no fork succeeded: ${error}`, { retryable });
  }
  const [only] = container_ids;
  return {
    result: {
      ...(container_ids.length === 1 ? { container_id: only } : {}),
      ...{ container_ids, created_count: container_ids.length, failed_count: failed.length, pause_ms },
    },
    ...(forks.length === 1 ? {} : { items }),
    message: forks.length === 1 ? "container forked" : `${container_ids.length} of ${forks.length} forks made`,
    warnings: [...new Set(warnings)],
    capability_downgrades,
  };
}
