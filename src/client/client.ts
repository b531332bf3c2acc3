/**
 * A typed client of the HTTP API. What a route takes and answers is read from the very schemas that serve it, as types
 * only: nothing of the daemon is loaded. A request is named as in the description of the API:
 *
 *     const hearth = new Client({ url, key });
 *     const { stdout } = await hearth.request("POST /api/functions/invoke/:name", {
 *       params: { name: "hello" },
 *       body: { payload: "world" },
 *     });
 */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Api } from "../api.ts";
import type { ErrorBody } from "../base/errors.ts";

/** `METHOD /path/:parameter` of every route that answers JSON. */
export type RouteName = Api extends infer R ? (R extends Api ? `${R["method"]} ${R["path"]}` : never) : never;

type Named<Name extends RouteName> = Name extends `${infer M} ${infer P}`
  ? Extract<Api, { readonly method: M; readonly path: P }>
  : never;
type Types<Name extends RouteName> = NonNullable<Named<Name>["types"]>;

type ParameterNames<Path extends string> = Path extends `${infer Segment}/${infer Rest}`
  ? ParameterNames<Segment> | ParameterNames<Rest>
  : Path extends `:${infer Name}`
    ? Name
    : Path extends "*"
      ? "path"
      : never;

type Params<Name extends RouteName> = [ParameterNames<Name>] extends [never]
  ? { readonly params?: undefined }
  : { readonly params: { readonly [P in ParameterNames<Name>]: string } };
/** In a query everything is text on the wire; numbers and flags are written here as what they are. */
type Query<Q> = [Q] extends [undefined]
  ? { readonly query?: undefined }
  : { readonly query?: { readonly [K in keyof Q]?: Value | undefined } };
/** A list is a parameter that is repeated. */
type Value = string | number | boolean | readonly string[];
type Body<B> = [B] extends [undefined]
  ? { readonly body?: undefined }
  : object extends B
    ? { readonly body?: B }
    : { readonly body: B };

/** A body that is sent as it comes. What it throws rejects the request as it is. */
interface SentBody {
  readonly content_type: string;
  /** Where it is known; else it goes in chunks. */
  readonly bytes?: number;
  readonly pieces: AsyncIterable<Uint8Array>;
}

interface Upload {
  readonly body?: undefined;
  readonly upload: SentBody;
}

type Head<Name extends RouteName> = Params<Name> & Query<Types<Name>["query"]> & { readonly signal?: AbortSignal };
export type RequestOf<Name extends RouteName> = Head<Name> & Body<Types<Name>["body"]>;
type Sendable<Name extends RouteName> = RequestOf<Name> | (Head<Name> & Upload);
export type ResponseOf<Name extends RouteName> = Types<Name>["response"];

/** No argument is needed where nothing is required. */
type Arguments<Name extends RouteName> =
  object extends RequestOf<Name> ? [request?: Sendable<Name>] : [request: Sendable<Name>];

/** An answer that is read as it comes. */
export interface OpenAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly pieces: AsyncIterable<Buffer>;
}

/** The API said no. `body` is what it said, null where the answer came from something else. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly body: ErrorBody | null;

  constructor(status: number, body: ErrorBody | null) {
    super(body === null ? `status ${status}` : `${body.error} [${body.error_code}]`);
    this.status = status;
    this.body = body;
  }
}

/** Nothing answered, or not in time. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
}

export interface ClientOptions {
  /** Of the daemon: `http://127.0.0.1:8700`. */
  readonly url: string;
  /** An API key or an access token; null for what needs none. */
  readonly key: string | null;
  /** The credential's tenant, for the routes that require the header X-Tenant-Id. */
  readonly tenant_id?: string;
  /** Until the whole answer is there; none unless given, for a call may take an hour. */
  readonly timeout_ms?: number;
  /** Reads the text of an answer; `JSON.parse` unless given, whose numbers are doubles. */
  readonly read?: (json: string) => unknown;
}

interface AnyRequest {
  readonly params?: Readonly<Record<string, string>> | undefined;
  readonly query?: Readonly<Record<string, Value | undefined>> | undefined;
  readonly body?: unknown;
  readonly upload?: SentBody;
  readonly signal?: AbortSignal;
}

export class Client {
  readonly #url: string;
  readonly #key: string | null;
  readonly #tenant_id: string | null;
  readonly #timeout_ms: number | null;
  readonly #read: (json: string) => unknown;

  constructor({ url, key, tenant_id, timeout_ms, read = JSON.parse }: ClientOptions) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#tenant_id = tenant_id ?? null;
    this.#timeout_ms = timeout_ms ?? null;
    this.#read = read;
  }

  get url(): string {
    return this.#url;
  }

  /** Rejects with `ApiError` for a refusal, with `Unreachable` when nothing answers, with what a sent body throws. */
  async request<Name extends RouteName>(name: Name, ...[request]: Arguments<Name>): Promise<ResponseOf<Name>> {
    return (await this.#send(name, request ?? {})) as ResponseOf<Name>;
  }

  /**
   * Sends a request, of bytes as they come where there are such, and hands its answer on as it comes: for streams, files,
   * archives. The timeout is until its headers. Rejects as `request` does; `pieces` rejects where the connection breaks.
   */
  async open<Name extends RouteName>(name: Name, request: Sendable<Name>): Promise<OpenAnswer> {
    const { response } = await this.#begin(name, request as AnyRequest, true);
    const { statusCode: status = 0, headers } = response;
    if (status >= 200 && status < 300) return { status, headers, pieces: response };
    throw await apiError(response);
  }

  async #send(name: string, request: AnyRequest): Promise<unknown> {
    const { response, signal } = await this.#begin(name, request, false);
    const status = response.statusCode ?? 0;
    let parsed: unknown;
    try {
      parsed = parse(await textOf(response), this.#read);
    } catch (cause) {
      throw this.#unreachable(signal.aborted ? signal.reason : cause);
    }
    if (status >= 200 && status < 300) return parsed;
    throw new ApiError(status, isErrorBody(parsed) ? parsed : null);
  }

  /** The head of the answer. `isOpen`: the timeout ends with it. */
  async #begin(name: string, asked: AnyRequest, isOpen: boolean): Promise<Begun> {
    const { params = {}, query = {}, body, upload, signal } = asked;
    const [method = "", pattern = ""] = name.split(" ");
    const path = pattern.replace(/:(\w+)|\*$/g, (_, parameter = "path") => encodeURIComponent(params[parameter] ?? ""));
    const url = new URL(this.#url + path);
    for (const [field, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) url.searchParams.append(field, String(one));
      }
    }
    const headers: Record<string, string> = {};
    if (this.#key !== null) headers["x-api-key"] = this.#key;
    if (this.#tenant_id !== null) headers["x-tenant-id"] = this.#tenant_id;
    if (body !== undefined) headers["content-type"] = "application/json";
    if (upload !== undefined) {
      headers["content-type"] = upload.content_type;
      if (upload.bytes !== undefined) headers["content-length"] = String(upload.bytes);
    }
    const late = new AbortController();
    const timeout = this.#timeout_ms === null ? undefined : AbortSignal.timeout(this.#timeout_ms);
    const leave = (): void => late.abort(timeout?.reason);
    timeout?.addEventListener("abort", leave);
    const anySignal = AbortSignal.any([late.signal, ...(signal === undefined ? [] : [signal])]);
    try {
      const sent = upload?.pieces ?? (body === undefined ? null : JSON.stringify(body));
      const response = await exchange(url, { method, headers, body: sent, signal: anySignal });
      return { response, signal: anySignal };
    } catch (cause) {
      if (cause instanceof BodyFailure) throw cause.cause;
      throw this.#unreachable(anySignal.aborted ? anySignal.reason : cause);
    } finally {
      if (isOpen) timeout?.removeEventListener("abort", leave);
    }
  }

  #unreachable(cause: unknown): Unreachable {
    const isLate = cause instanceof DOMException && cause.name === "TimeoutError";
    const message = isLate ? `no response from ${this.#url} in time` : `no daemon answers at ${this.#url}`;
    return new Unreachable(message, { cause });
  }
}

interface Begun {
  readonly response: IncomingMessage;
  readonly signal: AbortSignal;
}

interface Message {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | AsyncIterable<Uint8Array> | null;
  readonly signal: AbortSignal;
}

/** Not with `fetch`, which gives up on an answer that takes five minutes: a call may take an hour. */
async function exchange(url: URL, { method, headers, body, signal }: Message): Promise<IncomingMessage> {
  const { request } = await (url.protocol === "https:" ? import("node:https") : import("node:http"));
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const sent = request(url, { method, headers, signal }, resolve);
  sent.on("error", reject);
  if (body === null || typeof body === "string") sent.end(body ?? undefined);
  else {
    // An answer may come before all is sent, and is then what counts.
    const pieces = observed(body, (error) => reject(new BodyFailure("the body failed", { cause: error })));
    pipeline(Readable.from(pieces), sent).catch(reject);
  }
  return promise;
}

/** A body that failed by itself, rather than the connection. */
class BodyFailure extends Error {}

/** The same pieces. `onFailure` receives what their source throws, but no error of their reader. */
function observed(source: AsyncIterable<Uint8Array>, onFailure: (error: unknown) => void): AsyncIterable<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  const next = async () => {
    try {
      return await iterator.next();
    } catch (error) {
      onFailure(error);
      throw error;
    }
  };
  const leave = async () => (await iterator.return?.()) ?? { done: true as const, value: undefined };
  return { [Symbol.asyncIterator]: () => ({ next, return: leave }) };
}

/** A refusal as it came. */
export async function apiError(response: IncomingMessage): Promise<ApiError> {
  const parsed = parse(await textOf(response).catch(() => ""));
  return new ApiError(response.statusCode ?? 0, isErrorBody(parsed) ? parsed : null);
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

function parse(text: string, read: (json: string) => unknown = JSON.parse): unknown {
  try {
    return read(text);
  } catch {
    return text;
  }
}

function isErrorBody(answer: unknown): answer is ErrorBody {
  return typeof answer === "object" && answer !== null && "error" in answer && "error_code" in answer;
}
