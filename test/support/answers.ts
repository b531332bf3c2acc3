/** Holds answers against the table of routes: every answer that a test sees is one that the API describes. */
import { isDeepStrictEqual } from "node:util";
import { ERRORS } from "../../src/base/errors.ts";
import { errorSchema, errorsOf } from "../../src/docs/openapi.ts";
import type { Route } from "../../src/http/route.ts";
import { comparePaths, matches } from "../../src/http/server.ts";
import { ROUTES } from "./routes.ts";

const ORDERED = [...ROUTES].sort((a, b) => comparePaths(a.path, b.path));

export function routeOf(method: string, path: string): Route | undefined {
  const [bare = ""] = path.split("?", 1);
  return ORDERED.find((route) => route.method === method && matches(route.path, bare));
}

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly body: unknown;
}

/** Throws where an answer has a field too many or too few, another type, or a status or code that its route has not. */
export function checkAnswer(method: string, path: string, { status, headers, body }: Answered): void {
  const problem = problemWith(routeOf(method, path), { status, headers, body });
  if (problem !== null) throw new Error(`${method} ${path} answered ${status}, ${problem}: ${JSON.stringify(body)}`);
}

function problemWith(route: Route | undefined, { status, headers, body }: Answered): string | null {
  const type = headers.get("content-type")?.split(";", 1)[0] ?? "";
  if (headers.get("x-request-id") === null) return "without a request id";
  if (status < 400) {
    if (route === undefined) return "where no route is mounted";
    const isOther = status === route.other?.status;
    const isPart = status === 206 && route.headers.includes("Range");
    if (status !== route.status && !isOther && !isPart) return `not ${route.status}`;
    if (!(isOther ? ["application/json"] : route.content).includes(type)) return `as ${type}`;
    const schema = isOther ? route.other.response : route.response;
    return type === "application/json" && schema !== null ? mismatch(schema, body) : null;
  }
  const wrong = mismatch(errorSchema, body);
  if (wrong !== null) return wrong;
  const { error_code, request_id, retry_after, retryable } = errorSchema.parse(body);
  if (request_id !== headers.get("x-request-id")) return "with two request ids";
  if (String(retry_after) !== String(headers.get("retry-after"))) return "with another Retry-After in its header";
  if (retryable && retry_after === null) return "without a time for another try";
  // A refusal may say that no other try helps: no other try finds a GPU here.
  if (retryable && !ERRORS[error_code].retryable) return "with a retry that its code excludes";
  if (route === undefined) return ["NOT_FOUND", "METHOD_NOT_ALLOWED"].includes(error_code) ? null : "without a route";
  return errorsOf(route).includes(error_code) ? null : "which its route does not document";
}

/** Null, or what is wrong. A schema leaves out what it does not know, so a field too many is a difference. */
function mismatch(schema: NonNullable<Route["response"]>, body: unknown): string | null {
  const result = schema.safeParse(body);
  if (!result.success)
    return result.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`).join(", ");
  return isDeepStrictEqual(result.data, body) ? null : "with a field that is not in its schema";
}
