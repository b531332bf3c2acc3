/**
 * Outcomes of actions: `ack` payloads from the container to the sender of the action.
 *
 * O1. The msg_id of an outcome follows from the action's, so that a repeated outcome is a duplicate in the sender's inbox.
 * O2. A sender without an inbox gets the outcome if a request waits for it, and otherwise none.
 */
import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Address } from "../addresses.ts";
import type { Bus } from "../bus/port.ts";
import { type AckPayload, type Envelope, encodeEnvelope, readStored } from "../envelope/envelope.ts";
import type { Publishing } from "../publishing.ts";
import type { Replies } from "../replies.ts";

export interface OutcomesOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly log: Log;
  readonly publishing: Pick<Publishing, "resolve" | "send">;
  readonly replies: Replies;
}

const VERSION = 1;
const ID_SUFFIX = "-ack";
/** Refusals with which the sender's inbox takes no outcome: the action has ended all the same. */
const UNDELIVERABLE = new Set(["QUEUE_FULL", "QUOTA_EXCEEDED", "NOT_FOUND", "IDEMPOTENCY_CONFLICT"]);

/** O1. */
export function outcomeId(msg_id: string): string {
  const id = msg_id + ID_SUFFIX;
  if (Buffer.byteLength(id) <= LIMITS.icc_id_bytes_max) return id;
  return createHash("sha256").update(msg_id).digest("hex") + ID_SUFFIX;
}

/** The end of a text, as long as an outcome may have it. */
export function shortened(text: string): string {
  const bytes = Buffer.from(text);
  const max = LIMITS.action_error_bytes_max;
  if (bytes.length <= max) return text;
  return `…${bytes
    .subarray(bytes.length - max + "…".length * 3)
    .toString()
    .replace(/^\uFFFD+/, "")}`;
}

export class Outcomes {
  readonly #options: OutcomesOptions;

  constructor(options: OutcomesOptions) {
    this.#options = options;
  }

  /** The outcome that an earlier attempt at the action has published already, or null. */
  async earlier(tenant_id: string, container_id: string, action: Envelope): Promise<AckPayload | null> {
    const { bus } = this.#options;
    const address = await this.#inboxOf(tenant_id, action.from);
    if (address === null) return null;
    const entry = await bus.entry({ tenant_id, inbox: address.text, msg_id: outcomeId(action.msg_id) });
    const outcome = entry === null ? null : readStored(entry.envelope);
    if (outcome === null) return null;
    const { from, correlation_id, payload } = outcome;
    const isOurs = from === container_id && correlation_id === action.msg_id && payload.kind === "ack";
    return isOurs ? payload.value : null;
  }

  /**
   * Publishes an outcome, durable when this resolves. Repeats it while the bus cannot be reached; rejects with the bus's refusal
   * when that lasts, or the daemon stops.
   */
  async tell(tenant_id: string, container_id: string, action: Envelope, value: AckPayload): Promise<void> {
    const { replies } = this.#options;
    const address = await this.#inboxOf(tenant_id, action.from);
    const envelope = this.#envelope(container_id, address?.text ?? action.from, action, value);
    const isNamed = address === null || address.text !== action.from;
    if (isNamed && replies.has(tenant_id, action.from, action.msg_id)) replies.settle(tenant_id, action.from, envelope);
    if (address !== null) await this.#publish(tenant_id, envelope, address);
  }

  async #publish(tenant_id: string, envelope: Envelope, address: Address): Promise<void> {
    const { publishing, clock, log } = this.#options;
    for (let attempts = 1; ; attempts++) {
      try {
        await publishing.send(tenant_id, { envelope, bytes: encodeEnvelope(envelope), address });
        return;
      } catch (error) {
        if (error instanceof AppError && UNDELIVERABLE.has(error.code)) {
          const { msg_id, correlation_id, to } = envelope;
          log.warn("outcome of an action not delivered", { msg_id, correlation_id, to, error: errorText(error) });
          return;
        }
        const mayPass = error instanceof AppError && error.code === "SERVICE_UNAVAILABLE";
        if (!mayPass || attempts >= LIMITS.action_outcome_attempts_max) throw error;
        await new Promise<void>((resolve) => clock.after(1_000, resolve));
      }
    }
  }

  /** The inbox of a sender: a container, a queue or a topic; null: it has none. */
  async #inboxOf(tenant_id: string, from: string): Promise<Address | null> {
    try {
      const address = await this.#options.publishing.resolve(tenant_id, from);
      return address.kind === "state" ? null : address;
    } catch (error) {
      if (error instanceof AppError && (error.code === "NOT_FOUND" || error.code === "INVALID_ARGUMENT")) return null;
      throw error;
    }
  }

  #envelope(from: string, to: string, action: Envelope, value: AckPayload): Envelope {
    const { msg_id, request_id, trace_id } = action;
    return {
      version: VERSION,
      msg_id: outcomeId(msg_id),
      ...{ request_id, trace_id, correlation_id: msg_id, causation_id: msg_id },
      ...{ from, to, stream_key: "", seq: 0 },
      sent_at: Math.floor(this.#options.clock.epochMs()),
      ttl_ms: LIMITS.icc_message_kept_ms,
      ...{ permission_level: "ADMIN", idempotency_key: "" },
      payload: { kind: "ack", value },
    };
  }
}
