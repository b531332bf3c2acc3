/**
 * Passes requests of clients to the containers behind services, and their responses back. Neither is held: bytes move as
 * fast as the slower side takes them.
 *
 * P1. Each request in progress holds a place of its tenant until its connection to the container has settled.
 * P2. Every wait has a deadline: to connect, for the response's headers, and for any byte of a body.
 * P3. A response that ends early ends the client's connection: a client never takes a part for the whole.
 * P4. No URL, header or token is logged. The one error body reports a failure unless the response has begun.
 */
import { type ClientRequest, type IncomingMessage, type ServerResponse, request as send } from "node:http";
import type { Clock } from "../base/clock.ts";
import { AppError, ERRORS, type ErrorCode } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { Shares } from "../base/shares.ts";
import { DEFAULT_TENANT_ID } from "../base/tenant-limits.ts";
import { Access, type Admitted } from "./access.ts";
import { requestHeaders, responseHeaders, trailersOf } from "./headers.ts";
import type { Directory, Origins, Published } from "./published.ts";
import { type FreeSockets, type LiveOf, notLive, Upstream } from "./upstream.ts";

/** The body and headers of a refusal. */
export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface ProxyOptions {
  readonly clock: Clock;
  readonly directory: Directory;
  readonly origins: Origins;
  readonly liveOf: LiveOf;
  /** A container counts as used until what is returned is called. */
  readonly use: (container_id: string) => () => void;
  /** Makes the refusal for what was thrown. */
  readonly refusal: (thrown: unknown) => Refusal;
  /** Notes that the connection of a request belongs to a tenant. Returns false if the tenant has too many. */
  readonly authenticated: (incoming: IncomingMessage, tenant_id: string) => boolean;
  /** Counts a response, by its status; a refusal of the daemon by its code. */
  readonly served: (status: number, error_code: ErrorCode | null) => void;
}

/** A request that has a place. */
export interface Passage extends Admitted {
  readonly upstream: Upstream;
  /** Gives the place back. Harmless when repeated. */
  readonly end: () => void;
}

/** Methods that may be sent twice (RFC 9110 §9.2.2), as far as they have no body. */
const REPEATABLE: ReadonlySet<string | undefined> = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);

export class ServiceProxy {
  readonly options: ProxyOptions;
  readonly access: Access;
  readonly #places = new Shares({
    each_max: (tenant_id) => (tenant_id === DEFAULT_TENANT_ID ? null : LIMITS.service_requests_per_tenant_max),
    all_max: LIMITS.service_requests_max,
  });
  readonly #upstreams = new Map<string, Upstream>();
  readonly #free: FreeSockets = { count: 0 };
  #active_count = 0;
  #isClosed = false;

  constructor(options: ProxyOptions) {
    this.options = options;
    this.access = new Access(options.directory, options.origins, options.clock);
  }

  /** Requests and WebSockets in progress. */
  get active_count(): number {
    return this.#active_count;
  }

  /** Serves a request. `isExpecting`: its client waits for 100 Continue before it sends the body. */
  handle(incoming: IncomingMessage, outgoing: ServerResponse, isExpecting: boolean): void {
    let passage: Passage | null = null;
    try {
      const admitted = this.access.admit(incoming);
      if (!this.options.authenticated(incoming, admitted.service.row.tenant_id)) outgoing.shouldKeepAlive = false;
      if (admitted.redirect !== null) {
        this.#redirect(admitted, outgoing);
        return;
      }
      this.#checkUpgrade(incoming, admitted.service);
      passage = this.begin(admitted, () => outgoing.destroy());
      this.#forward(incoming, outgoing, bothEnded(passage, outgoing), isExpecting);
    } catch (thrown) {
      passage?.end();
      this.refuse(thrown, incoming, outgoing);
    }
  }

  /** Takes a place (P1). `cut` ends the client's side. Throws SERVICE_UNAVAILABLE, CONCURRENCY_LIMIT, CAPACITY_FULL. */
  begin(admitted: Admitted, cut: () => void): Passage {
    const { row, active } = admitted.service;
    if (this.#isClosed) throw new AppError("SHUTTING_DOWN", "the daemon is shutting down");
    const upstream = this.#upstreamOf(admitted.service);
    const give = this.#places.take(row.tenant_id, (reached, max) =>
      reached === "each_max"
        ? new AppError("CONCURRENCY_LIMIT", `too many requests to published services of the tenant (limit ${max})`)
        : new AppError("CAPACITY_FULL", `too many requests to published services (limit ${max})`),
    );
    const unuse = this.options.use(row.container_id);
    this.#active_count++;
    active.add(cut);
    let isHeld = true;
    const end = () => {
      if (!isHeld) return;
      isHeld = false;
      active.delete(cut);
      this.#active_count--;
      unuse();
      give();
    };
    return { ...admitted, upstream, end };
  }

  /** Ends the connections to runs of containers that have ended, and the requests on them. */
  look(): void {
    for (const [id, upstream] of this.#upstreams) {
      if (this.options.liveOf(upstream.run.id) === upstream.run) continue;
      const service = this.options.directory.byId(id);
      if (service !== null) this.options.directory.end(service);
      this.forget(id);
    }
  }

  /** Ends the connections of a service to its container. */
  forget(id: string): void {
    this.#upstreams.get(id)?.destroy();
    this.#upstreams.delete(id);
  }

  /** Refuses new requests from now on. */
  close(): void {
    this.#isClosed = true;
  }

  /** Answers with the one error body, or cuts a response that has begun (P3, P4). */
  refuse(thrown: unknown, incoming: IncomingMessage, outgoing: ServerResponse): void {
    if (outgoing.headersSent || outgoing.destroyed) {
      if (!outgoing.writableEnded) outgoing.destroy();
      return;
    }
    const { status, headers, body } = this.options.refusal(thrown);
    this.options.served(status, codeOf(thrown));
    // Its client sends no body now, and another request would be taken for it.
    if (incoming.headers.expect !== undefined) outgoing.shouldKeepAlive = false;
    outgoing.writeHead(status, { ...headers, "content-length": Buffer.byteLength(body), "cache-control": "no-store" });
    outgoing.end(body);
    discard(incoming, this.options.clock);
  }

  #upstreamOf({ row }: Published): Upstream {
    const { liveOf, clock } = this.options;
    const run = liveOf(row.container_id);
    if (run === null) throw notLive();
    const known = this.#upstreams.get(row.id);
    if (known?.run === run) return known;
    known?.destroy();
    const upstream = new Upstream(run, row.target_port, liveOf, clock, this.#free);
    this.#upstreams.set(row.id, upstream);
    return upstream;
  }

  /** Sends a page in a browser to its URL without the token, with the cookie. */
  #redirect({ service, redirect }: Admitted, outgoing: ServerResponse): void {
    const { scheme, cookie } = this.options.origins;
    const attributes = `Path=/; HttpOnly; SameSite=Lax${scheme === "https" ? "; Secure" : ""}`;
    this.options.served(302, null);
    outgoing.writeHead(302, {
      location: redirect ?? "/",
      "set-cookie": `${cookie}=${service.token?.cookie ?? ""}; ${attributes}`,
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "content-length": 0,
    });
    outgoing.end();
  }

  #checkUpgrade({ headers }: IncomingMessage, { row }: Published): void {
    if (headers.upgrade?.toLowerCase() !== "websocket" || row.enable_websockets) return;
    throw new AppError("FORBIDDEN", "the service passes no WebSockets", {
      hint: "publish it with enable_websockets: true",
    });
  }

  /** Options of the request to the container. */
  requestOptions(incoming: IncomingMessage, { service, host, target, upstream }: Passage, isUpgrade: boolean) {
    const { origins } = this.options;
    const origin = {
      address: incoming.socket.remoteAddress ?? "unknown",
      host,
      scheme: origins.scheme,
      token: service.token?.text ?? null,
      cookie: origins.cookie,
    };
    return {
      agent: upstream,
      host: upstream.run.address,
      port: service.row.target_port,
      method: incoming.method ?? "GET",
      path: target,
      headers: requestHeaders(incoming, origin, isUpgrade),
      timeout: LIMITS.service_idle_ms,
      maxHeaderSize: LIMITS.service_header_bytes_max,
    };
  }

  #forward(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    passage: Passage,
    isExpecting: boolean,
    attempts = 1,
  ): void {
    const upstream = send(this.requestOptions(incoming, passage, false));
    const state = { isRepeated: false };
    const cancel = this.watch(upstream, () => outgoing.writeProcessing());
    const gone = () => upstream.destroy();
    outgoing.once("close", gone);
    upstream.on("error", (error) => {
      const isStale = upstream.reusedSocket && isReset(error) && !hasBody(incoming) && REPEATABLE.has(incoming.method);
      if (isStale && attempts === 1 && !outgoing.headersSent && !outgoing.destroyed) {
        state.isRepeated = true;
        this.#forward(incoming, outgoing, passage, isExpecting, attempts + 1);
      } else this.refuse(failureOf(error), incoming, outgoing);
    });
    upstream.once("close", () => {
      cancel();
      outgoing.off("close", gone);
      if (state.isRepeated) return;
      // Node emits no error if the container upgrades a connection that the request did not upgrade.
      if (!outgoing.headersSent) this.refuse(failed("the container answered with no response"), incoming, outgoing);
      passage.end();
    });
    upstream.once("response", (response) => this.respond(response, incoming, outgoing));
    if (!hasBody(incoming)) upstream.end();
    else if (isExpecting) this.#sendWhenAsked(incoming, outgoing, upstream, passage);
    else pass(incoming, upstream, passage);
  }

  /** Sends the body when the backend asks for it, or after a while: many backends never ask. */
  #sendWhenAsked(incoming: IncomingMessage, outgoing: ServerResponse, upstream: ClientRequest, passage: Passage): void {
    let isDecided = false;
    const decide = (isWanted: boolean) => {
      if (isDecided) return;
      isDecided = true;
      cancel();
      if (!isWanted || outgoing.destroyed) return;
      outgoing.writeContinue();
      pass(incoming, upstream, passage);
    };
    const cancel = this.options.clock.after(LIMITS.service_continue_ms, () => decide(true));
    upstream.once("continue", () => decide(true));
    upstream.once("response", () => {
      if (!isDecided) outgoing.shouldKeepAlive = false;
      decide(false);
    });
    upstream.once("close", () => decide(false));
    upstream.flushHeaders();
  }

  /** Watches the deadlines of a request to a container (P2). Returns what ends the watch. */
  watch(upstream: ClientRequest, onProcessing: () => void): () => void {
    const { clock } = this.options;
    let cancel = () => {};
    let informational_count = 0;
    upstream.once("timeout", () => upstream.destroy(late(`no byte moved for ${LIMITS.service_idle_ms} ms`)));
    upstream.once("finish", () => {
      cancel = clock.after(LIMITS.service_response_ms, () =>
        upstream.destroy(late(`no response within ${LIMITS.service_response_ms} ms`)),
      );
    });
    upstream.on("information", ({ statusCode }) => {
      informational_count++;
      if (informational_count > LIMITS.service_informational_max) {
        upstream.destroy(failed("the container sent too many informational responses"));
      } else if (statusCode === PROCESSING) onProcessing();
    });
    upstream.once("response", () => cancel());
    return () => cancel();
  }

  /** Passes a response on. */
  respond(response: IncomingMessage, incoming: IncomingMessage, outgoing: ServerResponse): void {
    const { origins, served, clock } = this.options;
    const { statusCode: status = 0, statusMessage = "" } = response;
    try {
      outgoing.writeHead(status, statusMessage, responseHeaders(response.rawHeaders, origins.cookie, false));
    } catch {
      response.destroy();
      this.refuse(failed("the status or the headers of the container's response are invalid"), incoming, outgoing);
      return;
    }
    served(status, null);
    outgoing.flushHeaders();
    outgoing.once("finish", () => discard(incoming, clock));
    response.on("error", () => outgoing.destroy());
    response.once("close", () => {
      if (!response.complete) outgoing.destroy();
    });
    response.once("end", () => {
      if (!response.complete) return;
      const trailers = trailersOf(response.rawTrailers, null);
      if (trailers.length > 0) outgoing.addTrailers(trailers);
      outgoing.end();
    });
    response.pipe(outgoing, { end: false });
  }
}

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;

/** Returns a passage that ends when both sides have. */
function bothEnded(passage: Passage, outgoing: ServerResponse): Passage {
  let open_count = 2;
  const end = () => {
    open_count--;
    if (open_count === 0) passage.end();
  };
  outgoing.once("close", end);
  return { ...passage, end };
}

/** Reads what is left of a body, which stands before the next request; for a while. */
function discard(incoming: IncomingMessage, clock: Clock): void {
  if (incoming.complete || incoming.destroyed) return;
  const { socket } = incoming;
  incoming.unpipe();
  const cancel = clock.after(LIMITS.refused_body_ms, () => socket.destroy());
  incoming.once("close", cancel).once("end", cancel);
  incoming.resume();
}

/** 102, which tells a client that the request is under way. */
const PROCESSING = 102;

/** Sends the body of a request with its trailers. */
function pass(incoming: IncomingMessage, upstream: ClientRequest, { service }: Passage): void {
  incoming.once("end", () => {
    const trailers = trailersOf(incoming.rawTrailers, service.token?.text ?? null);
    if (trailers.length > 0) upstream.addTrailers(trailers);
    upstream.end();
  });
  incoming.on("error", () => upstream.destroy());
  incoming.pipe(upstream, { end: false });
}

const late = (what: string): AppError => new AppError("TIMEOUT", `the container of the service is too slow: ${what}`);

export const failed = (message: string, cause?: unknown): AppError =>
  new AppError("SERVICE_FAILED", message, { cause });

const isReset = (error: NodeJS.ErrnoException): boolean => error.code === "ECONNRESET" || error.code === "EPIPE";

/** Turns an error of the connection to a container into a refusal. */
export function failureOf(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const { code = "" } = error as NodeJS.ErrnoException;
  if (code === "HPE_HEADER_OVERFLOW") {
    return failed(
      `the headers of the container's response are too large (limit ${LIMITS.service_header_bytes_max} bytes)`,
      error,
    );
  }
  if (code.startsWith("HPE_")) return failed("the container's response is not valid HTTP", error);
  return failed("the container closed the connection before its response", error);
}

function codeOf(thrown: unknown): ErrorCode {
  return thrown instanceof AppError && ERRORS[thrown.code] !== undefined ? thrown.code : "INTERNAL";
}
