/**
 * User namespaces of API containers: root inside is nobody outside. Whether they work takes the kernel, the store area,
 * the image store and the OCI runtime, so it is found out by one container that is started with one (user-namespace-probe.ts).
 *
 * U1 It is decided once in the life of a process, and no container starts before.
 * U2 What was decided is not taken back: a container that cannot get one any more is refused, not started without.
 */
import type { UserNamespaceChoice } from "../base/config.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";

export interface UserNamespaceInfo {
  /** `unknown` until it is decided. */
  readonly mode: "on" | "off" | "unknown";
  /** Why there are none; null otherwise. */
  readonly reason: string | null;
}

export class UserNamespaces {
  readonly #choice: UserNamespaceChoice;
  readonly #log: Log;
  readonly #decided = Promise.withResolvers<boolean>();
  #info: UserNamespaceInfo = { mode: "unknown", reason: null };

  constructor(choice: UserNamespaceChoice, log: Log) {
    this.#choice = choice;
    this.#log = log;
    if (choice === "off") this.#decide({ mode: "off", reason: "HEARTH_USER_NAMESPACES is off" });
  }

  get info(): UserNamespaceInfo {
    return this.#info;
  }

  /** Whether network slots are made with one. */
  get areWanted(): boolean {
    return this.#info.mode !== "off";
  }

  /** Whether containers get one (U1). */
  get decided(): Promise<boolean> {
    return this.#decided.promise;
  }

  /** The first id of a slot, outside. */
  static firstId(slot_index: number): number {
    return LIMITS.user_namespace_first_id + slot_index * LIMITS.user_namespace_ids;
  }

  /** Has `probe` show that they work. Rejects with INTERNAL where they have to and do not. */
  async decide(probe: () => Promise<void>): Promise<void> {
    if (this.#info.mode !== "unknown") return;
    try {
      await this.#tryOut(probe);
      this.#decide({ mode: "on", reason: null });
    } catch (error) {
      if (this.goOnWithout(error)) return;
      throw new AppError("INTERNAL", `HEARTH_USER_NAMESPACES is on, and they do not work here: ${errorText(error)}`, {
        cause: error,
      });
    }
  }

  /** Whether what failed may be tried without one: then nothing has one from here on. */
  goOnWithout(error: unknown): boolean {
    if (this.#choice !== "auto" || this.#info.mode === "on") return false;
    if (this.#info.mode === "unknown") {
      const reason = errorText(error);
      this.#log.warn("containers run without user namespaces", { reason });
      this.#decide({ mode: "off", reason });
    }
    return true;
  }

  async #tryOut(probe: () => Promise<void>): Promise<void> {
    for (let probes_count = 1; ; probes_count++) {
      try {
        return await probe();
      } catch (error) {
        // Without wanting them there is nothing more to be seen: a slot could not be made with one.
        if (probes_count === LIMITS.user_namespace_probes_max || !this.areWanted) throw error;
      }
    }
  }

  #decide(info: UserNamespaceInfo): void {
    this.#info = info;
    this.#decided.resolve(info.mode === "on");
  }
}
