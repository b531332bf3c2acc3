/** A collector of OpenTelemetry for a test: receives spans by OTLP over HTTP with JSON and keeps them. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly traceState?: string;
  readonly status: { readonly code?: number };
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
}

export class Collector {
  readonly spans: Span[] = [];
  /** Paths of all requests. */
  readonly paths = new Set<string>();
  readonly #server: Server;

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const body = JSON.parse(await text(request));
      this.paths.add(request.url ?? "");
      if (request.url === "/v1/traces") {
        for (const { scopeSpans } of body.resourceSpans) for (const { spans } of scopeSpans) this.spans.push(...spans);
      } else {
        response.statusCode = 404;
      }
      response.setHeader("content-type", "application/json").end("{}");
    });
  }

  static async start(): Promise<Collector> {
    const collector = new Collector();
    await new Promise<void>((resolve) => collector.#server.listen(0, "127.0.0.1", resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** The attributes of a span as an object; numbers of OTLP's JSON are text or numbers. */
export function attributesOf({ attributes }: Span): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
