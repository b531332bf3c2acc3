/**
 * Feeds: one durable pull consumer for each inbox with receivers, made at the first receive. A feed brings the envelopes of a
 * receive in one request, and shows an operator's tools what is delivered and acked.
 *
 * D1. The ledger decides. The server's redeliveries replace the reply subject of an entry, and never make a delivery.
 * D2. A feed that fails costs nothing: the envelopes are read by their sequence numbers instead.
 */
import { AckPolicy, DeliverPolicy, type JsMsg } from "@nats-io/jetstream";
import { createInbox, type Msg, nanos } from "@nats-io/transport-node";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../../base/clock.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { CarriedEntry, Outcome } from "../carrier.ts";
import type { InboxState } from "../inboxes.ts";
import type { Ledger } from "../ledger.ts";
import type { Session } from "./link.ts";
import { fromToken, HEADERS, type Names } from "./names.ts";

/** Envelopes by their sequence numbers in the stream. */
export type Pulled = Map<number, Pick<JsMsg, "subject" | "data"> & Pick<Msg, "headers">>;

interface Feed {
  readonly durable: string;
  readonly ready: Promise<void>;
  /** Reply subject of an entry's last delivery, by message id: acks go there. */
  readonly replies: Map<string, string>;
}

export interface FeedsOptions {
  readonly names: Names;
  readonly ledger: Ledger;
  readonly clock: Clock;
  /** The session, or null. */
  readonly session: () => Session | null;
}

/** The server's answers. `+TERM <reason>` is newer than 2.9, which ignores it in silence. */
const ANSWERS = { acked: "+ACK", failed: "+TERM", held: "+WPI" } as const;
const MARGIN_BYTES = 2 * 1024 * 1024;
/** The sequence number in `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.…`; newer servers put two tokens before. */
const SEQUENCE_PLACE = 5;
const OLD_TOKENS_COUNT = 9;

export class Feeds {
  readonly #options: FeedsOptions;
  readonly #feeds: LRUCache<number, Feed>;

  constructor(options: FeedsOptions) {
    this.#options = options;
    this.#feeds = new LRUCache({
      max: LIMITS.jetstream_consumers_max,
      dispose: (feed, _, reason) => {
        if (reason === "evict") this.#deleteConsumer(feed.durable);
      },
    });
  }

  /** Pulls messages for entries that are about to be held. Resolves to those that came; never rejects. */
  async pull(session: Session, inbox: InboxState, entries: readonly CarriedEntry[]): Promise<Pulled> {
    const pulled: Pulled = new Map();
    const wanted = new Set(entries.map(({ carried_seq }) => carried_seq));
    const feed = this.#feed(session, inbox, Math.min(...wanted));
    try {
      await feed.ready;
      const missing = entries.filter(({ msg_id }) => !feed.replies.has(msg_id));
      if (missing.length > 0) await this.#fetch(session, inbox, feed, { wanted, pulled, batch: missing.length });
    } catch {
      this.#feeds.delete(inbox.inbox_no);
    }
    return pulled;
  }

  /** Tells the server what the ledger decided. */
  settle(inbox_no: number, msg_id: string, outcome: Outcome): void {
    const feed = this.#feeds.get(inbox_no);
    const reply = feed?.replies.get(msg_id);
    if (feed === undefined || reply === undefined) return;
    if (outcome !== "held") feed.replies.delete(msg_id);
    this.#answer(reply, outcome);
  }

  remove(inbox_no: number): void {
    this.#feeds.delete(inbox_no);
    this.#deleteConsumer(this.#options.names.durable(inbox_no));
  }

  #feed(session: Session, inbox: InboxState, from_seq: number): Feed {
    const known = this.#feeds.get(inbox.inbox_no);
    if (known !== undefined) return known;
    const durable = this.#options.names.durable(inbox.inbox_no);
    const feed = { durable, ready: this.#makeConsumer(session, inbox, durable, from_seq), replies: new Map() };
    feed.ready.catch(() => {});
    this.#feeds.set(inbox.inbox_no, feed);
    return feed;
  }

  async #makeConsumer({ manager }: Session, inbox: InboxState, durable: string, from_seq: number): Promise<void> {
    const { stream } = this.#options.names;
    const filter_subject = this.#options.names.subject({
      ...{ tenant_id: inbox.tenant.tenant_id, inbox: inbox.name, inbox_no: inbox.inbox_no },
    });
    const found = await manager.consumers.info(stream, durable).catch(() => null);
    const isOurs = found?.config.filter_subject === filter_subject && found.config.ack_policy === AckPolicy.Explicit;
    if (found !== null && isOurs && found.config.deliver_subject === undefined) return;
    if (found !== null) await manager.consumers.delete(stream, durable);
    await manager.consumers.add(stream, {
      durable_name: durable,
      filter_subject,
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(LIMITS.jetstream_ack_wait_ms),
      max_ack_pending: LIMITS.inbox_leases_max,
      inactive_threshold: nanos(LIMITS.jetstream_consumer_idle_ms),
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: from_seq,
    });
  }

  /** Requests messages that are available now, and waits for them. */
  async #fetch(
    { connection }: Session,
    inbox: InboxState,
    feed: Feed,
    { wanted, pulled, batch }: { wanted: ReadonlySet<number>; pulled: Pulled; batch: number },
  ): Promise<void> {
    const others: { readonly seq: number; readonly msg_id: string; readonly reply: string }[] = [];
    let left = batch;
    let failure: Error | null = null;
    await new Promise<void>((resolve) => {
      const reply = createInbox();
      const end = () => {
        subscription.unsubscribe();
        cancel();
        resolve();
      };
      const subscription = connection.subscribe(reply, {
        callback: (error, message) => {
          const isStatus = error !== null || message.reply === undefined || message.reply === "";
          if (!isStatus) {
            const place = toPlace(message);
            if (place !== null && wanted.has(place.seq)) pulled.set(place.seq, message);
            if (place !== null) others.push(place);
            left--;
          } else if (error !== null || message.headers?.code === NO_RESPONDERS) {
            failure = error ?? new DOMException("no such consumer");
          }
          if (isStatus || left === 0) end();
        },
      });
      const cancel = this.#options.clock.after(LIMITS.carrier_deadline_ms / 2, end);
      const request = { batch, no_wait: true, max_bytes: LIMITS.entries_read_bytes_max + MARGIN_BYTES };
      const { stream } = this.#options.names;
      connection.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${feed.durable}`, JSON.stringify(request), { reply });
      void subscription.closed.then(end);
    });
    if (failure !== null) throw failure;
    await this.#note(inbox, feed, others, wanted);
  }

  /** Keeps the reply subjects of unread entries, and acks again what the ledger has settled (D1). */
  async #note(
    inbox: InboxState,
    feed: Feed,
    places: readonly { readonly seq: number; readonly msg_id: string; readonly reply: string }[],
    wanted: ReadonlySet<number>,
  ): Promise<void> {
    const unknown = places.filter(({ seq }) => !wanted.has(seq));
    const states =
      unknown.length === 0
        ? new Map()
        : await this.#options.ledger.statesOf(
            inbox.inbox_no,
            unknown.map(({ seq }) => seq),
          );
    for (const { seq, msg_id, reply } of places) {
      const state = wanted.has(seq) ? "unread" : states.get(seq);
      if (state === "unread") feed.replies.set(msg_id, reply);
      else this.#answer(reply, state === "acked" ? "acked" : "failed");
    }
    for (const msg_id of feed.replies.keys()) {
      if (feed.replies.size <= LIMITS.inbox_leases_max) break;
      feed.replies.delete(msg_id);
    }
  }

  #answer(reply: string, outcome: Outcome): void {
    const text =
      typeof outcome === "string"
        ? ANSWERS[outcome]
        : outcome.delay_ms === 0
          ? "-NAK"
          : `-NAK ${JSON.stringify({ delay: nanos(outcome.delay_ms) })}`;
    const session = this.#options.session();
    if (session !== null && !session.connection.isClosed()) session.connection.publish(reply, text);
  }

  #deleteConsumer(durable: string): void {
    void this.#options
      .session()
      ?.manager.consumers.delete(this.#options.names.stream, durable)
      .catch(() => {});
  }
}

const NO_RESPONDERS = 503;

function toPlace({ reply = "", headers }: Msg): { seq: number; msg_id: string; reply: string } | null {
  const tokens = reply.split(".");
  const seq = Number(tokens[tokens.length === OLD_TOKENS_COUNT ? SEQUENCE_PLACE : SEQUENCE_PLACE + 2]);
  const msg_id = fromToken(headers?.get(HEADERS.message) ?? "");
  return Number.isSafeInteger(seq) ? { seq, msg_id: msg_id ?? "", reply } : null;
}
