/**
 * The processor time of idle instances. What calls leave behind in an instance may go on between them: it is counted for the
 * function, and has a quota.
 *
 * I1 An instance has the quota of its version while it runs a call or loads its handler, whatever it had before.
 * I2 Without a call it has the idle quota from the second look on, and its use is counted from the first. Looks are off the path
 *    of a call and bounded in number: a call costs nothing here unless it is the first one after a second without any.
 * I3 An instance that is idle without a quota counts as running for its tenant's share of the processor (weights.ts), so
 *    short calls and much work behind them give no tenant more than its share.
 */
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";

/** The control group of an instance. */
export interface IdleGroup {
  readonly tenant_id: string;
  readonly function_name: string;
  /** Processor time that it has used so far, in milliseconds. */
  usedMs(): number;
  /** Gives it the idle quota, or that of its version again. */
  limit(isIdle: boolean): void;
}

export interface IdleCpuOptions {
  readonly clock: Clock;
  /** Told that an idle instance counts as running no more: it has the idle quota, or ends (I3). */
  readonly onQuiet: (tenant_id: string, instance_id: string) => void;
  /** Told what an idle instance used, in milliseconds of processor time. */
  readonly onUsed: (group: IdleGroup, used_ms: number) => void;
}

interface Idle {
  readonly group: IdleGroup;
  isLimited: boolean;
  /** At the first look and at each later count; null: not looked at yet. */
  used_ms: number | null;
}

export class IdleCpu {
  readonly #options: IdleCpuOptions;
  /** Idle instances by id. */
  readonly #idle = new Map<string, Idle>();
  /** Those of them without the idle quota. */
  #waiting_count = 0;
  #cancel: CancelTimer | null = null;

  constructor(options: IdleCpuOptions) {
    this.#options = options;
  }

  /** An instance runs its only call, or loads its handler (I1). */
  began(instance_id: string): void {
    const idle = this.#idle.get(instance_id);
    if (idle === undefined) return;
    this.#leave(instance_id, idle);
    if (!idle.isLimited) return;
    idle.group.limit(false);
    this.#count(idle);
  }

  /** An instance runs no call any more. */
  ended(instance_id: string, group: IdleGroup): void {
    this.#idle.set(instance_id, { group, isLimited: false, used_ms: null });
    this.#waiting_count += 1;
    this.#lookLater();
  }

  /** An instance is about to end. Its processes end slowly with little processor time. */
  forget(instance_id: string): void {
    const idle = this.#idle.get(instance_id);
    if (idle === undefined) return;
    this.began(instance_id);
    if (!idle.isLimited) this.#options.onQuiet(idle.group.tenant_id, instance_id);
  }

  /** Counts what idle instances have used so far, for a reader of the counters: the next ones in turn, a bounded number. */
  count(): void {
    for (const [id, idle] of [...this.#idle].slice(0, LIMITS.idle_limited_max)) {
      if (idle.used_ms !== null) this.#count(idle);
      this.#idle.delete(id);
      this.#idle.set(id, idle);
    }
  }

  #leave(instance_id: string, { isLimited }: Idle): void {
    this.#idle.delete(instance_id);
    if (!isLimited) this.#waiting_count -= 1;
  }

  #count(idle: Idle): void {
    const used_ms = idle.group.usedMs();
    if (idle.used_ms !== null && used_ms > idle.used_ms) this.#options.onUsed(idle.group, used_ms - idle.used_ms);
    idle.used_ms = used_ms;
  }

  #lookLater(): void {
    this.#cancel ??= this.#options.clock.after(LIMITS.idle_look_ms, () => {
      this.#cancel = null;
      this.#look();
    });
  }

  /** I2. */
  #look(): void {
    let left = LIMITS.idle_limited_max;
    for (const [id, idle] of this.#idle) {
      if (idle.isLimited) continue;
      if (left-- === 0) break;
      const isFirst = idle.used_ms === null;
      this.#count(idle);
      if (isFirst) continue;
      idle.isLimited = true;
      this.#waiting_count -= 1;
      idle.group.limit(true);
      this.#options.onQuiet(idle.group.tenant_id, id);
    }
    if (this.#waiting_count > 0) this.#lookLater();
  }
}
