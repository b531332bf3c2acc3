/** Lists of what runs in containers, made in a worker thread: few at once, and one for all who ask for the same. */

import { Semaphore } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ProcessList } from "../ports/containers.ts";

export class ProcessLists {
  readonly #read: (group: string) => Promise<ProcessList>;
  /** By the container's control group. */
  readonly #reading = new Map<string, Promise<ProcessList>>();
  readonly #gate = new Semaphore(LIMITS.process_lists_at_once, LIMITS.process_lists_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many concurrent process lists", { retry_after: 1 });
  });

  constructor(read: (group: string) => Promise<ProcessList>) {
    this.#read = read;
  }

  /** Rejects with CAPACITY_FULL when too many containers' lists are asked for at once. */
  get(group: string): Promise<ProcessList> {
    const found = this.#reading.get(group);
    if (found !== undefined) return found;
    const reading = this.#gate.run(() => this.#read(group)).finally(() => this.#reading.delete(group));
    this.#reading.set(group, reading);
    return reading;
  }
}
