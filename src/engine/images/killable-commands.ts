/**
 * Commands on the image store that can be killed, also by another process of this daemon. Each has a directory, which its command
 * line names: so a cancelled command, or one of a dead daemon, is found and killed with all its processes.
 */
import { type Clock, sleep } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { findProcesses } from "../kernel/command-lines.ts";
import type { LauncherClient, SpawnRequest, SpawnResult } from "../launcher/launcher.ts";

/** Runs a command of a directory to its end. An abort kills it; the caller then reads the signal. */
export async function runKillable(
  launcher: LauncherClient,
  command: SpawnRequest,
  { clock, directory, signal }: { readonly clock: Clock; readonly directory: string; readonly signal: AbortSignal },
): Promise<SpawnResult> {
  // The command may survive its launcher.
  await killCommands(clock, directory);
  const state = { isOver: false };
  const running = launcher.spawn(command).finally(() => {
    state.isOver = true;
  });
  const stop = async () => {
    while (!state.isOver) {
      await killCommands(clock, directory);
      await sleep(clock, LIMITS.pull_kill_interval_ms);
    }
  };
  const onAbort = () => void stop();
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  return running.finally(() => signal.removeEventListener("abort", onAbort));
}

/** Kills the processes of a directory: each command leads a group of its own. Resolves when none is found. */
export async function killCommands(clock: Clock, directory: string): Promise<void> {
  const isOf = (args: readonly string[]) => args.some((one) => one.startsWith(`${directory}/`));
  for (;;) {
    const found = await findProcesses(isOf);
    if (found.length === 0) return;
    for (const { pid } of found) killGroup(pid);
    await sleep(clock, LIMITS.pull_kill_interval_ms);
  }
}

function killGroup(pid: number): void {
  for (const target of [-pid, pid]) {
    try {
      process.kill(target, "SIGKILL");
    } catch {
      // It has ended, or leads no group.
    }
  }
}
