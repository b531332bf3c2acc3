/**
 * The images that the store keeps: those of tenants, of containers and of function versions. All else goes, with its layers.
 *
 * K1. Whoever makes something that needs an image does so in a batch that fails unless a row has the image (`ImageRows.use`).
 *     So what is read here after a row was deleted is complete.
 * K2. A pull holds its image by itself, from before its end until its row is committed (`Images.pull`), and a version the release of
 *     its profile (`Images.reserve`). So what is needed is read after the store has noted which images are held.
 */
import { KeyedMutex } from "../base/concurrency.ts";
import { errorText } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Images } from "../engine/ports.ts";

export interface KeptImagesOptions {
  /** There when the engine has booted. */
  readonly images: () => Images;
  /** Ids of all images that something needs. */
  readonly needed: () => Promise<ReadonlySet<string>>;
  readonly log: Log;
}

export class KeptImages {
  readonly #options: KeptImagesOptions;
  readonly #turns = new KeyedMutex();
  /** A turn that has not begun: whoever asks meanwhile waits for it. */
  #next: Promise<void> | null = null;
  /** The last set that the store was asked to keep; null: unknown. */
  #kept: ReadonlySet<string> | null = null;
  /** An image that was mounted then stays until the store is asked again. */
  #isSettled = false;

  constructor(options: KeptImagesOptions) {
    this.#options = options;
  }

  /** Resolves when the store keeps what is needed now, and nothing else. Never rejects: a failure is logged, and repeated later. */
  keep(): Promise<void> {
    this.#isSettled = false;
    this.#next ??= this.#turns.run("", () => {
      this.#next = null;
      return this.#keep();
    });
    return this.#next;
  }

  /** The same, where something may have changed since, and once more after each change. */
  async check(): Promise<void> {
    const needed = await this.#options.needed();
    const kept = this.#kept;
    const isSame = kept !== null && kept.size === needed.size && [...needed].every((id) => kept.has(id));
    if (isSame && this.#isSettled) return;
    await this.keep();
    this.#isSettled = isSame;
  }

  async #keep(): Promise<void> {
    const { images, needed, log } = this.#options;
    this.#kept = null;
    try {
      let ids: ReadonlySet<string> = new Set();
      await images().keep(async () => {
        ids = await needed();
        return ids;
      });
      this.#kept = ids;
    } catch (error) {
      log.warn("images of tenants, versions and containers not kept", { error: errorText(error) });
    }
  }
}
