/**
 * Envelopes on a JetStream server (C1, C2 in ../carrier.ts).
 *
 * E1. A message of the stream counts as an entry's envelope only if its subject names the tenant and its header the message:
 *     a stream that was lost and made again, or that another program writes to, brings no foreign envelope into an inbox.
 * E2. No two publishes share a message of the stream, so one that is deleted belongs to no other. If the server holds a publish
 *     for a duplicate that the ledger lacks, it was never answered, or its entry is deleted: it is sent again.
 */
import { randomUUID } from "node:crypto";
import { JetStreamApiError, type StoredMsg } from "@nats-io/jetstream";
import { headers, type MsgHdrs } from "@nats-io/transport-node";
import { each } from "../../../base/concurrency.ts";
import { AppError, errorText } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { Log } from "../../../base/log.ts";
import type { Carried, CarriedEntry, CarriedPlace, Carrier, Outcome } from "../carrier.ts";
import type { InboxState } from "../inboxes.ts";
import type { Ledger } from "../ledger.ts";
import type { Outgoing } from "../port.ts";
import type { Feeds } from "./feeds.ts";
import type { Link, Session } from "./link.ts";
import { duplicateId, HEADERS, type Names, setHeaders, toToken } from "./names.ts";

/** The largest headers: three texts of 256 bytes, each encoded to three times its size, and the names. */
const HEADER_BYTES_MAX = 4 * 1024;
/** Codes of the server: no storage left, no memory left, the stream is at its bounds. */
const FULL_CODES: ReadonlySet<number> = new Set([10023, 10028, 10047, 10077]);

export interface JetStreamCarrierOptions {
  readonly link: Pick<Link, "session">;
  readonly feeds: Feeds;
  readonly names: Names;
  readonly ledger: Ledger;
  readonly log: Log;
}

export class JetStreamCarrier implements Carrier {
  readonly #options: JetStreamCarrierOptions;
  /** Duplicate ids of publishes in progress, which a recovery leaves alone. */
  readonly #carrying = new Set<string>();
  #waiting_bytes = 0;
  #waiting_count = 0;

  constructor(options: JetStreamCarrierOptions) {
    this.#options = options;
  }

  isCarrying(duplicate_id: string): boolean {
    return this.#carrying.has(duplicate_id);
  }

  async carry(message: Outgoing, place: CarriedPlace): Promise<Carried | null> {
    const session = this.#options.link.session();
    const bytes = message.envelope.byteLength;
    if (bytes + HEADER_BYTES_MAX > session.payload_bytes_max) return null;
    if (
      this.#waiting_count >= LIMITS.jetstream_publishes_max ||
      this.#waiting_bytes + bytes > LIMITS.jetstream_publish_bytes_max
    ) {
      throw new AppError("CAPACITY_FULL", `${this.#waiting_count} publishes wait for the JetStream server`, {
        retry_after: 1,
      });
    }
    this.#waiting_count++;
    this.#waiting_bytes += bytes;
    try {
      return await this.#carry(session, message, place);
    } catch (error) {
      throw unavailable(error);
    } finally {
      this.#waiting_count--;
      this.#waiting_bytes -= bytes;
    }
  }

  drop(seqs: readonly number[]): void {
    const { link, names } = this.#options;
    attempt(async () => {
      const { streams } = link.session().manager;
      await each(seqs, LIMITS.jetstream_drops_at_once, async (seq) => {
        await streams.deleteMessage(names.stream, seq, false).catch(() => {});
      });
    });
  }

  async load(
    inbox: InboxState,
    entries: readonly CarriedEntry[],
    will_hold: boolean,
  ): Promise<Map<number, Uint8Array>> {
    const { link, feeds, log } = this.#options;
    const session = link.session();
    const pulled = will_hold ? await feeds.pull(session, inbox, entries) : null;
    const found = new Map<number, Uint8Array>();
    const left: CarriedEntry[] = [];
    for (const entry of entries) {
      const message = pulled?.get(entry.carried_seq);
      if (message !== undefined && this.#isEnvelope(message.subject, message.headers, inbox, entry)) {
        found.set(entry.id, message.data);
      } else {
        left.push(entry);
      }
    }
    await each(left, LIMITS.jetstream_gets_at_once, async (entry) => {
      const message = await this.#get(session, entry.carried_seq);
      if (message !== null && this.#isEnvelope(message.subject, message.header, inbox, entry)) {
        found.set(entry.id, message.data);
      }
    });
    const lost_count = entries.length - found.size;
    if (lost_count > 0) log.error("the JetStream server has lost messages", { inbox: inbox.name, lost_count });
    return found;
  }

  settle({ inbox_no }: InboxState, msg_id: string, outcome: Outcome): void {
    this.#options.feeds.settle(inbox_no, msg_id, outcome);
  }

  purge(inbox_no: number): void {
    const { link, feeds, names } = this.#options;
    feeds.remove(inbox_no);
    attempt(() => link.session().manager.streams.purge(names.stream, { filter: names.filter(inbox_no) }));
  }

  async #carry(session: Session, message: Outgoing, place: CarriedPlace): Promise<Carried> {
    const { inbox, stream_seq } = place;
    const { names, ledger } = this.#options;
    const id = duplicateId(message, inbox.inbox_no);
    const hasCopies = (message.copies ?? []).length > 0;
    const subject = names.subject({
      ...{ tenant_id: message.tenant_id, inbox: hasCopies ? null : message.inbox, inbox_no: inbox.inbox_no },
    });
    const send = async (msgID: string) => {
      const header = headers();
      setHeaders(header, message, stream_seq);
      return session.client.publish(subject, message.envelope, { msgID, headers: header });
    };
    this.#carrying.add(id);
    try {
      const first = await send(id);
      if (!first.duplicate) return { seq: first.seq, is_new: true };
      if ((await ledger.entry(message)) !== null) return { seq: first.seq, is_new: false };
      return { seq: (await send(`${id}~${randomUUID()}`)).seq, is_new: true };
    } finally {
      this.#carrying.delete(id);
    }
  }

  async #get({ manager }: Session, seq: number): Promise<StoredMsg | null> {
    return manager.direct.getMessage(this.#options.names.stream, { seq }).catch((error) => {
      throw unavailable(error);
    });
  }

  /** E1. */
  #isEnvelope(subject: string, header: MsgHdrs | undefined, inbox: InboxState, { msg_id }: CarriedEntry): boolean {
    const address = this.#options.names.address(subject);
    if (address === null || address.tenant_id !== inbox.tenant.tenant_id) return false;
    if (address.inbox !== null && address.inbox_no !== inbox.inbox_no) return false;
    return header?.get(HEADERS.message) === toToken(msg_id);
  }
}

/** Cleaning up that may fail: the stream's `max_age` ends what is left. */
function attempt(work: () => Promise<unknown>): void {
  void Promise.resolve()
    .then(work)
    .catch(() => {});
}

function unavailable(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof JetStreamApiError && FULL_CODES.has(error.code)) {
    return new AppError("CAPACITY_FULL", `the JetStream server has no room: ${error.message}`, {
      retry_after: 60,
      cause: error,
    });
  }
  return new AppError("SERVICE_UNAVAILABLE", `the JetStream server does not answer: ${errorText(error)}`, {
    retry_after: 1,
    hint: "repeat the request; a message keeps its id",
    cause: error,
  });
}
