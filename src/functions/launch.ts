/**
 * Hot path. The pool's launcher for functions: starts instances through the engine, binds them to a function, hands
 * them calls, and turns what happened in the container into an outcome. Whether an instance serves again is decided
 * here by whose fault the outcome is: after an error of the function it may, after a timeout, a memory kill or a lost
 * connection it may not.
 */
import type { Invoked, InvokeInfo, Launcher } from "../../pool/index.ts";
import type { Clock } from "../base/clock.ts";
import { AppError, errorText, invariant } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { type Trace, traceparentOf } from "../base/trace.ts";
import type { ExecOutcome, Instance, Instances } from "../engine/ports.ts";
import type { Classes } from "./classes.ts";
import type { InvocationRecord, InvocationTimings } from "./schema.ts";
import type { Target } from "./target.ts";
import type { InvocationTokens } from "./tokens.ts";
import { Weights } from "./weights.ts";

export interface Call {
  readonly target: Target;
  readonly invocation_id: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly payload: string;
  readonly timeout_ms: number;
  /** Monotonic: the deadline of the call that made it, which it does not outlast; infinite for one from outside. */
  readonly ends_ms: number;
  /** Calls above it in its chain. */
  readonly depth: number;
  readonly trace: Trace;
}

/** Where and as whom a handler calls the API. */
export interface ApiAccess {
  readonly url: string;
  readonly token: string;
}

/** What a record says of how the call went. */
export interface Outcome
  extends Pick<
    InvocationRecord,
    | "status"
    | "exit_code"
    | "stdout"
    | "stderr"
    | "stdout_truncated"
    | "stderr_truncated"
    | "error_message"
    | "cold_start"
  > {
  readonly instance_nonce: string;
  readonly timings: Omit<InvocationTimings, "total">;
}

/** The shell's exit code for it, which minit follows. */
const COMMAND_NOT_FOUND = 127;
/** 128 + SIGKILL: what a handler that the kernel killed for memory ends with, itself or as the last command of a shell. */
const KILLED = 137;

/** What a version asks of an instance; set when the group is made. */
interface GroupLimits {
  readonly tenant_id: string;
  readonly memory_limit_mb: number;
  readonly cpu_limit_percent: number | null;
}

export interface LauncherOptions {
  readonly instances: Instances;
  readonly classes: Classes;
  readonly clock: Clock;
  readonly log: Log;
  readonly tokens: InvocationTokens;
}

interface Held {
  readonly instance: Instance;
  /** The kernel's count of memory kills in the instance when it was last read. */
  oom_kills: number;
}

/** Milliseconds with microsecond digits. */
function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** The environment of one call: hearth's own names, then the function's, then the call's. */
export function callEnvironment(call: Call, deadline_epoch_ms: number, api: ApiAccess | null): string[] {
  const { target, payload, trace } = call;
  const environment: Record<string, string> = {
    ...target.environment,
    HEARTH_INVOCATION_ID: call.invocation_id,
    HEARTH_DEADLINE_MS: String(Math.round(deadline_epoch_ms)),
    TRACEPARENT: traceparentOf(trace),
  };
  if (trace.state !== null) environment.TRACESTATE = trace.state;
  if (api !== null) {
    environment.HEARTH_URL = api.url;
    environment.HEARTH_KEY = api.token;
  }
  // A variable cannot hold a NUL, and above the bound the payload comes on standard input alone.
  if (Buffer.byteLength(payload) <= LIMITS.payload_variable_bytes_max && !payload.includes("\0")) {
    environment.HEARTH_PAYLOAD = payload;
  }
  Object.assign(environment, target.record.environment, call.environment);
  const list: string[] = [];
  for (const name in environment) list.push(`${name}=${environment[name]}`);
  return list;
}

/** Status and message of an exit. */
export function judge(
  exit: ExecOutcome,
  timeout_ms: number,
  oomKilled: boolean,
  memory_limit_mb: number,
): Pick<Outcome, "status" | "error_message"> {
  if (exit.timed_out) return { status: "timeout", error_message: `timed out after ${timeout_ms / 1000} s` };
  if (oomKilled) return { status: "failed", error_message: `killed: out of memory (limit ${memory_limit_mb} MiB)` };
  if (exit.spawn_failed) return { status: "failed", error_message: `cannot run the handler: ${exit.stderr.trim()}` };
  if (exit.exit_code === 0) return { status: "success", error_message: null };
  if (exit.signal !== 0) return { status: "failed", error_message: `killed by signal ${exit.signal}` };
  return { status: "failed", error_message: `exited with ${exit.exit_code}` };
}

export class FunctionLauncher implements Launcher<Call, Outcome> {
  readonly #engine: Instances;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #tokens: InvocationTokens;
  readonly #classes: Classes;
  readonly #instances = new Map<string, Held>();
  readonly #starting = new Map<string, Promise<Instance>>();
  readonly #limits = new Map<string, GroupLimits>();
  readonly #weights: Weights;
  /** Tenants of running calls that may use the API, by the address of their instance. */
  readonly #api_tenants = new Map<string, string>();
  #api_url = "";
  #onCrash: (instance: string, reason: string) => void = () => {};
  #onForget: (group: string) => void = () => {};

  constructor({ instances, classes, clock, log, tokens }: LauncherOptions) {
    this.#tokens = tokens;
    this.#classes = classes;
    this.#engine = instances;
    this.#clock = clock;
    this.#log = log;
    this.#weights = new Weights(clock, (id, share) => {
      const held = this.#instances.get(id);
      if (held !== undefined) instances.weigh(held.instance, share);
    });
  }

  onCrash(listener: (instance: string, reason: string) => void): void {
    this.#onCrash = listener;
  }

  /** `listener` hears of every group that the pool has let go. One listener. */
  onForget(listener: (group: string) => void): void {
    this.#onForget = listener;
  }

  /** Where handlers with `api_access` reach the API. Before the first call. */
  setApiUrl(url: string): void {
    this.#api_url = url;
  }

  /** Sets what instances of a group are limited to. Before the pool learns of the group. */
  setLimits(group: string, limits: GroupLimits): void {
    this.#limits.set(group, limits);
  }

  forget(group: string): void {
    this.#limits.delete(group);
    this.#onForget(group);
  }

  async start(id: string, key: string): Promise<void> {
    try {
      const starting = this.#startOf(id, key);
      this.#starting.set(id, starting);
      const instance = await starting;
      this.#instances.set(id, { instance, oom_kills: 0 });
      instance.minit.onClosed(() => this.#onCrash(id, "its minit closed the connection"));
    } catch (error) {
      // The pool tries again and tells callers only in the end, and nobody when the start was for the reserve.
      this.#log.warn("cannot start an instance", { instance: id, error: errorText(error) });
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

  /** Takes over an instance that an earlier process had started, bound to `group` or a cell. Before the pool hears of it. */
  adopt(instance: Instance, group: string | null): void {
    this.#instances.set(instance.id, { instance, oom_kills: 0 });
    instance.minit.onClosed(() => this.#onCrash(instance.id, "its minit closed the connection"));
    const limits = group === null ? undefined : this.#limits.get(group);
    // An earlier process may have lowered it.
    this.#engine.weigh(instance, 1);
    try {
      // It may have been marked and not yet limited. A group that is not open has no limits: the pool ends its instances.
      if (limits !== undefined) this.#limit(instance, limits);
    } catch (error) {
      this.#log.warn("lost an instance of the previous daemon", { instance: instance.id, error: errorText(error) });
      instance.minit.close();
    }
  }

  async specialise(id: string, group: string): Promise<void> {
    const { instance } = this.#held(id);
    try {
      this.#bind(instance, group);
      // Answers only after the binding stands, and shows that the instance lives before it is called ready.
      await instance.minit.ping(LIMITS.start_timeout_ms, this.#clock);
    } catch (error) {
      this.#log.warn("cannot bind an instance", { instance: id, group, error: errorText(error) });
      throw error;
    }
  }

  async invoke(id: string, group: string, call: Call, info: InvokeInfo): Promise<Invoked<Outcome>> {
    const held = this.#held(id);
    const { instance } = held;
    failpoint("functions.invoke.assigned");
    const bound_ms = info.specialise ? this.#bind(instance, group) : 0;
    const { target } = call;
    const begun_ms = this.#clock.monotonicMs();
    const timeout_ms = Math.min(call.timeout_ms, Math.max(1, Math.ceil(call.ends_ms - begun_ms)));
    const memory_limit_mb = target.record.memory_limit_mb;
    const base = {
      cold_start: info.cold,
      instance_nonce: instance.nonce,
    };
    const timings = {
      queue: rounded(info.waited_ms),
      ...(info.specialise ? { cell: rounded(bound_ms) } : {}),
      ...(info.cold && !info.cell_hit ? startTimings(instance) : {}),
    };
    const token = target.record.api_access ? this.#token(call, begun_ms + timeout_ms) : null;
    const api = token === null ? null : { url: this.#api_url, token };
    if (api !== null) this.#api_tenants.set(instance.address, target.record.tenant_id);
    // minit keeps the deadline; where it cannot, the container is ended from outside.
    let isOverdue = false;
    const cancel = this.#clock.after(timeout_ms + LIMITS.deadline_grace_ms, () => {
      isOverdue = true;
      instance.minit.close();
    });
    this.#weights.began(target.record.tenant_id, id);
    try {
      const exit = await instance.minit.execSole({
        argv: target.argv,
        environment: callEnvironment(call, this.#clock.epochMs() + timeout_ms, api),
        working_directory: target.record.working_directory ?? "",
        timeout_ms,
        stdout_bytes_max: LIMITS.output_bytes_max,
        stderr_bytes_max: LIMITS.output_bytes_max,
        wipe: target.record.cleanup_on_exit,
        payload: call.payload,
      });
      const hasOomKill = exit.exit_code !== 0 && !exit.timed_out && this.#hasOomKill(held);
      const oomKilled = hasOomKill && exit.exit_code === KILLED;
      const outcome: Outcome = {
        ...base,
        ...judge(exit, timeout_ms, oomKilled, memory_limit_mb),
        exit_code: exit.exit_code,
        stdout: exit.stdout,
        stderr: exit.stderr,
        stdout_truncated: exit.stdout_truncated,
        stderr_truncated: exit.stderr_truncated,
        timings: { ...timings, handler: rounded(exit.handler_ms) },
      };
      // A spawn that failed for anything but a missing command may be the instance's state: it is not trusted again.
      const isSpoiled = exit.spawn_failed && exit.exit_code !== COMMAND_NOT_FOUND;
      return { outcome, reuse: !exit.timed_out && !oomKilled && !isSpoiled, idle: exit.idle };
    } catch (error) {
      const oomKilled = !isOverdue && this.#hasOomKill(held);
      const lost = oomKilled
        ? `killed: out of memory (limit ${memory_limit_mb} MiB)`
        : `instance lost: ${errorText(error)}`;
      const outcome: Outcome = {
        ...base,
        status: isOverdue ? "timeout" : "failed",
        exit_code: null,
        stdout: "",
        stderr: "",
        stdout_truncated: false,
        stderr_truncated: false,
        error_message: isOverdue ? `timed out after ${timeout_ms / 1000} s` : lost,
        timings: { ...timings, handler: rounded(this.#clock.monotonicMs() - begun_ms) },
      };
      return { outcome, reuse: false, idle: Promise.resolve() };
    } finally {
      cancel();
      this.#weights.ended(target.record.tenant_id, id);
      if (token !== null) {
        this.#tokens.revoke(token);
        this.#api_tenants.delete(instance.address);
      }
    }
  }

  /** The tenant of the call with `api_access` that runs in the instance at this address; null where none runs. */
  apiTenantAt(address: string): string | null {
    return this.#api_tenants.get(address) ?? null;
  }

  /** A credential that acts for the function's tenant until the call ends. */
  #token({ target: { record }, invocation_id, depth }: Call, expires_ms: number): string {
    const { tenant_id, id: function_id } = record;
    return this.#tokens.issue({ tenant_id, function_id, invocation_id, depth, expires_ms });
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
    this.#weights.forget(id);
    await this.#engine.remove(held.instance);
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

  #limit(instance: Instance, limits: GroupLimits): void {
    this.#engine.limit(instance, limits);
    this.#engine.attribute(instance, limits.tenant_id);
  }

  /** Binds an instance to a group: its limits. Returns the milliseconds it took. */
  #bind(instance: Instance, group: string): number {
    const limits = this.#limits.get(group);
    invariant(limits !== undefined, `group ${group} has limits`);
    const begun_ms = this.#clock.monotonicMs();
    failpoint("functions.bind.begun");
    try {
      this.#engine.mark(instance, group);
      failpoint("functions.bind.marked");
      this.#limit(instance, limits);
      failpoint("functions.bind.limited");
    } catch (cause) {
      throw new AppError("START_FAILED", `the instance exited before it was bound: ${errorText(cause)}`, { cause });
    }
    return this.#clock.monotonicMs() - begun_ms;
  }
}

function startTimings({ timings }: Instance): Pick<InvocationTimings, "network" | "rootfs" | "start"> {
  return {
    network: rounded(timings.network_ms),
    rootfs: rounded(timings.rootfs_ms),
    start: rounded(timings.start_ms),
  };
}
