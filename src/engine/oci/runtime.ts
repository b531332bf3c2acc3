/**
 * The OCI runtime behind one port: crun, runc, or any other with the same command line. Everything runs through the
 * launcher, that is inside its mount namespace, where crun accepts a hybrid cgroup host.
 *
 * `test/engine/contracts/instances.ts` holds one contract suite against both.
 */
import { readFileSync } from "node:fs";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient } from "../launcher/launcher.ts";

/** Matches what OCI runtimes print: `crun version 1.8.1`, and the specification that they follow as `spec: 1.0.0`. */
const VERSION = /^\S+ version\b|\bspecs?:/i;

/** Resources of the container's first process beside its bundle. */
export interface Handover {
  /** A listening socket is made here; descriptor 3. */
  readonly listen_path: string;
  /** Files that are opened for reading and writing, and made where they are missing; descriptors 4, 5, … */
  readonly file_paths?: readonly string[];
  /** File for its process id on this machine. */
  readonly pid_file?: string;
}

export class OciRuntime {
  /** Command name or path. */
  readonly command: string;
  readonly version: string;
  /** True if a start accepts ready BPF by annotation (crun). */
  readonly takesBpf: boolean;
  readonly #launcher: () => LauncherClient | Promise<LauncherClient>;
  readonly #root: string;
  readonly #base: readonly string[];

  /** `launcher`: the one in use, asked for with every command. */
  constructor(
    launcher: () => LauncherClient | Promise<LauncherClient>,
    command: string,
    version: string,
    root: string,
  ) {
    this.#launcher = launcher;
    this.command = command;
    this.version = version;
    this.takesBpf = version.startsWith("crun ");
    this.#root = root;
    this.#base = [command, "--root", root];
  }

  /** Finds the runtime: `choice` is `auto` (crun, else runc) or a command. Rejects with what each candidate said. */
  static async find(
    launcher: () => LauncherClient | Promise<LauncherClient>,
    choice: string,
    root: string,
  ): Promise<OciRuntime> {
    const complaints: string[] = [];
    for (const command of choice === "auto" ? ["crun", "runc"] : [choice]) {
      try {
        const text = await (await launcher()).run([command, "--version"], 5_000);
        const [version = ""] = text.split("\n", 1);
        if (VERSION.test(text)) return new OciRuntime(launcher, command, version, root);
        complaints.push(`${command} is not an OCI runtime: --version prints '${version.slice(0, 80)}'`);
      } catch (error) {
        complaints.push(errorText(error));
      }
    }
    throw new AppError("INTERNAL", `no OCI runtime: ${complaints.join("; ")}`);
  }

  /**
   * Starts the bundle detached. Resolves when the container's process runs. On rejection (START_FAILED, with the
   * runtime's words) the container may exist half-way: call `delete`.
   */
  async run(id: string, bundle: string, handover: Handover, timeout_ms: number): Promise<void> {
    const { listen_path, file_paths = [], pid_file } = handover;
    const descriptors = ["--preserve-fds", String(1 + file_paths.length)];
    const noted = pid_file === undefined ? [] : ["--pid-file", pid_file];
    const argv = [...this.#base, "run", "--detach", ...descriptors, ...noted, "--bundle", bundle, id];
    const result = await (await this.#launcher()).spawn({ argv, timeout_ms, listen_paths: [listen_path], file_paths });
    if (result.exit_code === 0 && !result.timed_out) return;
    const words = result.timed_out ? `no response within ${timeout_ms} ms` : result.stderr.trim().slice(-500);
    throw new AppError("START_FAILED", `${this.command} cannot start the container: ${words}`);
  }

  /** Creates the container without starting it (used to let crun compile a filter). */
  async create(id: string, bundle: string): Promise<void> {
    await (await this.#launcher()).run([...this.#base, "create", "--bundle", bundle, id], LIMITS.start_timeout_ms);
  }

  /** The filter that was compiled for a container that was created. Only of a runtime that `takesBpf`. */
  compiled(id: string): Buffer {
    return readFileSync(`${this.#root}/${id}/seccomp.bpf`);
  }

  /** Kills the container if the runtime knows it, and removes what the runtime keeps of it. Resolves also when there is none. */
  async delete(id: string): Promise<void> {
    const argv = [...this.#base, "delete", "--force", id];
    const result = await (await this.#launcher()).spawn({ argv, timeout_ms: LIMITS.remove_timeout_ms });
    if (result.exit_code === 0 || /does not exist|not found|No such file/i.test(result.stderr)) return;
    throw new AppError("INTERNAL", `${this.command} delete ${id}: ${result.stderr.trim().slice(-500)}`);
  }
}
