/** The verbs of volumes that are operations. */
import { LIMITS } from "../base/limits.ts";
import type { Files } from "../engine/ports.ts";
import { registerUnpack, type Unpacking } from "../files/service.ts";
import type { OperationRecord } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import type { Once } from "../store/store.ts";
import type { Volumes } from "./service.ts";

export class VolumeVerbs {
  readonly #volumes: Volumes;
  readonly #operations: Operations;

  constructor(volumes: Volumes, operations: Operations, files: () => Files) {
    this.#volumes = volumes;
    this.#operations = operations;
    operations.register<{ readonly volume_id: string }>("volume.delete", {
      resumable: true,
      cancellable: false,
      timeout_ms: LIMITS.tree_operation_ms,
      run: async ({ input }) => {
        await volumes.delete(input.volume_id);
        return { result: { volume_id: input.volume_id } };
      },
    });
    registerUnpack<{ readonly root: string }>(operations, "volume.archive", ({ root }, tenant_id) =>
      files().open(tenant_id, root, 0),
    );
  }

  async delete(tenant_id: string, name: string, once: Once | null): Promise<OperationRecord> {
    const { id } = await this.#volumes.checkDelete(tenant_id, name);
    const target = { type: "volume", id };
    return this.#operations.accept(tenant_id, { type: "volume.delete", target, input: { volume_id: id }, once });
  }

  async unpack(
    tenant_id: string,
    name: string,
    source: AsyncIterable<Uint8Array>,
    how: Unpacking,
  ): Promise<OperationRecord> {
    const { row, root } = await this.#volumes.root(tenant_id, name);
    const target = { type: "volume", id: row.id };
    const input = { root, ...how };
    return this.#operations.accept(tenant_id, { type: "volume.archive", target, input, attachment: source });
  }
}
