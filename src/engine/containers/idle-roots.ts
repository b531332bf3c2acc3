/**
 * Roots of containers that do not run, mounted for as long as somebody looks into them: once for all who look at the
 * same time, since two mounts with one upper directory spoil it.
 */
import { AppError } from "../../base/errors.ts";
import type { LauncherClient } from "../launcher/launcher.ts";

/** A mounted root and the launcher that it is mounted in: no other sees it. */
export interface IdleRoot {
  readonly root: string;
  readonly launcher: LauncherClient;
  /** Called when it is unmounted. */
  letGo(): void;
}

interface Root {
  users_count: number;
  readonly mounted: Promise<IdleRoot>;
  /** Resolves when the root is unmounted. */
  readonly gone: PromiseWithResolvers<void>;
}

export interface Entered extends IdleRoot {
  /** The last one to leave has it unmounted. Harmless when repeated. */
  leave(): void;
}

export class IdleRoots {
  readonly #mount: (id: string, image: string) => Promise<IdleRoot>;
  readonly #unmount: (id: string) => Promise<void>;
  readonly #roots = new Map<string, Root>();

  constructor(mount: (id: string, image: string) => Promise<IdleRoot>, unmount: (id: string) => Promise<void>) {
    this.#mount = mount;
    this.#unmount = unmount;
  }

  /** Rejects as the mount does, and with IN_USE while others use a root whose launcher died: a second mount would spoil it. */
  async enter(id: string, image: string): Promise<Entered> {
    await this.left(id);
    const found = this.#roots.get(id);
    const root = found ?? { users_count: 0, mounted: this.#mount(id, image), gone: Promise.withResolvers() };
    this.#roots.set(id, root);
    root.users_count++;
    let hasLeft = false;
    const leave = () => {
      if (!hasLeft && --root.users_count === 0) void this.#end(id, root);
      hasLeft = true;
    };
    try {
      const mounted = await root.mounted;
      if (found !== undefined && !mounted.launcher.isOpen) {
        throw new AppError("IN_USE", `files of container ${id} are in use`, {
          retry_after: 1,
          hint: "retry in a second",
        });
      }
      return { ...mounted, leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** Returns true while the root has users. */
  isUsed(id: string): boolean {
    return (this.#roots.get(id)?.users_count ?? 0) > 0;
  }

  /** Resolves when what the last one left is unmounted. */
  async left(id: string): Promise<void> {
    for (let root = this.#roots.get(id); root?.users_count === 0; root = this.#roots.get(id)) await root.gone.promise;
  }

  async #end(id: string, root: Root): Promise<void> {
    try {
      await this.#unmount(id);
      (await root.mounted.catch(() => null))?.letGo();
    } finally {
      this.#roots.delete(id);
      root.gone.resolve();
    }
  }
}
