/**
 * The fields of a call that make its HTTP request: `path`, `method`, `headers`. A server of the runtime `custom` gets them; any
 * other handler has no request, and its calls are refused. What passes here is written into a request line as it is.
 */
import { z } from "zod";
import type { CallHead } from "../../runtimes/index.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { textBytes } from "../base/schema.ts";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;
const WITHOUT_PAYLOAD: readonly string[] = ["GET", "HEAD"];

/** tchar of RFC 9110, section 5.6.2. */
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Visible ASCII without `#`: a space or a control character ends the target of a request line, and a fragment is no part of it. */
const PATH = /^\/[\x21\x22\x24-\x7e]*$/;
const VALUE = /^[\x20-\x7e]*$/;

/** Headers that say how the message itself travels, which hearth decides, and those that hearth sets. */
const OWN = new Set([
  ...["connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-authenticate"],
  ...["proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"],
  ...["traceparent", "tracestate"],
]);
const OWN_PREFIX = "x-hearth-";

/** What is wrong with the headers, with the offending name; null: nothing. No text holds a value: it may be a credential. */
function complaintOf(headers: Readonly<Record<string, string>>): string | null {
  const names = Object.keys(headers);
  if (names.length > LIMITS.call_headers_max) return `must not have more than ${LIMITS.call_headers_max} entries`;
  const seen = new Set<string>();
  let bytes = 0;
  for (const name of names) {
    if (!NAME.test(name) || name.length > LIMITS.call_header_name_bytes_max) {
      return `names must be 1 to ${LIMITS.call_header_name_bytes_max} letters, digits or characters of !#$%&'*+-.^_\`|~`;
    }
    const lower = name.toLowerCase();
    if (OWN.has(lower) || lower.startsWith(OWN_PREFIX))
      return `must not contain ${lower}: hearth sets it, or the connection has it`;
    if (seen.has(lower)) return `must not contain ${lower} twice`;
    seen.add(lower);
    const value = headers[name] ?? "";
    if (!VALUE.test(value)) return `the value of ${lower} must be printable ASCII`;
    bytes += name.length + value.length;
  }
  return bytes > LIMITS.call_headers_bytes_max
    ? `must not be larger than ${LIMITS.call_headers_bytes_max} bytes`
    : null;
}

export const httpFields = {
  path: textBytes(LIMITS.call_path_bytes_max)
    .refine((value) => PATH.test(value), {
      error: "must begin with '/', and be ASCII without spaces, control characters and '#'; percent-encode others",
    })
    .optional()
    .describe("Path of the request, with its query; only for a server of the runtime custom. Default: /."),
  method: z
    .enum(METHODS)
    .optional()
    .describe("Method of the request; only for a server of the runtime custom. Default: POST."),
  headers: z
    .record(z.string(), z.string())
    .superRefine((headers, context) => {
      const message = complaintOf(headers);
      if (message !== null) context.addIssue({ code: "custom", message });
    })
    .optional()
    .describe(
      `Headers of the request by name, in addition to hearth's; only for a server of the runtime custom. Up to ${LIMITS.call_headers_max} headers and ${LIMITS.call_headers_bytes_max / 1024} KiB. A Content-Type replaces hearth's.`,
    ),
};

interface Called {
  readonly name: string;
  readonly runtime: string;
  readonly protocol: "http" | "lambda" | null;
}

export interface HttpFields {
  readonly path?: string | undefined;
  readonly method?: (typeof METHODS)[number] | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** A complaint about a body whose payload its method cannot carry: servers read no body of it, and would take it for a request. */
export function payloadComplaint({ method, payload }: HttpFields & { readonly payload: string }): string | null {
  if (method === undefined || !WITHOUT_PAYLOAD.includes(method) || payload === "") return null;
  return `must be empty for the method ${method}`;
}

/**
 * Returns the request that a call asks for; null: the default one. Throws INVALID_ARGUMENT for a function that takes no
 * HTTP requests.
 */
export function httpOf({ path, method, headers }: HttpFields, called: Called): NonNullable<CallHead["http"]> | null {
  const given = Object.entries({ path, method, headers }).find(([, value]) => value !== undefined)?.[0];
  if (given === undefined) return null;
  const { name, runtime, protocol } = called;
  if (runtime !== "custom" || protocol === "lambda") {
    const received = protocol === "lambda" ? `${runtime} with the protocol lambda` : runtime;
    throw new AppError(
      "INVALID_ARGUMENT",
      `${given} is not supported for '${name}': runtime ${received} (expected custom with the protocol http)`,
      {
        details: { expected: ["custom with the protocol http"], received },
        hint: "send the values in the payload",
      },
    );
  }
  return { method: method ?? "POST", path: path ?? "/", headers: headers ?? {} };
}
