/**
 * Admits requests to services by their host and their token or cookie, and sends browsers to a URL without the token.
 *
 * A1. A request is for the service that its one Host header names, or for none.
 * A2. The right token is served however many wrong ones came from the same source: it cannot be guessed, and clients share
 *     addresses behind proxies. Wrong tokens above a rate are refused with 429.
 * A3. The cookie counts for requests that the service's own pages make, and for top-level navigations that read. A page of
 *     another service on the same site cannot use it.
 */
import type { IncomingMessage } from "node:http";
import { LRUCache } from "lru-cache";
import { sourceOf } from "../base/addresses.ts";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type Directory, hostName, type Origins, type Published } from "./published.ts";
import { matches, withoutCookie, withoutToken } from "./tokens.ts";

/** A request that is served. */
export interface Admitted {
  readonly service: Published;
  /** Host header as it was sent. */
  readonly host: string;
  /** Path and query without the token. */
  readonly target: string;
  /** URL to which a browser is sent, where it gets the cookie; null: the request is served. */
  readonly redirect: string | null;
}

interface Failures {
  count: number;
  readonly since_ms: number;
}

export class Access {
  readonly #directory: Directory;
  readonly #origins: Origins;
  readonly #clock: Clock;
  readonly #failures = new LRUCache<string, Failures>({ max: LIMITS.service_wrong_sources_max });

  constructor(directory: Directory, origins: Origins, clock: Clock) {
    this.#directory = directory;
    this.#origins = origins;
    this.#clock = clock;
  }

  /** Returns the service of a request's host, or null. Refuses nothing. */
  serviceOf({ rawHeaders, headers }: IncomingMessage): Published | null {
    const host = headers.host === undefined ? null : hostName(headers.host);
    // Node keeps the first of several.
    const count = rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === "host").length;
    if (host === null || count !== 1) return null;
    const found = this.#directory.byHost(host);
    const expires_at = found?.row.expires_at ?? null;
    return expires_at !== null && expires_at * 1_000 <= this.#clock.epochMs() ? null : found;
  }

  /** Throws INVALID_ARGUMENT, NOT_FOUND, UNAUTHORIZED, RATE_LIMITED, SERVICE_UNAVAILABLE. */
  admit(incoming: IncomingMessage): Admitted {
    const { url = "", method, headers } = incoming;
    // A URL in this place would name another host than the header.
    if (!url.startsWith("/") && !(url === "*" && method === "OPTIONS")) {
      throw new AppError("INVALID_ARGUMENT", "invalid request target: expected a path");
    }
    const service = this.serviceOf(incoming);
    if (service === null) throw new AppError("NOT_FOUND", "no published service at this host");
    const host = headers.host ?? "";
    const { rest, values } = withoutToken(url);
    const { token, row, failure } = service;
    if (row.auth_mode === "public") return { service, host, target: rest, redirect: null };
    if (token === null) throw new AppError("SERVICE_UNAVAILABLE", failure ?? "the token of the service is lost");
    const target = rest.includes(token.text) ? rest.replaceAll(token.text, "") : rest;
    if (values.length > 0 && matches(token.digest, values)) {
      const origin = `${this.#origins.scheme}://${host}`;
      return { service, host, target, redirect: isPage(incoming) ? `${origin}${target}` : null };
    }
    const cookies = headers.cookie === undefined ? [] : withoutCookie(headers.cookie, this.#origins.cookie).values;
    if (cookies.length > 0 && matches(token.cookie_digest, cookies) && this.#isOwn(incoming, host)) {
      return { service, host, target, redirect: null };
    }
    throw this.#refusal(incoming, service, values.length + cookies.length > 0);
  }

  /** A3. Browsers without Sec-Fetch-Site send Origin with whatever may change something. */
  #isOwn({ headers, method }: IncomingMessage, host: string): boolean {
    const { origin } = headers;
    if (origin !== undefined && origin !== `${this.#origins.scheme}://${host}`) return false;
    const site = headers["sec-fetch-site"];
    if (site === undefined || site === "same-origin" || site === "none") return true;
    const isNavigation = headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
    return isNavigation && (method === "GET" || method === "HEAD");
  }

  /** A2. */
  #refusal({ socket }: IncomingMessage, { row }: Published, hasTried: boolean): AppError {
    if (hasTried && !this.#count(`${row.id} ${sourceOf(socket.remoteAddress ?? "")}`)) {
      return new AppError("RATE_LIMITED", "too many wrong tokens", {
        retry_after: LIMITS.service_wrong_tokens_window_ms / 1_000,
      });
    }
    return new AppError("UNAUTHORIZED", "missing or wrong service token", {
      hint: "use the URL of the service with its query, as a key with the scope invoke or write sees it",
    });
  }

  /** Returns false above the rate. */
  #count(key: string): boolean {
    const now_ms = this.#clock.monotonicMs();
    const found = this.#failures.get(key);
    const isCurrent = found !== undefined && now_ms - found.since_ms < LIMITS.service_wrong_tokens_window_ms;
    const failures = isCurrent ? found : { count: 0, since_ms: now_ms };
    failures.count += 1;
    if (!isCurrent) this.#failures.set(key, failures);
    return failures.count <= LIMITS.service_wrong_tokens_max;
  }
}

/** True if a browser shows the response as the page of a tab: a frame may get no cookie. */
function isPage({ method, headers }: IncomingMessage): boolean {
  if (method !== "GET" || headers.upgrade !== undefined) return false;
  const mode = headers["sec-fetch-mode"];
  if (mode !== undefined) return mode === "navigate" && headers["sec-fetch-dest"] === "document";
  return headers.accept?.includes("text/html") === true;
}
