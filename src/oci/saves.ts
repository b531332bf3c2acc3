/**
 * Archives of images for clients. Each holds an export of its image from the request to the end of the answer, whatever ends that: a
 * client that goes away, or reads too slowly for the listener.
 */
import { closing, Streamed } from "../base/answer.ts";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type ReachedBound, Shares } from "../base/shares.ts";
import type { ExportedImage, Images } from "../engine/ports.ts";
import { archiveOf } from "./archive.ts";
import type { ExportableImage, TenantImages } from "./service.ts";

export const ARCHIVE_TYPE = "application/x-tar";

export interface SavesOptions {
  readonly tenant_images: TenantImages;
  /** There when the engine has booted. */
  readonly images: () => Images;
  readonly clock: Clock;
}

export class Saves {
  readonly #options: SavesOptions;
  readonly #shares = new Shares({ each_max: LIMITS.image_saves_per_tenant_max, all_max: LIMITS.image_saves_max });

  constructor(options: SavesOptions) {
    this.#options = options;
  }

  /**
   * Returns the archive of an image. The headers leave early, before the layers are compressed, for clients that do not wait long
   * for them; a later failure cuts the connection. Throws NOT_FOUND, INVALID_ARGUMENT, QUOTA_EXCEEDED, CONCURRENCY_LIMIT,
   * CAPACITY_FULL.
   */
  async archive(tenant_id: string, text: string, signal: AbortSignal): Promise<Streamed> {
    const { tenant_images, images, clock } = this.#options;
    const image = await tenant_images.exportable(tenant_id, text);
    const leave = this.#shares.take(tenant_id, tooMany);
    const over = new AbortController();
    const { image_id: id, size_bytes } = image;
    const timeout_ms = LIMITS.image_export_ms;
    const reserved = await tenant_images.reserveExport(tenant_id, size_bytes).catch((error) => {
      leave();
      throw error;
    });
    const exporting = images()
      .export({ id, size_bytes, timeout_ms, signal: AbortSignal.any([signal, over.signal]) })
      .catch((error) => {
        reserved.release();
        leave();
        throw error;
      });
    exporting.catch(() => {});
    await settledWithin(clock, exporting, LIMITS.early_headers_ms);
    const cancel = clock.after(LIMITS.image_save_ms, () => over.abort(tooSlow()));
    const close = () => {
      cancel();
      over.abort(new AppError("INTERNAL", "client of an archive disconnected"));
      const end = () => {
        reserved.release();
        leave();
      };
      exporting.then(({ release }) => release().then(end)).catch(() => {});
    };
    return new Streamed(closing(piecesOf(image, exporting, over.signal), close), { content_type: ARCHIVE_TYPE });
  }
}

/** Rejects as the work does in this time; afterwards its failure is for who waits for it then. */
async function settledWithin(clock: Clock, work: Promise<unknown>, wait_ms: number): Promise<void> {
  const late = Promise.withResolvers<void>();
  const cancel = clock.after(wait_ms, () => late.resolve());
  try {
    await Promise.race([work, late.promise]);
  } finally {
    cancel();
  }
}

async function* piecesOf(
  image: ExportableImage,
  exporting: Promise<ExportedImage>,
  over: AbortSignal,
): AsyncGenerator<Uint8Array> {
  for await (const piece of archiveOf(image, await exporting)) {
    over.throwIfAborted();
    yield piece;
  }
}

function tooMany(reached: ReachedBound, max: number): AppError {
  return reached === "each_max"
    ? new AppError("CONCURRENCY_LIMIT", `too many concurrent saves of images of the tenant (limit ${max})`, {
        hint: "wait until some end",
        retry_after: 5,
      })
    : new AppError("CAPACITY_FULL", `too many concurrent saves of images on this node (limit ${max})`, {
        retry_after: 5,
      });
}

function tooSlow(): AppError {
  return new AppError("TIMEOUT", `archive of an image not read within ${LIMITS.image_save_ms} ms`);
}
