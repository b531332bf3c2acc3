/** The places of snapshots and containers in the drawing of a lineage. */
import { describe, expect, it } from "vitest";
import { treeRows } from "../../src/page/assets/tree-layout.js";

const node = (id: string, parent: string | null, container_id = "box") => ({
  ...{ snapshot_id: id, parent_snapshot_id: parent, container_id, name: null, created_at: 0, depth: 0 },
});
const container = (id: string, snapshot_id: string) => ({
  ...{ container_id: id, name: id, state: "running" as const, snapshot_id, kind: "clone" as const },
  parent_container_id: null,
});
/** `<id>@<lane>` of each row, with the id of its parent. */
const drawn = (nodes: ReturnType<typeof node>[], containers: ReturnType<typeof container>[] = []) => {
  const rows = treeRows({ nodes, containers });
  return rows.map(({ id, lane, parent }) => `${id}@${lane} ${rows[parent]?.id ?? ""}`.trim());
};

describe("the rows of a lineage", () => {
  it("keep a chain in one lane, however long it is", () => {
    const nodes = Array.from({ length: 1_000 }, (_, i) => node(`s${i}`, i === 0 ? null : `s${i - 1}`));
    const rows = treeRows({ nodes, containers: [] });
    expect(rows.map(({ id }) => id)).toEqual(nodes.map(({ snapshot_id }) => snapshot_id));
    expect(new Set(rows.map(({ lane }) => lane))).toEqual(new Set([0]));
  });

  it("put containers and branches one lane further in, above the rest of the line", () => {
    const nodes = [node("a", null), node("b", "a"), node("x", "a", "copy"), node("y", "x", "copy")];
    expect(drawn(nodes, [container("box", "b"), container("copy", "y"), container("idle", "a")])).toEqual([
      ...["a@0", "idle@1 a", "x@1 a", "y@1 x", "copy@2 y"],
      ...["b@0 a", "box@1 b"],
    ]);
  });

  it("continue the line with the same container, even where another branch is longer", () => {
    const nodes = [node("a", null), node("x", "a", "copy"), node("y", "x", "copy"), node("b", "a")];
    expect(drawn(nodes)).toEqual(["a@0", "x@1 a", "y@1 x", "b@0 a"]);
  });

  it("begin a line for each snapshot whose parent is left out", () => {
    expect(drawn([node("a", "gone"), node("b", null)])).toEqual(["a@0", "b@0"]);
  });
});
