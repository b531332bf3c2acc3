/**
 * A route as data: path, auth class, schemas and handler in one object. The schemas are written once and serve
 * validation, the handler's types and the API description (`z.toJSONSchema`). Mounting is server.ts's, serving serve.ts's.
 */
import type { z } from "zod";
import type { Caller } from "./auth.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** `public`: no credential is looked at. `tenant`: the credential decides the tenant. */
export type AuthClass = "public" | "tenant";

export interface RouteRequest<Auth extends AuthClass, Params, Query, Body> {
  readonly caller: Auth extends "tenant" ? Caller : null;
  /** Decoded path parameters. */
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly request_id: string;
  /** Aborted when the client goes away before the answer. Made on first use: leave it alone where it is not needed. */
  readonly signal: AbortSignal;
  /** A request header by its lower-case name. */
  header(name: string): string | null;
}

/** An answer with another status or more headers than the route's own. */
export class Answer {
  readonly status: number;
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}) {
    this.status = status;
    this.body = body;
    this.headers = headers;
  }
}

/** What a handler returns: the JSON body, an `Answer`, or for streams and raw bytes a whole `Response`. */
export type Handler<Request> = (request: Request) => unknown;

interface Definition<Auth extends AuthClass, Params, Query, Body> {
  readonly method: Method;
  /** Hono's form: `/api/functions/:function_id`. */
  readonly path: string;
  readonly auth: Auth;
  readonly summary: string;
  readonly params?: z.ZodType<Params>;
  readonly query?: z.ZodType<Query>;
  /** Without it a body is not read at all. */
  readonly body?: z.ZodType<Body>;
  readonly response?: z.ZodType;
  /** Of the normal answer; 200 unless given. */
  readonly status?: number;
  readonly handler: Handler<RouteRequest<Auth, Params, Query, Body>>;
}

/** A route whose types were checked by `route` and are erased since. */
export interface Route {
  readonly method: Method;
  readonly path: string;
  readonly auth: AuthClass;
  readonly summary: string;
  readonly params: z.ZodType | null;
  readonly query: z.ZodType | null;
  readonly body: z.ZodType | null;
  readonly response: z.ZodType | null;
  readonly status: number;
  readonly handler: Handler<RouteRequest<AuthClass, unknown, unknown, unknown>>;
}

export function route<
  Auth extends AuthClass,
  Params = Readonly<Record<string, string>>,
  Query = undefined,
  Body = undefined,
>(definition: Definition<Auth, Params, Query, Body>): Route {
  const { method, path, auth, summary, params, query, body, response, status } = definition;
  return {
    method,
    path,
    auth,
    summary,
    params: params ?? null,
    query: query ?? null,
    body: body ?? null,
    response: response ?? null,
    status: status ?? 200,
    // `serve` builds the request from these very schemas and this auth class.
    handler: definition.handler as Route["handler"],
  };
}
