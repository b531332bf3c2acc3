/** What containers themselves may send: the highest permission level that a message of a container may have. */
import type { Store } from "../store/store.ts";
import type { PermissionLevel } from "./envelope/envelope.ts";

/** Messages alone: no payload kind of this level changes another container. */
export const DEFAULT_GRANT: PermissionLevel = "READ_ONLY";

export class Grants {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  async get(container_id: string): Promise<PermissionLevel> {
    const row = await this.#store.readOne("SELECT permission_level FROM icc_grants WHERE container_id = ?", [
      container_id,
    ]);
    return row === null ? DEFAULT_GRANT : (String(row.permission_level) as PermissionLevel);
  }

  /** A container that is removed at this moment keeps none. */
  async set(container_id: string, level: PermissionLevel): Promise<void> {
    await this.#store.write(
      [
        {
          sql: `INSERT INTO icc_grants (container_id, permission_level)
            SELECT id, ? FROM containers WHERE id = ? AND is_removing = 0
            ON CONFLICT (container_id) DO UPDATE SET permission_level = excluded.permission_level`,
          args: [level, container_id],
        },
      ],
      { durable: true },
    );
  }
}
