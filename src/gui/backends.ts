/**
 * The RFB servers of desktops, seen from the daemon. A server listens on a unix socket in its container and nowhere on the
 * network; a command in the container connects to it, and its standard streams are the connection. So the daemon
 * resolves no path in a container, and no neighbour reaches a desktop.
 *
 * B1. Everything that comes from a container is untrusted. Bytes before the end of the handshake are bounded, and so are
 *     those of standard error, which the daemon reads and drops. Each wait has a deadline. Bytes that the viewer does not read
 *     stay in the container's pipe.
 * B2. A result of a check counts for one run of a container, for `gui_check_cached_ms`. Checks of one container are one.
 */
import { LRUCache } from "lru-cache";
import { type Clock, sleep } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Engine, Exec, RunRequest } from "../engine/ports.ts";
import { advance, RFB_VERSION, ServerHandshake } from "./rfb.ts";

/** Connects its standard streams with the RFB server of its container. */
export const BRIDGE = ["/usr/bin/socat", "-b65536", "-", "UNIX-CONNECT:/tmp/.hearth-desktop/rfb"];

type Run = Pick<RunRequest, "environment" | "working_directory" | "timeout_ms" | "grace_ms">;

const CHECK: Run = { environment: [], working_directory: "/", timeout_ms: 0, grace_ms: 0 };

/** Receives the events of a connection to a server. No call may throw. */
export interface BackendListener {
  /** False pauses until `resume`. */
  onBytes(bytes: Buffer): boolean;
  /** More bytes are taken, after a `write` that gave false. */
  onDrain(): void;
  onClosed(): void;
}

/** A connection to a server, behind its handshake: the next byte is the client's ClientInit. */
export class Backend {
  readonly #exec: Exec;
  #listener: BackendListener | null = null;
  /** Arrived before there was a listener; then nothing more is read. */
  #early: Buffer[] = [];
  #isClosed = false;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  begin(listener: BackendListener): void {
    this.#listener = listener;
    const early = this.#early.splice(0);
    const isTaking = early.map((bytes) => listener.onBytes(bytes)).every((taken) => taken);
    if (this.#isClosed) listener.onClosed();
    else if (isTaking) this.#exec.resume();
  }

  write(bytes: Buffer): boolean {
    return this.#exec.write(bytes);
  }

  resume(): void {
    this.#exec.resume();
  }

  close(): void {
    this.#listener = null;
    this.#exec.close();
  }

  /** For `Backends`. */
  onBytes(bytes: Buffer): boolean {
    if (this.#listener !== null) return this.#listener.onBytes(bytes);
    if (bytes.length > 0) this.#early.push(bytes);
    return false;
  }

  /** For `Backends`. */
  onDrain(): void {
    this.#listener?.onDrain();
  }

  /** For `Backends`. */
  onClosed(): void {
    this.#isClosed = true;
    this.#listener?.onClosed();
    this.#listener = null;
  }
}

export interface BackendsOptions {
  readonly containers: Pick<Engine["containers"], "exec" | "live">;
  readonly clock: Clock;
}

interface Known {
  readonly pid: number;
  readonly at_ms: number;
  readonly isReachable: boolean;
}

export class Backends {
  readonly #containers: BackendsOptions["containers"];
  readonly #clock: Clock;
  readonly #known = new LRUCache<string, Known>({ max: LIMITS.gui_checks_cached });
  readonly #asking = new Map<string, Promise<boolean>>();

  constructor({ containers, clock }: BackendsOptions) {
    this.#containers = containers;
    this.#clock = clock;
  }

  /** True if the server of a container greets; the result is at most `gui_check_cached_ms` old (B2). */
  isReachable(id: string): Promise<boolean> {
    const known = this.#knownOf(id);
    if (known !== null && this.#clock.monotonicMs() - known.at_ms < LIMITS.gui_check_cached_ms) {
      return Promise.resolve(known.isReachable);
    }
    return this.#ask(id);
  }

  /** The last result, without a check. */
  wasReachable(id: string): boolean {
    return this.#knownOf(id)?.isReachable ?? false;
  }

  /** Resolves when the server greets, at the latest after `gui_ready_ms` or when the container ends. */
  async untilReachable(id: string): Promise<void> {
    const end_ms = this.#clock.monotonicMs() + LIMITS.gui_ready_ms;
    while (this.#containers.live(id) !== null && this.#clock.monotonicMs() < end_ms) {
      // No server greets sooner, and each check takes processor time from the start.
      await sleep(this.#clock, LIMITS.gui_ready_interval_ms);
      if (await this.#ask(id)) return;
    }
  }

  /**
   * Connects to the server of a container and makes the handshake. Rejects with NOT_RESPONDING when the server refuses or is
   * not there, or after `gui_handshake_ms`.
   */
  connect(id: string, run: Run): Promise<Backend> {
    return new Promise((resolve, reject) => {
      const handshake = new ServerHandshake();
      let received = Buffer.alloc(0);
      let backend: Backend | null = null;
      const exec = this.#containers.exec(
        id,
        { ...run, ...STREAMS },
        {
          onOutput: (stream, chunk) => {
            if (stream === "stderr") return isQuiet(chunk) || cut();
            if (backend !== null) return backend.onBytes(chunk);
            const { state, rest } = advance(handshake, Buffer.concat([received, chunk]), (bytes) => exec.write(bytes));
            if (state === "refused") fail();
            if (state !== "done") {
              received = Buffer.from(rest);
              return true;
            }
            cancel();
            backend = new Backend(exec);
            resolve(backend);
            return backend.onBytes(rest);
          },
          onDrain: () => backend?.onDrain(),
        },
      );
      const isQuiet = boundedComplaints();
      const fail = () => {
        cancel();
        exec.close();
        reject(unreachable(id));
      };
      const cut = () => {
        if (backend === null) fail();
        exec.close();
        backend?.onClosed();
        return true;
      };
      const cancel = this.#clock.after(LIMITS.gui_handshake_ms, fail);
      const ended = () => (backend === null ? fail() : backend.onClosed());
      exec.exited.then(ended, ended);
    });
  }

  #knownOf(id: string): Known | null {
    const known = this.#known.get(id);
    return known !== undefined && known.pid === this.#containers.live(id)?.pid ? known : null;
  }

  #ask(id: string): Promise<boolean> {
    const asked = this.#asking.get(id);
    if (asked !== undefined) return asked;
    const asking = this.#check(id).finally(() => this.#asking.delete(id));
    this.#asking.set(id, asking);
    return asking;
  }

  async #check(id: string): Promise<boolean> {
    const pid = this.#containers.live(id)?.pid;
    if (pid === undefined) return false;
    const isReachable = await this.#greets(id);
    this.#known.set(id, { pid, at_ms: this.#clock.monotonicMs(), isReachable });
    return isReachable;
  }

  /** B1. */
  #greets(id: string): Promise<boolean> {
    return new Promise((resolve) => {
      let received = Buffer.alloc(0);
      const isQuiet = boundedComplaints();
      const exec = this.#containers.exec(
        id,
        { ...CHECK, ...STREAMS },
        {
          onOutput: (stream, chunk) => {
            if (stream === "stderr") {
              if (!isQuiet(chunk)) end(false);
              return true;
            }
            received = Buffer.concat([received, chunk.subarray(0, RFB_VERSION.length)]);
            if (received.length >= RFB_VERSION.length)
              end(received.subarray(0, RFB_VERSION.length).equals(RFB_VERSION));
            return true;
          },
        },
      );
      const end = (isReachable: boolean) => {
        cancel();
        exec.close();
        resolve(isReachable);
      };
      const cancel = this.#clock.after(LIMITS.gui_check_ms, () => end(false));
      exec.exited.then(
        () => end(false),
        () => end(false),
      );
    });
  }
}

/** Returns what is false once the command has written more to its standard error than a program that complains (B1). */
function boundedComplaints(): (chunk: Buffer) => boolean {
  let bytes = 0;
  return (chunk) => {
    bytes += chunk.length;
    return bytes <= LIMITS.gui_complaint_bytes_max;
  };
}

const STREAMS = { argv: BRIDGE, output_bytes_max: null, is_stream: true, has_more_stdin: true } as const;

export function unreachable(id: string): AppError {
  return new AppError("NOT_RESPONDING", `the desktop of container '${id}' does not respond`, {
    hint: `retry until GET /api/containers/${id}/ready shows the desktop`,
    retry_after: 1,
  });
}
