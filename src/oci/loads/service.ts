/**
 * Loads: images that a client sends as an archive: an OCI layout, or what `docker save` writes. The archive lies on the disk while its image arrives as pulls do: each layer
 * passes the check of layers, buildah takes the image from a server on loopback, and the tenant's limits hold. The tenant's row has
 * the manifest of the archive, so that digests stay.
 *
 * L1. Nothing of an archive is on the disk after its load. What a crash leaves goes at the next start.
 * L2. The bytes of an archive are reserved before they are written: no image is smaller than its archive.
 * L3. An archive has images for one platform or more. Their names are checked before any is taken, and they are taken one after the
 *     other: those before a refused one stay.
 */
import { mkdirSync, rmSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import { type ReachedBound, Shares } from "../../base/shares.ts";
import { paced } from "../../base/upload-pace.ts";
import type { Files } from "../../engine/ports.ts";
import type { ImageArrivals } from "../arrivals.ts";
import type { Intake } from "../intake.ts";
import { machinePlatform } from "../platform.ts";
import { parseOwnReference, parseReference, referenceText } from "../reference.ts";
import type { RegistryGateway } from "../registry/gateway.ts";
import { resolveImage } from "../registry/manifests.ts";
import type { TenantImages } from "../service.ts";
import { type ArchiveFiles, keepArchive } from "./archive-files.ts";
import { type ArchivedImage, imagesOf } from "./archive-images.ts";

const ID_LENGTH = 32;

export interface LoadsOptions {
  readonly tenant_images: TenantImages;
  readonly arrivals: ImageArrivals;
  readonly gateway: RegistryGateway;
  /** Its files are there when it has booted. */
  readonly engine: { readonly files: Files };
  /** For archives. Its own: it is emptied first (L1). */
  readonly directory: string;
  readonly clock: Clock;
  readonly ids: Ids;
}

export interface LoadRequest {
  readonly tenant_id: string;
  /** Null: the archive names its image. */
  readonly reference: string | null;
  readonly archive: AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
}

export class ImageLoads {
  readonly #options: LoadsOptions;
  readonly #running = new Shares({
    each_max: LIMITS.image_loads_per_tenant_max,
    all_max: LIMITS.image_loads_max,
  });

  constructor(options: LoadsOptions) {
    this.#options = options;
    rmSync(options.directory, { recursive: true, force: true });
    mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  }

  /**
   * Gives the tenant the images of an archive. Returns their complete references. Rejects with INVALID_ARGUMENT, IMAGE_INVALID,
   * NOT_FOUND for a platform that the image lacks, QUOTA_EXCEEDED, BODY_TOO_LARGE, REQUEST_TIMEOUT, CONCURRENCY_LIMIT,
   * CAPACITY_FULL, TIMEOUT, and the signal's reason.
   */
  async load({ tenant_id, reference, archive, signal: asked }: LoadRequest): Promise<readonly string[]> {
    const { directory, ids, tenant_images, clock } = this.#options;
    // Before the archive is read: a wrong reference costs nothing.
    if (reference !== null) parseOwnReference(reference);
    const release = this.#running.take(tenant_id, tooMany);
    const own = join(directory, ids.hex(ID_LENGTH));
    let intake: Intake | null = null;
    // All images of an archive together: the load holds one of few places.
    const over = new AbortController();
    const cancel = clock.after(LIMITS.image_pull_ms, () => over.abort(tooSlow()));
    const signal = AbortSignal.any([asked, over.signal]);
    try {
      intake = await tenant_images.intake(tenant_id, null);
      await mkdir(own, { mode: 0o700 });
      const files = await this.#keep(tenant_id, archive, own, { intake, signal });
      failpoint("oci.load.kept");
      const images = named(await imagesOf(files), reference);
      for (const [i, one] of images.entries()) {
        if (i === 0) await this.#take(tenant_id, one, { intake, signal });
        else await this.#takeNext(tenant_id, one, signal);
      }
      return images.flatMap(({ references }) => references);
    } finally {
      cancel();
      await rm(own, { recursive: true, force: true });
      intake?.release();
      release();
    }
  }

  async #keep(
    tenant_id: string,
    archive: AsyncIterable<Uint8Array>,
    own: string,
    { intake, signal }: { readonly intake: Intake; readonly signal: AbortSignal },
  ): Promise<ArchiveFiles> {
    const { clock, engine } = this.#options;
    const { image_archive_bytes_max: bytes_max, image_archive_entries_max: entries_max } = LIMITS;
    const pieces = paced(until(signal, archive), { clock, bytes_max, what: "archive" });
    const reader = await engine.files.readTar(tenant_id, pieces, { bytes_max, entries_max });
    try {
      return await keepArchive(reader, own, { reserve: (bytes) => intake.files(bytes), signal });
    } finally {
      await reader.close();
    }
  }

  /** The first image has the reservation of the archive: the layers of each other one have their own. */
  async #takeNext(tenant_id: string, one: Named, signal: AbortSignal): Promise<void> {
    const intake = await this.#options.tenant_images.intake(tenant_id, null);
    try {
      await this.#take(tenant_id, one, { intake, signal });
    } finally {
      intake.release();
    }
  }

  async #take(
    tenant_id: string,
    { references: [reference, ...others], image: { source } }: Named,
    { intake, signal }: { readonly intake: Intake; readonly signal: AbortSignal },
  ): Promise<void> {
    const { tenant_images, gateway, arrivals } = this.#options;
    const platform = machinePlatform();
    const parsed = parseReference(reference);
    try {
      const content = await resolveImage({ source, limits: LIMITS, reference: parsed, platform });
      await tenant_images.room(tenant_id, reference);
      const served = await gateway.openLocal({
        ...{ reference: parsed, content, source, signal },
        unpacked_bytes_max: intake.bytes_max,
        onUnpacked: (bytes) => intake.layers(bytes),
        onProgress: () => {},
      });
      // Whoever has the archive may load it; the policy is for registries.
      const { accepting_policy: policy_file } = served;
      const known_layers = new Set<string>();
      const destination = { tenant_id, reference, event_type: "loaded" as const };
      await arrivals.take({ ...destination, source: served, platform, policy_file, known_layers, intake, signal });
      for (const other of others) await tenant_images.tag(tenant_id, reference, other);
    } finally {
      // The reference may have named another image before, and a refused image has no row.
      void tenant_images.free();
    }
  }
}

/** Also within a file that is passed over. A client that sends nothing at all has the deadlines of its request. */
async function* until(signal: AbortSignal, archive: AsyncIterable<Uint8Array>) {
  for await (const piece of archive) {
    signal.throwIfAborted();
    yield piece;
  }
}

/** An image and the complete references that the tenant gets for it. */
interface Named {
  readonly references: readonly [string, ...string[]];
  readonly image: ArchivedImage;
}

/**
 * L3. `reference`: of the one image, or of that one of several without a name whose tag it has; null: those of the archive. Throws
 * INVALID_ARGUMENT.
 */
function named(all: readonly ArchivedImage[], reference: string | null): readonly Named[] {
  const asked = reference === null ? null : parseOwnReference(reference);
  const tagged = all.length === 1 ? [] : all.filter(({ tag }) => tag !== null && tag === asked?.tag);
  const images = tagged.length === 1 ? tagged : all;
  if (reference !== null && images.length > 1) {
    const tags = images.flatMap(({ tag }) => tag ?? []);
    const hint = tags.length === images.length ? `give it one of their tags: ${tags.join(", ")}` : "leave it out";
    throw new AppError("INVALID_ARGUMENT", `reference: the archive has several images (${images.length} images)`, {
      hint: hint.slice(0, 500),
    });
  }
  return images.map((image) => {
    const names = reference === null ? image.names : [reference];
    const [first, ...others] = names.map((name) => referenceText(parseOwnReference(name)));
    if (first !== undefined) return { references: [first, ...others], image };
    const tag = image.tag === null ? "" : `, but for the tag ${image.tag}`;
    throw new AppError("INVALID_ARGUMENT", `the archive does not name its image${tag}`, {
      hint: "send the query parameter reference, as with hearth load -t <reference>",
    });
  });
}

function tooSlow(): AppError {
  return new AppError("TIMEOUT", `images of an archive not taken within ${LIMITS.image_pull_ms} ms`);
}

function tooMany(reached: ReachedBound, max: number): AppError {
  return reached === "each_max"
    ? new AppError("CONCURRENCY_LIMIT", `too many concurrent loads of images of the tenant (limit ${max})`, {
        retry_after: 1,
      })
    : new AppError("CAPACITY_FULL", `too many concurrent loads of images (limit ${max})`, { retry_after: 1 });
}
