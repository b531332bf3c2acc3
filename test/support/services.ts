/** Containers with published services for a test, and a client that sees all of a response. */
import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from "node:http";
import { connect } from "node:net";
import { type Answer, type Daemon, eventually, KEY } from "./daemon.ts";
import { BACKEND } from "./service-backend.ts";

type Json = Answer["body"];

export interface Response {
  readonly status: number;
  readonly message: string;
  readonly headers: IncomingHttpHeaders;
  readonly raw: readonly string[];
  readonly text: string;
  readonly trailers: NodeJS.Dict<string>;
}

export interface Asked {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
  /** In place of the path of the URL, as it is. */
  readonly path?: string;
}

/** Sends one request on a connection of its own. Rejects where the connection ends before the response does. */
export function ask(url: string, { method = "GET", headers = {}, body, path }: Asked = {}): Promise<Response> {
  const { hostname, port, pathname, search } = new URL(url);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, method, headers, path: path ?? pathname + search, agent: false });
    sent.on("error", reject);
    sent.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        const { statusCode = 0, statusMessage = "", rawHeaders, trailers } = response;
        const text = Buffer.concat(chunks).toString();
        resolve({
          ...{ status: statusCode, message: statusMessage, headers: response.headers, raw: rawHeaders },
          ...{ text, trailers },
        });
      });
    });
    sent.end(body);
  });
}

/** Appends to the path of a URL and keeps its query, as clients in the field do. */
export function at(url: string, path: string, query: Readonly<Record<string, string>> = {}): string {
  const made = new URL(url);
  made.pathname = path;
  for (const [name, value] of Object.entries(query)) made.searchParams.set(name, value);
  return made.href;
}

/** Sends bytes and returns all that comes back until the end of the connection, or for `wait_ms`. */
export function exchange(url: string, bytes: string | Buffer, wait_ms = 10_000): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let text = "";
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    const end = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve(text);
    };
    const timer = setTimeout(end, wait_ms);
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
    });
    socket.on("close", end).on("error", end);
  });
}

export const tokenIn = (url: string): string => new URL(url).searchParams.get("service_token") ?? "";

/** One tenant of a daemon that publishes services; without a key the operator. */
export class Publisher {
  readonly #daemon: Daemon;
  readonly key: string;

  constructor(daemon: Daemon, key = KEY) {
    this.#daemon = daemon;
    this.key = key;
  }

  call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    return this.#daemon.call(method, path, body, { "x-api-key": this.key, ...headers });
  }

  async ok(method: string, path: string, body?: unknown): Promise<Json> {
    const { status, body: answer } = await this.call(method, path, body);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(answer)}`);
    return answer;
  }

  /** Makes a container that runs the backends. */
  container(name: string, command: readonly string[] = BACKEND): Promise<Json> {
    return this.ok("POST", "/api/containers", { name, command, memory_limit_mb: 256 });
  }

  /** Publishes a port and waits until it is ready. */
  async publish(container: string, fields: Readonly<Record<string, unknown>> = {}): Promise<Json> {
    const body = { name: "web", target_port: 8_080, ...fields };
    const { service_id } = await this.ok("POST", `/api/containers/${container}/services`, body);
    return this.ready(service_id);
  }

  ready(service_id: string): Promise<Json> {
    return eventually(`${service_id} is ready`, async () => {
      const record = await this.ok("GET", `/api/services/${service_id}`);
      return record.status === "ready" ? record : null;
    });
  }
}

/** Makes a tenant with a key. */
export async function tenantOf(
  daemon: Daemon,
  name: string,
  more: object = {},
): Promise<Publisher & { tenant_id: string }> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name, ...more })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
  return Object.assign(new Publisher(daemon, key), { tenant_id });
}
