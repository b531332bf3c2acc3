/**
 * The end of a container, whatever state it is in: after a stop, a start that was killed half-way, a crash of the
 * daemon or the launcher. The OCI runtime is asked first, but not believed: it knows nothing of a container whose
 * start was killed before its state was written. A container has ended when nothing runs in its control groups.
 */
import { rmSync } from "node:fs";
import { type Clock, sleep } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import { findProcesses } from "../kernel/command-lines.ts";
import { groupProcesses, removeGroup } from "../kernel/control-groups.ts";
import { thaw } from "../kernel/freezer.ts";
import type { OciRuntime } from "../oci/runtime.ts";
import type { CgroupMode } from "../ports/machine.ts";

const LOOK_INTERVAL_MS = 2;

export interface Remains {
  readonly id: string;
  readonly bundle: string;
  readonly cgroup: string;
  /** Directory in which the runtime keeps its containers' state. */
  readonly runtime_root: string;
  readonly isStarting: boolean;
}

export interface Reaper {
  readonly clock: Clock;
  readonly mode: CgroupMode;
  /** Null when there is none to ask (no launcher). */
  readonly runtime: OciRuntime | null;
}

/**
 * Removes all that is left of a container. `isStarting`: somebody may still be starting it. Rejects with INTERNAL when
 * its processes or groups do not go in time.
 */
export async function reap(reaper: Reaper, { id, bundle, cgroup, runtime_root, isStarting }: Remains): Promise<void> {
  const { clock, mode, runtime } = reaper;
  const end_ms = clock.monotonicMs() + LIMITS.reap_wait_ms;
  if (isStarting) await killStarters(clock, bundle, end_ms);
  await runtime?.delete(id).catch(() => {});
  failpoint("engine.remove.deleted");
  for (;;) {
    for (const pid of groupProcesses(mode, cgroup)) kill(pid);
    if (removeGroup(mode, cgroup)) break;
    if (clock.monotonicMs() > end_ms) throw notEnded("removed", id, groupProcesses(mode, cgroup));
    await sleep(clock, LOOK_INTERVAL_MS);
  }
  failpoint("engine.remove.emptied");
  rmSync(`${runtime_root}/${id}`, { recursive: true, force: true });
  rmSync(bundle, { recursive: true, force: true });
}

/** Kills all processes of a container and leaves its files and groups. Rejects with INTERNAL if they do not go in time. */
export async function killAll(
  { clock, mode }: Omit<Reaper, "runtime">,
  { id, bundle, cgroup }: Remains,
): Promise<void> {
  const end_ms = clock.monotonicMs() + LIMITS.reap_wait_ms;
  await killStarters(clock, bundle, end_ms);
  thaw(mode, cgroup);
  for (;;) {
    const pids = groupProcesses(mode, cgroup);
    if (pids.length === 0) return;
    if (clock.monotonicMs() > end_ms) throw notEnded("ended", id, pids);
    for (const pid of pids) kill(pid);
    await sleep(clock, LOOK_INTERVAL_MS);
  }
}

/** crun works on in a session of its own when the process that was asked is killed: it would bring up what is removed. */
async function killStarters(clock: Clock, bundle: string, end_ms: number): Promise<void> {
  while (clock.monotonicMs() < end_ms) {
    const starters = await findProcesses((args) => args.includes(bundle));
    if (starters.length === 0) return;
    for (const { pid } of starters) kill(pid);
    await sleep(clock, LOOK_INTERVAL_MS);
  }
}

function notEnded(what: string, id: string, pids: readonly number[]): AppError {
  const text = `container ${id} could not be ${what}: processes ${pids.join(", ")} remain after ${LIMITS.reap_wait_ms} ms`;
  return new AppError("INTERNAL", text);
}

/**
 * Waits until the helpers of an earlier process have ended: its launcher, which would go on with what it was asked, and
 * what works on its images. The launcher is ended, the other only when it takes long.
 */
export async function outlive(clock: Clock, launcher_socket: string, names_prefix: string): Promise<void> {
  const end_ms = clock.monotonicMs() + LIMITS.predecessor_wait_ms;
  for (;;) {
    const isLauncher = (args: readonly string[]) => args[1] === "launcher" && args[2] === launcher_socket;
    const isOnImage = (args: readonly string[]) => args.some((one) => one.startsWith(names_prefix));
    const running = await findProcesses((args) => isLauncher(args) || isOnImage(args));
    if (running.length === 0) return;
    const isLate = clock.monotonicMs() > end_ms;
    for (const { pid, args } of running) if (isLate || isLauncher(args)) kill(pid);
    await sleep(clock, LOOK_INTERVAL_MS);
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}
