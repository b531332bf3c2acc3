/** One store of two nodes with a tenant `a`, and the containers that either node holds. */
import type { Statement, Store, StoredNode } from "../../src/store/store.ts";
import type { Scratch } from "./scratch.ts";

export const ONE: StoredNode = { id: "node_one", seq: 1 };
export const TWO: StoredNode = { id: "node_two", seq: 2 };

export async function openForTwo({ open }: Scratch): Promise<Store> {
  const store = open();
  await store.write([
    { sql: "INSERT INTO nodes (id) VALUES (?), (?)", args: [ONE.id, TWO.id] },
    { sql: "INSERT INTO tenants (id, name, created_at) VALUES ('a', 'a', 0)" },
  ]);
  return store;
}

/** Inserts a container of 100 MiB that the node holds. */
export const container = (id: string, node: StoredNode, state = "running"): Statement => ({
  sql: `INSERT INTO containers (id, tenant_id, node_seq, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
    environment, oom_killed, restart_count, created_at_ms)
    VALUES (?, 'a', ?, ?, ?, 1, 0, '{}', 100, '{}', '{}', 0, 0, 1)`,
  args: [id, node.seq, id, state],
});
