/** Every route of snapshots, clones and forks, those of containers and volumes among them. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import { acknowledgement } from "../base/schema.ts";
import { byContainer } from "../containers/schema.ts";
import { route } from "../http/route.ts";
import {
  acceptedOperation,
  type Execution,
  executionField as execution,
  type OperationRecord,
  operationRecord,
} from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import type { Comparisons } from "./changes.ts";
import type { Copies } from "./copies.ts";
import type { Exports } from "./exports.ts";
import type { Restore } from "./restore.ts";
import { SAMPLES } from "./samples.ts";
import { READS, type ScheduleRoutesOptions, scheduleRoutes } from "./schedule-routes.ts";
import {
  acceptedCopy,
  acceptedSnapshot,
  bySnapshot,
  byTwoSnapshots,
  changes,
  changesQuery,
  cloneSnapshot,
  commitContainer,
  createSnapshot,
  diffQuery,
  dryRun,
  exportSnapshot,
  forkContainer,
  lineage,
  listSnapshots,
  pinnedSnapshot,
  restoreContainer,
  snapshotDetail,
  snapshotList,
  snapshotVolume,
} from "./schema.ts";
import type { Snapshots } from "./service.ts";
import type { Settling } from "./settling.ts";
import { handleOf, type Taking } from "./taking.ts";

export interface SnapshotRoutesOptions extends ScheduleRoutesOptions {
  readonly snapshots: Snapshots;
  readonly settling: Settling;
  readonly taking: Taking;
  readonly copies: Copies;
  readonly restore: Restore;
  readonly comparisons: Comparisons;
  readonly exports: Exports;
  readonly operations: Operations;
}

/** The interface requires the tenant on its snapshot and fork routes, and so do all others of this concern. */
const CHANGES = ["X-Tenant-Id", "Idempotency-Key"] as const;
const OPERATION_ERRORS = ["QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT", "WRONG_STATE"] as const;
const TAKE_ERRORS = ["NOT_FOUND", "QUOTA_EXCEEDED", "CAPACITY_FULL", ...OPERATION_ERRORS] as const;
const WAIT_ERRORS = ["NOT_FOUND", "WRONG_STATE", "CONCURRENCY_LIMIT", "CAPACITY_FULL", "SHUTTING_DOWN"] as const;
const COPY_ERRORS = [...TAKE_ERRORS, "NAME_TAKEN", "START_FAILED"] as const;
const BY_ID = { snapshot_id: "{snapshot_id}" };
const BY_CONTAINER = { container_id: "{container_id}" };

export function snapshotRoutes(options: SnapshotRoutesOptions) {
  return [
    ...findRoutes(options),
    ...takeRoutes(options),
    ...copyRoutes(options),
    ...keepRoutes(options),
    ...volumeRoutes(options),
    ...changeRoutes(options),
    ...exportRoutes(options),
    ...scheduleRoutes(options),
  ];
}

/** Returns the response of a dry run. */
const checked = (plan: { readonly warnings: readonly string[]; readonly capability_downgrades: readonly string[] }) =>
  new Answer(200, {
    ...{ success: true as const, dry_run: true as const },
    ...{ warnings: [...plan.warnings], capability_downgrades: [...plan.capability_downgrades] },
  });

interface Waiting {
  readonly execution?: Execution | undefined;
}

/** The response of a request that an operation carries out: its handle, or the operation once it has ended. */
const ended = ({ execution }: Waiting, signal: AbortSignal) => ({
  ...{ execution: execution ?? ("async" as const), signal },
  finished: (operation: OperationRecord) => new Answer(200, operation),
});

/** Answers a request for a snapshot: with its handle, or the snapshot once it is complete. */
async function answerTaken(
  { operations, snapshots }: SnapshotRoutesOptions,
  tenant_id: string,
  operation: OperationRecord,
  query: Waiting,
  signal: AbortSignal,
) {
  const snapshot_id = operation.snapshot_id ?? "";
  return operations.answer(tenant_id, operation, {
    ...ended(query, signal),
    extra: handleOf(await snapshots.row(tenant_id, snapshot_id)),
    finished: async () => new Answer(200, await snapshots.get(tenant_id, snapshot_id)),
  });
}

const NO_REMARKS = { warnings: [], capability_downgrades: [] };

function findRoutes({ snapshots }: SnapshotRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/snapshots",
      auth: "tenant",
      scope: "read",
      operation: "listSnapshots",
      summary: "Lists the tenant's snapshots, newest first.",
      headers: READS,
      query: listSnapshots,
      response: snapshotList,
      example: {
        query: { label: "stage=test" },
        response: { snapshots: [SAMPLES.snapshot], next_cursor: null },
      },
      handler: async (request) => {
        const page = request.page();
        const { caller, query } = request;
        return page.answer("snapshots", await snapshots.list(caller.tenant_id, query, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/snapshots/:snapshot_id",
      auth: "tenant",
      scope: "read",
      operation: "getSnapshot",
      summary: "Returns a snapshot with the space that it takes, also while it is being taken.",
      headers: READS,
      params: bySnapshot,
      response: snapshotDetail,
      errors: ["NOT_FOUND"],
      example: { params: BY_ID, response: SAMPLES.detail },
      handler: ({ caller, params }) => snapshots.get(caller.tenant_id, params.snapshot_id),
    }),
    route({
      method: "GET",
      path: "/api/snapshots/:snapshot_id/lineage",
      auth: "tenant",
      scope: "read",
      operation: "getSnapshotLineage",
      summary: "Returns the snapshots that share an ancestor with this one, and the containers of them.",
      headers: READS,
      params: bySnapshot,
      response: lineage,
      errors: ["NOT_FOUND"],
      example: {
        params: BY_ID,
        response: SAMPLES.lineage,
      },
      handler: ({ caller, params }) => snapshots.lineage(caller.tenant_id, params.snapshot_id),
    }),
  ];
}

function takeRoutes(options: SnapshotRoutesOptions) {
  const { settling, taking, restore, containers, operations } = options;
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/snapshot",
      auth: "tenant",
      scope: "write",
      operation: "snapshotContainer",
      summary: "Takes a snapshot of a container's files and settings; a running container pauses for milliseconds.",
      headers: CHANGES,
      params: byContainer,
      query: z.object({ execution }),
      body: createSnapshot,
      status: 202,
      response: acceptedSnapshot,
      other: { status: 200, response: z.union([snapshotDetail, dryRun]), example: SAMPLES.detail },
      errors: TAKE_ERRORS,
      example: { params: BY_CONTAINER, body: { labels: { stage: "test" } }, response: SAMPLES.accepted },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const row = await containers.held(tenant_id, params.container_id);
        if (body.dry_run) return checked(await taking.plan(row, body, ""));
        return answerTaken(options, tenant_id, await taking.accept(tenant_id, row, body, once), query, signal);
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/restore",
      auth: "tenant",
      scope: "write",
      operation: "restoreContainer",
      summary:
        "Replaces a container's files by those of a snapshot; a running container is stopped before and started again.",
      headers: CHANGES,
      params: byContainer,
      query: z.object({ execution }),
      body: restoreContainer,
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: z.union([operationRecord, dryRun]), example: SAMPLES.operation },
      errors: [...TAKE_ERRORS, "CONCURRENCY_LIMIT", "IN_USE", "START_FAILED"],
      example: { params: BY_CONTAINER, body: BY_ID, response: SAMPLES.handle },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const row = await containers.held(tenant_id, params.container_id);
        const snapshot = await settling.row(tenant_id, body.snapshot_id, signal);
        if (body.dry_run) {
          restore.check(row, snapshot);
          return checked(NO_REMARKS);
        }
        return operations.answer(tenant_id, await restore.accept(tenant_id, row, snapshot, once), ended(query, signal));
      },
    }),
  ];
}

function copyRoutes({ snapshots, copies, containers, operations }: SnapshotRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/fork",
      auth: "tenant",
      scope: "write",
      operation: "forkContainer",
      summary: "Makes copies of a container as it is now, each with an id, a name and an address of its own.",
      headers: CHANGES,
      params: byContainer,
      query: z.object({ execution }),
      body: forkContainer,
      status: 202,
      response: acceptedCopy,
      other: { status: 200, response: z.union([operationRecord, dryRun]), example: SAMPLES.operation },
      errors: COPY_ERRORS,
      example: {
        params: BY_CONTAINER,
        body: { name: "try-{n}", count: 2, resume_policy: "immediate" },
        response: SAMPLES.forked,
      },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const row = await containers.held(tenant_id, params.container_id);
        if (body.dry_run) {
          await copies.checkFree(tenant_id, row, "", copies.wanted(row, body));
          return checked(await copies.forkPlan(row, body, ""));
        }
        const { operation, extra } = await copies.acceptFork(tenant_id, row, body, once);
        return operations.answer(tenant_id, operation, { ...ended(query, signal), extra });
      },
    }),
    route({
      method: "POST",
      path: "/api/snapshots/:snapshot_id/clone",
      auth: "tenant",
      scope: "write",
      operation: "cloneSnapshot",
      summary: "Makes a container with the files and settings of a snapshot, or a volume from one of a volume.",
      headers: CHANGES,
      params: bySnapshot,
      query: z.object({ execution }),
      body: cloneSnapshot,
      status: 202,
      response: acceptedCopy,
      other: { status: 200, response: z.union([operationRecord, dryRun]), example: SAMPLES.operation },
      errors: COPY_ERRORS,
      example: { params: BY_ID, body: { name: "again", resume_policy: "immediate" }, response: SAMPLES.cloned },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const row = await snapshots.held(tenant_id, params.snapshot_id);
        if (body.dry_run) {
          const wanted = copies.wanted(row, body);
          if (body.name != null) await copies.checkFree(tenant_id, row, body.name, wanted);
          return checked(copies.clonePlan(row));
        }
        const { operation, extra } = await copies.acceptClone(tenant_id, row, body, once);
        return operations.answer(tenant_id, operation, { ...ended(query, signal), extra });
      },
    }),
  ];
}

function keepRoutes({ snapshots, settling }: SnapshotRoutesOptions) {
  const pin = <const V extends "pin" | "unpin">(verb: V, operation: string, summary: string) =>
    route({
      method: "POST",
      path: `/api/snapshots/:snapshot_id/${verb}`,
      auth: "tenant",
      scope: "write",
      operation,
      summary,
      headers: CHANGES,
      params: bySnapshot,
      response: pinnedSnapshot,
      errors: WAIT_ERRORS,
      example: { params: BY_ID, response: verb === "pin" ? SAMPLES.pinned : SAMPLES.unpinned },
      handler: async ({ caller, params, signal }) => {
        const pinned = verb === "pin";
        await settling.row(caller.tenant_id, params.snapshot_id, signal);
        await snapshots.pin(caller.tenant_id, params.snapshot_id, pinned);
        const message = pinned ? "snapshot pinned" : "snapshot unpinned";
        return { success: true as const, message, snapshot_id: params.snapshot_id, pinned };
      },
    });
  return [
    pin("pin", "pinSnapshot", "Pins a snapshot, once it is complete: it can be neither deleted nor expire."),
    pin("unpin", "unpinSnapshot", "Unpins a snapshot, once it is complete."),
    route({
      method: "DELETE",
      path: "/api/snapshots/:snapshot_id",
      auth: "tenant",
      scope: "write",
      operation: "deleteSnapshot",
      summary: "Deletes a snapshot, once it is complete, unless it is pinned; its clones stay whole.",
      headers: CHANGES,
      params: bySnapshot,
      response: acknowledgement,
      errors: ["SNAPSHOT_PINNED", ...WAIT_ERRORS],
      example: { params: BY_ID, response: SAMPLES.deleted },
      handler: async ({ caller, params, signal }) => {
        await settling.row(caller.tenant_id, params.snapshot_id, signal);
        await snapshots.delete(caller.tenant_id, params.snapshot_id);
        return { success: true as const, message: "snapshot deleted" };
      },
    }),
  ];
}

function volumeRoutes(options: SnapshotRoutesOptions) {
  const { taking, volumes } = options;
  return [
    route({
      method: "POST",
      path: "/api/volumes/:name/snapshot",
      auth: "tenant",
      scope: "write",
      operation: "snapshotVolume",
      summary: "Takes a snapshot of a volume alone; cloning it makes a volume.",
      headers: CHANGES,
      params: z.object({ name: z.string().meta({ description: "Name of the volume.", examples: ["data"] }) }),
      query: z.object({ execution }),
      body: snapshotVolume,
      status: 202,
      response: acceptedSnapshot,
      other: { status: 200, response: z.union([snapshotDetail, dryRun]), example: SAMPLES.detail },
      errors: TAKE_ERRORS,
      example: { params: { name: "data" }, response: SAMPLES.accepted_volume },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const { row } = await volumes.root(tenant_id, params.name);
        if (body.dry_run) return checked(NO_REMARKS);
        return answerTaken(options, tenant_id, await taking.acceptVolume(tenant_id, row, body, once), query, signal);
      },
    }),
  ];
}

function changeRoutes({ comparisons, settling, containers }: SnapshotRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/snapshots/:snapshot_id/diff/:other_id",
      auth: "tenant",
      scope: "read",
      operation: "diffSnapshots",
      summary: "Lists the paths that are added, changed or deleted from one snapshot to another.",
      headers: READS,
      params: byTwoSnapshots,
      query: diffQuery,
      response: changes,
      errors: ["TIMEOUT", ...WAIT_ERRORS],
      example: { params: { ...BY_ID, other_id: "{other_id}" }, response: SAMPLES.changes },
      handler: async ({ caller, params, query, signal }) => {
        const { snapshot_id, other_id } = params;
        for (const id of [snapshot_id, other_id]) await settling.row(caller.tenant_id, id, signal);
        return comparisons.ofSnapshots(caller.tenant_id, snapshot_id, other_id, query.limit);
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/changes",
      auth: "tenant",
      scope: "read",
      operation: "listContainerChanges",
      summary: "Lists the paths that a container has added, changed or deleted since a snapshot, or against its image.",
      headers: READS,
      params: byContainer,
      query: changesQuery,
      response: changes,
      errors: ["TIMEOUT", ...WAIT_ERRORS],
      example: { params: BY_CONTAINER, query: { limit: "100" }, response: SAMPLES.changes },
      handler: async ({ caller, params, query, signal }) => {
        if (query.since != null) await settling.row(caller.tenant_id, query.since, signal);
        const row = await containers.held(caller.tenant_id, params.container_id);
        return comparisons.ofContainer(caller.tenant_id, row, query.since ?? null, query.limit);
      },
    }),
  ];
}

function exportRoutes({ settling, exports, containers, operations }: SnapshotRoutesOptions) {
  const IMAGE_ERRORS = ["IMAGE_INVALID", "IN_USE", "CONCURRENCY_LIMIT", ...TAKE_ERRORS] as const;
  return [
    route({
      method: "POST",
      path: "/api/snapshots/:snapshot_id/export",
      auth: "tenant",
      scope: "write",
      operation: "exportSnapshot",
      summary: "Makes an image from a snapshot of a container, or returns its files as tar.",
      headers: CHANGES,
      params: bySnapshot,
      query: z.object({ execution }),
      body: exportSnapshot,
      status: 202,
      content: ["application/json", "application/x-tar"],
      response: acceptedOperation,
      other: { status: 200, response: z.union([operationRecord, dryRun]), example: SAMPLES.operation },
      errors: IMAGE_ERRORS,
      example: { params: BY_ID, body: { reference: "tools:1" }, response: SAMPLES.handle },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const row = await settling.row(tenant_id, params.snapshot_id, signal);
        const isTar = body.format === "tar";
        if (body.dry_run) {
          if (!isTar) await exports.check(tenant_id, row, body.reference ?? "");
          return checked(NO_REMARKS);
        }
        if (isTar) return exports.archive(tenant_id, row);
        const operation = await exports.acceptSnapshot(tenant_id, row, body.reference ?? "", once);
        return operations.answer(tenant_id, operation, ended(query, signal));
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/commit",
      auth: "tenant",
      scope: "write",
      operation: "commitContainer",
      summary: "Makes an image from a container as it is now; its environment and volumes are left out.",
      headers: CHANGES,
      params: byContainer,
      query: z.object({ execution }),
      body: commitContainer,
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: z.union([operationRecord, dryRun]), example: SAMPLES.operation },
      errors: IMAGE_ERRORS,
      example: { params: BY_CONTAINER, body: { reference: "tools:1" }, response: SAMPLES.handle },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        const row = await containers.held(tenant_id, params.container_id);
        if (body.dry_run) {
          await exports.check(tenant_id, null, body.reference);
          return checked(NO_REMARKS);
        }
        const operation = await exports.acceptContainer(tenant_id, row, body.reference, once);
        return operations.answer(tenant_id, operation, ended(query, signal));
      },
    }),
  ];
}
