/**
 * Turns of bulk transfers at the daemon's one thread, so that what one tenant moves does not keep the calls of others waiting.
 *
 * U1 All transfers of a tenant move a bounded number of bytes in one turn of the event loop, and continue in the next: the number
 *    of its streams does not lengthen the turn for others. A tenant alone loses little, because a turn without other work is short.
 * U2 While another tenant sends requests, they move at most `shared_transfer_bytes_per_second` together: the processor time of
 *    a transfer is mostly outside of the turn (decompression, the client, the kernel).
 */
import { type Clock, sleep } from "./clock.ts";
import { LIMITS } from "./limits.ts";

/** The share of one tenant. */
export interface TransferTurn {
  /** True while the tenant may move nothing more. */
  readonly isSpent: boolean;
  /** Counts bytes that are moved in any case. */
  count(bytes: number): void;
  /** Resolves when the tenant may move these bytes, which it then has counted. A last one may exceed the bound. */
  take(bytes: number): Promise<void>;
  /** Resolves in a turn that has room (U1). Their part of a second (U2) is what the next take waits for: for work that holds much. */
  pass(bytes: number): Promise<void>;
}

/** For transfers that no tenant waits for. */
export const UNBOUNDED_TURN: TransferTurn = {
  isSpent: false,
  count: () => {},
  take: () => Promise.resolve(),
  pass: () => Promise.resolve(),
};

/** Shorter waits are added to the next. */
const WAIT_MS_MIN = 1;
/** So often a wait looks whether the tenant is alone by now. */
const WAIT_MS_MAX = 100;

interface Moved {
  /** In this turn of the event loop. */
  turn_bytes: number;
  /** When what it moved beside others is paid for (U2). Takes stand in a row up to here. */
  paid_ms: number;
}

export class TransferTurns {
  readonly #clock: Clock;
  /** Those that moved something in this turn, or have not paid. */
  readonly #tenants = new Map<string, Moved>();
  /** First come, first served. At most one for each request of a transfer. */
  readonly #waiting: (() => void)[] = [];
  #isArmed = false;
  /** The last request of any tenant, and the last one of any other than that. */
  #latest = { tenant_id: "", at_ms: Number.NEGATIVE_INFINITY };
  #other_ms = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Tells of a request of a tenant at `now_ms` of the monotonic clock. */
  seen(tenant_id: string, now_ms: number): void {
    const latest = this.#latest;
    if (latest.tenant_id !== tenant_id) {
      this.#other_ms = latest.at_ms;
      latest.tenant_id = tenant_id;
    }
    latest.at_ms = now_ms;
  }

  of(tenant_id: string): TransferTurn {
    const isSpent = () => this.#isSpent(tenant_id);
    return {
      get isSpent() {
        return isSpent();
      },
      count: (bytes) => {
        this.#owe(tenant_id, bytes);
        this.#move(tenant_id, bytes);
      },
      take: async (bytes) => {
        const wait_ms = this.#owe(tenant_id, bytes);
        if (wait_ms >= WAIT_MS_MIN) await this.#paid(tenant_id, wait_ms);
        await this.#room(tenant_id, bytes);
      },
      pass: (bytes) => {
        this.#owe(tenant_id, bytes);
        return this.#room(tenant_id, bytes);
      },
    };
  }

  /** Waits for what was moved before, as long as others send requests. */
  async #paid(tenant_id: string, wait_ms: number): Promise<void> {
    const end_ms = this.#clock.monotonicMs() + wait_ms;
    for (;;) {
      const now_ms = this.#clock.monotonicMs();
      if (end_ms - now_ms < WAIT_MS_MIN) return;
      if (this.#isAlone(tenant_id, now_ms)) {
        const moved = this.#moved(tenant_id);
        moved.paid_ms = Math.min(moved.paid_ms, now_ms);
        return;
      }
      await sleep(this.#clock, Math.min(end_ms - now_ms, WAIT_MS_MAX));
    }
  }

  async #room(tenant_id: string, bytes: number): Promise<void> {
    while (this.#isTurnSpent(tenant_id)) {
      await new Promise<void>((wake) => {
        this.#waiting.push(wake);
        this.#arm();
      });
    }
    this.#move(tenant_id, bytes);
  }

  #isTurnSpent(tenant_id: string): boolean {
    return (this.#tenants.get(tenant_id)?.turn_bytes ?? 0) >= LIMITS.file_turn_bytes;
  }

  #isSpent(tenant_id: string): boolean {
    if (this.#isTurnSpent(tenant_id)) return true;
    const paid_ms = this.#tenants.get(tenant_id)?.paid_ms ?? 0;
    return paid_ms - this.#clock.monotonicMs() >= WAIT_MS_MIN;
  }

  /** Returns the milliseconds until what it moved before is paid for. */
  #owe(tenant_id: string, bytes: number): number {
    const now_ms = this.#clock.monotonicMs();
    const moved = this.#moved(tenant_id);
    const wait_ms = Math.max(0, moved.paid_ms - now_ms);
    if (!this.#isAlone(tenant_id, now_ms)) {
      moved.paid_ms = now_ms + wait_ms + (bytes * 1_000) / LIMITS.shared_transfer_bytes_per_second;
    }
    return wait_ms;
  }

  #isAlone(tenant_id: string, now_ms: number): boolean {
    const { tenant_id: latest_id, at_ms } = this.#latest;
    return now_ms - (latest_id === tenant_id ? this.#other_ms : at_ms) >= LIMITS.shared_transfer_ms;
  }

  #move(tenant_id: string, bytes: number): void {
    this.#moved(tenant_id).turn_bytes += bytes;
    this.#arm();
  }

  #moved(tenant_id: string): Moved {
    const known = this.#tenants.get(tenant_id);
    if (known !== undefined) return known;
    const moved = { turn_bytes: 0, paid_ms: 0 };
    this.#tenants.set(tenant_id, moved);
    return moved;
  }

  /** `setImmediate` comes after all input of this turn was handled. */
  #arm(): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    setImmediate(() => {
      this.#isArmed = false;
      const now_ms = this.#clock.monotonicMs();
      for (const [tenant_id, moved] of this.#tenants) {
        moved.turn_bytes = 0;
        if (moved.paid_ms <= now_ms) this.#tenants.delete(tenant_id);
      }
      for (const wake of this.#waiting.splice(0)) wake();
    });
  }
}
