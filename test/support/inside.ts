/** Messages for the sockets of containers in memory, and a server of them: in place of the bus. */

import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { Traces } from "../../src/base/trace.ts";
import { TransferTurns } from "../../src/base/transfer-turns.ts";
import { LocalRates } from "../../src/http/rates.ts";
import type {
  Delivered,
  Inside,
  InsideMessages,
  InsideStates,
  InsideTopics,
  ReplyRequest,
  Self,
  StateEntry,
  StateWrite,
} from "../../src/icc/inside/inside.ts";
import { makeInside } from "../../src/inside.ts";

const log = { debug() {}, info() {}, warn() {}, error() {} };

/** Keeps what is published to a container, a queue or a topic until it is received. */
export class Memory implements Inside, InsideMessages, InsideTopics {
  readonly messages = this;
  readonly topics = this;
  readonly states: InsideStates;
  readonly calls: unknown[] = [];
  readonly settled: unknown[] = [];
  readonly #inboxes = new Map<string, Delivered[]>();
  readonly #topics = new Map<string, Set<string>>();
  readonly #replies = new Map<string, (reply: Delivered) => void>();
  readonly #received = new Map<string, Delivered>();
  readonly #values = new Map<string, StateEntry>();
  readonly #waiting = new Set<() => void>();
  #seq = 0;
  waiting_count = 0;

  constructor() {
    this.states = {
      list: (self, prefix) => this.#list(self, prefix),
      get: (self, key) => this.#get(self, key),
      put: (self, key, write) => this.#put(self, key, write),
      delete: (self, key) => this.#delete(self, key),
      watch: (self, prefix, signal) => this.#watch(self, prefix, signal),
    };
  }

  async self({ tenant_id, container_id }: Self) {
    return { tenant_id, container_id };
  }

  async publish({ container_id }: Self, message: Parameters<InsideMessages["publish"]>[1]) {
    if ("envelope_b64" in message) return { envelope: message.envelope_b64 };
    if (message.from !== undefined && message.from !== container_id) throw new AppError("FORBIDDEN", "not yourself");
    const stream_seq = ++this.#seq;
    const delivered = {
      msg_id: `m${stream_seq}`,
      inbox: message.to,
      ...message,
      from: container_id,
      stream_seq,
      lease: `l${stream_seq}`,
    };
    const inboxes = this.#topics.get(message.to) ?? [message.to];
    for (const inbox of inboxes) this.#inboxes.set(inbox, [...(this.#inboxes.get(inbox) ?? []), delivered]);
    for (const wake of this.#waiting) wake();
    return { stream_seq };
  }

  async receive({ container_id }: Self, asked: Parameters<InsideMessages["receive"]>[1], signal: AbortSignal) {
    this.calls.push(asked);
    const { max, wait_ms, inbox } = asked;
    const take = () => {
      const found = this.#inboxes.get(inbox ?? container_id)?.splice(0, max) ?? [];
      for (const one of found) this.#received.set(one.msg_id, one);
      return found;
    };
    const found = take();
    if (found.length > 0 || wait_ms === 0 || signal.aborted) return found;
    await this.#wait(wait_ms, signal);
    return take();
  }

  async deliveries(self: Self, asked: Parameters<InsideMessages["deliveries"]>[1], signal: AbortSignal) {
    if (asked.inbox === "queue:none") throw new AppError("NOT_FOUND", "no such inbox");
    return this.#deliveries(self, asked.inbox, signal);
  }

  async *#deliveries(self: Self, inbox: string | null, signal: AbortSignal): AsyncGenerator<Delivered> {
    while (!signal.aborted) {
      yield* await this.receive(self, { inbox, max: 1, wait_ms: 60_000, lease_ms: null, ordered: false }, signal);
    }
  }

  async settle(_: Self, asked: object) {
    this.settled.push(asked);
    return { ...asked };
  }

  async request(self: Self, message: Parameters<InsideMessages["request"]>[1], timeout_ms: number | null) {
    const replied = Promise.withResolvers<Delivered>();
    this.#replies.set(message.msg_id ?? "", replied.resolve);
    systemClock.after(timeout_ms ?? 30_000, () =>
      replied.reject(new AppError("TIMEOUT", `no reply in ${timeout_ms} ms`)),
    );
    await this.publish(self, message);
    return replied.promise;
  }

  async reply({ container_id }: Self, { payload, ...asked }: ReplyRequest) {
    const msg_id = asked.msg_id ?? asked.correlation_id;
    const found = this.#received.get(msg_id ?? "");
    if (found === undefined || (asked.to !== null && asked.to !== found.from))
      throw new AppError("NOT_FOUND", `no message ${msg_id}`);
    const reply = {
      msg_id: `r-${msg_id}`,
      inbox: "",
      stream_seq: 0,
      lease: "",
      from: container_id,
      payload,
      type: asked.type,
    };
    this.#replies.get(found.msg_id)?.(reply);
    return { correlation_id: found.msg_id };
  }

  async subscribe({ container_id }: Self, topic: string) {
    const name = `topic:${topic}`;
    this.#topics.set(name, new Set([...(this.#topics.get(name) ?? []), container_id]));
    return { topic, on: true };
  }

  async unsubscribe({ container_id }: Self, topic: string) {
    this.#topics.get(`topic:${topic}`)?.delete(container_id);
    return { topic, on: false };
  }

  async #list(_: Self, prefix: string) {
    return [...this.#values.values()].filter(({ key }) => key.startsWith(prefix));
  }

  async #get(_: Self, key: string): Promise<StateEntry> {
    const found = this.#values.get(key);
    if (found === undefined) throw new AppError("NOT_FOUND", `no key ${key}`);
    return found;
  }

  async #put(_: Self, key: string, { value, if_version }: StateWrite) {
    const version = this.#values.get(key)?.version ?? 0;
    if (if_version !== null && if_version !== version) throw new AppError("WRONG_STATE", `version is ${version}`);
    const entry = { key, version: version + 1, value };
    this.#values.set(key, entry);
    for (const wake of this.#waiting) wake();
    return entry;
  }

  async #delete(_: Self, key: string) {
    this.#values.delete(key);
    return { key };
  }

  async #watch(self: Self, prefix: string, signal: AbortSignal): Promise<AsyncIterable<StateEntry>> {
    const seen = new Map<string, number>();
    const changes = async function* (this: Memory) {
      while (!signal.aborted) {
        const news = (await this.#list(self, prefix)).filter(({ key, version }) => seen.get(key) !== version);
        for (const entry of news) {
          seen.set(entry.key, entry.version);
          yield entry;
        }
        if (news.length === 0) await this.#wait(60_000, signal);
      }
    };
    return changes.call(this);
  }

  async #wait(wait_ms: number, signal: AbortSignal) {
    this.waiting_count++;
    const woken = Promise.withResolvers<void>();
    const cancel = systemClock.after(wait_ms, woken.resolve);
    signal.addEventListener("abort", () => woken.resolve());
    this.#waiting.add(woken.resolve);
    await woken.promise;
    this.#waiting.delete(woken.resolve);
    cancel();
    this.waiting_count--;
  }
}

/** Serves messages as the daemon does. */
export function serveInside(inside: Inside) {
  const ids = randomIds();
  const clock = systemClock;
  return makeInside({
    inside,
    clock,
    log,
    ids,
    rates: new LocalRates(clock, new TransferTurns(clock)),
    traces: new Traces(ids, 0),
  });
}
