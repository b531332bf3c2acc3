/**
 * The path of a published message: the check of its sender, the inbox that it reaches, and the inboxes that get a copy.
 *
 * P1. A container is itself: it can name no other sender, and no permission level above its grant.
 * P2. Receivers of an inbox get no actions (exec_command, file_patch, …): the platform applies them.
 * P3. A reply to a request that waits is a record in the inbox, and no receiver gets it.
 * P4. A message to `state:<key>` becomes the key's value, and is kept nowhere else.
 * P5. A key runs a command by a message only with the scope that exec needs.
 * P6. Each action that is accepted is told once for each container, with the credential that sent it.
 */
import { type Caller, lacksScope, type Scope } from "../base/caller.ts";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import { type Address, parseAddress, streamOf, subjectOf } from "./addresses.ts";
import type { Bus, Outgoing } from "./bus/port.ts";
import {
  decodeEnvelope,
  type Envelope,
  encodeEnvelope,
  type PayloadKind,
  readStored,
  rewriteEnvelope,
} from "./envelope/envelope.ts";
import type { JsonMessage } from "./envelope/message-schema.ts";
import { messageType } from "./envelope/message-type.ts";
import { envelopeOf } from "./envelope/messages.ts";
import { invalid } from "./envelope/refusal.ts";
import { expiresAt, isWithin, validateEnvelope } from "./envelope/validation.ts";
import type { Grants } from "./grants.ts";
import type { Replies } from "./replies.ts";
import type { States } from "./state/service.ts";
import type { MessageTracing, SenderTrace } from "./tracing.ts";

/** The credential that sends: of a request, or the socket of a container, whose id is `key_id`. */
export interface SentBy {
  readonly credential: Caller["kind"] | "container";
  readonly key_id: string;
  /** Of the client. */
  readonly address: string | null;
}

/** A command for a container: what the audit log has of it. */
export interface SentCommand {
  readonly tenant_id: string;
  readonly container_id: string;
  /** Kind of the payload. */
  readonly operation: string;
  /** Id of the message or the request. */
  readonly id: string;
  /** Absent: the platform. */
  readonly by: SentBy | undefined;
}

/** The sender: a container by its socket, or a key of the tenant. */
export interface Sender {
  readonly tenant_id: string;
  /** Null: a key of the tenant, which may name any sender. */
  readonly container: { readonly id: string; readonly name: string } | null;
  /** The trace of its request: a message without a trace_id belongs to it. Absent: the platform sends without a request. */
  readonly trace?: SenderTrace | undefined;
  /** Scopes of the key; absent: a container by its socket, or the daemon. */
  readonly scopes?: readonly Scope[];
  readonly by?: SentBy;
}

/** The sender that a key of the tenant is, unless the message names another. */
export const API_SENDER = "api";

/** Payload kinds that the platform applies on a container. */
const ACTIONS: ReadonlySet<PayloadKind> = new Set<PayloadKind>([
  "state_patch",
  "exec_command",
  "file_patch",
  "env_patch",
  "lifecycle_action",
]);

/** Ids of containers, as keys of states. */
const CONTAINER_KEY = /^ctr_/;

/** An envelope as bytes, or a message in plain JSON. */
export type Content = { readonly bytes: Uint8Array } | { readonly message: JsonMessage };

export interface Accepted {
  readonly msg_id: string;
  /** Name of the inbox. */
  readonly inbox: string;
  readonly stream: string;
  readonly subject: string;
  readonly stream_seq: number;
  readonly duplicate: boolean;
}

/** A message whose sender and target are known. */
export interface Prepared {
  readonly envelope: Envelope;
  readonly bytes: Uint8Array;
  /** No sender names the inbox of a binding: only a replay goes there. */
  readonly address: Address | { readonly kind: "binding"; readonly text: string };
  readonly trace?: SenderTrace | undefined;
  readonly by?: SentBy | undefined;
}

export interface PublishingOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly grants: Grants;
  readonly replies: Replies;
  readonly states: States;
  readonly tracing: MessageTracing;
  /** The id of a container by id or name; null: the tenant has none. */
  readonly containerOf: (tenant_id: string, id_or_name: string) => Promise<string | null>;
  /** Inboxes of subscribers that get a copy. */
  readonly copiesOf: (
    tenant_id: string,
    message: { readonly to: string; readonly type: string },
  ) => readonly string[] | Promise<readonly string[]>;
  /** The platform has something to apply in that inbox. */
  readonly onAction: (tenant_id: string, inbox: string) => void;
  readonly onCommand: (command: SentCommand) => void;
}

export class Publishing {
  readonly #options: PublishingOptions;

  constructor(options: PublishingOptions) {
    this.#options = options;
  }

  /**
   * Publishes a message. Rejects with INVALID_ARGUMENT for an invalid envelope, FORBIDDEN for a sender or level that the
   * container may not have, NOT_FOUND for an unknown target, and as `Bus.publish`.
   */
  async publish(sender: Sender, content: Content): Promise<Accepted> {
    const prepared = await this.prepare(sender, content);
    return this.send(sender.tenant_id, prepared);
  }

  /** Decodes, checks and resolves a message, and sends nothing. */
  async prepare(sender: Sender, content: Content): Promise<Prepared> {
    const { envelope, bytes, trace, by } = await this.check(sender, content);
    const address = await this.resolve(sender.tenant_id, envelope.to);
    if (address.text === envelope.to) return { envelope, bytes, trace, by, address };
    const changes = { to: address.text };
    return { envelope: { ...envelope, ...changes }, bytes: rewriteEnvelope(bytes, changes), trace, by, address };
  }

  /** Decodes a message and checks it with its sender, wherever it goes. */
  async check(sender: Sender, content: Content): Promise<Omit<Prepared, "address">> {
    const { clock, ids } = this.#options;
    const { trace, by } = sender;
    const now_ms = Math.floor(clock.epochMs());
    const envelope =
      "bytes" in content
        ? decodeEnvelope(content.bytes)
        : envelopeOf(content.message, { from: sender.container?.id ?? API_SENDER, msg_id: ids.next("msg"), now_ms });
    validateEnvelope(envelope, now_ms);
    await this.#checkSender(sender, envelope);
    await this.#checkState(sender, envelope);
    const bytes = "bytes" in content ? content.bytes : encodeEnvelope(envelope);
    const changes = {
      // A container is known by its id, by whichever of its names it sends.
      ...(sender.container === null || envelope.from === sender.container.id ? {} : { from: sender.container.id }),
      ...(trace === undefined || envelope.trace_id !== "" ? {} : { trace_id: trace.trace_id }),
    };
    if (Object.keys(changes).length === 0) return { envelope, bytes, trace, by };
    return { envelope: { ...envelope, ...changes }, bytes: rewriteEnvelope(bytes, changes), trace, by };
  }

  /** Publishes what was prepared. Rejects as `Bus.publish`, and to `state:` as `States.put` and `States.patch`. */
  async send(tenant_id: string, prepared: Prepared): Promise<Accepted> {
    const { tracing, clock } = this.#options;
    if (!tracing.isExporting) return this.#send(tenant_id, prepared);
    const { envelope, address, trace = null } = prepared;
    const about = { tenant_id, envelope, target: address.kind, trace, begun_ms: clock.monotonicMs() };
    try {
      const accepted = await this.#send(tenant_id, prepared);
      tracing.sent({ ...about, isNew: !accepted.duplicate, error: null });
      return accepted;
    } catch (error) {
      tracing.sent({ ...about, isNew: false, error });
      throw error;
    }
  }

  async #send(tenant_id: string, { envelope, bytes, address, by }: Prepared): Promise<Accepted> {
    if (address.kind === "state") return this.#sendState(tenant_id, address.key, envelope);
    const { bus, clock, replies, copiesOf, onAction, onCommand } = this.#options;
    const inbox = address.text;
    const isReply = replies.has(tenant_id, inbox, envelope.correlation_id);
    const isAction = address.kind === "container" && ACTIONS.has(envelope.payload.kind);
    const isAlone = isAction || address.kind === "binding";
    const found = isAlone ? [] : copiesOf(tenant_id, { to: inbox, type: messageType(envelope) });
    const copies = found instanceof Promise ? await found : found;
    checkCopies(copies.length, bytes.byteLength);
    const outgoing: Outgoing = {
      ...{ tenant_id, inbox, envelope: bytes },
      msg_id: envelope.msg_id,
      idempotency_key: envelope.idempotency_key,
      expires_ms: expiresAt(envelope, clock.epochMs()),
      is_settled: isReply || address.kind === "topic",
      is_action: isAction,
      copies,
    };
    const { stream_seq, is_duplicate } = await bus.publish(outgoing);
    if (!is_duplicate) {
      if (isReply) replies.settle(tenant_id, inbox, envelope);
      if (isAction) {
        const { msg_id: id, payload } = envelope;
        onCommand({ tenant_id, container_id: inbox, operation: payload.kind, id, by });
        onAction(tenant_id, inbox);
      }
    }
    return {
      msg_id: envelope.msg_id,
      inbox,
      stream: streamOf(inbox),
      subject: subjectOf(inbox),
      stream_seq,
      duplicate: is_duplicate,
    };
  }

  /** The inbox that an address means. Rejects with NOT_FOUND for a container that the tenant does not have. */
  async resolve(tenant_id: string, text: string): Promise<Address> {
    const address = parseAddress(text);
    if (address.kind !== "container") return address;
    const id = await this.#options.containerOf(tenant_id, text);
    if (id !== null) return { kind: "container", text: id };
    throw new AppError("NOT_FOUND", `container '${text.slice(0, 256)}' not found`, {
      reason_code: "UNKNOWN_TARGET",
      ...(text.includes(":") ? { hint: "an address other than a container begins with queue:, topic: or state:" } : {}),
    });
  }

  /** P4. `stream_seq` of the answer is the version of the key. */
  async #sendState(tenant_id: string, key: string, { msg_id, from, payload }: Envelope): Promise<Accepted> {
    const inbox = `state:${key}`;
    const written = await this.#writeState(tenant_id, key, { msg_id, from, payload });
    const { version: stream_seq, is_duplicate: duplicate } = written;
    return { msg_id, inbox, stream: streamOf(inbox), subject: subjectOf(inbox), stream_seq, duplicate };
  }

  #writeState(
    tenant_id: string,
    key: string,
    { msg_id, from, payload }: Pick<Envelope, "msg_id" | "from" | "payload">,
  ) {
    const { states } = this.#options;
    switch (payload.kind) {
      case "state_snapshot": {
        const { content_type, data } = payload.value;
        return states.put(tenant_id, { key, content_type, data, from, if_version: null, msg_id });
      }
      case "state_patch": {
        const { content_type, patch, desired_state_version, apply_mode } = payload.value;
        const if_version = desired_state_version === 0 ? null : desired_state_version;
        const is_dry = apply_mode === "DRY_RUN";
        return states.patch(tenant_id, { key, content_type, patch, from, if_version, msg_id, is_dry });
      }
      default:
        throw invalid("payload", `must be a state_snapshot or a state_patch for state:${key}: ${payload.kind}`);
    }
  }

  /** A message to a state is applied at once: a second key for it is not kept. */
  async #checkState({ container }: Sender, { to, idempotency_key }: Envelope): Promise<void> {
    const address = parseAddress(to);
    if (address.kind !== "state") return;
    if (idempotency_key !== "") {
      throw invalid("idempotency_key", "must be empty for a state: the msg_id of its last message is the key");
    }
    if (container !== null) await this.checkStateKey(container.id, address.key);
  }

  /**
   * Rejects with FORBIDDEN if a container may not write a key: the state of another container, unless its grant is WRITE_STATE or
   * above.
   */
  async checkStateKey(container_id: string, key: string): Promise<void> {
    if (!CONTAINER_KEY.test(key) || key === container_id) return;
    if (isWithin("WRITE_STATE", await this.#options.grants.get(container_id))) return;
    throw new AppError("FORBIDDEN", `the state '${key}' is that of another container`, {
      reason_code: "PERMISSION_DENIED",
      hint: `a key of the tenant can raise the level to WRITE_STATE: PUT /api/icc/containers/${container_id}/permission`,
    });
  }

  async #checkSender({ container, tenant_id, scopes }: Sender, envelope: Envelope): Promise<void> {
    checkScopes(envelope.payload.kind, scopes);
    if (container === null) return;
    if (envelope.from !== container.id && envelope.from !== container.name) {
      throw new AppError("FORBIDDEN", "a container sends in its own name alone", {
        reason_code: "PERMISSION_DENIED",
        details: { expected: [container.id, container.name], received: envelope.from },
        hint: "leave out 'from'",
      });
    }
    const grant = await this.#options.grants.get(container.id);
    if (isWithin(envelope.permission_level, grant) || (await this.#isReply(tenant_id, container.id, envelope))) return;
    throw new AppError(
      "FORBIDDEN",
      `permission level ${envelope.permission_level} exceeds that of the container: ${grant}`,
      {
        reason_code: "PERMISSION_DENIED",
        details: { expected: [grant], received: envelope.permission_level },
        hint: `a key of the tenant can raise it: PUT /api/icc/containers/${container.id}/permission`,
      },
    );
  }

  /** An ack or error payload for the sender of a message in the container's own inbox needs no grant. */
  async #isReply(tenant_id: string, inbox: string, { payload, correlation_id, to }: Envelope): Promise<boolean> {
    if ((payload.kind !== "ack" && payload.kind !== "error") || correlation_id === "") return false;
    const { bus, containerOf } = this.#options;
    const request = await bus.entry({ tenant_id, inbox, msg_id: correlation_id });
    if (request === null) return false;
    const asked = readStored(request.envelope);
    // The platform alone tells how an action ended.
    if (asked === null || ACTIONS.has(asked.payload.kind)) return false;
    // The container may have sent it to itself, which asks for no reply to others.
    const { from } = asked;
    if (from === to) return true;
    const [asker, target] = await Promise.all([containerOf(tenant_id, from), containerOf(tenant_id, to)]);
    return asker !== null && asker === target;
  }
}

/** The credential of a request. */
export function sentBy({ kind: credential, key_id }: Caller, address: string | null): SentBy {
  return { credential, key_id, address };
}

/** P5. Throws FORBIDDEN; no scopes: the sender is no key. */
export function checkScopes(kind: PayloadKind, scopes: Sender["scopes"]): void {
  if (kind === "exec_command" && scopes !== undefined && !scopes.includes("invoke")) throw lacksScope("invoke");
}

function checkCopies(count: number, bytes: number): void {
  const max = LIMITS.message_copies_bytes_max;
  if (count * bytes <= max) return;
  throw new AppError("BODY_TOO_LARGE", `${count} copies of a message of ${bytes} bytes exceed ${max} bytes`, {
    details: { expected: [`<= ${Math.floor(max / count)} bytes`], received: `${bytes} bytes` },
  });
}
