/**
 * A command of a container whose standard streams are ours, over a WebSocket: bytes as they are, no faster than either side
 * takes them. What goes through it is described in the daemon's src/containers/exec/sockets.ts.
 */
import type { IncomingMessage } from "node:http";
import WebSocket from "ws";
import { LIMITS } from "../../base/limits.ts";
import { apiError, Unreachable } from "../../client/client.ts";
import { visible } from "../output/text.ts";
import { EXIT, Failure } from "../session/failure.ts";
import type { Session } from "../session/session.ts";

type Frame =
  | { readonly type: "started" }
  | { readonly type: "exit"; readonly code: number; readonly timed_out: boolean }
  | {
      readonly type: "error";
      readonly code: string;
      readonly message: string;
      readonly hint: string | null;
      readonly exit_code: number | null;
    };

const STREAMS = ["in", "out", "err"] as const;
const STDIN = Buffer.from([STREAMS.indexOf("in")]);

export interface Conversation {
  /** Of the WebSocket, with its query. */
  readonly path: string;
  /** The command that is asked for on it; absent: the socket is one of a command that runs. */
  readonly start?: object;
  /** Passes our standard input. */
  readonly hasInput: boolean;
}

/** The connection ended before the command did. */
export class Lost extends Error {
  override readonly name = "Lost";
}

/** Resolves to the exit code once all output is passed on. Throws what the API refuses, Failure, and `Lost`. */
export async function converse(session: Session, { path, start, hasInput }: Conversation): Promise<number> {
  const { url, key } = session.target;
  const to = new URL(path, url);
  to.protocol = to.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(to, ["command"], {
    headers: key === null ? {} : { "x-api-key": key },
    handshakeTimeout: LIMITS.cli_request_timeout_ms,
    perMessageDeflate: false,
  });
  await opened(socket, url);
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const output = new Output(session, socket);
  const input = hasInput ? new Input(socket) : null;
  socket.on("message", (data: Buffer, isBinary) => {
    if (isBinary) {
      output.pass(STREAMS[data[0] ?? 0] === "err" ? "err" : "out", data.subarray(1));
      return;
    }
    const frame = JSON.parse(data.toString("utf8")) as Frame;
    if (frame.type === "started") input?.begin();
    else if (frame.type === "error") reject(failureOf(frame));
    else {
      if (frame.timed_out) session.terminal.err(`hearth: ${visible("killed at timeout_ms")}\n`);
      output.passed.then(() => resolve(frame.code), reject);
    }
  });
  socket.on("close", (_code, reason) => {
    const why = reason.length === 0 ? "" : `: ${reason}`;
    output.passed.then(() => reject(new Lost(`the connection closed before the command ended${why}`)), reject);
  });
  if (start !== undefined) socket.send(JSON.stringify({ ...start, type: "start" }));
  const cancelPings = pings(session, socket);
  socket.resume();
  try {
    return await promise;
  } finally {
    cancelPings();
    input?.end();
    socket.close();
  }
}

/** With the code of the API behind its words, as of other refusals. */
function failureOf({ code, message, hint, exit_code }: Extract<Frame, { type: "error" }>): Failure {
  if (exit_code !== null) return new Failure(exit_code, message);
  return new Failure(EXIT.refused, `${message} [${code}]`, hint);
}

async function opened(socket: WebSocket, url: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // What comes with the answer to the handshake waits for its listeners.
  socket.once("open", () => {
    socket.pause();
    resolve();
  });
  socket.once("unexpected-response", (_request, response: IncomingMessage) => {
    apiError(response).then(reject, reject);
  });
  socket.on("error", (cause) => reject(new Unreachable(`no daemon answers at ${url}`, { cause })));
  await promise;
}

/** While our reader takes nothing the socket is not read, and no ping of the daemon is answered: ours say that we live. */
function pings({ clock }: Session, socket: WebSocket): () => void {
  let cancel = () => {};
  const next = () => {
    cancel = clock.after(LIMITS.cli_ping_ms, () => {
      if (socket.readyState === WebSocket.OPEN) socket.ping();
      next();
    });
  };
  next();
  return () => cancel();
}

/** What came, to our own streams. The socket is read again when all of it is taken. */
class Output {
  readonly #session: Session;
  readonly #socket: WebSocket;
  #count = 0;
  #passed: Promise<void> = Promise.resolve();

  constructor(session: Session, socket: WebSocket) {
    this.#session = session;
    this.#socket = socket;
  }

  /** Resolves when all that came before is taken. */
  get passed(): Promise<void> {
    return this.#passed;
  }

  pass(to: "out" | "err", bytes: Buffer): void {
    this.#count += 1;
    this.#socket.pause();
    const passing = this.#session.terminal.pass(to, bytes).then(() => {
      this.#count -= 1;
      if (this.#count === 0) this.#socket.resume();
    });
    this.#passed = Promise.all([this.#passed, passing]).then(() => {});
    this.#passed.catch(() => {});
  }
}

/** Our standard input, to its end: the next piece is read when the last one is on its way. */
class Input {
  readonly #socket: WebSocket;
  #isOver = false;

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  begin(): void {
    const { stdin } = process;
    stdin.on("data", (chunk: Buffer) => {
      stdin.pause();
      this.#socket.send(Buffer.concat([STDIN, chunk]), () => {
        if (!this.#isOver) stdin.resume();
      });
    });
    stdin.once("end", () => {
      if (!this.#isOver) this.#socket.send(JSON.stringify({ type: "stdin_end" }));
    });
  }

  end(): void {
    this.#isOver = true;
    process.stdin.destroy();
  }
}
