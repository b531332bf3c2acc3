/**
 * Hot path. One request, through the same steps whatever the route: request id → credential → body → validation →
 * handler → JSON. There is no middleware: hono then calls the handler directly, and headers are set while the Response
 * is made (setting them later rebuilds it, which costs a third of the throughput). Whatever is thrown becomes the error
 * body of errors.ts.
 */
import type { IncomingMessage } from "node:http";
import type { HttpBindings } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import type { Context } from "hono";
import type { z } from "zod";
import { Answer, ListAnswer, Streamed } from "../base/answer.ts";
import type { AuthClass, Authenticator, Caller } from "../base/caller.ts";
import type { Clock } from "../base/clock.ts";
import { AppError, type ErrorCode, errorText, invariant, withoutRoom } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { jsonOf } from "../base/json-text.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { JSON_TYPE } from "../base/media-types.ts";
import type { Observer, RequestNotes } from "../base/request-observer.ts";
import type { pageQuery } from "../base/schema.ts";
import { Upgrade } from "../base/sockets.ts";
import type { Trace, Traces } from "../base/trace.ts";
import type { TransferTurn, TransferTurns } from "../base/transfer-turns.ts";
import type { Once } from "../store/store.ts";
import { checkTenant, credentialOf, permit, twoCredentials } from "./auth.ts";
import { type ContainerOf, confine, permitConfined, withContainerId } from "./confinement.ts";
import { authenticated } from "./connections.ts";
import { type Cursors, Page } from "./cursors.ts";
import { EarlyHeaders } from "./early-headers.ts";
import { errorBody, errorCodeOf, errorResponse, requestId } from "./errors.ts";
import { type Idempotency, keyedRequest } from "./idempotency.ts";
import { checkPath, parseJson, parseQuery, readBody, validate, validateQuery } from "./input.ts";
import { longListOf, streamedList } from "./long-lists.ts";
import type { MemoryBudget, Share } from "./memory-budget.ts";
import type { RateLimiter, Taken } from "./rates.ts";
import type { Route, RouteRequest } from "./route.ts";
import type { Spool, Spools } from "./spool.ts";
import { send } from "./stream.ts";
import { mediaType, RequestBody, type Upload, type UploadOptions } from "./upload.ts";
import { checkUpgrade, type Opening, type Sockets } from "./websocket.ts";

export interface AppDeps {
  readonly log: Log;
  readonly ids: Ids;
  readonly clock: Clock;
  /** Decides for every request of this application. */
  readonly authenticator: Authenticator;
  /** Of all listeners together. */
  readonly rates: RateLimiter;
  readonly cursors: Cursors;
  readonly idempotency: Idempotency;
  /** For credentials that reach some containers only; without it they reach none. */
  readonly container_of?: ContainerOf;
  /** What all requests of this application hold. */
  readonly budget: MemoryBudget;
  /** Of all listeners together. */
  readonly spools: Spools;
  /** What requests of this application have become. */
  readonly sockets: Sockets;
  readonly traces: Traces;
  readonly turns: TransferTurns;
  /** Hears of each request once, when its answer is made. */
  readonly observer: Observer;
}

/** Header by which a console marks its repeated reads: they are logged at debug when they succeed. */
const POLL_HEADER = "x-hearth-poll";

export type Env = { Bindings: HttpBindings };

export async function serve(c: Context<Env>, route: Route, deps: AppDeps): Promise<Response> {
  const { incoming, outgoing } = c.env;
  const begun_ms = deps.clock.monotonicMs();
  const request_id = requestId(incoming.headers["x-request-id"], deps.ids);
  const trace = deps.traces.begin(incoming.headers.traceparent, incoming.headers.tracestate);
  const notes: RequestNotes = {};
  const share = deps.budget.share();
  let taken: Taken | null = null;
  let caller: Caller | null = null;
  let error_code: ErrorCode | null = null;
  let response: Response;
  let stream: RequestBody | null = null;
  let spool: Spool | null = null;
  let early: EarlyHeaders | null = null;
  let result: unknown;
  const sent_params = c.req.param();
  try {
    let credential = "";
    if (route.auth !== "public") {
      credential = credentialOf(incoming, route.query_credential ? queriedToken(incoming.url ?? "") : null);
      caller = deps.authenticator.cached(credential) ?? (await deps.authenticator.caller(credential));
      authenticated(incoming.socket);
      share.belongTo(caller.tenant_id);
      taken = deps.rates.take(caller.tenant_id);
      if (taken !== null && taken.refusal !== null) throw taken.refusal;
      permit(route, caller);
      permitConfined(route, caller);
      checkTenant(route, caller, incoming.headers);
    }
    const recheck = (): Promise<void> | undefined =>
      caller === null || deps.authenticator.cached(credential) !== null
        ? undefined
        : deps.authenticator.caller(credential).then(() => {});
    checkPath(incoming.url ?? "");
    const params = route.params === null ? sent_params : validate(route.params, sent_params, "INVALID_ARGUMENT");
    const asked_query = route.query === null ? undefined : validateQuery(route.query, incoming.url ?? "");
    const query = await withContainerId(asked_query, caller, deps.container_of);
    if (route.socket !== null) checkUpgrade(incoming);
    const bytes_max = streamedMax(route, incoming);
    if (bytes_max !== null) stream = new RequestBody({ incoming, outgoing, clock: deps.clock, bytes_max, recheck });
    let body: unknown;
    let bytes: Buffer | null = null;
    if (route.body !== null && !isRaw(route, incoming)) {
      let sent: unknown;
      if (stream === null || route.base64_field === null) {
        bytes = await readBody(incoming, outgoing, deps.clock, share, route.body_limits);
        sent = parseJson(bytes, route.exact_fields);
      } else {
        ({ sent, spool } = await deps.spools.read(caller?.tenant_id ?? "", stream, route.base64_field, share));
      }
      route.checkFields(sent);
      body = validate(route.body, sent);
    }
    // A body may take longer than what its sender was let in with.
    const checked = body === undefined ? undefined : recheck();
    if (checked !== undefined) await checked;
    const more_headers = taken?.headers;
    const sent = { params, query, body };
    const asked =
      caller?.container_ids === undefined ? sent : await confine(route, caller, sent, deps.container_of ?? NOBODYS);
    const parts = { ...asked, caller, stream: spool ?? stream, request_id, trace, notes, recheck };
    const handle = (once: Once | null) => route.handler(new ServedRequest(c, route, deps, parts, once));
    const keyed = caller === null ? null : keyedRequest(route, caller, incoming, bytes, body);
    const run = () => (keyed === null ? handle(null) : deps.idempotency.once(keyed, handle));
    early = earlyHeaders(c.env, route, query, { request_id, more_headers }, deps);
    result = await (early === null ? run() : early.during(run));
    const listed = route.method === "GET" && !early?.areSent ? longListOf(result, route.status) : null;
    const list = listed === null ? null : await writeList(c.env, listed, share, deps.turns.of(share.tenant_id));
    if (list === null) share.end();
    response = early?.areSent
      ? finish(c.env, early, result, route.status, share)
      : list !== null
        ? begin(c.env, list, request_id, deps, taken?.headers)
        : result instanceof Streamed
          ? begin(c.env, result, request_id, deps, taken?.headers)
          : result instanceof Upgrade
            ? upgrade(
                c.env,
                result,
                route,
                { recheck, headers: { "x-request-id": request_id, ...taken?.headers } },
                deps,
              )
            : respond(result, route.status, request_id, (bytes) => hold(c.env, share, bytes), taken?.headers);
  } catch (caught) {
    share.end();
    const thrown = withoutRoom(caught);
    error_code = errorCodeOf(thrown);
    response = errorResponse(thrown, request_id, deps.log, taken?.headers);
    if (early?.areSent) response = endLate(c.env, early, route, thrown, request_id, deps);
  }
  await spool?.end();
  // What was sent and not taken stands in the way of the next request.
  if (stream !== null && !(await stream.end()) && !outgoing.headersSent) marked(response, { connection: "close" });
  const status = response === RESPONSE_ALREADY_SENT ? outgoing.statusCode : response.status;
  const ended_ms = deps.clock.monotonicMs();
  const { method, path } = route;
  const is_poll = method === "GET" && incoming.headers[POLL_HEADER] !== undefined;
  const is_change = method !== "GET" || status === SWITCHING;
  const told = {
    request_id,
    method,
    route: path,
    operation: route.operation,
    address: addressOf(incoming),
    is_change,
    target: is_change || error_code !== null ? targetOf(sent_params, result) : null,
    status,
    error_code,
    is_poll,
    caller,
    begun_ms,
    ended_ms,
    trace,
    notes,
  };
  deps.observer.served(told);
  return response;
}

/** Finds no container for any resource. */
const NOBODYS: ContainerOf = { container: async () => null, operation: async () => null, session: () => null };

/** Of an upgraded request. */
const SWITCHING = 101;

function addressOf({ socket }: IncomingMessage): string | null {
  return socket.remoteAddress?.replace(/^::ffff:(?=\d+\.)/, "") ?? null;
}

/** Fields of answers that name what was made. */
const ID_FIELDS = [
  "id",
  "service_id",
  "container_id",
  "session_id",
  "job_id",
  "snapshot_id",
  "operation_id",
  "tenant_id",
  "reference",
  "name",
] as const;

/** Target of a change or refusal: ids and names, nothing else of the request or its answer. */
function targetOf(params: Readonly<Record<string, string>>, result: unknown): string | null {
  const parts = Object.values(params);
  const body = result instanceof Answer ? result.body : result;
  if (typeof body === "object" && body !== null && !(body instanceof Response)) {
    const fields = body as Readonly<Record<string, unknown>>;
    const id = ID_FIELDS.map((name) => fields[name]).find((value) => typeof value === "string");
    if (typeof id === "string" && !parts.includes(id)) parts.push(id);
  }
  return parts.length === 0 ? null : parts.join("/").slice(0, LIMITS.audit_target_length_max);
}

function isRaw(route: Route, incoming: IncomingMessage): route is Route & { upload: UploadOptions } {
  return route.upload !== null && (route.body === null || mediaType(incoming) !== JSON_TYPE);
}

/** The bound of a body that is read in pieces; null for one that is read whole. */
function streamedMax(route: Route, incoming: IncomingMessage): number | null {
  if (isRaw(route, incoming)) return route.upload.bytes_max;
  return route.base64_field === null ? null : LIMITS.base64_body_bytes_max;
}

/** The credential in a query; null where there is none. Nothing else ever looks at it. Throws TWO_CREDENTIALS. */
function queriedToken(url: string): string | null {
  const { token = null } = parseQuery(url);
  if (Array.isArray(token)) throw twoCredentials("token stands twice in the query");
  return token;
}

/** Begins to send an answer in pieces, and tells the server that it need not. */
function begin(
  { incoming, outgoing }: HttpBindings,
  streamed: Streamed,
  request_id: string,
  { budget, log }: AppDeps,
  more_headers?: Readonly<Record<string, string>>,
): Response {
  const headers = { ...streamed.headers, "x-request-id": request_id, ...more_headers };
  if (incoming.method === "HEAD") {
    void streamed.source[Symbol.asyncIterator]().return?.();
    return new Response(null, { status: streamed.status, headers });
  }
  send({ outgoing }, { ...streamed, headers }, budget.stall_ms).catch((error) =>
    log.warn("response aborted", { request_id, error: errorText(error) }),
  );
  return RESPONSE_ALREADY_SENT;
}

/** Null for a route that answers soon. */
function earlyHeaders(
  env: HttpBindings,
  { early_status }: Route,
  query: unknown,
  { request_id, more_headers }: { readonly request_id: string; readonly more_headers: Taken["headers"] | undefined },
  { clock }: AppDeps,
): EarlyHeaders | null {
  const status = early_status === null ? null : early_status(query);
  if (status === null) return null;
  const headers = { "content-type": JSON_TYPE, "x-request-id": request_id, ...more_headers };
  return new EarlyHeaders(env, { clock, status, headers });
}

/** Sends the answer behind headers that left. Throws INTERNAL where they say another status, and CAPACITY_FULL. */
function finish(env: HttpBindings, early: EarlyHeaders, result: unknown, status: number, share: Share): Response {
  invariant(!(result instanceof ListAnswer), "a list in pieces is the answer of a GET without early headers");
  const { body, status: own } = result instanceof Answer ? result : new Answer(status, result);
  const text = jsonOf(body);
  if (text.length > LIMITS.held_small_bytes_max) hold(env, share, text.length);
  if (!early.end(own, text)) throw new AppError("INTERNAL", `status ${own} came after headers of another status left`);
  return RESPONSE_ALREADY_SENT;
}

/** Tells of a refusal behind headers that left, or cuts the connection: they promised another answer. */
function endLate(
  { outgoing }: HttpBindings,
  early: EarlyHeaders,
  { late_refusal, status }: Route,
  thrown: unknown,
  request_id: string,
  { log }: AppDeps,
): Response {
  const body = late_refusal?.(errorBody(thrown, request_id));
  if (body !== undefined && early.end(status, JSON.stringify(body))) return RESPONSE_ALREADY_SENT;
  outgoing.destroy();
  log.warn("response aborted", { request_id, error: errorCodeOf(thrown) });
  return RESPONSE_ALREADY_SENT;
}

/** Makes a socket of a request, of which nothing more is told here. */
function upgrade(
  env: HttpBindings,
  wanted: Upgrade,
  { socket }: Route,
  opening: Omit<Opening, "protocol">,
  { sockets }: AppDeps,
): Response {
  invariant(socket !== null, "only a route with `socket` upgrades");
  return sockets.open(env, wanted, {
    ...opening,
    protocol: socket.protocol,
    recheck: wanted.recheck ?? opening.recheck,
  });
}

/** Counts a large answer until the client has taken it or has gone. Throws CAPACITY_FULL where there is no room. */
function hold(env: HttpBindings, share: Share, bytes: number): void {
  add(share, bytes);
  watch(env, share);
}

function add(share: Share, bytes: number): void {
  const refusal = share.add(bytes);
  if (refusal !== undefined) throw refusal;
}

/** Ends the share when the client has taken its answer or has gone. */
function watch({ incoming, outgoing }: HttpBindings, share: Share): void {
  const { socket } = incoming;
  // From its turn on the connection until all of it is with the kernel; progress counts, however slow (B3).
  const begin = (): void => {
    socket.setTimeout(share.stall_ms);
    // Before Node sets the wait for the next request, or the answer behind has its turn.
    outgoing.prependOnceListener("finish", () => socket.setTimeout(0));
  };
  if (outgoing.socket === null) outgoing.once("socket", begin);
  else begin();
  const end = (): void => {
    share.end();
    outgoing.off("close", end);
    socket.off("close", end);
  };
  outgoing.once("close", end);
  // An answer behind another that was never taken hears nothing of its own.
  socket.once("close", end);
  if (socket.destroyed) end();
}

/** Writes a long list, whose bytes count as they come. What the request held before is given back first. */
async function writeList(env: HttpBindings, list: ListAnswer, share: Share, turn: TransferTurn): Promise<Streamed> {
  share.end();
  const streamed = await streamedList(list, { turn, hold: (bytes) => add(share, bytes) });
  watch(env, share);
  return streamed;
}

type Hold = (bytes: number) => void;

function respond(
  result: unknown,
  status: number,
  request_id: string,
  hold: Hold,
  more_headers?: Readonly<Record<string, string>>,
): Response {
  invariant(!(result instanceof ListAnswer), "a list in pieces is the answer of a GET without early headers");
  if (result instanceof Response) {
    // Only one that is there as a whole knows its length.
    const bytes = Number(result.headers.get("content-length") ?? 0);
    if (bytes > LIMITS.held_small_bytes_max) hold(bytes);
    return marked(result, { "x-request-id": request_id, ...more_headers });
  }
  if (!(result instanceof Answer)) return jsonResponse(result, status, request_id, hold, more_headers);
  return jsonResponse(result.body, result.status, request_id, hold, { ...result.headers, ...more_headers });
}

/** A whole response with the headers that every answer has. Slower than giving them with it, and rare. */
function marked(response: Response, headers: Readonly<Record<string, string>>): Response {
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
  return response;
}

function jsonResponse(
  body: unknown,
  status: number,
  request_id: string,
  hold: Hold,
  more_headers?: Readonly<Record<string, string>>,
): Response {
  const headers: Record<string, string> = { "content-type": "application/json", "x-request-id": request_id };
  if (more_headers !== undefined) Object.assign(headers, more_headers);
  if (body !== undefined) {
    const text = jsonOf(body);
    if (text.length > LIMITS.held_small_bytes_max) hold(text.length);
    return new Response(text, { status, headers });
  }
  delete headers["content-type"];
  return new Response(null, { status, headers });
}

interface Parts {
  readonly caller: Caller | null;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
  readonly stream: Upload | null;
  readonly request_id: string;
  readonly trace: Trace;
  readonly notes: RequestNotes;
  readonly recheck: () => Promise<void> | undefined;
}

class ServedRequest implements RouteRequest<AuthClass, unknown, unknown, unknown, Upload | null> {
  readonly #context: Context<Env>;
  readonly #route: Route;
  readonly #cursors: Cursors;
  // Null on public routes; `route` has given the handler the narrower of the two types.
  readonly caller: Caller & null;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
  readonly stream: Upload | null;
  readonly request_id: string;
  readonly trace: Trace;
  readonly recheck: () => Promise<void> | undefined;
  readonly once: Once | null;
  readonly #notes: RequestNotes;

  constructor(context: Context<Env>, route: Route, { cursors }: AppDeps, parts: Parts, once: Once | null) {
    const { caller, params, query, body, stream, request_id, trace, notes, recheck } = parts;
    this.#context = context;
    this.#route = route;
    this.#cursors = cursors;
    this.caller = caller as Caller & null;
    this.params = params;
    this.query = query;
    this.body = body;
    this.stream = stream;
    this.recheck = recheck;
    this.request_id = request_id;
    this.trace = trace;
    this.once = once;
    this.#notes = notes;
  }

  get signal(): AbortSignal {
    return this.#context.req.raw.signal;
  }

  page(): Page {
    const { limit, cursor, ...filters } = this.query as z.output<typeof pageQuery>;
    const scope = JSON.stringify([
      (this.caller as Caller | null)?.tenant_id,
      this.#route.operation,
      this.params,
      filters,
    ]);
    return new Page(this.#cursors, scope, { limit, cursor });
  }

  get address(): string | null {
    return addressOf(this.#context.env.incoming);
  }

  header(name: string): string | null {
    const value = this.#context.env.incoming.headers[name];
    return typeof value === "string" ? value : null;
  }

  note(notes: RequestNotes): void {
    Object.assign(this.#notes, notes);
  }
}
