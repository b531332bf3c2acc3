/**
 * Headers on their way through the proxy, as flat lists of names and values: order, spelling and repetition stay.
 *
 * H1. Headers of one connection end here (RFC 9110 §7.6.1), those that Connection names included.
 * H2. Only the daemon describes the client to a backend: forwarding headers that a client sent are dropped.
 * H3. No backend gets the token, the cookie of the proxy, or a key of this daemon.
 * H4. A backend sets cookies for its own host alone, and not the cookie of the proxy.
 */
import type { IncomingMessage } from "node:http";
import { withoutCookie, withoutToken } from "./tokens.ts";

const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);
/** Methods for which Node sends no body unless a header announces one. */
const BODILESS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);
/** Names that tell of a client; WSGI and CGI read '_' like '-'. */
const FORWARDED = /^(forwarded|x-real-ip|x-forwarded-.*)$/;
/** A key of this daemon, which a client sent to the wrong place. */
const OWN_KEY = /^(bearer\s+)?hk_/i;

/** Calls `each` with every header of a flat list, the name in lower case. */
function forEach(raw: readonly string[], each: (name: string, value: string, sent: string) => void): void {
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const sent = raw[i] ?? "";
    each(sent.toLowerCase(), raw[i + 1] ?? "", sent);
  }
}

/** Names that the Connection headers of a message list. */
function named(raw: readonly string[]): ReadonlySet<string> {
  const names = new Set<string>();
  forEach(raw, (name, value) => {
    if (name !== "connection") return;
    for (const one of value.split(",")) names.add(one.trim().toLowerCase());
  });
  return names;
}

/** Facts of a request that the proxy forwards to the backend. */
export interface Origin {
  readonly address: string;
  readonly host: string;
  readonly scheme: "http" | "https";
  /** Text of the service's token; null: it has none. */
  readonly token: string | null;
  /** Name of the proxy's cookie. */
  readonly cookie: string;
}

const scrubbed = (value: string, token: string | null): string =>
  token === null || !value.includes(token) ? value : value.replaceAll(token, "");

/** Headers for the backend. `isUpgrade`: the request asks for a WebSocket. */
export function requestHeaders(
  { rawHeaders: raw, method = "GET" }: Pick<IncomingMessage, "rawHeaders" | "method">,
  origin: Origin,
  isUpgrade: boolean,
): string[] {
  const { address, host, scheme, token, cookie } = origin;
  const dropped = named(raw);
  const headers: string[] = [];
  let isChunked = false;
  let hasLength = false;
  forEach(raw, (name, value, sent) => {
    isChunked ||= name === "transfer-encoding";
    hasLength ||= name === "content-length";
    if (HOP_BY_HOP.has(name) || (dropped.has(name) && name !== "content-length" && name !== "host")) return;
    if (FORWARDED.test(name.replaceAll("_", "-"))) return;
    if ((name === "authorization" || name === "x-api-key") && OWN_KEY.test(value)) return;
    if (name === "cookie") {
      const { rest } = withoutCookie(value, cookie);
      if (rest !== "") headers.push(sent, scrubbed(rest, token));
      return;
    }
    const text = name === "referer" ? withoutToken(value).rest : value;
    headers.push(sent, scrubbed(text, token));
  });
  headers.push("X-Forwarded-For", address, "X-Forwarded-Host", host, "X-Forwarded-Proto", scheme);
  if (isUpgrade) headers.push("Connection", "Upgrade", "Upgrade", "websocket");
  else if (isChunked) headers.push("Transfer-Encoding", "chunked");
  // Otherwise Node would announce a body where there is none.
  else if (!hasLength && !BODILESS.has(method)) headers.push("Content-Length", "0");
  return headers;
}

/** Without the attribute Domain: the cookie is then of the host alone. Null: the backend may not set it. */
function cookieOfHost(value: string, own: string): string | null {
  const [pair = "", ...attributes] = value.split(";");
  const [name = ""] = pair.split("=", 1);
  if (name.trim() === own) return null;
  const kept = attributes.filter((attribute) => !/^\s*domain\s*(=|$)/i.test(attribute));
  return kept.length === attributes.length ? value : [pair, ...kept].join(";");
}

/** Headers for the client. `isUpgrade`: the response accepts a WebSocket. */
export function responseHeaders(raw: readonly string[], cookie: string, isUpgrade: boolean): string[] {
  const dropped = named(raw);
  const headers: string[] = [];
  let hasPolicy = false;
  forEach(raw, (name, value, sent) => {
    if (HOP_BY_HOP.has(name) || (dropped.has(name) && name !== "content-length")) return;
    if (name === "referrer-policy") hasPolicy = true;
    if (name !== "set-cookie") {
      headers.push(sent, value);
      return;
    }
    const kept = cookieOfHost(value, cookie);
    if (kept !== null) headers.push(sent, kept);
  });
  if (isUpgrade) headers.push("Connection", "Upgrade", "Upgrade", "websocket");
  else if (!hasPolicy) headers.push("Referrer-Policy", "same-origin");
  return headers;
}

/**
 * Fields that no trailer may have (RFC 9110 §6.5.1): they frame, route or authenticate. A backend that merges trailers into
 * headers would take a client's for the daemon's (H2).
 */
const NO_TRAILERS: ReadonlySet<string> = new Set([
  ...["content-length", "host", "authorization", "x-api-key", "cookie", "set-cookie", "referer"],
]);

/** Trailers as pairs. */
export function trailersOf(raw: readonly string[], token: string | null): [string, string][] {
  const trailers: [string, string][] = [];
  forEach(raw, (name, value, sent) => {
    const isForbidden = HOP_BY_HOP.has(name) || NO_TRAILERS.has(name) || FORWARDED.test(name.replaceAll("_", "-"));
    if (!isForbidden) trailers.push([sent, scrubbed(value, token)]);
  });
  return trailers;
}
