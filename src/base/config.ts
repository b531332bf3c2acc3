/**
 * The configuration, read once at startup from environment variables and the flags of `npm start --`
 * (`HEARTH_DATA_DIR` is `--data-dir`); nothing else reads the environment. The settings are those of settings.ts.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIPv4 } from "node:net";
import { totalmem } from "node:os";
import { resolve } from "node:path";
import { type Network, network } from "./addresses.ts";
import { checkVariables } from "./environment-variables.ts";
import { AppError, errorText } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { LOG_LEVELS, type LogLevel } from "./log.ts";
import { type NatsServer, natsServer } from "./nats-server.ts";
import { originSet } from "./origins.ts";
import {
  DAY_SECONDS,
  DISK_SCHEDULERS,
  flagOf,
  isSecret,
  JWT_ALGORITHMS,
  PROXY_CREDENTIALS,
  rangeOf,
  SETTINGS,
  type SettingName,
  USER_NAMESPACE_CHOICES,
  USERS_CHOICES,
} from "./settings.ts";
import { readTrust, type Trust } from "./trust.ts";
import { volatileDirectory } from "./volatile-directory.ts";

export interface Config {
  readonly listen_host: string;
  readonly listen_port: number;
  readonly data_dir: string;
  /** buildah's image store; by default inside the data directory, settable so that several daemons share images. */
  readonly image_dir: string;
  /** Sockets, bundles and runtime state, in memory; gone after a reboot. Derived from the data directory. */
  readonly run_dir: string;
  /** Eight hex digits that name this daemon's cgroups, links and tables on the host. Derived from the data directory. */
  readonly host_tag: string;
  readonly bootstrap_key: string | null;
  /** The file that the key was read from; null where it was not. */
  readonly bootstrap_key_file: string | null;
  /** Whose tokens are accepted beside the daemon's own; null: nobody's. */
  readonly outside_issuer: OutsideIssuer | null;
  readonly users: UsersChoice;
  readonly users_max: number;
  /** Of the default limits of other tenants. */
  readonly user_limits_percent: number;
  /** Whose `X-Forwarded-For` names the client. */
  readonly trusted_proxies: readonly Network[];
  /** Of pages in browsers that may call the API. */
  readonly cors_origins: ReadonlySet<string>;
  /** Hosts that the daemon may call wherever they are: `host` or `host:port`. */
  readonly outgoing_allowed: readonly string[];
  /** Registry → the host that serves its images, both in lower case. */
  readonly registry_mirrors: ReadonlyMap<string, string>;
  /** Registries that may speak plain HTTP: `host` for all ports or `host:port`, in lower case. */
  readonly insecure_registries: readonly string[];
  /** Path of the operator's credentials for registries; null: none. */
  readonly registry_auth_file: string | null;
  /** The servers that keep messages, with credentials; null: the store keeps them. */
  readonly nats_server: NatsServer | null;
  /** Path of the signature policy for pulls. */
  readonly signature_policy: string;
  /** The listener of published services; null: off. */
  readonly services: ServicesConfig | null;
  /** Ports of this machine that tenants' containers may publish. */
  readonly host_ports: PortRange;
  readonly subnet: string;
  readonly bridge: string;
  /** `auto` probes crun, then runc; otherwise a name or path. */
  readonly oci_runtime: string;
  /** Directories of CDI files. */
  readonly cdi_dirs: readonly string[];
  /** Of API containers: where this machine can, or the daemon does not start, or none. */
  readonly user_namespaces: UserNamespaceChoice;
  readonly log_level: LogLevel;
  /** Of a collector, without a slash at its end; null: nothing is exported. */
  readonly otlp_url: string | null;
  /** Of the traces that begin here, from 0 to 1. */
  readonly trace_sample_ratio: number;
  readonly cells_target: number;
  readonly instances_max: number;
  readonly containers_max: number;
  /** Tracked connections of one address. */
  readonly flows_max: number;
  /** That running containers may have together: the machine's times a factor. */
  readonly container_memory_mb: number;
  /** Of a container or volume for which none is given. */
  readonly disk_limit_mb: number;
  readonly memory_budget_mb: number;
  /** Percent of the image store's disk above which unused images are evicted; 100: never. */
  readonly image_disk_percent: number;
  /** Hours between automatic rebuilds of profiles; 0: none. */
  readonly profile_rebuild_hours: number;
  /** Recipes of profiles beside the built-in ones; null: none. */
  readonly profiles_dir: string | null;
  /** Builds of images that may run at once; 0: none may. */
  readonly builds_max: number;
  /** Null: builds trust what their image does. */
  readonly trust: Trust | null;
  /** Size of the storage pool, whose setting keeps the name that operators know; null: half of the disk. */
  readonly storage_pool_mb: number | null;
  /** Disk scheduler of the storage pool's loop device. */
  readonly disk_scheduler: DiskScheduler;
  /** Null: tenants do not share it. */
  readonly uplink: Uplink | null;
  readonly terminal_idle_seconds: number;
  readonly terminal_ttl_seconds: number;
  readonly queue_max: number;
  /** Null: no limit. */
  readonly tenant_concurrency_limit: number | null;
  readonly records_kept_max: number;
  readonly records_kept_seconds: number;
}

export type UserNamespaceChoice = (typeof USER_NAMESPACE_CHOICES)[number];

export type UsersChoice = (typeof USERS_CHOICES)[number];

export type DiskScheduler = (typeof DISK_SCHEDULERS)[number];

/** Listener and domain of published services. */
export interface ServicesConfig {
  readonly host: string;
  /** 0: a free one. */
  readonly port: number;
  /** True if no setting names address and port: the daemon starts without published services if they are taken. */
  readonly is_default: boolean;
  /** Each service has a host name below it; null: a loopback address. */
  readonly domain: ServicesDomain | null;
}

export interface ServicesDomain {
  readonly name: string;
  readonly scheme: "http" | "https";
  /** The port that clients connect to; null: that of the listener. */
  readonly port: number | null;
}

export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** A network device, and what it can send. */
export interface Uplink {
  readonly device: string;
  readonly mbit: number;
}

/** An issuer of access tokens beside this daemon. */
export interface OutsideIssuer {
  readonly issuer: string;
  readonly audience: string;
  readonly jwks_url: string;
  readonly algorithms: readonly string[];
  /** The claim that names the tenant. */
  readonly tenant_claim: string;
}

/** The issuer of the daemon's own access tokens. */
export const OWN_ISSUER = "hearth";

function refuse(name: SettingName, value: string, expected = rangeOf(name)): never {
  throw new AppError("INVALID_ARGUMENT", `invalid ${SETTINGS[name].variable}: '${value}' (expected ${expected})`);
}

/** The settings whose range is two whole numbers. */
type NumberName = {
  [Name in SettingName]: (typeof SETTINGS)[Name]["range"] extends readonly [number, number] ? Name : never;
}[SettingName];

function wholeNumber(name: NumberName, value: string): number {
  const [min, max] = SETTINGS[name].range;
  const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= min && number <= max)) refuse(name, value);
  return number;
}

function parseFlags(args: readonly string[]): Map<SettingName, string> {
  const flags = new Map<SettingName, string>();
  const names = Object.keys(SETTINGS) as SettingName[];
  for (let i = 0; i < args.length; i++) {
    const [flag = "", inline] = (args[i] ?? "").split(/=(.*)/s);
    const name = names.find((n) => flag === flagOf(n));
    const value = inline ?? args[++i];
    if (name !== undefined && isSecret(name)) {
      throw new AppError("INVALID_ARGUMENT", `${flag} would show the key to every user of this machine`, {
        hint: `set ${SETTINGS[name].variable}, or name a file with ${flag}-file`,
      });
    }
    if (name === undefined || value === undefined) {
      const known = names
        .filter((n) => !isSecret(n))
        .map(flagOf)
        .join(" ");
      throw new AppError("INVALID_ARGUMENT", `unknown or incomplete flag: '${flag}' (known flags: ${known})`);
    }
    flags.set(name, value);
  }
  return flags;
}

/** Null when none of the three is set. */
function outsideIssuer(read: (name: SettingName) => string): OutsideIssuer | null {
  const [issuer, audience, jwks_url] = [read("jwt_issuer"), read("jwt_audience"), read("jwks_url")];
  if (issuer === "" && audience === "" && jwks_url === "") return null;
  for (const name of ["jwt_issuer", "jwt_audience"] as const) {
    if (read(name) === "") refuse(name, "", "a value, since an issuer is set");
  }
  // What the daemon's own tokens name.
  if (issuer === OWN_ISSUER) refuse("jwt_issuer", issuer);
  if (!URL.canParse(jwks_url) || !/^https?:/.test(jwks_url)) refuse("jwks_url", jwks_url);
  const algorithms = read("jwt_algorithms").split(",");
  if (!algorithms.every((name) => JWT_ALGORITHMS.includes(name))) {
    refuse("jwt_algorithms", read("jwt_algorithms"));
  }
  return { issuer, audience, jwks_url, algorithms, tenant_claim: read("jwt_tenant_claim") };
}

/** An operator's key, wherever it is kept. */
export const KEY_PATTERN = /^[\x21-\x7e]{16,256}$/;

/** The key from the environment or its file; null: the daemon makes one. Never names the value. */
function bootstrapKey(read: (name: SettingName) => string): string | null {
  const [given, file] = [read("bootstrap_key"), read("bootstrap_key_file")];
  if (given !== "" && file !== "") {
    const message = "HEARTH_BOOTSTRAP_KEY and HEARTH_BOOTSTRAP_KEY_FILE are both set";
    throw new AppError("INVALID_ARGUMENT", message, { hint: "set one of them" });
  }
  if (given === "" && file === "") return null;
  const key = file === "" ? given : readKeyFile(file);
  if (!KEY_PATTERN.test(key)) {
    const source = SETTINGS[file === "" ? "bootstrap_key" : "bootstrap_key_file"].variable;
    throw new AppError(
      "INVALID_ARGUMENT",
      `invalid key in ${source} (expected 16 to 256 printable characters without spaces)`,
    );
  }
  return key;
}

function readKeyFile(file: string): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (cause) {
    throw new AppError("INVALID_ARGUMENT", `cannot read HEARTH_BOOTSTRAP_KEY_FILE: ${errorText(cause)}`, { cause });
  }
}

function natsSetting(read: (name: SettingName) => string): NatsServer | null {
  const [url, file] = [read("nats_url"), read("nats_credentials_file")];
  if (url === "" && file !== "") {
    throw new AppError("INVALID_ARGUMENT", "HEARTH_NATS_CREDENTIALS_FILE is set without HEARTH_NATS_URL");
  }
  if (url === "") return null;
  try {
    return natsServer(url, file === "" ? null : readFileSync(file));
  } catch (cause) {
    if (cause instanceof AppError) throw cause;
    throw new AppError("INVALID_ARGUMENT", `cannot read HEARTH_NATS_CREDENTIALS_FILE: ${errorText(cause)}`, { cause });
  }
}

function trustSetting(read: (name: SettingName) => string): Trust | null {
  const [proxy, no_proxy, credentials] = [read("build_proxy"), read("build_no_proxy"), read("build_proxy_credentials")];
  if (!PROXY_CREDENTIALS.some((choice) => choice === credentials)) refuse("build_proxy_credentials", credentials);
  const files = entriesOf(read("build_ca_files")).map((file) => resolve(file));
  return readTrust({ files, proxy, no_proxy, shares_credentials: credentials === "shared" });
}

const LISTED_HOST = /^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:\d{1,5})?$/i;

function entriesOf(text: string): readonly string[] {
  return text
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
}

function hostList(name: "outgoing_allowed" | "insecure_registries", text: string): readonly string[] {
  const hosts = entriesOf(text);
  const wrong = hosts.find((host) => !LISTED_HOST.test(host));
  if (wrong !== undefined) refuse(name, wrong);
  return hosts;
}

function trustedProxies(text: string): readonly Network[] {
  return entriesOf(text).map((entry) => {
    const bits = /^[0-9a-f:.]+(?:\/(\d{1,3}))?$/i.exec(entry)?.[1];
    try {
      const parsed = network(entry);
      if (parsed.prefix_bits <= parsed.bytes.length * 8 && (bits !== undefined || !entry.includes("/"))) return parsed;
    } catch {
      // Refused below.
    }
    return refuse("trusted_proxies", entry);
  });
}

function cdiDirectories(paths: readonly string[]): readonly string[] {
  const wrong = paths.find((path) => !path.startsWith("/"));
  if (wrong !== undefined) refuse("cdi_dirs", wrong);
  if (paths.length > LIMITS.cdi_directories_max) refuse("cdi_dirs", `${paths.length} paths`);
  return paths.map((path) => resolve(path));
}

function registryMirrors(text: string): ReadonlyMap<string, string> {
  const mirrors = new Map<string, string>();
  for (const entry of entriesOf(text.toLowerCase())) {
    const [registry = "", host = "", ...rest] = entry.split("=");
    const isUsable =
      LISTED_HOST.test(registry) && LISTED_HOST.test(host) && rest.length === 0 && !mirrors.has(registry);
    if (!isUsable) refuse("registry_mirrors", entry);
    mirrors.set(registry, host);
  }
  return mirrors;
}

function collectorUrl(read: (name: SettingName) => string): string | null {
  const url = read("otlp_url");
  if (url === "") return null;
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? "")) refuse("otlp_url", url);
  return url.replace(/\/+$/, "");
}

function portRange(read: (name: SettingName) => string): PortRange {
  const text = read("host_ports");
  const [, first, last] = /^(\d{1,5})-(\d{1,5})$/.exec(text)?.map(Number) ?? [];
  if (first === undefined || last === undefined || first < LIMITS.host_port_min || last < first || last > 65_535) {
    refuse("host_ports", text);
  }
  return { first, last };
}

const DOMAIN = /^(?=.{1,200}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** A plain domain is served as it is; a URL names the scheme and port of what stands in front. */
function servicesDomain(read: (name: SettingName) => string): ServicesDomain | null {
  const text = read("services_domain").toLowerCase();
  if (text === "") return null;
  const [, scheme, name = "", port] = /^(?:(https?):\/\/)?([^/:]*)(?::(\d{1,5}))?\/?$/.exec(text) ?? [];
  const given = port === undefined ? null : Number(port);
  const isUsable = DOMAIN.test(name) && !isIPv4(name) && (given === null || (given > 0 && given <= 65_535));
  if (!isUsable || (scheme === undefined && given !== null)) refuse("services_domain", text);
  if (scheme === undefined) return { name, scheme: "http", port: null };
  return { name, scheme: scheme as "http" | "https", port: given ?? (scheme === "https" ? 443 : 80) };
}

function servicesConfig(read: (name: SettingName) => string, console_port: number): ServicesConfig | null {
  const [text, domain] = [read("services_listen"), servicesDomain(read)];
  if (text === "off") return null;
  // After port 0, which stands for a free one, comes another free one.
  const next = console_port === 0 || console_port === 65_535 ? 0 : console_port + 1;
  const [, address = "", port = ""] = /^(.+):(\d{1,5})$/.exec(text || `127.0.0.1:${next}`) ?? [];
  if (address === "" || Number(port) > 65_535) refuse("services_listen", text);
  const host = address.replace(/^\[(.*)\]$/, "$1");
  if (domain === null && !/^(127(\.\d{1,3}){3}|::1|localhost)$/.test(host)) {
    throw new AppError("INVALID_ARGUMENT", `HEARTH_SERVICES_LISTEN is no loopback address: '${text}'`, {
      hint: "set HEARTH_SERVICES_DOMAIN, or listen on 127.0.0.1",
    });
  }
  return { host, port: Number(port), is_default: text === "", domain };
}

/** Ports that this daemon listens on or connects to, as far as the settings tell: no container publishes them. */
export function ownPorts({ listen_port, services, otlp_url, outside_issuer, ...config }: Config): number[] {
  const urls = [otlp_url, outside_issuer?.jwks_url ?? null].filter((url) => url !== null).map((url) => new URL(url));
  const called = urls.map(({ port, protocol }) => Number(port) || (protocol === "https:" ? 443 : 80));
  const registries = [...config.registry_mirrors.values(), ...config.insecure_registries];
  const served = registries.map((host) => Number(/:(\d+)$/.exec(host)?.[1] ?? 0)).filter((port) => port > 0);
  return [listen_port, services?.port ?? 0, ...called, ...served];
}

function uplink(read: (name: SettingName) => string): Uplink | null {
  const text = read("uplink");
  if (text === "") return null;
  const [, device, mbit = ""] = /^([\w.-]{1,15}):([1-9]\d{0,5})$/.exec(text) ?? [];
  if (device === undefined) refuse("uplink", text);
  return { device, mbit: Number(mbit) };
}

function sampleRatio(read: (name: SettingName) => string): number {
  const text = read("trace_sample");
  if (!/^(0|1|0?\.\d{1,9}|[01]\.0*)$/.test(text)) refuse("trace_sample", text);
  return Number(text);
}

/** Builds that a machine runs at once unless a setting says otherwise. */
export function buildsOf(memory_mb: number): number {
  return Math.min(LIMITS.builds_max, Math.max(1, Math.floor(memory_mb / LIMITS.build_node_memory_mb)));
}

/** Megabytes that this machine, or its control group, has. */
function machineMemoryMb(): number {
  const constrained = process.constrainedMemory();
  const bytes = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
  return bytes / 2 ** 20;
}

function overcommit(read: (name: SettingName) => string): number {
  const text = read("memory_overcommit");
  const factor = /^\d{1,3}(\.\d{1,3})?$/.test(text) ? Number(text) : 0;
  if (factor <= 0) refuse("memory_overcommit", text);
  return factor;
}

/** Builds the configuration. Throws INVALID_ARGUMENT with the variable, the value and what was expected. */
export function readConfig(environment: Readonly<Record<string, string | undefined>>, args: readonly string[]): Config {
  const flags = parseFlags(args);
  checkVariables(environment, SETTINGS);
  // An empty variable is one that is not set, as in set-up.
  const read = (name: SettingName): string =>
    flags.get(name) ?? (environment[SETTINGS[name].variable] || SETTINGS[name].fallback);

  const listen = /^(.+):(\d{1,5})$/.exec(read("listen"));
  if (listen === null) refuse("listen", read("listen"));
  const port = Number(listen[2]);
  if (port > 65_535) refuse("listen", read("listen"));
  const data_dir = resolve(read("data_dir"));
  const host_tag = createHash("sha256").update(data_dir).digest("hex").slice(0, 8);
  const subnet = read("subnet");
  const [base = "", prefix = ""] = subnet.split(/\/(.*)/s);
  if (!isIPv4(base) || !/^(1[6-9]|2[0-8])$/.test(prefix)) refuse("subnet", subnet);
  const bridge = read("bridge");
  // A network interface name has at most 15 bytes (IFNAMSIZ).
  if (!/^[a-z][a-z0-9-]{0,14}$/.test(bridge)) refuse("bridge", bridge);
  const log_level = LOG_LEVELS.find((level) => level === read("log_level"));
  if (log_level === undefined) refuse("log_level", read("log_level"));
  const user_namespaces = USER_NAMESPACE_CHOICES.find((choice) => choice === read("user_namespaces"));
  if (user_namespaces === undefined) refuse("user_namespaces", read("user_namespaces"));
  const disk_scheduler = DISK_SCHEDULERS.find((choice) => choice === read("disk_scheduler"));
  if (disk_scheduler === undefined) refuse("disk_scheduler", read("disk_scheduler"));
  const users = USERS_CHOICES.find((choice) => choice === read("users"));
  if (users === undefined) refuse("users", read("users"));
  return {
    users,
    users_max: wholeNumber("users_max", read("users_max")),
    user_limits_percent: wholeNumber("user_limits_percent", read("user_limits_percent")),
    trusted_proxies: trustedProxies(read("trusted_proxies")),
    listen_host: (listen[1] ?? "").replace(/^\[(.*)\]$/, "$1"),
    listen_port: port,
    data_dir,
    image_dir: read("image_dir") === "" ? `${data_dir}/images` : resolve(read("image_dir")),
    run_dir: `${volatileDirectory()}/hearth/${host_tag}`,
    host_tag,
    bootstrap_key: bootstrapKey(read),
    bootstrap_key_file: read("bootstrap_key_file") || null,
    outside_issuer: outsideIssuer(read),
    cors_origins: originSet(entriesOf(read("cors_origins")), (wrong) => refuse("cors_origins", wrong)),
    outgoing_allowed: hostList("outgoing_allowed", read("outgoing_allowed")),
    registry_mirrors: registryMirrors(read("registry_mirrors")),
    insecure_registries: hostList("insecure_registries", read("insecure_registries").toLowerCase()),
    nats_server: natsSetting(read),
    registry_auth_file: read("registry_auth_file") === "" ? null : resolve(read("registry_auth_file")),
    signature_policy: resolve(read("signature_policy")),
    services: servicesConfig(read, port),
    host_ports: portRange(read),
    subnet,
    bridge,
    oci_runtime: read("oci_runtime"),
    cdi_dirs: cdiDirectories(entriesOf(read("cdi_dirs"))),
    user_namespaces,
    log_level,
    otlp_url: collectorUrl(read),
    trace_sample_ratio: sampleRatio(read),
    cells_target: wholeNumber("cells", read("cells")),
    instances_max: wholeNumber("instances_max", read("instances_max")),
    containers_max: wholeNumber("containers_max", read("containers_max")),
    flows_max: wholeNumber("flows_max", read("flows_max")),
    container_memory_mb: Math.floor(machineMemoryMb() * overcommit(read)),
    disk_limit_mb: wholeNumber("disk_limit", read("disk_limit")),
    memory_budget_mb:
      read("memory") === "" ? Math.floor((machineMemoryMb() * 3) / 4) : wholeNumber("memory", read("memory")),
    disk_scheduler,
    uplink: uplink(read),
    image_disk_percent: wholeNumber("image_disk_percent", read("image_disk_percent")),
    profile_rebuild_hours: wholeNumber("profile_rebuild_hours", read("profile_rebuild_hours")),
    profiles_dir: read("profiles_dir") === "" ? null : resolve(read("profiles_dir")),
    builds_max: read("builds") === "" ? buildsOf(machineMemoryMb()) : wholeNumber("builds", read("builds")),
    trust: trustSetting(read),
    storage_pool_mb: read("area") === "" ? null : wholeNumber("area", read("area")),
    terminal_idle_seconds: wholeNumber("terminal_idle", read("terminal_idle")),
    terminal_ttl_seconds: wholeNumber("terminal_ttl", read("terminal_ttl")),
    queue_max: wholeNumber("queue_max", read("queue_max")),
    tenant_concurrency_limit: wholeNumber("tenant_concurrency", read("tenant_concurrency")) || null,
    records_kept_max: wholeNumber("records_kept", read("records_kept")),
    records_kept_seconds: wholeNumber("records_kept_days", read("records_kept_days")) * DAY_SECONDS,
  };
}
