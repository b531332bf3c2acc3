/**
 * Hooks of application-consistent snapshots: programs of the container that bring its files in order before a snapshot,
 * and let its work go on after it. They run as the container's user, with its environment, within a deadline each.
 *
 * K1 Once the first hook was tried, the second one runs, whatever became of the first and of the snapshot.
 */
import { containerEnvironment } from "../base/container-environment.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { ContainerRow } from "../containers/service.ts";
import type { Containers, GatheredExit } from "../engine/ports.ts";
import type { SnapshotRecord } from "./schema.ts";

export type Hooks = SnapshotRecord["metadata"]["hooks"];
type Outcome = NonNullable<Hooks["pre"]>;

const PRE = "/etc/hearth/pre-snapshot";
const POST = "/etc/hearth/post-snapshot";

export const NO_HOOKS: Hooks = { pre: null, post: null };

/**
 * Does `work` between the two hooks of a container that runs. Rejects with what `work` rejects with, and with WRONG_STATE
 * where the first hook fails; the outcome of the second is in the result.
 */
export async function betweenHooks<Result>(
  containers: Containers,
  row: ContainerRow,
  snapshot_id: string,
  work: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly hooks: Hooks }> {
  const run = (path: string) => runHook(containers, row, path, snapshot_id);
  let post: Outcome | null = null;
  const attempt = async () => {
    const pre = await run(PRE);
    if (pre !== null && pre.exit_code !== 0) throw hookFailed(pre);
    return { pre, result: await work() };
  };
  const { pre, result } = await attempt().finally(async () => {
    post = await run(POST);
  });
  return { result, hooks: { pre, post } };
}

/** Resolves to null if the container has no such hook. */
async function runHook(
  containers: Containers,
  row: ContainerRow,
  path: string,
  snapshot_id: string,
): Promise<Outcome | null> {
  if (containers.live(row.id) === null) return null;
  const { exited } = containers.run(row.id, {
    argv: [path],
    environment: containerEnvironment(row, { SNAPSHOT_ID: snapshot_id }),
    working_directory: "/",
    timeout_ms: LIMITS.snapshot_hook_ms,
    grace_ms: LIMITS.snapshot_hook_grace_ms,
    output_bytes_max: LIMITS.snapshot_hook_output_bytes,
    is_stream: false,
  });
  try {
    const end = await exited;
    // Also the interpreter of a hook may be missing: then the hook fails.
    if (end.spawn_failed && end.exit_code === NOT_FOUND && !(await isThere(containers, row, path))) return null;
    return { exit_code: end.timed_out ? null : end.exit_code, timed_out: end.timed_out, output: outputOf(end) };
  } catch (error) {
    const output = error instanceof AppError ? error.message : errorText(error);
    return { exit_code: null, timed_out: false, output };
  }
}

async function isThere(
  containers: Containers,
  { id, tenant_id, image_id }: ContainerRow,
  path: string,
): Promise<boolean> {
  const { session, close } = await containers.openFiles({ id, tenant_id, image_id });
  try {
    await session.stat(path);
    return true;
  } catch (error) {
    if (error instanceof AppError && error.code === "NOT_FOUND") return false;
    throw error;
  } finally {
    close();
  }
}

/** Exit code of a command that is not there. */
const NOT_FOUND = 127;

function outputOf({ stdout, stderr }: GatheredExit): string {
  const bytes = Buffer.concat([stdout, stderr]);
  return bytes.subarray(0, LIMITS.snapshot_hook_output_bytes).toString("utf8");
}

function failureOf({ exit_code, timed_out }: Outcome): string {
  if (timed_out) return `did not end within ${LIMITS.snapshot_hook_ms} ms`;
  return exit_code === null ? "could not be run" : `exited with ${exit_code}`;
}

function hookFailed(outcome: Outcome): AppError {
  const { exit_code, output } = outcome;
  return new AppError("WRONG_STATE", `the hook ${PRE} of the container ${failureOf(outcome)}`, {
    reason_code: "HOOK_FAILED",
    details: { exit_code, output },
    hint: "correct the hook, or take a crash-consistent snapshot",
  });
}

/** Returns the warnings about hooks that did not run. */
export function hookWarnings({ pre, post }: Hooks, isLive: boolean): string[] {
  if (!isLive) return ["the container does not run, so no hook ran: its files are at rest"];
  const warnings: string[] = [];
  if (pre === null && post === null) {
    warnings.push(`the container has no hooks (${PRE}, ${POST}): its files were written to the disk and it was frozen`);
  }
  if (post !== null && post.exit_code !== 0) {
    warnings.push(`the hook ${POST} ${failureOf(post)}`);
  }
  return warnings;
}
