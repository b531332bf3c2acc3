/**
 * Layers that no image and no working container has: a pull adds layers one by one, and the image at its end. (A layer that is
 * not complete is removed by containers/storage itself, at the next start of any command on the store.)
 */
import type { ContainerRow, ImageRow, LayerRow } from "./store-files.ts";

export interface StoreLists {
  readonly images: readonly ImageRow[];
  readonly layers: readonly LayerRow[];
  readonly containers: readonly ContainerRow[];
}

/** The uncompressed layers of a pull that has ended. */
export interface PulledLayers {
  readonly diff_ids: readonly string[];
  readonly started_ms: number;
}

/**
 * Returns the ids of orphans, each after those above it, as they can be removed. A commit on the same store adds its
 * layer uncompressed, and its image moments later. Uncompressed layers are therefore orphans only if they are older than
 * `age_ms`, or come from one of the pulls. Layers without a digest, which belong to a container that is being made, never are.
 */
export function orphanLayers(
  { images, layers, containers }: StoreLists,
  now_ms: number,
  age_ms: number,
  pulls: readonly PulledLayers[] = [],
): string[] {
  const byId = new Map(layers.map((layer) => [layer.id, layer]));
  const needed = new Set<string>();
  const need = (id: string | undefined) => {
    for (let at = byId.get(id ?? ""); at !== undefined && !needed.has(at.id); at = byId.get(at.parent ?? "")) {
      needed.add(at.id);
    }
  };
  for (const { layer } of [...images, ...containers]) need(layer);
  for (const layer of layers) {
    if (!isRemovable(layer, now_ms, age_ms) && !pulls.some((pull) => isOf(layer, pull))) need(layer.id);
  }
  const depthOf = (layer: LayerRow): number => {
    let depth = 0;
    for (let at = byId.get(layer.parent ?? ""); at !== undefined; at = byId.get(at.parent ?? "")) depth++;
    return depth;
  };
  return layers
    .filter(({ id }) => !needed.has(id))
    .map((layer) => [layer.id, depthOf(layer)] as const)
    .sort(([, a], [, b]) => b - a)
    .map(([id]) => id);
}

function isRemovable(layer: LayerRow, now_ms: number, age_ms: number): boolean {
  const { "compressed-diff-digest": compressed, "diff-digest": plain } = layer;
  if (plain === undefined) return false;
  return (compressed !== undefined && compressed !== plain) || now_ms - Date.parse(layer.created) > age_ms;
}

/** A layer that was there before the pull is another's. */
function isOf({ "diff-digest": plain, created }: LayerRow, { diff_ids, started_ms }: PulledLayers): boolean {
  return plain !== undefined && diff_ids.includes(plain) && Date.parse(created) >= started_ms;
}
