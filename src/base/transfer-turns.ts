/**
 * Turns of file transfers at the daemon's one thread. All transfers of a tenant move a bounded number of bytes in one turn of the
 * event loop, and continue in the next: the number of its streams does not lengthen the turn for calls of other tenants. A
 * tenant alone loses little, because a turn without other work is short.
 */
import { LIMITS } from "./limits.ts";

/** The share of one tenant. */
export interface TransferTurn {
  /** True once the tenant moved `file_turn_bytes` in this turn of the event loop. */
  readonly isSpent: boolean;
  /** Counts bytes that are moved in any case. */
  count(bytes: number): void;
  /** Resolves when the tenant may move these bytes, which it then has counted. A last one may exceed the bound. */
  take(bytes: number): Promise<void>;
}

/** For transfers that no tenant waits for. */
export const UNBOUNDED_TURN: TransferTurn = { isSpent: false, count: () => {}, take: () => Promise.resolve() };

export class TransferTurns {
  /** Bytes in this turn by tenant; emptied at the next. */
  readonly #moved_bytes = new Map<string, number>();
  /** First come, first served. At most one for each request of a transfer. */
  readonly #waiting: (() => void)[] = [];
  #isArmed = false;

  of(tenant_id: string): TransferTurn {
    const isSpent = () => (this.#moved_bytes.get(tenant_id) ?? 0) >= LIMITS.file_turn_bytes;
    const count = (bytes: number) => {
      this.#moved_bytes.set(tenant_id, (this.#moved_bytes.get(tenant_id) ?? 0) + bytes);
      this.#arm();
    };
    return {
      get isSpent() {
        return isSpent();
      },
      count,
      take: async (bytes) => {
        while (isSpent()) {
          await new Promise<void>((wake) => {
            this.#waiting.push(wake);
            this.#arm();
          });
        }
        count(bytes);
      },
    };
  }

  /** `setImmediate` comes after all input of this turn was handled. */
  #arm(): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    setImmediate(() => {
      this.#isArmed = false;
      this.#moved_bytes.clear();
      for (const wake of this.#waiting.splice(0)) wake();
    });
  }
}
