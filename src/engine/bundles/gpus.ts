/** The GPUs of a container or an instance in its OCI configuration: what they add to it, and nothing without them. */
import { GPUS_ANNOTATION, type PlacedGpus } from "../gpu/edits.ts";

/** Device nodes and files. Bind mounts, because a container with a user namespace cannot make or open a node of its own. */
export function gpuMounts(gpus: PlacedGpus | null): object[] {
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

/** Programs of this machine, which the OCI runtime runs as root outside of the container. */
export function gpuHooks(gpus: PlacedGpus | null): object {
  if (gpus === null || gpus.hooks.length === 0) return {};
  const hooks: Record<string, object[]> = {};
  for (const { name, path, args, env, timeout_seconds } of gpus.hooks) {
    hooks[name] = [
      ...(hooks[name] ?? []),
      { path, args: args.length === 0 ? [path] : args, env, timeout: timeout_seconds },
    ];
  }
  return { hooks };
}

export const gpuAnnotation = (gpus: PlacedGpus | null): Record<string, string> =>
  gpus === null ? {} : { [GPUS_ANNOTATION]: JSON.stringify(gpus.note) };
