/** Whether containers can be started on this node, and why not. */
import { LIMITS } from "../base/limits.ts";
import type { Engine } from "../engine/ports.ts";

/** An image that a container may be made from. */
export interface ResolvedImage {
  readonly reference: string;
  /** What the profile of that name promises; null: it is no profile. */
  readonly release: string | null;
}

interface Parts {
  readonly engine: Pick<Engine, "images" | "storage">;
  resolveImage(selector: string, oci: boolean): ResolvedImage;
}

export async function readinessOf({ engine, resolveImage }: Parts, running_count: number) {
  // The profile that every node has.
  const reason = await unready(engine, resolveImage("prod", false));
  const status = reason === null ? ("ok" as const) : ("degraded" as const);
  return { status, concern: "containers" as const, running_count, reason };
}

/** Returns null where they can be started. */
async function unready(engine: Parts["engine"], image: ResolvedImage): Promise<string | null> {
  if (!(await engine.images.isRelease(image.reference, image.release)))
    return "the image of the profile prod is not in the store";
  const { free_mb } = await engine.storage.statistics();
  return free_mb < LIMITS.disk_limit_mb_min ? "the disk has no room for files of containers" : null;
}
