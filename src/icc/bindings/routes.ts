/** The routes of function bindings. */
import { lacksScope } from "../../base/caller.ts";
import { acknowledgement } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import * as shapes from "./schema.ts";
import type { Bindings } from "./service.ts";

const SAMPLE = {
  ...{ binding_id: "bnd_6t1v8hx2m9qk4te7", function_id: "fn_vbdyfv0b4bfn4a9q", function_name: "hello" },
  ...{ subject: "queue:work", message_type: null, ordered: false, reply: false },
  ...{ max_deliver: 5, backoff_ms: 1_000, concurrency: 4 },
  ...{ inbox: "queue:work", in_flight: 0, last_error: null, created_at: 1_795_600_000 },
};
const BY_BINDING = { binding_id: "{binding_id}" };

export function bindingRoutes({ bindings }: { readonly bindings: Bindings }) {
  const path = "/api/icc/bindings/:binding_id" as const;
  return [
    route({
      method: "POST",
      path: "/api/icc/bindings",
      auth: "tenant",
      scope: "write",
      operation: "bindFunction",
      summary:
        "Calls a function for each message of a queue, of another address or of a type from now on; needs the scope invoke too.",
      status: 201,
      body: shapes.bindFunction,
      response: shapes.bindingRecord,
      errors: ["NOT_FOUND", "QUOTA_EXCEEDED"],
      example: { body: { function: "{function_id}", subject: "queue:work" }, response: SAMPLE },
      handler: ({ caller, body }) => {
        // A binding goes on calling for its maker.
        if (!caller.scopes.includes("invoke")) throw lacksScope("invoke");
        return bindings.create(caller.tenant_id, body);
      },
    }),
    route({
      method: "GET",
      path: "/api/icc/bindings",
      auth: "tenant",
      scope: "read",
      operation: "listBindings",
      summary: "Lists the tenant's function bindings.",
      response: shapes.bindingList,
      example: { response: { bindings: [SAMPLE] } },
      handler: ({ caller }) => bindings.list(caller.tenant_id),
    }),
    route({
      method: "GET",
      path,
      auth: "tenant",
      scope: "read",
      operation: "getBinding",
      summary: "Returns a function binding with its calls in flight and its last error.",
      params: shapes.byBinding,
      response: shapes.bindingRecord,
      errors: ["NOT_FOUND"],
      example: { params: BY_BINDING, response: SAMPLE },
      handler: ({ caller, params }) => bindings.get(caller.tenant_id, params.binding_id),
    }),
    route({
      method: "DELETE",
      path,
      auth: "tenant",
      scope: "write",
      operation: "deleteBinding",
      summary: "Deletes a function binding with its own inbox; a queue stays.",
      params: shapes.byBinding,
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: { params: BY_BINDING, response: { success: true, message: "binding deleted" } },
      handler: async ({ caller, params }) => {
        await bindings.delete(caller.tenant_id, params.binding_id);
        return { success: true as const, message: "binding deleted" };
      },
    }),
  ];
}
