/**
 * The platform as the receiver of actions: messages that change their container. One action of a container at a time, in the
 * order of their numbers; containers of a tenant and all containers have a bounded number of places, which go round.
 *
 * A1. The order of the steps is: apply, publish the outcome, ack. A crash between the first two applies the action again; after
 *     the second it is settled by the outcome that is there.
 * A2. An action ends with an outcome: APPLIED is acked and moves the container's state version in the same commit, CONFLICT and
 *     REJECTED fail it. A dry run is acked, whatever its outcome, and moves nothing.
 *     A message that somebody else settles meanwhile ends its command.
 * A3. Refusals that may pass (no place for a command, a busy machine) put an action off, a few times.
 */
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { Underway } from "../../base/concurrency.ts";
import { AppError, errorText, isFault, publicText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Bus, Delivery, EntryRef, InboxKey } from "../bus/port.ts";
import { type AckPayload, DAMAGED, type Envelope, type ErrorCode, readStored } from "../envelope/envelope.ts";
import { permits } from "../envelope/validation.ts";
import type { Applying } from "./applying.ts";
import { type Outcomes, shortened } from "./outcome.ts";
import { Places } from "./places.ts";

export interface ActionsOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly log: Log;
  readonly applying: Applying;
  readonly outcomes: Outcomes;
}

/** Refusals that are retryable for a client, and an end here. */
const FINAL: ReadonlySet<string> = new Set(["TIMEOUT", "START_FAILED"]);

/** Result of an attempt: an outcome, or the delay before a retry. */
type Attempt = { readonly outcome: AckPayload } | { readonly again_ms: number };

export class Actions {
  readonly #options: ActionsOptions;
  readonly #places: Places;
  readonly #ending = new AbortController();
  readonly #underway = new Underway();
  /** Containers that are looked at again, by their inbox. */
  readonly #later = new Map<string, CancelTimer>();

  constructor(options: ActionsOptions) {
    this.#options = options;
    this.#places = new Places({
      tenant_max: LIMITS.actions_per_tenant_at_once,
      all_max: LIMITS.actions_at_once,
      work: (key) => this.#underway.add(this.#turn(key)),
    });
  }

  /** Applies what an earlier daemon has left: at once, and again after the leases that it held. */
  async boot(): Promise<void> {
    for (const key of await this.#options.bus.actionInboxes()) {
      this.due(key);
      this.#lookAgain(key, LIMITS.action_lease_ms + LIMITS.action_retry_ms);
    }
  }

  /** A container may have an action. Harmless if it has none. */
  readonly due = (key: InboxKey): void => {
    if (!this.#ending.signal.aborted) this.#places.add(key);
  };

  /** Begins no more actions, ends commands that run, and waits for the others for a bounded time. */
  async close(): Promise<void> {
    this.#ending.abort();
    this.#places.close();
    for (const cancel of this.#later.values()) cancel();
    this.#later.clear();
    const deadline = Promise.withResolvers<void>();
    const cancel = this.#options.clock.after(LIMITS.action_drain_ms, deadline.resolve);
    await Promise.race([this.#underway.settled(), deadline.promise]);
    cancel();
  }

  /** One action. Resolves to whether the container may have more; never rejects. */
  async #turn(key: InboxKey): Promise<boolean> {
    const { bus, log } = this.#options;
    try {
      const [delivery] = await bus.receive(key, {
        entries_max: 1,
        lease_ms: LIMITS.action_lease_ms,
        max_deliver: LIMITS.max_deliver_max,
        ...{ is_ordered: true, is_action: true },
      });
      if (delivery === undefined) return false;
      return await this.#handle(delivery);
    } catch (error) {
      if (!this.#ending.signal.aborted) {
        log.error("action not finished", { container_id: key.inbox, error: errorText(error) });
        this.#lookAgain(key, LIMITS.action_lease_ms + LIMITS.action_retry_ms);
      }
      return false;
    }
  }

  /** Resolves to false if the container is gone, and with it whatever else waited. */
  async #handle(delivery: Delivery): Promise<boolean> {
    const { bus, outcomes } = this.#options;
    const { tenant_id, inbox, msg_id, lease, deliveries } = delivery;
    const ref: EntryRef = { tenant_id, inbox, msg_id };
    const envelope = readStored(delivery.envelope);
    if (envelope === null) {
      await bus.nack(ref, { lease, reason: DAMAGED });
      return true;
    }
    const cancelling = new AbortController();
    const release = this.#hold(ref, lease, () => cancelling.abort());
    try {
      const earlier = deliveries > 1 ? await outcomes.earlier(tenant_id, inbox, envelope) : null;
      const attempt =
        earlier === null ? await this.#attempt(delivery, envelope, cancelling.signal) : { outcome: earlier };
      if ("again_ms" in attempt) {
        const { again_ms: delay_ms } = attempt;
        release();
        await bus.requeue(ref, { lease, delay_ms, reason: "max_deliver", max_deliver: LIMITS.max_deliver_max });
        if (delay_ms > 0) this.#lookAgain(delivery, delay_ms);
        return delay_ms === 0;
      }
      failpoint("icc.action.applied");
      if (earlier === null) await outcomes.tell(tenant_id, inbox, envelope, attempt.outcome);
      failpoint("icc.action.told");
      release();
      await this.#settle(ref, lease, envelope, attempt.outcome);
      return attempt.outcome.error_code !== "UNKNOWN_TARGET";
    } finally {
      release();
    }
  }

  async #attempt(
    { tenant_id, inbox, deliveries }: Delivery,
    envelope: Envelope,
    cancelled: AbortSignal,
  ): Promise<Attempt> {
    const { bus, applying } = this.#options;
    const { state_version: version } = await bus.facts({ tenant_id, inbox });
    const { desired, is_dry } = conditionsOf(envelope);
    const { permission_level: level, payload } = envelope;
    // It was published while its kind needed a lower level.
    if (!permits(payload.kind, level)) {
      return this.#ended(version, "REJECTED", "PERMISSION_DENIED", `${level} does not permit ${payload.kind}`);
    }
    if (deliveries > LIMITS.action_attempts_max) {
      return this.#ended(version, "REJECTED", "APPLY_FAILED", `${deliveries - 1} attempts had no end`);
    }
    if (desired !== 0 && desired !== version) {
      return this.#ended(version, "CONFLICT", "VERSION_CONFLICT", `the state version is ${version}, not ${desired}`);
    }
    const stopping = this.#ending.signal;
    const signal = AbortSignal.any([stopping, cancelled]);
    try {
      const { from, msg_id } = envelope;
      const note = await applying.apply({ tenant_id, container_id: inbox, from, msg_id, payload, is_dry, signal });
      if (note !== "" && stopping.aborted) return { again_ms: 0 };
      const applied = this.#ended(version, "APPLIED", note === "" ? null : "APPLY_FAILED", note).outcome;
      return { outcome: is_dry ? applied : { ...applied, applied_at: this.#now(), result_version: version + 1 } };
    } catch (error) {
      if (stopping.aborted) return { again_ms: 0 };
      if (cancelled.aborted) return this.#ended(version, "REJECTED", "APPLY_FAILED", "somebody settled the message");
      const mayPass = error instanceof AppError && error.retryable && !FINAL.has(error.code);
      if (mayPass && deliveries < LIMITS.action_attempts_max) {
        return { again_ms: LIMITS.action_retry_ms * 2 ** (deliveries - 1) };
      }
      if (isFault(error)) this.#options.log.error("action failed", { container_id: inbox, error: errorText(error) });
      return this.#ended(version, "REJECTED", codeOf(error), publicText(error));
    }
  }

  #ended(version: number, status: AckPayload["status"], code: ErrorCode | null, text: string) {
    const outcome: AckPayload = {
      ...{ status, applied_at: 0, previous_version: version, result_version: version },
      error_code: code ?? "ERROR_CODE_UNSPECIFIED",
      error_message: shortened(text),
    };
    return { outcome };
  }

  /** A2. An action that somebody else has settled, or that went with its container, has ended. */
  async #settle(ref: EntryRef, lease: string, envelope: Envelope, outcome: AckPayload): Promise<void> {
    const { bus, log } = this.#options;
    const { is_dry } = conditionsOf(envelope);
    const { status, error_code, error_message } = outcome;
    try {
      if (is_dry) await bus.ack(ref, { lease });
      else if (status === "APPLIED") await bus.ack(ref, { lease, moves_version: true });
      else await bus.nack(ref, { lease, reason: `${status} ${error_code}: ${error_message}` });
    } catch (error) {
      if (!isOver(error)) throw error;
      log.info("action was settled meanwhile", { msg_id: ref.msg_id, container_id: ref.inbox });
    }
  }

  /**
   * Prolongs a lease until what is returned is called, which is harmless when repeated. `onLost`: somebody else has settled the
   * message, or its container is gone.
   */
  #hold(ref: EntryRef, lease: string, onLost: () => void): () => void {
    const { bus, clock } = this.#options;
    const lease_ms = LIMITS.action_lease_ms;
    let isHeld = true;
    let cancel: CancelTimer = () => {};
    const arm = () => {
      cancel = clock.after(lease_ms / 3, () => {
        bus
          .extend(ref, { lease, lease_ms })
          .catch((error) => {
            if (isHeld && isOver(error)) onLost();
          })
          .finally(() => {
            if (isHeld) arm();
          });
      });
    };
    arm();
    return () => {
      isHeld = false;
      cancel();
    };
  }

  #lookAgain(key: InboxKey, delay_ms: number): void {
    if (this.#ending.signal.aborted) return;
    const { tenant_id, inbox } = key;
    const name = `${tenant_id}\n${inbox}`;
    this.#later.get(name)?.();
    const cancel = this.#options.clock.after(delay_ms, () => {
      this.#later.delete(name);
      this.due({ tenant_id, inbox });
    });
    this.#later.set(name, cancel);
  }

  #now(): number {
    return Math.floor(this.#options.clock.epochMs());
  }
}

/** On which version an action counts, 0: any; and whether it is a dry run. No mode means ENFORCE. */
function conditionsOf({ payload: { value } }: Envelope): { readonly desired: number; readonly is_dry: boolean } {
  return {
    desired: "desired_state_version" in value ? value.desired_state_version : 0,
    is_dry: "apply_mode" in value && value.apply_mode === "DRY_RUN",
  };
}

/** Returns true for the errors of the bus that mean a settled or deleted message. */
function isOver(error: unknown): boolean {
  return error instanceof AppError && (error.code === "WRONG_STATE" || error.code === "NOT_FOUND");
}

function codeOf(error: unknown): ErrorCode {
  if (!(error instanceof AppError)) return "APPLY_FAILED";
  switch (error.code) {
    case "INVALID_ARGUMENT":
    case "UNPROCESSABLE_ENTITY":
    case "BODY_TOO_LARGE":
      return "INVALID_SCHEMA";
    case "NOT_FOUND":
      return "UNKNOWN_TARGET";
    case "TIMEOUT":
      return "TIMEOUT";
    default:
      return "APPLY_FAILED";
  }
}
