/**
 * The places of a lineage's snapshots and containers in its drawing. Pure: the same rows for the same lineage.
 *
 * Each snapshot and each container has a row of its own, below its parent. The main line of descent stays in one lane;
 * every branch and every container is one lane further in. So a chain of a thousand snapshots takes one lane, and a
 * thousand clones take two.
 *
 * T1. A parent's row is above the rows of its children.
 * T2. Between two rows of one lane that a line connects, no other row has that lane.
 */

/** @import { Lineage } from "../wire.ts" */
/** @typedef {Lineage["nodes"][number]} Node */
/** @typedef {Lineage["containers"][number]} Container */
/**
 * @typedef {object} TreeRow
 * @property {string} id
 * @property {number} lane
 * @property {number} parent row of the parent; -1: it has none here
 * @property {Node | null} node null for a container
 * @property {Container | null} container null for a snapshot
 */

/** @template Item @param {readonly Item[]} items @param {(item: Item) => string} keyOf */
function grouped(items, keyOf) {
  /** @type {Map<string, Item[]>} */
  const groups = new Map();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}

/** Number of snapshots from each on; parents stand before their children. @param {readonly Node[]} nodes */
function sizesOf(nodes) {
  /** @type {Map<string, number>} */
  const sizes = new Map();
  for (const { snapshot_id, parent_snapshot_id } of nodes.toReversed()) {
    const size = (sizes.get(snapshot_id) ?? 0) + 1;
    sizes.set(snapshot_id, size);
    if (parent_snapshot_id === null) continue;
    sizes.set(parent_snapshot_id, (sizes.get(parent_snapshot_id) ?? 0) + size);
  }
  return sizes;
}

/** @param {Pick<Lineage, "nodes" | "containers">} lineage @returns {TreeRow[]} */
export function treeRows({ nodes, containers }) {
  const known = new Set(nodes.map(({ snapshot_id }) => snapshot_id));
  const isRoot = (/** @type {Node} */ node) => !known.has(node.parent_snapshot_id ?? "");
  const children = grouped(
    nodes.filter((node) => !isRoot(node)),
    ({ parent_snapshot_id }) => parent_snapshot_id ?? "",
  );
  const residents = grouped(containers, ({ snapshot_id }) => snapshot_id);
  const sizes = sizesOf(nodes);
  /** @type {TreeRow[]} */
  const rows = [];
  /** The child that continues the line: of the same container if there is one, else the one with most after it. @param {Node} node */
  const mainOf = ({ snapshot_id, container_id }) => {
    const all = children.get(snapshot_id) ?? [];
    const own = all.filter((child) => child.container_id === container_id);
    const weight = (/** @type {Node} */ child) => sizes.get(child.snapshot_id) ?? 0;
    return (own.length > 0 ? own : all).reduce(
      (best, child) => (best === null || weight(child) > weight(best) ? child : best),
      /** @type {Node | null} */ (null),
    );
  };
  /** @param {Node} first @param {number} lane @param {number} above */
  const addLine = (first, lane, above) => {
    let parent = above;
    for (let node = /** @type {Node | null} */ (first); node !== null; ) {
      const at = rows.push({ id: node.snapshot_id, lane, parent, node, container: null }) - 1;
      for (const container of residents.get(node.snapshot_id) ?? [])
        rows.push({ id: container.container_id, lane: lane + 1, parent: at, node: null, container });
      const main = mainOf(node);
      for (const child of children.get(node.snapshot_id) ?? []) if (child !== main) addLine(child, lane + 1, at);
      node = main;
      parent = at;
    }
  };
  for (const node of nodes) if (isRoot(node)) addLine(node, 0, -1);
  return rows;
}
