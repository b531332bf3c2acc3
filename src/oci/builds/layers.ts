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
import type { Containers } from "../../engine/ports.ts";
import type { LayerAnswer, LayerTask, MadeLayer } from "./layer-thread.ts";

export interface BuiltLayer extends MadeLayer {
  readonly path: string;
}

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

  /** Makes the layer of a container that does not run, in a directory of the build's own. Throws CAPACITY_FULL, IMAGE_INVALID. */
  make(containers: Containers, id: string, directory: string, signal: AbortSignal): Promise<BuiltLayer> {
    return this.#turns.run(() => this.#make(containers, id, directory, signal));
  }

  async #make(containers: Containers, id: string, directory: string, signal: AbortSignal): Promise<BuiltLayer> {
    signal.throwIfAborted();
    const source = join(directory, "difference.tar");
    const path = join(directory, "layer.tar");
    const { bavail, bsize } = await statfs(directory);
    const free_bytes = bavail * bsize;
    // Both files are there at the same time.
    const room = Math.floor((free_bytes - LIMITS.build_host_reserve_bytes) / 2);
    if (room <= 0) {
      const reserve = LIMITS.build_host_reserve_bytes;
      throw new AppError("CAPACITY_FULL", `data disk full: ${free_bytes} bytes free (${reserve} bytes stay free)`, {
        hint: "free space on the disk of the data directory",
      });
    }
    const bytes_max = Math.min(room, LIMITS.build_layer_bytes_max);
    await containers.difference({ id, file: source, bytes_max, timeout_ms: LIMITS.build_layer_ms });
    signal.throwIfAborted();
    const made = await this.#threads.run({ source, target: path, bytes_max }, { signal });
    await rm(source);
    if ("failure" in made) throw new AppError(made.failure.code, made.failure.message);
    return { ...made, path };
  }

  async close(): Promise<void> {
    await this.#threads.destroy();
  }
}
