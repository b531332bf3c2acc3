/** Requests on the socket of a real container, and what a hostile program in it sends there. */
import { readdirSync } from "node:fs";
import { type Agent, request } from "node:http";
import type { Answer, Daemon } from "./daemon.ts";

export type Reply = Pick<Answer, "status" | "body">;

interface Ask {
  /** Of the container. */
  readonly id: string;
  readonly method: string;
  readonly path: string;
  /** Sent as it is if it is a text. */
  readonly body?: unknown;
}

/** The path on the host of the socket of a container. */
export function socketPathOf(daemon: Daemon, id: string): string {
  const of_container = readdirSync(`${daemon.run_dir}/c`).find((name) => name.startsWith(id));
  return `${daemon.run_dir}/c/${of_container}/icc/icc.sock`;
}

/** A request on the socket of a container, as its own processes send it. */
export function askInside(daemon: Daemon, agent: Agent, { id, method, path, body }: Ask): Promise<Reply> {
  const socketPath = socketPathOf(daemon, id);
  const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  const headers = { "content-length": Buffer.byteLength(text) };
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, method, path, agent, headers }, async (response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      resolve({ status: response.statusCode ?? 0, body: JSON.parse(Buffer.concat(chunks).toString()) });
    });
    asked.on("error", reject);
    asked.end(text);
  });
}

/** 1,000 connections, half requests, bodies that do not come, polls, and streams that nobody reads. */
export const FLOOD = `
import socket, threading, time
def connection(text):
    try:
        one = socket.socket(socket.AF_UNIX); one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        one.connect('/run/hearth/icc.sock'); one.sendall(text); return one
    except OSError: return None
texts = [b'', b'GET /v1/st', b'POST /v1/messages HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: 1000000\\r\\n\\r\\n{',
  b'GET /v1/stream?prefetch=32 HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n', b'GET /v1/state?watch=1 HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n',
  b'POST /v1/receive HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: 17\\r\\n\\r\\n{"wait_ms":60000}', b'\\0' * 1000,
  b'GET /v1/self HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n' * 100]
kept = [connection(texts[i % len(texts)]) for i in range(1000)]
open('/flooded', 'w').close()
def again():
    while True:
        for text in texts: kept.append(connection(text)); time.sleep(0.002)
        del kept[:len(texts)]
threading.Thread(target=again).start()
`;
