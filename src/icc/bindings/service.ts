/**
 * Function bindings: the daemon calls a function for each message of a queue, or for copies of messages to an address or of
 * a type. A binding ends with its function, its container and its tenant, by triggers of the store.
 */
import { type Clock, sleep, toEpochSeconds } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Trace } from "../../base/trace.ts";
import type { Store } from "../../store/store.ts";
import type { Publishing } from "../publishing.ts";
import type { Icc } from "../service.ts";
import { TenantSlots } from "../tenant-slots.ts";
import { type MessageTracing, underRequest } from "../tracing.ts";
import { type Binding, BindingRows, inboxOf, takes } from "./rows.ts";
import { type Answered, type CallOutcome, Runner } from "./runner.ts";
import type { BindFunction } from "./schema.ts";

/** Functions, as bindings need them. */
export interface BoundFunctions {
  /** By id or name. Rejects with NOT_FOUND. */
  find(tenant_id: string, id_or_name: string): Promise<{ readonly id: string; readonly name: string }>;
  /** Calls a function as the tenant, and resolves to the committed record. Rejects with what refuses the call. */
  call(
    binding: { readonly id: string; readonly tenant_id: string; readonly function_id: string },
    payload: string,
    trace: Trace | null,
  ): Promise<CallOutcome>;
}

export interface BindingsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly icc: Icc;
  readonly publishing: Publishing;
  readonly functions: BoundFunctions;
  readonly tracing: MessageTracing;
}

const SUBJECT_PREFIX = "jets.cmd.";
const REPLY_TYPE = "reply";

export class Bindings {
  readonly #options: BindingsOptions;
  readonly #rows: BindingRows;
  readonly #slots = new TenantSlots({ all_max: LIMITS.binding_calls_max, tenant_max: LIMITS.tenant_binding_calls_max });
  readonly #runners = new Map<string, Map<string, Runner>>();
  #hasBegun = false;
  #isClosed = false;

  constructor(options: BindingsOptions) {
    this.#options = options;
    this.#rows = new BindingRows(options.store);
  }

  /** Loads the bindings, so that messages are copied for them. */
  async boot(): Promise<void> {
    for (const binding of await this.#rows.all()) this.#add(binding);
  }

  /** Calls functions from now on. */
  begin(): void {
    this.#hasBegun = true;
    for (const runner of this.#all()) runner.begin();
  }

  /** Inboxes of bindings that get a copy of the message. */
  copiesOf(tenant_id: string, message: { readonly to: string; readonly type: string }): string[] {
    const own = this.#runners.get(tenant_id);
    if (own === undefined) return [];
    return [...own.values()].filter(({ binding }) => takes(binding, message)).map(({ binding }) => inboxOf(binding));
  }

  /** Binds a function. Rejects with NOT_FOUND, INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async create(tenant_id: string, input: BindFunction) {
    const { clock, ids, functions } = this.#options;
    const found = await functions.find(tenant_id, input.function);
    const address = await this.#subject(tenant_id, input);
    const binding: Binding = {
      ...{ id: ids.next("bnd"), tenant_id, function_id: found.id, function_name: found.name },
      ...{ subject: address?.text ?? null, message_type: input.message_type ?? null },
      ...{ is_ordered: input.ordered, replies: input.reply, max_deliver: input.max_deliver },
      ...{ backoff_ms: input.backoff_ms, concurrency: input.concurrency },
      created_at: toEpochSeconds(clock.epochMs()),
    };
    if (!(await this.#rows.insert(binding, address?.kind === "container" ? address.text : null))) {
      if ((await this.#rows.list(tenant_id)).length >= LIMITS.tenant_bindings_max) {
        throw new AppError("QUOTA_EXCEEDED", `the tenant has ${LIMITS.tenant_bindings_max} bindings already`);
      }
      throw new AppError("NOT_FOUND", "the function or the container was deleted");
    }
    const runner = this.#add(binding);
    if (this.#hasBegun && !this.#isClosed) runner.begin();
    return this.#item(binding);
  }

  async list(tenant_id: string) {
    return { bindings: (await this.#rows.list(tenant_id)).map((binding) => this.#item(binding)) };
  }

  /** Rejects with NOT_FOUND. */
  async get(tenant_id: string, id: string) {
    const binding = await this.#rows.get(tenant_id, id);
    if (binding === null) throw missing(id);
    return this.#item(binding);
  }

  /** Deletes a binding with its inbox; calls in flight end. Rejects with NOT_FOUND. */
  async delete(tenant_id: string, id: string): Promise<void> {
    if (!(await this.#rows.delete(tenant_id, id))) throw missing(id);
    await this.#drop(tenant_id, id);
  }

  /** Ends the bindings of the tenant that are in the store no more. */
  async refresh(tenant_id: string): Promise<void> {
    const known = [...(this.#runners.get(tenant_id)?.keys() ?? [])];
    if (known.length === 0) return;
    const left = new Set((await this.#rows.list(tenant_id)).map(({ id }) => id));
    for (const id of known) if (!left.has(id)) await this.#drop(tenant_id, id);
  }

  /** A function of the tenant is gone, or may be. */
  noteDeleted(tenant_id: string): void {
    this.refresh(tenant_id).catch((error) => {
      this.#options.log.warn("cannot read bindings, retrying later", { error: errorText(error) });
    });
  }

  /** Ends what a crash or a race left: bindings without a row, and inboxes without a binding. */
  async prune(): Promise<void> {
    for (const tenant_id of [...this.#runners.keys()]) await this.refresh(tenant_id);
    for (const key of await this.#rows.orphans()) await this.#options.icc.bus.remove(key);
  }

  /** Receives no more, and waits for calls in flight for a while. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const { clock } = this.#options;
    for (const runner of this.#all()) runner.end();
    const end_ms = clock.monotonicMs() + LIMITS.drain_ms;
    while (this.#all().some(({ in_flight }) => in_flight > 0) && clock.monotonicMs() < end_ms) {
      await sleep(clock, LIMITS.self_check_look_ms);
    }
  }

  #all(): Runner[] {
    return [...this.#runners.values()].flatMap((own) => [...own.values()]);
  }

  #add(binding: Binding): Runner {
    const { clock, ids, log, icc, functions } = this.#options;
    const runner = new Runner(binding, {
      ...{ bus: icc.bus, clock, ids, log, slots: this.#slots },
      call: (bound, payload, trace) => functions.call(bound, payload, trace),
      reply: (bound, answered) => this.#reply(bound, answered),
      tracing: this.#options.tracing,
      onMissing: (tenant_id) => this.noteDeleted(tenant_id),
    });
    const own = this.#runners.get(binding.tenant_id) ?? new Map<string, Runner>();
    this.#runners.set(binding.tenant_id, own.set(binding.id, runner));
    return runner;
  }

  async #drop(tenant_id: string, id: string): Promise<void> {
    const own = this.#runners.get(tenant_id);
    own?.get(id)?.end();
    own?.delete(id);
    if (own?.size === 0) this.#runners.delete(tenant_id);
    await this.#options.icc.bus.remove({ tenant_id, inbox: `binding:${id}` });
  }

  async #subject(tenant_id: string, { subject = null, message_type = null }: BindFunction) {
    if (subject === null) {
      if (message_type !== null) return null;
      throw new AppError("INVALID_ARGUMENT", "a binding needs a subject or a message_type");
    }
    const text = subject.startsWith(SUBJECT_PREFIX) ? subject.slice(SUBJECT_PREFIX.length) : subject;
    const address = await this.#options.publishing.resolve(tenant_id, text);
    if (address.kind === "state") {
      throw new AppError("INVALID_ARGUMENT", `subject must not be a state: ${text}`, {
        details: { expected: ["container id or name", "queue:<name>", "topic:<name>"] },
        hint: "watch the states, or bind a topic",
      });
    }
    if (address.kind !== "queue" || message_type === null) return address;
    throw new AppError("INVALID_ARGUMENT", "message_type: a binding of a queue receives all messages of the queue", {
      hint: "leave out message_type, or publish to a topic",
    });
  }

  /** Publishes the result to the sender. A message that is a reply itself gets none, so that two bindings never answer each other for ever. */
  async #reply(binding: Binding, { request, outcome: { result, stdout }, trace }: Answered): Promise<void> {
    if (request.correlation_id !== "") return;
    const { publishing, icc } = this.#options;
    const sender = {
      ...{ tenant_id: binding.tenant_id, container: null },
      ...(trace === null ? {} : { trace: underRequest(trace) }),
    };
    const msg_id = `${request.msg_id}-reply`;
    const message = {
      ...{ to: request.from, from: inboxOf(binding), type: REPLY_TYPE, payload: result ?? stdout },
      ...{ correlation_id: request.msg_id, causation_id: request.msg_id, trace_id: request.trace_id },
      // The same id again after a crash: its receiver gets one reply.
      ...(Buffer.byteLength(msg_id) <= LIMITS.icc_id_bytes_max ? { msg_id } : {}),
    };
    const { envelope } = await publishing.check(sender, { message });
    if (icc.answer(binding.tenant_id, request.from, envelope)) return;
    await publishing.publish(sender, { message }).catch((error) => {
      // A sender without an inbox, such as a key that waits no more.
      if (!(error instanceof AppError) || (error.code !== "NOT_FOUND" && error.code !== "INVALID_ARGUMENT"))
        throw error;
    });
  }

  #item(binding: Binding) {
    const { id: binding_id, tenant_id: _, is_ordered: ordered, replies: reply, ...fields } = binding;
    const runner = this.#runners.get(binding.tenant_id)?.get(binding_id);
    return {
      ...{ binding_id, ...fields, ordered, reply, inbox: inboxOf(binding) },
      ...{ in_flight: runner?.in_flight ?? 0, last_error: runner?.last_error ?? null },
    };
  }
}

const missing = (id: string): AppError => new AppError("NOT_FOUND", `binding '${id.slice(0, 100)}' not found`);
