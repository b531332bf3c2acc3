/** Functions as bindings of messages call them: as the tenant, counted, recorded and limited like its other calls. */
import type { Caller } from "./base/caller.ts";
import { AppError } from "./base/errors.ts";
import type { Traces } from "./base/trace.ts";
import type { Invoker } from "./functions/calls/invoke.ts";
import type { Functions } from "./functions/service.ts";
import type { BoundFunctions } from "./icc/bindings/service.ts";

const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;

interface Parts {
  readonly functions: Functions;
  readonly invoker: Invoker;
  readonly traces: Traces;
}

export function boundFunctions({ functions, invoker, traces }: Parts): BoundFunctions {
  return {
    async find(tenant_id, id_or_name) {
      try {
        return await functions.get(tenant_id, id_or_name);
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== "NOT_FOUND") throw error;
        return functions.byName(tenant_id, id_or_name);
      }
    },
    call({ id, tenant_id, function_id }, payload, trace_id) {
      const caller: Caller = {
        ...{ tenant_id, kind: "key", key_id: id, scopes: ["invoke"], is_operator: false, invocation: null },
      };
      const begun = traces.begin(undefined, undefined);
      // The call is a part of the trace of its message.
      const trace = TRACE_ID.test(trace_id) ? { ...begun, trace_id } : begun;
      const find = () => functions.targetById(tenant_id, function_id);
      return invoker.invoke(find, { payload, environment: {} }, { caller, trace, note: () => {} });
    },
  };
}
