/**
 * The connection to the server: connects, makes the stream, and begins again for ever after a failure, with pauses that
 * double up to a bound. The client library's own reconnection is off, because it buffers without a bound.
 *
 * K1. A session is handed out only while its connection lives and the stream has the expected settings.
 */
import { type JetStreamClient, type JetStreamManager, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, credsAuthenticator, type NatsConnection } from "@nats-io/transport-node";
import { type Clock, sleep } from "../../../base/clock.ts";
import { AppError, errorText } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { Log } from "../../../base/log.ts";
import type { NatsServer } from "../../../base/nats-server.ts";
import type { BusHealth } from "../port.ts";
import type { Names } from "./names.ts";
import { openStream } from "./stream.ts";

export interface Session {
  readonly connection: NatsConnection;
  readonly client: JetStreamClient;
  readonly manager: JetStreamManager;
  /** The last sequence number of the stream when the session began. */
  readonly last_seq: number;
  /** Bytes of a message, its headers included. */
  readonly payload_bytes_max: number;
}

export interface LinkOptions {
  readonly server: NatsServer;
  readonly names: Names;
  readonly clock: Clock;
  readonly log: Log;
  /** A session has begun; it serves already. Its failure ends the session. */
  onSession(session: Session): Promise<void>;
}

export class Link {
  readonly #options: LinkOptions;
  #session: Session | null = null;
  #problem = "not connected yet";
  #isClosed = false;
  #running: Promise<void> | null = null;
  #cancelPause = () => {};

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  /** Connects in the background. Resolves when the first session is ready or has failed, or after `jetstream_boot_ms`. */
  async start(): Promise<void> {
    const first = new Promise<void>((resolve) => {
      this.#running = this.#run(resolve);
    });
    await Promise.race([first, sleep(this.#options.clock, LIMITS.jetstream_boot_ms)]);
  }

  /** The session; throws SERVICE_UNAVAILABLE if there is none. */
  session(): Session {
    if (this.#session !== null && !this.#session.connection.isClosed()) return this.#session;
    throw new AppError("SERVICE_UNAVAILABLE", `JetStream server ${this.#hosts}: ${this.#problem}`, {
      retry_after: 1,
      hint: "repeat the request; a message keeps its id",
    });
  }

  health(): BusHealth {
    return this.#session === null
      ? { is_ready: false, problem: `JetStream server ${this.#hosts}: ${this.#problem}` }
      : { is_ready: true, problem: null };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelPause();
    await this.#session?.connection.close();
    await this.#running;
  }

  get #hosts(): string {
    return this.#options.server.hosts.join(", ");
  }

  async #run(onFirst: () => void): Promise<void> {
    const { log } = this.#options;
    let pause_ms: number = LIMITS.jetstream_reconnect_min_ms;
    while (!this.#isClosed) {
      const begun_ms = this.#options.clock.monotonicMs();
      const problem = await this.#serve(onFirst).catch((error) => {
        const problem = errorText(error);
        if (problem !== this.#problem)
          log.error("the JetStream server of messages cannot be used", { hosts: this.#hosts, problem });
        return problem;
      });
      onFirst();
      this.#problem = problem;
      if (this.#isClosed) return;
      // A session that lasted begins a new series of attempts.
      const lasted_ms = this.#options.clock.monotonicMs() - begun_ms;
      if (lasted_ms > LIMITS.jetstream_reconnect_max_ms) pause_ms = LIMITS.jetstream_reconnect_min_ms;
      await this.#pause(pause_ms);
      pause_ms = Math.min(pause_ms * 2, LIMITS.jetstream_reconnect_max_ms);
    }
  }

  /** Serves one connection until it ends. Resolves to the reason. */
  async #serve(onReady: () => void): Promise<string> {
    const { log, names, onSession } = this.#options;
    const connection = await this.#connect();
    const ended = connection.closed();
    try {
      const timeout = { timeout: LIMITS.carrier_deadline_ms };
      const manager = await jetstreamManager(connection, timeout);
      const last_seq = await openStream(manager, names);
      const payload_bytes_max = connection.info?.max_payload ?? 0;
      const session = { connection, manager, client: jetstream(connection, timeout), last_seq, payload_bytes_max };
      if (this.#isClosed) return "closed";
      this.#session = session;
      await onSession(session);
      log.info("connected to the JetStream server of messages", { hosts: this.#hosts, stream: names.stream });
      onReady();
      const error = await ended;
      const problem = error instanceof Error ? errorText(error) : "the connection ended";
      if (!this.#isClosed)
        log.error("the connection to the JetStream server of messages ended", { hosts: this.#hosts, problem });
      return problem;
    } finally {
      this.#session = null;
      await connection.close();
    }
  }

  #connect(): Promise<NatsConnection> {
    const { hosts, is_tls, user, password, token, credentials } = this.#options.server;
    return connect({
      servers: [...hosts],
      name: `hearth ${this.#options.names.stream}`,
      timeout: LIMITS.carrier_deadline_ms,
      reconnect: false,
      pingInterval: LIMITS.jetstream_ping_ms,
      maxPingOut: 2,
      ignoreClusterUpdates: true,
      ...(is_tls ? { tls: {} } : {}),
      ...(user === null ? {} : { user, pass: password ?? "" }),
      ...(token === null ? {} : { token }),
      ...(credentials === null ? {} : { authenticator: credsAuthenticator(credentials) }),
    });
  }

  async #pause(pause_ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = this.#options.clock.after(pause_ms, resolve);
      this.#cancelPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
