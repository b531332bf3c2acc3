/**
 * Calls a function for the messages of one inbox.
 *
 * R1. A message is acked after its call has succeeded and its reply is published: each is handled at least once, and never
 *     again after its ack.
 * R2. A call that fails is a delivery: the message comes again after a pause that doubles, until `max_deliver`.
 * R3. A refusal that says "later" is no delivery: the message goes back, and the binding pauses.
 * R4. A message is held for a short time that is prolonged while the call runs, so that it comes again soon after a crash.
 */
import type { Clock } from "../../base/clock.ts";
import { AppError, publicText } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Trace } from "../../base/trace.ts";
import type { Bus, Delivery, EntryRef } from "../bus/port.ts";
import { decodeStored, type Envelope } from "../envelope/envelope.ts";
import { messageOf } from "../envelope/messages.ts";
import type { TenantSlots } from "../tenant-slots.ts";
import type { MessageTracing } from "../tracing.ts";
import { type Binding, inboxOf } from "./rows.ts";

/** Result of a call. */
export interface CallOutcome {
  readonly invocation_id: string;
  readonly status: string;
  readonly error_message: string | null;
  /** Value that the handler returned; null: none. */
  readonly result: unknown;
  readonly stdout: string;
}

export interface Answered {
  readonly request: Envelope;
  readonly outcome: CallOutcome;
  readonly trace: Trace | null;
}

export interface RunnerOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly slots: TenantSlots;
  /** Rejects with what refuses the call. */
  readonly call: (binding: Binding, payload: string, trace: Trace | null) => Promise<CallOutcome>;
  readonly tracing: Pick<MessageTracing, "traceOf">;
  readonly reply: (binding: Binding, answered: Answered) => Promise<void>;
  /** The function may be gone. */
  readonly onMissing: (tenant_id: string) => void;
}

export class Runner {
  readonly binding: Binding;
  readonly #options: RunnerOptions;
  readonly #key: { readonly tenant_id: string; readonly inbox: string };
  #unwatch = (): void => {};
  #isDue = false;
  #isReceiving = false;
  #isPaused = false;
  #isEnded = false;
  #pause_ms: number = LIMITS.binding_pause_ms_min;
  #in_flight = 0;
  #last_error: string | null = null;

  constructor(binding: Binding, options: RunnerOptions) {
    this.binding = binding;
    this.#options = options;
    this.#key = { tenant_id: binding.tenant_id, inbox: inboxOf(binding) };
  }

  get in_flight(): number {
    return this.#in_flight;
  }

  /** Reason why the last call failed or was refused; null after a successful call. */
  get last_error(): string | null {
    return this.#last_error;
  }

  begin(): void {
    if (this.#isEnded) return;
    this.#unwatch = this.#options.bus.watch(this.#key, () => this.#wake());
    this.#wake();
  }

  /** Receives no more. Calls in flight go on, and settle their messages. */
  end(): void {
    this.#isEnded = true;
    this.#unwatch();
  }

  #wake(): void {
    this.#isDue = true;
    if (!this.#isReceiving) void this.#receive();
  }

  async #receive(): Promise<void> {
    const { bus, slots } = this.#options;
    const { max_deliver, is_ordered, concurrency } = this.binding;
    const at_once = is_ordered ? 1 : concurrency;
    this.#isReceiving = true;
    try {
      while (this.#isDue && !this.#isPaused && !this.#isEnded && this.#in_flight < at_once) {
        const giveBack = await slots.take(this.#key.tenant_id);
        this.#isDue = false;
        const options = { entries_max: 1, lease_ms: LIMITS.binding_lease_ms, max_deliver, is_ordered };
        const received = this.#isEnded
          ? []
          : await bus.receive(this.#key, options).catch((error) => this.#refused(error));
        const [delivery] = received;
        if (delivery === undefined) {
          giveBack();
          continue;
        }
        this.#isDue = true;
        this.#in_flight++;
        void this.#handle(delivery).finally(() => {
          giveBack();
          this.#in_flight--;
          this.#wake();
        });
      }
    } finally {
      this.#isReceiving = false;
    }
  }

  /** Never rejects. */
  async #handle(delivery: Delivery): Promise<void> {
    const { call, reply, log, tracing } = this.#options;
    const ref = { ...this.#key, msg_id: delivery.msg_id };
    const stop = this.#prolong(ref, delivery.lease);
    try {
      const envelope = decodeStored(delivery.envelope);
      const { stream_seq, deliveries } = delivery;
      const payload = JSON.stringify({ message: messageOf(envelope), stream_seq, delivery: deliveries });
      // The call is a part of the trace of its message.
      const trace = tracing.traceOf(delivery, envelope);
      const outcome = await call(this.binding, payload, trace).catch((error) => this.#refuse(ref, delivery, error));
      if (outcome === null) return;
      this.#pause_ms = LIMITS.binding_pause_ms_min;
      if (outcome.status !== "success") {
        await this.#fail(ref, delivery, failureText(this.binding, outcome));
        return;
      }
      if (this.binding.replies) await reply(this.binding, { request: envelope, outcome, trace });
      await this.#options.bus.ack(ref, { lease: delivery.lease });
      this.#last_error = null;
    } catch (error) {
      // It was settled by somebody else, or its inbox is gone; otherwise it comes again when its lease ends.
      if (isSettled(error)) return;
      this.#last_error = shortened(publicText(error));
      log.warn("cannot settle a message of a binding", { binding_id: this.binding.id, error: publicText(error) });
    } finally {
      stop();
    }
  }

  /** A refusal of the call itself. Resolves to null: the message is settled. */
  async #refuse(ref: EntryRef, delivery: Delivery, error: unknown): Promise<null> {
    if (error instanceof AppError && error.code === "NOT_FOUND") this.#options.onMissing(this.#key.tenant_id);
    if (!isLater(error)) {
      await this.#fail(ref, delivery, `call of ${this.binding.function_name} refused: ${publicText(error)}`);
      return null;
    }
    const delay_ms = this.#pause_ms;
    this.#refused(error);
    const { max_deliver } = this.binding;
    const reason = shortened(publicText(error));
    await this.#options.bus.requeue(ref, { lease: delivery.lease, delay_ms, max_deliver, reason, is_uncounted: true });
    return null;
  }

  async #fail(ref: EntryRef, { lease, deliveries }: Delivery, why: string): Promise<void> {
    const { bus, ids } = this.#options;
    const { backoff_ms, max_deliver } = this.binding;
    const reason = shortened(why);
    this.#last_error = reason;
    const whole_ms = Math.min(backoff_ms * 2 ** Math.min(deliveries - 1, 30), LIMITS.binding_backoff_ms_max);
    const jitter = Number.parseInt(ids.hex(4), 16) / 0x10000;
    const delay_ms = Math.ceil((whole_ms * (1 + jitter)) / 2);
    await bus.requeue(ref, { lease, delay_ms, max_deliver, reason });
  }

  /** Pauses the binding. */
  #refused(error: unknown): readonly Delivery[] {
    this.#last_error = shortened(publicText(error));
    if (this.#isPaused || this.#isEnded) return [];
    this.#isPaused = true;
    this.#options.clock.after(this.#pause_ms, () => {
      this.#isPaused = false;
      this.#wake();
    });
    this.#pause_ms = Math.min(this.#pause_ms * 2, LIMITS.binding_pause_ms_max);
    return [];
  }

  #prolong(ref: EntryRef, lease: string): () => void {
    const { bus, clock } = this.#options;
    const state = { isOver: false, cancel: () => {} };
    const later = (): void => {
      state.cancel = clock.after(LIMITS.binding_lease_extended_ms, () => {
        bus.extend(ref, { lease, lease_ms: LIMITS.binding_lease_ms }).then(
          () => state.isOver || later(),
          (error) => state.isOver || isSettled(error) || later(),
        );
      });
    };
    later();
    return () => {
      state.isOver = true;
      state.cancel();
    };
  }
}

const shortened = (text: string): string => text.slice(0, LIMITS.binding_error_length_max).toWellFormed();

const isSettled = (error: unknown): boolean =>
  error instanceof AppError && (error.code === "NOT_FOUND" || error.code === "WRONG_STATE");

/** The function takes no calls now: it is full, paused, about to be deleted, or the daemon stops. */
function isLater(error: unknown): boolean {
  if (!(error instanceof AppError)) return false;
  return (
    error.retryable || error.code === "WRONG_STATE" || error.code === "NOT_FOUND" || error.code === "QUOTA_EXCEEDED"
  );
}

function failureText({ function_name }: Binding, { status, error_message, invocation_id }: CallOutcome): string {
  return `function ${function_name}: ${status} (${invocation_id})${error_message === null ? "" : `: ${error_message}`}`;
}
