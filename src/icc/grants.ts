/** What containers themselves may send: the highest permission level that a message of a container may have. */
import type { Events } from "../events/service.ts";
import type { Store } from "../store/store.ts";
import type { PermissionLevel } from "./envelope/envelope.ts";

/** Messages alone: no payload kind of this level changes another container. */
export const DEFAULT_GRANT: PermissionLevel = "READ_ONLY";

/** A grant that the container has already, and a container that is removed at this moment, change nothing. */
const SET = `INSERT INTO icc_grants (container_id, permission_level)
  SELECT id, ? FROM containers WHERE id = ? AND is_removing = 0
  AND ? <> coalesce((SELECT permission_level FROM icc_grants WHERE container_id = containers.id), ?)
  ON CONFLICT (container_id) DO UPDATE SET permission_level = excluded.permission_level`;

export class Grants {
  readonly #store: Store;
  readonly #events: Pick<Events, "write">;

  constructor(store: Store, events: Pick<Events, "write">) {
    this.#store = store;
    this.#events = events;
  }

  async get(container_id: string): Promise<PermissionLevel> {
    const row = await this.#store.readOne("SELECT permission_level FROM icc_grants WHERE container_id = ?", [
      container_id,
    ]);
    return row === null ? DEFAULT_GRANT : (String(row.permission_level) as PermissionLevel);
  }

  /** Sets a grant, with the event of the change in the same commit. A container that is removed at this moment keeps none. */
  async set(tenant_id: string, container_id: string, permission_level: PermissionLevel): Promise<void> {
    const args = [permission_level, container_id, permission_level, DEFAULT_GRANT];
    const event = { name: "message_update", event_type: "permission_changed", container_id } as const;
    await this.#events.write(
      [{ sql: SET, args, expect_changes: 1 }],
      tenant_id,
      [{ ...event, data: { permission_level } }],
      { durable: true },
    );
  }
}
