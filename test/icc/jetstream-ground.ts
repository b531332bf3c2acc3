/** A bus on a JetStream server of its own stream, and a client beside it. */
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { systemClock } from "../../src/base/clock.ts";
import { natsServer } from "../../src/base/nats-server.ts";
import type { Quotas } from "../../src/base/tenant-limits.ts";
import { JetStreamBus } from "../../src/icc/bus/jetstream.ts";
import type { Store } from "../../src/store/store.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { quietLog, type Scratch } from "../store/scratch.ts";
import type { OpenedBus } from "./bus-contract.ts";

export interface OpenedJetStream extends OpenedBus {
  readonly bus: JetStreamBus;
  readonly store: Store;
  readonly quotas: Quotas;
  reopen(): Promise<OpenedJetStream>;
}

export async function openJetStream(scratch: Scratch, url: string, tag: string): Promise<OpenedJetStream> {
  const store = scratch.open();
  const server = natsServer(url, null);
  const quotas = nodeQuotas();
  const bus = new JetStreamBus({ store, clock: systemClock, quotas, server, tag, log: quietLog });
  await bus.boot();
  const close = async () => {
    await bus.close();
    await store.close();
  };
  return {
    ...{ bus, store, quotas, close },
    reopen: async () => {
      await close();
      return openJetStream(scratch, url, tag);
    },
  };
}

/** A client that another program might be. Close its connection. */
export async function foreignClient(url: string): Promise<{ connection: NatsConnection; manager: JetStreamManager }> {
  const connection = await connect({ servers: new URL(url).host });
  return { connection, manager: await jetstreamManager(connection) };
}
