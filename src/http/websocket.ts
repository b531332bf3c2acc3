/**
 * Requests that become WebSockets (RFC 6455). Until then each is a request like any other: route, credential, rate and
 * query are serve.ts's, and a refusal is an answer in the one error body. A handler that lets it in returns an
 * `Upgrade`; from there on the bytes are its listener's, and the bounds below are held here.
 *
 * W1. Only a GET of a route with `socket` is ever upgraded; any other request that asks for it is answered as if it had not.
 * W2. A listener hears of the end of its socket exactly once, and of nothing after it.
 * W3. What a client has not taken is bounded: `send` gives false above `socket_buffer_bytes`, and a client that asks for
 *     answers and takes none is not read any more.
 * W4. A client from which nothing was heard for `socket_silence_ms`, though it was asked, is cut.
 * W5. A socket ends within `socket_tick_ms` after its credential.
 * W6. After `close` has begun none is opened, and all that are open are told 1001.
 */
import { type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { HttpBindings } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import { type RawData, type WebSocket, WebSocketServer } from "ws";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { CLOSE, type ServerSocket, type SocketListener, type Upgrade } from "../base/sockets.ts";
import type { Route } from "./route.ts";

/** What the parser had read behind the head of a request that asks to be upgraded. */
const HEADS = new WeakMap<IncomingMessage, Buffer>();

/** The refusal of a request that came to a socket route as something else. */
export function checkUpgrade(incoming: IncomingMessage): void {
  if (HEADS.has(incoming)) return;
  throw new AppError("UPGRADE_REQUIRED", "the path accepts only WebSocket requests", {
    details: { expected: ["Connection: Upgrade", "Upgrade: websocket"] },
    hint: "use a WebSocket client",
  });
}

/** Whether a request is to become a WebSocket (W1). One with a body is none. */
export function asksUpgrade(
  { method, headers, url = "" }: IncomingMessage,
  routes: readonly Route[],
  isMatch: (pattern: string, path: string) => boolean,
): boolean {
  if (method !== "GET" || headers.upgrade?.toLowerCase() !== "websocket") return false;
  if (headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined) return false;
  const [path = ""] = url.split("?", 1);
  return routes.some((route) => route.socket !== null && isMatch(route.path, path));
}

/** Node keeps the answer that a socket is in the middle of here. */
type Answering = Socket & { readonly _httpMessage?: object | null };

/** Hands the requests that Node takes out of its server to `handle` as any other, with an answer on their socket. */
export function serveUpgrades(
  server: Server,
  handle: (incoming: IncomingMessage, outgoing: ServerResponse) => void,
): void {
  server.on("upgrade", (incoming, stream, head) => {
    const socket = stream as Answering;
    socket.on("error", () => socket.destroy());
    // It came behind a request that is not answered yet, whose answer nobody could tell from frames.
    if (socket._httpMessage !== undefined && socket._httpMessage !== null) {
      socket.destroy();
      return;
    }
    HEADS.set(incoming, head);
    const outgoing = new ServerResponse(incoming);
    outgoing.shouldKeepAlive = false;
    outgoing.assignSocket(socket);
    // A refusal: no other request can follow on this connection.
    outgoing.once("finish", () => socket.destroySoon());
    handle(incoming, outgoing);
  });
}

export interface SocketsOptions {
  readonly clock: Clock;
  readonly limits?: Partial<SocketLimits>;
}

export interface SocketLimits {
  readonly sockets_max: number;
  readonly socket_tick_ms: number;
  readonly socket_ping_ms: number;
  readonly socket_silence_ms: number;
  readonly socket_buffer_bytes: number;
}

/** What a request brings to its socket. */
export interface Opening {
  readonly protocol: string;
  /** Of the answer 101. */
  readonly headers: Readonly<Record<string, string>>;
  readonly recheck: () => Promise<void> | undefined;
}

/** The open sockets of one application. */
export class Sockets {
  readonly #clock: Clock;
  readonly #limits: SocketLimits;
  readonly #open = new Set<OpenSocket>();
  readonly #server: WebSocketServer;
  /** Of the upgrade that is under way: it is done in one go. */
  #protocol = "";
  #headers: Readonly<Record<string, string>> = {};
  #refusal: Error | null = null;
  #isTicking = false;
  #isClosed = false;

  constructor({ clock, limits }: SocketsOptions) {
    this.#clock = clock;
    this.#limits = { ...LIMITS, ...limits };
    const options = {
      noServer: true,
      clientTracking: false,
      // What is compressed costs memory for each socket, and its length tells of secrets in it.
      perMessageDeflate: false,
      maxPayload: LIMITS.socket_message_bytes_max,
      // Not in its types yet.
      closeTimeout: LIMITS.socket_close_ms,
      handleProtocols: (offered: ReadonlySet<string>) => offered.has(this.#protocol) && this.#protocol,
    };
    this.#server = new WebSocketServer(options);
    this.#server.on("headers", (lines) => {
      for (const [name, value] of Object.entries(this.#headers)) lines.push(`${name}: ${value}`);
    });
    this.#server.on("wsClientError", (error) => {
      this.#refusal = error;
    });
  }

  get count(): number {
    return this.#open.size;
  }

  /** Makes the request a socket. Throws SHUTTING_DOWN, CAPACITY_FULL, INVALID_ARGUMENT; then `upgrade` has failed. */
  open({ incoming, outgoing }: HttpBindings, upgrade: Upgrade, { protocol, headers, recheck }: Opening): Response {
    const response = outgoing as ServerResponse;
    const { socket } = incoming;
    const state = { isOpen: false };
    try {
      if (this.#isClosed) throw new AppError("SHUTTING_DOWN", "the daemon is shutting down");
      if (this.#open.size >= this.#limits.sockets_max) {
        throw new AppError("CAPACITY_FULL", `too many open WebSockets (limit ${this.#limits.sockets_max})`, {
          retry_after: 5,
        });
      }
      this.#protocol = protocol;
      this.#headers = headers;
      this.#refusal = null;
      this.#server.handleUpgrade(incoming, socket, HEADS.get(incoming) ?? Buffer.alloc(0), (ws) => {
        state.isOpen = true;
        response.detachSocket(socket);
        response.statusCode = 101;
        this.#begin(ws, upgrade, recheck);
      });
      if (this.#refusal !== null) {
        const { message } = this.#refusal as Error;
        throw new AppError(
          "INVALID_ARGUMENT",
          message.replace(/^./, (first) => first.toLowerCase()),
          {
            details: { expected: ["Sec-WebSocket-Version: 13"] },
          },
        );
      }
    } finally {
      if (!state.isOpen) upgrade.failed();
    }
    return RESPONSE_ALREADY_SENT;
  }

  /** W6. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#open) socket.close(CLOSE.going_away, "the daemon is shutting down");
  }

  #begin(ws: WebSocket, upgrade: Upgrade, recheck: () => Promise<void> | undefined): void {
    const socket = new OpenSocket(ws, recheck, this.#clock, this.#limits);
    this.#open.add(socket);
    ws.once("close", () => this.#open.delete(socket));
    socket.begin(upgrade.opened(socket));
    if (!this.#isTicking) this.#tick();
  }

  /** Looks after all sockets, for as long as there are some. */
  #tick(): void {
    this.#isTicking = this.#open.size > 0;
    if (!this.#isTicking) return;
    this.#clock.after(this.#limits.socket_tick_ms, () => {
      for (const socket of this.#open) socket.look();
      this.#tick();
    });
  }
}

/** One open socket. */
class OpenSocket implements ServerSocket {
  readonly #ws: WebSocket;
  readonly #recheck: () => Promise<void> | undefined;
  readonly #clock: Clock;
  readonly #limits: SocketLimits;
  #listener: SocketListener | null = null;
  #heard_ms: number;
  #asked_ms: number;
  /** `send` gave false (W3). */
  #isFull = false;
  #isHeld = false;
  #isFlooded = false;
  #isClosing = false;

  constructor(ws: WebSocket, recheck: () => Promise<void> | undefined, clock: Clock, limits: SocketLimits) {
    this.#ws = ws;
    this.#recheck = recheck;
    this.#clock = clock;
    this.#limits = limits;
    this.#heard_ms = clock.monotonicMs();
    this.#asked_ms = this.#heard_ms;
  }

  /** For `Sockets`. */
  begin(listener: SocketListener): void {
    this.#listener = listener;
    const ws = this.#ws;
    ws.on("message", (data, isBinary) => this.#onMessage(data, isBinary));
    ws.on("ping", () => this.#onHeard());
    ws.on("pong", () => this.#onHeard());
    // What a client sends against the protocol ends the socket, with the code for it.
    ws.on("error", () => {});
    ws.once("close", () => {
      this.#isClosing = true;
      this.#listener?.onClosed();
      this.#listener = null;
    });
  }

  /** W3. */
  send(data: Buffer | string): boolean {
    if (this.#isClosing) return true;
    this.#ws.send(data, this.#onTaken);
    if (this.#ws.bufferedAmount > this.#limits.socket_buffer_bytes) this.#isFull = true;
    return !this.#isFull;
  }

  pause(): void {
    this.#isHeld = true;
    this.#flow();
  }

  resume(): void {
    this.#isHeld = false;
    this.#heard_ms = this.#clock.monotonicMs();
    this.#flow();
  }

  close(code: number, reason: string): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    // A client that is not read does not get to say that it has understood.
    this.#isHeld = false;
    this.#isFlooded = false;
    this.#flow();
    this.#ws.close(code, reason);
  }

  /** For `Sockets`, now and then: W4, W5. */
  look(): void {
    if (this.#isClosing) return;
    const now_ms = this.#clock.monotonicMs();
    if (!this.#isHeld && now_ms - this.#heard_ms > this.#limits.socket_silence_ms) {
      this.#ws.terminate();
      return;
    }
    if (now_ms - this.#asked_ms >= this.#limits.socket_ping_ms) {
      this.#asked_ms = now_ms;
      this.#ws.ping();
    }
    this.#recheck()?.catch((error) => {
      // Another failure says nothing of the credential.
      if (error instanceof AppError && error.code === "UNAUTHORIZED") this.close(CLOSE.refused, error.message);
    });
  }

  readonly #onTaken = (): void => {
    this.#heard_ms = this.#clock.monotonicMs();
    if (this.#ws.bufferedAmount > this.#limits.socket_buffer_bytes / 2) return;
    if (this.#isFlooded) {
      this.#isFlooded = false;
      this.#flow();
    }
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#listener?.onDrain();
  };

  #onMessage(data: RawData, isBinary: boolean): void {
    this.#onHeard();
    if (this.#isClosing) return;
    // The default of ws: one Buffer, however many fragments there were.
    if (isBinary) this.#listener?.onBytes(data as Buffer);
    else this.#listener?.onText(data.toString());
  }

  #onHeard(): void {
    this.#heard_ms = this.#clock.monotonicMs();
    // Twice the bound: what a program writes is stopped before, and ^C still gets through to it.
    if (this.#ws.bufferedAmount <= 2 * this.#limits.socket_buffer_bytes) return;
    this.#isFlooded = true;
    this.#flow();
  }

  #flow(): void {
    if (this.#isHeld || this.#isFlooded) this.#ws.pause();
    else this.#ws.resume();
  }
}
