/**
 * Builds of images: operations that carry out a build file on the files of a context. Every command runs in a container of this
 * node, so a build may do what a container may do, and nothing reads the build file but the parser in this folder.
 *
 * V1. A base that the tenant lacks is pulled in its name, as POST /api/oci/images/pull would.
 * V2. A build that fails, is cancelled or exceeds its time leaves kept steps alone. A build that a crash ends fails, and the next
 *     start removes what is left of it.
 * V3. The same build again is the same image while the tenant has it: neither a command nor an import is repeated.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Caller } from "../../base/caller.ts";
import type { Clock } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Outgoing } from "../../base/outgoing-requests.ts";
import type { Quotas } from "../../base/tenant-limits.ts";
import type { Engine } from "../../engine/ports.ts";
import type { Events } from "../../events/service.ts";
import type { OperationRecord } from "../../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../../operations/service.ts";
import type { BuildContexts } from "../contexts/service.ts";
import type { ImageImports } from "../imports.ts";
import { machinePlatform, platformText } from "../platform.ts";
import type { Pulls } from "../pulls.ts";
import { parseOwnReference, parseReference, referenceText } from "../reference.ts";
import type { TenantImages } from "../service.ts";
import { Build } from "./build.ts";
import { BuildLog } from "./build-log.ts";
import type { BuildCache } from "./cache.ts";
import { Downloads } from "./downloads.ts";
import type { GitTrees } from "./git/trees.ts";
import { type MatchBudget, newMatchBudget } from "./glob.ts";
import { baseLayers, imageConfig, NO_LAYERS, ownBytes } from "./image.ts";
import type { BuildLayers } from "./layers.ts";
import { type Plan, PREDEFINED, planOf } from "./plan.ts";
import type { BuildImage } from "./schema.ts";
import { ignoredOf, readText } from "./source-files.ts";
import { type BaseImage, changesFiles, digestOf, type EvaluatedStage, evaluate } from "./stages.ts";

/** Values of secrets, for the daemon's own use. */
export interface SecretReader {
  values(tenant_id: string, names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>>;
}

export interface BuildsOptions {
  readonly engine: Engine;
  readonly operations: Operations;
  readonly events: Events;
  readonly tenant_images: TenantImages;
  readonly pulls: Pulls;
  readonly imports: ImageImports;
  readonly contexts: BuildContexts;
  readonly secrets: SecretReader;
  readonly cache: BuildCache;
  readonly layers: BuildLayers;
  readonly trees: GitTrees;
  readonly quotas: Quotas;
  readonly outgoing: Outgoing;
  /** Builds that may run at once; 0: all are refused. */
  readonly running_max: number;
  /** Variables of what commands trust; empty: nothing beside their image. */
  readonly trusted: Readonly<Record<string, string>>;
  /** For layers on their way into the store. */
  readonly directory: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

interface Input extends Omit<BuildImage, "buildfile_path" | "dockerfile_path"> {
  /** Complete. */
  readonly reference: string;
  readonly buildfile: string;
  readonly is_operator: boolean;
}

interface Running {
  readonly context: OperationContext<Input>;
  readonly plan: Plan;
  readonly log: BuildLog;
  readonly build: Build;
  readonly stages: ReadonlyMap<number, EvaluatedStage>;
  readonly target: EvaluatedStage;
}

export class Builds {
  readonly #options: BuildsOptions;

  constructor(options: BuildsOptions) {
    this.#options = options;
    options.operations.register<Input>("oci.build", {
      resumable: false,
      cancellable: true,
      timeout_ms: LIMITS.build_ms,
      // Builds that were accepted under another setting still run.
      running_max: Math.max(1, options.running_max),
      running_per_tenant_max: LIMITS.builds_per_tenant_max,
      run: (context) => this.#run(context),
    });
  }

  /** Removes what a crash left. Containers of builds are no row's: recovery.ts of containers removes them. */
  async boot(): Promise<void> {
    await rm(this.#options.directory, { recursive: true, force: true });
    await this.#options.cache.boot();
  }

  /** Throws FORBIDDEN, INVALID_ARGUMENT, NOT_FOUND (the context, a secret), QUOTA_EXCEEDED. */
  async accept({ tenant_id, is_operator }: Caller, body: BuildImage): Promise<OperationRecord> {
    if (this.#options.running_max === 0) {
      throw new AppError("FORBIDDEN", "this node builds no images", {
        hint: "the operator has set HEARTH_BUILDS to 0",
      });
    }
    const { operations, tenant_images, contexts } = this.#options;
    const { buildfile_path, dockerfile_path, ...rest } = body;
    const parsed = parseOwnReference(body.image_reference);
    if (parsed.digest !== null) {
      throw new AppError("INVALID_ARGUMENT", "image_reference: must not have a digest", {
        hint: "send a reference with a tag",
      });
    }
    const reference = referenceText(parsed);
    const buildfile = buildfile_path ?? dockerfile_path ?? "Dockerfile";
    (await contexts.open(tenant_id, body.context_id)).release();
    wipe(await this.#options.secrets.values(tenant_id, body.secrets));
    await tenant_images.room(tenant_id, reference);
    const input: Input = { ...rest, reference, buildfile, is_operator };
    return operations.accept(tenant_id, { type: "oci.build", target: { type: "image", id: reference }, input });
  }

  /** Deletes the entries of a tenant's build cache that were last used at least `age_seconds` ago. Resolves to their number. */
  pruneCache(tenant_id: string, age_seconds: number): Promise<number> {
    return this.#options.cache.prune(tenant_id, age_seconds);
  }

  /** Deletes the build cache of a tenant. */
  async eraseAll(tenant_id: string): Promise<void> {
    await this.#options.cache.eraseAll(tenant_id);
  }

  async #run(context: OperationContext<Input>): Promise<OperationResult> {
    const { contexts, secrets, engine } = this.#options;
    const { tenant_id, input } = context;
    const opened = await contexts.open(tenant_id, input.context_id);
    const budget = newMatchBudget();
    try {
      const { source, ignored } = await engine.files.with(tenant_id, opened.root, 0, async (session) => ({
        source: await readText(session, input.buildfile, LIMITS.build_file_bytes_max),
        ignored: await ignoredOf(session, input.buildfile, budget),
      }));
      if (source === null) {
        throw new AppError("INVALID_ARGUMENT", `the context has no build file: '${input.buildfile.slice(0, 256)}'`);
      }
      const platform = platformText(machinePlatform());
      const target = input.target_stage ?? null;
      const plan = planOf({ source, arguments: input.build_args, target, platform });
      const values = await secrets.values(tenant_id, input.secrets);
      try {
        return await this.#planned(context, plan, { root: opened.root, ignored, budget, values });
      } finally {
        wipe(values);
      }
    } finally {
      opened.release();
    }
  }

  async #planned(
    context: OperationContext<Input>,
    plan: Plan,
    files: {
      readonly root: string;
      readonly ignored: (path: string) => boolean;
      readonly budget: MatchBudget;
      readonly values: ReadonlyMap<string, Uint8Array>;
    },
  ): Promise<OperationResult> {
    const { engine, cache, ids, clock, events } = this.#options;
    const { tenant_id, input, signal, operation_id } = context;
    const bases = new Map<string, Promise<BaseImage>>();
    const image = (reference: string) => {
      const found = bases.get(reference) ?? this.#base(context, reference);
      bases.set(reference, found);
      return found;
    };
    const log = new BuildLog({
      ...{ operation_id, reference: input.reference, steps_count: plan.steps_count, clock, log: this.#options.log },
      emit: (told) => events.write([], tenant_id, told),
    });
    const limits = this.#limits(tenant_id);
    const downloads = new Downloads({
      ...{ outgoing: this.#options.outgoing, cache, tenant_id, signal },
      ...{ size_mb: limits.disk_mb, is_open: input.egress === "on" },
      trees: this.#options.trees,
      directory: join(this.#options.directory, `${operation_id}.git`),
      reserve: () => this.#options.tenant_images.reserveExport(tenant_id, 0),
      tell: (text) => log.output("stderr", Buffer.from(text)),
      within: (root, work) => engine.files.with(tenant_id, root, 0, work),
    });
    const build = new Build(
      { engine, cache, ids, clock },
      {
        ...limits,
        downloads,
        ...{ tenant_id, signal, log, egress: input.egress, no_cache: input.no_cache, secrets: files.values },
        trusted: { ...this.#options.trusted, ...predefined(input.build_args) },
        ...{ context_root: files.root, ignored: files.ignored, budget: files.budget, steps_count: plan.steps_count },
        imageId: async (reference) => (await image(reference)).image_id,
        onStep: ({ number }, text) => context.progress((95 * (number - 1)) / plan.steps_count, text),
      },
    );
    try {
      const stages = await evaluate({
        ...{ tenant_id, plan, arguments: input.build_args, image, egress: input.egress, secrets: input.secrets },
        contextDigest: (step, line) => build.contextDigest(step, line),
        downloadKey: (file) => downloads.key(file),
      });
      const target = stages.get(plan.target.index);
      if (target === undefined) throw new AppError("INTERNAL", "the target of a build is not evaluated");
      return await this.#evaluated({ context, plan, log, build, stages, target });
    } finally {
      await build.close().catch((error) => {
        this.#options.log.warn("leftovers of a build not removed", { operation_id, error: errorText(error) });
      });
      await downloads.close();
      await log.close();
    }
  }

  async #evaluated(running: Running): Promise<OperationResult> {
    const { cache, tenant_images } = this.#options;
    const { context, stages, target, build } = running;
    const { tenant_id, input } = context;
    const key = digestOf(["image", tenant_id, target.key, target.settings.toJson(), target.history]);
    const known = input.no_cache ? null : await cache.image(tenant_id, key);
    if (known !== null && (await this.#tagKnown(tenant_id, known, input.reference))) {
      build.tellKept(stages);
      return resultOf(input.reference, known, "image is the same as of an earlier build");
    }
    const image_id = await this.#make(running);
    await cache.noteImage(tenant_id, key, image_id);
    void tenant_images.free();
    return resultOf(input.reference, image_id, "image built");
  }

  /** V3. */
  async #tagKnown(tenant_id: string, image_id: string, reference: string): Promise<boolean> {
    try {
      await this.#options.tenant_images.tag(tenant_id, image_id, reference);
      return true;
    } catch (error) {
      if (error instanceof AppError && (error.code === "NOT_FOUND" || error.code === "WRONG_STATE")) return false;
      throw error;
    }
  }

  /** Returns the id of the image, 64 hexadecimal digits. */
  async #make({ context, build, stages, target }: Running): Promise<string> {
    const { layers, imports, engine, clock, tenant_images } = this.#options;
    const { tenant_id, input, signal, operation_id } = context;
    const directory = join(this.#options.directory, operation_id);
    const intake = await tenant_images.intake(tenant_id, input.reference, target.image_id);
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const root = changesFiles(target) ? await build.files(target, stages) : null;
      context.progress(95, "layer and image are made");
      const made = root === null ? null : await layers.make(engine, root.id, { directory, intake, signal });
      const layer = made?.has_entries === true ? made : null;
      failpoint("oci.build.layered");
      const found = target.image_id === null ? null : await tenant_images.inspect(tenant_id, target.image_id);
      const base = found === null ? NO_LAYERS : baseLayers(found.config_json);
      const own = layer === null ? [] : [layer];
      if (base.diff_ids.length + own.length === 0) {
        throw new AppError("INVALID_ARGUMENT", "the image would have no files");
      }
      const keys = target.history.flatMap(({ key }) => (key === null ? [] : [key]));
      const sizes = await this.#options.cache.sizes(tenant_id, keys);
      const config = imageConfig({
        ...{ base, settings: target.settings, history: target.history, diff_id: layer?.diff_id ?? null },
        own_bytes: sizes.size === 0 ? null : ownBytes(target.history, sizes),
        ...{ platform: machinePlatform(), created: new Date(clock.epochMs()).toISOString() },
      });
      const { image_id } = await imports.import({
        ...{ tenant_id, reference: input.reference, event_type: "built", intake, signal },
        config_json: Buffer.from(config),
        layers: [
          ...base.diff_ids.map((diff_id, i) => {
            const size = found?.layers[i]?.uncompressed_size ?? found?.layers[i]?.size_bytes;
            return { diff_id, size_bytes: size ?? 0, path: null };
          }),
          ...own.map(({ diff_id, size_bytes, path }) => ({ diff_id, size_bytes, path })),
        ],
      });
      return image_id.replace(/^sha256:/, "");
    } finally {
      await rm(directory, { recursive: true, force: true });
      intake.release();
    }
  }

  /** V1. */
  async #base({ tenant_id, input, signal }: OperationContext<Input>, reference: string): Promise<BaseImage> {
    const { tenant_images, pulls, operations } = this.#options;
    try {
      return await this.#resolved(tenant_id, reference);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "NOT_FOUND") throw error;
    }
    const body = { reference, force: false };
    const pull = await pulls.accept({ tenant_id, is_operator: input.is_operator }, body);
    await operations.wait(tenant_id, pull.operation_id, { timeout_ms: LIMITS.image_pull_ms, signal });
    signal.throwIfAborted();
    const ended = await operations.get(tenant_id, pull.operation_id);
    if (ended.status !== "succeeded") {
      const why = ended.error ?? `the pull ${ended.status}`;
      throw new AppError("BUILD_FAILED", `base image ${referenceText(parseReference(reference))}: ${why}`);
    }
    void tenant_images.free();
    return this.#resolved(tenant_id, reference);
  }

  async #resolved(tenant_id: string, reference: string): Promise<BaseImage> {
    const { tenant_images } = this.#options;
    const { image_id } = await tenant_images.resolve(tenant_id, reference);
    const { config_json } = await tenant_images.inspect(tenant_id, image_id);
    return { image_id, config_json };
  }

  /** Of the containers of a tenant's builds. Throws QUOTA_EXCEEDED. */
  #limits(tenant_id: string): { readonly memory_mb: number; readonly disk_mb: number } {
    const { container_memory_mb_max, disk_mb_max } = this.#options.quotas.of(tenant_id);
    const memory_mb = Math.min(LIMITS.build_memory_mb, container_memory_mb_max ?? LIMITS.build_memory_mb);
    const disk_mb = Math.min(LIMITS.build_disk_mb, disk_mb_max ?? LIMITS.build_disk_mb);
    if (memory_mb < LIMITS.memory_limit_mb_min || disk_mb < LIMITS.disk_limit_mb_min) {
      throw new AppError(
        "QUOTA_EXCEEDED",
        `build not possible: ${memory_mb} MiB memory, ${disk_mb} MiB disk (minimum ${LIMITS.memory_limit_mb_min} MiB and ${LIMITS.disk_limit_mb_min} MiB)`,
      );
    }
    return { memory_mb, disk_mb };
  }
}

function wipe(values: ReadonlyMap<string, Uint8Array>): void {
  for (const value of values.values()) value.fill(0);
}

function resultOf(reference: string, image_id: string, message: string): OperationResult {
  return { result: { reference, image_id: `sha256:${image_id}` }, message };
}

/** Proxies of the request, which commands have without ARG: they are in no key and no image. */
function predefined(build_args: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(build_args).filter(([name]) => PREDEFINED.has(name)));
}
