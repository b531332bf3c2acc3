/**
 * One build: finds the stages that its target needs, runs the steps whose results are not kept, and makes an image of the last
 * stage's files. Its roots are containers of ids that no row names: what a crash leaves of them, the next start removes.
 */
import { namesUntrusted, UNTRUSTED_HINT } from "../../base/certificate-failures.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import type { Egress } from "../../base/egress.ts";
import { AppError, errorText } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import { SCRATCH_IMAGE } from "../../base/scratch-image.ts";
import type { Engine, FileSession } from "../../engine/ports.ts";
import type { Decompress } from "./archives.ts";
import { invalidLine } from "./build-file.ts";
import type { BuildLog } from "./build-log.ts";
import type { BuildCache } from "./cache.ts";
import { type CommandOptions, runCommand } from "./commands.ts";
import { copy, copyWithParents, ensureDirectory, type Owner, removeLinks, resolveOwner, writeText } from "./copier.ts";
import { type DecompressionOptions, decompressed } from "./decompression.ts";
import type { Downloads } from "./downloads.ts";
import type { MatchBudget } from "./glob.ts";
import { changedMode } from "./mode.ts";
import type { Base } from "./plan.ts";
import { copySource, digestOfSource, type Ignored, leftOut, matches, nothing, toBytes } from "./source-files.ts";
import { isFileError, StageRoot } from "./stage-root.ts";
import {
  type CopySources,
  type CopyStep,
  changesFiles,
  type EvaluatedStage,
  type MountFiles,
  type Step,
} from "./stages.ts";

export interface BuildParts {
  readonly engine: Engine;
  readonly cache: BuildCache;
  readonly ids: Ids;
  readonly clock: Clock;
}

export interface BuildTerms {
  readonly tenant_id: string;
  readonly memory_mb: number;
  readonly disk_mb: number;
  readonly egress: Egress;
  readonly no_cache: boolean;
  /** Root of the context. */
  readonly context_root: string;
  readonly ignored: Ignored;
  readonly budget: MatchBudget;
  readonly secrets: ReadonlyMap<string, Uint8Array>;
  readonly trusted: Readonly<Record<string, string>>;
  readonly steps_count: number;
  readonly signal: AbortSignal;
  readonly log: BuildLog;
  readonly downloads: Downloads;
  /** Id of the image of a reference that the plan names. */
  readonly imageId: (reference: string) => Promise<string>;
  readonly onStep: (step: Step, text: string) => void;
}

const MIB = 1024 * 1024;
const ROOT: Owner = { uid: 0, gid: 0 };

export class Build {
  readonly #parts: BuildParts;
  readonly #terms: BuildTerms;
  /** By the index of their stage. */
  readonly #roots = new Map<number, StageRoot>();
  /** Of images that files are copied from, and of decompressions, by id. */
  readonly #image_roots = new Map<string, StageRoot>();
  #stages: ReadonlyMap<number, EvaluatedStage> = new Map();

  constructor(parts: BuildParts, terms: BuildTerms) {
    this.#parts = parts;
    this.#terms = terms;
  }

  /** Returns the digest of the files that a step copies from the context. Throws INVALID_ARGUMENT with the step's line. */
  async contextDigest(step: CopySources, line: number): Promise<string> {
    const { ignored, budget, signal } = this.#terms;
    const digest = this.#withContext(async (session) => {
      const digests: string[] = [];
      const walked = { count: 0 };
      for (const source of step.sources.map(copySource)) {
        for (const path of await matches(session, source.pattern, ignored, budget, signal, step.has_parents)) {
          signal.throwIfAborted();
          const left = leftOut(step, path, source, { ignored, budget });
          digests.push(path, await digestOfSource(session, path, left, walked));
        }
      }
      return digests.join();
    });
    return digest.catch((error: unknown) => {
      throw isFileError(error) ? invalidLine(line, error.message) : error;
    });
  }

  /** Tells the steps of a target whose result is kept. */
  tellKept(stages: ReadonlyMap<number, EvaluatedStage>): void {
    for (const { steps } of stages.values()) for (const step of steps) this.#tell(step, true);
  }

  /** Makes the files of a stage: of the container that it resolves to. Throws BUILD_FAILED, and what the engine throws. */
  async files(target: EvaluatedStage, stages: ReadonlyMap<number, EvaluatedStage>): Promise<StageRoot> {
    this.#stages = stages;
    const root = await this.#root(target);
    root.closeFiles();
    return root;
  }

  /** Removes all that it made but what is kept. Rejects if something is left for the next start. */
  async close(): Promise<void> {
    const roots = [...this.#roots.values(), ...this.#image_roots.values()];
    const ended = await Promise.allSettled(roots.map((root) => root.remove()));
    const failed = ended.find((one) => one.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async #root(stage: EvaluatedStage): Promise<StageRoot> {
    const known = this.#roots.get(stage.index);
    if (known !== undefined) return known;
    const { root, kept_count } = await this.#begin(stage);
    this.#roots.set(stage.index, root);
    for (const [i, step] of stage.steps.entries()) {
      this.#terms.signal.throwIfAborted();
      if (i < kept_count) {
        this.#tell(step, true);
        continue;
      }
      // The log has the steps of a source stage first, and the limit of this root counts the source.
      for (const from of sourcesOf(step)) (await this.#sourceRoot(from)).closeFiles();
      this.#tell(step, false);
      await this.#run(root, step);
    }
    return root;
  }

  /** Returns the root that a step copies from, and makes it at first. */
  #sourceRoot(from: Base): Promise<StageRoot> {
    const stage = from.type === "stage" ? this.#stages.get(from.index) : undefined;
    if (stage !== undefined) return this.#root(stage);
    return this.#imageRoot(from.type === "image" ? from.reference : "");
  }

  /** The root behind the last step whose result is kept, or as the stage begins. */
  async #begin(stage: EvaluatedStage): Promise<{ readonly root: StageRoot; readonly kept_count: number }> {
    const { tenant_id, no_cache } = this.#terms;
    for (let count = no_cache ? 0 : stage.steps.length; count > 0; count--) {
      const kept = await this.#parts.cache.step(tenant_id, stage.steps[count - 1]?.key ?? "");
      if (kept === null) continue;
      const root = await this.#make(stage.image_id, { kept }).catch((error: unknown) => {
        // Evicted in this moment.
        if (error instanceof AppError && error.code === "NOT_FOUND") return null;
        throw error;
      });
      if (root !== null) return { root, kept_count: count };
    }
    if (stage.parent === null || !changesFiles(stage.parent))
      return { root: await this.#make(stage.image_id, null), kept_count: 0 };
    const parent = await this.#root(stage.parent);
    parent.closeFiles();
    return { root: await this.#make(stage.image_id, { root: parent.id }), kept_count: 0 };
  }

  async #make(image_id: string | null, from: Parameters<typeof StageRoot.make>[1]): Promise<StageRoot> {
    const { engine, ids, clock } = this.#parts;
    const { tenant_id } = this.#terms;
    const { size_mb, free_mb } = await engine.storage.statistics();
    const kept_mb = Math.ceil(size_mb * LIMITS.build_pool_free_ratio);
    if (free_mb < kept_mb) {
      throw new AppError(
        "CAPACITY_FULL",
        `storage pool nearly full: ${free_mb} MiB free (builds leave ${kept_mb} MiB)`,
      );
    }
    const disk_mb = await this.#roomFor(null);
    const options = { containers: engine.containers, storage: engine.storage, tenant_id, disk_mb };
    const end_ms = clock.monotonicMs() + LIMITS.build_room_wait_ms;
    for (;;) {
      this.#terms.signal.throwIfAborted();
      const own = { id: ids.next("bld"), image_id: image_id ?? SCRATCH_IMAGE };
      try {
        return await StageRoot.make({ ...options, ...own }, from);
      } catch (error) {
        // The kernel still frees what an earlier root of the tenant took: a deleted subvolume counts until then.
        const isFull = error instanceof AppError && error.code === "QUOTA_EXCEEDED";
        if (!isFull || clock.monotonicMs() >= end_ms) throw error;
        await sleep(clock, LIMITS.build_room_look_ms);
      }
    }
  }

  /** Megabytes that one root may have: all roots of a build share its limit. Throws BUILD_FAILED. */
  async #roomFor(own: StageRoot | null): Promise<number> {
    const { storage } = this.#parts.engine;
    let bytes = 0;
    for (const root of [...this.#roots.values(), ...this.#image_roots.values()]) {
      if (root !== own) bytes += (await storage.usage("containers", root.id)).referenced_bytes;
    }
    const { disk_mb } = this.#terms;
    const left_mb = disk_mb - Math.ceil(bytes / MIB);
    if (left_mb >= LIMITS.disk_limit_mb_min) return left_mb;
    throw new AppError(
      "BUILD_FAILED",
      `stages of the build too large: ${Math.ceil(bytes / MIB)} MiB (limit ${disk_mb} MiB)`,
    );
  }

  /** Leaves a root what the other roots of the build have not taken. Throws BUILD_FAILED. */
  async #limit(root: StageRoot): Promise<void> {
    if (this.#roots.size + this.#image_roots.size <= 1) return;
    await this.#parts.engine.storage.setLimit("containers", root.id, await this.#roomFor(root));
  }

  #tell(step: Step, isKept: boolean): void {
    const { steps_count, log, secrets, onStep } = this.#terms;
    const own = step.work.type === "run" ? step.work.secrets.map((name) => secrets.get(name)) : [];
    const text = `step ${step.number}/${steps_count}: ${step.text.split("\n", 1)[0]}`;
    onStep(step, text);
    log.begin(
      step.number,
      isKept ? `${text} (cached)` : text,
      own.filter((value) => value !== undefined),
    );
  }

  async #run(root: StageRoot, step: Step): Promise<void> {
    const { work } = step;
    await this.#limit(root);
    if (work.type === "run") await this.#command(root, step);
    else
      await this.#described(step, () => (work.type === "copy" ? this.#copy(root, work) : this.#directory(root, work)));
    if (work.type !== "directory") await this.#parts.cache.keepStep(this.#terms.tenant_id, step.key, root.id);
  }

  async #directory(root: StageRoot, { path }: { readonly path: string }): Promise<void> {
    await ensureDirectory(await root.files(), plainTarget(path), ROOT, 0o755);
  }

  async #command(root: StageRoot, step: Step): Promise<void> {
    const { work } = step;
    if (work.type !== "run") return;
    const { signal } = this.#terms;
    const options = await this.#commandOptions();
    const end = await this.#described(step, () => runCommand(root, work, options)).catch((error: unknown) => {
      // A container that was killed for the end of the build fails in its own words.
      signal.throwIfAborted();
      throw error;
    });
    signal.throwIfAborted();
    if (end.exit_code === 0) return;
    throw this.#failed(step, `exit code ${end.exit_code}${end.why === "" ? "" : ` (${end.why})`}`, end.exit_code);
  }

  async #commandOptions(): Promise<CommandOptions> {
    const { engine, cache } = this.#parts;
    return {
      ...this.#terms,
      ...{ containers: engine.containers, cache },
      copy_mb: await this.#roomFor(null),
      within: (path, then) => engine.files.with(this.#terms.tenant_id, path, 0, then),
      copyFiles: (files, to, target) => this.#mounted(files, to, target),
    };
  }

  /** For archives that Node does not read: in roots of their own, which take of the disk of the build. */
  #decompress(target: StageRoot): Decompress {
    const limit = async () => this.#parts.engine.storage.setLimit("containers", target.id, await this.#roomFor(target));
    const options: DecompressionOptions = {
      make: async () => {
        const root = await this.#make(this.#parts.engine.images.pinned.id, null);
        this.#image_roots.set(root.id, root);
        return root;
      },
      remove: async (root) => {
        await root.remove();
        this.#image_roots.delete(root.id);
        await limit();
      },
      run: async (root, step) => {
        const end = await runCommand(root, step, await this.#commandOptions());
        this.#terms.signal.throwIfAborted();
        // What fills the disk fails for that.
        if (end.exit_code === 0) await limit();
        return end;
      },
    };
    return (from, path, name) => decompressed(options, from, path, name);
  }

  /** Copies what a mount shows: as COPY without flags, links of a stage or an image are followed inside of it alone. */
  async #mounted({ from, source }: MountFiles, to: FileSession, target: string): Promise<void> {
    const { signal } = this.#terms;
    await this.#withSource(from, async (session, ignored) => {
      const common = { from: session, to, path: toBytes(source), target, ignored, signal, walked: { count: 0 } };
      const owner = from === null ? ROOT : null;
      await copy({ ...common, owner, mode: null, unpack: null, is_directory: false });
    });
  }

  /** Names the step in the failure of its files. */
  async #described<Result>(step: Step, work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      if (!isFileError(error)) throw error;
      throw this.#failed(step, errorText(error), null);
    }
  }

  #failed({ number, text }: Step, why: string, exit_code: number | null): AppError {
    const { steps_count, log } = this.#terms;
    const shown = text.split("\n", 1)[0]?.slice(0, 100) ?? "";
    log.flush();
    const { tail } = log;
    const isUntrusted = exit_code !== null && namesUntrusted(tail);
    // In the message, too: the operation of a build keeps no hint.
    const cause = isUntrusted ? `${why} (${UNTRUSTED_HINT})` : why;
    const message = `step ${number}/${steps_count} (${shown}) failed: ${cause}${tail === "" ? "" : `\n${tail}`}`;
    return new AppError("BUILD_FAILED", message, {
      details: { exit_code, output: tail === "" ? null : tail },
      hint: isUntrusted ? UNTRUSTED_HINT : "the log of the build has the output of all steps",
    });
  }

  async #copy(root: StageRoot, step: CopyStep): Promise<void> {
    const { signal, budget } = this.#terms;
    const to = await root.files();
    const asked = step.owner === null ? null : await resolveOwner(to, step.owner);
    const owner = asked ?? (step.from === null ? ROOT : null);
    const target = plainTarget(step.target);
    const { is_directory, unpacks, mode } = step;
    const unpack = this.#decompress(root);
    if (step.is_link) await removeLinks(to, target);
    for (const { name, content } of step.documents) {
      const path = is_directory ? `${target}/${name}` : target;
      await writeText(to, path, content, {
        owner: owner ?? ROOT,
        mode: mode === null ? 0o644 : changedMode(mode, 0o644, false),
      });
    }
    const walked = { count: 0 };
    for (const file of step.urls) {
      await this.#terms.downloads.with(file, (from) => {
        const path = toBytes(file.name);
        const ignored = leftOut(step, path, { pattern: file.name, base_depth: 0 }, { ignored: nothing, budget });
        const common = { from, to, path, owner: owner ?? ROOT, mode, target, is_directory };
        return copy({ ...common, unpack: unpacks.urls ? unpack : null, ignored, walked, signal });
      });
    }
    if (step.sources.length === 0) return;
    await this.#withSource(step.from, async (from, ignored) => {
      for (const source of step.sources.map(copySource)) {
        const paths = await matches(from, source.pattern, ignored, budget, signal, step.has_parents);
        if (paths.length > 1 && !is_directory && !step.has_parents) {
          throw new AppError(
            "INVALID_ARGUMENT",
            `COPY target not a directory: '${target}' (several sources need a target that ends with /)`,
          );
        }
        for (const path of paths) {
          const left = leftOut(step, path, source, { ignored, budget });
          if (step.has_parents && left !== ignored && left(path)) continue;
          const common = {
            from,
            to,
            path,
            owner,
            mode,
            unpack: unpacks.sources ? unpack : null,
            ignored: left,
            walked,
            signal,
          };
          if (step.has_parents) await copyWithParents({ ...common, target, is_directory }, source.base_depth);
          else await copy({ ...common, target, is_directory });
        }
      }
    });
  }

  async #withSource(from: Base | null, work: (session: FileSession, ignored: Ignored) => Promise<void>): Promise<void> {
    if (from === null) {
      await this.#withContext((session) => work(session, this.#terms.ignored));
      return;
    }
    const root = await this.#sourceRoot(from);
    await work(await root.files(), nothing);
    root.closeFiles();
  }

  async #imageRoot(reference: string): Promise<StageRoot> {
    const image_id = await this.#terms.imageId(reference);
    const known = this.#image_roots.get(image_id) ?? (await this.#make(image_id, null));
    this.#image_roots.set(image_id, known);
    return known;
  }

  #withContext<Result>(work: (session: FileSession) => Promise<Result>): Promise<Result> {
    const { tenant_id, context_root } = this.#terms;
    return this.#parts.engine.files.with(tenant_id, context_root, 0, work);
  }
}

/** What a step takes files from beside the context. */
function sourcesOf({ work }: Step): readonly Base[] {
  if (work.type === "copy") return work.from === null ? [] : [work.from];
  return work.type === "run" ? work.mounts.flatMap(({ files }) => files?.from ?? []) : [];
}

/** As bytes, without a slash at the end. */
const plainTarget = (path: string): string => toBytes(path.replace(/\/+$/, "").slice(0, LIMITS.path_bytes_max));
