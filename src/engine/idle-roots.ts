/**
 * Roots of containers that do not run, mounted for as long as somebody looks into them: once for all who look at the
 * same time, since two mounts with one upper directory spoil it.
 */

interface Root {
  users_count: number;
  readonly path: Promise<string>;
  /** When it is unmounted. */
  readonly gone: PromiseWithResolvers<void>;
}

export interface Entered {
  readonly root: string;
  /** The last one to leave has it unmounted. Harmless when repeated. */
  leave(): void;
}

export class IdleRoots {
  readonly #mount: (id: string, image: string) => Promise<string>;
  readonly #unmount: (id: string) => Promise<void>;
  readonly #roots = new Map<string, Root>();

  constructor(mount: (id: string, image: string) => Promise<string>, unmount: (id: string) => Promise<void>) {
    this.#mount = mount;
    this.#unmount = unmount;
  }

  /** Rejects as the mount does. */
  async enter(id: string, image: string): Promise<Entered> {
    await this.left(id);
    const root = this.#roots.get(id) ?? { users_count: 0, path: this.#mount(id, image), gone: Promise.withResolvers() };
    this.#roots.set(id, root);
    root.users_count++;
    let hasLeft = false;
    const leave = () => {
      if (!hasLeft && --root.users_count === 0) void this.#end(id, root);
      hasLeft = true;
    };
    try {
      return { root: await root.path, leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** Whether somebody looks into it. */
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
    } finally {
      this.#roots.delete(id);
      root.gone.resolve();
    }
  }
}
