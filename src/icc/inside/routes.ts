/**
 * HTTP on the socket of a container: the table of routes, and what a request goes through. A request belongs to the container
 * whose socket accepted its connection (listener.ts).
 *
 * R1. Requests above the bounds of their window wait for the next one: the client becomes slower, and is not refused.
 * R2. `end` refuses new requests and aborts polls and streams; other requests are answered.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { z } from "zod";
import { Streamed } from "../../base/answer.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { AppError, errorText, isFault } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { JSON_TYPE } from "../../base/media-types.ts";
import type { Traces } from "../../base/trace.ts";
import { bodyFields, noFields } from "../../http/body-fields.ts";
import { checkPath, parseJson, readBody, validate, validateQuery } from "../../http/input.ts";
import { MemoryBudget, type Share } from "../../http/memory-budget.ts";
import type { RateLimiter } from "../../http/rates.ts";
import { send } from "../../http/stream.ts";
import { checkTarget } from "../../http/target.ts";
import { messageSchema } from "../envelope/message-schema.ts";
import { messageContent } from "../message-content.ts";
import { publishMessage } from "../schema.ts";
import { serverSentEvents } from "./events.ts";
import type { Inside, InsideMessages, InsideStates, InsideTopics, Self } from "./inside.ts";
import * as shapes from "./shapes.ts";
import { Windows } from "./windows.ts";

interface Asked<Params, Query, Body> {
  readonly self: Self;
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  /** Aborted when the client leaves or the daemon stops. */
  readonly signal: AbortSignal;
}

interface InsideRoute {
  readonly method: string;
  /** Segments after /v1. */
  readonly path: string;
  readonly about: string;
  readonly params: z.ZodType | null;
  readonly query: z.ZodType | null;
  readonly body: z.ZodType | null;
  readonly checkFields: (body: unknown) => void;
  // biome-ignore lint/suspicious/noExplicitAny: `route` has checked the handler against its schemas.
  readonly handle: (asked: Asked<any, any, any>, clock: Clock) => unknown;
}

type Output<T> = T extends z.ZodType ? z.output<T> : null;

function route<
  Params extends z.ZodType | null = null,
  Query extends z.ZodType | null = null,
  Body extends z.ZodType | null = null,
>(
  at: `${string} /v1${string}`,
  about: string,
  { params, query, body }: { params?: Params; query?: Query; body?: Body },
  handle: (asked: Asked<Output<Params>, Output<Query>, Output<Body>>, clock: Clock) => unknown,
): InsideRoute {
  const [method = "", path = ""] = at.split(" ");
  const checkFields = bodyFields(body ?? noFields);
  return { method, path, about, params: params ?? null, query: query ?? null, body: body ?? null, checkFields, handle };
}

const { topicParams, stateParams } = shapes;

const messageRoutes = (messages: InsideMessages): readonly InsideRoute[] => [
  route("GET /v1/self", "says who the container is", {}, ({ self }) => messages.self(self)),
  route("POST /v1/messages", "publishes a message", { body: publishMessage }, ({ self, body }) =>
    messages.publish(self, messageContent(body, checkMessage)),
  ),
  route("POST /v1/receive", "leases messages", { body: shapes.receiveBody }, async ({ self, body, signal }) => {
    const { inbox = null, lease_ms = null, ...rest } = body;
    return { messages: await messages.receive(self, { inbox, lease_ms, ...rest }, signal) };
  }),
  route(
    "GET /v1/stream",
    "sends messages as server-sent events",
    { query: shapes.streamQuery },
    async (asked, clock) => {
      const { inbox = null, lease_ms = null, ...rest } = asked.query;
      const source = await messages.deliveries(asked.self, { inbox, lease_ms, ...rest }, asked.signal);
      return serverSentEvents("message", source, ({ stream_seq }) => stream_seq, clock);
    },
  ),
  route("POST /v1/ack", "acks or nacks a message", { body: shapes.settleBody }, ({ self, body }) => {
    const { inbox = null, lease = null, reason = null, delay_ms = null, ...rest } = body;
    return messages.settle(self, { inbox, lease, reason, delay_ms, ...rest });
  }),
  route("POST /v1/request", "publishes and waits for the reply", { body: shapes.requestBody }, (asked) => {
    const { timeout_ms = null, ...message } = asked.body;
    return messages.request(asked.self, message, timeout_ms, asked.signal);
  }),
  route("POST /v1/reply", "replies to a message", { body: shapes.replyBody }, ({ self, body }) => {
    const { msg_id = null, correlation_id = null, to = null, type = null, payload } = body;
    return messages.reply(self, { msg_id, correlation_id, to, type, payload });
  }),
];

const topicRoutes = (topics: InsideTopics): readonly InsideRoute[] => [
  route("PUT /v1/topics/:name", "subscribes to a topic", { params: topicParams }, ({ self, params }) =>
    topics.subscribe(self, params.name),
  ),
  route("DELETE /v1/topics/:name", "ends a subscription", { params: topicParams }, ({ self, params }) =>
    topics.unsubscribe(self, params.name),
  ),
];

const stateRoutes = (states: InsideStates): readonly InsideRoute[] => [
  route("GET /v1/state", "lists or watches the state", { query: shapes.stateQuery }, async (asked, clock) => {
    const { self, query, signal } = asked;
    if (!query.watch) return { entries: await states.list(self, query.prefix) };
    const source = await states.watch(self, query.prefix, signal);
    return serverSentEvents("state", source, ({ version }) => version, clock);
  }),
  route("GET /v1/state/:key", "returns one entry", { params: stateParams }, ({ self, params }) =>
    states.get(self, params.key),
  ),
  route("PUT /v1/state/:key", "writes one entry", { params: stateParams, body: shapes.stateBody }, (asked) => {
    const { value, if_version = null } = asked.body;
    return states.put(asked.self, asked.params.key, { value, if_version });
  }),
  route("DELETE /v1/state/:key", "deletes one entry", { params: stateParams }, ({ self, params }) =>
    states.delete(self, params.key),
  ),
];

function routesOf({ messages, topics, states }: Inside): readonly InsideRoute[] {
  const routes = [
    ...messageRoutes(messages),
    ...(topics === null ? [] : topicRoutes(topics)),
    ...(states === null ? [] : stateRoutes(states)),
  ];
  const list = routes.map(({ method, path, about }) => ({ method, path, about }));
  return [route("GET /v1", "lists these routes", {}, () => ({ routes: list })), ...routes];
}

/** Throws UNPROCESSABLE_ENTITY for a message that lacks fields, and INVALID_ARGUMENT for an envelope with others. */
const checkMessage = (fields: unknown) => validate(messageSchema, fields);

export interface InsideServerOptions {
  readonly inside: Inside;
  readonly clock: Clock;
  readonly log: Log;
  readonly rates: RateLimiter;
  readonly traces: Traces;
  /** Makes the response for a refusal. */
  readonly refusal: (thrown: unknown) => {
    readonly status: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string;
  };
}

const BODY_LIMITS = {
  body_bytes_max: LIMITS.icc_socket_body_bytes_max,
  refused_body_bytes_max: LIMITS.icc_socket_body_bytes_max * 2,
  refused_body_ms: LIMITS.refused_body_ms,
};

export class InsideServer {
  readonly #options: InsideServerOptions;
  readonly #budget = new MemoryBudget(LIMITS.icc_socket_held_bytes_max);
  readonly #windows: Windows;
  readonly #routes: readonly InsideRoute[];
  /** Of the requests in progress. */
  readonly #controllers = new Set<AbortController>();
  #isEnding = false;

  constructor(options: InsideServerOptions) {
    this.#options = options;
    this.#routes = routesOf(options.inside);
    this.#windows = new Windows(options.clock, {
      window_ms: LIMITS.icc_requests_window_ms,
      container_max: LIMITS.icc_requests_per_container_max,
      tenant_max: LIMITS.icc_requests_per_tenant_max,
    });
  }

  get active_count(): number {
    return this.#controllers.size;
  }

  /** R2. */
  end(): void {
    this.#isEnding = true;
    for (const controller of this.#controllers) controller.abort();
  }

  /** Never throws. */
  async handle(self: Self, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const share = this.#budget.share();
    share.belongTo(self.tenant_id);
    const controller = new AbortController();
    this.#controllers.add(controller);
    const leave = () => controller.abort();
    outgoing.once("close", leave);
    try {
      const result = await this.#result(self, incoming, outgoing, share, controller.signal);
      await this.#answer(outgoing, result, share);
    } catch (thrown) {
      this.#fail(outgoing, thrown);
    } finally {
      share.end();
      this.#controllers.delete(controller);
      outgoing.off("close", leave);
    }
  }

  async #result(
    self: Self,
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    share: Share,
    signal: AbortSignal,
  ): Promise<unknown> {
    const { clock, rates, traces } = this.#options;
    // R1.
    for (let wait_ms = this.#windows.take(self); wait_ms > 0; wait_ms = this.#windows.take(self)) {
      await sleep(clock, wait_ms);
      if (signal.aborted && !this.#isEnding) return undefined;
    }
    if (this.#isEnding) throw new AppError("SHUTTING_DOWN", "the daemon is stopping", { retry_after: 1 });
    const refusal = rates.take(self.tenant_id)?.refusal ?? null;
    if (refusal !== null) throw refusal;
    const { url = "", method = "" } = incoming;
    checkTarget(url);
    checkPath(url);
    const { found, values } = routeOf(this.#routes, method, url);
    const params = found.params === null ? null : validate(found.params, values, "INVALID_ARGUMENT");
    const query = found.query === null ? null : validateQuery(found.query, url);
    const body = await bodyOf(found, incoming, outgoing, clock, share);
    const trace = traces.begin(incoming.headers.traceparent, incoming.headers.tracestate);
    return found.handle({ self: { ...self, trace }, params, query, body, signal }, clock);
  }

  async #answer(outgoing: ServerResponse, result: unknown, share: Share): Promise<void> {
    if (outgoing.destroyed) return;
    if (result instanceof Streamed) {
      return send({ outgoing }, { ...result, source: counted(result.source, share) }, share.stall_ms);
    }
    // The body of the request is no longer needed.
    share.end();
    const text = JSON.stringify(result ?? {});
    const headers: Record<string, string> = { "content-length": String(Buffer.byteLength(text)) };
    if (this.#isEnding) headers.connection = "close";
    if (text.length <= LIMITS.held_small_bytes_max) {
      outgoing.writeHead(200, { "content-type": JSON_TYPE, ...headers }).end(text);
      return;
    }
    const refusal = share.add(text.length);
    if (refusal !== undefined) throw refusal;
    const flushed = new Promise<void>((resolve) => outgoing.once("close", resolve));
    await send(
      { outgoing },
      new Streamed(once(Buffer.from(text)), { content_type: JSON_TYPE, headers }),
      share.stall_ms,
    );
    await flushed;
  }

  #fail(outgoing: ServerResponse, thrown: unknown): void {
    const { log, refusal } = this.#options;
    if (outgoing.headersSent || outgoing.destroyed) {
      // Not of refusals: a container could make as many lines as it likes.
      if (isFault(thrown)) log.warn("response aborted", { error: errorText(thrown) });
      outgoing.destroy();
      return;
    }
    const { status, headers, body } = refusal(thrown);
    const isBroken = !outgoing.req.complete;
    const closing = this.#isEnding || isBroken ? { connection: "close" } : {};
    outgoing.writeHead(status, { ...headers, "content-length": Buffer.byteLength(body), ...closing }).end(body);
  }
}

/** Counts each large piece until the client has taken it. A stream for which there is no room is cut. */
async function* counted(source: AsyncIterable<Uint8Array>, share: Share): AsyncGenerator<Uint8Array, void> {
  for await (const piece of source) {
    const isLarge = piece.length > LIMITS.held_small_bytes_max;
    const refusal = isLarge ? share.add(piece.length) : undefined;
    if (refusal !== undefined) throw refusal;
    yield piece;
    if (isLarge) share.end();
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

async function bodyOf(
  { body: schema, checkFields }: InsideRoute,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  clock: Clock,
  share: Share,
): Promise<unknown> {
  const sent = parseJson(await readBody(incoming, outgoing, clock, share, BODY_LIMITS));
  checkFields(sent);
  return schema === null ? null : validate(schema, sent);
}

/** Throws NOT_FOUND, and METHOD_NOT_ALLOWED where other methods are known. */
function routeOf(
  routes: readonly InsideRoute[],
  method: string,
  url: string,
): { readonly found: InsideRoute; readonly values: Readonly<Record<string, string>> } {
  const path = url.split("?", 1)[0] ?? "";
  const parts = path.split("/").map(decodeURIComponent);
  const allowed: string[] = [];
  for (const one of routes) {
    const values = matched(one.path.split("/"), parts);
    if (values === null) continue;
    if (one.method === method) return { found: one, values };
    allowed.push(one.method);
  }
  if (allowed.length > 0) {
    throw new AppError("METHOD_NOT_ALLOWED", `method not allowed: ${method} ${path}`, {
      details: { expected: allowed, received: method },
    });
  }
  throw new AppError("NOT_FOUND", `unknown route: ${method} ${path.slice(0, 200)}`, {
    hint: "GET /v1 lists the routes of this socket",
  });
}

function matched(wanted: readonly string[], parts: readonly string[]): Record<string, string> | null {
  if (wanted.length !== parts.length) return null;
  const values: Record<string, string> = {};
  for (const [i, one] of wanted.entries()) {
    const part = parts[i] ?? "";
    if (one.startsWith(":") && part !== "") values[one.slice(1)] = part;
    else if (one !== part) return null;
  }
  return values;
}
