/**
 * Hot path. The pool's launcher for functions: starts instances through the engine, binds them to a version, hands them
 * calls, and turns what happened in the container into an outcome. Whether an instance serves again is decided here by whose
 * fault the outcome is: after an error of the function it may, after a timeout, a memory kill or a lost connection it may
 * not.
 *
 * L1. An instance is bound once. Calls that the pool assigns meanwhile wait for the binding.
 * L2. A version that cannot be loaded makes a fault of its instance, which answers the next call with it and ends. So a
 *     broken handler costs its own calls a record each, and starts no container without a call.
 */
import type { Invoked, InvokeInfo, Launcher } from "../../../pool/index.ts";
import type { Clock } from "../../base/clock.ts";
import { errorText, invariant } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LackingError } from "../../base/lacking.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Adopted, Instance, Instances } from "../../engine/ports.ts";
import type { Classes } from "../classes.ts";
import type { FunctionRecord, InvocationTimings } from "../schema.ts";
import type { Bindings, Bound } from "./bindings.ts";
import type { ApiAccess, Call, Calling } from "./calling.ts";
import { runCommand } from "./commands.ts";
import { IdleCpu, type IdleGroup } from "./idle-cpu.ts";
import {
  type Ending,
  failedEnding,
  IDLE,
  type Outcome,
  oomText,
  rounded,
  type Served,
  timedOutEnding,
} from "./outcome.ts";
import { callResident } from "./residents.ts";
import type { InvocationTokens } from "./tokens.ts";
import { Weights } from "./weights.ts";

export interface LauncherOptions {
  readonly instances: Instances;
  readonly classes: Classes;
  readonly bindings: Bindings;
  readonly clock: Clock;
  readonly log: Log;
  readonly tokens: InvocationTokens;
}

interface Held {
  readonly instance: Instance;
  /** What it was bound to, or is being (L1). Null: a cell. */
  bound: Bound | Promise<Bound> | null;
  /** The kernel's count of memory kills in the instance when it was last read. */
  oom_kills: number;
  /** Calls that run in it and its binding, and those calls that may use the API. */
  running_count: number;
  api_count: number;
  /** Calls that ended in it. */
  served_count: number;
}

/** Takes output of a call after its answer. Returns true if that begins a write. */
type OnLate = (function_seq: number, invocation_id: string, text: string) => boolean;

export class FunctionLauncher implements Launcher<Call, Outcome> {
  readonly #engine: Instances;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #tokens: InvocationTokens;
  readonly #classes: Classes;
  readonly #bindings: Bindings;
  readonly #instances = new Map<string, Held>();
  readonly #starting = new Map<string, Promise<Instance>>();
  readonly #weights: Weights;
  readonly #idle: IdleCpu;
  /** Tenants of running calls that may use the API, by the address of their instance. */
  readonly #api_tenants = new Map<string, string>();
  #api_url = "";
  #onCrash: (instance: string, reason: string) => void = () => {};
  #onForget: (group: string) => void = () => {};
  #onLate: OnLate = () => false;
  #onIdleCpu: (function_of: Pick<IdleGroup, "tenant_id" | "function_name">, used_ms: number) => void = () => {};

  constructor({ instances, classes, bindings, clock, log, tokens }: LauncherOptions) {
    this.#tokens = tokens;
    this.#classes = classes;
    this.#bindings = bindings;
    this.#engine = instances;
    this.#clock = clock;
    this.#log = log;
    this.#weights = new Weights(clock, (id, share) => {
      const held = this.#instances.get(id);
      if (held !== undefined) instances.weigh(held.instance, share);
    });
    this.#idle = new IdleCpu({
      clock,
      onQuiet: (tenant_id, id) => this.#weights.ended(tenant_id, id),
      onUsed: (of, used_ms) => this.#onIdleCpu(of, used_ms),
    });
  }

  onCrash(listener: (instance: string, reason: string) => void): void {
    this.#onCrash = listener;
  }

  /** `listener` hears of every group that the pool has let go. One listener. */
  onForget(listener: (group: string) => void): void {
    this.#onForget = listener;
  }

  /** `listener` hears of the processor time that instances use without a call. One listener. */
  onIdleCpu(listener: (function_of: Pick<IdleGroup, "tenant_id" | "function_name">, used_ms: number) => void): void {
    this.#onIdleCpu = listener;
  }

  /** `listener` takes output of calls after their answers, if it was a call of a resident process. One listener. */
  onLate(listener: OnLate): void {
    this.#onLate = listener;
  }

  /** Tells that listener what idle instances have used up to now. */
  countIdleCpu(): void {
    this.#idle.count();
  }

  /** Where handlers with `api_access` reach the API. Before the first call. */
  setApiUrl(url: string): void {
    this.#api_url = url;
  }

  forget(group: string): void {
    this.#bindings.forget(group);
    this.#onForget(group);
  }

  async start(id: string, key: string): Promise<void> {
    try {
      const starting = this.#startOf(id, key);
      this.#starting.set(id, starting);
      this.#hold(await starting, null);
    } catch (error) {
      // The pool tries again and tells callers only in the end, and nobody when the start was for the reserve. It looks
      // several times a second for GPUs.
      if (!(error instanceof LackingError)) {
        this.#log.warn("cannot start an instance", { instance: id, error: errorText(error) });
      }
      throw error;
    } finally {
      this.#starting.delete(id);
    }
  }

  async #startOf(id: string, key: string): Promise<Instance> {
    const of = await this.#classes.startable(key);
    invariant(of !== null, `class ${key} is known`);
    return this.#engine.start(id, of);
  }

  #hold(instance: Instance, bound: Held["bound"]): void {
    const { id } = instance;
    const counts = { oom_kills: 0, running_count: 0, api_count: 0, served_count: 0 };
    const held: Held = { instance, bound, ...counts };
    this.#instances.set(id, held);
    instance.minit.onClosed(() => this.#onCrash(id, "its minit closed the connection"));
    instance.resident?.ended.then(
      () => {
        // L2. The loss of a process that serves calls is told by each of them.
        if (!isFaulty(held.bound)) this.#onCrash(id, "its process ended");
      },
      () => {},
    );
    if (bound instanceof Promise) this.#settle(held, bound).catch(() => {});
  }

  /** Takes over an instance that an earlier process had started, bound to `group` or a cell. Before the pool hears of it. */
  adopt(adopted: Adopted, group: string | null): void {
    const { instance } = adopted;
    // An earlier process may have lowered it.
    this.#engine.weigh(instance, 1);
    try {
      this.#hold(instance, group === null ? null : this.#bindings.adopt(adopted, group));
      const record = group === null ? null : this.#bindings.recordOf(group);
      if (record !== null) this.#idle.ended(instance.id, this.#idleGroup(instance, record));
    } catch (error) {
      this.#hold(instance, null);
      this.#log.warn("lost an instance of the previous daemon", { instance: instance.id, error: errorText(error) });
      instance.minit.close();
    }
  }

  async specialise(id: string, group: string): Promise<void> {
    const held = this.#held(id);
    try {
      await this.#bind(held, group);
      // Answers only after the binding stands, and shows that the instance lives before it is called ready.
      if (!isFaulty(held.bound)) await held.instance.minit.ping(LIMITS.start_timeout_ms, this.#clock);
    } catch (error) {
      this.#log.warn("cannot bind an instance", { instance: id, group, error: errorText(error) });
      throw error;
    }
  }

  async invoke(id: string, group: string, call: Call, info: InvokeInfo): Promise<Invoked<Outcome>> {
    const held = this.#held(id);
    failpoint("functions.invoke.assigned");
    const found = info.specialise ? this.#bind(held, group) : held.bound;
    const bound = found instanceof Promise ? await found : found;
    invariant(bound !== null, `instance ${id} is bound`);
    const { instance } = held;
    const base = { cold_start: info.cold, instance_nonce: instance.nonce };
    const timings = {
      queue: rounded(info.waited_ms),
      ...(info.specialise ? { cell: rounded(bound.cell_ms) } : {}),
      ...(info.specialise && bound.load_ms !== null ? { load: rounded(bound.load_ms) } : {}),
      // Not of a call that joins others in an instance that is cold for them too.
      ...(info.cold && !info.cell_hit && held.running_count === 0 ? startTimings(instance) : {}),
    };
    if (bound.fault !== null) {
      // L2.
      return { outcome: { ...base, ...bound.fault, timings: { ...timings, handler: 0 } }, reuse: false, idle: IDLE };
    }
    const { ending, handler_ms, reuse, idle } = await this.#serve(held, bound, call);
    held.served_count += 1;
    if (!reuse) this.#bindings.suspect(group);
    const { instance_calls_max } = call.target.record;
    const isUsedUp = instance_calls_max !== null && held.served_count >= instance_calls_max;
    return {
      outcome: { ...base, ...ending, timings: { ...timings, handler: rounded(handler_ms) } },
      reuse: reuse && !isUsedUp,
      idle,
    };
  }

  /** Runs a call in an instance that is bound, and ends what was given to it for the call. Never rejects. */
  async #serve(held: Held, bound: Bound, call: Call): Promise<Served> {
    const { instance } = held;
    const { record } = call.target;
    const begun_ms = this.#clock.monotonicMs();
    const timeout_ms = Math.min(call.timeout_ms, Math.max(1, Math.ceil(call.ends_ms - begun_ms)));
    const token = record.api_access ? this.#token(call, begun_ms + timeout_ms) : null;
    if (token !== null) this.#admit(held, record.tenant_id);
    const calling: Calling = {
      call,
      timeout_ms,
      deadline_epoch_ms: this.#clock.epochMs() + timeout_ms,
      api: token === null ? null : this.#access(token),
      environment: bound.environment,
      // It holds no payload.
      onLate: lateOf(call, (...late) => this.#onLate(...late)),
      hasOomKill: () => this.#hasOomKill(held),
    };
    // minit keeps the deadline; where it cannot, the container is ended from outside.
    let isOverdue = false;
    const cancel = this.#clock.after(timeout_ms + LIMITS.deadline_grace_ms, () => {
      isOverdue = true;
      instance.minit.close();
    });
    this.#begin(held, record.tenant_id);
    try {
      return instance.resident === null
        ? await runCommand(instance.minit, calling)
        : await callResident(instance.resident, calling);
    } catch (error) {
      const ending = isOverdue ? timedOutEnding(timeout_ms) : this.#lostEnding(held, record.memory_limit_mb, error);
      return { ending, handler_ms: this.#clock.monotonicMs() - begun_ms, reuse: false, idle: IDLE };
    } finally {
      cancel();
      this.#end(held, record);
      if (token !== null) {
        this.#tokens.revoke(token);
        if (--held.api_count === 0) this.#api_tenants.delete(instance.address);
      }
    }
  }

  #lostEnding(held: Held, memory_limit_mb: number, error: unknown): Ending {
    return failedEnding(this.#hasOomKill(held) ? oomText(memory_limit_mb) : `instance lost: ${errorText(error)}`);
  }

  #access(token: string): ApiAccess {
    return { url: this.#api_url, token };
  }

  #admit(held: Held, tenant_id: string): void {
    held.api_count += 1;
    this.#api_tenants.set(held.instance.address, tenant_id);
  }

  /** The tenant of the calls with `api_access` that run in the instance at this address; null where none runs. */
  apiTenantAt(address: string): string | null {
    return this.#api_tenants.get(address) ?? null;
  }

  /** A credential that acts for the function's tenant until the call ends. */
  #token({ target: { record }, invocation_id, depth }: Call, expires_ms: number): string {
    const { tenant_id, id: function_id, api_scopes: scopes } = record;
    return this.#tokens.issue({ tenant_id, function_id, invocation_id, scopes, depth, expires_ms });
  }

  /** The credentials of a tenant's running calls end; those of calls that begin later do not. */
  endTokens(tenant_id: string): void {
    this.#tokens.revokeAll(tenant_id);
  }

  async remove(id: string): Promise<void> {
    // A start cannot be called back; it ends within its own deadline, and then there is something to remove or not.
    await this.#starting.get(id)?.catch(() => {});
    const held = this.#instances.get(id);
    if (held === undefined) return;
    // Nobody asks again: what could not be removed is for the engine's reaper.
    this.#instances.delete(id);
    this.#idle.forget(id);
    this.#weights.forget(id);
    try {
      await this.#engine.remove(held.instance);
    } finally {
      this.#bindings.release(id);
    }
  }

  #held(id: string): Held {
    const held = this.#instances.get(id);
    invariant(held !== undefined, `instance ${id} is known`);
    return held;
  }

  /**
   * Whether the kernel has killed for memory in the instance since this was last asked. It is asked after each call
   * that failed, so what a failing handler's child died of is never held against a later call. After a success nothing
   * is read: a kill that a handler survived can pass only for the reason of a later SIGKILL, never of a plain exit.
   */
  #hasOomKill(held: Held): boolean {
    const before = held.oom_kills;
    held.oom_kills = this.#engine.oomKills(held.instance);
    return held.oom_kills > before;
  }

  /** Binds an instance to a group's version (L1). At once if the version needs its limits alone. */
  #bind(held: Held, group: string): Bound | Promise<Bound> {
    const binding = this.#bindings.bind(held.instance, group, () => this.#hasOomKill(held));
    held.bound = binding;
    return binding instanceof Promise ? this.#load(held, group, binding) : binding;
  }

  /** A handler that is being loaded draws on the processor's share of its tenant, as calls do. */
  async #load(held: Held, group: string, binding: Promise<Bound>): Promise<Bound> {
    const record = this.#bindings.recordOf(group);
    invariant(record !== null, `group ${group} has a version`);
    this.#begin(held, record.tenant_id);
    try {
      return await this.#settle(held, binding);
    } finally {
      this.#end(held, record);
    }
  }

  #begin(held: Held, tenant_id: string): void {
    if (held.running_count++ > 0) return;
    const { id } = held.instance;
    this.#idle.began(id);
    this.#weights.began(tenant_id, id);
  }

  #end(held: Held, record: FunctionRecord): void {
    if (--held.running_count > 0) return;
    const { instance } = held;
    // Removal is under way.
    const isHeld = this.#instances.get(instance.id) === held;
    if (isHeld && mayWorkIdle(instance, record)) this.#idle.ended(instance.id, this.#idleGroup(instance, record));
    else this.#weights.ended(record.tenant_id, instance.id);
  }

  #idleGroup(instance: Instance, { tenant_id, name, cpu_limit_percent }: FunctionRecord): IdleGroup {
    return {
      tenant_id,
      function_name: name,
      usedMs: () => this.#engine.cpuUsedMs(instance),
      limit: (isIdle) => {
        const idle_percent = Math.min(cpu_limit_percent ?? Number.POSITIVE_INFINITY, LIMITS.idle_cpu_percent);
        this.#engine.setQuota(instance, isIdle ? idle_percent : cpu_limit_percent);
        if (isIdle) this.#weights.rested(instance.id);
        else this.#weights.woke(instance.id);
      },
    };
  }

  async #settle(held: Held, binding: Promise<Bound>): Promise<Bound> {
    const bound = await binding;
    held.bound = bound;
    return bound;
  }
}

/** True for an instance whose handler is being loaded, or could not be: the end of its process is no crash. */
function isFaulty(bound: Held["bound"]): boolean {
  return bound instanceof Promise || (bound !== null && bound.fault !== null);
}

function lateOf({ target: { function_seq }, invocation_id }: Call, listener: OnLate): (text: string) => boolean {
  return (text) => listener(function_seq, invocation_id, text);
}

/** False for an instance in which minit alone is left after a call. */
function mayWorkIdle({ resident }: Instance, { cleanup_on_exit }: FunctionRecord): boolean {
  return resident !== null || !cleanup_on_exit;
}

function startTimings({ timings, resident }: Instance): Partial<InvocationTimings> {
  return {
    ...(resident === null ? {} : { open: rounded(timings.open_ms) }),
    network: rounded(timings.network_ms),
    rootfs: rounded(timings.rootfs_ms),
    start: rounded(timings.start_ms),
  };
}
