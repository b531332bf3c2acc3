/**
 * The four sides of the bench of messages, each with a state of its own on the same disk: the bus in the store, the same
 * without its syncs, the bus on JetStream, and JetStream through its client library alone.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AckPolicy, type JsMsg, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { systemClock } from "../src/base/clock.ts";
import { createLog } from "../src/base/log.ts";
import { natsServer } from "../src/base/nats-server.ts";
import { openBus } from "../src/icc/bus/open.ts";
import type { Bus, InboxKey } from "../src/icc/bus/port.ts";
import { openEmbedded } from "../src/store/embedded.ts";
import type { Store } from "../src/store/store.ts";
import { nodeQuotas } from "../test/functions/node-quotas.ts";
import type { TestNatsServer } from "../test/support/nats-server.ts";

export const KEY: InboxKey = { tenant_id: "bench", inbox: "ctr_bench" };
const KEPT_MS = 3_600_000;
const RECEIVED_AT_ONCE = 100;
const LEASE_MS = 30_000;
const RECEIVE = { entries_max: RECEIVED_AT_ONCE, lease_ms: LEASE_MS, max_deliver: 5, is_ordered: false };

/** A subject of the measurements of pairs. */
export interface Side {
  /** Resolves when the message is published. */
  publish(msg_id: string): Promise<void>;
  /** Settles a message without a delivery; null: the side has no such thing. */
  readonly ack: ((msg_id: string) => Promise<void>) | null;
  /** Delivers and acks all messages from now on, and names each when its ack is confirmed. Returns its end. */
  receive(onAcked: (msg_id: string) => void): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

export interface OpenedBus {
  readonly bus: Bus;
  close(): Promise<void>;
}

export interface BusOptions {
  /** Null: the store alone. */
  readonly server: TestNatsServer | null;
  readonly is_synced: boolean;
}

/** Opens a bus on a store of its own. */
export async function openBenchBus({ server, is_synced }: BusOptions): Promise<OpenedBus> {
  const directory = mkdtempSync(join(tmpdir(), "hearth-bench-messages-"));
  const log = createLog("error", systemClock);
  const store = openEmbedded({ path: join(directory, "hearth.db"), clock: systemClock, log });
  const nats = server === null ? null : natsServer(server.url, null);
  const tag = directory.slice(-6);
  const options = { store: is_synced ? store : unsynced(store), clock: systemClock, quotas: nodeQuotas(), tag, log };
  const bus = openBus({ ...options, server: nats });
  await bus.boot();
  return {
    bus,
    close: async () => {
      await bus.close();
      await store.close();
      rmSync(directory, { recursive: true });
    },
  };
}

/** The store without syncs: what a commit then survives is the end of the process, as with nats-server. */
function unsynced(store: Store): Store {
  return new Proxy(store, {
    get(target, name) {
      if (name === "write") return (statements: Parameters<Store["write"]>[0]) => target.write(statements);
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

export function outgoing(key: InboxKey, msg_id: string, envelope: Uint8Array) {
  return { ...key, msg_id, idempotency_key: "", envelope, expires_ms: systemClock.epochMs() + KEPT_MS };
}

export async function busSide(options: BusOptions, envelope: Uint8Array): Promise<Side> {
  const { bus, close } = await openBenchBus(options);
  return {
    publish: async (msg_id) => void (await bus.publish(outgoing(KEY, msg_id, envelope))),
    ack: async (msg_id) => void (await bus.ack({ ...KEY, msg_id }, { lease: null })),
    receive: async (onAcked) => {
      let isRunning = true;
      let wake = () => {};
      const end = bus.watch(KEY, () => wake());
      const loop = async () => {
        while (isRunning) {
          const due = new Promise<void>((resolve) => {
            wake = resolve;
          });
          const deliveries = await bus.receive(KEY, RECEIVE);
          await Promise.all(
            deliveries.map(async ({ msg_id, lease }) => {
              await bus.ack({ ...KEY, msg_id }, { lease });
              onAcked(msg_id);
            }),
          );
          if (deliveries.length === 0) await due;
        }
      };
      const running = loop();
      return async () => {
        isRunning = false;
        wake();
        await running;
        end();
      };
    },
    close,
  };
}

/** JetStream through its client library: PubAck, a pull consumer that asks ahead, and confirmed acks. */
export async function clientSide(server: TestNatsServer, envelope: Uint8Array): Promise<Side> {
  const connection = await connect({ servers: new URL(server.url).host });
  const manager = await jetstreamManager(connection);
  const client = jetstream(connection);
  const [stream, subject] = ["BENCH", "bench.messages"];
  await manager.streams.add({ name: stream, subjects: [subject] });
  await manager.consumers.add(stream, { durable_name: "bench", ack_policy: AckPolicy.Explicit });
  const consumer = await client.consumers.get(stream, "bench");
  return {
    publish: async (msg_id) => void (await client.publish(subject, envelope, { msgID: msg_id })),
    ack: null,
    receive: async (onAcked) => {
      const settle = async (message: JsMsg) => {
        await message.ackAck();
        onAcked(message.headers?.get("Nats-Msg-Id") ?? "");
      };
      const messages = await consumer.consume({ max_messages: RECEIVED_AT_ONCE, callback: (one) => void settle(one) });
      return async () => {
        await messages.close();
      };
    },
    close: async () => {
      await manager.streams.delete(stream);
      await connection.close();
    },
  };
}
