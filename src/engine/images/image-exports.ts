/**
 * Exports: threads write the layers of an image, compressed, into a directory of the data disk. Nothing of it reaches a network.
 * buildah would open files of layers by paths that links of the layer lead to files of this machine: layer-thread.ts reads them as the
 * layer's own.
 *
 * E1. Each export has a directory, made before its first layer and removed at its release. The next boot removes those that an
 *     earlier process left: its threads and helpers ended with it.
 * E2. An export reserves what its layers may take until it is released. Without room for that beside the reserve of the disk it
 *     is refused, so exports together never fill the disk.
 * E3. The configuration leaves as it is stored, so the image keeps its id. Compression may give a layer another digest than
 *     its registry had; the same image gives the same digests each time.
 */
import { mkdir, mkdtemp, readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { Piscina } from "piscina";
import type { Clock } from "../../base/clock.ts";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { ExportedImage, ExportedLayer, ImageExport } from "../ports/images.ts";
import type { LayerExportAnswer, LayerExportTask } from "./layer-thread.ts";
import type { LayerPlace, StoreFiles } from "./store-files.ts";

const ID = /^[0-9a-f]{64}$/;
/** Growth of bytes that compression cannot compress, with files beside the layers. */
const GROWTH = 1.01;
const MARGIN_BYTES = 16 * 1024 * 1024;

export interface ImageExportsOptions {
  readonly files: Pick<StoreFiles, "storedLayers" | "config">;
  /** The compiled helper, and the socket of the launcher that starts it. */
  readonly minit: string;
  readonly launcher_socket: string;
  /** A directory of its own, on a disk. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
}

export class ImageExports {
  readonly #options: ImageExportsOptions;
  readonly #running = new Semaphore(LIMITS.image_exports_at_once, LIMITS.image_exports_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many exports of images", { retry_after: 10 });
  });
  /** E2. */
  #reserved_bytes = 0;
  #cleared: Promise<void> | null = null;
  readonly #threads: Piscina<LayerExportTask, LayerExportAnswer>;

  constructor(options: ImageExportsOptions) {
    this.#options = options;
    this.#threads = new Piscina({
      filename: new URL("./layer-thread.ts", import.meta.url).href,
      name: "writeLayer",
      minThreads: 0,
      maxThreads: LIMITS.image_exports_at_once,
      idleTimeout: LIMITS.layer_thread_idle_ms,
      maxQueue: LIMITS.image_exports_at_once,
      resourceLimits: { maxOldGenerationSizeMb: LIMITS.layer_thread_heap_mb },
      recordTiming: false,
    });
    const { log } = options;
    this.#threads.on("error", (error) => log.error("a thread that writes layers exited", { error: errorText(error) }));
  }

  /** Clears up after exports of an earlier process, once. Never rejects: what is left is found at the next boot. */
  begin(): Promise<void> {
    this.#cleared ??= this.#clear().catch((error: unknown) => {
      this.#options.log.warn("exports of an earlier process not cleared up", { error: errorText(error) });
    });
    return this.#cleared;
  }

  /** Rejects like `Images.export`. */
  async export(of: ImageExport): Promise<ExportedImage> {
    await this.begin();
    if (!ID.test(of.id)) throw new AppError("NOT_FOUND", `image not in the store: ${of.id.slice(0, 64)}`);
    return this.#running.run(() => this.#export(of));
  }

  async #export(of: ImageExport): Promise<ExportedImage> {
    of.signal.throwIfAborted();
    const giveBack = await this.#reserve(of);
    const held: { directory: string | null } = { directory: null };
    const release = async () => {
      const { directory } = held;
      held.directory = null;
      if (directory !== null) await this.#remove(directory);
      giveBack();
    };
    try {
      held.directory = await this.#make();
      failpoint("images.export.made");
      const written = await this.#write(of, held.directory);
      failpoint("images.export.written");
      return { ...written, release };
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** E2. */
  async #reserve({ id, size_bytes }: ImageExport): Promise<() => void> {
    const { directory } = this.#options;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(directory);
    const needed = Math.ceil(size_bytes * GROWTH) + MARGIN_BYTES;
    const free = bavail * bsize - this.#reserved_bytes - LIMITS.image_exports_reserve_bytes;
    if (needed > free) {
      throw new AppError(
        "CAPACITY_FULL",
        `no disk space for an export of image ${id}: ${needed} bytes (free ${free})`,
        {
          retry_after: 60,
        },
      );
    }
    this.#reserved_bytes += needed;
    let isHeld = true;
    return () => {
      if (isHeld) this.#reserved_bytes -= needed;
      isHeld = false;
    };
  }

  async #make(): Promise<string> {
    const directory = await mkdtemp(join(this.#options.directory, "export-"));
    return directory;
  }

  async #write(of: ImageExport, directory: string): Promise<Pick<ExportedImage, "config" | "layers">> {
    const { files, clock } = this.#options;
    const late = new AbortController();
    const cancel = clock.after(of.timeout_ms, () => late.abort(tooLate(of)));
    const signal = AbortSignal.any([of.signal, late.signal]);
    try {
      const places = await files.storedLayers(of.id);
      // Docker's version 1 has no configuration.
      const config = Buffer.from(
        await files.config(of.id).catch((cause: unknown) => {
          throw cause instanceof AppError ? cause : unusable(of.id, "its manifest has an old format");
        }),
      );
      const layers: ExportedLayer[] = [];
      for (const [number, place] of places.entries()) {
        layers.push(await this.#layer(of.id, place, { path: join(directory, `layer-${number}`), signal }));
      }
      return { config, layers };
    } finally {
      cancel();
    }
  }

  async #layer(
    id: string,
    { directory, split, diff_id }: LayerPlace,
    { path, signal }: { readonly path: string; readonly signal: AbortSignal },
  ): Promise<ExportedLayer> {
    const { minit, launcher_socket, withLauncher } = this.#options;
    if (diff_id === null) throw unusable(id, "the store does not know the digest of a layer");
    const written = await withLauncher(async () => {
      signal.throwIfAborted();
      // Of an attempt whose launcher died.
      await rm(path, { force: true });
      const task = { launcher_socket, minit, directory, split, diff_id, target: path };
      const answer = await this.#threads.run(task, { signal }).catch((error: unknown) => {
        signal.throwIfAborted();
        throw error;
      });
      if (!("failure" in answer)) return answer;
      const { code, message } = answer.failure;
      if (code === "CAPACITY_FULL")
        throw new AppError(code, `no disk space for an export of image ${id}`, { retry_after: 60 });
      throw code === "IMAGE_INVALID" ? unusable(id, `layer ${diff_id}: ${message}`) : new AppError(code, message);
    });
    return { ...written, path };
  }

  /** Ends the threads. Exports that run reject. */
  async close(): Promise<void> {
    await this.#threads.destroy();
  }

  /** Never rejects: the next boot finds what is left (E1). */
  async #remove(directory: string): Promise<void> {
    await rm(directory, { recursive: true, force: true }).catch((error: unknown) => {
      this.#options.log.warn("export of an image not removed", { directory, error: errorText(error) });
    });
  }

  /** E1. */
  async #clear(): Promise<void> {
    const { directory } = this.#options;
    for (const name of await readdir(directory).catch(() => [])) {
      await rm(join(directory, name), { recursive: true, force: true });
    }
  }
}

function unusable(id: string, why: string): AppError {
  return new AppError("IMAGE_INVALID", `image ${id} cannot be exported: ${why}`);
}

function tooLate({ id, timeout_ms }: ImageExport): AppError {
  return new AppError("TIMEOUT", `export of image ${id} did not end within ${timeout_ms} ms`);
}
