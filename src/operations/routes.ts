/** Looking at operations, and cancelling them. What starts one is a route of its own concern. */
import { z } from "zod";
import { route } from "../http/route.ts";
import { SAMPLES } from "./samples.ts";
import { getOperation, listOperations, operationList, operationRecord } from "./schema.ts";
import type { Operations } from "./service.ts";

const byId = z.object({
  operation_id: z.string().meta({ description: "Id of the operation.", examples: ["op_4m0v9c2x7k1t8r6d"] }),
});
const ID_EXAMPLE = { operation_id: "{operation_id}" };

export interface OperationRoutesOptions {
  readonly operations: Operations;
}

export function operationRoutes({ operations }: OperationRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/operations",
      auth: "tenant",
      scope: "read",
      operation: "listOperations",
      summary: "Lists the tenant's operations, newest first, without their results.",
      query: listOperations,
      response: operationList,
      example: { query: { limit: "10" }, response: { operations: [SAMPLES.summary], next_cursor: null } },
      handler: async (request) => {
        const { limit: _limit, cursor: _cursor, ...rest } = request.query;
        const page = request.page();
        const { tenant_id, container_ids } = request.caller;
        const { items, last } = await operations.list(tenant_id, { ...rest, container_ids }, page);
        const summaries = items.map(({ result: _result, items: _items, ...summary }) => summary);
        return page.answer("operations", { items: summaries, last });
      },
    }),
    route({
      method: "GET",
      path: "/api/operations/:operation_id",
      auth: "tenant",
      scope: "read",
      operation: "getOperation",
      summary: "Returns the progress or the result of an operation.",
      params: byId,
      query: getOperation,
      response: operationRecord,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.operation },
      handler: ({ caller, params, query, signal }) => {
        const { wait_seconds = 0 } = query;
        if (wait_seconds === 0) return operations.get(caller.tenant_id, params.operation_id);
        return operations.wait(caller.tenant_id, params.operation_id, { timeout_ms: wait_seconds * 1000, signal });
      },
    }),
    route({
      method: "POST",
      path: "/api/operations/:operation_id/cancel",
      auth: "tenant",
      scope: "write",
      operation: "cancelOperation",
      summary: "Cancels an operation that is queued, or that runs and can be stopped, and returns it.",
      params: byId,
      response: operationRecord,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, response: SAMPLES.cancelled },
      handler: ({ caller, params }) => operations.cancel(caller.tenant_id, params.operation_id),
    }),
  ];
}
