/**
 * Who this node is. Its id is in the data directory and not in the store, which several nodes may share.
 *
 * N1. A node has one id for good, wherever a start was killed. The id is in the file before the store knows it.
 * N2. An earlier version kept the id in the store. One node takes that one over: it marks the store with the new id that
 *     its file has until then, so that the start after a kill knows that this node was the one.
 */
import type { Ids } from "../base/ids.ts";
import { keptText, writeKept } from "../base/kept-files.ts";
import type { Store, StoredNode } from "./store.ts";

/**
 * Returns this node and the number of this start. Instances of earlier starts may live on, so names come from the number
 * and not from the clock, which may be set back.
 */
export async function noteStart(
  store: Store,
  data_dir: string,
  ids: Ids,
): Promise<{ readonly node: StoredNode; readonly start_number: number }> {
  const id = await ownId(store, `${data_dir}/node-id`, ids);
  const statements = [
    { sql: "INSERT INTO nodes (id) VALUES (?) ON CONFLICT DO NOTHING", args: [id] },
    {
      sql: `INSERT INTO meta (key, value) VALUES ('start_number', '1')
        ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1`,
    },
  ];
  await store.write(statements, { durable: true });
  const [node, started] = await Promise.all([
    store.readOne("SELECT seq FROM nodes WHERE id = ?", [id]),
    store.readOne("SELECT value FROM meta WHERE key = 'start_number'"),
  ]);
  return { node: { id, seq: Number(node?.seq) }, start_number: Number(started?.value) };
}

/** N1, N2. */
async function ownId(store: Store, file: string, ids: Ids): Promise<string> {
  const { text: id } = keptText(file, () => ids.next("node"));
  const claim = `INSERT INTO meta (key, value) SELECT 'node_id_taken_by', ? FROM meta
    WHERE key = 'node_id' AND value <> ? ON CONFLICT DO NOTHING`;
  await store.write([{ sql: claim, args: [id, id] }], { durable: true });
  const sql = `SELECT old.value AS id FROM meta old JOIN meta taken ON taken.key = 'node_id_taken_by'
    WHERE old.key = 'node_id' AND taken.value = ?`;
  const taken = await store.readOne(sql, [id]);
  if (taken === null) return id;
  writeKept(file, String(taken.id));
  return String(taken.id);
}
