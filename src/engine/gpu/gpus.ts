/**
 * The holders of GPUs. A run of a container or an instance takes its GPUs before anything else of its start, in one
 * synchronous step. It gives them back when the machine has nothing left of the run.
 *
 * U1 Two runs never hold the same GPU, nor a GPU and a part of it (G2, G3 of inventory.ts).
 * U2 A run that may still have processes holds its GPUs. They are noted in its configuration alone: a starting daemon
 *    reads them from what it finds on the machine, and has nothing else that could disagree with it.
 */
import { stat } from "node:fs/promises";
import type { Clock } from "../../base/clock.ts";
import { each } from "../../base/concurrency.ts";
import { errorText } from "../../base/errors.ts";
import { LackingError } from "../../base/lacking.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { counted } from "../../base/plurals.ts";
import { quotaExceeded } from "../../base/tenant-limits.ts";
import type { GpuHolder, GpuRequest, GpuStates, Gpus, HeldGpus } from "../ports/gpus.ts";
import { CdiDirectories, type FoundDirectories } from "./cdi-directories.ts";
import type { CdiEdits } from "./cdi-file.ts";
import { environmentOf, type GpuNote, mergedEdits } from "./edits.ts";
import { type Inventory, inventoryOf, type KnownGpu, overlap } from "./inventory.ts";

const NOTHING: Inventory = { gpus: [], warnings: [] };

interface Hold {
  readonly holder: GpuHolder;
  readonly note: GpuNote;
}

/** GPUs that a run took, and what it needs to use them. */
export interface TakenGpus {
  readonly note: GpuNote;
  readonly edits: CdiEdits;
}

export interface GpusOptions {
  /** Later directories override earlier ones. */
  readonly directories: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
}

export class LocalGpus implements Gpus {
  readonly #directories: CdiDirectories;
  readonly #clock: Clock;
  readonly #log: Log;
  /** By the names of runs. */
  readonly #holds = new Map<string, Hold>();
  #found: FoundDirectories | null = null;
  #described: Inventory = NOTHING;
  /** Without the GPUs that are described and not there. */
  #inventory: Inventory = NOTHING;
  /** Monotonic time of the last look at device nodes. */
  #looked_ms = Number.NEGATIVE_INFINITY;
  #looking: Promise<Inventory> | null = null;
  #gpusMax: (tenant_id: string) => number | null = () => null;

  constructor({ directories, clock, log }: GpusOptions) {
    this.#directories = new CdiDirectories(directories, clock);
    this.#clock = clock;
    this.#log = log;
  }

  async states(): Promise<GpuStates> {
    const { gpus, warnings } = await this.#look();
    const states = gpus.map(({ gpu_id, device, aliases, vendor, nodes }) => ({
      ...{ gpu_id, device, aliases, vendor },
      holder: this.#holderOf({ device, nodes }),
    }));
    return { gpus: states, warnings };
  }

  async check(tenant_id: string, request: GpuRequest): Promise<void> {
    if (request.gpu_count === 0) return;
    await this.#look();
    this.#choose(tenant_id, request);
  }

  /** Takes GPUs for a run (U1). Null: none were asked for. Rejects as `check`, and then holds nothing. */
  async take(run: string, holder: GpuHolder, request: GpuRequest): Promise<TakenGpus | null> {
    if (request.gpu_count === 0) return null;
    await this.#look();
    const chosen = this.#choose(holder.tenant_id, request);
    const edits = mergedEdits(chosen);
    const gpus = chosen.map(({ gpu_id, device, nodes }) => ({ gpu_id, device, nodes }));
    const note: GpuNote = { tenant_id: holder.tenant_id, gpus, environment: environmentOf(edits) };
    this.#holds.set(run, { holder, note });
    return { note, edits };
  }

  /** Notes what a run of an earlier process holds (U2). */
  keep(run: string, id: string, note: GpuNote | null): void {
    if (note !== null) this.#holds.set(run, { holder: { tenant_id: note.tenant_id, id }, note });
  }

  /** Nothing is left of a run. */
  release(run: string): void {
    this.#holds.delete(run);
  }

  heldBy(run: string): HeldGpus {
    const note = this.#holds.get(run)?.note;
    return { gpu_ids: note?.gpus.map(({ gpu_id }) => gpu_id) ?? [], environment: note?.environment ?? {} };
  }

  countOf(tenant_id: string): number {
    let count = 0;
    for (const { holder, note } of this.#holds.values()) if (holder.tenant_id === tenant_id) count += note.gpus.length;
    return count;
  }

  bound(gpusMax: (tenant_id: string) => number | null): void {
    this.#gpusMax = gpusMax;
  }

  /** Concurrent callers share a look. */
  #look(): Promise<Inventory> {
    this.#looking ??= this.#lookNow().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async #lookNow(): Promise<Inventory> {
    const found = await this.#directories.look();
    const isNew = found !== this.#found;
    if (isNew) {
      this.#found = found;
      this.#described = inventoryOf(found);
      for (const warning of this.#described.warnings) this.#log.warn("CDI file", { warning });
    }
    const now_ms = this.#clock.monotonicMs();
    if (isNew || now_ms - this.#looked_ms >= LIMITS.cdi_look_interval_ms) {
      this.#looked_ms = now_ms;
      this.#inventory = await present(this.#described);
    }
    return this.#inventory;
  }

  #holderOf(gpu: Pick<KnownGpu, "device" | "nodes">): GpuHolder | null {
    for (const { holder, note } of this.#holds.values()) {
      if (note.gpus.some((held) => overlap(held, gpu))) return holder;
    }
    return null;
  }

  #choose(tenant_id: string, { gpu_count, gpu_ids }: GpuRequest): readonly KnownGpu[] {
    const { gpus } = this.#inventory;
    if (gpus.length < gpu_count) {
      throw full(`not enough GPUs on this node: ${gpu_count} requested (limit ${gpus.length})`, NO_NODE);
    }
    const known = new Map(gpus.map((gpu) => [gpu.gpu_id, gpu]));
    const unknown = gpu_ids.find((id) => !known.has(id));
    if (unknown !== undefined) {
      throw full(`no such GPU on this node: ${unknown} (it has ${counted(gpus.length, "GPU")})`, NO_IDS);
    }
    const max = this.#gpusMax(tenant_id);
    if (max !== null) this.#checkQuota(max, this.countOf(tenant_id) + gpu_count - max, gpu_count);
    const wanted = gpu_ids.length > 0 ? gpu_ids.flatMap((id) => known.get(id) ?? []) : gpus;
    const chosen: KnownGpu[] = [];
    for (const gpu of wanted) {
      if (chosen.length === gpu_count) break;
      const isFree = this.#holderOf(gpu) === null && !chosen.some((other) => overlap(other, gpu));
      if (isFree) chosen.push(gpu);
      else if (gpu_ids.length > 0) throw full(`GPU in use: ${gpu.gpu_id}`, IN_USE);
    }
    if (chosen.length === gpu_count) return chosen;
    const free_count = chosen.length;
    const text = `not enough free GPUs on this node: ${gpu_count} requested (${free_count} free)`;
    throw full(text, IN_USE, gpu_count - free_count);
  }

  #checkQuota(max: number, missing_count: number, gpu_count: number): void {
    if (missing_count <= 0) return;
    const { message, details, hint } = quotaExceeded("gpus_max", max, gpu_count);
    const lack = { code: "QUOTA_EXCEEDED", missing_count: gpu_count > max ? null : missing_count } as const;
    throw new LackingError(lack, message, { ...(details && { details }), ...(hint !== null && { hint }) });
  }
}

/** Returns an inventory without the GPUs whose nodes this machine lacks: of a driver that is gone, or a GPU that is. */
async function present({ gpus, warnings }: Inventory): Promise<Inventory> {
  const missing = new Map<string, string>();
  const nodes = new Set(gpus.flatMap((gpu) => gpu.nodes.filter((node) => node.startsWith("/"))));
  await each(nodes, LIMITS.cdi_nodes_at_once, async (node) => {
    await stat(node).catch((error) => missing.set(node, errorText(error)));
  });
  if (missing.size === 0) return { gpus, warnings };
  const lost = gpus.flatMap((gpu) => {
    const node = gpu.nodes.find((one) => missing.has(one));
    return node === undefined ? [] : [{ gpu, text: `${gpu.device} left out: ${missing.get(node)}` }];
  });
  return {
    gpus: gpus.filter((gpu) => !lost.some((one) => one.gpu === gpu)),
    warnings: [...warnings, ...lost.map(({ text }) => text)].slice(0, LIMITS.cdi_warnings_max),
  };
}

const NO_NODE = "leave gpu_count out, or use a node with GPUs";
const NO_IDS = "leave gpu_ids out to get any free GPUs; GET /api/system/info shows how many there are";
const IN_USE = "retry when a container or an instance that holds GPUs has stopped";

/** No retry after a fixed time helps: a GPU is free when its holder ends. */
function full(message: string, hint: string, missing_count: number | null = null): LackingError {
  return new LackingError({ code: "CAPACITY_FULL", missing_count }, message, { hint });
}
