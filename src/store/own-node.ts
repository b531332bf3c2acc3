/**
 * The identity of this node. Its id is in the data directory and not in the store, which several nodes may share.
 *
 * N1. A node has one id for good, wherever a start was killed. The id is in the file before the store knows it.
 * N2. An earlier version kept the id in the store. One node takes that one over: it marks the store with the new id that
 *     its file has until then, so that the start after a kill knows that this node was the one.
 */
import type { Ids } from "../base/ids.ts";
import { keptText, writeKept } from "../base/kept-files.ts";
import type { Log } from "../base/log.ts";
import type { Store, StoredNode } from "./store.ts";

const ID_PATTERN = /^node_\w{1,64}$/;

/**
 * Returns this node and the number of this start. Instances of earlier starts may live on, so names come from the number
 * and not from the clock, which may be set back.
 */
export async function noteStart(
  store: Store,
  data_dir: string,
  ids: Ids,
  log: Log,
): Promise<{ readonly node: StoredNode; readonly start_number: number }> {
  const file = `${data_dir}/node-id`;
  const { id, isNew } = await ownId(store, file, ids);
  const statements = [
    { sql: "INSERT INTO nodes (id) VALUES (?) ON CONFLICT DO NOTHING", args: [id] },
    {
      sql: `INSERT INTO meta (key, value) VALUES ('start_number', '1')
        ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1`,
    },
  ];
  await store.write(statements, { durable: true });
  if (isNew) await warnOfOthers(store, file, id, log);
  const [node, started] = await Promise.all([
    store.readOne("SELECT seq FROM nodes WHERE id = ?", [id]),
    store.readOne("SELECT value FROM meta WHERE key = 'start_number'"),
  ]);
  return { node: { id, seq: Number(node?.seq) }, start_number: Number(started?.value) };
}

/** N1, N2. */
async function ownId(store: Store, file: string, ids: Ids): Promise<{ readonly id: string; readonly isNew: boolean }> {
  const hint = "write into the file the owner_node_id of the functions that this node holds";
  const { text: id, isNew } = keptText(file, { make: () => ids.next("node"), pattern: ID_PATTERN, hint });
  const old = await store.readOne("SELECT value FROM meta WHERE key = 'node_id'");
  if (old === null || old.value === id) return { id, isNew };
  const claim = "INSERT INTO meta (key, value) VALUES ('node_id_taken_by', ?) ON CONFLICT DO NOTHING";
  await store.write([{ sql: claim, args: [id] }], { durable: true });
  const taken = await store.readOne("SELECT value FROM meta WHERE key = 'node_id_taken_by'");
  if (taken?.value !== id) return { id, isNew };
  writeKept(file, String(old.value));
  return { id: String(old.value), isNew: false };
}

/** Warns that a lost file makes this machine a node that holds nothing, and names the ids that the file may have had. */
async function warnOfOthers(store: Store, file: string, id: string, log: Log): Promise<void> {
  const others = await store.read("SELECT id FROM nodes WHERE id <> ? ORDER BY seq DESC LIMIT 10", [id]);
  if (others.length === 0) return;
  const nodes = others.map((row) => String(row.id)).join(" ");
  log.warn(
    "new node: it cannot use what the store's other nodes hold; if it was one of them, write that id into the file",
    {
      file,
      id,
      nodes,
    },
  );
}
