/**
 * A WebSocket of a client, as the code behind a route sees it: the open socket, its listener, and the answer of a handler
 * that makes a request a socket. src/http/websocket.ts serves them.
 */

/** Reasons for which a socket is closed: codes of RFC 6455 §7.4.1, and from 4000 on our own. */
export const CLOSE = {
  done: 1000,
  /** The daemon ends. */
  going_away: 1001,
  /** The client sent what the path does not accept. */
  unacceptable: 1003,
  /** The credential is no longer good. */
  refused: 1008,
  fault: 1011,
  /** Another client has replaced this one. */
  replaced: 4001,
} as const;

export interface ServerSocket {
  /** Sends bytes as a binary message, text as text. False: the message is sent, and the next should wait for `onDrain`. */
  send(data: Buffer | string): boolean;
  /** Reads nothing more from the client until `resume`. */
  pause(): void;
  resume(): void;
  /** Closes the socket behind all messages that were sent. The listener hears of nothing more but the end. */
  close(code: number, reason: string): void;
}

/** Listens to a socket. No call may throw. */
export interface SocketListener {
  onBytes(bytes: Buffer): void;
  onText(text: string): void;
  /** The client has taken enough, after a `send` that returned false. */
  onDrain(): void;
  /** The socket has ended. Called exactly once, and nothing after it. */
  onClosed(): void;
}

/** The answer of a handler of a socket route. One of the two is called, once. */
export class Upgrade {
  /** The socket is open. */
  readonly opened: (socket: ServerSocket) => SocketListener;
  /** The socket never opened: the client has gone, or its request was no WebSocket. */
  readonly failed: () => void;
  /** Rejects once the socket's own credential is no longer good; null: that of the request counts. */
  readonly recheck: (() => Promise<void> | undefined) | null;

  constructor(
    opened: (socket: ServerSocket) => SocketListener,
    failed: () => void = () => {},
    recheck: (() => Promise<void> | undefined) | null = null,
  ) {
    this.opened = opened;
    this.failed = failed;
    this.recheck = recheck;
  }
}
