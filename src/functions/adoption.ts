/**
 * Instances that outlived an earlier process: back into the pool, each for the version that it was bound to. What
 * belongs to a function that is not active, or to a version that is not there, is handed to the pool too, which ends
 * it, since its group is not open. Instances of a class that this process does not make are removed here.
 */
import type { Pool } from "../../pool/index.ts";
import { errorText } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Adopted } from "../engine/ports.ts";
import type { Call } from "./calls/calling.ts";
import type { FunctionLauncher } from "./calls/launch.ts";
import type { Outcome } from "./calls/outcome.ts";
import type { Classes } from "./classes.ts";
import type { Groups } from "./groups.ts";
import { type FunctionRow, type FunctionRows, versioned } from "./rows.ts";
import { hasOwnImage } from "./schema.ts";
import { parseGroupKey } from "./target.ts";

export interface AdoptionOptions {
  readonly pool: Pool<Call, Outcome>;
  readonly launcher: FunctionLauncher;
  readonly classes: Classes;
  readonly groups: Groups;
  readonly log: Log;
  readonly rows: Pick<FunctionRows, "version">;
}

export class Adoption {
  readonly #options: AdoptionOptions;
  /** By function and version; what has been adopted is not in it any more. */
  readonly #waiting = new Map<string, Map<number, Adopted[]>>();
  readonly #others: Adopted[] = [];

  constructor(options: AdoptionOptions, adopted: readonly Adopted[]) {
    this.#options = options;
    for (const one of adopted) {
      const key = one.mark === null ? null : parseGroupKey(one.mark);
      if (key === null) {
        this.#others.push(one);
        continue;
      }
      const versions = this.#waiting.get(key.function_id) ?? new Map<number, Adopted[]>();
      this.#waiting.set(key.function_id, versions);
      const same = versions.get(key.version);
      if (same === undefined) versions.set(key.version, [one]);
      else same.push(one);
    }
  }

  /** Opens the group of an active function's version with the instances that it still has, and those of earlier versions. */
  async reopen(row: FunctionRow): Promise<void> {
    const { classes, groups, rows } = this.#options;
    const { record } = row;
    const versions = this.#waiting.get(record.id) ?? new Map<number, Adopted[]>();
    this.#waiting.delete(record.id);
    for (const [version, adopted] of versions) {
      if (version === record.version) continue;
      const found = await rows.version(row, version);
      if (found === null) {
        this.#others.push(...adopted);
        continue;
      }
      const superseded = { ...record, ...versioned(found.record), version, current_version: version };
      const { image, settings } = found;
      groups.open({ record: superseded, image: await classes.available(image, hasOwnImage(superseded)), settings }, 0);
      for (const one of adopted) this.#adopt(one);
      groups.retire(superseded);
    }
    // Without a minimum first: nothing is started that is about to be adopted.
    const opening = { record, image: await classes.available(row.image, hasOwnImage(record)), settings: row.settings };
    groups.open(opening, 0);
    for (const one of versions.get(record.version) ?? []) this.#adopt(one);
    groups.open(opening);
  }

  /** Cells, and what nobody wants. After the last `reopen`. */
  finish(): void {
    for (const versions of this.#waiting.values()) this.#others.push(...[...versions.values()].flat());
    this.#waiting.clear();
    for (const one of this.#others.splice(0)) this.#adopt(one);
  }

  #adopt(adopted: Adopted): void {
    const { classes, launcher, log, pool } = this.#options;
    const { instance, class: key, image, mark } = adopted;
    launcher.adopt(adopted, mark);
    // An instance on the present image may stand in for a class whose image the store had lost.
    if (classes.find(key)?.image === image) {
      pool.adopt(instance.id, key, mark);
      return;
    }
    launcher.remove(instance.id).catch((error) => {
      log.warn("an instance of an earlier process is not removed", { instance: instance.id, error: errorText(error) });
    });
  }
}
