/**
 * The control groups above those of containers: one parent for function instances, one for API containers, and in that a
 * group for each tenant that runs any. The kernel shares processor time equally between groups with the same parent, so
 * a tenant with eight busy containers gets as much as a tenant with one. Parents and tenants have bounds of their own.
 *
 * T1 A tenant's group exists from before its first run starts until nothing is left of its last one.
 * T2 Helpers that work for a tenant, such as those that read its files, are in a group beside those of its runs: what they use
 *    of the processor and the disk is the tenant's share. Their memory is bounded by themselves.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { invariant } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type GroupKind, groupsIn, hierarchies, listGroups, removeGroup } from "./control-groups.ts";
import { readSocketMemory } from "./kernel-budgets.ts";

const ROOT = "/sys/fs/cgroup";
/** The group of a tenant's helpers (T2). No run is called so. */
const HELPERS = "helpers";
/** Their name in the table of processes: prctl of runtimes/minit/files.c. */
const HELPER_NAME = "hearth-files";
/** What they share, with a file that a group has with that controller (v2). */
const SHARED = [
  { controller: "cpu", v2_file: "cpu.weight" },
  { controller: "blkio", v2_file: "io.weight" },
];

/** Bounds of one group and all below it; null: only the bound of the group above holds. */
interface Bounds {
  readonly processes_max: number | null;
  readonly sockets_bytes: number;
}

/** Processes and threads that this machine can have. */
export function machineProcesses(root = "/proc/sys/kernel"): number {
  return Math.min(...["pid_max", "threads-max"].map((name) => Number(readFileSync(`${root}/${name}`, "utf8"))));
}

export class TenantGroups {
  readonly #kind: GroupKind;
  readonly #parent: string;
  readonly #root: string;
  /** Tenants by the names of runs. */
  readonly #tenants = new Map<string, string>();
  /** Helpers by tenants. */
  readonly #helpers = new Map<string, number>();
  #processesMax: (tenant_id: string) => number | null = () => null;

  /** `parent`: `/name` of the group of all API containers. */
  constructor(kind: GroupKind, parent: string, root = ROOT) {
    this.#kind = kind;
    this.#parent = parent;
    this.#root = root;
  }

  /** Tells how many processes and threads the containers of a tenant may have together; null: no limit. */
  bound(processesMax: (tenant_id: string) => number | null): void {
    this.#processesMax = processesMax;
  }

  /** Makes both parents, each with its part of the machine. Throws when the kernel refuses. */
  boot(instances: string): void {
    const processes = machineProcesses();
    const { tcp_max_bytes } = readSocketMemory();
    for (const path of [instances, this.#parent]) {
      this.#make(path, {
        processes_max: Math.floor(processes * LIMITS.kind_processes_ratio),
        sockets_bytes: Math.floor(tcp_max_bytes * LIMITS.kind_sockets_ratio),
      });
    }
  }

  /** The runs of an earlier process that have a group. */
  found(): string[] {
    for (const tenant_id of listGroups(this.#kind.mode, this.#parent, this.#root)) {
      for (const hierarchy of hierarchies(this.#kind.mode, this.#root)) {
        for (const run of groupsIn(hierarchy, `${this.#parent}/${tenant_id}`)) {
          if (run !== HELPERS) this.#tenants.set(run, tenant_id);
        }
      }
      this.#removeEmpty(tenant_id);
    }
    return [...this.#tenants.keys()];
  }

  /** Makes the group of a run's tenant (T1) and sets its bounds as they are now. Throws when the kernel refuses. */
  enter(run: string, tenant_id: string): void {
    invariant(/^[\w-]+$/.test(tenant_id), "a tenant's id is a name of a directory");
    this.#tenants.set(run, tenant_id);
    try {
      this.#make(`${this.#parent}/${tenant_id}`, {
        processes_max: this.#processesMax(tenant_id),
        sockets_bytes: Math.floor(readSocketMemory().tcp_max_bytes * LIMITS.tenant_sockets_ratio),
      });
    } catch (error) {
      this.leave(run);
      throw error;
    }
  }

  /** Processes and threads of a tenant's containers, as the kernel counts them against its bound. 0 without a group. */
  processCount(tenant_id: string): number {
    try {
      const folder = this.#folder("pids", `${this.#parent}/${tenant_id}`);
      return Number(readFileSync(`${folder}/pids.current`, "utf8"));
    } catch {
      return 0;
    }
  }

  /** Notes that nothing is left of a run (T1). Safe to repeat. */
  leave(run: string): void {
    const tenant_id = this.#tenants.get(run);
    if (tenant_id === undefined) return;
    this.#tenants.delete(run);
    this.#removeEmpty(tenant_id);
  }

  /** Moves a helper into its tenant's group (T2). Resolves also where it has ended or the kernel refuses: it then stays where it is. */
  async enterHelper(tenant_id: string, pid: number): Promise<void> {
    invariant(/^[\w-]+$/.test(tenant_id), "a tenant's id is a name of a directory");
    this.#helpers.set(tenant_id, (this.#helpers.get(tenant_id) ?? 0) + 1);
    try {
      const path = `${this.#parent}/${tenant_id}/${HELPERS}`;
      const folders = SHARED.flatMap(({ controller, v2_file }) => this.#makeShared(controller, v2_file, path));
      // The number may be another process's by now.
      if ((await readFile(`/proc/${pid}/comm`, "utf8")).trim() !== HELPER_NAME) return;
      // In turn: the kernel lets later moves in a row wait less.
      for (const folder of new Set(folders)) await writeFile(`${folder}/cgroup.procs`, String(pid));
    } catch {
      // It ended meanwhile, or the kernel has no such group.
    }
  }

  leaveHelper(tenant_id: string): void {
    const left = (this.#helpers.get(tenant_id) ?? 1) - 1;
    if (left > 0) this.#helpers.set(tenant_id, left);
    else this.#helpers.delete(tenant_id);
    this.#removeEmpty(tenant_id);
  }

  /** Removes the groups of helpers, all of which have ended or are about to. */
  leaveHelpers(): void {
    const tenants = [...this.#helpers.keys()];
    this.#helpers.clear();
    for (const tenant_id of tenants) this.#removeEmpty(tenant_id);
  }

  /** Null: that of a run that never got a group is not known. */
  tenantOf(run: string): string | null {
    return this.#tenants.get(run) ?? null;
  }

  /** `/parent/tenant/run` */
  path(run: string): string {
    const tenant_id = this.#tenants.get(run);
    // One that never got a group has nothing there.
    return tenant_id === undefined ? `${this.#parent}/${run}` : `${this.#parent}/${tenant_id}/${run}`;
  }

  #removeEmpty(tenant_id: string): void {
    if (this.#helpers.has(tenant_id)) return;
    // While the last helper ends it stays, for the next try.
    removeGroup(this.#kind.mode, `${this.#parent}/${tenant_id}/${HELPERS}`, this.#root);
    if (![...this.#tenants.values()].includes(tenant_id)) {
      removeGroup(this.#kind.mode, `${this.#parent}/${tenant_id}`, this.#root);
    }
  }

  /** Returns the group's folder in the hierarchy of a controller; none where this machine lacks that. */
  #makeShared(controller: string, v2_file: string, path: string): string[] {
    const folder = this.#folder(controller, path);
    if (this.#kind.mode !== "v2" && !existsSync(`${this.#root}/${controller}`)) return [];
    mkdirSync(folder, { recursive: true });
    if (!existsSync(`${folder}/${v2_file}`)) this.#enable(controller === "blkio" ? "io" : controller, path);
    return [folder];
  }

  #make(path: string, { processes_max, sockets_bytes }: Bounds): void {
    const { sockets } = this.#kind;
    const write = (controller: string, file: string, value: string) => {
      const folder = this.#folder(controller, path);
      mkdirSync(folder, { recursive: true });
      if (!existsSync(`${folder}/${file}`)) this.#enable(controller, path);
      // A kernel without the controller has no such file.
      if (existsSync(`${folder}/${file}`)) writeFileSync(`${folder}/${file}`, value);
    };
    write("pids", "pids.max", processes_max === null ? "max" : String(processes_max));
    if (sockets === "own") write("memory", "memory.kmem.tcp.limit_in_bytes", String(sockets_bytes));
  }

  /** A v2 group has the files of a controller when each group above it lists that in `cgroup.subtree_control`. */
  #enable(controller: string, path: string): void {
    if (this.#kind.mode !== "v2") return;
    const names = path.split("/").slice(1, -1);
    const above = names.map((_, i) => `${this.#root}/${names.slice(0, i + 1).join("/")}`);
    for (const folder of [this.#root, ...above]) {
      const available = readFileSync(`${folder}/cgroup.controllers`, "utf8").trim().split(" ");
      if (!available.includes(controller)) return;
      writeFileSync(`${folder}/cgroup.subtree_control`, `+${controller}`);
    }
  }

  #folder(controller: string, path: string): string {
    return this.#kind.mode === "v2" ? `${this.#root}${path}` : `${this.#root}/${controller}${path}`;
  }
}
