/**
 * User namespaces of API containers: root inside is nobody outside. They depend on the kernel, the storage pool, the
 * image store and the OCI runtime, so a probe starts one container with one (user-namespace-probe.ts).
 *
 * U1 It is decided once in the life of a process, and no container starts before.
 * U2 What was decided is not taken back: a container that cannot get one any more is refused, not started without.
 */
import type { UserNamespaceChoice } from "../../base/config.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { UserNamespaceInfo } from "../ports/machine.ts";

export class UserNamespaces {
  readonly #choice: UserNamespaceChoice;
  readonly #log: Log;
  #info: UserNamespaceInfo = { mode: "unknown", reason: null };
  #deciding: Promise<boolean> | null = null;

  constructor(choice: UserNamespaceChoice, log: Log) {
    this.#choice = choice;
    this.#log = log;
    if (choice === "off") this.#info = { mode: "off", reason: "HEARTH_USER_NAMESPACES is off" };
  }

  /** Slots that can have ids of their own: an id has 32 bits. */
  static readonly slots_max = Math.floor((2 ** 32 - LIMITS.user_namespace_first_id) / LIMITS.user_namespace_ids) - 1;

  /** The first id of a slot, outside. */
  static firstId(slot_index: number): number {
    return LIMITS.user_namespace_first_id + slot_index * LIMITS.user_namespace_ids;
  }

  get info(): UserNamespaceInfo {
    return this.#info;
  }

  /** True if network slots are made with one. */
  get areWanted(): boolean {
    return this.#info.mode !== "off";
  }

  /** Resolves when nobody finds out about them at this moment. */
  async settled(): Promise<void> {
    await this.#deciding?.catch(() => {});
  }

  /**
   * Resolves to true if containers get one (U1); `probe` decides it the first time. Rejects with INTERNAL if user
   * namespaces are required and do not work. Without room for the probe it rejects as the probe does, and the next call
   * tries again.
   */
  async decide(probe: () => Promise<void>): Promise<boolean> {
    if (this.#info.mode !== "unknown") return this.#info.mode === "on";
    this.#deciding ??= this.#find(probe).finally(() => {
      this.#deciding = null;
    });
    return this.#deciding;
  }

  /** Returns true if the failed step may be repeated without one: from then on no container gets one. */
  goOnWithout(error: unknown): boolean {
    if (this.#choice !== "auto" || this.#info.mode === "on") return false;
    if (this.#info.mode === "unknown") {
      const reason = errorText(error);
      this.#log.warn("containers run without user namespaces", { reason });
      this.#info = { mode: "off", reason };
    }
    return true;
  }

  async #find(probe: () => Promise<void>): Promise<boolean> {
    for (let probes_count = 1; ; probes_count++) {
      try {
        await probe();
        this.#info = { mode: "on", reason: null };
        return true;
      } catch (error) {
        const reason = errorText(error);
        if (isFull(error)) {
          this.#info = { mode: "unknown", reason };
          throw error;
        }
        // A slot that could not be made with one has answered the question already.
        if (probes_count < LIMITS.user_namespace_probes_max && this.areWanted) continue;
        if (this.goOnWithout(error)) return false;
        const message = `HEARTH_USER_NAMESPACES is on, and they do not work here: ${reason}`;
        throw new AppError("INTERNAL", message, { cause: error });
      }
    }
  }
}

/** Says nothing about user namespaces. */
function isFull(error: unknown): boolean {
  return error instanceof AppError && (error.code === "CAPACITY_FULL" || error.code === "STORAGE_FULL");
}
