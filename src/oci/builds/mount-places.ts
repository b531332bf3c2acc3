/**
 * Mounts of a command and its root: where their targets lead, what they show, and what is left of them when the command has ended.
 *
 * P1. A target may pass links of the root: it is where they lead, inside of the root, and the rules of targets hold for that place.
 *     Nothing runs in the root meanwhile, and the engine refuses links (checkTargets of writable-root.ts), so none can move a mount.
 * P2. A bind mount is a copy, in a subvolume of the command's own: nothing that is written into it reaches the context, the stage or
 *     the image, and it leads nowhere on this machine. It ends with the command.
 * P3. Directories and files that are made for mounts go with them, as with BuildKit, unless the command has put something into them.
 */
import { AppError } from "../../base/errors.ts";
import { ENGINE_FILES, targetProblem } from "../../base/mount-targets.ts";
import { SCRATCH_IMAGE } from "../../base/scratch-image.ts";
import type { FileSession, FileType, MemoryDirectory, VolumeMount } from "../../engine/ports.ts";
import { type BuildCache, CACHE_KIND, type HeldMount } from "./cache.ts";
import { nestedProblem } from "./mounts.ts";
import { absent } from "./source-files.ts";
import type { StageRoot } from "./stage-root.ts";
import { digestOf, type MountFiles, type StepMount } from "./stages.ts";

type CacheStep = Extract<StepMount, { readonly type: "cache" }>;

export interface MountSources {
  readonly cache: BuildCache;
  readonly tenant_id: string;
  /** Of a bind mount. */
  readonly copy_mb: number;
  readonly signal: AbortSignal;
  /** Opens a session on a subvolume. */
  readonly within: <Result>(root: string, work: (session: FileSession) => Promise<Result>) => Promise<Result>;
  /** Copies the files of a mount to an absolute path. */
  readonly copyFiles: (files: MountFiles, to: FileSession, target: string) => Promise<void>;
}

/** A mount whose files are there. */
export interface TakenMount extends VolumeMount {
  readonly is_file: boolean;
}

/** Name of what is mounted, at the top of a subvolume. */
const ENTRY = "files";
/** As Linux has it. */
const LINKS_MAX = 40;

/** The mounts with the places that their targets lead to (P1). Throws INVALID_ARGUMENT. */
export async function placedMounts(files: FileSession, mounts: readonly StepMount[]): Promise<readonly StepMount[]> {
  const placed: StepMount[] = [];
  for (const mount of mounts) {
    if (mount.type === "secret") placed.push(mount);
    else placed.push({ ...mount, target: await placeOf(files, mount.target) });
  }
  const problem = nestedProblem(placed);
  if (problem !== null) throw new AppError("INVALID_ARGUMENT", `RUN --mount: ${problem}`);
  return placed;
}

async function placeOf(files: FileSession, target: string): Promise<string> {
  const rest = target.split("/").filter((part) => part !== "");
  let parts: string[] = [];
  let count = 0;
  for (let part = rest.shift(); part !== undefined; part = rest.shift()) {
    if (part === "..") parts.pop();
    if (part === ".." || part === ".") continue;
    const found = await files.stat([...parts, part].join("/")).catch(absent);
    if (found?.type !== "symlink") {
      parts.push(part);
      continue;
    }
    if (++count > LINKS_MAX) throw refused(target, `passes too many symbolic links (limit ${LINKS_MAX})`);
    const link = found.target ?? "";
    if (link.startsWith("/")) parts = [];
    rest.unshift(...link.split("/").filter((one) => one !== ""));
  }
  const place = `/${parts.join("/")}`;
  const problem = targetProblem(place);
  if (problem !== null) throw refused(target, `${problem}, where its symbolic links lead: '${place.slice(0, 100)}'`);
  return place;
}

function refused(target: string, problem: string): AppError {
  return new AppError("INVALID_ARGUMENT", `RUN --mount: target ${problem}: '${target.slice(0, 100)}'`, {
    details: { received: target },
  });
}

/** Takes what the mounts show, caches in the order of their keys: two commands never wait for each other. `held` grows meanwhile. */
export async function takeMounts(
  mounts: readonly StepMount[],
  held: HeldMount[],
  sources: MountSources,
): Promise<readonly TakenMount[]> {
  const volumes: TakenMount[] = [];
  const caches = Map.groupBy(
    mounts.filter((mount) => mount.type === "cache"),
    (mount) => cacheKey(mount, sources.tenant_id),
  );
  for (const key of [...caches.keys()].sort()) {
    const same = caches.get(key) ?? [];
    const sharing = same.find((mount) => mount.sharing !== "shared")?.sharing ?? "shared";
    const [first] = same;
    if (first === undefined) continue;
    const hasEntry = hasOwnEntry(first);
    const fill = hasEntry ? (root: string) => fillCache(first, root, sources) : null;
    const { cache, tenant_id, signal } = sources;
    const taken = await cache.mount(tenant_id, { key, sharing, fill, signal });
    held.push(taken);
    for (const { target, is_read_only } of same)
      volumes.push({
        ...{ id: taken.id, target, kind: CACHE_KIND, is_read_only, is_file: false },
        ...(hasEntry ? { entry: ENTRY } : {}),
      });
  }
  for (const mount of mounts) {
    if (mount.type !== "bind") continue;
    let is_file = false;
    const taken = await sources.cache.copy(sources.tenant_id, sources.copy_mb, async (root) => {
      is_file = (await fillFrom(mount.files, root, sources)) !== "directory";
    });
    held.push(taken);
    const { target, is_read_only } = mount;
    volumes.push({ id: taken.id, target, kind: CACHE_KIND, is_read_only, entry: ENTRY, is_file });
  }
  return volumes;
}

/** True if the directory of a cache is not the plain one: it has files, an owner or a mode of its own at first. */
const hasOwnEntry = ({ files, mode, uid, gid }: CacheStep): boolean =>
  files !== undefined || mode !== null || uid !== null || gid !== null;

/** As with BuildKit, a cache that begins with something else is another one. */
function cacheKey(mount: CacheStep, tenant_id: string): string {
  const { id, files, mode, uid, gid } = mount;
  const begin = hasOwnEntry(mount) ? [{ source: files?.source, key: files?.key, mode, uid, gid }] : [];
  return digestOf(["mount", tenant_id, id, ...begin]);
}

/** Returns the type of what is shown. */
function fillFrom(files: MountFiles | undefined, root: string, { within, copyFiles }: MountSources): Promise<FileType> {
  return within(root, async (session) => {
    if (files === undefined) await session.mkdir(ENTRY, { mode: 0o755 });
    else await copyFiles(files, session, `/${ENTRY}`);
    return (await session.stat(ENTRY)).type;
  });
}

async function fillCache({ files, mode, uid, gid }: CacheStep, root: string, sources: MountSources): Promise<void> {
  const type = await fillFrom(files, root, sources);
  if (type !== "directory") throw new AppError("INVALID_ARGUMENT", `source of a cache mount is a ${type}`);
  await sources.within(root, async (session) => {
    const found = await session.stat(ENTRY);
    await session.setAttributes(ENTRY, { mode: mode ?? found.mode, uid: uid ?? found.uid, gid: gid ?? found.gid });
  });
}

/** Throws INVALID_ARGUMENT where a file would be mounted over a directory, or a directory over a file. */
export async function checkKinds(files: FileSession, mounts: readonly TakenMount[]): Promise<void> {
  for (const { target, is_file } of mounts) {
    const there = await files.stat(target.slice(1)).catch(absent);
    if (there === null || (there.type !== "directory") === is_file) continue;
    throw refused(target, `is a ${there.type}, and a ${is_file ? "file" : "directory"} would be mounted there`);
  }
}

export const memoryDirectories = (mounts: readonly StepMount[]): readonly MemoryDirectory[] =>
  mounts.flatMap((mount) => {
    if (mount.type !== "tmpfs") return [];
    return [{ target: mount.target, ...(mount.size_bytes === null ? {} : { size_bytes: mount.size_bytes }) }];
  });

/** Paths that a start makes for mounts, and for files of every container where there is no image, the outer first. */
export async function missingPlaces(root: StageRoot, targets: readonly string[]): Promise<readonly string[]> {
  const made = root.image_id === SCRATCH_IMAGE ? [...targets, ...ENGINE_FILES] : targets;
  if (made.length === 0) return [];
  const paths = made.flatMap((path) =>
    path.split("/").flatMap((_part, i, parts) => parts.slice(1, i + 1).join("/") || []),
  );
  const session = await root.files();
  const missing: string[] = [];
  for (const path of new Set(paths)) if ((await session.stat(path).catch(absent)) === null) missing.push(path);
  return missing;
}

/** P3. */
export async function removeMissing(session: FileSession, missing: readonly string[]): Promise<void> {
  for (const path of missing.toReversed()) {
    const found = await session.stat(path).catch(() => null);
    if (found?.type === "directory" || found?.size === 0) await session.remove(path).catch(() => {});
  }
}
