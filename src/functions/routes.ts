/** Hot path. Every route of the function concern, in full, with what it takes and answers. */
import { z } from "zod";
import type { Pool } from "../../pool/index.ts";
import { Answer } from "../base/answer.ts";
import type { Caller } from "../base/caller.ts";
import { acknowledgement, pageQuery } from "../base/schema.ts";
import type { CodeStore } from "../code/service.ts";
import { guideRoutes } from "../docs/guide.ts";
import { route } from "../http/route.ts";
import { acceptedOperation, executionField } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import type { Call } from "./calls/calling.ts";
import type { Invoker } from "./calls/invoke.ts";
import type { Outcome } from "./calls/outcome.ts";
import { functionsGuide, functionsHealth } from "./guide.ts";
import { checkSmoke } from "./parts.ts";
import { functionPool, functionPools, functionsReadiness, poolStats } from "./pool-schema.ts";
import type { Invocations } from "./records/invocations.ts";
import { SAMPLES } from "./samples.ts";
import {
  createFunction,
  functionList,
  functionRecord,
  invocationList,
  invocationRecord,
  invokeFunction,
  namedFunction,
  rollbackFunction,
  updateFunction,
  versionList,
} from "./schema.ts";
import type { Functions } from "./service.ts";
import type { SnapshotVersions } from "./versions/from-snapshot.ts";
import { codeRoutes } from "./versions/routes.ts";
import { deployRequest, snapshotVersion } from "./versions/schema.ts";

const byId = z.object({
  function_id: z.string().meta({ description: "Id of the function.", examples: ["fn_vbdyfv0b4bfn4a9q"] }),
});
const byName = z.object({ name: z.string().meta({ description: "Name of the function.", examples: ["hello"] }) });
const byInvocation = byId.extend({
  invocation_id: z.string().meta({ description: "Id of the invocation.", examples: ["inv_1s2k9f0w3q_yynyb436"] }),
});
const ID_EXAMPLE = { function_id: "{function_id}" };
const NAME_EXAMPLE = { name: "hello" };

const EXACT_SMOKE = [["smoke", "payload"]];

/** What may keep a call from being run. */
const CALL_ERRORS = [
  "NOT_FOUND",
  "WRONG_STATE",
  "QUEUE_FULL",
  "QUEUE_TIMEOUT",
  "CONCURRENCY_LIMIT",
  "QUOTA_EXCEEDED",
  "CHAIN_TOO_DEEP",
  "CAPACITY_FULL",
  "START_FAILED",
  "SHUTTING_DOWN",
] as const;

export interface FunctionRoutesOptions {
  readonly functions: Functions;
  readonly invoker: Invoker;
  readonly invocations: Invocations;
  readonly pool: Pool<Call, Outcome>;
  readonly code: CodeStore;
  readonly operations: Operations;
  readonly snapshot_versions: SnapshotVersions;
}

export function functionRoutes(options: FunctionRoutesOptions) {
  const routes = [
    ...codeRoutes(options),
    ...lifecycleRoutes(options),
    ...findRoutes(options),
    ...invokeRoutes(options),
    ...versionRoutes(options),
    ...recordRoutes(options),
    ...poolRoutes(options),
  ];
  const readiness = {
    schema: functionsReadiness,
    example: SAMPLES.health,
    look: async ({ is_operator, tenant_id }: Caller) => {
      const totals = options.pool.totals();
      return functionsHealth(totals, is_operator ? totals : await options.functions.poolTotals(tenant_id));
    },
  };
  return [...guideRoutes(functionsGuide, routes, readiness), ...routes];
}

function poolRoutes({ functions, pool }: FunctionRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/functions/pool/stats",
      auth: "tenant",
      scope: "read",
      operation: "poolStats",
      summary:
        "Returns the instances of the tenant's functions by state; for the operator, of all tenants, and the reserve of cells (started containers that belong to no function yet).",
      response: poolStats,
      example: { response: SAMPLES.pool_stats },
      handler: ({ caller }) => (caller.is_operator ? pool.totals() : functions.poolTotals(caller.tenant_id)),
    }),
    route({
      method: "GET",
      path: "/api/functions/pools",
      auth: "tenant",
      scope: "read",
      operation: "functionPools",
      summary: "Lists the tenant's functions that have instances or waiting calls, with their instances by state.",
      response: functionPools,
      example: { response: { pools: [SAMPLES.function_pool] } },
      handler: async ({ caller }) => ({ pools: await functions.pools(caller.tenant_id) }),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/pool",
      auth: "tenant",
      scope: "read",
      operation: "functionPool",
      summary: "Returns the instances of a function by state; those of superseded versions apart.",
      params: byId,
      response: functionPool,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.function_pool },
      handler: async ({ caller, params }) => ({
        function_id: params.function_id,
        ...(await functions.poolStatus(caller.tenant_id, params.function_id)),
      }),
    }),
  ];
}

function findRoutes({ functions }: FunctionRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/functions",
      auth: "tenant",
      scope: "read",
      operation: "listFunctions",
      summary: "Lists the tenant's functions, newest first.",
      query: pageQuery,
      response: functionList,
      example: { query: { limit: "10" }, response: { functions: [SAMPLES.active], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("functions", await functions.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/functions/by-name/:name",
      auth: "tenant",
      scope: "read",
      operation: "findFunction",
      summary: "Returns a function by its name.",
      params: byName,
      response: namedFunction,
      errors: ["NOT_FOUND"],
      example: { params: NAME_EXAMPLE, response: { ...SAMPLES.active, found: true } },
      handler: async ({ caller, params }) => ({
        ...(await functions.byName(caller.tenant_id, params.name)),
        found: true as const,
      }),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id",
      auth: "tenant",
      scope: "read",
      operation: "getFunction",
      summary: "Returns a function by its id.",
      params: byId,
      response: functionRecord,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.active },
      handler: ({ caller, params }) => functions.get(caller.tenant_id, params.function_id),
    }),
  ];
}

function lifecycleRoutes({ functions }: FunctionRoutesOptions) {
  const deploy = <const Verb extends "deploy" | "resume">(verb: Verb, operation: string, summary: string) =>
    route({
      method: "POST",
      path: `/api/functions/:function_id/${verb}`,
      auth: "tenant",
      scope: "write",
      operation,
      summary,
      params: byId,
      body: deployRequest,
      exact_fields: EXACT_SMOKE,
      response: functionRecord,
      errors: ["NOT_FOUND", "WRONG_STATE", "HANDLER_FAILED", "START_FAILED", "CAPACITY_FULL", "QUOTA_EXCEEDED"],
      example: { params: ID_EXAMPLE, response: SAMPLES.active },
      handler: ({ caller, params, body: { smoke = null } }) => {
        checkSmoke(caller, smoke);
        return functions.deploy(caller.tenant_id, params.function_id, smoke);
      },
    });
  return [
    route({
      method: "POST",
      path: "/api/functions",
      auth: "tenant",
      scope: "write",
      operation: "createFunction",
      summary: "Creates a function in state pending; deploy makes it invocable.",
      headers: ["Idempotency-Key"],
      body: createFunction,
      status: 201,
      response: functionRecord,
      errors: ["NAME_TAKEN", "NOT_FOUND", "START_FAILED", "QUEUE_FULL", "CAPACITY_FULL", "QUOTA_EXCEEDED"],
      example: { body: { name: "hello", handler: "echo hello, $(cat)" }, response: SAMPLES.created },
      handler: (request) => functions.create(request.caller, request.body, request),
    }),
    deploy(
      "deploy",
      "deployFunction",
      "Makes a function invocable; responds when min_instances are warm, the handler is loaded and the smoke call succeeded.",
    ),
    deploy("resume", "resumeFunction", "Makes a paused function invocable again: the same as deploy."),
    route({
      method: "POST",
      path: "/api/functions/:function_id/pause",
      auth: "tenant",
      scope: "write",
      operation: "pauseFunction",
      summary: "Scales a function to zero: refuses waiting calls, lets running ones finish.",
      params: byId,
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, response: { success: true, message: "function paused" } },
      handler: async ({ caller, params }) => {
        await functions.pause(caller.tenant_id, params.function_id);
        return { success: true as const, message: "function paused" };
      },
    }),
    route({
      method: "DELETE",
      path: "/api/functions/:function_id",
      auth: "tenant",
      scope: "write",
      operation: "deleteFunction",
      summary: "Deletes a function with its versions, instances and records; running calls may finish.",
      params: byId,
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, response: { success: true, message: "function deleted" } },
      handler: async ({ caller, params }) => {
        await functions.delete(caller.tenant_id, params.function_id);
        return { success: true as const, message: "function deleted" };
      },
    }),
  ];
}

function versionRoutes({ functions, operations, snapshot_versions }: FunctionRoutesOptions) {
  return [
    route({
      method: "PUT",
      path: "/api/functions/:function_id",
      auth: "tenant",
      scope: "write",
      operation: "updateFunction",
      summary: "Creates the next version, warms it if the function is active, and activates it.",
      params: byId,
      headers: ["Idempotency-Key"],
      body: updateFunction,
      exact_fields: EXACT_SMOKE,
      response: functionRecord,
      errors: [
        ...["NOT_FOUND", "WRONG_STATE", "HANDLER_FAILED", "START_FAILED"],
        ...["QUEUE_FULL", "CAPACITY_FULL", "QUOTA_EXCEEDED"],
      ] as const,
      example: { params: ID_EXAMPLE, body: { handler: "echo good day, $(cat)" }, response: SAMPLES.updated },
      handler: (request) => {
        const { caller, params, body } = request;
        checkSmoke(caller, body.smoke);
        return functions.versions.update(caller, params.function_id, body, request);
      },
    }),
    route({
      method: "POST",
      path: "/api/functions/:function_id/versions",
      auth: "tenant",
      scope: "write",
      operation: "createVersionFromSnapshot",
      summary: "Makes an image from a snapshot of a container, and the next version on it.",
      params: byId,
      query: z.object({ execution: executionField }),
      headers: ["Idempotency-Key"],
      body: snapshotVersion,
      exact_fields: EXACT_SMOKE,
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: functionRecord, example: SAMPLES.updated },
      errors: [
        ...["NOT_FOUND", "WRONG_STATE", "HANDLER_FAILED", "START_FAILED", "CAPACITY_FULL", "QUOTA_EXCEEDED"],
        ...["IMAGE_INVALID", "QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT"],
      ] as const,
      example: { params: ID_EXAMPLE, body: { snapshot_id: "{snapshot_id}" }, response: SAMPLES.handle },
      handler: async ({ caller, params, query, body, once, signal }) => {
        const { tenant_id } = caller;
        checkSmoke(caller, body.smoke);
        const operation = await snapshot_versions.accept(caller, params.function_id, body, {
          once,
          signal,
        });
        return operations.answer(tenant_id, operation, {
          execution: query.execution ?? "async",
          signal,
          finished: async () => new Answer(200, await functions.get(tenant_id, params.function_id)),
        });
      },
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/versions",
      auth: "tenant",
      scope: "read",
      operation: "listVersions",
      summary: "Lists the versions of a function, newest first.",
      params: byId,
      query: pageQuery,
      response: versionList,
      errors: ["NOT_FOUND"],
      example: {
        params: ID_EXAMPLE,
        query: { limit: "10" },
        response: { versions: SAMPLES.versions, next_cursor: null },
      },
      handler: async (request) => {
        const page = request.page();
        return page.answer(
          "versions",
          await functions.versions.list(request.caller.tenant_id, request.params.function_id, page),
        );
      },
    }),
    route({
      method: "POST",
      path: "/api/functions/:function_id/rollback",
      auth: "tenant",
      scope: "write",
      operation: "rollbackFunction",
      summary: "Activates an earlier version; running calls finish on the version that they started with.",
      params: byId,
      body: rollbackFunction,
      response: functionRecord,
      errors: ["NOT_FOUND", "WRONG_STATE", "HANDLER_FAILED", "START_FAILED", "CAPACITY_FULL", "QUOTA_EXCEEDED"],
      example: { params: ID_EXAMPLE, body: { version: 1 }, response: SAMPLES.active },
      handler: ({ caller, params, body }) =>
        functions.versions.rollback(caller.tenant_id, params.function_id, body.version),
    }),
  ];
}

function invokeRoutes({ functions, invoker }: FunctionRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/functions/invoke/:name",
      auth: "tenant",
      scope: "invoke",
      operation: "invokeFunctionByName",
      summary: "Invokes a function by name and returns the committed record.",
      params: byName,
      body: invokeFunction,
      exact_fields: [["payload"]],
      response: invocationRecord,
      errors: CALL_ERRORS,
      example: { params: NAME_EXAMPLE, body: { payload: "world" }, response: SAMPLES.invocation },
      handler: (request) => {
        const { caller, params, body } = request;
        return invoker.invoke(() => functions.targetByName(caller.tenant_id, params.name), body, request);
      },
    }),
    route({
      method: "POST",
      path: "/api/functions/:function_id/invoke",
      auth: "tenant",
      scope: "invoke",
      operation: "invokeFunction",
      summary: "Invokes a function by id and returns the committed record.",
      params: byId,
      body: invokeFunction,
      exact_fields: [["payload"]],
      response: invocationRecord,
      errors: CALL_ERRORS,
      example: {
        params: ID_EXAMPLE,
        body: { payload: "world", environment: { GREETING: "hi" }, timeout_seconds: 10 },
        response: SAMPLES.invocation,
      },
      handler: (request) => {
        const { caller, params, body } = request;
        return invoker.invoke(() => functions.targetById(caller.tenant_id, params.function_id), body, request);
      },
    }),
  ];
}

function recordRoutes({ functions, invocations }: FunctionRoutesOptions) {
  const keyOf = async (tenant_id: string, function_id: string) => {
    const { function_seq, record } = await functions.targetById(tenant_id, function_id);
    return { function_seq, id: record.id, name: record.name };
  };
  return [
    route({
      method: "GET",
      path: "/api/functions/:function_id/invocations",
      auth: "tenant",
      scope: "read",
      operation: "listInvocations",
      summary:
        "Lists the invocation records of a function, newest first; pages of large records have fewer than limit.",
      params: byId,
      query: pageQuery,
      response: invocationList,
      errors: ["NOT_FOUND"],
      example: {
        params: ID_EXAMPLE,
        query: { limit: "10" },
        response: { invocations: [SAMPLES.invocation], next_cursor: null },
      },
      handler: async (request) => {
        const { caller, params } = request;
        const page = request.page();
        return page.answer(
          "invocations",
          await invocations.list(await keyOf(caller.tenant_id, params.function_id), page),
        );
      },
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/invocations/:invocation_id",
      auth: "tenant",
      scope: "read",
      operation: "getInvocation",
      summary: "Returns an invocation record.",
      params: byInvocation,
      response: invocationRecord,
      errors: ["NOT_FOUND"],
      example: { params: { ...ID_EXAMPLE, invocation_id: "{invocation_id}" }, response: SAMPLES.invocation },
      handler: async ({ caller, params }) =>
        invocations.get(await keyOf(caller.tenant_id, params.function_id), params.invocation_id),
    }),
  ];
}
