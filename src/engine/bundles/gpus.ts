/** The GPUs of a container or an instance in its OCI configuration: what they add to it, and nothing without them. */
import { LIMITS } from "../../base/limits.ts";
import { GPUS_ANNOTATION, type PlacedGpus } from "../gpu/edits.ts";
import type { OciMount } from "./mounts.ts";

/** Device nodes and files. Bind mounts, because a container with a user namespace cannot make or open a node of its own. */
export function gpuMounts(gpus: PlacedGpus | null): OciMount[] {
  if (gpus === null) return [];
  const bound = (source: string, destination: string, options: readonly string[]) => ({
    destination,
    type: "bind",
    source,
    options: ["bind", "nosuid", ...options],
  });
  return [
    ...gpus.mounts.map(({ source, target, is_executable }) =>
      bound(source, target, ["nodev", "ro", ...(is_executable ? [] : ["noexec"])]),
    ),
    ...gpus.nodes.map(({ source, target }) => bound(source, target, ["noexec"])),
  ];
}

/** Rules of the control group, after those of every container. */
export function gpuDevices(gpus: PlacedGpus | null): object[] {
  const nodes = (gpus?.nodes ?? []).filter(({ access }) => access !== "");
  return nodes.map(({ type, major, minor, access }) => ({ allow: true, type, major, minor, access }));
}

/**
 * The root, and programs of this machine that the OCI runtime runs: most as root outside of the container, `createContainer`
 * in its namespaces before its root is `/`. The latter may write to the root: nvidia-ctk's make links of libraries and
 * the cache of the dynamic linker there. crun makes a root read-only before them, so here a last hook does it after them.
 */
export function rootAndHooks(path: string, readonly: boolean, gpus: PlacedGpus | null): object {
  if (gpus === null || gpus.hooks.length === 0) return { root: { path, readonly } };
  const hooks: Record<string, object[]> = {};
  for (const { name, path, args, env, timeout_seconds } of gpus.hooks) {
    hooks[name] = [
      ...(hooks[name] ?? []),
      { path, args: args.length === 0 ? [path] : args, env, timeout: timeout_seconds },
    ];
  }
  if (!readonly || hooks.createContainer === undefined) return { root: { path, readonly }, hooks };
  const args = ["mount", "--no-mtab", "-o", "remount,bind,ro", path];
  hooks.createContainer.push({ path: "/bin/mount", args, timeout: LIMITS.cdi_hook_seconds_max });
  return { root: { path, readonly: false }, hooks };
}

export const gpuAnnotation = (gpus: PlacedGpus | null): Record<string, string> =>
  gpus === null ? {} : { [GPUS_ANNOTATION]: JSON.stringify(gpus.note) };
