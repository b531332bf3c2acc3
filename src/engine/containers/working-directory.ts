/**
 * The working directory of a container that lacks it. The OCI runtime makes it as root, as Docker does for WORKDIR; in a container
 * with `strict` nobody inside could give it to the user of its commands then, so it is made here as the user's own.
 */
import { AppError } from "../../base/errors.ts";
import { isBelow } from "../../base/mount-targets.ts";
import { targetsOf } from "../bundles/container.ts";
import type { EngineHost } from "../host/host.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { ContainerSpec } from "../ports/containers.ts";

interface Place {
  readonly spec: ContainerSpec;
  /** Its root, as the launcher sees it: mounted, and nothing runs in it. */
  readonly rootfs: string;
  /** Of its user namespace; 0 without one. */
  readonly first_id: number;
}

/**
 * Makes it with those above it that are missing, through a session that is jailed in the root: a link of the image leads nowhere else.
 * What is there, a link too, stays as it is, and so does what a mount covers. A user that is not found ends the container itself,
 * and where something is in the way it is the runtime that makes the directory or says why not. Rejects with CONCURRENCY_LIMIT,
 * CAPACITY_FULL.
 */
export async function makeWorkingDirectory(host: EngineHost, launcher: LauncherClient, place: Place): Promise<void> {
  const { spec, rootfs, first_id } = place;
  const { tenant_id, user, working_directory } = spec;
  if (!spec.strict || user === null || spec.read_only_root) return;
  if (targetsOf(spec).some((target) => isBelow(working_directory, target))) return;
  if ((await launcher.lstatInRoot(rootfs, working_directory)) !== null) return;
  const { session, close } = await host.files.open(tenant_id, rootfs, first_id, launcher);
  try {
    const owner = await session.findOwner(user);
    if (owner === null) return;
    await session.setBase(working_directory, owner).catch((error: unknown) => {
      if (!(error instanceof AppError) || !session.isOpen) throw error;
    });
  } finally {
    close();
  }
}
