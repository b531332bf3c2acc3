/**
 * Messages between containers: what requests and containers ask of the bus. Sending is publishing.ts's; here are inboxes,
 * acks, replays and dead letters. Messages to many are broadcasts.ts's.
 */
import type { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import { DEAD_STREAM, parseAddress, streamOf } from "./addresses.ts";
import type { Bus, Delivery, EntryRef, EntryState, InboxKey, ReceiveOptions } from "./bus/port.ts";
import {
  DAMAGED,
  decodeStored,
  type Envelope,
  type PermissionLevel,
  readStored,
  rewriteEnvelope,
} from "./envelope/envelope.ts";
import type { JsonMessage } from "./envelope/message-schema.ts";
import { messageOf } from "./envelope/messages.ts";
import type { Grants } from "./grants.ts";
import { deadItem, factsItem, messageItem } from "./items.ts";
import { type Accepted, API_SENDER, type Content, checkScopes, type Publishing, type Sender } from "./publishing.ts";
import type { Replies, Waits } from "./replies.ts";
import type { streamsQuery } from "./schema.ts";

/** The key that replays messages. */
export type Replayer = Pick<Sender, "tenant_id" | "scopes" | "by">;

export interface IccOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly publishing: Publishing;
  readonly grants: Grants;
  readonly replies: Replies;
  readonly waits: Waits;
  /** Rejects with NOT_FOUND if the tenant has no such binding. */
  readonly checkBinding: (tenant_id: string, binding_id: string) => Promise<unknown>;
}

export interface ReceiveInput {
  readonly max: number;
  readonly wait_ms: number;
  readonly lease_ms: number;
  readonly max_deliver: number;
  readonly ordered: boolean;
}

export interface AckInput {
  readonly msg_id: string;
  readonly action: "ack" | "nack";
  readonly reason?: string | null | undefined;
  readonly lease?: string | null | undefined;
  readonly requeue?: boolean | undefined;
  readonly delay_ms?: number | undefined;
}

export interface ReadInput {
  readonly from_seq?: number | null | undefined;
  readonly to_seq?: number | null | undefined;
  readonly state?: EntryState | null | undefined;
  readonly limit?: number | null | undefined;
  /** For `read`: with each message in plain JSON. */
  readonly include_message?: boolean | undefined;
}

export class Icc {
  readonly #options: IccOptions;
  readonly #ending = new AbortController();

  constructor(options: IccOptions) {
    this.#options = options;
  }

  /** The bus, for the overview and the readiness. */
  get bus(): Bus {
    return this.#options.bus;
  }

  publish(sender: Sender, content: Content): Promise<Accepted> {
    return this.#options.publishing.publish(sender, content);
  }

  /** Publishes a message and waits for its reply. Rejects with TIMEOUT, CONCURRENCY_LIMIT, and as `publish`. */
  async request(sender: Sender, message: JsonMessage, timeout_ms: number, signal: AbortSignal) {
    const { publishing, replies, waits } = this.#options;
    const prepared = await publishing.prepare(sender, { message });
    const { envelope, address } = prepared;
    if (address.kind === "state") throw noInbox(address.text);
    const inbox = await this.#replyInbox(sender.tenant_id, envelope.from);
    const waiting = replies.expect(sender.tenant_id, inbox, envelope.msg_id);
    let end: () => void;
    try {
      end = waits.begin(sender.tenant_id);
    } catch (refusal) {
      waiting.end();
      throw refusal;
    }
    const pause = this.#pause(timeout_ms, signal);
    try {
      const accepted = await publishing.send(sender.tenant_id, prepared);
      const reply = await Promise.race([waiting.reply, pause.over]);
      if (reply === null) {
        throw new AppError("TIMEOUT", `no reply to message ${envelope.msg_id} within ${timeout_ms} ms`, {
          hint: "the message stays in its inbox until it is acked or expires",
        });
      }
      return { ...accepted, reply: messageOf(reply) };
    } finally {
      pause.end();
      waiting.end();
      end();
    }
  }

  /** Throws CONCURRENCY_LIMIT if no further receive of the tenant may wait. */
  checkWaits(tenant_id: string): void {
    this.#options.waits.begin(tenant_id)();
  }

  /** Answers a request of the platform or of a key, whose sender has no inbox. False: none waits for it. */
  answer(tenant_id: string, inbox: string, reply: Envelope): boolean {
    if (!this.#options.replies.has(tenant_id, inbox, reply.correlation_id)) return false;
    this.#options.replies.settle(tenant_id, inbox, reply);
    return true;
  }

  /** The inbox that a request names. Rejects with NOT_FOUND, INVALID_ARGUMENT. */
  async inbox(tenant_id: string, text: string): Promise<InboxKey> {
    const address = await this.#options.publishing.resolve(tenant_id, text);
    if (address.kind === "state") throw noInbox(address.text);
    return { tenant_id, inbox: address.text };
  }

  async read(tenant_id: string, inbox: string, input: ReadInput) {
    const key = await this.#known(tenant_id, inbox);
    const entries = await this.#options.bus.read(key, {
      from_seq: input.from_seq ?? 1,
      to_seq: input.to_seq ?? Number.MAX_SAFE_INTEGER,
      state: input.state ?? null,
      entries_max: input.limit ?? LIMITS.entries_read_default,
    });
    return {
      container_id: key.inbox,
      stream: streamOf(key.inbox),
      messages: entries.map((entry) => messageItem(entry, input.include_message)),
    };
  }

  /** Delivers messages of an inbox to the caller; waits for the first if none is due. */
  async receive(tenant_id: string, inbox: string, input: ReceiveInput, signal: AbortSignal): Promise<Delivery[]> {
    const key = await this.inbox(tenant_id, inbox);
    const options = {
      entries_max: input.max,
      lease_ms: input.lease_ms,
      max_deliver: input.max_deliver,
      is_ordered: input.ordered,
    };
    const { bus, waits } = this.#options;
    const first = await this.#deliver(key, options);
    if (first.length > 0 || input.wait_ms === 0) return first;
    const end = waits.begin(tenant_id);
    const pause = this.#pause(input.wait_ms, signal);
    let wake: () => void = () => {};
    let isDue = true;
    const unwatch = bus.watch(key, () => {
      isDue = true;
      wake();
    });
    try {
      for (;;) {
        if (isDue) {
          isDue = false;
          const deliveries = await this.#deliver(key, options);
          if (deliveries.length > 0) return deliveries;
          if (isDue) continue;
        }
        if (pause.isOver()) return [];
        const due = new Promise<void>((resolve) => {
          wake = resolve;
        });
        await Promise.race([due, pause.over]);
      }
    } finally {
      pause.end();
      unwatch();
      end();
    }
  }

  /** Acks, fails or gives back a message. `inbox` null: the one in which its id stands. */
  async settle(tenant_id: string, inbox: string | null, input: AckInput) {
    const { bus } = this.#options;
    const ref = await this.#refOf(tenant_id, inbox, input.msg_id);
    const lease = input.lease ?? null;
    const reason = input.reason ?? (input.action === "nack" ? "nack" : "");
    const settled =
      input.action === "ack"
        ? await bus.ack(ref, { lease })
        : input.requeue === true
          ? await bus.requeue(ref, {
              lease,
              reason,
              delay_ms: input.delay_ms ?? 0,
              max_deliver: LIMITS.max_deliver_default,
            })
          : await bus.nack(ref, { lease, reason });
    return { msg_id: input.msg_id, container_id: ref.inbox, new_state: settled.state, dlq_forwarded: settled.is_dead };
  }

  /**
   * Publishes settled or unread messages of an inbox to it once more, with new ids: all, or none if the key may not send one of
   * them.
   */
  async replay({ tenant_id, scopes, by }: Replayer, inbox: string, input: ReadInput) {
    const key = await this.#known(tenant_id, inbox);
    const entries = await this.#options.bus.read(key, {
      from_seq: input.from_seq ?? 1,
      to_seq: input.to_seq ?? Number.MAX_SAFE_INTEGER,
      state: input.state ?? null,
      entries_max: Math.min(input.limit ?? LIMITS.entries_read_default, LIMITS.replay_entries_max),
    });
    const stored = entries.flatMap(({ envelope: bytes }) => {
      const message = readStored(bytes);
      return message === null ? [] : [{ kind: message.payload.kind, bytes }];
    });
    for (const { kind } of stored) checkScopes(kind, scopes);
    const messages: Accepted[] = [];
    for (const { bytes } of stored) messages.push(await this.#again(key, bytes, by));
    return { replayed: messages.length, messages };
  }

  async deadLetters(
    tenant_id: string,
    { from_seq, limit, include_message }: Pick<ReadInput, "from_seq" | "limit" | "include_message">,
  ) {
    const { bus } = this.#options;
    const last_seq = await bus.lastDead(tenant_id);
    const letters = await bus.deadLetters(tenant_id, {
      from_seq: from_seq ?? 1,
      entries_max: limit ?? LIMITS.entries_read_default,
    });
    return { stream: DEAD_STREAM, last_seq, messages: letters.map((letter) => deadItem(letter, include_message)) };
  }

  /** Publishes a dead letter again, to its inbox or another. Rejects with NOT_FOUND, and as `publish`. */
  async replayDead({ tenant_id, scopes, by }: Replayer, dead_seq: number, target: string | null) {
    const { bus } = this.#options;
    const letter = await bus.deadLetter(tenant_id, dead_seq);
    if (letter === null) throw new AppError("NOT_FOUND", `no dead letter has the stream_seq ${dead_seq}`);
    checkScopes(decodeStored(letter.envelope).payload.kind, scopes);
    const binding_id = target === null ? bindingOf(letter.inbox) : null;
    if (binding_id !== null) await this.#options.checkBinding(tenant_id, binding_id);
    const key =
      binding_id === null
        ? await (target === null ? this.#inboxOfLetter(tenant_id, letter.inbox) : this.inbox(tenant_id, target))
        : { tenant_id, inbox: letter.inbox };
    const accepted = await this.#again(key, letter.envelope, by);
    await bus.noteReplay(tenant_id, dead_seq);
    return accepted;
  }

  /** The inbox that a dead letter was in: that of a container is gone with the container. */
  async #inboxOfLetter(tenant_id: string, inbox: string): Promise<InboxKey> {
    try {
      return await this.inbox(tenant_id, inbox);
    } catch (cause) {
      if (!(cause instanceof AppError) || cause.code !== "NOT_FOUND") throw cause;
      throw new AppError("NOT_FOUND", `the container of the dead letter was deleted: ${inbox}`, {
        reason_code: "UNKNOWN_TARGET",
        hint: "send another inbox as replay_to_container",
        cause,
      });
    }
  }

  async facts(tenant_id: string, container: string) {
    const key = await this.container(tenant_id, container);
    const facts = await this.#options.bus.facts(key);
    return { ...factsItem(facts), permission_level: await this.#options.grants.get(key.inbox) };
  }

  async streams(tenant_id: string, { after = "", limit, container_id }: Readonly<z.output<typeof streamsQuery>>) {
    if (container_id !== undefined) {
      const facts = await this.#options.bus.facts(await this.inbox(tenant_id, container_id));
      return { streams: [factsItem(facts)], next_after: null };
    }
    const inboxes_max = limit ?? LIMITS.list_limit_max;
    const found = await this.#options.bus.inboxes(tenant_id, { after, inboxes_max });
    return {
      streams: found.map(factsItem),
      next_after: found.length < inboxes_max ? null : (found.at(-1)?.inbox ?? null),
    };
  }

  async permission(
    tenant_id: string,
    container: string,
  ): Promise<{ container_id: string; permission_level: PermissionLevel }> {
    const { inbox } = await this.container(tenant_id, container);
    return { container_id: inbox, permission_level: await this.#options.grants.get(inbox) };
  }

  async grant(tenant_id: string, container: string, level: PermissionLevel) {
    const { inbox } = await this.container(tenant_id, container);
    await this.#options.grants.set(tenant_id, inbox, level);
    return this.permission(tenant_id, inbox);
  }

  /**
   * Like `inbox`, where the body may repeat the inbox of the path, by whichever of its names. Rejects with INVALID_ARGUMENT for
   * another one.
   */
  async same(tenant_id: string, named: string, repeated: string | null | undefined): Promise<string> {
    if (repeated == null || repeated === named) return named;
    const { inbox } = await this.inbox(tenant_id, named);
    const other = await this.inbox(tenant_id, repeated).catch((error: unknown) => {
      if (error instanceof AppError && error.code === "NOT_FOUND") return null;
      throw error;
    });
    if (other?.inbox !== inbox) throw differs("container_id", repeated, named);
    return inbox;
  }

  /** Like `inbox`, where a queue or topic begins with its first message. Rejects with NOT_FOUND before. */
  async #known(tenant_id: string, text: string): Promise<InboxKey> {
    const key = await this.inbox(tenant_id, text);
    if (parseAddress(key.inbox).kind === "container") return key;
    const { last_seq } = await this.#options.bus.facts(key);
    if (last_seq > 0) return key;
    throw new AppError("NOT_FOUND", `${key.inbox} has no inbox: no message was published to it`);
  }

  /** Like `inbox`, of containers alone. */
  async container(tenant_id: string, text: string): Promise<InboxKey> {
    if (parseAddress(text).kind !== "container") {
      throw new AppError("NOT_FOUND", `container '${text}' not found: the address of a queue, topic or state`, {
        details: { expected: ["container id or name"], received: text },
        hint: "read queues and topics at GET /api/icc/inbox/:container_id",
      });
    }
    return this.inbox(tenant_id, text);
  }

  prune(): Promise<void> {
    return this.#options.bus.prune();
  }

  /** Ends all waits, then the bus. */
  async close(): Promise<void> {
    this.#ending.abort();
    await this.#options.bus.close();
  }

  /** Delivers messages that are due. A message with a damaged envelope becomes a dead letter and does not block others. */
  async #deliver(key: InboxKey, options: ReceiveOptions): Promise<Delivery[]> {
    const { bus } = this.#options;
    for (;;) {
      const due = await bus.receive(key, options);
      const whole: Delivery[] = [];
      for (const delivery of due) {
        if (readStored(delivery.envelope) !== null) whole.push(delivery);
        else await this.#bury(delivery);
      }
      if (whole.length > 0 || due.length === 0) return whole;
    }
  }

  async #bury({ tenant_id, inbox, msg_id, lease }: Delivery): Promise<void> {
    await this.#options.bus.nack({ tenant_id, inbox, msg_id }, { lease, reason: DAMAGED }).catch((error) => {
      // Somebody has settled it at this moment.
      if (!(error instanceof AppError) || error.code !== "WRONG_STATE") throw error;
    });
  }

  /** Address of replies to a sender: its inbox, or its text if it has none. */
  async #replyInbox(tenant_id: string, from: string): Promise<string> {
    // Also where a container has this name.
    if (from === API_SENDER) return from;
    try {
      return (await this.inbox(tenant_id, from)).inbox;
    } catch (error) {
      if (error instanceof AppError) return from;
      throw error;
    }
  }

  async #refOf(tenant_id: string, inbox: string | null, msg_id: string): Promise<EntryRef> {
    if (inbox !== null) return { ...(await this.inbox(tenant_id, inbox)), msg_id };
    const found = await this.#options.bus.find(tenant_id, msg_id);
    const open = found.filter(({ inbox }) => !inbox.startsWith("topic:") && !inbox.startsWith("binding:"));
    const [one, ...others] = open.length > 0 ? open : found;
    if (one === undefined) throw new AppError("NOT_FOUND", `no inbox has the message ${msg_id}`);
    if (others.length === 0) return { tenant_id, inbox: one.inbox, msg_id };
    throw new AppError("AMBIGUOUS_MESSAGE", `message ${msg_id} is in ${others.length + 1} inboxes`, {
      details: { expected: [one, ...others].map(({ inbox }) => inbox) },
      hint: "name one of them as container_id",
    });
  }

  /** Publishes a copy: a new id, no idempotency key, the original's id as its cause. */
  async #again({ tenant_id, inbox }: InboxKey, bytes: Uint8Array, by: Replayer["by"]): Promise<Accepted> {
    const { clock, ids, publishing } = this.#options;
    const original = decodeStored(bytes);
    const isBinding = bindingOf(inbox) !== null;
    // A function sees where its message went at first.
    const to = isBinding ? original.to : inbox;
    const changes = {
      msg_id: ids.next("msg"),
      causation_id: original.msg_id,
      request_id: ids.next("req"),
      sent_at: Math.floor(clock.epochMs()),
      ...{ to, stream_key: original.stream_key === original.to ? to : original.stream_key },
      ...{ seq: 0, idempotency_key: "" },
    };
    const address = isBinding ? ({ kind: "binding", text: inbox } as const) : parseAddress(inbox);
    const envelope = { ...original, ...changes };
    return publishing.send(tenant_id, { envelope, bytes: rewriteEnvelope(bytes, changes), address, by });
  }

  /**
   * `over` resolves to null after the time, or when the client or the daemon ends. `end` gives back the timer and the
   * listeners: the signal of the daemon outlives every wait. No `AbortSignal.any`, which that signal would keep too.
   */
  #pause(delay_ms: number, signal: AbortSignal) {
    const signals = [signal, this.#ending.signal];
    const { promise: over, resolve } = Promise.withResolvers<null>();
    const state = { isOver: false };
    const end = (): void => {
      state.isOver = true;
      cancel();
      for (const one of signals) one.removeEventListener("abort", end);
      resolve(null);
    };
    const cancel = this.#options.clock.after(delay_ms, end);
    for (const one of signals) one.addEventListener("abort", end);
    if (signals.some(({ aborted }) => aborted)) end();
    return { over, end, isOver: () => state.isOver };
  }
}

/** The refusal of a body that repeats a field of the path with another value. */
export function differs(field: string, received: string, expected: string): AppError {
  return new AppError("INVALID_ARGUMENT", `${field}: differs from the path: '${received}' (expected ${expected})`, {
    details: { expected: [expected], received },
    hint: `send ${field} in the path alone`,
  });
}

function noInbox(text: string): AppError {
  return new AppError("INVALID_ARGUMENT", `${text} has no inbox, and nothing replies there`, {
    hint: "the routes of states return the value of a key",
  });
}

/** The id of the binding that an inbox is of, or null. */
const bindingOf = (inbox: string): string | null =>
  inbox.startsWith("binding:") ? inbox.slice("binding:".length) : null;
