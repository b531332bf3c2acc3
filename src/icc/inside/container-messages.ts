/**
 * Messages of a container that asks by its socket. It is itself: its own inbox is the only one of a container that it receives
 * from, settles or replies to. Work queues belong to all containers of the tenant; each settles what it holds.
 */
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { parseAddress } from "../addresses.ts";
import type { Delivery } from "../bus/port.ts";
import { decodeBase64 } from "../envelope/base64.ts";
import { decodeStored } from "../envelope/envelope.ts";
import { messageOf } from "../envelope/messages.ts";
import { API_SENDER, type Publishing, type Sender } from "../publishing.ts";
import type { Icc } from "../service.ts";
import type {
  Delivered,
  InsideMessages,
  PublishRequest,
  ReceiveRequest,
  ReplyRequest,
  Self,
  Sent,
  SettleRequest,
  StreamRequest,
} from "./inside.ts";
import type { ContainerLeases } from "./leases.ts";

const REPLY_TYPE = "reply";
/** Of a request that names no time. */
const DEFAULT_WAIT_MS = 30_000;

export interface ContainerMessagesOptions {
  readonly icc: Icc;
  readonly publishing: Publishing;
  readonly clock: Clock;
  readonly leases: ContainerLeases;
  /** The name of a container. Rejects with NOT_FOUND. */
  readonly nameOf: (tenant_id: string, container_id: string) => Promise<string>;
}

export class ContainerMessages implements InsideMessages {
  readonly #options: ContainerMessagesOptions;
  /** Messages that streams hold, by `nameOf`: as many as there are streams, and their prefetch. */
  readonly #held = new Map<string, () => void>();

  constructor(options: ContainerMessagesOptions) {
    this.#options = options;
  }

  async self(self: Self): Promise<Sent> {
    const { icc } = this.#options;
    const { container } = await this.#sender(self);
    const { permission_level } = await icc.permission(self.tenant_id, self.container_id);
    return { container_id: self.container_id, name: container.name, inbox: self.container_id, permission_level };
  }

  async publish(self: Self, message: PublishRequest): Promise<Sent> {
    const content = "envelope_b64" in message ? { bytes: decodeBase64(message.envelope_b64) } : { message };
    return { ...(await this.#options.icc.publish(await this.#sender(self), content)) };
  }

  async receive(self: Self, { inbox, lease_ms, ...asked }: ReceiveRequest, signal: AbortSignal): Promise<Delivered[]> {
    const input = { ...asked, lease_ms: lease_ms ?? LIMITS.lease_default_ms, max_deliver: LIMITS.max_deliver_default };
    const { icc, leases } = this.#options;
    const deliveries = await icc.receive(self.tenant_id, inboxOf(self, inbox), input, signal);
    return deliveries.map((one) => deliveredOf({ ...one, lease: leases.seal(self, one) }));
  }

  async deliveries(self: Self, asked: StreamRequest, signal: AbortSignal): Promise<AsyncIterable<Delivered>> {
    inboxOf(self, asked.inbox);
    // Here the client still gets the reason; a stream that has begun is cut.
    this.#options.icc.checkWaits(self.tenant_id);
    return this.#deliveries(self, asked, signal);
  }

  async settle(self: Self, { inbox, delay_ms, ...asked }: SettleRequest): Promise<Sent> {
    const name = inboxOf(self, inbox);
    const lease = this.#options.leases.open(self, { ...asked, inbox: name });
    const input = { ...asked, lease, ...(delay_ms === null ? {} : { delay_ms }) };
    const settled = await this.#options.icc.settle(self.tenant_id, name, input);
    this.#held.get(nameOf(self.tenant_id, name, asked.msg_id))?.();
    return { ...settled };
  }

  async request(
    self: Self,
    message: Parameters<InsideMessages["request"]>[1],
    timeout_ms: number | null,
    signal: AbortSignal,
  ): Promise<Sent> {
    const sender = await this.#sender(self);
    const { reply } = await this.#options.icc.request(sender, message, timeout_ms ?? DEFAULT_WAIT_MS, signal);
    return { ...reply };
  }

  /** A reply has the id of the request as its correlation_id. */
  async reply(self: Self, { type, payload, ...asked }: ReplyRequest): Promise<Sent> {
    const { icc, publishing } = this.#options;
    const sender = await this.#sender(self);
    const { to, correlation_id, trace_id } = await this.#requestOf(self, asked);
    const ids = { correlation_id, causation_id: correlation_id, trace_id };
    const message = { to, ...ids, type: type ?? REPLY_TYPE, payload };
    // A key of the tenant waits without an inbox.
    if (to === API_SENDER) {
      const { envelope } = await publishing.check(sender, { message });
      if (icc.answer(self.tenant_id, to, envelope)) return { msg_id: envelope.msg_id, correlation_id };
      throw new AppError("NOT_FOUND", `no request ${correlation_id} of a key waits for a reply`);
    }
    return { ...(await icc.publish(sender, { message })), correlation_id };
  }

  async #requestOf(self: Self, { msg_id, correlation_id, to }: Omit<ReplyRequest, "type" | "payload">) {
    if (correlation_id !== null && to !== null) return { correlation_id, to, trace_id: "" };
    if (msg_id === null) {
      throw new AppError("UNPROCESSABLE_ENTITY", "msg_id: expected string, received nothing", {
        hint: "send the msg_id of the request, or its correlation_id and to",
      });
    }
    const { bus } = this.#options.icc;
    const entry = await bus.entry({ tenant_id: self.tenant_id, inbox: self.container_id, msg_id });
    if (entry === null) throw new AppError("NOT_FOUND", `the inbox has no message ${msg_id}`);
    const { from, trace_id } = decodeStored(entry.envelope);
    return { correlation_id: msg_id, to: to ?? from, trace_id };
  }

  async *#deliveries(self: Self, asked: StreamRequest, signal: AbortSignal): AsyncGenerator<Delivered, void> {
    const { prefetch, ...rest } = asked;
    const each = { ...rest, max: 1, wait_ms: LIMITS.message_wait_ms_max };
    const held = new Set<() => void>();
    let wake = (): void => {};
    const onAbort = (): void => wake();
    signal.addEventListener("abort", onAbort);
    try {
      while (!signal.aborted) {
        if (held.size >= prefetch) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
          continue;
        }
        for (const one of await this.receive(self, each, signal)) {
          const end = this.#hold(self, asked, one, () => {
            held.delete(end);
            wake();
          });
          held.add(end);
          yield one;
        }
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      for (const end of held) end();
    }
  }

  /** Calls `onEnd` once: when a container settles the message, when its lease ends, or by what is returned. */
  #hold({ tenant_id }: Self, { lease_ms }: StreamRequest, { inbox, msg_id }: Delivered, onEnd: () => void): () => void {
    const name = nameOf(tenant_id, inbox, msg_id);
    const cancel = this.#options.clock.after(lease_ms ?? LIMITS.lease_default_ms, () => end());
    const end = (): void => {
      if (this.#held.get(name) !== end) return;
      this.#held.delete(name);
      cancel();
      onEnd();
    };
    // Its earlier lease is over.
    this.#held.get(name)?.();
    this.#held.set(name, end);
    return end;
  }

  async #sender({ tenant_id, container_id, trace }: Self) {
    const name = await this.#options.nameOf(tenant_id, container_id);
    const by = { credential: "container", key_id: container_id, address: null } as const;
    return { tenant_id, container: { id: container_id, name }, trace, by } satisfies Sender;
  }
}

const nameOf = (tenant_id: string, inbox: string, msg_id: string): string => `${tenant_id}\n${inbox}\n${msg_id}`;

/** Throws FORBIDDEN for an inbox of another container. */
function inboxOf({ container_id }: Self, inbox: string | null): string {
  if (inbox === null || inbox === container_id) return container_id;
  const address = parseAddress(inbox);
  if (address.kind === "queue") return address.text;
  throw new AppError("FORBIDDEN", `not an inbox of this container: ${inbox}`, {
    details: { expected: ["queue:<name>"], received: inbox },
    hint: "leave out 'inbox' for the container's own",
  });
}

/** The message with what a receiver needs to settle it. */
function deliveredOf({ stream_seq, lease, inbox, deliveries, held_until_ms, envelope }: Delivery): Delivered {
  const lease_expires_at = Math.floor(held_until_ms / 1_000);
  return { ...messageOf(decodeStored(envelope)), inbox, stream_seq, deliveries, lease, lease_expires_at };
}
