/** Failures of a registry in words: which host, and why. Texts of the registry itself are never repeated. */
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { HOST_NOT_ALLOWED, URL_NOT_USABLE } from "../../base/outgoing-requests.ts";
import type { RegistryHost } from "./hosts.ts";

/** Reasons by the code of the network's error. */
const NETWORK_REASONS: Readonly<Record<string, string>> = {
  ENOTFOUND: "host name not found",
  EAI_AGAIN: "name server does not respond",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection closed by the host",
  EPIPE: "connection closed by the host",
  ETIMEDOUT: "connection timed out",
  EHOSTUNREACH: "no route to the host",
  ENETUNREACH: "no route to the network",
  EADDRNOTAVAIL: "no route to the network",
};
/** Codes of a certificate that Node does not accept. */
const CERTIFICATE = /CERT|^UNABLE_TO_|SELF_SIGNED/;
/** Codes of a host that does not speak TLS. */
const NOT_TLS = /^EPROTO$|^ERR_SSL_/;
/** Errors of a connection that was never made. */
const NOT_CONNECTED: readonly string[] = [
  ...["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL"],
];

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === "string" ? code : "";
}

/** True if the host refused, or did not answer, a connection: the other protocol may still work. */
export function isNotConnected(error: unknown): boolean {
  return NOT_CONNECTED.includes(codeOf(error));
}

/** True if another protocol may work at the same host and port. */
export function mayBePlainHttp(error: unknown): boolean {
  return NOT_TLS.test(codeOf(error)) || codeOf(error) === "ECONNRESET" || isNotConnected(error);
}

/** Names the host in messages. */
export function shownHost({ registry, host, isMirror }: RegistryHost): string {
  return isMirror ? `${registry} (mirror ${host})` : registry;
}

/** Returns the refusal for an error of the network or of the guard. Other AppErrors, as those of a check, stay as they are. */
export function connectionFailure(error: unknown, of: RegistryHost, place = `registry ${shownHost(of)}`): AppError {
  if (error instanceof AppError) return guardFailure(error, of, place);
  const code = codeOf(error);
  const options = { cause: error };
  if (CERTIFICATE.test(code)) {
    return new AppError("REGISTRY_FAILED", `${place} not trusted: certificate not valid (${code})`, {
      ...options,
      retryable: false,
      hint: `ask the operator to put its authority into /etc/containers/certs.d/${of.host}/ca.crt`,
    });
  }
  if (NOT_TLS.test(code)) {
    return new AppError("REGISTRY_FAILED", `${place} not reachable: the host does not speak TLS`, {
      ...options,
      retryable: false,
      hint: "ask the operator to list it in HEARTH_INSECURE_REGISTRIES if it speaks plain HTTP",
    });
  }
  const reason = NETWORK_REASONS[code] ?? (code === "" ? "connection failed" : `connection failed (${code})`);
  return new AppError("REGISTRY_FAILED", `${place} not reachable: ${reason}`, { ...options, hint: networkHint(of) });
}

/** What helps against a host that does not answer. The name of a local image that is misspelt comes here, too. */
function networkHint({ host, isMirror }: RegistryHost): string {
  return isMirror
    ? `ask the operator whether the mirror ${host} runs`
    : "check the reference; if it is right, ask the operator for a connection, or a mirror in HEARTH_REGISTRY_MIRRORS";
}

function guardFailure(error: AppError, of: RegistryHost, place: string): AppError {
  if (error.reason_code === HOST_NOT_ALLOWED) {
    const name = error.details?.received ?? "";
    const isOwn = [of.host, `${of.host}:443`, `${of.host}:80`].includes(name);
    const problem = isOwn ? "not allowed" : `refers to a host that is not allowed: '${name}'`;
    return new AppError("INVALID_ARGUMENT", `${place} ${problem} (its address is not public)`, {
      cause: error,
      reason_code: HOST_NOT_ALLOWED,
      hint: "ask the operator to list the host in HEARTH_INSECURE_REGISTRIES or HEARTH_OUTGOING_ALLOWED",
    });
  }
  if (error.code === "TIMEOUT") {
    return new AppError("TIMEOUT", `${place} stalled: ${errorText(error)}`, { cause: error, retryable: true });
  }
  if (error.reason_code === URL_NOT_USABLE) {
    return new AppError("REGISTRY_FAILED", `${place} not usable: ${error.message}`, { cause: error, retryable: false });
  }
  return error;
}

/** Seconds of a Retry-After; null for a date or none. */
function retryAfter(header: string | undefined): number | null {
  return header !== undefined && /^\d{1,6}$/.test(header.trim()) ? Number(header) : null;
}

/** Returns the refusal for an answer with a status of failure. `subject`: what was asked for. */
export function statusFailure(
  { status, headers }: { readonly status: number; readonly headers: Readonly<Record<string, unknown>> },
  of: RegistryHost,
  subject: string,
  hasCredentials: boolean,
): AppError {
  const place = `registry ${shownHost(of)}`;
  if (status === 401 || status === 403) return denied(of, subject, hasCredentials);
  if (status === 404) return new AppError("NOT_FOUND", `${place} does not have ${subject}`);
  if (status === 429) {
    const seconds = retryAfter(headers["retry-after"] as string | undefined);
    return new AppError("RATE_LIMITED", `${place} limits requests (status 429)`, {
      ...(seconds === null ? {} : { retry_after: Math.min(seconds, LIMITS.retry_after_seconds_max) }),
    });
  }
  return new AppError("REGISTRY_FAILED", `${place} failed: status ${status} for ${subject}`, {
    retryable: status >= 500,
  });
}

/** Returns the refusal of a registry, or of its token realm, that denies access. */
export function denied(of: RegistryHost, subject: string, hasCredentials: boolean): AppError {
  const how = hasCredentials ? "with these credentials" : "without credentials";
  const hint = of.isMirror
    ? "ask the operator: a mirror gets no credentials of its callers"
    : hasCredentials
      ? "check the credentials, and that the repository exists"
      : "give registry_username and registry_password or store them by PUT /api/oci/registries/<host>, and check that the repository exists";
  return new AppError("FORBIDDEN", `registry ${shownHost(of)} denies access to ${subject} ${how}`, { hint });
}

/** Returns the failure of a registry that lacks a part of an image that it has. Other failures stay as they are. */
export function lacking(error: unknown, part: string): unknown {
  if (!(error instanceof AppError) || error.code !== "NOT_FOUND") return error;
  const message = `${error.message.replace(/ does not have .*$/, "")} lacks ${part} of the image`;
  return new AppError("REGISTRY_FAILED", message, { cause: error, retryable: false });
}

/** Returns the refusal of an answer that no registry gives. */
export function wrongAnswer(of: RegistryHost, problem: string): AppError {
  return new AppError("REGISTRY_FAILED", `registry ${shownHost(of)} does not answer as a registry: ${problem}`, {
    retryable: false,
    hint: `check that ${of.host} is a registry of images`,
  });
}
