/**
 * The removal of containers. The store hides a container first, so that the API does not show it and its name is free; then
 * the machine is cleared, and the row is deleted last. A removal that fails is repeated for a while, and at the next start of
 * the daemon.
 */
import type { KeyedMutex } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Retries } from "../base/retries.ts";
import { heldElsewhere } from "../store/store.ts";
import { runs } from "./admission.ts";
import { type ContainerChanges, eventOf } from "./events.ts";
import type { ContainersOptions } from "./options.ts";
import type { ContainerRow, ContainerRows } from "./rows.ts";
import { containerStates } from "./states.ts";

export interface RemovalsOptions extends Pick<ContainersOptions, "engine" | "store" | "ports" | "addresses" | "tasks"> {
  readonly rows: ContainerRows;
  readonly changes: ContainerChanges;
  readonly turns: KeyedMutex;
  readonly retries: () => Retries;
  held(tenant_id: string, id: string): Promise<ContainerRow>;
  /** Is called for each container that the store has hidden, before it ends. */
  hidden(id: string): void;
  /** Ends all that watches a container. */
  forget(id: string): void;
}

export class Removals {
  readonly #options: RemovalsOptions;

  constructor(options: RemovalsOptions) {
    this.#options = options;
  }

  /** Throws NOT_FOUND where it is hidden already. */
  async hide(row: ContainerRow): Promise<void> {
    const { rows, changes } = this.#options;
    const conflict = await changes.write([rows.hide(row.id)], eventOf(row, "removed", row.state));
    if (conflict !== null) throw new AppError("NOT_FOUND", `container '${row.id}' not found`);
    failpoint("containers.delete.hidden");
    this.#options.hidden(row.id);
  }

  /** Hides a container whose start failed, and removes it. Safe to repeat. */
  async discard(row: ContainerRow): Promise<void> {
    const { rows, changes, hidden } = this.#options;
    await changes.write([rows.hide(row.id)], eventOf(row, "removed", row.state));
    hidden(row.id);
    await this.remove(row.id);
  }

  /** Removes a hidden container. A removal that fails is repeated for a while, and at the next start. */
  erase(id: string): Promise<void> {
    return this.#options.retries().run(id, () => this.remove(id));
  }

  /** Removes a container that does not run. Returns its last row. Throws WRONG_STATE for any other, NOT_FOUND. */
  async clear(tenant_id: string, id: string): Promise<ContainerRow> {
    const { held, turns } = this.#options;
    const { id: found } = await held(tenant_id, id);
    return turns.run(found, async () => {
      const row = await held(tenant_id, found);
      if (!containerStates.can(row.state, "start")) throw runs(row);
      await this.hide(row);
      await this.erase(found);
      return row;
    });
  }

  /** Deletes all that a tenant has on this node. Throws WRONG_STATE where another node still holds some. */
  async eraseAll(tenant_id: string): Promise<void> {
    const { rows, store, turns, hidden, tasks } = this.#options;
    const all = await rows.ofTenant(tenant_id);
    for (const { id, isHeld } of all) {
      await store.write([rows.hide(id)], { durable: true });
      hidden(id);
      if (isHeld) await turns.run(id, () => this.erase(id));
    }
    const left = all.find(({ isHeld }) => !isHeld);
    if (left !== undefined) throw heldElsewhere(`container '${left.id}'`);
    tasks.forget(tenant_id);
  }

  async remove(id: string): Promise<void> {
    const { engine, store, rows, ports, addresses, forget } = this.#options;
    forget(id);
    await engine.containers.kill(id);
    await engine.containers.remove(id, await rows.ownerOf(id));
    failpoint("containers.delete.removed");
    await store.write([rows.delete(id)], { durable: true });
    ports.release(id);
    addresses.release(id);
  }
}
