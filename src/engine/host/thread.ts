/**
 * Tasks of the worker threads: the parts of starting and removing a container that block or take main-thread time
 * (writing the bundle, talking to the OCI runtime, sweeping). Each thread has its own connection to the launcher.
 * The tasks are named exports; piscina calls them by name.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { workerData } from "piscina";
import { sleep, systemClock } from "../../base/clock.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import { type Placement, writeContainerConfig } from "../bundles/container.ts";
import { type InstanceSpec, instanceConfig } from "../bundles/instance.ts";
import { containerProcesses, groupProcesses, groupsIn, hierarchies } from "../kernel/control-groups.ts";
import { readProcesses } from "../kernel/stats.ts";
import { LauncherClient } from "../launcher/launcher.ts";
import { type Handover, OciRuntime } from "../oci/runtime.ts";
import type { ContainerSpec, ProcessList } from "../ports/containers.ts";
import type { CgroupMode } from "../ports/machine.ts";
import { type Remains, reap } from "./reaper.ts";

export interface ThreadData {
  readonly launcher_socket: string;
  readonly runtime_command: string;
  readonly runtime_version: string;
  readonly cgroup_mode: CgroupMode;
}

/** State of the launcher, sent with every task. */
export interface LauncherNote {
  /** 0: there is none. */
  readonly launcher_pid: number;
}

export interface StartTask {
  readonly spec: InstanceSpec;
  /** Directory for config.json and the socket; made here. */
  readonly bundle: string;
  readonly listen_path: string;
  /** Directory in which the runtime keeps its containers' state. */
  readonly runtime_root: string;
}

/** An API container: its files, and what its first process gets. */
export interface StartContainerTask {
  readonly spec: ContainerSpec;
  readonly placement: Placement;
  readonly bundle: string;
  readonly runtime_root: string;
  readonly handover: Handover;
}

const data = workerData as ThreadData;
/**
 * The thread's connection. Another launcher gets another connection: a thread that waits for a task runs no event loop
 * and does not see that its connection was closed.
 */
const connection: { client: LauncherClient | null; launcher_pid: number } = { client: null, launcher_pid: 0 };

function runtime(root: string, launcher_pid: number): OciRuntime {
  if (connection.client?.isOpen !== true || connection.launcher_pid !== launcher_pid) {
    connection.client?.close();
    connection.client = new LauncherClient(data.launcher_socket, systemClock);
    connection.client.unref();
    connection.launcher_pid = launcher_pid;
  }
  const { client } = connection;
  return new OciRuntime(() => client, data.runtime_command, data.runtime_version, root);
}

/** Starts a container from its specification. After a rejection call `remove`. Resolves to milliseconds spent on the bundle. */
export async function start(task: StartTask & LauncherNote): Promise<{ rootfs_ms: number }> {
  const { spec, bundle, listen_path, runtime_root, launcher_pid } = task;
  const begun_ms = systemClock.monotonicMs();
  mkdirSync(bundle, { recursive: true, mode: 0o700 });
  writeFileSync(`${bundle}/config.json`, JSON.stringify(instanceConfig(spec)));
  const rootfs_ms = systemClock.monotonicMs() - begun_ms;
  failpoint("engine.start.bundle");
  await runtime(runtime_root, launcher_pid).run(spec.id, bundle, { listen_path }, LIMITS.start_timeout_ms);
  failpoint("engine.start.spawned");
  return { rootfs_ms };
}

/** Starts an API container. After a rejection call `remove`. */
export async function startContainer(task: StartContainerTask & LauncherNote): Promise<void> {
  const { spec, placement, bundle, runtime_root, handover, launcher_pid } = task;
  writeContainerConfig(bundle, spec, placement);
  failpoint("containers.start.bundle");
  await runtime(runtime_root, launcher_pid).run(placement.run, bundle, handover, LIMITS.start_timeout_ms);
  failpoint("containers.start.spawned");
}

export interface Census {
  /** Containers that have a control group. */
  readonly present: readonly string[];
  /** Those of them in which nothing runs. */
  readonly empty: readonly string[];
}

/**
 * Counts the containers below `parent`. Hundreds take tens of milliseconds of processor, for which calls on a busy
 * machine would wait: the census works in slices with rests between.
 */
export async function census({ parent }: { readonly parent: string }): Promise<Census> {
  const mode = data.cgroup_mode;
  const rest = () => sleep(systemClock, LIMITS.census_rest_ms);
  const names = new Set<string>();
  for (const hierarchy of hierarchies(mode)) {
    for (const name of groupsIn(hierarchy, parent)) names.add(name);
    await rest();
  }
  const present = [...names];
  const empty: string[] = [];
  for (const [i, id] of present.entries()) {
    if (i % LIMITS.census_slice_count === LIMITS.census_slice_count - 1) await rest();
    // One look suffices for a container in which something runs; what seems empty is looked at everywhere, which for
    // hundreds of containers would take a tenth of a second of processor each time.
    const path = `${parent}/${id}`;
    if (containerProcesses(mode, path).length === 0 && groupProcesses(mode, path).length === 0) empty.push(id);
  }
  return { present, empty };
}

/** Lists the processes of the container whose control groups are `group`. */
export function processes({ group }: { readonly group: string }): Promise<ProcessList> {
  return readProcesses(data.cgroup_mode, group, () => sleep(systemClock, LIMITS.census_rest_ms));
}

/** Kills what lives of a container and removes its state, groups and files. Safe to repeat. */
export function remove(task: Remains & LauncherNote): Promise<void> {
  const { runtime_root, launcher_pid } = task;
  const asked = launcher_pid === 0 ? null : runtime(runtime_root, launcher_pid);
  return reap({ clock: systemClock, mode: data.cgroup_mode, runtime: asked }, task);
}
