/**
 * What builds trust beside their image, and others on request: certificate authorities of the operator, and a proxy. Every
 * container and instance sees a directory with a bundle of certificates and a script that sets the variables; builds read it
 * by themselves. The daemon's own requests do not use it.
 */
import { X509Certificate } from "node:crypto";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { rootCertificates } from "node:tls";
import { AppError, errorText } from "./errors.ts";
import { LIMITS } from "./limits.ts";

/** The directory inside. Nothing of an owner is mounted below /dev. */
export const TRUST_INSIDE = "/dev/hearth";
const BUNDLE = "ca.pem";
/** A script for sh. */
export const TRUST_SCRIPT = "environment";
/** The certificates that programs of this machine trust (Debian's ca-certificates). */
const MACHINE_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt";

export interface Trust {
  /** Certificates of the operator, PEM; empty: none. */
  readonly certificates: string;
  /** Variables of commands that trust them and use the proxy. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Variables that name a bundle, of Node, OpenSSL, pip, requests, curl and git. Node adds it, the others take it alone. */
const BUNDLE_VARIABLES = [
  "NODE_EXTRA_CA_CERTS",
  "SSL_CERT_FILE",
  "PIP_CERT",
  "REQUESTS_CA_BUNDLE",
  "CURL_CA_BUNDLE",
  "GIT_SSL_CAINFO",
] as const;

export interface TrustSettings {
  readonly files: readonly string[];
  /** Empty: none. */
  readonly proxy: string;
  readonly no_proxy: string;
  readonly shares_credentials: boolean;
}

/** Reads the files. Throws INVALID_ARGUMENT, never with a credential. Null: no setting names anything. */
export function readTrust({ files, proxy, no_proxy, shares_credentials }: TrustSettings): Trust | null {
  if (proxy === "" && no_proxy !== "") throw invalid("HEARTH_BUILD_NO_PROXY is set without HEARTH_BUILD_PROXY");
  if (files.length === 0 && proxy === "") return null;
  const certificates = files.map(certificatesOf).join("");
  const bundle = `${TRUST_INSIDE}/${BUNDLE}`;
  const trusted = files.length === 0 ? [] : BUNDLE_VARIABLES.map((name) => [name, bundle] as const);
  const routed = proxy === "" ? [] : proxyVariables(checkedProxy(proxy, shares_credentials), no_proxy);
  return { certificates, environment: Object.fromEntries([...trusted, ...routed]) };
}

/** The files of the directory, by name. */
export function trustFiles({ certificates, environment }: Trust): Readonly<Record<string, string>> {
  const lines = Object.entries(environment).map(
    ([name, value]) => `export ${name}='${value.replaceAll("'", "'\\''")}'\n`,
  );
  const bundle: Record<string, string> =
    certificates === "" ? {} : { [BUNDLE]: `${machineCertificates()}\n${certificates}` };
  return { ...bundle, [TRUST_SCRIPT]: lines.join("") };
}

function machineCertificates(): string {
  try {
    return readFileSync(MACHINE_CERTIFICATES, "utf8");
  } catch {
    return rootCertificates.join("\n");
  }
}

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----[\s\S]*?-----END \1-----/g;

/** The certificates of a file, and nothing else of it. */
function certificatesOf(file: string): string {
  const refused = (why: string, cause?: unknown) => invalid(`HEARTH_BUILD_CA_FILES: ${why}: ${file}`, cause);
  let text: string;
  try {
    text = beginningOf(file, LIMITS.ca_file_bytes_max + 1);
  } catch (cause) {
    throw refused(`cannot read a file (${errorText(cause)})`, cause);
  }
  if (Buffer.byteLength(text) > LIMITS.ca_file_bytes_max) {
    throw refused(`file is too large (limit ${LIMITS.ca_file_bytes_max} bytes)`);
  }
  const blocks = [...text.matchAll(BLOCK)];
  if (blocks.some(([, kind]) => kind?.includes("PRIVATE KEY") === true)) {
    throw refused("file contains a private key, which every container would see");
  }
  const found = blocks.filter(([, kind]) => kind === "CERTIFICATE").map(([block]) => block);
  if (found.length === 0) throw refused("file has no certificate (expected PEM)");
  try {
    for (const one of found) new X509Certificate(one);
  } catch (cause) {
    throw refused("file has an invalid certificate", cause);
  }
  return found.map((one) => `${one}\n`).join("");
}

/** At most so many bytes: a device has no end. */
function beginningOf(file: string, bytes_max: number): string {
  const bytes = Buffer.alloc(bytes_max);
  const descriptor = openSync(file, "r");
  try {
    let length = 0;
    for (let read = -1; read !== 0 && length < bytes_max; length += read) {
      read = readSync(descriptor, bytes, length, bytes_max - length, null);
    }
    return bytes.toString("utf8", 0, length);
  } finally {
    closeSync(descriptor);
  }
}

function checkedProxy(text: string, shares_credentials: boolean): string {
  const url = URL.parse(text);
  const isPlain = url !== null && url.pathname === "/" && url.search === "" && url.hash === "" && !/[\s\0]/.test(text);
  if (!isPlain || !["http:", "https:"].includes(url.protocol)) {
    throw invalid("invalid HEARTH_BUILD_PROXY (expected http://[<user>:<password>@]<host>[:<port>], or https)");
  }
  if ((url.username !== "" || url.password !== "") && !shares_credentials) {
    throw new AppError("INVALID_ARGUMENT", "HEARTH_BUILD_PROXY has a credential, which every container would see", {
      hint: "leave it out, or set HEARTH_BUILD_PROXY_CREDENTIALS=shared",
    });
  }
  return text;
}

/** In upper and lower case: curl reads http_proxy in lower case alone, other programs the upper case. */
function proxyVariables(proxy: string, no_proxy: string): (readonly [string, string])[] {
  const named = [["HTTP_PROXY", proxy], ["HTTPS_PROXY", proxy], ...(no_proxy === "" ? [] : [["NO_PROXY", no_proxy]])];
  return named.flatMap(([name = "", value = ""]) => [[name, value] as const, [name.toLowerCase(), value] as const]);
}

function invalid(message: string, cause?: unknown): AppError {
  return new AppError("INVALID_ARGUMENT", message, cause === undefined ? {} : { cause });
}
