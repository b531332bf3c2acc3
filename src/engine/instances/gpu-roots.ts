/**
 * The device nodes of an instance with GPUs, and a root of its own above that of the image, for the time of its start. The
 * root has the mount points for files of the driver, so that other instances of the image do not see them.
 * Both lie on tmpfs that only the launcher sees; the instance keeps them when the launcher has unmounted them.
 */
import { mkdirSync } from "node:fs";
import { RUNTIME_INSIDE } from "../../base/container-environment.ts";
import { LIMITS } from "../../base/limits.ts";
import { makeNodes, type PlacedGpus, placeNodes, removeNodes } from "../gpu/edits.ts";
import type { TakenGpus } from "../gpu/gpus.ts";
import { resolveTarget } from "../gpu/targets.ts";
import type { EngineHost } from "../host/host.ts";
import type { LauncherClient } from "../launcher/launcher.ts";

const MAKE_ROOT = `set -e
mount -t tmpfs -o nosuid,nodev,mode=755,size=1m,nr_inodes=4096 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "nodev,lowerdir=$2,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"`;
/** Mounted over after the start, or written to by the instance. */
const CLOSED = ["/function", "/run", "/tmp", RUNTIME_INSIDE];

export interface GpuRoot {
  readonly gpus: PlacedGpus;
  readonly rootfs: string;
}

export class GpuRoots {
  readonly #host: EngineHost;

  constructor(host: EngineHost) {
    this.#host = host;
  }

  /** Rejects with START_FAILED, or INTERNAL with the step that failed. Call `end` in any case. */
  async begin(
    launcher: LauncherClient,
    {
      bundle,
      image,
      uid,
      taken,
    }: {
      readonly bundle: string;
      /** Root of the image. */
      readonly image: string;
      readonly uid: number;
      readonly taken: TakenGpus;
    },
  ): Promise<GpuRoot> {
    const { note, edits } = taken;
    const [nodes_directory, root_directory] = directoriesOf(bundle);
    for (const path of [nodes_directory, root_directory]) mkdirSync(path, { recursive: true, mode: 0o700 });
    // The only user inside has no other rights to them.
    const nodes = (await placeNodes(edits.nodes, nodes_directory, 0)).map((node) => ({ ...node, uid, gid: uid }));
    await makeNodes(launcher, nodes_directory, nodes);
    await launcher.run(["/bin/sh", "-c", MAKE_ROOT, "make-root", root_directory, image], LIMITS.cdi_make_ms);
    const rootfs = `${root_directory}/root`;
    const inside = `${this.#host.launcherRoot}${rootfs}`;
    const mounts = await Promise.all(
      edits.mounts.map(async (mount) => ({ ...mount, target: await resolveTarget(inside, mount.target, CLOSED) })),
    );
    return { rootfs, gpus: { note, nodes, mounts, hooks: edits.hooks, gids: [] } };
  }

  /** Never rejects. */
  async end(launcher: LauncherClient, bundle: string): Promise<void> {
    const [nodes_directory, root_directory] = directoriesOf(bundle);
    for (const path of [nodes_directory, `${root_directory}/root`, root_directory]) await removeNodes(launcher, path);
  }
}

const directoriesOf = (bundle: string) => [`${bundle}/gpus`, `${bundle}/root`] as const;
