/**
 * The target of a request, before a route is chosen. A URL parser removes dot segments, also encoded ones, and a
 * path would then name another resource than the client sent: `DELETE /api/volumes/a/files/%2E%2E/%2E%2E/b`.
 */
import { AppError } from "../base/errors.ts";

/** True for a target that needs a closer look. */
const SUSPECT = /%(?:2e|2f|5c)|[\\#]|(?:^|\/)\.{1,2}(?:[/?]|$)/i;
const AUTHORITY = /^[a-z][a-z0-9+.-]*:\/\/[^/?#\\]*/i;
const SHOWN_LENGTH_MAX = 100;

/**
 * Throws INVALID_ARGUMENT for a path with a segment `.` or `..`, however encoded, for a raw backslash, which URL parsers take
 * for a slash, and for a fragment, which they remove. `url`: as the client sent it, a path or a whole URL.
 */
export function checkTarget(url: string): void {
  if (!SUSPECT.test(url)) return;
  if (url.includes("#")) throw refusal("request target contains a fragment", "#", "no '#'", "encode '#' as %23");
  const [path = ""] = url.replace(AUTHORITY, "").split("?", 1);
  if (path.includes("\\")) throw refusal("path contains a backslash", path, "no '\\'", "encode a backslash as %5C");
  // Each once, as paths are decoded: %252e is the name '%2e'.
  const decoded = path.replace(/%2e/gi, ".").replace(/%2f/gi, "/").replace(/%5c/gi, "\\");
  if (!decoded.split(/[/\\]/).some((segment) => segment === "." || segment === "..")) return;
  throw refusal("path contains a dot segment", path, "no segment '.' or '..'", "send the path without dot segments");
}

function refusal(problem: string, value: string, expected: string, hint: string): AppError {
  const received = value.replace(/[^\x21-\x7e]/g, "?").slice(0, SHOWN_LENGTH_MAX);
  return new AppError("INVALID_ARGUMENT", `${problem}: '${received}' (expected ${expected})`, {
    details: { expected: [expected], received },
    hint,
  });
}
