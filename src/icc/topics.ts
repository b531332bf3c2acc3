/**
 * Topics: containers and queues subscribe to `topic:<name>`, and each gets a copy of what is published to it, in the commit
 * of the publish. A subscription ends with its container or tenant, by triggers of the store: so the store is asked at each
 * publish to a topic, and a copy to an inbox that ends at that moment is not written.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Store } from "../store/store.ts";
import { type Address, parseAddress } from "./addresses.ts";

export interface TopicsOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** The address of a subscriber. Rejects with NOT_FOUND, INVALID_ARGUMENT. */
  readonly resolve: (tenant_id: string, text: string) => Promise<Address>;
}

interface Page {
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

/** A full topic and a full tenant have no room; a container that is removed at this moment subscribes to nothing. */
const SUBSCRIBE = `INSERT INTO icc_subscriptions (tenant_id, topic, inbox, created_at) SELECT ?, ?, ?, ?
  WHERE (SELECT count(*) FROM icc_subscriptions WHERE tenant_id = ? AND topic = ?) < ?
  AND (SELECT count(*) FROM icc_subscriptions WHERE tenant_id = ?) < ?
  AND (? = 0 OR EXISTS (SELECT 1 FROM containers WHERE id = ? AND is_removing = 0)) ON CONFLICT DO NOTHING`;

export class Topics {
  readonly #options: TopicsOptions;

  constructor(options: TopicsOptions) {
    this.#options = options;
  }

  /** The inboxes that get a copy of a message to the topic. */
  async copiesOf(tenant_id: string, topic: string): Promise<string[]> {
    const rows = await this.#options.store.read(
      "SELECT inbox FROM icc_subscriptions WHERE tenant_id = ? AND topic = ? ORDER BY inbox LIMIT ?",
      [tenant_id, topic, LIMITS.topic_subscribers_max],
    );
    return rows.map(({ inbox }) => String(inbox));
  }

  /** Subscribes a container or queue. Safe to repeat. Rejects with NOT_FOUND, INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async subscribe(tenant_id: string, name: string, subscriber: string) {
    const topic = topicOf(name);
    const { kind, text: inbox } = await this.#subscriber(tenant_id, subscriber);
    const { store, clock } = this.#options;
    const { changes } = await store.write(
      [
        {
          sql: SUBSCRIBE,
          args: [
            ...[tenant_id, topic, inbox, toEpochSeconds(clock.epochMs())],
            ...[tenant_id, topic, LIMITS.topic_subscribers_max],
            ...[tenant_id, LIMITS.tenant_subscriptions_max],
            ...[kind === "container" ? 1 : 0, inbox],
          ],
        },
      ],
      { durable: true },
    );
    if (changes[0] === 0) await this.#explain(tenant_id, topic, inbox);
    return { topic, container_id: inbox, subscribed: true };
  }

  /** Ends a subscription. Safe to repeat; what was copied before stays. Rejects with NOT_FOUND, INVALID_ARGUMENT. */
  async unsubscribe(tenant_id: string, name: string, subscriber: string) {
    const topic = topicOf(name);
    const { text: inbox } = await this.#subscriber(tenant_id, subscriber);
    await this.#options.store.write(
      [
        {
          sql: "DELETE FROM icc_subscriptions WHERE tenant_id = ? AND topic = ? AND inbox = ?",
          args: [tenant_id, topic, inbox],
        },
      ],
      { durable: true },
    );
    return { topic, container_id: inbox, subscribed: false };
  }

  /** The topics that have subscribers, by name. */
  async list(tenant_id: string, { after = "", limit = LIMITS.list_limit_max }: Page) {
    const rows = await this.#options.store.read(
      `SELECT topic, count(*) AS count FROM icc_subscriptions WHERE tenant_id = ? AND topic > ?
        GROUP BY topic ORDER BY topic LIMIT ?`,
      [tenant_id, after, limit],
    );
    const topics = rows.map(({ topic, count }) => ({ topic: String(topic), subscribers: Number(count) }));
    return { topics, next_after: topics.length < limit ? null : (topics.at(-1)?.topic ?? null) };
  }

  /** The subscribers of a topic, by inbox. Rejects with NOT_FOUND if it has none. */
  async subscribers(tenant_id: string, name: string, { after = "", limit = LIMITS.list_limit_max }: Page) {
    const topic = topicOf(name);
    const rows = await this.#options.store.read(
      `SELECT inbox, created_at FROM icc_subscriptions WHERE tenant_id = ? AND topic = ? AND inbox > ?
        ORDER BY inbox LIMIT ?`,
      [tenant_id, topic, after, limit],
    );
    if (rows.length === 0 && after === "") throw new AppError("NOT_FOUND", `${topic} has no subscribers`);
    const subscribers = rows.map((row) => ({ container_id: String(row.inbox), created_at: Number(row.created_at) }));
    return { topic, subscribers, next_after: rows.length < limit ? null : (subscribers.at(-1)?.container_id ?? null) };
  }

  async #subscriber(tenant_id: string, text: string): Promise<Address> {
    const address = await this.#options.resolve(tenant_id, text);
    if (address.kind !== "topic") return address;
    throw new AppError("INVALID_ARGUMENT", "a topic cannot subscribe to a topic", {
      details: { expected: ["container id or name", "queue:<name>"], received: text },
    });
  }

  /** Throws the reason why a subscription was not written, unless it existed. */
  async #explain(tenant_id: string, topic: string, inbox: string): Promise<void> {
    const row = await this.#options.store.readOne(
      `SELECT EXISTS (SELECT 1 FROM icc_subscriptions WHERE tenant_id = ? AND topic = ? AND inbox = ?) AS is_there,
        (SELECT count(*) FROM icc_subscriptions WHERE tenant_id = ? AND topic = ?) AS of_topic,
        (SELECT count(*) FROM icc_subscriptions WHERE tenant_id = ?) AS of_tenant`,
      [tenant_id, topic, inbox, tenant_id, topic, tenant_id],
    );
    if (Number(row?.is_there) === 1) return;
    const { topic_subscribers_max, tenant_subscriptions_max } = LIMITS;
    if (Number(row?.of_topic) >= topic_subscribers_max) {
      throw new AppError("QUOTA_EXCEEDED", `${topic} has ${topic_subscribers_max} subscribers already`);
    }
    if (Number(row?.of_tenant) >= tenant_subscriptions_max) {
      throw new AppError("QUOTA_EXCEEDED", `the tenant has ${tenant_subscriptions_max} subscriptions already`);
    }
    throw new AppError("NOT_FOUND", `container '${inbox}' not found`);
  }
}

/** The address of a topic. Throws INVALID_ARGUMENT for an invalid name. */
function topicOf(name: string): string {
  return parseAddress(name.startsWith("topic:") ? name : `topic:${name}`).text;
}
