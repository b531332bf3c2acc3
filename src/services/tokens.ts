/**
 * Tokens of services: made, compared, and taken out of requests. The token stands in the query of the URL, for clients that
 * send no headers. Browsers get a cookie in its place.
 *
 * T1. The cookie holds a value derived from the token: it does not show the token, and ends with it.
 * T2. Comparisons take constant time and use digests of both sides.
 * T3. No backend sees the token, in whatever part of a request line or header it stands.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/** Parameter of the query. */
export const TOKEN_PARAMETER = "service_token";
const TOKEN_BYTES = 32;
/** Values of one name in a query or a Cookie header that are compared. */
const CANDIDATES_MAX = 4;

export const newToken = (): string => `hst_${randomBytes(TOKEN_BYTES).toString("base64url")}`;

const digestOf = (text: string): Buffer => createHash("sha256").update(text).digest();

/** The token of one service, with what is compared. */
export interface Token {
  readonly text: string;
  readonly digest: Buffer;
  readonly cookie: string;
  readonly cookie_digest: Buffer;
}

export function tokenOf(service_id: string, text: string): Token {
  const cookie = createHmac("sha256", text).update(`hearth service cookie\n${service_id}`).digest("base64url");
  return { text, digest: digestOf(text), cookie, cookie_digest: digestOf(cookie) };
}

/** Returns true if one of the first values is the one with this digest (T2). */
export function matches(digest: Buffer, values: readonly string[]): boolean {
  let isMatch = false;
  for (const value of values.slice(0, CANDIDATES_MAX)) {
    if (timingSafeEqual(digest, digestOf(value))) isMatch = true;
  }
  return isMatch;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/** A request target or URL without the parameter, and the parameter's values. All other bytes stay as they are. */
export interface Split {
  readonly rest: string;
  readonly values: readonly string[];
}

export function withoutToken(url: string): Split {
  const at = url.indexOf("?");
  if (at < 0) return { rest: url, values: [] };
  const hash = url.indexOf("#", at);
  const end = hash < 0 ? url.length : hash;
  const query = url.slice(at + 1, end);
  // The name may be written with escapes, which a backend decodes.
  if (!query.includes(TOKEN_PARAMETER) && !query.includes("%")) return { rest: url, values: [] };
  const values: string[] = [];
  const kept: string[] = [];
  for (const part of query.split("&")) {
    const [name = "", value = ""] = part.split(/=(.*)/s);
    if (decoded(name) === TOKEN_PARAMETER) values.push(decoded(value));
    else kept.push(part);
  }
  if (values.length === 0) return { rest: url, values };
  const left = kept.length === 0 ? "" : `?${kept.join("&")}`;
  return { rest: url.slice(0, at) + left + url.slice(end), values };
}

/** Takes cookies of a name out of a Cookie header. */
export function withoutCookie(header: string, name: string): Split {
  const values: string[] = [];
  const kept: string[] = [];
  for (const part of header.split(";")) {
    const [own = "", value = ""] = part.split(/=(.*)/s);
    if (own.trim() === name) values.push(value.trim());
    else kept.push(part);
  }
  return { rest: values.length === 0 ? header : kept.join(";").trim(), values };
}
