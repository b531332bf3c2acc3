/** A container whose RFB server a test plays: what the daemon runs in it is a pair of streams in this process. */

import type { Exec, ExecListener, ExitAnswer } from "../../src/engine/ports.ts";
import type { BackendsOptions } from "../../src/gui/backends.ts";

export const GREETING = Buffer.from("RFB 003.008\n");
export const SERVER_INIT = serverInit(1_280, 800, "desktop");

export function serverInit(width: number, height: number, name: string, name_bytes = name.length): Buffer {
  const head = Buffer.alloc(24);
  head.writeUInt16BE(width, 0);
  head.writeUInt16BE(height, 2);
  head.writeUInt32BE(name_bytes, 20);
  return Buffer.concat([head, Buffer.from(name)]);
}

/** One connection to the server, as the container sees it. */
export class Connection {
  readonly received: Buffer[] = [];
  readonly #listener: ExecListener;
  readonly #exited = Promise.withResolvers<ExitAnswer>();
  isClosed = false;
  isPaused = false;
  /** The result of the daemon's writes. */
  isTaking = true;
  readonly #onWrite: (connection: Connection) => void;

  constructor(listener: ExecListener, onWrite: (connection: Connection) => void) {
    this.#listener = listener;
    this.#onWrite = onWrite;
  }

  get text(): Buffer {
    return Buffer.concat(this.received);
  }

  get exec(): Exec {
    return {
      started: Promise.resolve({ pid: 1 }),
      exited: this.#exited.promise,
      write: (bytes) => {
        this.received.push(Buffer.from(bytes));
        setImmediate(() => this.#onWrite(this));
        return this.isTaking;
      },
      endStdin: () => {},
      resize: () => {},
      signal: () => {},
      kill: () => {},
      pause: () => {
        this.isPaused = true;
      },
      resume: () => {
        this.isPaused = false;
      },
      close: () => this.end(),
    };
  }

  /** False: the daemon takes no more until `isPaused` is false again. */
  send(bytes: Buffer): boolean {
    if (this.isClosed) return true;
    const isTaking = this.#listener.onOutput("stdout", bytes);
    if (!isTaking) this.isPaused = true;
    return isTaking;
  }

  complain(bytes: Buffer): boolean {
    return this.isClosed || this.#listener.onOutput("stderr", bytes);
  }

  drain(): void {
    this.isTaking = true;
    this.#listener.onDrain?.();
  }

  end(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    const end = { exit_code: 0, signal: 0, timed_out: false, stdout_truncated: false, stderr_truncated: false };
    this.#exited.resolve({
      ...end,
      spawn_failed: false,
      cancelled: false,
      duration_ms: 1,
      cpu_ms: 1,
      memory_peak_kb: 1,
    });
  }
}

/** `serve` is told of each connection, and of everything that the daemon writes to it. */
export class FakeContainer {
  readonly connections: Connection[] = [];
  pid: number | null = 4_711;
  serve: (connection: Connection) => void = () => {};
  answer: (connection: Connection) => void = () => {};

  get port(): BackendsOptions["containers"] {
    return {
      live: (id) =>
        this.pid === null
          ? null
          : {
              id,
              pid: this.pid,
              address: "10.0.0.1",
              gpus: { gpu_ids: [], environment: {} },
              control: { isOpen: true, ping: async () => {} },
            },
      exec: (_id, _request, listener) => {
        const connection = new Connection(listener, (written) => this.answer(written));
        this.connections.push(connection);
        setImmediate(() => this.serve(connection));
        return connection.exec;
      },
    };
  }

  /** Behaves as a server does, up to ServerInit. */
  behave(init = SERVER_INIT): void {
    this.serve = (connection) => connection.send(GREETING);
    this.answer = (connection) => {
      const { text } = connection;
      if (text.equals(GREETING)) connection.send(Buffer.from([2, 2, 1]));
      else if (text.equals(Buffer.concat([GREETING, Buffer.from([1])]))) connection.send(Buffer.alloc(4));
      else if (text.length === GREETING.length + 2) connection.send(init);
    };
  }
}
