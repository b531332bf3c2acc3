/** Every route of the container concern: its life here, what runs in it in exec/routes.ts. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import type { Caller } from "../base/caller.ts";
import { acknowledgement, pageQuery } from "../base/schema.ts";
import { guideRoutes } from "../docs/guide.ts";
import { treeRoutes } from "../files/routes.ts";
import { validate } from "../http/input.ts";
import { type Route, route } from "../http/route.ts";
import { accepted, acceptedOperation, executionField as execution, operationRecord } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import { type CleanupRoutesOptions, cleanupRoutes } from "./cleanup/routes.ts";
import { type ExecRoutesOptions, execRoutes } from "./exec/routes.ts";
import { containersGuide } from "./guide.ts";
import { type MonitorRoutesOptions, monitorRoutes } from "./monitors/routes.ts";
import { type NetworkRoutesOptions, networkRoutes } from "./network/routes.ts";
import { ID_EXAMPLE, SAMPLES } from "./samples.ts";
import {
  batchContainers,
  byContainer,
  containerList,
  containerReadiness,
  containerRecord,
  containersReadiness,
  createContainer,
  environmentBody,
  killQuery,
  namedContainer,
  renameContainer,
  renamedContainer,
  startContainer,
  stopContainer,
} from "./schema.ts";
import { CONTAINER_STATES } from "./states.ts";
import type { ContainerVerbs } from "./verbs.ts";

export interface ContainerRoutesOptions
  extends ExecRoutesOptions,
    NetworkRoutesOptions,
    MonitorRoutesOptions,
    CleanupRoutesOptions {
  readonly operations: Operations;
  readonly verbs: ContainerVerbs;
}

const OPERATION_ERRORS = ["QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT", "WRONG_STATE"] as const;
const START_ERRORS = ["QUOTA_EXCEEDED", "CAPACITY_FULL", "START_FAILED"] as const;
const CREATE_ERRORS = ["NAME_TAKEN", "PORT_TAKEN", "NOT_FOUND", ...OPERATION_ERRORS, ...START_ERRORS] as const;
const IDEMPOTENT = ["Idempotency-Key"] as const;
const handle = { status: 202, response: acceptedOperation, example: SAMPLES.handle } as const;
const record = { status: 200, response: containerRecord, example: SAMPLES.running };

/** `others`: routes of other concerns below the same path, which the help lists as well. */
export function containerRoutes(options: ContainerRoutesOptions, others: readonly Route[]) {
  const routes = [
    ...findRoutes(options),
    ...makeRoutes(options),
    ...runRoutes(options),
    ...endRoutes(options),
    ...changeRoutes(options),
    ...execRoutes(options),
    ...containerTreeRoutes(options),
    ...networkRoutes(options),
    ...monitorRoutes(options),
    ...cleanupRoutes(options),
  ];
  const readiness = {
    schema: containersReadiness,
    example: { status: "ok" as const, concern: "containers" as const, running_count: 1, reason: null },
    look: ({ tenant_id }: Caller) => options.containers.readiness(tenant_id),
  };
  return [...guideRoutes(containersGuide, [...routes, ...others], readiness), ...routes];
}

/** A running container is seen as its first process sees it. */
function containerTreeRoutes({ containers, verbs, operations }: ContainerRoutesOptions) {
  return treeRoutes({
    prefix: "/api/containers/:container_id",
    params: byContainer,
    names: { list: "listContainerFiles", upload: "uploadContainerArchive", download: "downloadContainerArchive" },
    operations,
    open: (tenant_id, { container_id }) => containers.openFiles(tenant_id, container_id),
    unpack: (tenant_id, { container_id }, source, how) => verbs.unpack(tenant_id, container_id, source, how),
    example: { params: ID_EXAMPLE, directory: "root", mode: 700, handle: SAMPLES.handle },
  });
}

function findRoutes({ containers }: ContainerRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/containers",
      auth: "tenant",
      scope: "read",
      operation: "listContainers",
      summary: "Lists the tenant's containers, newest first.",
      query: pageQuery.extend({
        state: z.enum(CONTAINER_STATES).optional().describe("Only containers in this state."),
      }),
      response: containerList,
      example: { query: { state: "running" }, response: { containers: [SAMPLES.running], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        const { tenant_id, container_ids } = request.caller;
        const { state } = request.query;
        return page.answer("containers", await containers.list(tenant_id, { state, container_ids }, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/by-name/:name",
      auth: "tenant",
      scope: "read",
      operation: "findContainer",
      summary: "Returns a container by its name; for an unknown name the status is 200 with found: false.",
      params: z.object({ name: z.string().meta({ description: "Name of the container.", examples: ["box"] }) }),
      response: namedContainer,
      example: { params: { name: "box" }, response: { ...SAMPLES.running, found: true } },
      handler: async ({ caller, params }) => {
        const record = await containers.byName(caller.tenant_id, params.name);
        const isReached = record !== null && caller.container_ids?.has(record.container_id) !== false;
        if (isReached) return { ...record, found: true as const };
        return { found: false as const, container_id: null, error_message: `container '${params.name}' not found` };
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id",
      auth: "tenant",
      scope: "read",
      operation: "getContainer",
      summary: "Returns a container with its current state; the daemon runs every check for this response.",
      params: byContainer,
      response: containerRecord,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.running },
      handler: ({ caller, params }) => containers.get(caller.tenant_id, params.container_id),
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/ready",
      auth: "tenant",
      scope: "read",
      operation: "containerReady",
      summary: "Returns whether commands can run in a container, with each check.",
      params: byContainer,
      response: containerReadiness,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.ready },
      handler: async ({ caller, params }) => {
        const record = await containers.get(caller.tenant_id, params.container_id);
        const { container_id, state, exec_ready, network_ready, gui_ready, checks, checks_age_ms } = record;
        return {
          ...{ container_id, state, exec_ready, network_ready },
          ...(gui_ready === undefined ? {} : { gui_ready }),
          ...{ checks, checks_age_ms },
        };
      },
    }),
  ];
}

function makeRoutes({ containers, verbs, operations }: ContainerRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers",
      auth: "tenant",
      scope: "write",
      operation: "createContainer",
      summary: "Creates and starts a container; responds when it is ready.",
      query: z.object({ execution }),
      headers: IDEMPOTENT,
      body: createContainer,
      status: 201,
      response: containerRecord,
      other: handle,
      errors: CREATE_ERRORS,
      example: {
        body: { name: "box", image: "prod", ports: [{ container_port: 80 }] },
        response: SAMPLES.running,
      },
      handler: async (request) => {
        const { caller, query, body } = request;
        const { once } = request;
        if (query.execution !== "async" && once === null) {
          await verbs.prepare(caller.tenant_id, body, { signal: request.signal });
          return containers.create(caller.tenant_id, body);
        }
        return operations.answer(caller.tenant_id, await verbs.create(caller.tenant_id, body, once), {
          execution: query.execution ?? "sync",
          signal: request.signal,
          finished: ({ result_container_id }) => containers.get(caller.tenant_id, result_container_id ?? ""),
        });
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/batch",
      auth: "tenant",
      scope: "write",
      operation: "createContainers",
      summary: "Creates and starts several containers; the operation's items have a result each.",
      query: z.object({ execution }),
      headers: IDEMPOTENT,
      body: batchContainers,
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: operationRecord, example: SAMPLES.batch },
      errors: CREATE_ERRORS,
      example: { body: { items: [{ name: "one" }, { name: "two" }] }, response: SAMPLES.handle },
      handler: async (request) => {
        const { caller, query, body } = request;
        const operation = await verbs.batch(caller.tenant_id, body.items, request.once);
        return operations.answer(caller.tenant_id, operation, {
          execution: query.execution ?? "async",
          signal: request.signal,
          finished: (ended) => new Answer(200, ended),
        });
      },
    }),
  ];
}

function runRoutes({ containers, verbs, operations }: ContainerRoutesOptions) {
  const start = <const P extends "start" | "resume">(verb: P, operation: string, summary: string) =>
    route({
      method: "POST",
      path: `/api/containers/:container_id/${verb}`,
      auth: "tenant",
      scope: "write",
      operation,
      summary,
      params: byContainer,
      query: z.object({ execution }),
      headers: IDEMPOTENT,
      body: startContainer,
      status: 202,
      response: acceptedOperation,
      other: record,
      errors: ["NOT_FOUND", "IN_USE", ...OPERATION_ERRORS, ...START_ERRORS],
      example: {
        params: ID_EXAMPLE,
        ...(verb === "start" ? { query: { execution: "sync" } } : {}),
        response: SAMPLES.handle,
      },
      handler: async (request) => {
        const { params, query } = request;
        const { tenant_id } = request.caller;
        const operation = await verbs.start(tenant_id, params.container_id, request.once);
        return operations.answer(tenant_id, operation, {
          execution: query.execution ?? "async",
          signal: request.signal,
          finished: async () => new Answer(200, await containers.get(tenant_id, params.container_id)),
        });
      },
    });
  return [
    start("start", "startContainer", "Starts a stopped container."),
    start("resume", "resumeContainer", "The same as start."),
  ];
}

function endRoutes({ containers, verbs }: ContainerRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/stop",
      auth: "tenant",
      scope: "write",
      operation: "stopContainer",
      summary: "Stops a container: its stop signal, then SIGKILL after the grace period; responds when it has exited.",
      early_status: ({ execution }) => (execution === "async" ? null : 200),
      params: byContainer,
      query: z.object({ execution }),
      headers: IDEMPOTENT,
      body: stopContainer,
      response: containerRecord.extend(acknowledgement.shape),
      other: handle,
      errors: ["NOT_FOUND", "NOT_RUNNING", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, body: { timeout_ms: 1_000 }, response: SAMPLES.stopped },
      handler: async (request) => {
        const { params, query, body } = request;
        const { tenant_id } = request.caller;
        if (query.execution === "async") {
          return accepted(await verbs.stop(tenant_id, params.container_id, body.timeout_ms, request.once));
        }
        const stopped = await containers.stop(tenant_id, params.container_id, body.timeout_ms);
        return { ...stopped, success: true as const, message: "container stopped" };
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/kill",
      auth: "tenant",
      scope: "write",
      operation: "killContainer",
      summary: "Kills every process of the container with SIGKILL; a stopped container stays as it is.",
      params: byContainer,
      query: killQuery,
      response: containerRecord.extend(acknowledgement.shape),
      errors: ["NOT_FOUND", "NOT_RUNNING", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, response: SAMPLES.killed },
      handler: async ({ caller, params }) => ({
        ...(await containers.kill(caller.tenant_id, params.container_id)),
        success: true as const,
        message: "container stopped",
      }),
    }),
    route({
      method: "DELETE",
      path: "/api/containers/:container_id",
      auth: "tenant",
      scope: "write",
      operation: "deleteContainer",
      summary: "Deletes a container with its files and log, and kills it if it runs.",
      early_status: ({ execution }) => (execution === "async" ? null : 200),
      params: byContainer,
      query: z.object({ execution }),
      headers: IDEMPOTENT,
      response: acknowledgement,
      other: handle,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.deleted },
      handler: async (request) => {
        const { caller, params, query } = request;
        if (query.execution === "async") {
          return accepted(await verbs.delete(caller.tenant_id, params.container_id, request.once));
        }
        await containers.delete(caller.tenant_id, params.container_id);
        return { success: true as const, message: "container deleted" };
      },
    }),
  ];
}

function changeRoutes({ containers }: ContainerRoutesOptions) {
  const environment = <const M extends "PATCH" | "PUT">(method: M, operation: string, summary: string) =>
    route({
      method,
      path: "/api/containers/:container_id/env",
      auth: "tenant",
      scope: "write",
      operation,
      summary,
      params: byContainer,
      body: environmentBody,
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, body: { environment: { STAGE: "test" } }, response: SAMPLES.environment_set },
      handler: async ({ caller, params, body }) => {
        await containers.setEnvironment(
          caller.tenant_id,
          params.container_id,
          (before) =>
            // What was added up has the bounds of what is sent.
            validate(environmentBody, {
              environment: method === "PUT" ? body.environment : { ...before, ...body.environment },
            }).environment,
        );
        return { success: true as const, message: "applies to later commands and the next start" };
      },
    });
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/rename",
      auth: "tenant",
      scope: "write",
      operation: "renameContainer",
      summary: "Renames a container; other containers that resolve its name get the new one at once.",
      params: byContainer,
      body: renameContainer,
      response: renamedContainer,
      errors: ["NOT_FOUND", "NAME_TAKEN"],
      example: { params: ID_EXAMPLE, body: { new_name: "crate" }, response: SAMPLES.renamed },
      handler: async ({ caller, params, body }) => {
        const { new_name } = body;
        const { id, ...renamed } = await containers.rename(caller.tenant_id, params.container_id, new_name);
        return { success: true as const, container_id: id, new_name, ...renamed };
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/env",
      auth: "tenant",
      scope: "read",
      operation: "getContainerEnvironment",
      summary: "Returns the environment of the container's command and of later commands.",
      params: byContainer,
      response: environmentBody,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: { environment: { STAGE: "test" } } },
      handler: async ({ caller, params }) => ({
        environment: { ...(await containers.environment(caller.tenant_id, params.container_id)) },
      }),
    }),
    environment("PATCH", "patchContainerEnvironment", "Adds or changes variables."),
    environment("PUT", "putContainerEnvironment", "Replaces all variables."),
  ];
}
