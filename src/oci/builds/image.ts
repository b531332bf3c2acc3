/** The configuration of a built image: its settings, its layers and its history. */
import { LIMITS } from "../../base/limits.ts";
import { OWN_BYTES } from "../image-config.ts";
import type { Platform } from "../platform.ts";
import type { Settings } from "./settings.ts";
import type { HistoryLine } from "./stages.ts";

export interface BaseLayers {
  /** Of the base image; empty for none. */
  readonly diff_ids: readonly string[];
  readonly history: readonly Readonly<Record<string, unknown>>[];
}

export interface ImageParts {
  readonly base: BaseLayers;
  readonly settings: Pick<Settings, "toJson">;
  readonly history: readonly Pick<HistoryLine, "created_by" | "has_files">[];
  /** Bytes that each line of the history added to the files, where they are known. Absent: of none. */
  readonly own_bytes?: readonly number[] | null;
  /** Null: the build changed no file. */
  readonly diff_id: string | null;
  readonly platform: Platform;
  /** As ISO 8601 has it. */
  readonly created: string;
}

export const NO_LAYERS: BaseLayers = { diff_ids: [], history: [] };

/** Reads the layers of an image from its configuration, which the store has checked. */
export function baseLayers(config_json: string): BaseLayers {
  const { rootfs, history } = JSON.parse(config_json) as {
    readonly rootfs?: { readonly diff_ids?: readonly string[] };
    readonly history?: readonly Readonly<Record<string, unknown>>[] | null;
  };
  const diff_ids = rootfs?.diff_ids ?? [];
  const layers_count = (history ?? []).filter((line) => line.empty_layer !== true).length;
  // Steps of the base that cannot be told apart: one for each layer.
  const isUsable = layers_count === diff_ids.length && (history ?? []).length <= LIMITS.build_history_max;
  return { diff_ids, history: isUsable ? (history ?? []) : diff_ids.map(() => ({})) };
}

/**
 * Returns the bytes that each line of a history added to the files. `sizes`: bytes of the root on the disk after the steps, by
 * their keys. What a step without a size added counts to the next one with a size. A step that only deletes adds nothing.
 */
export function ownBytes(history: readonly HistoryLine[], sizes: ReadonlyMap<string, number>): number[] {
  let before = 0;
  return history.map(({ key }) => {
    const after = key === null ? undefined : sizes.get(key);
    if (after === undefined) return 0;
    const own = Math.max(0, after - before);
    before = after;
    return own;
  });
}

/** Makes the configuration as JSON. The layer of the build belongs to the last step that changes files. */
export function imageConfig(parts: ImageParts): string {
  const { base, settings, history, diff_id, platform, created, own_bytes = null } = parts;
  const last = diff_id === null ? -1 : history.findLastIndex(({ has_files }) => has_files);
  const lines = history.map(({ created_by }, i) => ({
    ...{ created, created_by },
    ...(i === last ? {} : { empty_layer: true }),
    ...(own_bytes === null ? {} : { [OWN_BYTES]: own_bytes[i] ?? 0 }),
  }));
  const { os, architecture, variant } = platform;
  return JSON.stringify({
    created,
    architecture,
    os,
    ...(variant === null ? {} : { variant }),
    config: settings.toJson(),
    rootfs: { type: "layers", diff_ids: diff_id === null ? base.diff_ids : [...base.diff_ids, diff_id] },
    history: [...base.history, ...lines],
  });
}
