/**
 * The settings: one row each, with variable, default, unit, range and one sentence. The parser, its refusals, `--help`,
 * `hearth help settings` and the page of the API are made from these rows.
 */
import { LIMITS } from "./limits.ts";
import { LOG_LEVELS } from "./log.ts";

export interface Setting {
  readonly variable: string;
  /** The text that is parsed if the variable is not set. */
  readonly fallback: string;
  /** Names the default if no text stands for it. */
  readonly default_text?: string;
  readonly unit?: string;
  /** Accepted values: a text, or the smallest and the largest whole number. */
  readonly range: string | readonly [min: number, max: number];
  /** One sentence. */
  readonly about: string;
  /** Never a flag: every user of the machine can read the arguments of a process. */
  readonly is_secret?: true;
}

export const USER_NAMESPACE_CHOICES = ["auto", "on", "off"] as const;
/** off: no users. login: users sign in, and nobody registers. */
export const USERS_CHOICES = ["off", "login", "on"] as const;
export const PROXY_CREDENTIALS = ["refused", "shared"] as const;
export const DISK_SCHEDULERS = ["keep", "bfq"] as const;

/** Asymmetric ones only: with a shared secret everyone who verifies could also sign (RFC 8725 §2.1). */
export const JWT_ALGORITHMS: readonly string[] = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split(
  " ",
);

export const DAY_SECONDS = 24 * 3600;

const URL_RANGE = "an http or https URL";

export const SETTINGS = {
  listen: {
    variable: "HEARTH_LISTEN",
    fallback: "127.0.0.1:8700",
    range: "<address>:<port>, the port from 0 to 65535",
    about: "Address and port of the HTTP API; port 0 takes a free one.",
  },
  data_dir: {
    variable: "HEARTH_DATA_DIR",
    fallback: "/var/lib/hearth",
    range: "a path",
    about: "Directory of the store, the key, the storage pool and the images.",
  },
  image_dir: {
    variable: "HEARTH_IMAGE_DIR",
    fallback: "",
    default_text: "<data dir>/images",
    range: "a path",
    about: "Directory of the image store, which several daemons may share.",
  },
  bootstrap_key: {
    variable: "HEARTH_BOOTSTRAP_KEY",
    fallback: "",
    default_text: "created at the first start, kept in <data dir>/key",
    range: "16 to 256 printable characters without spaces",
    about: "Key of the operator.",
    is_secret: true,
  },
  bootstrap_key_file: {
    variable: "HEARTH_BOOTSTRAP_KEY_FILE",
    fallback: "",
    default_text: "none",
    range: "a path; /dev/fd/<n> for an open descriptor",
    about: "File that contains the operator's key, read at startup.",
  },
  jwt_issuer: {
    variable: "HEARTH_JWT_ISSUER",
    fallback: "",
    default_text: "none",
    range: "another name than the daemon's own, hearth",
    about: "External issuer whose access tokens the daemon accepts; requires HEARTH_JWT_AUDIENCE and HEARTH_JWKS_URL.",
  },
  jwt_audience: {
    variable: "HEARTH_JWT_AUDIENCE",
    fallback: "",
    default_text: "none",
    range: "a value of the claim aud",
    about: "Audience that tokens of the external issuer must name.",
  },
  jwks_url: {
    variable: "HEARTH_JWKS_URL",
    fallback: "",
    default_text: "none",
    range: URL_RANGE,
    about: "URL of the external issuer's keys.",
  },
  jwt_algorithms: {
    variable: "HEARTH_JWT_ALGORITHMS",
    fallback: "RS256,ES256,EdDSA",
    range: `some of ${JWT_ALGORITHMS.join(",")}`,
    about: "Signature algorithms that tokens of the external issuer may use.",
  },
  jwt_tenant_claim: {
    variable: "HEARTH_JWT_TENANT_CLAIM",
    fallback: "tenant_id",
    range: "the name of a claim",
    about: "Claim of an external token that names its tenant; the claim scope holds the scopes.",
  },
  users: {
    variable: "HEARTH_USERS",
    fallback: "off",
    range: USERS_CHOICES.join(", "),
    about: "Users with e-mail and password; on lets everyone register, login only lets existing users sign in.",
  },
  users_max: {
    variable: "HEARTH_USERS_MAX",
    fallback: String(LIMITS.users_default),
    unit: "users",
    range: [1, LIMITS.users_max],
    about: "Users of this node, each with a tenant; further registrations are refused with 503.",
  },
  user_limits_percent: {
    variable: "HEARTH_USER_LIMITS_PERCENT",
    fallback: String(LIMITS.user_limits_percent_default),
    unit: "%",
    range: [1, 100],
    about: "Limits of the tenants of users, as a part of the default limits of other tenants; 100: the same.",
  },
  trusted_proxies: {
    variable: "HEARTH_TRUSTED_PROXIES",
    fallback: "",
    default_text: "none",
    range: "addresses or networks, comma-separated",
    about: "Reverse proxies whose X-Forwarded-For names the client, for the rates of sign-ins and registrations.",
  },
  cors_origins: {
    variable: "HEARTH_CORS_ORIGINS",
    fallback: "",
    default_text: "none",
    range: "<scheme>://<host> or <scheme>://<host>:<port>, comma-separated; never *",
    about: "Origins of web pages that may call the API from a browser (CORS).",
  },
  outgoing_allowed: {
    variable: "HEARTH_OUTGOING_ALLOWED",
    fallback: "",
    default_text: "none",
    range: "host or host:port, comma-separated; an IPv6 address in brackets",
    about:
      "Hosts that the daemon itself may call at addresses that are not public: loopback, private, link-local, its own.",
  },
  registry_mirrors: {
    variable: "HEARTH_REGISTRY_MIRRORS",
    fallback: "",
    default_text: "none",
    range: "<registry>=<host> or <registry>=<host>:<port>, comma-separated",
    about:
      "Hosts that serve the images of a registry in its place, such as docker.io=127.0.0.1:5000; they get no credentials.",
  },
  insecure_registries: {
    variable: "HEARTH_INSECURE_REGISTRIES",
    fallback: "",
    default_text: "none",
    range: "host or host:port, comma-separated; an IPv6 address in brackets",
    about: "Registries that may speak plain HTTP and may be at addresses that are not public.",
  },
  registry_auth_file: {
    variable: "HEARTH_REGISTRY_AUTH_FILE",
    fallback: "",
    default_text: "none",
    range: "a path",
    about:
      "File with credentials of registries in the format of containers-auth.json; only the operator's key uses them.",
  },
  nats_url: {
    variable: "HEARTH_NATS_URL",
    fallback: "",
    default_text: "none: messages are in the store",
    range: "nats://[<user>:<password>@]<host>[:<port>] or tls://…, with commas between the servers of a cluster",
    about: "NATS servers with JetStream that keep the messages between containers.",
    is_secret: true,
  },
  nats_credentials_file: {
    variable: "HEARTH_NATS_CREDENTIALS_FILE",
    fallback: "",
    default_text: "none",
    range: "a path",
    about: "Credentials file for HEARTH_NATS_URL, read at startup.",
  },
  signature_policy: {
    variable: "HEARTH_SIGNATURE_POLICY",
    fallback: "/etc/containers/policy.json",
    range: "a path",
    about: "File with the signatures that pulled images need, in the format of containers-policy.json.",
  },
  subnet: {
    variable: "HEARTH_SUBNET",
    fallback: "10.42.0.0/16",
    range: "an IPv4 network, /16 to /28",
    about: "Addresses of instances and containers.",
  },
  bridge: {
    variable: "HEARTH_BRIDGE",
    fallback: "hearth0",
    range: "1 to 15 lower-case letters, digits, '-'",
    about: "Name of the network interface that has the gateway's address.",
  },
  host_ports: {
    variable: "HEARTH_HOST_PORTS",
    fallback: `${LIMITS.host_port_first}-${LIMITS.host_port_last}`,
    range: `<first>-<last>, from ${LIMITS.host_port_min} to 65535`,
    about: `Ports of this machine that containers may publish; those of the operator's tenant may publish any from ${LIMITS.host_port_min}.`,
  },
  services_listen: {
    variable: "HEARTH_SERVICES_LISTEN",
    fallback: "",
    default_text: "127.0.0.1 and the port after that of HEARTH_LISTEN",
    range: "<address>:<port>, the port from 0 to 65535, or off",
    about:
      "Address and port of published services; other addresses than loopback require HEARTH_SERVICES_DOMAIN; if another process has the default, the daemon starts without published services.",
  },
  services_domain: {
    variable: "HEARTH_SERVICES_DOMAIN",
    fallback: "",
    default_text: "none; each service has a loopback address of its own",
    range: "a domain, or an http or https URL of one without a path",
    about:
      "Domain below which each published service has a host name of its own; a URL names the scheme and port that clients use.",
  },
  oci_runtime: {
    variable: "HEARTH_OCI_RUNTIME",
    fallback: "auto",
    range: "auto, crun, runc, or a path",
    about: "Program that starts containers; auto tries crun, then runc.",
  },
  cdi_dirs: {
    variable: "HEARTH_CDI_DIRS",
    fallback: "/etc/cdi,/var/run/cdi",
    range: `up to ${LIMITS.cdi_directories_max} absolute paths, comma-separated`,
    about: "Directories of CDI files, which describe the GPUs of this machine; later ones override earlier ones.",
  },
  user_namespaces: {
    variable: "HEARTH_USER_NAMESPACES",
    fallback: "auto",
    range: USER_NAMESPACE_CHOICES.join(", "),
    about:
      "User namespaces of containers; auto uses them if this machine supports them, on fails the start if it does not.",
  },
  log_level: {
    variable: "HEARTH_LOG_LEVEL",
    fallback: "info",
    range: LOG_LEVELS.join(", "),
    about: "Lowest level that is logged.",
  },
  otlp_url: {
    variable: "HEARTH_OTLP_URL",
    fallback: "",
    default_text: "none",
    range: URL_RANGE,
    about: "Collector that receives spans by OTLP over HTTP, such as http://127.0.0.1:4318.",
  },
  trace_sample: {
    variable: "HEARTH_TRACE_SAMPLE",
    fallback: "1",
    range: "a number from 0 to 1",
    about: "Share of the traces started here that are exported; a caller's traceparent decides for its own trace.",
  },
  cells: {
    variable: "HEARTH_CELLS",
    fallback: String(LIMITS.cells_target),
    unit: "cells",
    range: [0, 500],
    about: "Started containers kept in reserve that belong to no function yet; all instance classes share them.",
  },
  instances_max: {
    variable: "HEARTH_INSTANCES_MAX",
    fallback: String(LIMITS.instances_max),
    unit: "instances",
    range: [1, 10_000],
    about: "Function instances and cells on this node.",
  },
  containers_max: {
    variable: "HEARTH_CONTAINERS_MAX",
    fallback: String(LIMITS.containers_max),
    unit: "containers",
    range: [0, 10_000],
    about: "API containers on this node.",
  },
  flows_max: {
    variable: "HEARTH_FLOWS_MAX",
    fallback: String(LIMITS.flows_max),
    unit: "connections",
    range: [1, LIMITS.flows_max_max],
    about: "Tracked connections of one instance or container; the kernel drops packets of further ones.",
  },
  memory_overcommit: {
    variable: "HEARTH_MEMORY_OVERCOMMIT",
    fallback: String(LIMITS.memory_overcommit_default),
    unit: "times the machine's memory",
    range: "a number above 0, at most 999",
    about: "Sum of memory_limit_mb of all running containers; starts above it are refused with 503.",
  },
  disk_limit: {
    variable: "HEARTH_DISK_LIMIT_MB",
    fallback: String(LIMITS.disk_limit_mb_default),
    unit: "MiB",
    range: [LIMITS.disk_limit_mb_min, LIMITS.disk_limit_mb_max],
    about:
      "Default disk limit of a container or volume, at most an eighth of its tenant's disk_mb_max; tenants without disk_mb_max have no default.",
  },
  memory: {
    variable: "HEARTH_MEMORY_MB",
    fallback: "",
    default_text: "three quarters of the machine's",
    unit: "MiB",
    range: [16, 100_000_000],
    about: "Memory budget of all function instances; above it the daemon evicts idle instances.",
  },
  image_disk_percent: {
    variable: "HEARTH_IMAGE_DISK_PERCENT",
    fallback: "90",
    unit: "percent",
    range: [1, 100],
    about:
      "Share of the image store's disk above which an image that arrives evicts those of its tenant and of the operator that nothing uses, the least recently used first; 100 means never.",
  },
  profile_rebuild_hours: {
    variable: "HEARTH_PROFILE_REBUILD_HOURS",
    fallback: "0",
    unit: "hours",
    range: [0, 8_760],
    about:
      "Hours between questions for newer Debian packages of the profiles; the daemon rebuilds those that have some and moves latest; 0 means never.",
  },
  profiles_dir: {
    variable: "HEARTH_PROFILES_DIR",
    fallback: "",
    default_text: "none",
    range: "a path",
    about: "Directory of further recipes of profiles, <name>/profile.json each, beside the built-in ones.",
  },
  builds: {
    variable: "HEARTH_BUILDS",
    fallback: "",
    default_text: `one for each ${LIMITS.build_node_memory_mb} MiB of memory, from 1 to ${LIMITS.builds_max}`,
    range: [0, LIMITS.builds_max],
    about: "Concurrent builds of images; further ones wait, and 0 refuses all.",
  },
  build_ca_files: {
    variable: "HEARTH_BUILD_CA_FILES",
    fallback: "",
    default_text: "none",
    range: "paths of PEM files, comma-separated",
    about: "Certificate authorities that builds trust, and containers and functions on request.",
  },
  build_proxy: {
    variable: "HEARTH_BUILD_PROXY",
    fallback: "",
    default_text: "none",
    range: URL_RANGE,
    about: "Proxy that builds use for HTTP and HTTPS, and containers and functions on request.",
    is_secret: true,
  },
  build_no_proxy: {
    variable: "HEARTH_BUILD_NO_PROXY",
    fallback: "",
    default_text: "none",
    range: "hosts, comma-separated",
    about: "Hosts that are called without HEARTH_BUILD_PROXY.",
  },
  build_proxy_credentials: {
    variable: "HEARTH_BUILD_PROXY_CREDENTIALS",
    fallback: "refused",
    range: PROXY_CREDENTIALS.join(", "),
    about: "Whether HEARTH_BUILD_PROXY may contain a credential; every tenant's containers can read it then.",
  },
  // The variable and the flag keep the name that operators have set.
  area: {
    variable: "HEARTH_AREA_MB",
    fallback: "",
    default_text: "half of the disk",
    unit: "MiB",
    range: [LIMITS.storage_pool_mb_min, 999_999_999],
    about: "Size of the storage pool, which takes disk as its files grow; a later start may raise it.",
  },
  disk_scheduler: {
    variable: "HEARTH_DISK_SCHEDULER",
    fallback: "keep",
    range: DISK_SCHEDULERS.join(", "),
    about: "Disk scheduler of the storage pool; bfq gives busy tenants equal shares and costs throughput.",
  },
  uplink: {
    variable: "HEARTH_UPLINK",
    fallback: "",
    default_text: "none",
    unit: "Mbit/s",
    range: "<device>:<Mbit/s>, from 1 to 999999",
    about: "Network device and rate that tenants share equally while they send, such as eth0:900.",
  },
  terminal_idle: {
    variable: "HEARTH_TERMINAL_IDLE_SECONDS",
    fallback: String(LIMITS.terminal_idle_seconds_default),
    unit: "s",
    range: [1, LIMITS.terminal_seconds_max],
    about: "Time after which a terminal session without a client ends.",
  },
  terminal_ttl: {
    variable: "HEARTH_TERMINAL_TTL_SECONDS",
    fallback: String(LIMITS.terminal_ttl_seconds_default),
    unit: "s",
    range: [1, LIMITS.terminal_seconds_max],
    about: "Time after its start at which a terminal session ends.",
  },
  queue_max: {
    variable: "HEARTH_QUEUE_MAX",
    fallback: String(LIMITS.queue_per_function_max),
    unit: "calls",
    range: [1, 100_000],
    about: "Queued calls of one function; further calls are refused with 429.",
  },
  tenant_concurrency: {
    variable: "HEARTH_TENANT_CONCURRENCY",
    fallback: "0",
    unit: "calls",
    range: [0, 1_000_000],
    about: "Queued and running calls of one tenant, above which calls are refused with 429; 0 means no limit.",
  },
  records_kept: {
    variable: "HEARTH_RECORDS_KEPT",
    fallback: String(LIMITS.invocations_kept_per_function),
    unit: "records",
    range: [0, 100_000_000],
    about: "Invocation records kept of each function.",
  },
  records_kept_days: {
    variable: "HEARTH_RECORDS_KEPT_DAYS",
    fallback: String(LIMITS.invocations_kept_seconds / DAY_SECONDS),
    unit: "days",
    range: [1, 36_500],
    about: "Time for which invocation records are kept.",
  },
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof SETTINGS;

/** Returns `--data-dir` for `data_dir`. */
export function flagOf(name: string): string {
  return `--${name.replaceAll("_", "-")}`;
}

/** Returns true if a setting is read from the environment only. */
export function isSecret(name: SettingName): boolean {
  const setting: Setting = SETTINGS[name];
  return setting.is_secret === true;
}

/** Returns the accepted values of a setting in words. */
export function rangeOf(name: SettingName): string {
  const { range }: Setting = SETTINGS[name];
  return typeof range === "string" ? range : `a whole number from ${range[0]} to ${range[1]}`;
}

/** A setting as every list of settings shows it. */
export interface SettingRow {
  readonly variable: string;
  /** Empty if the setting has no flag. */
  readonly flag: string;
  /** With its unit. */
  readonly default_text: string;
  readonly range: string;
  readonly about: string;
}

/** Returns all settings in the order of the table. */
export function settingRows(): SettingRow[] {
  return (Object.keys(SETTINGS) as SettingName[]).map((name) => {
    const { variable, fallback, default_text, unit, about }: Setting = SETTINGS[name];
    const shown = default_text ?? fallback;
    const range = rangeOf(name);
    return {
      variable,
      flag: isSecret(name) ? "" : flagOf(name),
      default_text: unit === undefined || fallback === "" ? shown : `${shown} ${unit}`,
      range: unit === undefined || range.includes(unit) ? range : `${range} (${unit})`,
      about,
    };
  });
}

/** Returns the settings as text for a terminal. */
export function settingsText(): string {
  const rows = settingRows().map(
    ({ variable, flag, default_text, range, about }) =>
      `${variable}${flag === "" ? "" : `  ${flag}`}\n  ${about}\n  default: ${default_text}\n  values: ${range}\n`,
  );
  return `Each setting is an environment variable of the daemon. It is also a flag of 'npm start --' unless it holds a key.
A flag overrides the variable. The daemon fails startup if a variable HEARTH_… is unknown or a value is out of range.

${rows.join("\n")}`;
}
