/**
 * Layers of builds: the files that the steps of a stage changed, as a tar on the disk of the data directory. The engine writes a
 * tar of them, and a thread turns it into a layer.
 */
import { rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { Piscina } from "piscina";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Engine } from "../../engine/ports.ts";
import type { Intake } from "../intake.ts";
import type { LayerAnswer, LayerTask, MadeLayer } from "./layer-thread.ts";

export interface BuiltLayer extends MadeLayer {
  readonly path: string;
}

type LayerEngine = Pick<Engine, "containers" | "storage">;

interface LayerRequest {
  /** Of the build's own. */
  readonly directory: string;
  readonly intake: Intake;
  readonly signal: AbortSignal;
}

/** The tar of the engine, and the layer. */
const COPIES = 2;
/** What a tar needs beside the blocks of the files, and a few empty ones. */
const EXPECTED_GROWTH = 1.1;
const EXPECTED_BYTES = 8 * 1024 * 1024;

export class BuildLayers {
  readonly #threads: Piscina<LayerTask, LayerAnswer>;
  /** One layer at a time: each may fill the room that the disk had when it began. */
  readonly #turns = new Semaphore(1, LIMITS.builds_max, () => {
    return new AppError("CAPACITY_FULL", `too many layers of builds (limit ${LIMITS.builds_max})`, { retry_after: 10 });
  });

  constructor(log: Log) {
    this.#threads = new Piscina({
      filename: new URL("./layer-thread.ts", import.meta.url).href,
      name: "makeLayer",
      minThreads: 0,
      maxThreads: LIMITS.build_threads_max,
      idleTimeout: LIMITS.build_thread_idle_ms,
      maxQueue: LIMITS.builds_max,
      resourceLimits: { maxOldGenerationSizeMb: LIMITS.build_thread_heap_mb },
      recordTiming: false,
    });
    this.#threads.on("error", (error) => log.error("a thread that makes layers exited", { error: errorText(error) }));
  }

  /** Makes the layer of a container that does not run. Throws QUOTA_EXCEEDED, CAPACITY_FULL, IMAGE_INVALID. */
  make(engine: LayerEngine, id: string, of: LayerRequest): Promise<BuiltLayer> {
    return this.#turns.run(() => this.#make(engine, id, of));
  }

  async #make({ containers, storage }: LayerEngine, id: string, of: LayerRequest): Promise<BuiltLayer> {
    const { directory, intake, signal } = of;
    signal.throwIfAborted();
    const source = join(directory, "difference.tar");
    const path = join(directory, "layer.tar");
    const room = await roomOf(directory);
    const { referenced_bytes } = await storage.usage("containers", id);
    // Sparse files and shared blocks are larger in a tar: those need a second attempt.
    const expected = Math.ceil(referenced_bytes * EXPECTED_GROWTH) + EXPECTED_BYTES;
    const first = Math.min(expected, room, LIMITS.build_layer_bytes_max, intake.filesMax(COPIES));
    let bytes_max = first;
    await intake.files(bytes_max, COPIES);
    const write = () => containers.difference({ id, file: source, bytes_max, timeout_ms: LIMITS.build_layer_ms });
    await write().catch(async (error: unknown) => {
      if (!(error instanceof AppError) || error.code !== "CAPACITY_FULL") throw error;
      await rm(source, { force: true });
      bytes_max = Math.min(room, LIMITS.build_layer_bytes_max, intake.filesMax(COPIES));
      const isTenants = bytes_max < Math.min(room, LIMITS.build_layer_bytes_max);
      const refused = isTenants ? tooLarge(bytes_max) : error;
      if (bytes_max <= first) throw refused;
      await intake.files(bytes_max, COPIES);
      await write().catch((again: unknown) => {
        throw again instanceof AppError && again.code === "CAPACITY_FULL" && isTenants ? refused : again;
      });
    });
    signal.throwIfAborted();
    const made = await this.#threads.run({ source, target: path, bytes_max }, { signal });
    await rm(source);
    if ("failure" in made) throw new AppError(made.failure.code, made.failure.message);
    intake.made(made.size_bytes);
    return { ...made, path };
  }

  async close(): Promise<void> {
    await this.#threads.destroy();
  }
}

/** Bytes that each of the two files may have, which are there at the same time. */
export async function roomOf(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  const free_bytes = bavail * bsize;
  const room = Math.floor((free_bytes - LIMITS.build_host_reserve_bytes) / COPIES);
  if (room > 0) return room;
  const reserve = LIMITS.build_host_reserve_bytes;
  throw new AppError("CAPACITY_FULL", `data disk full: ${free_bytes} bytes free (${reserve} bytes stay free)`, {
    hint: "free space on the disk of the data directory",
  });
}

function tooLarge(bytes_max: number): AppError {
  return new AppError("QUOTA_EXCEEDED", `the changed files are too large (limit ${bytes_max} bytes)`, {
    hint: "delete images, or ask the operator for a higher image_mb_max",
  });
}
