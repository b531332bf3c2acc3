/** The bus with a NATS JetStream server behind it: the server keeps the envelopes, the ledger everything else. */
import type { Log } from "../../base/log.ts";
import type { NatsServer } from "../../base/nats-server.ts";
import { JetStreamCarrier } from "./jetstream/carrier.ts";
import { Feeds } from "./jetstream/feeds.ts";
import { Link, type Session } from "./jetstream/link.ts";
import { Names } from "./jetstream/names.ts";
import { Recovery } from "./jetstream/recovery.ts";
import { LedgerBus, type LedgerBusOptions } from "./ledger-bus.ts";
import type { BusHealth } from "./port.ts";

export interface JetStreamBusOptions extends LedgerBusOptions {
  readonly server: NatsServer;
  /** Names the stream of this daemon among those of one server. */
  readonly tag: string;
  readonly log: Log;
}

interface Parts {
  readonly link: Link;
  readonly recovery: Recovery;
}

export class JetStreamBus extends LedgerBus {
  readonly backend = "jetstream";
  readonly sync_mode =
    "as the JetStream server syncs its files: nats-server 2.9 every two minutes, newer ones by sync_interval";
  readonly #parts: Parts;

  constructor(options: JetStreamBusOptions) {
    const made: Partial<Parts> = {};
    super(options, (ledger) => {
      const { server, clock, log } = options;
      const names = new Names(options.tag);
      const onSession = (session: Session) => this.#recover(session);
      const link = new Link({ server, names, clock, log, onSession });
      const session = () => (link.health().is_ready ? link.session() : null);
      const feeds = new Feeds({ names, ledger, clock, session });
      const carrier = new JetStreamCarrier({ link, feeds, names, ledger, log });
      Object.assign(made, { link, recovery: new Recovery({ names, ledger, carrier, log }) });
      return carrier;
    });
    this.#parts = made as Parts;
  }

  boot(): Promise<void> {
    return this.#parts.link.start();
  }

  health(): BusHealth {
    return this.#parts.link.health();
  }

  override async close(): Promise<void> {
    await super.close();
    await this.#parts.link.close();
  }

  async #recover(session: Session): Promise<void> {
    await this.#parts.recovery.run(session);
    this.wakeAll();
  }
}
