/** Requests to a resident process and results of its answers, as runtimes/envelope.ts describes them. */
import type { BindHead, CallHead } from "../../runtimes/envelope.ts";

export const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

export function bindHead(more: Partial<BindHead> & Pick<BindHead, "handler">): BindHead {
  return {
    type: "bind",
    protocol: null,
    function_id: "fn_1",
    function_name: "hello",
    version: 3,
    memory_limit_mb: 256,
    timeout_ms: 20_000,
    concurrency: 1,
    cleanup: true,
    working_directory: "/",
    environment: { PATH: process.env.PATH ?? "" },
    ...more,
  };
}

export function callHead(more: Partial<CallHead> = {}): CallHead {
  return { type: "call", invocation_id: "inv_1", deadline_ms: Date.now() + 20_000, traceparent: TRACEPARENT, ...more };
}

/** Returns the bytes of a request. */
export function requestOf(head: BindHead | CallHead, body: Uint8Array | string = ""): Buffer {
  const text = Buffer.from(JSON.stringify(head));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  return Buffer.concat([length, text, Buffer.from(body)]);
}

/** Returns the JSON of an answer; undefined for an empty one. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
export function resultOf({ content }: { readonly content: Buffer }): any {
  return content.length === 0 ? undefined : JSON.parse(content.toString());
}
