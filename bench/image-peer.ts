/**
 * What pulls are compared with: buildah of Debian as a person calls it, on a store of its own of the same driver and on the same
 * disk. It runs below the compiled launcher, as the other peers do, and the time is the launcher's, from its fork to the exit.
 */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../src/base/clock.ts";
import { LauncherClient, LauncherProcess } from "../src/engine/launcher/launcher.ts";
import { installedHelper, temporaryDirectory } from "./daemon.ts";

const TIMEOUT_MS = 120_000;

export class BuildahPeer {
  readonly #directory: string;
  readonly #process: LauncherProcess;
  readonly #client: LauncherClient;
  readonly #buildah: readonly string[];

  private constructor(directory: string, process: LauncherProcess, client: LauncherClient) {
    this.#directory = directory;
    this.#process = process;
    this.#client = client;
    const store = ["--root", join(directory, "storage"), "--runroot", join(directory, "run")];
    this.#buildah = ["buildah", ...store, "--storage-driver", "overlay"];
  }

  static async open(): Promise<BuildahPeer> {
    const directory = temporaryDirectory();
    try {
      const socket = join(directory, "launcher.sock");
      const launcher = await LauncherProcess.start(installedHelper(), socket, true, systemClock);
      return new BuildahPeer(directory, launcher, new LauncherClient(socket, systemClock));
    } catch (error) {
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
  }

  /** Resolves to the milliseconds that the pull took. */
  async pull(reference: string): Promise<number> {
    return this.#run("pull", "--quiet", "--tls-verify=false", `docker://${reference}`);
  }

  /** Builds a folder with the cache of layers. Resolves to the milliseconds that it took. */
  async build(folder: string, reference: string): Promise<number> {
    return this.#run("build", "--quiet", "--layers", "--pull-never", "--tag", reference, folder);
  }

  async remove(reference: string): Promise<void> {
    await this.#run("rmi", reference);
  }

  async close(): Promise<void> {
    this.#client.close();
    await this.#process.stop(systemClock);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #run(...args: readonly string[]): Promise<number> {
    const result = await this.#client.spawn({ argv: [...this.#buildah, ...args], timeout_ms: TIMEOUT_MS });
    if (result.exit_code !== 0) throw new Error(`buildah ${args[0]}: ${result.stderr.slice(-500)}`);
    return result.duration_ms;
  }
}
