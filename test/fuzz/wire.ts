/** HTTP/1.1 by hand: what is sent is sent as it is, and a connection is kept for the next request. */
import { connect, type Socket } from "node:net";
import { LIMITS } from "../../src/base/limits.ts";

/** Deadline of each answer or refusal, waits for messages included. */
const ANSWER_MS_MAX = LIMITS.message_wait_ms_max + 30_000;

export interface WireAnswer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly text: string;
}

export class Wire {
  readonly #port: number;
  #socket: Socket | null = null;

  constructor(port: number) {
    this.#port = port;
  }

  /** Sends a whole request and waits for its answer. */
  async send(request: Buffer, isHead: boolean): Promise<WireAnswer> {
    // A kept connection may have been closed meanwhile, as any client has to expect.
    const kept = this.#socket === null ? null : await this.#try(this.#socket, request, isHead);
    const answer = kept ?? (await this.#try(await this.#open(), request, isHead));
    if (answer === null) throw new Error("the connection was closed without an answer");
    return answer;
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = null;
  }

  async #open(): Promise<Socket> {
    const socket = connect(this.#port, "127.0.0.1");
    socket.on("error", () => {});
    await new Promise((resolve) => socket.once("connect", resolve).once("close", resolve));
    this.#socket = socket;
    return socket;
  }

  /** Null: closed before anything came. */
  #try(socket: Socket, request: Buffer, isHead: boolean): Promise<WireAnswer | null> {
    return new Promise((resolve, reject) => {
      let received = Buffer.alloc(0);
      const settle = (end: () => void): void => {
        clearTimeout(timer);
        socket.off("data", onData).off("close", onClose);
        end();
      };
      const onData = (chunk: Buffer): void => {
        received = Buffer.concat([received, chunk]);
        const answer = parse(received, isHead);
        if (answer === null) return;
        if (answer.headers.get("connection") === "close" || answer.headers.has("transfer-encoding")) this.close();
        settle(() => resolve(answer));
      };
      const onClose = (): void => {
        if (this.#socket === socket) this.#socket = null;
        settle(() => {
          if (received.length === 0) resolve(null);
          else reject(new Error(`closed inside of an answer: ${received.toString().slice(0, 500)}`));
        });
      };
      const timer = setTimeout(() => {
        settle(() => reject(new Error(`no answer after ${ANSWER_MS_MAX} ms`)));
        socket.destroy();
      }, ANSWER_MS_MAX);
      socket.on("data", onData).once("close", onClose);
      if (socket.destroyed) onClose();
      else socket.write(request);
    });
  }
}

/** Null while it is not complete. A stream counts as complete with its headers. */
function parse(received: Buffer, isHead: boolean): WireAnswer | null {
  const end = received.indexOf("\r\n\r\n");
  if (end === -1) return null;
  const [first = "", ...lines] = received.subarray(0, end).toString("latin1").split("\r\n");
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
    }),
  );
  const length = Number(headers.get("content-length") ?? 0);
  const body = received.subarray(end + 4);
  if (!isHead && body.length < length) return null;
  return {
    status: Number(first.split(" ")[1]),
    headers,
    text: isHead ? "" : body.subarray(0, length).toString(),
  };
}

/** Sends bytes, says that there are no more, and resolves with all that came until the other side closed as well. */
export function throwBytes(port: number, pieces: readonly Buffer[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    let text = "";
    const timer = setTimeout(() => {
      socket.destroy();
      reject(new Error(`not closed after ${ANSWER_MS_MAX} ms: ${text.slice(0, 500)}`));
    }, ANSWER_MS_MAX);
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
    });
    socket.on("error", () => {});
    socket.on("end", () => socket.end());
    socket.on("close", () => {
      clearTimeout(timer);
      resolve(text);
    });
    for (const piece of pieces) socket.write(piece);
    socket.end();
  });
}
