/**
 * The services that this daemon serves, in memory: found by id, by container and by host. Single node: rows of other
 * nodes are not here.
 */
import { isIPv4 } from "node:net";
import type { ServicesConfig } from "../base/config.ts";
import type { ServiceRow } from "./rows.ts";
import { TOKEN_PARAMETER, type Token, tokenOf } from "./tokens.ts";

export interface Published {
  readonly row: ServiceRow;
  /** Null: it is public, or its token is lost. */
  readonly token: Token | null;
  /** Cause for which it cannot be served; null: it is served. */
  failure: string | null;
  /** Each ends one request or WebSocket in progress. */
  readonly active: Set<() => void>;
}

/** Name of the proxy's cookie. With the prefix a browser takes it from this host alone, over TLS. */
const cookieName = (scheme: "http" | "https"): string =>
  scheme === "https" ? "__Host-hearth_service" : "hearth_service";

/** Makes a service of its row and the text of its token. */
export function published(row: ServiceRow, text: string | null, failure: string | null): Published {
  return { row, token: text === null ? null : tokenOf(row.id, text), failure, active: new Set() };
}

/** Builds and parses the URLs of services. */
export class Origins {
  readonly #config: Pick<ServicesConfig, "port" | "domain">;
  /** The port of the listener, once it is bound. */
  port: number;

  constructor(config: Pick<ServicesConfig, "port" | "domain">) {
    this.#config = config;
    this.port = config.port;
  }

  get scheme(): "http" | "https" {
    return this.#config.domain?.scheme ?? "http";
  }

  /** Domain below which services have names; null: each has a loopback address. */
  get domain(): string | null {
    return this.#config.domain?.name ?? null;
  }

  get cookie(): string {
    return cookieName(this.scheme);
  }

  /** The host by which a service is found, in lower case; null: it has none yet. */
  hostOf({ hostname, label, address }: Pick<ServiceRow, "hostname" | "label" | "address">): string | null {
    if (hostname !== null) return hostname;
    return this.domain === null ? address : `${label}.${this.domain}`;
  }

  /** The URL of a service with its token, and that for WebSockets. */
  urlsOf({ row, token }: Published): { readonly public_url: string | null; readonly websocket_url: string | null } {
    const host = this.hostOf(row);
    const isLost = token === null && row.auth_mode === "service_token";
    if (host === null || isLost) return { public_url: null, websocket_url: null };
    const port = this.#config.domain?.port ?? this.port;
    const shown = port === (this.scheme === "https" ? 443 : 80) ? "" : `:${port}`;
    const rest = `://${host}${shown}/${token === null ? "" : `?${TOKEN_PARAMETER}=${token.text}`}`;
    return {
      public_url: `${this.scheme}${rest}`,
      websocket_url: row.enable_websockets ? `${this.scheme === "https" ? "wss" : "ws"}${rest}` : null,
    };
  }
}

/** The host of a Host header in lower case, without its port; null where it is malformed. */
export function hostName(header: string): string | null {
  const [, name = ""] = /^([a-z0-9._-]{1,253}?)\.?(?::\d{1,5})?$/i.exec(header) ?? [];
  return name === "" ? null : name.toLowerCase();
}

export class Directory {
  readonly #origins: Origins;
  readonly #by_id = new Map<string, Published>();
  readonly #by_host = new Map<string, Published>();

  constructor(origins: Origins) {
    this.#origins = origins;
  }

  get count(): number {
    return this.#by_id.size;
  }

  all(): IterableIterator<Published> {
    return this.#by_id.values();
  }

  byId(id: string): Published | null {
    return this.#by_id.get(id) ?? null;
  }

  byHost(host: string): Published | null {
    return this.#by_host.get(host) ?? null;
  }

  /** True if a service has the loopback address. */
  hasAddress(address: string): boolean {
    return isIPv4(address) && [...this.#by_id.values()].some(({ row }) => row.address === address);
  }

  ofContainer(container_id: string): Published[] {
    return [...this.#by_id.values()].filter(({ row }) => row.container_id === container_id);
  }

  /** Takes the place of an earlier version of the same service. */
  add(service: Published): void {
    this.#by_id.set(service.row.id, service);
    const host = this.#origins.hostOf(service.row);
    if (host !== null) this.#by_host.set(host, service);
  }

  /** Removes a service and ends its requests. */
  remove(id: string): Published | null {
    const service = this.#by_id.get(id);
    if (service === undefined) return null;
    this.#by_id.delete(id);
    const host = this.#origins.hostOf(service.row);
    if (host !== null && this.#by_host.get(host)?.row.id === id) this.#by_host.delete(host);
    this.end(service);
    return service;
  }

  /** Ends the requests and WebSockets in progress of a service. */
  end({ active }: Published): void {
    for (const end of [...active]) end();
  }
}
