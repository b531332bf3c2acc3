/**
 * The mounts of an OCI configuration, in the order in which the OCI runtime makes them. Containers, instances, commands of
 * builds and the probe pass here, whoever made their specification.
 *
 * 1. the kernel's file systems
 * 2. directories in memory, outer before inner: empty, so that no link of theirs leads anywhere
 * 3. files of this machine that every container sees
 * 4. directories that the owner of the container wrote, none in another
 * 5. GPUs
 * 6. minit: whatever was mounted before, PID 1 is the daemon's program
 */
import { AppError } from "../../base/errors.ts";
import { isBelow, nestedTargets, plainPath, targetProblem } from "../../base/mount-targets.ts";

export interface OciMount {
  readonly destination: string;
  readonly type: string;
  readonly source: string;
  readonly options: readonly string[];
}

export interface MountGroups {
  readonly kernel: readonly OciMount[];
  /** None where an owned one covers it. */
  readonly memory: readonly OciMount[];
  readonly files: readonly OciMount[];
  /** Their content is the owner's, or comes from another container of the owner. */
  readonly owned: readonly OciMount[];
  readonly gpus: readonly OciMount[];
  readonly minit: OciMount;
}

/** Returns all mounts in their order. Throws INVALID_ARGUMENT for a target that breaks a rule of src/base/mount-targets.ts. */
export function arrangeMounts({ kernel, memory, files, owned, gpus, minit }: MountGroups): readonly OciMount[] {
  const inMemory = memory.map(({ destination }) => destination);
  const targets = owned.map(({ destination }) => destination);
  for (const target of [...inMemory, ...targets]) {
    const problem = targetProblem(target);
    if (problem !== null) throw refused(target, problem);
  }
  const nested = nestedTargets(targets);
  if (nested !== null) throw refused(nested.inner, `must not be at or below the mount ${nested.outer}`);
  for (const target of targets) {
    const hidden = inMemory.find((one) => isBelow(one, target));
    if (hidden !== undefined) throw refused(target, `must not be in the place of ${hidden}`);
  }
  for (const { destination } of [...files, ...gpus]) {
    if (plainPath(destination) !== destination || isBelow(minit.destination, destination)) {
      throw refused(destination, `must not be in the place of ${minit.destination}`);
    }
  }
  const byDepth = [...memory].sort((a, b) => a.destination.length - b.destination.length);
  return [...kernel, ...byDepth, ...files, ...owned, ...gpus, minit];
}

function refused(target: string, problem: string): AppError {
  return new AppError("INVALID_ARGUMENT", `mount target ${problem}: ${target.slice(0, 200)}`);
}
