/**
 * Imports an image: buildah copies it from a gateway's server into the store, the daemon proves its layers and writes the tenant's
 * row.
 *
 * A1. The engine holds the image until its row is committed or refused.
 * A2. A tenant's row is written after every layer was checked, or was known to be the tenant's.
 * A3. Devices that no container may open are gone from the store before the row is written.
 */
import { AppError, errorText, isFault } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { ImagePull, Images, PulledImage } from "../engine/ports.ts";
import { detailsOf } from "./image-config.ts";
import type { Intake } from "./intake.ts";
import type { Platform } from "./platform.ts";
import type { PullSource } from "./registry/gateway.ts";
import type { ImageContent } from "./rows.ts";
import type { TenantImages } from "./service.ts";

export interface ArrivalsOptions {
  readonly tenant_images: TenantImages;
  /** There when the engine has booted. */
  readonly images: () => Images;
  readonly log: Log;
}

/** Reference and event of an image that the engine holds. */
export interface Destination {
  readonly tenant_id: string;
  readonly reference: string;
  readonly event_type: "pulled" | "built" | "committed" | "loaded";
}

export interface Arrival extends Destination {
  readonly source: PullSource;
  readonly platform: Platform;
  /** Path of the signature policy; null: buildah's own. */
  readonly policy_file: string | null;
  /** Layers that need no proof beside those of the tenant's images, by `layerKey`. */
  readonly known_layers: ReadonlySet<string>;
  readonly intake: Intake;
  readonly signal: AbortSignal;
}

export class ImageArrivals {
  readonly #options: ArrivalsOptions;

  constructor(options: ArrivalsOptions) {
    this.#options = options;
  }

  /**
   * Takes an image from a gateway's server, which it closes. Rejects with the server's failure, which is more precise than buildah's.
   * Resolves to the number of device nodes that were left out (A3).
   */
  async take(of: Arrival): Promise<number> {
    const { source, platform, policy_file, signal } = of;
    const asked = {
      reference: source.pull_reference,
      transport: "docker",
      platform,
      registries_conf: source.registries_conf,
      policy_file,
      diff_ids: source.diff_ids,
      timeout_ms: LIMITS.image_pull_ms,
      signal: AbortSignal.any([signal, source.failed]),
    } as const;
    try {
      const pulled = await this.#store(of.reference, asked, source);
      const check = async () => {
        const known = await this.#options.tenant_images.layerKeys(of.tenant_id);
        await source.finish(new Set([...known, ...of.known_layers]));
        if (source.skipped_devices > 0) await this.#options.images().removeDevices(pulled.id);
      };
      await this.keep(of, pulled, { source, check, intake: of.intake });
      const { skipped_devices } = source;
      if (skipped_devices > 0) {
        this.#options.log.info("devices of an image left out", { reference: of.reference, count: skipped_devices });
      }
      return skipped_devices;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      await source.close();
    }
  }

  /**
   * Gives the tenant a row for an image that the engine holds, if `check` does not reject, and lets the image go. `source`: whose
   * manifest the row has; null: that of the store.
   */
  async keep(
    { tenant_id, reference, event_type }: Destination,
    { id, release }: PulledImage,
    {
      source = null,
      check = async () => {},
      intake = null,
    }: {
      readonly source?: PullSource | null;
      readonly check?: () => Promise<void>;
      readonly intake?: Intake | null;
    } = {},
  ): Promise<void> {
    try {
      failpoint("oci.pull.stored");
      await check();
      const content = await this.#contentOf(id, source);
      await this.#options.tenant_images.put(tenant_id, reference, content, event_type, { intake });
      failpoint("oci.pull.committed");
    } finally {
      release();
    }
  }

  /** Lets buildah pull from the gateway. Repeats that: a deletion may free layers that the pull found in the store, or its image. */
  async #store(reference: string, asked: ImagePull, source: PullSource): Promise<PulledImage> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#options.images().pull(asked);
      } catch (error) {
        const isLast = attempt >= attemptsMax(error) || asked.signal.aborted || source.failure !== null;
        if (isLast || !isFault(error)) throw source.failure ?? this.#refusal(reference, error);
        source.restart();
      }
    }
  }

  /** Buildah's own words name the gateway's address and paths of this machine: they are for the log. */
  #refusal(reference: string, error: unknown): unknown {
    if (error instanceof AppError && !isFault(error)) return error;
    this.#options.log.warn("image store refused an image", { reference, error: errorText(error) });
    return new AppError("IMAGE_INVALID", `image store refused the image: ${reference}`, { cause: error });
  }

  /** The store knows what the layers hold, their source how they came. */
  async #contentOf(id: string, source: PullSource | null): Promise<ImageContent> {
    const { manifest_digest, manifest_json, config_json, size_bytes, layers } = await this.#options
      .images()
      .describe(id);
    const stored = { image_id: id, config_json, size_bytes, details: detailsOf(config_json) };
    if (source === null) return { ...stored, manifest_digest, manifest_json, layers };
    const { manifest, layers: own } = source.content;
    return {
      ...stored,
      manifest_digest: manifest.digest,
      manifest_json: manifest.bytes.toString(),
      layers: own.map(({ digest, size, media_type }, i) => ({
        ...{ digest, size_bytes: size, media_type },
        uncompressed_size: layers[i]?.uncompressed_size ?? null,
        diff_id: layers[i]?.diff_id ?? null,
      })),
    };
  }
}

/** The store tells lost layers from all else by `retryable`. */
function attemptsMax(error: unknown): number {
  const isLoss = error instanceof AppError && error.retryable;
  return isLoss ? LIMITS.image_pull_attempts_max : LIMITS.image_pull_faults_max;
}
