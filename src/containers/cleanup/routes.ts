/** Routes of clean-up: tasks, their status, and the forced removal of a container. */
import { pageQuery } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import { ID_EXAMPLE, SAMPLES } from "../samples.ts";
import { byContainer } from "../schema.ts";
import { type CleanupTask, cleanupStatus, cleanupTaskList, forceCleanup, forcedCleanup } from "./schema.ts";
import type { Cleanup } from "./service.ts";

export interface CleanupRoutesOptions {
  readonly cleanup: Cleanup;
}

const TASK: CleanupTask = {
  task_id: "cln_8s0v3k6q1x9c4m2t",
  container_id: SAMPLES.running.container_id,
  resource_type: "network",
  resource_path: "h3fa1c05",
  status: "completed",
  created_at: 1_795_262_401,
  completed_at: 1_795_262_401,
  error_message: null,
};

export function cleanupRoutes({ cleanup }: CleanupRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/cleanup/status",
      auth: "tenant",
      scope: "read",
      operation: "getCleanupStatus",
      summary: "Returns how many clean-up tasks of the tenant are open, completed and failed.",
      response: cleanupStatus,
      example: {
        response: {
          status: "clean",
          pending_count: 0,
          in_progress_count: 0,
          completed_count: 3,
          failed_count: 0,
          oldest_open_at: null,
          last_completed_at: 1_795_262_401,
        },
      },
      handler: ({ caller }) => cleanup.status(caller.tenant_id),
    }),
    route({
      method: "GET",
      path: "/api/cleanup/tasks",
      auth: "tenant",
      scope: "read",
      operation: "listCleanupTasks",
      summary: "Lists the clean-up tasks of the tenant since the start of the daemon, newest first.",
      query: pageQuery,
      response: cleanupTaskList,
      example: { response: { tasks: [TASK], next_cursor: null } },
      handler: (request) => {
        const page = request.page();
        return page.answer("tasks", cleanup.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/cleanup/tasks",
      auth: "tenant",
      scope: "read",
      operation: "listContainerCleanupTasks",
      summary: "Lists the clean-up tasks of a container, also of a deleted one by its id.",
      params: byContainer,
      query: pageQuery,
      response: cleanupTaskList,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: { tasks: [TASK], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        const { container_id } = request.params;
        return page.answer("tasks", await cleanup.listOf(request.caller.tenant_id, container_id, page));
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/cleanup/force",
      auth: "tenant",
      scope: "write",
      operation: "forceContainerCleanup",
      summary: "Deletes a container that does not run with all that is left of it, and on request its volumes.",
      params: byContainer,
      body: forceCleanup,
      response: forcedCleanup,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: {
        params: ID_EXAMPLE,
        body: { confirm: true },
        response: { success: true, message: "container removed", container_id: TASK.container_id, tasks: [TASK] },
      },
      handler: ({ caller, params, body }) => cleanup.force(caller.tenant_id, params.container_id, body.remove_volumes),
    }),
  ];
}
