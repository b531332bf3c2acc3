/**
 * The recovery of a session: messages that the server acknowledged and the ledger lacks, because the daemon was killed
 * between both, get their entries, once. Foreign messages are deleted from the stream, which belongs to the daemon alone.
 */
import { each } from "../../../base/concurrency.ts";
import { AppError } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { Log } from "../../../base/log.ts";
import type { Carried } from "../carrier.ts";
import type { Ledger } from "../ledger.ts";
import type { JetStreamCarrier } from "./carrier.ts";
import type { Session } from "./link.ts";
import { duplicateId, type Names, type StoredMessage, toStored } from "./names.ts";

export interface RecoveryOptions {
  readonly names: Names;
  readonly ledger: Ledger;
  readonly carrier: JetStreamCarrier;
  readonly log: Log;
}

/** Refusals of the ledger that make a message garbage. Others, such as a full disk, leave it for the next recovery. */
const FINAL: ReadonlySet<string> = new Set(["IDEMPOTENCY_CONFLICT", "NOT_FOUND", "QUEUE_FULL"]);

export class Recovery {
  readonly #options: RecoveryOptions;

  constructor(options: RecoveryOptions) {
    this.#options = options;
  }

  /**
   * Looks at all messages above those that the ledger had when the publishes in progress began, in the order of the stream.
   * Resolves to the number of messages that got their entry.
   */
  async run(session: Session): Promise<number> {
    const { ledger, log } = this.#options;
    const { last_seq } = session;
    const known_seq = (await ledger.lastCarried()) ?? last_seq;
    const from_seq = Math.max(1, Math.min(known_seq, last_seq) - LIMITS.jetstream_publishes_max + 1);
    const to_seq = Math.min(last_seq, from_seq + LIMITS.jetstream_recovered_max);
    if (known_seq > last_seq) log.error("the JetStream server has lost messages", { known_seq, last_seq });
    if (to_seq < last_seq) log.error("too many unknown messages in the stream", { skipped_count: last_seq - to_seq });
    let recovered_count = 0;
    for (let seq = from_seq; seq <= to_seq; seq += LIMITS.jetstream_recovered_at_once) {
      recovered_count += await this.#step(session, seq, Math.min(to_seq, seq + LIMITS.jetstream_recovered_at_once - 1));
    }
    if (recovered_count > 0) log.warn("recovered messages that a crash left without an entry", { recovered_count });
    return recovered_count;
  }

  async #step({ manager }: Session, from_seq: number, to_seq: number): Promise<number> {
    const { ledger, names } = this.#options;
    const known = await ledger.carried(from_seq, to_seq);
    const seqs = Array.from({ length: to_seq - from_seq + 1 }, (_, i) => from_seq + i).filter((seq) => !known.has(seq));
    // Null: foreign, or with copies.
    const found = new Map<number, StoredMessage | null>();
    await each(seqs, LIMITS.jetstream_gets_at_once, async (seq) => {
      const message = await manager.direct.getMessage(names.stream, { seq });
      if (message === null) return;
      const address = names.address(message.subject);
      found.set(seq, address === null ? null : toStored(address, message.header, message.data));
    });
    let recovered_count = 0;
    for (const seq of seqs) {
      const stored = found.get(seq);
      if (stored !== undefined && (await this.#adopt(stored, seq))) recovered_count++;
    }
    return recovered_count;
  }

  /** Gives a message its entry, or deletes it. A message with copies goes too: its publisher was not answered. */
  async #adopt(stored: StoredMessage | null, seq: number): Promise<boolean> {
    const { ledger, carrier } = this.#options;
    if (stored !== null && carrier.isCarrying(duplicateId(stored.message, stored.inbox_no))) return false;
    if (stored === null || !(await ledger.isNew(stored.message, stored.inbox_no, { seq, ...stored }))) {
      carrier.drop([seq]);
      return false;
    }
    try {
      const carry = async (): Promise<Carried> => ({ seq, is_new: true });
      const drop = (seqs: readonly number[]) => carrier.drop(seqs);
      return !(await ledger.publish(stored.message, { carry, drop })).is_duplicate;
    } catch (error) {
      if (!(error instanceof AppError) || !FINAL.has(error.code)) throw error;
      carrier.drop([seq]);
      return false;
    }
  }
}
