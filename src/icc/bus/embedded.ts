/** The bus in the store of the daemon, the default: entries, leases and envelopes are rows. */
import { LedgerBus, type LedgerBusOptions } from "./ledger-bus.ts";

/**
 * A publish is synced to the disk before it resolves; publishes of one turn share a commit and a sync. An ack is in the
 * log of the store: it survives every crash of the daemon, and after a power cut the message may come again.
 */
export class EmbeddedBus extends LedgerBus {
  readonly backend = "embedded";
  readonly sync_mode = "write-ahead log, synced before a publish is answered, not before an ack";

  constructor(options: LedgerBusOptions) {
    super(options, null);
  }

  async boot(): Promise<void> {}

  health() {
    return { is_ready: true, problem: null };
  }
}
