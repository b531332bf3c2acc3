/** A clock that moves only by hand, and a launcher whose every promise is settled by hand. */

import type { Invoked, InvokeInfo, Launcher } from "../../pool/index.ts";
import type { CancelTimer, Clock } from "../../src/base/clock.ts";

export class HandClock implements Clock {
  now_ms = 1_000;
  readonly #timers = new Set<{ due_ms: number; fn: () => void }>();

  epochMs(): number {
    return this.now_ms;
  }

  monotonicMs(): number {
    return this.now_ms;
  }

  after(delay_ms: number, fn: () => void): CancelTimer {
    const timer = { due_ms: this.now_ms + delay_ms, fn };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  get timer_count(): number {
    return this.#timers.size;
  }

  /** Moves ahead and fires what is due, in order; promises get their turn after each. */
  async pass(ms: number): Promise<void> {
    const until_ms = this.now_ms + ms;
    for (;;) {
      const [next] = [...this.#timers].filter((t) => t.due_ms <= until_ms).sort((a, b) => a.due_ms - b.due_ms);
      if (next === undefined) break;
      this.#timers.delete(next);
      this.now_ms = Math.max(this.now_ms, next.due_ms);
      next.fn();
      await settled();
    }
    this.now_ms = until_ms;
    await settled();
  }
}

/** Resolves when every promise reaction that is due has run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

interface Hand<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

export interface HandInvocation {
  readonly instance: string;
  readonly group: string;
  readonly call: string;
  readonly info: InvokeInfo;
  /** The outcome is known; the returned function says that the instance is clean. */
  readonly finish: (outcome: string, reuse?: boolean) => { idle: () => void; spoil: (error: Error) => void };
  readonly fail: (error: Error) => void;
}

export class HandLauncher implements Launcher<string, string> {
  readonly starts = new Map<string, Hand<void>>();
  readonly specialises = new Map<string, Hand<void>>();
  readonly removes = new Map<string, Hand<void> & { readonly reason: string }>();
  readonly invocations: HandInvocation[] = [];
  readonly forgotten: string[] = [];
  crash: (instance: string, reason: string) => void = () => {};

  onCrash(listener: (instance: string, reason: string) => void): void {
    this.crash = listener;
  }

  start(instance: string): Promise<void> {
    return new Promise((resolve, reject) => this.starts.set(instance, { resolve, reject }));
  }

  specialise(instance: string): Promise<void> {
    return new Promise((resolve, reject) => this.specialises.set(instance, { resolve, reject }));
  }

  remove(instance: string, reason: string): Promise<void> {
    return new Promise((resolve, reject) => this.removes.set(instance, { resolve, reject, reason }));
  }

  invoke(instance: string, group: string, call: string, info: InvokeInfo): Promise<Invoked<string>> {
    return new Promise((resolve, reject) => {
      const finish = (outcome: string, reuse = true) => {
        const { promise: idle, resolve: rest, reject: spoil } = Promise.withResolvers<void>();
        resolve({ outcome, reuse, idle });
        return { idle: rest, spoil };
      };
      this.invocations.push({ instance, group, call, info, finish, fail: reject });
    });
  }

  forget(group: string): void {
    this.forgotten.push(group);
  }

  /** The invocation of a call. */
  invocation(call: string): HandInvocation {
    const found = this.invocations.find((invocation) => invocation.call === call);
    if (found === undefined) throw new Error(`call ${call} was not invoked`);
    return found;
  }

  /** Ends all removals asked for so far. */
  removeAll(): void {
    for (const { resolve } of this.removes.values()) resolve();
  }
}
