/**
 * The root of a stage: the files of a container that runs only while a command of the build does. Between commands its files are
 * changed through a session of `minit files`.
 */
import { AppError } from "../../base/errors.ts";
import { buildsOwner } from "../../base/storage-owners.ts";
import type { Containers, FileSession, OpenFiles, Storage, SubvolumeName } from "../../engine/ports.ts";
import { CACHE_KIND } from "./cache.ts";

export interface RootOptions {
  readonly containers: Containers;
  readonly storage: Storage;
  readonly tenant_id: string;
  /** Of the container. */
  readonly id: string;
  readonly image_id: string;
  readonly disk_mb: number;
}

export class StageRoot {
  readonly id: string;
  readonly image_id: string;
  readonly #options: RootOptions;
  #files: OpenFiles | null = null;

  private constructor(options: RootOptions) {
    this.#options = options;
    this.id = options.id;
    this.image_id = options.image_id;
  }

  /** Makes a root: with the files of a kept step, of another stage, or with none beside those of its image. */
  static async make(
    options: RootOptions,
    from: { readonly kept: string } | { readonly root: string } | null,
  ): Promise<StageRoot> {
    const { storage, containers, id, disk_mb } = options;
    const owner = buildsOwner(options.tenant_id);
    const root = new StageRoot(options);
    try {
      if (from !== null) {
        const source: SubvolumeName =
          "kept" in from ? { kind: CACHE_KIND, id: from.kept } : { kind: "containers", id: from.root };
        await storage.snapshot(source, { kind: "containers", id }, false, disk_mb, owner);
      }
      await containers.create(id, disk_mb, owner);
      return root;
    } catch (error) {
      await root.remove();
      throw error;
    }
  }

  /** A session on its files, while it does not run. */
  async files(): Promise<FileSession> {
    if (this.#files !== null && !this.#files.session.isOpen) this.closeFiles();
    this.#files ??= await this.#options.containers.openFiles({
      id: this.id,
      tenant_id: this.#options.tenant_id,
      image_id: this.image_id,
    });
    return this.#files.session;
  }

  closeFiles(): void {
    this.#files?.close();
    this.#files = null;
  }

  /** Ends what runs, and removes all of it. Safe to repeat. */
  async remove(): Promise<void> {
    const { containers } = this.#options;
    this.closeFiles();
    await containers.kill(this.id);
    await containers.remove(this.id);
  }
}

/** The message of a file's error names a path of the root, which the tenant knows. */
export function isFileError(error: unknown): error is AppError {
  const codes = ["INVALID_ARGUMENT", "NOT_FOUND", "NAME_TAKEN", "NOT_EMPTY", "STORAGE_FULL"];
  return error instanceof AppError && codes.includes(error.code);
}
