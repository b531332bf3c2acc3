/** Why containers cannot be started on this node. */
import { LIMITS } from "../base/limits.ts";
import type { ContainerEngine } from "../engine/engine.ts";
import type { ResolvedImage } from "./service.ts";

/** The reason, or null where they can be. `image`: of the profile that every node has. */
export async function unready(
  engine: Pick<ContainerEngine, "images" | "area">,
  image: ResolvedImage,
): Promise<string | null> {
  if (!(await engine.images.isRelease(image.reference, image.release)))
    return "the image of the profile prod is not in the store";
  const { free_mb } = await engine.area.statistics();
  return free_mb < LIMITS.disk_limit_mb_min ? "the disk has no room for files of containers" : null;
}
