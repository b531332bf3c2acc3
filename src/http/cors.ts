/**
 * Cross-origin requests of browsers (the CORS protocol of the Fetch standard), for origins that a setting lists. Responses
 * never allow credentials of the browser, and no origin is `*`: keys travel in headers that the page itself sets.
 *
 * O1. Only paths of the API answer other origins: the console and the desktops have no cross-origin readers.
 * O2. A response to a path of the API says `Vary: Origin` as soon as one origin is allowed, so that caches keep them apart.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { LIMITS } from "../base/limits.ts";

const METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE";
const REQUEST_HEADERS = [
  ...["Accept", "Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Range", "traceparent"],
  ...["tracestate", "X-Api-Key", "X-Orch-Action-Id", "X-Request-Id", "X-Tenant-Id"],
].join(", ");
const EXPOSED_HEADERS = [
  ...[
    "Accept-Ranges",
    "Allow",
    "Content-Range",
    "Idempotent-Replayed",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-File-Mode",
  ],
  ...["X-File-Path", "X-Request-Id"],
].join(", ");

/**
 * Marks the response to a request of an allowed origin. Returns true if it was a preflight request, which is then answered.
 * A preflight request of another origin is not answered here: its refusal has no header that a browser accepts.
 */
export function answerOrigin(
  { method, url = "", headers }: IncomingMessage,
  outgoing: ServerResponse,
  origins: ReadonlySet<string>,
): boolean {
  if (origins.size === 0 || !isApi(url)) return false;
  outgoing.setHeader("Vary", "Origin");
  const { origin } = headers;
  if (origin === undefined || !origins.has(origin)) return false;
  outgoing.setHeader("Access-Control-Allow-Origin", origin);
  if (method !== "OPTIONS" || headers["access-control-request-method"] === undefined) {
    outgoing.setHeader("Access-Control-Expose-Headers", EXPOSED_HEADERS);
    return false;
  }
  outgoing.writeHead(204, {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": REQUEST_HEADERS,
    "Access-Control-Max-Age": LIMITS.cors_max_age_seconds,
  });
  outgoing.end();
  return true;
}

/** O1. */
function isApi(url: string): boolean {
  const [path = ""] = url.split("?", 1);
  return path.startsWith("/api/") || path === "/health";
}
