/**
 * Decides when the write-ahead log is copied back and when commits have to wait for that. The copying itself is done
 * by checkpoint-thread.ts, commits are writer.ts's.
 *
 * K1. At most one checkpoint runs at a time.
 * K2. Commits are held only while a checkpoint runs, and each of those ends within `checkpoint_timeout_ms`, so a hold
 *     ends too: by success, or with the error that the waiting commits are refused with.
 * K3. A log that has been copied completely is begun again by SQLite at the next commit. Under constant load that never
 *     happens by itself (something is always added meanwhile), so from `wal_restart_bytes` on a second pass follows
 *     at once with the commits held: it has little left to copy and takes two syncs.
 * K4. The log never passes `wal_bytes_max` by more than one transaction, unless another process pins it by reading.
 */
import { closeSync, constants, fdatasync, fstatSync, openSync } from "node:fs";
import { Piscina } from "piscina";
import type { Clock } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { CheckpointReply, CheckpointTask } from "./checkpoint-thread.ts";

export interface CheckpointLimits {
  readonly wal_checkpoint_bytes: number;
  readonly wal_restart_bytes: number;
  readonly wal_bytes_max: number;
  readonly checkpoint_timeout_ms: number;
  readonly store_busy_timeout_ms: number;
}

export interface CheckpointerOptions {
  readonly path: string;
  readonly page_bytes: number;
  readonly limits: CheckpointLimits;
  readonly clock: Clock;
  readonly log: Log;
  /** Called when the disk is full: whether space was freed, so that another try makes sense. */
  readonly onFull: () => boolean;
  /** Called when a hold ends: commits may go on (null), or those that wait are to be refused. */
  readonly onRelease: (error: AppError | null) => void;
}

export class Checkpointer {
  readonly #path: string;
  readonly #page_bytes: number;
  readonly #limits: CheckpointLimits;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #onFull: () => boolean;
  readonly #onRelease: (error: AppError | null) => void;
  /** SQLite takes no locks on the log itself, so this descriptor may be closed without dropping any (unlike the others). */
  readonly #wal_fd: number;
  readonly #threads: Piscina<CheckpointTask, CheckpointReply>;
  /** Bytes added since the start of the last checkpoint, estimated: the pages of a commit are not told. */
  #added_bytes = 0;
  #running: Promise<void> | null = null;
  #holding = false;
  /** Said once when it begins and once when it ends: a full disk fails a hundred checkpoints a second. */
  #is_failing = false;

  constructor({ path, page_bytes, limits, clock, log, onFull, onRelease }: CheckpointerOptions) {
    this.#path = path;
    this.#page_bytes = page_bytes;
    this.#limits = limits;
    this.#clock = clock;
    this.#log = log;
    this.#onFull = onFull;
    this.#onRelease = onRelease;
    this.#wal_fd = openSync(`${path}-wal`, constants.O_RDWR);
    this.#threads = new Piscina<CheckpointTask, CheckpointReply>({
      filename: new URL("./checkpoint-thread.ts", import.meta.url).href,
      name: "checkpoint",
      minThreads: 0,
      maxThreads: 1,
      maxQueue: 1,
      // The thread stays once it has been needed: starting one costs more than keeping it.
      idleTimeout: Number.POSITIVE_INFINITY,
      recordTiming: false,
    });
    // What the thread throws outside of any task would end the daemon if nobody listened.
    this.#threads.on("error", (error) => log.error("the checkpoint thread exited", { error: errorText(error) }));
  }

  get wal_bytes(): number {
    return fstatSync(this.#wal_fd).size;
  }

  /** Whether commits must wait now. May begin a hold (K4). */
  mustWait(): boolean {
    if (this.#holding) return true;
    if (this.#added_bytes < this.#limits.wal_checkpoint_bytes) return false;
    if (this.wal_bytes < this.#limits.wal_bytes_max) return false;
    this.#holding = true;
    this.#start();
    return true;
  }

  /** Told after each commit: pages that it changed, beside those that `value_bytes` of new rows fill. Estimates. */
  added(page_count: number, value_bytes: number): void {
    // Twice: pages of a growing tree are written again while they fill.
    this.#added_bytes += page_count * this.#page_bytes + 2 * value_bytes;
    if (this.#added_bytes >= this.#limits.wal_checkpoint_bytes) this.#start();
  }

  /** Waits until everything committed so far is on the disk. */
  sync(): Promise<void> {
    return new Promise((resolve, reject) => {
      fdatasync(this.#wal_fd, (error) => (error === null ? resolve() : reject(error)));
    });
  }

  /** Waits for a running checkpoint and lets the thread go. Nothing may be committed after this call. */
  async close(): Promise<void> {
    await this.#running;
    await this.#threads.destroy();
    closeSync(this.#wal_fd);
  }

  #start(): void {
    if (this.#running !== null) return; // K1
    this.#running = this.#cycle().then((failure) => {
      this.#running = null;
      if (!this.#holding) return;
      this.#holding = false;
      // The next commit tries again before it adds anything (K4).
      if (failure !== null) this.#added_bytes = this.#limits.wal_checkpoint_bytes;
      this.#onRelease(failure);
    });
  }

  async #cycle(): Promise<AppError | null> {
    try {
      this.#added_bytes = 0;
      const first = await this.#run();
      const wal_bytes = first.frames * this.#page_bytes + this.#added_bytes;
      const is_complete = first.frames_copied === first.frames && this.#added_bytes === 0;
      if (!is_complete && (this.#holding || wal_bytes >= this.#limits.wal_restart_bytes)) {
        this.#holding = true; // K3
        this.#added_bytes = 0;
        await this.#run();
      }
      if (this.#is_failing) this.#log.info("checkpoints work again", { path: this.#path });
      this.#is_failing = false;
      return null;
    } catch (cause) {
      if (errorText(cause).startsWith("SQLITE_FULL") && this.#onFull()) return this.#cycle();
      if (!this.#is_failing) this.#log.error("checkpoints fail", { path: this.#path, error: errorText(cause) });
      this.#is_failing = true;
      return new AppError("INTERNAL", `cannot checkpoint the store: ${errorText(cause)}`, { cause });
    }
  }

  async #run(): Promise<CheckpointReply> {
    const { checkpoint_timeout_ms, store_busy_timeout_ms } = this.#limits;
    const { promise: expired, reject } = Promise.withResolvers<never>();
    const cancel = this.#clock.after(checkpoint_timeout_ms, () =>
      reject(new AppError("INTERNAL", `a checkpoint took more than ${checkpoint_timeout_ms} ms`)),
    );
    try {
      const task: CheckpointTask = { path: this.#path, busy_timeout_ms: store_busy_timeout_ms };
      return await Promise.race([this.#threads.run(task), expired]);
    } finally {
      cancel();
    }
  }
}
