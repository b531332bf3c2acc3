/**
 * The OCI runtime behind one port: crun, runc, or any other with the same command line. Everything runs through the
 * launcher, that is inside its mount namespace, where crun accepts a hybrid cgroup host.
 *
 * `test/engine/oci-runtime.test.ts` holds one contract suite against both.
 */
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { LauncherClient } from "./launcher.ts";

export class OciRuntime {
  /** Command name or path. */
  readonly command: string;
  readonly version: string;
  /** Whether a start accepts ready BPF by annotation (crun). */
  readonly takesBpf: boolean;
  readonly #launcher: LauncherClient;
  readonly #base: readonly string[];

  constructor(launcher: LauncherClient, command: string, version: string, root: string) {
    this.#launcher = launcher;
    this.command = command;
    this.version = version;
    this.takesBpf = version.startsWith("crun ");
    this.#base = [command, "--root", root];
  }

  /** Finds the runtime: `choice` is `auto` (crun, else runc) or a command. Rejects with what each candidate said. */
  static async find(launcher: LauncherClient, choice: string, root: string): Promise<OciRuntime> {
    const complaints: string[] = [];
    for (const command of choice === "auto" ? ["crun", "runc"] : [choice]) {
      try {
        const text = await launcher.run([command, "--version"], 5_000);
        return new OciRuntime(launcher, command, text.split("\n", 1)[0] ?? command, root);
      } catch (error) {
        complaints.push(errorText(error));
      }
    }
    throw new AppError("INTERNAL", `no OCI runtime: ${complaints.join("; ")}`);
  }

  /**
   * Starts the bundle detached, with a listening socket at `listen_path` as descriptor 3. Resolves when the
   * container's process runs. On rejection (START_FAILED, with the runtime's words) the container may exist half-way:
   * call `delete`.
   */
  async run(id: string, bundle: string, listen_path: string, timeout_ms: number): Promise<void> {
    const argv = [...this.#base, "run", "--detach", "--preserve-fds", "1", "--bundle", bundle, id];
    const result = await this.#launcher.spawn({ argv, timeout_ms, listen_paths: [listen_path] });
    if (result.exit_code === 0 && !result.timed_out) return;
    const words = result.timed_out ? `no answer within ${timeout_ms} ms` : result.stderr.trim().slice(-500);
    throw new AppError("START_FAILED", `${this.command} could not start the container: ${words}`);
  }

  /** Creates the container without starting it (used to let crun compile a filter). */
  async create(id: string, bundle: string): Promise<void> {
    await this.#launcher.run([...this.#base, "create", "--bundle", bundle, id], LIMITS.start_timeout_ms);
  }

  /** Kills the container if the runtime knows it, and removes what the runtime keeps of it. Resolves also when there is none. */
  async delete(id: string): Promise<void> {
    const argv = [...this.#base, "delete", "--force", id];
    const result = await this.#launcher.spawn({ argv, timeout_ms: LIMITS.remove_timeout_ms });
    if (result.exit_code === 0 || /does not exist|not found|No such file/i.test(result.stderr)) return;
    throw new AppError("INTERNAL", `${this.command} delete ${id}: ${result.stderr.trim().slice(-500)}`);
  }
}
