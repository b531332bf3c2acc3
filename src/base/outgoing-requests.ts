/**
 * The one guard of HTTP requests that the daemon itself sends to hosts that somebody has named. Without it a tenant, an
 * outside issuer or a name server could have the daemon talk to services that only this machine reaches.
 *
 * O1. No request goes to an address of a special-purpose network (special-addresses.ts), to the subnet of containers, or to
 *     an address of this machine, in whatever spelling, unless the operator has listed its host.
 * O2. The guard resolves names itself, refuses a name if any of its addresses is forbidden, and connects to the very
 *     addresses that it has checked: a second answer of the name server is never asked for.
 * O3. Each redirect passes the same checks; their number is bounded, and none leads from https to http. To another origin none
 *     of the caller's headers go but those that it marks as common.
 * O4. Each request has a deadline for all of it, and a bound for the body of its answer.
 * O5. A body that is read as a stream also has a deadline for silence: each span of time in which the reader waits brings so
 *     many bytes. The time in which the reader does not read counts for nothing but the deadline of the whole.
 *
 * Spans and metrics go to the collector without it: that is one URL of the operator, which follows no redirects.
 */
import { lookup } from "node:dns/promises";
import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { request as httpsRequest, type RequestOptions } from "node:https";
import { isIP, type LookupFunction } from "node:net";
import { networkInterfaces } from "node:os";
import { pipeline, Readable } from "node:stream";
import { getCACertificates } from "node:tls";
import { addressBytes, contains, type Network, network } from "./addresses.ts";
import type { CancelTimer, Clock } from "./clock.ts";
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { isSpecial, meantAddress } from "./special-addresses.ts";

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
  /** GET unless given; only a GET or HEAD follows redirects. */
  readonly method?: string;
  /** For the origin of the URL alone. */
  readonly headers?: Readonly<Record<string, string>>;
  /** For the origins of redirects too, so nothing secret. */
  readonly common_headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  readonly timeout_ms: number;
  /** Of the answer's body. */
  readonly bytes_max: number;
  readonly signal?: AbortSignal;
  /** Hosts that the operator lists for this request, beside those for all: `host:port`. */
  readonly listed?: readonly string[];
  /** Authorities, in PEM, that the origin of the URL may have its certificate from, beside the known ones. */
  readonly authorities?: readonly string[];
}

export interface OutgoingOpening extends Omit<OutgoingRequest, "method" | "body"> {
  /** Sent with POST, which follows no redirect; none: GET. */
  readonly body?: string;
  /** Time until the headers. Later each such time must bring `silence_bytes_min` bytes of the body, unless that ends (O5). */
  readonly silence_ms: number;
  readonly silence_bytes_min: number;
}

/** A request with a body that is sent as it is read. */
export interface OutgoingUpload extends Omit<OutgoingRequest, "body"> {
  readonly pieces: AsyncIterable<Uint8Array>;
  readonly size_bytes: number;
  /** In each such time the host takes `silence_bytes_min` bytes of the body, unless that ends. */
  readonly silence_ms: number;
  readonly silence_bytes_min: number;
  /** From the end of the body to the answer. */
  readonly answer_ms: number;
}

export interface OutgoingAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** An answer whose body is read as a stream. Holds a connection until its end, its failure or `close`. */
export interface OutgoingStream {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Where the last redirect led. */
  readonly url: string;
  /** Can be read once. Rejects as `open` does, and with the network's own error if the connection ends early. */
  readonly body: AsyncIterable<Buffer>;
  close(): void;
}

/** The reason in refusals of a host (O1); their details name it with its port. */
export const HOST_NOT_ALLOWED = "OUTGOING_HOST_NOT_ALLOWED";
/** The reason in refusals of a URL or a redirect (O3) for anything but its host. */
export const URL_NOT_USABLE = "OUTGOING_URL_NOT_USABLE";
/** The reason in refusals of a body above its bound (O4). */
export const ANSWER_TOO_LARGE = "OUTGOING_ANSWER_TOO_LARGE";

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
  #streams = 0;

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
    const over = new AbortController();
    const cancel = this.#abortAfter(over, options.timeout_ms);
    const signal = options.signal === undefined ? over.signal : AbortSignal.any([over.signal, options.signal]);
    try {
      return await unlessAborted(signal, async () => {
        const { response } = await this.#follow(url, { ...options, signal });
        const body = await wholeBody(response, options.bytes_max);
        return { status: response.statusCode ?? 0, headers: response.headers, body };
      });
    } finally {
      cancel();
      // Ends what a deadline or a bound left behind.
      over.abort();
      this.#running--;
    }
  }

  /**
   * Sends a GET, or a POST of `body`, and resolves with the headers of the answer. Rejects as `request` does, with CAPACITY_FULL above `outgoing_streams_max`, and
   * with TIMEOUT if no headers come within `silence_ms`.
   */
  async open(url: string, options: OutgoingOpening): Promise<OutgoingStream> {
    if (this.#streams >= LIMITS.outgoing_streams_max) {
      throw new AppError("CAPACITY_FULL", `too many outgoing streams (limit ${LIMITS.outgoing_streams_max})`);
    }
    this.#streams++;
    const over = new AbortController();
    const signal = options.signal === undefined ? over.signal : AbortSignal.any([over.signal, options.signal]);
    const cancel = this.#abortAfter(over, options.timeout_ms);
    const end = () => {
      cancel();
      this.#streams--;
    };
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, { once: true });
    const pace = new Pace(this.#clock, options, (error) => over.abort(error));
    try {
      pace.begin();
      const method = options.body === undefined ? "GET" : "POST";
      const { response, target } = await unlessAborted(signal, () => this.#follow(url, { ...options, method, signal }));
      pace.end(0);
      const declared = Number(response.headers["content-length"] ?? 0);
      if (declared > options.bytes_max) throw tooLarge(options.bytes_max);
      const body = pieces(response, { pace, signal, bytes_max: options.bytes_max, end: () => over.abort() });
      const { statusCode: status = 0, headers } = response;
      return { status, headers, url: target.href, body, close: () => over.abort() };
    } catch (error) {
      pace.end(0);
      over.abort();
      throw error;
    }
  }

  /**
   * Sends a body as it is read, one that may be larger than memory. Rejects as `request` does, with CAPACITY_FULL above
   * `outgoing_streams_max`, and with TIMEOUT for a host that takes too little of the body or does not answer after it.
   */
  async upload(url: string, { pieces, size_bytes, ...options }: OutgoingUpload): Promise<OutgoingAnswer> {
    if (this.#streams >= LIMITS.outgoing_streams_max) {
      throw new AppError("CAPACITY_FULL", `too many outgoing streams (limit ${LIMITS.outgoing_streams_max})`);
    }
    this.#streams++;
    const over = new AbortController();
    const cancel = this.#abortAfter(over, options.timeout_ms);
    const signal = options.signal === undefined ? over.signal : AbortSignal.any([over.signal, options.signal]);
    const taking = new Taking(this.#clock, options, (error) => over.abort(error));
    const common_headers = { ...options.common_headers, "content-length": String(size_bytes) };
    try {
      taking.begin();
      return await unlessAborted(signal, async () => {
        const body = taking.of(pieces);
        const { response } = await this.#follow(url, { ...options, common_headers, body, signal });
        const answer = await wholeBody(response, options.bytes_max);
        return { status: response.statusCode ?? 0, headers: response.headers, body: answer };
      });
    } finally {
      cancel();
      taking.end();
      over.abort();
      this.#streams--;
    }
  }

  #abortAfter(over: AbortController, timeout_ms: number): CancelTimer {
    const late = () => over.abort(new AppError("TIMEOUT", `outgoing request too slow (limit ${timeout_ms} ms)`));
    return this.#clock.after(timeout_ms, late);
  }

  /** Returns the first answer that is no redirect, its body unread, and what it is the answer of. */
  async #follow(
    url: string,
    options: OutgoingRequest & { readonly signal: AbortSignal },
  ): Promise<{ readonly response: IncomingMessage; readonly target: URL }> {
    let target = new URL(url);
    let sent = options;
    for (let count = 0; count <= LIMITS.outgoing_redirects_max; count++) {
      const addresses = await this.#checked(target, sent.listed);
      const response = await exchange(target, addresses, sent);
      const { location } = response.headers;
      const isRedirect = [301, 302, 303, 307, 308].includes(response.statusCode ?? 0) && location !== undefined;
      if (!isRedirect || !["GET", "HEAD"].includes(options.method ?? "GET")) return { response, target };
      response.destroy();
      if (!URL.canParse(location, target.href)) throw unusable("INTERNAL", "redirect to something that is no URL");
      const next = new URL(location, target);
      if (target.protocol === "https:" && next.protocol === "http:") {
        throw unusable("INVALID_ARGUMENT", `redirect from https to http not allowed: host '${next.hostname}'`);
      }
      if (next.origin !== target.origin) sent = { ...sent, headers: {}, authorities: [] };
      // A host that is not listed leads to none that is.
      if (![target, next].every((one) => sent.listed?.includes(hostAndPort(one)))) sent = { ...sent, listed: [] };
      target = next;
    }
    throw unusable("INTERNAL", `too many redirects (limit ${LIMITS.outgoing_redirects_max})`);
  }

  /** Returns the addresses to connect to. Throws INVALID_ARGUMENT if one of them is forbidden (O1, O2). */
  async #checked(url: URL, listed: readonly string[] = []): Promise<readonly string[]> {
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw unusable("INVALID_ARGUMENT", `outgoing URL not usable: ${url.protocol} (expected http or https)`);
    }
    const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
    const addresses = isIP(host) === 0 ? await this.#resolve(host) : [host];
    const place = hostAndPort(url);
    const isListed = this.#allowed.has(url.hostname) || this.#allowed.has(place) || listed.includes(place);
    if (addresses.length === 0 || (!isListed && addresses.some((address) => this.#isForbidden(address)))) {
      // The addresses behind a name are not told: they would describe the network of this machine.
      throw new AppError("INVALID_ARGUMENT", `outgoing host not allowed: '${url.hostname}'`, {
        hint: "use a host with public addresses, or ask the operator to list it in HEARTH_OUTGOING_ALLOWED",
        reason_code: HOST_NOT_ALLOWED,
        details: { received: place },
      });
    }
    return addresses;
  }

  #isForbidden(text: string): boolean {
    const bytes = addressBytes(text);
    if (bytes === null) return true;
    const address = meantAddress(bytes);
    // Interfaces come and go, so they are read each time.
    const own = Object.values(networkInterfaces()).flatMap((all) => all?.map((one) => network(one.address)) ?? []);
    return isSpecial(address) || [this.#subnet, ...own].some((one) => contains(one, address));
  }
}

/** One request to one of `addresses`, whatever the name servers say by now (O2). Resolves with the headers. */
function exchange(
  url: URL,
  addresses: readonly string[],
  { method = "GET", headers, common_headers, body, signal, authorities = [] }: OutgoingRequest,
): Promise<IncomingMessage> {
  const resolved = addresses.map((address) => ({ address, family: isIP(address) }));
  const checked: LookupFunction = (_host, { all }, done) => {
    const [first = { address: "", family: 0 }] = resolved;
    if (all) done(null, resolved);
    else done(null, first.address, first.family);
  };
  return new Promise((resolve, reject) => {
    const options: RequestOptions = {
      method,
      headers: { ...common_headers, ...headers, "accept-encoding": "identity" },
      // A connection of its own: a kept one was checked for another request.
      agent: false,
      lookup: checked,
      signal,
      maxHeaderSize: LIMITS.header_bytes_max,
      ...(authorities.length === 0 ? {} : { ca: [...getCACertificates("default"), ...authorities] }),
    };
    const sent = url.protocol === "https:" ? httpsRequest(url, options) : httpRequest(url, options);
    // Those after the headers are the body's as well.
    sent.on("error", reject);
    sent.once("response", resolve);
    if (body === undefined || typeof body === "string" || body instanceof Uint8Array) sent.end(body);
    // A failure of either ends both, and is the error of the request.
    else pipeline(Readable.from(body), sent, () => {});
  });
}

function unusable(code: "INTERNAL" | "INVALID_ARGUMENT", message: string): AppError {
  return new AppError(code, message, { reason_code: URL_NOT_USABLE });
}

function tooLarge(bytes_max: number): AppError {
  const options = { reason_code: ANSWER_TOO_LARGE };
  return new AppError("INTERNAL", `outgoing answer too large (limit ${bytes_max} bytes)`, options);
}

async function wholeBody(response: IncomingMessage, bytes_max: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > bytes_max) throw tooLarge(bytes_max);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Settles as the work does. Rejects with the signal's reason once that aborts, whatever the work still waits for. */
async function unlessAborted<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const reject = () => late.reject(signal.reason);
  signal.addEventListener("abort", reject, { once: true });
  if (signal.aborted) reject();
  try {
    return await Promise.race([late.promise, work()]);
  } catch (error) {
    // The connection that the signal ended may have rejected first.
    throw signal.aborted ? signal.reason : error;
  } finally {
    signal.removeEventListener("abort", reject);
  }
}

/** The deadline for silence (O5): counts the time in which a reader waits, and the bytes that it got for it. */
class Pace {
  readonly #clock: Clock;
  readonly #options: Pick<OutgoingOpening, "silence_ms" | "silence_bytes_min">;
  readonly #fail: (error: AppError) => void;
  #left_ms: number;
  #bytes = 0;
  #began_ms = 0;
  #cancel: CancelTimer = () => {};

  constructor(
    clock: Clock,
    options: Pick<OutgoingOpening, "silence_ms" | "silence_bytes_min">,
    fail: (error: AppError) => void,
  ) {
    this.#clock = clock;
    this.#options = options;
    this.#fail = fail;
    this.#left_ms = options.silence_ms;
  }

  /** A wait begins. */
  begin(): void {
    this.#began_ms = this.#clock.monotonicMs();
    this.#cancel = this.#clock.after(this.#left_ms, () => this.#over());
  }

  /** The wait ends with so many bytes. */
  end(bytes: number): void {
    this.#cancel();
    this.#left_ms = Math.max(1, this.#left_ms - (this.#clock.monotonicMs() - this.#began_ms));
    this.#bytes += bytes;
  }

  #over(): void {
    const { silence_ms, silence_bytes_min } = this.#options;
    if (this.#bytes >= silence_bytes_min) {
      this.#bytes = 0;
      this.#left_ms = silence_ms;
      this.begin();
      return;
    }
    const expected = `${silence_bytes_min} bytes in ${silence_ms} ms`;
    this.#fail(new AppError("TIMEOUT", `outgoing request too slow: ${this.#bytes} bytes (expected ${expected})`));
  }
}

/** The deadlines of a body that is sent: the host takes so many bytes in each span of time, and answers after the last one. */
class Taking {
  readonly #clock: Clock;
  readonly #options: Pick<OutgoingUpload, "silence_ms" | "silence_bytes_min" | "answer_ms">;
  readonly #fail: (error: AppError) => void;
  #bytes = 0;
  #cancel: CancelTimer = () => {};

  constructor(
    clock: Clock,
    options: Pick<OutgoingUpload, "silence_ms" | "silence_bytes_min" | "answer_ms">,
    fail: (error: AppError) => void,
  ) {
    this.#clock = clock;
    this.#options = options;
    this.#fail = fail;
  }

  async *of(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const piece of body) {
      yield piece;
      this.#bytes += piece.length;
    }
    const { answer_ms } = this.#options;
    this.end();
    this.#cancel = this.#clock.after(answer_ms, () => this.#late(`no answer within ${answer_ms} ms`));
  }

  begin(): void {
    const { silence_ms, silence_bytes_min } = this.#options;
    this.#cancel = this.#clock.after(silence_ms, () => {
      const bytes = this.#bytes;
      if (bytes < silence_bytes_min)
        return this.#late(`the host took ${bytes} bytes (expected ${silence_bytes_min} bytes in ${silence_ms} ms)`);
      this.#bytes = 0;
      this.begin();
    });
  }

  end(): void {
    this.#cancel();
  }

  #late(what: string): void {
    this.#fail(new AppError("TIMEOUT", `outgoing request too slow: ${what}`));
  }
}

async function* pieces(
  response: IncomingMessage,
  of: { readonly pace: Pace; readonly signal: AbortSignal; readonly bytes_max: number; readonly end: () => void },
): AsyncGenerator<Buffer> {
  const { pace, signal, bytes_max, end } = of;
  let bytes = 0;
  try {
    pace.begin();
    for await (const chunk of response as AsyncIterable<Buffer>) {
      pace.end(chunk.length);
      bytes += chunk.length;
      if (bytes > bytes_max) throw tooLarge(bytes_max);
      yield chunk;
      pace.begin();
    }
  } catch (error) {
    // The end of the connection says less than what ended it.
    throw signal.aborted ? signal.reason : error;
  } finally {
    pace.end(0);
    end();
  }
}
