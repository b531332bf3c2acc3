/**
 * A viewer of a desktop: a WebSocket of binary messages on one side, the RFB server of a container on the other. The daemon
 * has made the server's handshake already and makes the viewer's here, with security type None: the token let it in.
 * So a container never chooses what a viewer is asked for.
 *
 * V1. Bytes wait on neither side: a viewer that does not read stops its own server by the pipe, and a server that does not
 *     read stops its viewer, and loses it after `gui_stall_ms`.
 * V2. A handshake that is malformed, longer than `gui_handshake_bytes_max` or not done within `gui_handshake_ms`
 *     ends the socket, and so does a server with a screen that no viewer can show.
 * V3. `release` is called once, at the end, whichever side ended first.
 */
import type { CancelTimer, Clock } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import { CLOSE, type ServerSocket, type SocketListener } from "../base/sockets.ts";
import type { Backend } from "./backends.ts";
import { advance, ClientHandshake, isServerInit, RFB_VERSION, SERVER_INIT_BYTES } from "./rfb.ts";

export class Viewer implements SocketListener {
  readonly #socket: ServerSocket;
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #release: () => void;
  /** Null: the handshake is done. */
  #handshake: ClientHandshake | null = new ClientHandshake();
  #received = Buffer.alloc(0);
  /** The beginning of the server's ServerInit; null: it is complete and valid. */
  #server_init: Buffer | null = Buffer.alloc(0);
  #cancelHandshake: CancelTimer;
  #cancelStall: CancelTimer | null = null;
  #isOver = false;

  constructor(socket: ServerSocket, backend: Backend, clock: Clock, release: () => void) {
    this.#socket = socket;
    this.#backend = backend;
    this.#clock = clock;
    this.#release = release;
    this.#cancelHandshake = clock.after(LIMITS.gui_handshake_ms, () => {
      this.end(CLOSE.unacceptable, "no RFB handshake in time");
    });
    socket.send(RFB_VERSION);
  }

  onBytes(bytes: Buffer): void {
    if (this.#isOver) return;
    if (this.#handshake === null) {
      this.#toServer(bytes);
      return;
    }
    const send = (answer: Buffer) => this.#socket.send(answer);
    const { state, rest } = advance(this.#handshake, Buffer.concat([this.#received, bytes]), send);
    if (state === "refused") {
      this.end(CLOSE.unacceptable, "malformed RFB handshake");
      return;
    }
    this.#received = Buffer.from(rest);
    if (state === "more") return;
    this.#handshake = null;
    this.#received = Buffer.alloc(0);
    this.#cancelHandshake();
    this.#backend.begin({
      onBytes: (chunk) => this.#toViewer(chunk),
      onDrain: () => this.#drained(),
      onClosed: () => this.end(CLOSE.done, "the desktop ended"),
    });
    if (rest.length > 0) this.#toServer(rest);
  }

  onText(): void {
    this.end(CLOSE.unacceptable, "expected binary messages");
  }

  /** Of the socket: the viewer has read enough. */
  onDrain(): void {
    this.#backend.resume();
  }

  onClosed(): void {
    this.#over();
  }

  /** Closes the socket and the connection to the server. */
  end(code: number, reason: string): void {
    if (this.#isOver) return;
    this.#over();
    this.#socket.close(code, reason);
  }

  /** V1. */
  #toServer(bytes: Buffer): void {
    if (this.#backend.write(bytes) || this.#cancelStall !== null) return;
    this.#socket.pause();
    this.#cancelStall = this.#clock.after(LIMITS.gui_stall_ms, () => {
      this.end(CLOSE.fault, "the desktop accepts no input");
    });
  }

  #drained(): void {
    this.#cancelStall?.();
    this.#cancelStall = null;
    if (!this.#isOver) this.#socket.resume();
  }

  #toViewer(chunk: Buffer): boolean {
    if (this.#isOver) return true;
    if (this.#server_init === null) return this.#socket.send(chunk);
    // V2.
    const bytes = Buffer.concat([this.#server_init, chunk]);
    if (bytes.length < SERVER_INIT_BYTES) {
      this.#server_init = bytes;
      return true;
    }
    if (!isServerInit(bytes)) {
      this.end(CLOSE.fault, "the desktop has an invalid size or name");
      return true;
    }
    this.#server_init = null;
    return this.#socket.send(bytes);
  }

  /** V3. */
  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelHandshake();
    this.#cancelStall?.();
    this.#backend.close();
    this.#release();
  }
}
