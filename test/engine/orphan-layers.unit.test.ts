/** Which layers of a store belong to nothing. */
import { describe, expect, it } from "vitest";
import { orphanLayers, type PulledLayers } from "../../src/engine/images/orphan-layers.ts";
import type { LayerRow } from "../../src/engine/images/store-files.ts";

const NOW_MS = Date.parse("2026-11-23T12:00:00Z");
const HOUR_MS = 3_600_000;

/** A layer as a registry had it: compressed. */
function pulled(id: string, parent = "", more: Partial<LayerRow> = {}): LayerRow {
  const created = new Date(NOW_MS - 1_000).toISOString();
  return { id, parent, created, "compressed-diff-digest": `z${id}`, "diff-digest": `d${id}`, ...more };
}

const committed = (id: string, age_ms: number, parent = ""): LayerRow =>
  pulled(id, parent, { "compressed-diff-digest": `d${id}`, created: new Date(NOW_MS - age_ms).toISOString() });

function orphans(
  layers: readonly LayerRow[],
  images: readonly string[] = [],
  containers: readonly string[] = [],
  pulls: readonly PulledLayers[] = [],
): string[] {
  const lists = {
    layers,
    images: images.map((layer, i) => ({ id: `i${i}`, layer })),
    containers: containers.map((layer, i) => ({ id: `c${i}`, layer })),
  };
  return orphanLayers(lists, NOW_MS, HOUR_MS, pulls);
}

describe("layers of a store", () => {
  it("are orphans without an image, the highest first", () => {
    expect(orphans([pulled("a"), pulled("b", "a"), pulled("c", "b")])).toEqual(["c", "b", "a"]);
    expect(orphans([])).toEqual([]);
  });

  it("belong to images and working containers, with all below them", () => {
    const layers = [pulled("a"), pulled("b", "a"), pulled("c", "b"), pulled("d", "a")];
    expect(orphans(layers, ["b"])).toEqual(["c", "d"]);
    expect(orphans(layers, [], ["c"])).toEqual(["d"]);
    expect(orphans(layers, ["c", "d"])).toEqual([]);
  });

  it("may belong to a running commit while they are uncompressed and young", () => {
    expect(orphans([committed("a", HOUR_MS - 1), pulled("b")])).toEqual(["b"]);
    expect(orphans([committed("a", HOUR_MS + 1), pulled("b")])).toEqual(["a", "b"]);
    expect(orphans([pulled("a"), committed("b", 1_000, "a")])).toEqual([]);
  });

  it("are orphans while they are uncompressed and young if they came with a pull that has ended", () => {
    const pull = (diff_ids: string[], age_ms: number) => [{ diff_ids, started_ms: NOW_MS - age_ms }];
    const layers = [committed("a", 1_000), committed("b", 1_000, "a"), committed("c", 1_000)];
    expect(orphans(layers, [], [], pull(["da", "db"], 1_000))).toEqual(["b", "a"]);
    expect(orphans(layers, ["b"], [], pull(["da", "db", "dc"], 2_000))).toEqual(["c"]);
    // Another's: it was there before, or it stands on the layer.
    expect(orphans(layers, [], [], pull(["da", "db"], 999))).toEqual([]);
    expect(orphans(layers, [], [], pull(["da"], 1_000))).toEqual([]);
  });

  it("belong to a container that is being made if they have no digest", () => {
    const made: LayerRow = { id: "m", parent: "a", created: new Date(0).toISOString() };
    expect(orphans([pulled("a"), made])).toEqual([]);
  });
});
