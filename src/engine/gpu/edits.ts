/**
 * The edits of CDI files as a container gets them: merged for all its GPUs, checked against this machine, and written into
 * its OCI configuration.
 *
 * D1 A device node is one of the container's own, made with the number of the machine's node: its owner is a user inside, and
 *    what is done to the node of a container is not done to the machine's. It lies on a tmpfs that only the launcher sees,
 *    for the time of the start, and is bind-mounted from there.
 * D2 Only the devices of the container's own GPUs are allowed by its control group.
 * D3 Files of this machine are mounted read-only, at the place that the container's links lead to, never at or below /dev,
 *    /proc, /sys or a volume.
 */
import type { BigIntStats } from "node:fs";
import { stat } from "node:fs/promises";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { CdiEdits, CdiHook, CdiNode } from "./cdi-file.ts";
import type { KnownGpu } from "./inventory.ts";

/** Annotation of the GPUs of a run, for a later process. */
export const GPUS_ANNOTATION = "hearth.gpus";

/** The GPUs in the OCI configuration of a run, as JSON. */
export interface GpuNote {
  readonly tenant_id: string;
  readonly gpus: readonly Pick<KnownGpu, "gpu_id" | "device" | "nodes">[];
  readonly environment: Readonly<Record<string, string>>;
}

/** A device node of a container: its file on this machine, and its number. */
export interface PlacedNode {
  readonly source: string;
  readonly target: string;
  readonly type: "b" | "c";
  readonly major: number;
  readonly minor: number;
  readonly access: string;
  readonly mode: number;
  /** On this machine. */
  readonly uid: number;
  readonly gid: number;
}

/** GPUs as the configuration of a container has them. */
export interface PlacedGpus {
  readonly note: GpuNote;
  readonly nodes: readonly PlacedNode[];
  readonly mounts: readonly { readonly source: string; readonly target: string; readonly is_executable: boolean }[];
  readonly hooks: readonly CdiHook[];
  readonly gids: readonly number[];
}

/** Edits of several GPUs: of two for the same path or variable the later one stands. */
export function mergedEdits(gpus: readonly Pick<KnownGpu, "edits" | "file_edits">[]): CdiEdits {
  const all = [...new Set(gpus.map(({ file_edits }) => file_edits)), ...gpus.map(({ edits }) => edits)];
  const last = <Item>(items: readonly Item[], key: (item: Item) => string): Item[] => [
    ...new Map(items.map((item) => [key(item), item])).values(),
  ];
  return {
    env: last(
      all.flatMap(({ env }) => env),
      (one) => one.slice(0, one.indexOf("=")),
    ),
    nodes: last(
      all.flatMap(({ nodes }) => nodes),
      ({ path }) => path,
    ),
    mounts: last(
      all.flatMap(({ mounts }) => mounts),
      ({ target }) => target,
    ),
    // A hook of two GPUs runs once: nvidia-ctk repeats the same ones.
    hooks: last(
      all.flatMap(({ hooks }) => hooks),
      (hook) => JSON.stringify(hook),
    ),
    gids: [...new Set(all.flatMap(({ gids }) => gids))],
  };
}

export const environmentOf = ({ env }: Pick<CdiEdits, "env">): Readonly<Record<string, string>> =>
  Object.fromEntries(env.map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]));

/**
 * Returns the device nodes with their numbers on this machine (D1). `directory`: where they will lie. `owner`: the user of this
 * machine that user 0 inside is. Rejects with START_FAILED if a node is not there.
 */
export async function placeNodes(
  nodes: readonly CdiNode[],
  directory: string,
  owner: number,
): Promise<readonly PlacedNode[]> {
  return Promise.all(
    nodes.map(async (node, i) => ({
      source: `${directory}/${i}`,
      target: node.path,
      ...(await numbersOf(node)),
      access: node.access,
      uid: owner + node.uid,
      gid: owner + node.gid,
    })),
  );
}

async function numbersOf(node: CdiNode): Promise<Pick<PlacedNode, "type" | "major" | "minor" | "mode">> {
  const failed = (why: string) => new AppError("START_FAILED", `GPU device ${node.host_path}: ${why}`);
  const found: BigIntStats | null = await stat(node.host_path, { bigint: true }).catch((error) => {
    if (node.type !== null && node.major !== null && error.code === "ENOENT") return null;
    throw failed(errorText(error));
  });
  if (found === null) {
    return { type: node.type ?? "c", major: node.major ?? 0, minor: node.minor ?? 0, mode: node.mode ?? 0o666 };
  }
  const type = found.isCharacterDevice() ? "c" : found.isBlockDevice() ? "b" : null;
  if (type === null) throw failed("not a device");
  if (node.type !== null && node.type !== type) throw failed(`of type ${type} (the CDI file says ${node.type})`);
  const [major, minor] = deviceNumbers(found.rdev);
  const mode = node.mode ?? Number(found.mode & 0o777n);
  return { type, major: node.major ?? major, minor: node.major === null ? minor : (node.minor ?? 0), mode };
}

/** makedev(3) the other way round. */
function deviceNumbers(rdev: bigint): [major: number, minor: number] {
  const major = ((rdev >> 8n) & 0xfffn) | ((rdev >> 32n) & 0xfffff000n);
  const minor = (rdev & 0xffn) | ((rdev >> 12n) & 0xffffff00n);
  return [Number(major), Number(minor)];
}

const MAKE_NODES = `set -e
mount -t tmpfs -o nosuid,noexec,mode=755,size=64k tmpfs "$1"
shift
while [ $# -gt 0 ]; do
  mknod -m "$2" "$1" "$3" "$4" "$5"
  chown "$6" "$1"
  shift 6
done`;

/** Makes the device nodes in `directory`, which exists, until `removeNodes` or the end of the launcher. */
export async function makeNodes(
  launcher: LauncherClient,
  directory: string,
  nodes: readonly PlacedNode[],
): Promise<void> {
  if (nodes.length === 0) return;
  const args = nodes.flatMap(({ source, mode, type, major, minor, uid, gid }) => [
    ...[source, mode.toString(8), type, String(major), String(minor)],
    `${uid}:${gid}`,
  ]);
  await launcher.run(["/bin/sh", "-c", MAKE_NODES, "make-nodes", directory, ...args], LIMITS.cdi_make_ms);
}

/** Unmounts the directory of the nodes. The container keeps those that it has. Never rejects. */
export async function removeNodes(launcher: LauncherClient, directory: string): Promise<void> {
  await launcher.unmount(directory).catch(() => {});
}
