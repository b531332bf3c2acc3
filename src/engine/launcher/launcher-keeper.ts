/**
 * Keeps a launcher alive: starts it, and another one when it ends, for as long as the daemon runs. A launcher that
 * dies takes the image mounts and the idle network namespaces along; running containers hold their own.
 *
 * K1. `current` is a launcher behind which everything stands that starts need (`onStarted` has finished), or it throws.
 * K2. Replacing is tried until it succeeds, with growing pauses.
 */
import { type Clock, sleep } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { LauncherClient, type LauncherHandle, LauncherProcess } from "./launcher.ts";

const RETRY_MS_MIN = 100;

export interface LauncherKeeperOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** The compiled helper. */
  readonly minit: string;
  readonly socket_path: string;
  readonly private_tmp: boolean;
  /** Brings up again what ended with the previous launcher. Not called for the first one. */
  onReplaced(launcher: LauncherHandle): Promise<void>;
}

interface Launcher extends LauncherHandle {
  readonly process: LauncherProcess;
}

export class LauncherKeeper {
  readonly #options: LauncherKeeperOptions;
  #launcher: Launcher | null = null;
  #replacing: Promise<void> | null = null;
  #isStopping = false;

  constructor(options: LauncherKeeperOptions) {
    this.#options = options;
  }

  /** Starts the first launcher. Rejects with INTERNAL when that does not work. */
  async start(): Promise<void> {
    this.#launcher = await this.#make();
  }

  /** The launcher in use. Throws START_FAILED while it is being replaced. */
  get current(): LauncherHandle {
    if (this.#launcher === null) throw new AppError("START_FAILED", "the launcher is restarting", { retry_after: 1 });
    return this.#launcher;
  }

  /** Process id of the launcher in use; 0: none. */
  get pid(): number {
    return this.#launcher?.pid ?? 0;
  }

  get isRunning(): boolean {
    return this.#launcher !== null;
  }

  isCurrent(launcher_pid: number): boolean {
    return this.#launcher?.pid === launcher_pid;
  }

  /** Waits until a launcher is in use, at most `start_timeout_ms`. Rejects with START_FAILED. */
  async whenReady(): Promise<LauncherHandle> {
    // A connection that was lost just now has not called its listener yet.
    if (this.#launcher?.client.isOpen === false) this.#lost(this.#launcher.process);
    if (this.#replacing !== null) {
      const late = Promise.withResolvers<void>();
      const cancel = this.#options.clock.after(LIMITS.start_timeout_ms, late.resolve);
      await Promise.race([this.#replacing, late.promise]);
      cancel();
    }
    if (this.#launcher === null) throw new AppError("START_FAILED", "launcher not running", { retry_after: 1 });
    return this.#launcher;
  }

  /** Returns whether a launcher is still the one in use and answers. */
  async isAlive({ pid, client }: LauncherHandle): Promise<boolean> {
    if (!this.isCurrent(pid)) return false;
    return client.ping().then(
      () => this.isCurrent(pid),
      () => false,
    );
  }

  /** Ends the launcher for good. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.whenReady().catch(() => {});
    const launcher = this.#launcher;
    this.#launcher = null;
    launcher?.client.close();
    await launcher?.process.stop(this.#options.clock);
  }

  async #make(): Promise<Launcher> {
    const { clock, minit, socket_path, private_tmp } = this.#options;
    const process = await LauncherProcess.start(minit, socket_path, private_tmp, clock);
    const client = new LauncherClient(socket_path, clock);
    // Whichever is noticed first. A launcher without a connection is of no use, and must not outlive its successor's start.
    client.onClosed(() => this.#lost(process));
    void process.exited.then(() => this.#lost(process));
    return { process, pid: process.pid, client };
  }

  #lost(process: LauncherProcess): void {
    if (this.#isStopping || !this.isCurrent(process.pid)) return;
    this.#options.log.error("the launcher exited, restarting it");
    this.#launcher?.client.close();
    this.#launcher = null;
    process.kill();
    this.#replacing = process.exited
      .then(() => this.#replace())
      .finally(() => {
        this.#replacing = null;
      });
  }

  /** K2. Never rejects; ends early only when the daemon does. */
  async #replace(): Promise<void> {
    const { clock, log, onReplaced } = this.#options;
    for (
      let pause_ms = RETRY_MS_MIN;
      !this.#isStopping;
      pause_ms = Math.min(pause_ms * 2, LIMITS.launcher_retry_ms_max)
    ) {
      let launcher: Launcher | null = null;
      try {
        launcher = await this.#make();
        await onReplaced(launcher);
        if (!launcher.client.isOpen) throw new AppError("INTERNAL", "the new launcher exited immediately");
        this.#launcher = launcher;
        return;
      } catch (error) {
        log.error("cannot restart the launcher yet", { error: errorText(error) });
        launcher?.client.close();
        await launcher?.process.stop(clock);
        await sleep(clock, pause_ms);
      }
    }
  }
}
