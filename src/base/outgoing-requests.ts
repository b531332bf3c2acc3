/**
 * The one guard of HTTP requests that the daemon itself sends to hosts that somebody has named. Without it a tenant, an
 * outside issuer or a name server could have the daemon talk to services that only this machine reaches.
 *
 * O1. No request goes to a loopback, link-local, multicast or unspecified address, to the subnet of containers, or to an
 *     address of this machine, in whatever spelling, unless the operator has listed its host.
 * O2. The guard resolves names itself, refuses a name if any of its addresses is forbidden, and connects to the very
 *     addresses that it has checked: a second answer of the name server is never asked for.
 * O3. Each redirect passes the same checks; their number is bounded. To another origin none of the caller's headers go.
 * O4. Each request has a deadline for all of it, and a bound for the body of its answer.
 *
 * Spans and metrics go to the collector without it: that is one URL of the operator, which follows no redirects.
 */
import { lookup } from "node:dns/promises";
import { request as httpRequest, type IncomingHttpHeaders, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { isIP, type LookupFunction } from "node:net";
import { networkInterfaces } from "node:os";
import { addressBytes, contains, type Network, network } from "./addresses.ts";
import type { Clock } from "./clock.ts";
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";

/** Loopback, link-local, "this network", multicast, reserved with broadcast; the same of IPv6 with the unspecified address. */
const FORBIDDEN = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/96", "fe80::/10", "ff00::/8"].map(
  network,
);
/** IPv6 addresses that stand for an IPv4 address (RFC 6052, RFC 3056), and where it begins in them. */
const EMBEDDING = [
  { within: network("64:ff9b::/96"), offset: 12 },
  { within: network("2002::/16"), offset: 2 },
];

export interface OutgoingOptions {
  readonly clock: Clock;
  /** Of containers. */
  readonly subnet: string;
  /** Hosts that the operator lists: `host` for all ports or `host:port`; an IPv6 address in brackets. */
  readonly allowed: readonly string[];
  /** Addresses of a name; the system's resolver unless given. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
}

export interface OutgoingRequest {
  /** GET unless given; only a GET follows redirects. */
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly timeout_ms: number;
  /** Of the answer's body. */
  readonly bytes_max: number;
  readonly signal?: AbortSignal;
}

export interface OutgoingAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Returns the entry of `allowed` that stands for the host and port of a URL. */
export function listedHost(url: string): string {
  return hostAndPort(new URL(url));
}

function hostAndPort({ protocol, hostname, port }: URL): string {
  return `${hostname}:${port === "" ? (protocol === "https:" ? 443 : 80) : port}`;
}

async function resolveName(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

export class Outgoing {
  readonly #clock: Clock;
  readonly #subnet: Network;
  readonly #allowed: ReadonlySet<string>;
  readonly #resolve: (host: string) => Promise<readonly string[]>;
  #running = 0;

  constructor({ clock, subnet, allowed, resolve = resolveName }: OutgoingOptions) {
    this.#clock = clock;
    this.#subnet = network(subnet);
    this.#allowed = new Set(allowed.map((host) => host.toLowerCase()));
    this.#resolve = resolve;
  }

  /**
   * Sends a request. Rejects with INVALID_ARGUMENT for a host that is not allowed (O1) or a URL that is not HTTP,
   * CAPACITY_FULL above `outgoing_requests_max`, TIMEOUT at the deadline, INTERNAL for too large an answer or too many redirects, and
   * with the network's own error if nothing answers.
   */
  async request(url: string, options: OutgoingRequest): Promise<OutgoingAnswer> {
    if (this.#running >= LIMITS.outgoing_requests_max) {
      throw new AppError("CAPACITY_FULL", `too many outgoing requests (limit ${LIMITS.outgoing_requests_max})`);
    }
    this.#running++;
    const { timeout_ms } = options;
    const late = Promise.withResolvers<never>();
    const over = new AbortController();
    const cancel = this.#clock.after(timeout_ms, () => {
      late.reject(new AppError("TIMEOUT", `outgoing request too slow (limit ${timeout_ms} ms)`));
      over.abort();
    });
    const signal = options.signal === undefined ? over.signal : AbortSignal.any([over.signal, options.signal]);
    try {
      return await Promise.race([this.#follow(url, { ...options, signal }), late.promise]);
    } finally {
      cancel();
      // Ends what a deadline or a bound left behind.
      over.abort();
      this.#running--;
    }
  }

  async #follow(url: string, options: OutgoingRequest & { readonly signal: AbortSignal }): Promise<OutgoingAnswer> {
    let target = new URL(url);
    let sent = options;
    for (let count = 0; count <= LIMITS.outgoing_redirects_max; count++) {
      const addresses = await this.#checked(target);
      const answer = await exchange(target, addresses, sent);
      const { location } = answer.headers;
      const isRedirect = [301, 302, 303, 307, 308].includes(answer.status) && location !== undefined;
      if (!isRedirect || (options.method ?? "GET") !== "GET") return answer;
      if (!URL.canParse(location, target.href)) throw new AppError("INTERNAL", "redirect to something that is no URL");
      const next = new URL(location, target);
      if (next.origin !== target.origin) sent = { ...sent, headers: {} };
      target = next;
    }
    throw new AppError("INTERNAL", `too many redirects (limit ${LIMITS.outgoing_redirects_max})`);
  }

  /** Returns the addresses to connect to. Throws INVALID_ARGUMENT if one of them is forbidden (O1, O2). */
  async #checked(url: URL): Promise<readonly string[]> {
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new AppError("INVALID_ARGUMENT", `outgoing URL not usable: ${url.protocol} (expected http or https)`);
    }
    const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
    const addresses = isIP(host) === 0 ? await this.#resolve(host) : [host];
    const isListed = this.#allowed.has(url.hostname) || this.#allowed.has(hostAndPort(url));
    if (addresses.length === 0 || (!isListed && addresses.some((address) => this.#isForbidden(address)))) {
      // The addresses behind a name are not told: they would describe the network of this machine.
      throw new AppError("INVALID_ARGUMENT", `outgoing host not allowed: '${url.hostname}'`, {
        hint: "use a host with public addresses, or ask the operator to list it in HEARTH_OUTGOING_ALLOWED",
      });
    }
    return addresses;
  }

  #isForbidden(text: string): boolean {
    const bytes = addressBytes(text);
    if (bytes === null) return true;
    const { offset } = EMBEDDING.find(({ within }) => contains(within, bytes)) ?? {};
    const address = offset === undefined ? bytes : bytes.subarray(offset, offset + 4);
    // Interfaces come and go, so they are read each time.
    const own = Object.values(networkInterfaces()).flatMap((all) => all?.map((one) => network(one.address)) ?? []);
    return [...FORBIDDEN, this.#subnet, ...own].some((one) => contains(one, address));
  }
}

/** One request to one of `addresses`, whatever the name servers say by now (O2). */
function exchange(
  url: URL,
  addresses: readonly string[],
  { method = "GET", headers = {}, body, bytes_max, signal }: OutgoingRequest & { readonly signal: AbortSignal },
): Promise<OutgoingAnswer> {
  const resolved = addresses.map((address) => ({ address, family: isIP(address) }));
  const checked: LookupFunction = (_host, { all }, done) => {
    const [first = { address: "", family: 0 }] = resolved;
    if (all) done(null, resolved);
    else done(null, first.address, first.family);
  };
  return new Promise((resolve, reject) => {
    const options: RequestOptions = {
      method,
      headers: { ...headers, "accept-encoding": "identity" },
      // A connection of its own: a kept one was checked for another request.
      agent: false,
      lookup: checked,
      signal,
      maxHeaderSize: LIMITS.header_bytes_max,
    };
    const sent = url.protocol === "https:" ? httpsRequest(url, options) : httpRequest(url, options);
    sent.once("error", reject);
    sent.once("response", (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > bytes_max) {
          sent.destroy(new AppError("INTERNAL", `outgoing answer too large (limit ${bytes_max} bytes)`));
          return;
        }
        chunks.push(chunk);
      });
      response.once("error", reject);
      response.once("end", () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }),
      );
    });
    sent.end(body);
  });
}
