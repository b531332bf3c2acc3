/** Functions as bindings of messages call them: as the tenant, counted, recorded and limited like its other calls. */
import type { Caller } from "./base/caller.ts";
import { AppError } from "./base/errors.ts";
import type { Traces } from "./base/trace.ts";
import type { Invoker } from "./functions/calls/invoke.ts";
import type { Functions } from "./functions/service.ts";
import type { BoundFunctions } from "./icc/bindings/service.ts";

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
    call({ id, tenant_id, function_id }, payload, trace) {
      const caller: Caller = {
        ...{ tenant_id, kind: "key", key_id: id, scopes: ["invoke"], is_operator: false, invocation: null },
      };
      const find = () => functions.targetById(tenant_id, function_id);
      return invoker.invoke(
        find,
        { payload, environment: {} },
        { caller, trace: trace ?? traces.begin(undefined, undefined), note: () => {} },
      );
    },
  };
}
