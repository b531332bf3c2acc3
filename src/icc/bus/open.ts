/** Chooses the bus of a daemon: the store, unless the setting names NATS servers. */
import type { Log } from "../../base/log.ts";
import type { NatsServer } from "../../base/nats-server.ts";
import { EmbeddedBus } from "./embedded.ts";
import { JetStreamBus } from "./jetstream.ts";
import type { LedgerBusOptions } from "./ledger-bus.ts";
import type { Bus } from "./port.ts";

export interface OpenBusOptions extends LedgerBusOptions {
  readonly server: NatsServer | null;
  /** The id of the node: it names the stream among those of one server. */
  readonly tag: string;
  readonly log: Log;
}

/** Call `boot` of the bus before all else. */
export function openBus({ server, ...options }: OpenBusOptions): Bus {
  return server === null ? new EmbeddedBus(options) : new JetStreamBus({ ...options, server });
}
