/** Refusals of requests that no route serves: an unknown path, another method, a target that names nothing. */
import type { IncomingHttpHeaders } from "node:http";
import type { Context } from "hono";
import { AppError } from "../base/errors.ts";
import { errorCodeOf, errorResponse, requestId } from "./errors.ts";
import type { AppDeps, Env } from "./serve.ts";

/** The refusal where no route answers: 405 when `allowed` methods would, otherwise 404. No credential is looked at. */
export function refuse(c: Context<Env>, allowed: readonly string[], hasOrigins: boolean, deps: AppDeps): Response {
  const { method = "", headers } = c.env.incoming;
  const about = method === "OPTIONS" ? originHint(hasOrigins) : {};
  const refusal =
    allowed.length === 0
      ? new AppError("NOT_FOUND", `unknown route: ${method} ${c.req.path}`, {
          hint: "choose a route of GET /api/openapi.json; /api/docs shows them with examples",
        })
      : new AppError("METHOD_NOT_ALLOWED", `method not allowed: ${method} ${c.req.path}`, {
          details: { expected: allowed, received: method },
          ...about,
        });
  return refuseUnserved(refusal, headers, method, deps, allowed.length === 0 ? {} : { allow: allowed.join(", ") });
}

/** What a preflight request is told that no setting allows. */
const originHint = (hasOrigins: boolean) => ({
  hint: hasOrigins
    ? "add the origin of the page to HEARTH_CORS_ORIGINS: no other origin may read answers"
    : "set HEARTH_CORS_ORIGINS to the origins of pages that call this API: cross-origin requests (CORS) are off",
});

/** The refusal of what has no route, told like any other request. */
export function refuseUnserved(
  thrown: unknown,
  headers: IncomingHttpHeaders,
  method: string,
  deps: AppDeps,
  more_headers?: Readonly<Record<string, string>>,
): Response {
  const begun_ms = deps.clock.monotonicMs();
  const request_id = requestId(headers["x-request-id"], deps.ids);
  const trace = deps.traces.begin(headers.traceparent, headers.tracestate);
  const error_code = errorCodeOf(thrown);
  const response = errorResponse(thrown, request_id, deps.log, more_headers);
  const ended_ms = deps.clock.monotonicMs();
  const { status } = response;
  const told = {
    request_id,
    method,
    route: null,
    operation: null,
    address: null,
    is_change: false,
    target: null,
    status,
    error_code,
    is_poll: false,
    caller: null,
    begun_ms,
    ended_ms,
    trace,
    notes: {},
  };
  deps.observer.served(told);
  return response;
}
