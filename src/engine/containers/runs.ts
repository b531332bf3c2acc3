/**
 * The runs of API containers: each start of a container has a name of its own on the machine, for its bundle, its control
 * groups and its id with the OCI runtime. A removal that comes late cannot hit the next run.
 *
 * N4 At most one run of a container exists: the next one starts only after nothing is left of the last.
 */
import { existsSync } from "node:fs";
import { each } from "../../base/concurrency.ts";
import { AppError, errorText, invariant, publicText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { parseRun, remainsOf, runName } from "../host/adoption.ts";
import type { EngineHost, TellRemoval } from "../host/host.ts";
import type { Remains } from "../host/reaper.ts";
import { readOomKills } from "../kernel/control-groups.ts";
import type { NetworkSlot } from "../network/network.ts";
import type { Ended, ExitRecord, RemovalStep, RemovedResource } from "../ports/containers.ts";
import type { RunFiles } from "./run-files.ts";

/** Exit record of a container whose minit was killed before it wrote one. */
const KILLED: Omit<ExitRecord, "ended_at_ms"> = {
  exit_code: 137,
  signal: 9,
  asked: false,
  has_command: true,
  is_started: true,
};

/** A run that is over, until nothing is left of it. */
interface Doomed {
  readonly id: string;
  readonly slot: NetworkSlot | null;
  readonly cleared: PromiseWithResolvers<void>;
}

export class ContainerRuns {
  readonly #host: EngineHost;
  readonly #files: RunFiles;
  /** By the names of runs; those of an earlier process too. */
  readonly #doomed = new Map<string, Doomed>();
  /** Ends of containers that wrote no exit record. */
  readonly #died = new Map<string, Ended>();
  /** Number of the newest run, of any container. */
  #last_number = 0;
  #onRemoval: (step: RemovalStep) => void = () => {};

  constructor(host: EngineHost, files: RunFiles) {
    this.#host = host;
    this.#files = files;
  }

  /**
   * Names a new run and makes the group of its tenant, which exists until nothing is left of the run. Throws
   * START_FAILED, with nothing left, if the kernel refuses the group.
   */
  next(id: string, tenant_id: string): string {
    const run = runName(id, ++this.#last_number);
    try {
      this.#host.tenants.enter(run, tenant_id);
    } catch (cause) {
      throw new AppError("START_FAILED", errorText(cause), { cause });
    }
    return run;
  }

  /** Has later runs named unlike these, which an earlier process left. */
  keep(runs: Iterable<string>): void {
    for (const run of runs) this.#last_number = Math.max(this.#last_number, parseRun(run).number);
  }

  remains(run: string, isStarting: boolean): Remains {
    return { ...remainsOf(this.#host.containers, run, isStarting), cgroup: this.#host.tenants.path(run) };
  }

  onRemoval(listener: (step: RemovalStep) => void): void {
    this.#onRemoval = listener;
  }

  /** Returns what tells of the removal of a run. Before its group is removed, which names its tenant. */
  telling(container_id: string, run: string, slot: NetworkSlot | null): TellRemoval {
    const tenant_id = this.#host.tenants.tenantOf(run);
    const { cgroup } = this.remains(run, false);
    const paths: Partial<Record<RemovedResource, string>> = { cgroup, network: slot?.host_interface ?? "" };
    return (resource, status, error) => {
      if (tenant_id === null) return;
      const step = { container_id, tenant_id, resource, path: paths[resource] ?? run, status };
      this.#onRemoval({ ...step, error: error === undefined ? null : publicText(error) });
    };
  }

  /** Tells of the removal of a part of a container, and does it. */
  async told(part: Omit<RemovalStep, "status" | "error">, work: () => Promise<void> | void): Promise<void> {
    const tell = (status: RemovalStep["status"], error: string | null) => this.#onRemoval({ ...part, status, error });
    tell("in_progress", null);
    try {
      await work();
      tell("completed", null);
    } catch (error) {
      tell("failed", publicText(error));
      throw error;
    }
  }

  /** Notes a run of an earlier process that is over, and how it ended: not when it ended with the machine. */
  async doom(id: string, run: string, slot: NetworkSlot | null): Promise<void> {
    this.#doomed.set(run, { id, slot, cleared: Promise.withResolvers() });
    const wasStarted = existsSync(`${this.remains(run, true).bundle}/pid`);
    if (wasStarted) this.#died.set(id, (await this.endOf(id, run)) ?? this.killed(run));
  }

  get doomed_count(): number {
    return this.#doomed.size;
  }

  /** Removes all that are over. */
  async clearAll(): Promise<void> {
    await each([...this.#doomed.keys()], LIMITS.leftovers_removed_at_once, async (run) => {
      await this.#clear(run, true);
    });
  }

  /** Removes a run that has failed or was over at once. Waits for that within bounds; the removal goes on (N4). */
  async remove(id: string, run: string, slot: NetworkSlot | null, isStarting: boolean): Promise<void> {
    this.#doomed.set(run, { id, slot, cleared: Promise.withResolvers() });
    await this.#host.within(LIMITS.removal_wait_ms, this.#clear(run, isStarting));
  }

  /** Rejects with NOT_RESPONDING when an earlier run of the container is not removed in time (N4). */
  async whenCleared(id: string): Promise<void> {
    const runs = [...this.#doomed].filter(([, one]) => one.id === id);
    if (runs.length === 0) return;
    await this.#host.within(LIMITS.removal_wait_ms, Promise.all(runs.map(([, { cleared }]) => cleared.promise)));
    if (runs.some(([run]) => this.#doomed.has(run))) throw notRemoved(id);
  }

  /** End of a container while no daemon ran. Null: it is unknown, as after a reboot of the machine. */
  async exit(id: string): Promise<Ended | null> {
    return this.#died.get(id) ?? this.endOf(id, null);
  }

  /** Exit record of the newest run's first process; null without one. Call before its groups are removed. */
  async endOf(id: string, run: string | null): Promise<Ended | null> {
    const exit = await this.#files.exit(id);
    return exit === null ? null : { ...exit, is_oom: run !== null && this.#isOom(run) };
  }

  killed(run: string): Ended {
    return { ...KILLED, ended_at_ms: this.#host.options.clock.epochMs(), is_oom: this.#isOom(run) };
  }

  async #clear(run: string, isStarting: boolean): Promise<void> {
    const doomed = this.#doomed.get(run);
    invariant(doomed !== undefined, "the run is over");
    // Otherwise the daemon ends before: the next one finds the rest.
    const tell = this.telling(doomed.id, run, doomed.slot);
    if (await this.#host.discard(this.remains(run, isStarting), doomed.slot, tell)) this.#doomed.delete(run);
    doomed.cleared.resolve();
  }

  #isOom(run: string): boolean {
    return readOomKills(this.#host.mode, this.remains(run, false).cgroup) > 0;
  }
}

export function notRemoved(id: string): AppError {
  return new AppError("NOT_RESPONDING", `cannot remove container ${id} yet`, {
    hint: "retry in a second",
    retry_after: 5,
  });
}
