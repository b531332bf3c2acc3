/**
 * Who has a cache mount: `shared` by several commands, or one at a time for `locked` and `private`.
 *
 * 1. Commands that wait get the mount in the order in which they came.
 * 2. A command that needs a mount of its own waits for none: it gets the first number of the mount that nobody has.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Sharing } from "./mounts.ts";

export interface CacheTurn {
  /** 0: the mount that commands share; others are copies for those that need one of their own. */
  readonly number: number;
  /** Harmless when repeated. */
  end(): void;
}

interface Waiting {
  readonly isAlone: boolean;
  readonly begin: () => void;
}

interface Place {
  count: number;
  isAlone: boolean;
  readonly waiting: Set<Waiting>;
}

export class CacheTurns {
  /** Those that somebody has or waits for. */
  readonly #places = new Map<string, Place>();

  /** Takes a mount. Rejects with the reason of the signal if that aborts first, with CAPACITY_FULL if too many wait. */
  async take(key: string, sharing: Sharing, signal: AbortSignal): Promise<CacheTurn> {
    signal.throwIfAborted();
    if (sharing === "private") return this.#takeFree(key);
    const place = this.#place(key);
    const isAlone = sharing === "locked";
    if (place.waiting.size === 0 && isOpen(place, isAlone)) return this.#begin(key, 0, isAlone);
    if (place.waiting.size >= LIMITS.builds_max)
      throw new AppError("CAPACITY_FULL", `too many commands wait for a cache mount (limit ${LIMITS.builds_max})`);
    return this.#wait(key, place, isAlone, signal);
  }

  #takeFree(key: string): CacheTurn {
    let number = 0;
    while (this.#places.has(nameOf(key, number))) number++;
    return this.#begin(key, number, true);
  }

  #place(name: string): Place {
    const found = this.#places.get(name) ?? { count: 0, isAlone: false, waiting: new Set() };
    this.#places.set(name, found);
    return found;
  }

  #begin(key: string, number: number, isAlone: boolean): CacheTurn {
    const name = nameOf(key, number);
    const place = this.#place(name);
    place.count++;
    place.isAlone = isAlone;
    let hasEnded = false;
    return {
      number,
      end: () => {
        if (hasEnded) return;
        hasEnded = true;
        place.count--;
        this.#next(name, place);
      },
    };
  }

  #wait(key: string, place: Place, isAlone: boolean, signal: AbortSignal): Promise<CacheTurn> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        place.waiting.delete(waiting);
        reject(signal.reason);
        this.#next(key, place);
      };
      const waiting: Waiting = {
        isAlone,
        begin: () => {
          signal.removeEventListener("abort", leave);
          resolve(this.#begin(key, 0, isAlone));
        },
      };
      place.waiting.add(waiting);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  /** Lets begin all that may, in their order. */
  #next(name: string, place: Place): void {
    for (const waiting of place.waiting) {
      if (!isOpen(place, waiting.isAlone)) return;
      place.waiting.delete(waiting);
      waiting.begin();
    }
    if (place.count === 0) this.#places.delete(name);
  }
}

const nameOf = (key: string, number: number): string => (number === 0 ? key : `${key}.${number}`);

const isOpen = ({ count, isAlone }: Place, wantsAlone: boolean): boolean => count === 0 || !(isAlone || wantsAlone);
