/**
 * A client with as little in it as a fair measurement needs: HTTP/1.1 on one kept-alive socket, one request at a time,
 * the request's bytes made ahead. On two cores the client and the server share the machine, so every microsecond here
 * is taken from what is measured.
 *
 * Answers need a Content-Length; anything else is an error, not a guess.
 */
import { connect, type Socket } from "node:net";

const LOOPBACK = "127.0.0.1";
/** A silent server is a failure after this long. */
const SILENCE_MS = 60_000;

export interface Reply {
  readonly status: number;
  readonly body: Buffer;
}

interface Waiting {
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

/** The bytes of a request. Text and bytes are sent as they are, an object as JSON. Bytes are an archive in gzip. */
export function requestBytes(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body: object | string | null,
  host = LOOPBACK,
): Buffer {
  const [type, text] = contentOf(body);
  const lines = [`${method} ${path} HTTP/1.1`, `Host: ${host}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  if (body !== null) lines.push(`Content-Type: ${type}`, `Content-Length: ${Buffer.byteLength(text)}`);
  const head = `${lines.join("\r\n")}\r\n\r\n`;
  return typeof text === "string" ? Buffer.from(head + text) : Buffer.concat([Buffer.from(head), text]);
}

function contentOf(body: object | string | null): readonly [type: string, content: string | Buffer] {
  if (body === null) return ["", ""];
  if (typeof body === "string") return ["text/plain", body];
  return Buffer.isBuffer(body) ? ["application/gzip", body] : ["application/json", JSON.stringify(body)];
}

export class Connection {
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #waiting: Waiting | null = null;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (chunk: Buffer) => this.#push(chunk));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the server closed the connection")));
    socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error(`no answer within ${SILENCE_MS} ms`)));
  }

  static open(port: number, host = LOOPBACK): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host, noDelay: true });
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.off("error", reject);
        resolve(new Connection(socket));
      });
    });
  }

  get isOpen(): boolean {
    return !this.#socket.destroyed;
  }

  request(bytes: Buffer): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (this.#waiting !== null) throw new Error("one request at a time on a connection");
      if (!this.isOpen) throw new Error("the connection is closed");
      this.#waiting = { resolve, reject };
      this.#socket.write(bytes);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #push(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    const headEnd = this.#received.indexOf("\r\n\r\n");
    if (headEnd < 0) return;
    const head = this.#received.toString("latin1", 0, headEnd);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length === undefined) {
      this.#socket.destroy(new Error(`an answer without Content-Length: ${head.slice(0, 200)}`));
      return;
    }
    const end = headEnd + 4 + Number(length);
    if (this.#received.length < end) return;
    const reply = { status: Number(head.slice(9, 12)), body: this.#received.subarray(headEnd + 4, end) };
    this.#received = this.#received.subarray(end);
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.resolve(reply);
  }

  #fail(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.reject(error);
  }
}
