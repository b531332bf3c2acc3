/**
 * Files of commits: the pack of a commit comes from its host into a file of the data disk, and a thread turns it into a tar. Both
 * count as temporary files of the tenant, and are gone when the tar has been read.
 */
import { createReadStream } from "node:fs";
import { mkdir, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { Piscina } from "piscina";
import type { AppError } from "../../../base/errors.ts";
import { errorText } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { Log } from "../../../base/log.ts";
import type { Reservation } from "../../../base/reservations.ts";
import { roomOf } from "../layers.ts";
import type { GitHost } from "./protocol.ts";
import type { MadeTree, TreeAnswer, TreeTask } from "./tree-thread.ts";

export interface TreeRequest {
  readonly host: GitHost;
  readonly commit: string;
  /** Whose content is wanted; empty for all. */
  readonly directory: string;
  /** For the files meanwhile: a path that is not there. */
  readonly place: string;
  /** Of no bytes yet. The caller releases it. */
  readonly reservation: Pick<Reservation, "bytes_max" | "reach" | "shrink">;
  readonly signal: AbortSignal;
  readonly refuse: (why: string) => AppError;
}

const MIB = 1024 * 1024;
/** Bytes of a pack that are reserved at a time. */
const PORTION_BYTES = 16 * MIB;

export class GitTrees {
  readonly #threads: Piscina<TreeTask, TreeAnswer>;

  constructor(log: Log) {
    this.#threads = new Piscina({
      filename: new URL("./tree-thread.ts", import.meta.url).href,
      name: "makeTree",
      minThreads: 0,
      maxThreads: LIMITS.build_threads_max,
      idleTimeout: LIMITS.build_thread_idle_ms,
      maxQueue: LIMITS.builds_max,
      resourceLimits: { maxOldGenerationSizeMb: LIMITS.build_thread_heap_mb },
      recordTiming: false,
    });
    this.#threads.on("error", (error) => log.error("a thread that reads git exited", { error: errorText(error) }));
  }

  /** Gives `work` the tar of a commit's files. Throws what `refuse` returns, what the guard throws, QUOTA_EXCEEDED and CAPACITY_FULL. */
  async with<Result>(
    request: TreeRequest,
    work: (tar: AsyncIterable<Uint8Array>, made: MadeTree) => Promise<Result>,
  ): Promise<Result> {
    const { place, commit, directory, reservation, signal, refuse } = request;
    await mkdir(place, { recursive: true, mode: 0o700 });
    try {
      const [pack, target] = [join(place, "pack"), join(place, "tree.tar")];
      const room = await roomOf(place);
      const pack_bytes = await this.#fetch(request, pack, Math.min(room, LIMITS.build_git_pack_mb_max * MIB));
      const left_bytes = Math.max(MIB, reservation.bytes_max - pack_bytes);
      const bytes_max = Math.min(room, LIMITS.build_git_tar_mb_max * MIB, left_bytes);
      await reservation.reach(pack_bytes + bytes_max);
      const made = await this.#threads.run({ pack, target, commit, directory, bytes_max }, { signal });
      await rm(pack);
      if ("failure" in made) throw refuse(made.failure.message);
      reservation.shrink(made.size_bytes);
      return await work(createReadStream(target), made);
    } finally {
      await rm(place, { recursive: true, force: true });
    }
  }

  async close(): Promise<void> {
    await this.#threads.destroy();
  }

  async #fetch({ host, commit, reservation, refuse }: TreeRequest, path: string, bytes_max: number): Promise<number> {
    const file = await open(path, "wx", 0o600);
    try {
      let bytes = 0;
      let reserved = 0;
      for await (const piece of host.pack(commit, bytes_max)) {
        bytes += piece.length;
        if (bytes > bytes_max) throw refuse(`the repository is too large (limit ${bytes_max} bytes)`);
        if (bytes > reserved) {
          reserved += PORTION_BYTES;
          await reservation.reach(reserved);
        }
        await file.writeFile(piece);
      }
      return bytes;
    } finally {
      await file.close();
    }
  }
}
