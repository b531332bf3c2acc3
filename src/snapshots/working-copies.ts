/**
 * Working copies: containers without a row, whose files are a copy of those of a snapshot or container. Comparisons and exports
 * read them. A crash leaves a subvolume without a row, which the next start removes.
 */
import { errorText } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import type { Engine, OpenFiles, SubvolumeName } from "../engine/ports.ts";
import { MOMENT } from "./service.ts";

export interface WorkingCopiesOptions {
  readonly engine: Engine;
  readonly ids: Ids;
  readonly log: Log;
}

export class WorkingCopies {
  readonly #options: WorkingCopiesOptions;

  constructor(options: WorkingCopiesOptions) {
    this.#options = options;
  }

  /** Copies files; `from` null: none, the copy has those of its image alone. Resolves to the id of the copy. */
  async make(tenant_id: string, from: SubvolumeName | null): Promise<string> {
    const { engine, ids } = this.#options;
    const id = ids.next(MOMENT);
    try {
      // An overlay needs a subvolume that can be written to.
      if (from !== null) await engine.storage.snapshot(from, { kind: "containers", id }, false, null, tenant_id);
      await engine.containers.create(id, null);
      return id;
    } catch (error) {
      await this.remove(id);
      throw error;
    }
  }

  /** Copies files and opens the copy over its image; `close` also removes the copy. */
  async open(tenant_id: string, from: SubvolumeName | null, image_id: string): Promise<OpenFiles> {
    const id = await this.make(tenant_id, from);
    try {
      const { session, close } = await this.#options.engine.containers.openFiles({ id, tenant_id, image_id });
      return {
        session,
        close: () => {
          close();
          void this.remove(id);
        },
      };
    } catch (error) {
      void this.remove(id);
      throw error;
    }
  }

  /** Never rejects. */
  async remove(id: string): Promise<void> {
    const { containers } = this.#options.engine;
    try {
      // The engine unmounts the root of a closed copy in the background.
      await containers.left(id);
      await containers.remove(id);
    } catch (error) {
      this.#options.log.warn("working copy not removed", { id, error: errorText(error) });
    }
  }
}
