/** Routes of monitors. */
import { pageQuery } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import { ID_EXAMPLE, SAMPLES } from "../samples.ts";
import { byContainer } from "../schema.ts";
import { type MonitorRecord, monitoredProcesses, monitorList, monitorProfile, monitorRecord } from "./schema.ts";
import type { Monitors } from "./service.ts";

export interface MonitorRoutesOptions {
  readonly monitors: Monitors;
}

const MONITOR: MonitorRecord = {
  container_id: SAMPLES.running.container_id,
  container_name: SAMPLES.running.name,
  pid: SAMPLES.running.pid,
  status: "monitoring",
  started_at: 1_795_262_400,
  last_check: 1_795_262_460,
  check_count: 60,
  error_message: null,
};

export function monitorRoutes({ monitors }: MonitorRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/monitors",
      auth: "tenant",
      scope: "read",
      operation: "listMonitors",
      summary: "Lists the monitors of the tenant's containers that were started at least once.",
      query: pageQuery,
      response: monitorList,
      example: { response: { monitors: [MONITOR], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("monitors", await monitors.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/monitors/processes",
      auth: "tenant",
      scope: "read",
      operation: "listMonitoredProcesses",
      summary: "Lists the first processes of the tenant's running containers.",
      query: pageQuery,
      response: monitoredProcesses,
      example: { response: { processes: [{ ...MONITOR, process_count: 2 }], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("processes", await monitors.processes(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/monitors/profile",
      auth: "tenant",
      scope: "read",
      operation: "getMonitorProfile",
      summary: "Counts the tenant's monitors by status, and the processes of its containers.",
      response: monitorProfile,
      example: {
        response: {
          container_count: 3,
          monitoring_count: 1,
          completed_count: 1,
          failed_count: 0,
          aborted_count: 1,
          process_count: 2,
          check_interval_seconds: 1,
          profiled_at: 1_795_262_460,
        },
      },
      handler: ({ caller }) => monitors.profile(caller.tenant_id),
    }),
    route({
      method: "GET",
      path: "/api/monitors/:container_id",
      auth: "tenant",
      scope: "read",
      operation: "getMonitor",
      summary: "Returns the monitor of a container.",
      params: byContainer,
      response: monitorRecord,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: MONITOR },
      handler: ({ caller, params }) => monitors.get(caller.tenant_id, params.container_id),
    }),
  ];
}
