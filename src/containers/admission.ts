/** Checks before a container is made or started, each a statement of the batch that makes the change; and all refusals. */
import { unknownCredential } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { LimitName, Quotas } from "../base/tenant-limits.ts";
import type { Engine } from "../engine/ports.ts";
import type { Guard } from "../store/store.ts";
import { networkChecks } from "./network/membership.ts";
import type { ContainerRow, ContainerRows } from "./rows.ts";

export interface Admission {
  readonly rows: ContainerRows;
  readonly quotas: Quotas;
  readonly containers_max: number;
}

/** Checks before a container runs: the tenant's limits, then the memory of this node. */
export function startChecks(
  { rows, quotas }: Admission,
  row: ContainerRow,
  adds: Partial<Record<LimitName, number>> = {},
): Guard[] {
  const { container_memory_mb } = quotas;
  const { tenant_id, memory_limit_mb } = row;
  return [
    ...quotas.guards(tenant_id, { ...adds, container_memory_mb_max: memory_limit_mb }),
    {
      statement: rows.memory(row, container_memory_mb),
      refusal: () => memoryFull(memory_limit_mb, container_memory_mb),
    },
  ];
}

/** The whole batch that makes a container in state `starting`. */
export function insertChecks(admission: Admission, row: ContainerRow, { use }: Pick<ResolvedImage, "use">): Guard[] {
  return batch(admission, row, [...(use === null ? [] : [use]), ...startChecks(admission, row, heldBy(row))]);
}

/** The whole batch that makes a container in state `created`, which needs no memory yet. */
export function restingChecks(admission: Admission, row: ContainerRow): Guard[] {
  return batch(admission, row, admission.quotas.guards(row.tenant_id, heldBy(row)));
}

const heldBy = ({ disk_limit_mb }: ContainerRow) => ({ containers_max: 1, disk_mb_max: disk_limit_mb ?? 0 });

function batch({ rows, quotas, containers_max }: Admission, row: ContainerRow, checks: readonly Guard[]): Guard[] {
  const { id, tenant_id } = row;
  return [
    { statement: rows.guard(tenant_id), refusal: unknownCredential },
    ...checks,
    ...networkChecks(tenant_id, row.network, quotas.of(tenant_id).networks_max),
    { statement: rows.room(tenant_id, containers_max), refusal: () => nodeFull(containers_max) },
    { statement: rows.insert(row), refusal: () => nameTaken(row.name) },
    ...row.volumes.map((volume) => ({
      statement: rows.mount(tenant_id, id, volume.id, volume.target),
      refusal: volumeGone,
    })),
  ];
}

/** An image that a container may be made from. */
export interface ResolvedImage {
  readonly reference: string;
  /** Release that the profile promises; null: the image belongs to no profile. */
  readonly release: string | null;
  /** Null: the image that the reference names in the image store. */
  readonly image_id: string | null;
  /** Holds the tenant's right to the image in the batch that makes the container. Null: every tenant may use the image. */
  readonly use: Guard | null;
}

/** Throws INVALID_ARGUMENT for an unknown profile, NOT_FOUND for an image that the tenant does not have. */
export type ResolveImage = (tenant_id: string, selector: string, oci: boolean) => Promise<ResolvedImage>;

/** Contracts of the images of profiles. */
export interface ImageContracts {
  /** `release` null: the image of a tenant, which has to be in the store alone. Rejects if the store does not answer. */
  holds(image_id: string, release: string | null): Promise<boolean>;
}

interface ReadinessParts {
  readonly engine: Pick<Engine, "images" | "storage">;
  readonly resolveImage: ResolveImage;
}

export async function readinessOf({ engine, resolveImage }: ReadinessParts, tenant_id: string, running_count: number) {
  // The profile that every node has.
  const reason = await unready(engine, await resolveImage(tenant_id, "prod", false));
  const status = reason === null ? ("ok" as const) : ("degraded" as const);
  return { status, concern: "containers" as const, running_count, reason };
}

/** Returns the reason why containers cannot be started; null: they can. */
async function unready(engine: Pick<Engine, "images" | "storage">, image: ResolvedImage): Promise<string | null> {
  const isInStore = await engine.images.isRelease(image.reference, image.release).catch(() => null);
  if (isInStore === null) return "the image store does not answer";
  if (!isInStore) return "the image store does not have the image of the profile prod";
  const { free_mb } = await engine.storage.statistics();
  return free_mb < LIMITS.disk_limit_mb_min ? "the disk has no space for container files" : null;
}

function nodeFull(containers_max: number): AppError {
  return new AppError("CAPACITY_FULL", `container limit of this node reached (${containers_max})`, {
    hint: "delete containers, or ask the operator for a higher HEARTH_CONTAINERS_MAX",
  });
}

function memoryFull(wanted_mb: number, max_mb: number): AppError {
  return new AppError(
    "CAPACITY_FULL",
    `not enough memory for containers on this node: ${wanted_mb} MiB requested (limit ${max_mb} MiB in all)`,
    {
      details: { expected: [String(max_mb)], received: String(wanted_mb) },
      hint: "stop containers, send a smaller memory_limit_mb, or ask the operator for a higher HEARTH_MEMORY_OVERCOMMIT",
    },
  );
}

function volumeGone(): AppError {
  return new AppError("NOT_FOUND", "one of the volumes was just deleted");
}

export function stateChanged(verb: string): AppError {
  return new AppError("WRONG_STATE", `cannot ${verb} the container: its state changed at the same time`, {
    hint: "read the container and retry",
  });
}

/** Refusal of work on a container that must not run. */
export function runs({ id, state }: Pick<ContainerRow, "id" | "state">): AppError {
  return new AppError("WRONG_STATE", `container '${id}' is not stopped: it is ${state}`, {
    details: { state },
    hint: "stop the container first",
  });
}

/** Refusal of a stop or kill. */
export function neverRan({ id, state }: Pick<ContainerRow, "id" | "state">): AppError {
  return new AppError("NOT_RUNNING", `container '${id}' has never run: ${state}`, {
    details: { state, expected: ["running"] },
    hint: `start it with POST /api/containers/${id}/start, or delete it`,
  });
}

export function nameTaken(name: string): AppError {
  return new AppError("NAME_TAKEN", `a container named '${name}' exists`, {
    hint: "delete it, or choose another name",
  });
}

export function filesInUse(id: string): AppError {
  return new AppError("IN_USE", `files of container '${id}' are in use`, {
    hint: "retry when the transfers of its files have ended",
  });
}
