/**
 * The API containers that run: one connection to the minit of each, requests to it, and its end.
 *
 * N2 Each container that lives has one control connection. Its end is the container's end: everything of it is then
 *    removed, its slot given back, and the listener told, exactly once.
 */
import { readFileSync } from "node:fs";
import { Underway } from "../../base/concurrency.ts";
import { AppError, invariant } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { EngineHost } from "../host/host.ts";
import { containerProcesses } from "../kernel/control-groups.ts";
import { freezerFile, thaw } from "../kernel/freezer.ts";
import { readMetrics } from "../kernel/stats.ts";
import {
  type ControlConnection,
  openAttach,
  openExec,
  runExec,
  shutdown,
  signalPid,
  stopMain,
} from "../minit/container-client.ts";
import type { NetworkSlot } from "../network/network.ts";
import type { AttachRequest, Exec, ExecListener, Gathering, RunRequest } from "../ports/commands.ts";
import type { ContainerMetrics, Ended, LiveContainer, ProcessList } from "../ports/containers.ts";
import { ProcessLists } from "./process-lists.ts";
import { type ContainerRuns, notRemoved } from "./runs.ts";

/** A container that was started, or found alive. */
export interface Started {
  readonly id: string;
  /** Name of the run on the machine: its bundle, its groups, its id with the OCI runtime. */
  readonly run: string;
  readonly slot: NetworkSlot;
  readonly control: ControlConnection;
  /** Ids outside less ids inside: 0 without a user namespace. */
  readonly first_id: number;
  /** Lets go of the image that its root lies on. */
  readonly leaveImage: () => void;
}

interface Running extends Started, LiveContainer {
  readonly control: ControlConnection;
  /** Unix socket on which its minit listens. */
  readonly socket_path: string;
  readonly ended: PromiseWithResolvers<void>;
}

const ESRCH = 3;

export class RunningContainers {
  readonly #host: EngineHost;
  readonly #runs: ContainerRuns;
  readonly #running = new Map<string, Running>();
  /** Ends that are under way. */
  readonly #ending = new Underway();
  readonly #processLists: ProcessLists;
  readonly #onEnding: (id: string) => void;
  #onEnded: (id: string, ended: Ended) => void = () => {};
  #isLettingGo = false;

  /** `onEnding`: called at the end of a container, before anything of it is removed. */
  constructor(host: EngineHost, runs: ContainerRuns, onEnding: (id: string) => void) {
    this.#host = host;
    this.#runs = runs;
    this.#onEnding = onEnding;
    this.#processLists = new ProcessLists((group) => host.task("processes", { group }));
  }

  get ids(): readonly string[] {
    return [...this.#running.keys()];
  }

  /** Returns null for a container that does not run. */
  find(id: string): (LiveContainer & Pick<Started, "first_id" | "run" | "slot">) | null {
    return this.#running.get(id) ?? null;
  }

  onEnded(listener: (id: string, ended: Ended) => void): void {
    this.#onEnded = listener;
  }

  /** Tracks a container until its end (N2). */
  hold(started: Started): void {
    const { id, run, slot, control } = started;
    const { bundle } = this.#runs.remains(run, false);
    const pid = Number(readFileSync(`${bundle}/pid`, "utf8"));
    const socket_path = `${bundle}/s`;
    const gpus = this.#host.gpus.heldBy(run);
    const ended = Promise.withResolvers<void>();
    const running: Running = { ...started, pid, address: slot.address, socket_path, gpus, ended };
    this.#running.set(id, running);
    control.onClosed(() => {
      this.#ending.add(this.#end(running)).catch(() => {});
    });
  }

  async stop(id: string, signal: number, grace_ms: number): Promise<void> {
    const running = this.#running.get(id);
    if (running === undefined) return;
    const { clock } = this.#host.options;
    // If minit does not answer, the container is killed at the end of the grace.
    const asking = stopMain(running.socket_path, signal, clock).catch(() => {});
    const cancel = clock.after(grace_ms, () => this.#kill(running));
    try {
      await this.#untilEnded(running, grace_ms);
      await asking;
    } finally {
      cancel();
    }
  }

  async kill(id: string): Promise<void> {
    const running = this.#running.get(id);
    if (running === undefined) return;
    this.#kill(running);
    await this.#untilEnded(running, 0);
  }

  exec(id: string, request: RunRequest, listener: ExecListener): Exec {
    return openExec(this.#get(id).socket_path, request, listener, this.#host.options.clock);
  }

  attach(id: string, request: AttachRequest, listener: ExecListener): Exec {
    return openAttach(this.#get(id).socket_path, request, listener, this.#host.options.clock);
  }

  run(id: string, request: RunRequest & { readonly output_bytes_max: number }): Gathering {
    return runExec(this.#get(id).socket_path, request, this.#host.options.clock);
  }

  async signalPid(id: string, pid: number, signal: number): Promise<void> {
    const errno = await signalPid(this.#get(id).socket_path, pid, signal, this.#host.options.clock);
    if (errno === 0) return;
    if (errno === ESRCH) throw new AppError("NOT_FOUND", "no such process in the container");
    throw new AppError(
      "INVALID_ARGUMENT",
      `cannot signal process ${pid} with signal ${signal}: the process belongs to the container's init`,
    );
  }

  metrics(id: string): ContainerMetrics {
    const { run, slot } = this.#get(id);
    return readMetrics(this.#host.mode, this.#runs.remains(run, false).cgroup, slot.host_interface);
  }

  /** Number of processes; 0 for a container that does not run. */
  processesIn(id: string): number {
    const running = this.#running.get(id);
    if (running === undefined) return 0;
    return containerProcesses(this.#host.mode, this.#runs.remains(running.run, false).cgroup).length;
  }

  /** The file that freezes a container that runs; null: it does not run, or cannot be frozen. */
  freezer(id: string): string | null {
    const running = this.#running.get(id);
    return running === undefined ? null : freezerFile(this.#host.mode, this.#runs.remains(running.run, false).cgroup);
  }

  /** Thaws a container that runs. */
  thaw(id: string): void {
    const running = this.#running.get(id);
    if (running !== undefined) thaw(this.#host.mode, this.#runs.remains(running.run, false).cgroup);
  }

  processes(id: string): Promise<ProcessList> {
    return this.#processLists.get(this.#runs.remains(this.#get(id).run, false).cgroup);
  }

  /** Closes the connections, not the containers. Resolves to the slots of the containers that keep running. */
  async letGo(): Promise<readonly NetworkSlot[]> {
    await this.#ending.settled();
    this.#isLettingGo = true;
    const running = [...this.#running.values()];
    for (const { control } of running) control.close();
    return running.map(({ slot }) => slot);
  }

  #get(id: string): Running {
    const running = this.#running.get(id);
    invariant(running !== undefined, "the container runs");
    return running;
  }

  /** A minit that does not answer is ended with its groups. */
  #kill({ socket_path, control }: Running): void {
    shutdown(socket_path, LIMITS.container_kill_wait_ms, this.#host.options.clock).catch(() => control.close());
  }

  /** Rejects with NOT_RESPONDING when a container that was asked to end is not gone in time. */
  async #untilEnded(running: Running, grace_ms: number): Promise<void> {
    const wait_ms = grace_ms + LIMITS.container_kill_wait_ms + LIMITS.removal_wait_ms;
    await this.#host.within(wait_ms, running.ended.promise);
    if (this.#running.get(running.id) === running) throw notRemoved(running.id);
  }

  /** N2. */
  async #end(running: Running): Promise<void> {
    if (this.#isLettingGo) return;
    const { id, run, slot } = running;
    this.#onEnding(id);
    const ended = (await this.#runs.endOf(id, run)) ?? this.#runs.killed(run);
    // If the daemon ends first, the next one removes the rest and reports the end.
    const tell = this.#runs.telling(id, run, slot);
    if (!(await this.#host.discard(this.#runs.remains(run, false), slot, tell))) return;
    running.leaveImage();
    failpoint("containers.end.cleared");
    this.#running.delete(id);
    this.#onEnded(id, ended);
    running.ended.resolve();
  }
}
