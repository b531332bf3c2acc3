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
import type { Outgoing } from "../port.ts";
import type { JetStreamCarrier } from "./carrier.ts";
import type { Session } from "./link.ts";
import { duplicateId, type Names, toOutgoing } from "./names.ts";

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
    const found = new Map<number, Outgoing | "shared" | null>();
    const numbers = new Map<number, number>();
    await each(seqs, LIMITS.jetstream_gets_at_once, async (seq) => {
      const message = await manager.direct.getMessage(names.stream, { seq });
      if (message === null) return;
      const address = names.address(message.subject);
      if (address !== null) numbers.set(seq, address.inbox_no);
      found.set(seq, address === null ? null : toOutgoing(address, message.header, message.data));
    });
    let recovered_count = 0;
    for (const seq of [...found.keys()].sort((a, b) => a - b)) {
      const message = found.get(seq);
      if (await this.#adopt(message as Outgoing | null, numbers.get(seq) ?? 0, seq)) recovered_count++;
    }
    return recovered_count;
  }

  async #adopt(message: Outgoing | null, inbox_no: number, seq: number): Promise<boolean> {
    const { ledger, carrier } = this.#options;
    if (message !== null && carrier.isCarrying(duplicateId(message, inbox_no))) return false;
    // A message with copies was not acknowledged either; its publisher sends all of it again.
    if (message === null || !(await ledger.hasInbox(message, inbox_no))) {
      carrier.drop(seq);
      return false;
    }
    try {
      const there: Carried = { seq, is_new: true };
      const { is_duplicate } = await ledger.publish(message, {
        carry: async () => there,
        drop: (seq) => carrier.drop(seq),
      });
      return !is_duplicate;
    } catch (error) {
      if (!(error instanceof AppError) || !FINAL.has(error.code)) throw error;
      carrier.drop(seq);
      return false;
    }
  }
}
