/**
 * A WebSocket as the client of a terminal. Binary messages are bytes of the terminal, both ways; text messages are
 * frames in JSON. `ready` is the first; `exit` the last, and after it the socket is closed with 1000, or 1001 where the
 * daemon ends.
 *
 * F1. A frame that is none is answered with an `error` frame, and the session goes on.
 */
import { LIMITS } from "../base/limits.ts";
import { CLOSE, type ServerSocket, type SocketListener } from "../base/sockets.ts";
import { clientFrame, type ServerFrame } from "./schema.ts";
import type { Session, SessionEnd, TerminalClient } from "./session.ts";

export class TerminalSocket implements SocketListener, TerminalClient {
  readonly #socket: ServerSocket;
  readonly #session: Session;

  /** Attaches itself. `unseen`: what was kept of a session that has ended. */
  constructor(socket: ServerSocket, session: Session, unseen: Buffer | null = null) {
    this.#socket = socket;
    this.#session = session;
    const { id, shell, pid } = session;
    this.#say({ type: "ready", session_id: id, shell, pid });
    if (unseen !== null && unseen.length > 0) this.show(unseen);
    session.attach(this);
  }

  onBytes(bytes: Buffer): void {
    if (!this.#session.write(bytes)) this.#socket.pause();
  }

  onText(text: string): void {
    const frame = parse(text);
    if (frame === null) {
      this.#say({
        type: "error",
        code: "INVALID_ARGUMENT",
        message: "expected a frame: resize, ping, or signal with SIGHUP, SIGINT or SIGTERM",
      });
    } else if (frame.type === "resize") {
      this.#session.resize({ cols: frame.cols, rows: frame.rows });
    } else if (frame.type === "signal") {
      this.#session.signal(frame.signal);
    } else {
      this.#say({ type: "pong", ...(frame.ts === undefined ? {} : { ts: frame.ts }) });
    }
  }

  onDrain(): void {
    this.#session.takeMore();
  }

  onClosed(): void {
    this.#session.detach(this);
  }

  show(bytes: Buffer): boolean {
    return this.#socket.send(bytes);
  }

  drained(): void {
    this.#socket.resume();
  }

  ended({ exit_code, signal, error_message, is_leaving }: SessionEnd): void {
    if (error_message !== null) this.#say({ type: "error", code: "INTERNAL", message: error_message });
    this.#say({ type: "exit", code: exit_code, signal });
    if (is_leaving) this.#socket.close(CLOSE.going_away, "the daemon is shutting down");
    else this.#socket.close(CLOSE.done, "session ended");
  }

  replaced(): void {
    this.#socket.close(CLOSE.replaced, "another client has attached");
  }

  #say(frame: ServerFrame): void {
    this.#socket.send(JSON.stringify(frame));
  }
}

/** Null for what is no frame. */
function parse(text: string) {
  if (text.length > LIMITS.terminal_frame_length_max) return null;
  try {
    return clientFrame.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}
