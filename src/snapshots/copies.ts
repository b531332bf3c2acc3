/**
 * Containers made from snapshots (clones) and from other containers (forks): operations that make one or many copies. How a
 * copy is made is copy-maker.ts's.
 *
 * C3 Forks of one request are of one moment, except those that a later process makes.
 */
import type { z } from "zod";
import { each } from "../base/concurrency.ts";
import { AppError, type ErrorCode } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { checkNewName, withoutAddressPrefix } from "../containers/schema.ts";
import { type ContainerRow, type Containers, checkName, settingsOf } from "../containers/service.ts";
import type { Engine, SubvolumeName } from "../engine/ports.ts";
import type { AcceptedOperation, OperationRecord } from "../operations/schema.ts";
import {
  failureOf,
  type Json,
  type NewOperation,
  type OperationContext,
  type OperationResult,
  type Operations,
} from "../operations/service.ts";
import type { Once } from "../store/store.ts";
import type { Volumes } from "../volumes/service.ts";
import { CopyMaker, type CopySettings } from "./copy-maker.ts";
import type { KeptVolume, SnapshotRow } from "./rows.ts";
import type { acceptedCopy, CloneSnapshot, ForkContainer } from "./schema.ts";
import { MOMENT, notFound, SNAPSHOT_KIND, type Snapshots } from "./service.ts";
import { gpuDowngrades, isDraining, MEMORY_DOWNGRADE, type Modes, type Plan, type Taking } from "./taking.ts";

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

/** The operation of a copy, and the fields of its handle beyond those that each has. */
interface AcceptedCopy {
  readonly operation: OperationRecord;
  readonly extra: Omit<z.output<typeof acceptedCopy>, keyof AcceptedOperation>;
}

/** One of the copies of a request. */
interface Wanted {
  readonly container_id: string;
  readonly name: string;
}

interface CloneInput extends CopySettings {
  readonly snapshot_id: string;
  /** Of the volume, if the snapshot is of one. */
  readonly name: string;
  /** Empty: the snapshot is of a volume, which is copied. */
  readonly copies: readonly Wanted[];
}

interface ForkInput extends Modes, CopySettings {
  readonly container_id: string;
  /** The snapshot, or the moment taken for this request, that the forks are copied from. */
  readonly moment_id: string;
  readonly kept: readonly KeptVolume[];
  readonly copies: readonly Wanted[];
  readonly warnings: readonly string[];
  readonly capability_downgrades: readonly string[];
}

/** The results of the copies of a request, and warnings about them. */
interface Made {
  readonly items: readonly Json[];
  readonly warnings: readonly string[];
}

export class Copies {
  readonly #options: CopiesOptions;
  readonly #maker: CopyMaker;

  constructor(options: CopiesOptions) {
    this.#options = options;
    this.#maker = new CopyMaker(options);
    const bounds = {
      resumable: true,
      cancellable: false,
      timeout_ms: LIMITS.fork_operation_ms,
      running_max: LIMITS.snapshot_operations_at_once,
      running_per_tenant_max: LIMITS.snapshot_operations_per_tenant_at_once,
    };
    options.operations.register<CloneInput>("snapshot.clone", {
      ...bounds,
      run: (context) => this.#clone(context),
    });
    options.operations.register<ForkInput>("container.fork", {
      ...bounds,
      run: (context) => this.#fork(context),
    });
  }

  /** Throws INVALID_ARGUMENT, NAME_TAKEN. */
  async acceptClone(
    tenant_id: string,
    row: SnapshotRow,
    body: CloneSnapshot,
    once: Once | null,
  ): Promise<AcceptedCopy> {
    const copies = this.wanted(row, body);
    const { settings, network_mode } = row.details;
    if (settings !== null) checkNames(copies, network_mode, settings);
    const { resume_policy, labels, ttl_seconds } = body;
    if (row.volume_id !== null && (resume_policy === "immediate" || ttl_seconds != null)) {
      const field = ttl_seconds == null ? "resume_policy" : "ttl_seconds";
      throw new AppError(
        "INVALID_ARGUMENT",
        `${field}: the snapshot is of a volume, which is neither started nor expires`,
      );
    }
    const name = body.name ?? this.#nameLike(row.source_name);
    await this.checkFree(tenant_id, row, name, copies);
    const input: CloneInput = {
      ...{ snapshot_id: row.id, copies, name },
      ...{ resume_policy, labels: labels ?? null, ttl_seconds: ttl_seconds ?? null },
    };
    const source = row.container_id === null ? null : { id: row.container_id, name: row.source_name };
    const extra = handleOf(copies, row.id, source);
    const target = { type: "snapshot", id: row.id };
    return this.#accept(tenant_id, { type: "snapshot.clone", target, input, once, extra }, copies, extra);
  }

  /** Returns the warnings and downgrades of a clone of a snapshot. */
  clonePlan({ details, volume_id }: SnapshotRow): Pick<Plan, "warnings" | "capability_downgrades"> {
    const lost = volume_id === null ? [MEMORY_DOWNGRADE, ...gpuDowngrades(details.settings)] : [];
    return { warnings: details.warnings, capability_downgrades: [...details.capability_downgrades, ...lost] };
  }

  /** The ids and names that the copies of a request would get; none of a volume. Throws INVALID_ARGUMENT. */
  wanted(
    source: Pick<ContainerRow, "name"> | SnapshotRow,
    { name, count }: Pick<ForkContainer, "name" | "count">,
  ): readonly Wanted[] {
    if ("volume_id" in source && source.volume_id !== null) {
      if (count === 1) return [];
      throw new AppError("INVALID_ARGUMENT", "count: must be 1 for a snapshot of a volume");
    }
    const pattern = name ?? this.#nameLike("source_name" in source ? source.source_name : source.name);
    const copies = Array.from({ length: count }, (_, i) => ({
      container_id: this.#options.containers.newId(),
      name: nameOf(pattern, i + 1, count),
    }));
    const tooLong = copies.find((copy) => copy.name.length > LIMITS.name_length_max);
    if (tooLong !== undefined) {
      throw new AppError("INVALID_ARGUMENT", `name: too long with its number: '${tooLong.name}'`, {
        details: { expected: [`<= ${LIMITS.name_length_max} characters`] },
      });
    }
    for (const copy of copies) checkNewName(copy.name);
    return copies;
  }

  /** Throws INVALID_ARGUMENT, NAME_TAKEN. */
  async acceptFork(
    tenant_id: string,
    row: ContainerRow,
    body: ForkContainer,
    once: Once | null,
  ): Promise<AcceptedCopy> {
    const { consistency_mode, network_mode, volume_mode, volumes, resume_policy, labels, ttl_seconds } = body;
    const moment_id = this.#options.ids.next(MOMENT);
    const plan = await this.forkPlan(row, body, moment_id);
    const copies = this.wanted(row, body);
    checkNames(copies, network_mode, row);
    await this.checkFree(tenant_id, row, "", copies);
    const input: ForkInput = {
      ...{ container_id: row.id, moment_id, kept: plan.volumes, copies },
      ...{ consistency_mode, network_mode, volume_mode, volumes, resume_policy },
      ...{ labels: labels ?? null, ttl_seconds: ttl_seconds ?? null },
      ...{ warnings: plan.warnings, capability_downgrades: plan.capability_downgrades },
    };
    const extra = handleOf(copies, null, row);
    const target = { type: "container", id: row.id };
    return this.#accept(tenant_id, { type: "container.fork", target, input, once, extra }, copies, extra);
  }

  /**
   * Throws NAME_TAKEN if no copy can be made, because others have the names by now. Of several copies those whose names are
   * free are made; the others fail each for itself. `name`: of the volume, if the source is one.
   */
  async checkFree(
    tenant_id: string,
    source: Pick<ContainerRow, "name"> | SnapshotRow,
    name: string,
    copies: readonly Wanted[],
  ): Promise<void> {
    const { containers, volumes } = this.#options;
    if ("volume_id" in source && source.volume_id !== null) await volumes.checkFree(tenant_id, name);
    else
      await containers.checkFree(
        tenant_id,
        copies.map((copy) => copy.name),
      );
  }

  /** Throws INVALID_ARGUMENT. */
  async forkPlan(row: ContainerRow, modes: Modes, moment_id: string): Promise<Plan> {
    const plan = await this.#options.taking.plan(row, modes, moment_id);
    const isLive = this.#options.engine.containers.live(row.id) !== null;
    const downgrades = [...(isLive ? [MEMORY_DOWNGRADE] : []), ...gpuDowngrades(row)];
    return { ...plan, capability_downgrades: [...plan.capability_downgrades, ...downgrades] };
  }

  async #accept(
    tenant_id: string,
    asked: NewOperation,
    copies: readonly Wanted[],
    extra: AcceptedCopy["extra"],
  ): Promise<AcceptedCopy> {
    const made = { type: "container", id: copies.length === 1 ? (copies[0]?.container_id ?? null) : null };
    const operation = await this.#options.operations.accept(
      tenant_id,
      copies.length === 0 ? asked : { ...asked, made },
    );
    return { operation, extra };
  }

  async #clone(context: OperationContext<CloneInput>): Promise<OperationResult> {
    const { snapshots } = this.#options;
    const { tenant_id, input, signal } = context;
    const { snapshot_id, copies } = input;
    await this.#whenReady(tenant_id, snapshot_id, signal);
    if (copies.length === 0) return this.#cloneVolume(tenant_id, input);
    const missing = await this.#missing(tenant_id, copies);
    const { capability_downgrades, settings } = (await snapshots.row(tenant_id, snapshot_id)).details;
    const downgrades = [...capability_downgrades, MEMORY_DOWNGRADE, ...gpuDowngrades(settings)];
    const made = await this.#makeAll(context, missing, (own) =>
      snapshots.using(tenant_id, snapshot_id, (row) => {
        const { settings, volumes, network_mode } = row.details;
        if (settings === null) throw notFound(snapshot_id);
        const origin = { kind: "clone" as const, snapshot_id, container_id: row.container_id ?? "" };
        const source = { settings, subvolume: row.id, volumes, network_mode, origin, head_snapshot_id: row.id };
        return this.#maker.make(tenant_id, own.container_id, { ...input, ...own }, source);
      }),
    );
    return resultOf(copies, made, "cloned", { snapshot_id }, downgrades);
  }

  async #cloneVolume(tenant_id: string, { snapshot_id, name, labels }: CloneInput): Promise<OperationResult> {
    const { snapshots, volumes } = this.#options;
    const made = await snapshots.using(tenant_id, snapshot_id, async ({ details }) => {
      const [kept] = details.volumes;
      if (kept === undefined) throw notFound(snapshot_id);
      const from = { kind: SNAPSHOT_KIND, id: kept.subvolume } as const;
      return volumes.copy(tenant_id, from, { name, labels: labels ?? {}, quota_mb: kept.quota_mb });
    });
    return { result: { snapshot_id, volume_id: made.id, volume: made.name }, message: "volume made" };
  }

  async #fork(context: OperationContext<ForkInput>): Promise<OperationResult> {
    const { snapshots, containers, taking } = this.#options;
    const { tenant_id, input, signal } = context;
    const { copies, moment_id, kept, network_mode } = input;
    const warnings = [...input.warnings];
    // A single copy gets its files at that moment itself: each further snapshot costs a commit of the pool.
    const single_id = copies.length === 1 ? (copies[0]?.container_id ?? null) : null;
    try {
      const missing = await this.#missing(tenant_id, copies);
      const wasTaken = context.done("taken") !== undefined;
      if (wasTaken && missing.size > 0) {
        // The start of the daemon has removed what they were to be copied from.
        warnings.push(`the daemon restarted: ${missing.size} forks are of a later moment than the others`);
      }
      const source = missing.size === 0 ? null : await containers.held(tenant_id, input.container_id);
      let pause_ms: number | null = null;
      if (source !== null) {
        const to: SubvolumeName =
          single_id === null ? { kind: SNAPSHOT_KIND, id: moment_id } : { kind: "containers", id: single_id };
        const moment = await taking.moment(source, input, to, kept);
        if (!wasTaken && single_id === null) await context.finish("taken");
        failpoint("snapshots.fork.taken");
        warnings.push(...moment.warnings);
        pause_ms = moment.pause_ms;
      }
      const made = await this.#makeAll(context, missing, (own) => {
        if (source === null) throw new AppError("INTERNAL", "a fork that is missing has a source");
        const origin = { kind: "fork" as const, snapshot_id: null, container_id: source.id };
        const { head_snapshot_id } = source;
        return this.#maker.make(
          tenant_id,
          own.container_id,
          { ...input, ...own },
          {
            ...{ settings: settingsOf(source), volumes: kept },
            subvolume: single_id === null ? moment_id : null,
            ...{ network_mode, origin, head_snapshot_id },
          },
        );
      });
      const all = { items: made.items, warnings: [...warnings, ...made.warnings] };
      return resultOf(copies, all, "forked", { pause_ms }, input.capability_downgrades);
    } finally {
      const parts = [...(single_id === null ? [moment_id] : []), ...kept.map(({ subvolume }) => subvolume)];
      if (!isDraining(signal)) void snapshots.discardParts(parts);
    }
  }

  /** Ids of the copies that no earlier process made. */
  async #missing(tenant_id: string, copies: readonly Wanted[]): Promise<ReadonlySet<string>> {
    const missing = new Set<string>();
    for (const { container_id } of copies) {
      if (!(await this.#maker.isThere(tenant_id, container_id))) missing.add(container_id);
    }
    return missing;
  }

  /** Makes those that are missing, and starts all that are to be started, several at a time. */
  async #makeAll(
    context: OperationContext<CopySettings & { readonly copies: readonly Wanted[] }>,
    missing: ReadonlySet<string>,
    make: (copy: Wanted) => Promise<string[]>,
  ): Promise<Made> {
    const { tenant_id, input, signal } = context;
    const { copies } = input;
    const results = new Map<string, Json>();
    const warnings: string[] = [];
    const told = (): Json[] =>
      copies.flatMap(({ container_id }) => {
        const result = results.get(container_id);
        return result === undefined ? [] : [result];
      });
    await each(copies, LIMITS.fork_starts_at_once, async (copy) => {
      const { container_id, name } = copy;
      try {
        signal.throwIfAborted();
        if (missing.has(container_id)) warnings.push(...(await make(copy)));
        await this.#maker.resume(tenant_id, container_id, input);
        results.set(container_id, { name, status: "succeeded", container_id });
      } catch (error) {
        const { code, message, retryable = false } = failureOf(error);
        results.set(container_id, { name, status: "failed", error_code: code, error: message, retryable });
      }
      if (copies.length > 1) context.items(told());
      context.progress((100 * results.size) / copies.length, `${results.size} of ${copies.length} done`);
    });
    return { items: told(), warnings };
  }

  /** A clone may be asked for while its snapshot is being taken. */
  async #whenReady(tenant_id: string, snapshot_id: string, signal: AbortSignal): Promise<void> {
    while ((await this.#options.snapshots.row(tenant_id, snapshot_id)).state !== "ready") {
      signal.throwIfAborted();
      await this.#options.snapshots.changed();
    }
  }

  #nameLike(source: string): string {
    const name = withoutAddressPrefix(source);
    const suffix = `-${this.#options.ids.random(6)}`;
    // A name that is short enough for the DNS stays so.
    const { dns_label_length_max, name_length_max } = LIMITS;
    const length_max = name.length <= dns_label_length_max ? dns_label_length_max : name_length_max;
    return `${name.slice(0, length_max - suffix.length).trimEnd()}${suffix}`;
  }
}

/** Throws INVALID_ARGUMENT if copies that keep a network, or names, cannot be resolved. Old snapshots have neither field. */
function checkNames(
  copies: readonly Wanted[],
  network_mode: Modes["network_mode"],
  { network = null, dns = false }: Partial<Pick<ContainerRow, "network" | "dns">>,
): void {
  if (network_mode === "reset") return;
  for (const { name } of copies) checkName({ name, network, dns });
}

function nameOf(pattern: string, number: number, count: number): string {
  if (pattern.includes("{n}")) return pattern.replaceAll("{n}", String(number));
  return count === 1 ? pattern : `${pattern}-${number}`;
}

const handleOf = (
  copies: readonly Wanted[],
  snapshot_id: string | null,
  source: { readonly id: string; readonly name: string } | null,
) => ({
  container_id: copies[0]?.container_id ?? null,
  container_ids: copies.map(({ container_id }) => container_id),
  snapshot_id,
  source_container_id: source?.id ?? null,
  source_container_name: source?.name ?? null,
});

interface CopyFailure {
  readonly error_code: ErrorCode;
  readonly error: string;
  readonly retryable: boolean;
}

/** The end of a request for copies. Throws as the first failure where none succeeded. */
function resultOf(
  { length: count }: readonly Wanted[],
  { items, warnings }: Made,
  verb: "cloned" | "forked",
  more: Json,
  capability_downgrades: readonly string[],
): OperationResult {
  const failed = items.filter(({ status }) => status === "failed");
  const [first] = failed;
  const container_ids = items.flatMap(({ container_id }) => (typeof container_id === "string" ? [container_id] : []));
  if (container_ids.length === 0 && first !== undefined) {
    const { error_code, error, retryable } = first as unknown as CopyFailure;
    throw new AppError(error_code, count === 1 ? error : `no copy succeeded: ${error}`, { retryable });
  }
  const created_count = container_ids.length;
  return {
    result: {
      ...(count === 1 ? { container_id: container_ids[0] } : {}),
      ...{ container_ids, created_count, failed_count: failed.length, ...more },
    },
    ...(count === 1 ? {} : { items }),
    message: count === 1 ? `container ${verb}` : `${created_count} of ${count} containers ${verb}`,
    warnings: [...new Set(warnings)],
    capability_downgrades,
  };
}
