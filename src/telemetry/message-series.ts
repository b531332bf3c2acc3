/**
 * Series of messages between containers. Counts are plain numbers, because a message costs several of them; the registry reads
 * them for each scrape.
 */
import { Counter, Gauge, type Registry } from "prom-client";
import type { ErrorCode } from "../base/errors.ts";
import {
  DEAD_CAUSES,
  type DeadCause,
  INBOX_KINDS,
  type InboxKind,
  type MessageObserver,
  SETTLEMENTS,
  type Settlement,
} from "../icc/observer.ts";
import { Distribution, type Values } from "./distribution.ts";

/** Is read for each scrape. */
export interface MessageSource {
  readonly backend: string;
  readonly is_ready: boolean;
  /** Receives and requests that wait. */
  readonly waits_count: number;
  /** Containers with a socket, and their open connections. */
  readonly sockets_count: number;
  readonly connections_count: number;
}

const PUBLISH_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

type Counts<Name extends string> = Record<Name, number>;

const zeros = <Name extends string>(names: readonly Name[]): Counts<Name> =>
  Object.fromEntries(names.map((name) => [name, 0])) as Counts<Name>;

export class MessageSeries implements MessageObserver {
  readonly #registry: Registry;
  readonly #published = zeros(INBOX_KINDS);
  readonly #first = zeros(INBOX_KINDS);
  readonly #again = zeros(INBOX_KINDS);
  readonly #settled = { ...zeros(SETTLEMENTS), expired: 0 };
  readonly #dead = zeros(DEAD_CAUSES);
  /** By error code: a fixed set. */
  readonly #refusals = new Map<ErrorCode, number>();
  readonly #durations: Values;
  #repeated_count = 0;
  #source: (() => MessageSource) | null = null;

  constructor(registry: Registry) {
    this.#registry = registry;
    this.#counter("published", "Messages written to inboxes, copies for subscribers included.", ["inbox"], () =>
      INBOX_KINDS.map((inbox) => [{ inbox }, this.#published[inbox]]),
    );
    this.#counter("repeated", "Publishes of a msg_id that the inbox had already.", [], () => [
      [{}, this.#repeated_count],
    ]);
    this.#counter("refused", "Publishes that the bus refused, by error code.", ["error_code"], () =>
      [...this.#refusals].map(([error_code, count]) => [{ error_code }, count]),
    );
    this.#counter("delivered", "Deliveries to receivers.", ["inbox", "attempt"], () =>
      INBOX_KINDS.flatMap((inbox) => [
        [{ inbox, attempt: "first" }, this.#first[inbox]] as const,
        [{ inbox, attempt: "again" }, this.#again[inbox]] as const,
      ]),
    );
    this.#counter("settled", "Ends of messages and, as requeued, of deliveries.", ["outcome"], () =>
      Object.entries(this.#settled).map(([outcome, count]) => [{ outcome }, count]),
    );
    this.#counter("dead_lettered", "New dead letters, by cause.", ["cause"], () =>
      DEAD_CAUSES.map((cause) => [{ cause }, this.#dead[cause]]),
    );
    const durations = "hearth_message_publish_duration_seconds";
    const help = "Duration of publishes at the bus, refusals included.";
    this.#durations = new Distribution({ name: durations, help, bounds: PUBLISH_BUCKETS, registry }).series();
    this.#gauges();
  }

  /** Reads the gauges from `source` from now on. */
  read(source: () => MessageSource): void {
    this.#source = source;
  }

  published(inboxes: readonly InboxKind[]): void {
    for (const inbox of inboxes) this.#published[inbox]++;
  }

  publishEnded(duration_ms: number): void {
    this.#durations.observe(duration_ms / 1000);
  }

  repeated(): void {
    this.#repeated_count++;
  }

  refused(error_code: ErrorCode): void {
    this.#refusals.set(error_code, (this.#refusals.get(error_code) ?? 0) + 1);
  }

  delivered(inbox: InboxKind, isAgain: boolean): void {
    (isAgain ? this.#again : this.#first)[inbox]++;
  }

  settled(how: Settlement): void {
    this.#settled[how]++;
  }

  died(cause: DeadCause): void {
    this.#dead[cause]++;
  }

  expired(count: number): void {
    this.#settled.expired += count;
  }

  #counter(
    name: string,
    help: string,
    labelNames: readonly string[],
    read: () => readonly (readonly [Readonly<Record<string, string>>, number])[],
  ): void {
    const series: Counter<string> = new Counter({
      ...{ name: `hearth_messages_${name}_total`, help, labelNames, registers: [this.#registry] },
      collect() {
        series.reset();
        for (const [labels, count] of read()) series.inc({ ...labels }, count);
      },
    });
  }

  #gauges(): void {
    const gauge = (name: string, help: string, read: (source: MessageSource) => number, isOfBackend = false) => {
      const labelNames = isOfBackend ? ["backend"] : [];
      const series: Gauge<string> = new Gauge({
        ...{ name: `hearth_message_${name}`, help, labelNames, registers: [this.#registry] },
        collect: () => {
          const source = this.#source?.();
          if (source !== undefined) series.set(isOfBackend ? { backend: source.backend } : {}, read(source));
        },
      });
    };
    gauge("bus_ready", "1 if the bus takes messages, otherwise 0.", ({ is_ready }) => (is_ready ? 1 : 0), true);
    gauge("waits", "Receives, requests and watches that wait.", ({ waits_count }) => waits_count);
    gauge("sockets", "Containers with a message socket.", ({ sockets_count }) => sockets_count);
    const connections = "Open connections to message sockets.";
    gauge("socket_connections", connections, ({ connections_count }) => connections_count);
  }
}
