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
import type { Api } from "../api.ts";
import type { ErrorBody } from "../http/errors.ts";

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
  : { readonly query?: { readonly [K in keyof Q]?: string | number | boolean | undefined } };
type Body<B> = [B] extends [undefined]
  ? { readonly body?: undefined }
  : object extends B
    ? { readonly body?: B }
    : { readonly body: B };

export type RequestOf<Name extends RouteName> = Params<Name> &
  Query<Types<Name>["query"]> &
  Body<Types<Name>["body"]> & { readonly signal?: AbortSignal };
export type ResponseOf<Name extends RouteName> = Types<Name>["response"];

/** No argument is needed where nothing is required. */
type Arguments<Name extends RouteName> =
  object extends RequestOf<Name> ? [request?: RequestOf<Name>] : [request: RequestOf<Name>];

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
  /** Until the whole answer is there; none unless given, for a call may take an hour. */
  readonly timeout_ms?: number;
}

interface AnyRequest {
  readonly params?: Readonly<Record<string, string>> | undefined;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

export class Client {
  readonly #url: string;
  readonly #key: string | null;
  readonly #timeout_ms: number | null;

  constructor({ url, key, timeout_ms }: ClientOptions) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#timeout_ms = timeout_ms ?? null;
  }

  get url(): string {
    return this.#url;
  }

  /** Rejects with `ApiError` for a refusal, with `Unreachable` when nothing answers. */
  async request<Name extends RouteName>(name: Name, ...[request]: Arguments<Name>): Promise<ResponseOf<Name>> {
    return (await this.#send(name, request ?? {})) as ResponseOf<Name>;
  }

  async #send(name: string, { params = {}, query = {}, body, signal }: AnyRequest): Promise<unknown> {
    const [method = "", pattern = ""] = name.split(" ");
    const path = pattern.replace(/:(\w+)/g, (_, parameter: string) => encodeURIComponent(params[parameter] ?? ""));
    const url = new URL(this.#url + path);
    for (const [field, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(field, String(value));
    }
    const signals = [signal, this.#timeout_ms === null ? undefined : AbortSignal.timeout(this.#timeout_ms)];
    const headers: Record<string, string> = {};
    if (this.#key !== null) headers["x-api-key"] = this.#key;
    if (body !== undefined) headers["content-type"] = "application/json";
    const anySignal = AbortSignal.any(signals.filter((one) => one !== undefined));
    let answer: Answer;
    try {
      answer = await exchange(url, {
        method,
        headers,
        body: body === undefined ? null : JSON.stringify(body),
        signal: anySignal,
      });
    } catch (cause) {
      const reason: unknown = anySignal.aborted ? anySignal.reason : cause;
      const isLate = reason instanceof DOMException && reason.name === "TimeoutError";
      const message = isLate ? `no answer from ${this.#url} in time` : `nothing answers at ${this.#url}`;
      throw new Unreachable(message, { cause: reason });
    }
    const parsed = parse(answer.text);
    if (answer.status >= 200 && answer.status < 300) return parsed;
    throw new ApiError(answer.status, isErrorBody(parsed) ? parsed : null);
  }
}

interface Message {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly signal: AbortSignal;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Not with `fetch`, which gives up on an answer that takes five minutes: a call may take an hour. */
async function exchange(url: URL, { method, headers, body, signal }: Message): Promise<Answer> {
  const { request } = await (url.protocol === "https:" ? import("node:https") : import("node:http"));
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const sent = request(url, { method, headers, signal }, (response) => {
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    response.on("error", reject);
    response.on("end", () =>
      resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString("utf8") }),
    );
  });
  sent.on("error", reject);
  sent.end(body ?? undefined);
  return promise;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function isErrorBody(answer: unknown): answer is ErrorBody {
  return typeof answer === "object" && answer !== null && "error" in answer && "error_code" in answer;
}
