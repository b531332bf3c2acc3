/**
 * Loads: images that a client sends as an OCI archive. The archive lies on the disk while its image arrives as pulls do: each layer
 * passes the check of layers, buildah takes the image from a server on loopback, and the tenant's limits hold. The tenant's row has
 * the manifest of the archive, so that digests stay.
 *
 * L1. Nothing of an archive is on the disk after its load. What a crash leaves goes at the next start.
 * L2. The bytes of an archive are reserved before they are written: no image is smaller than its archive.
 * L3. An archive has one image, for one platform or more.
 */
import { mkdirSync, rmSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Ids } from "../../base/ids.ts";
import { checkShape } from "../../base/json-shape.ts";
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

/** Names of images in one message. */
const NAMED_MAX = 10;
const ID_LENGTH = 32;

const Index = z.object({
  manifests: z.array(
    z.object({ annotations: z.record(z.string(), z.string().max(LIMITS.image_reference_length_max)).nullish() }),
  ),
});

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
   * Gives the tenant the image of an archive. Returns its complete reference. Rejects with INVALID_ARGUMENT, IMAGE_INVALID,
   * NOT_FOUND for a platform that the image lacks, QUOTA_EXCEEDED, BODY_TOO_LARGE, REQUEST_TIMEOUT, CONCURRENCY_LIMIT,
   * CAPACITY_FULL, TIMEOUT, and the signal's reason.
   */
  async load({ tenant_id, reference, archive, signal }: LoadRequest): Promise<string> {
    const { directory, ids, tenant_images } = this.#options;
    // Before the archive is read: a wrong reference costs nothing.
    if (reference !== null) parseOwnReference(reference);
    const release = this.#running.take(tenant_id, tooMany);
    const own = join(directory, ids.hex(ID_LENGTH));
    let intake: Intake | null = null;
    try {
      intake = await tenant_images.intake(tenant_id, null);
      await mkdir(own, { mode: 0o700 });
      const files = await this.#keep(tenant_id, archive, own, { intake, signal });
      failpoint("oci.load.kept");
      const complete = referenceText(parseOwnReference(reference ?? nameOf(files.index.bytes)));
      await this.#take(tenant_id, complete, { files, intake, signal });
      return complete;
    } finally {
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
    const pieces = paced(archive, { clock, bytes_max, what: "archive" });
    const reader = await engine.files.readTar(tenant_id, pieces, { bytes_max, entries_max });
    try {
      return await keepArchive(reader, own, { reserve: (bytes) => intake.files(bytes), signal });
    } finally {
      await reader.close();
    }
  }

  async #take(
    tenant_id: string,
    reference: string,
    { files, intake, signal }: { readonly files: ArchiveFiles; readonly intake: Intake; readonly signal: AbortSignal },
  ): Promise<void> {
    const { tenant_images, gateway, arrivals } = this.#options;
    const { source } = files;
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
    } finally {
      // The reference may have named another image before, and a refused image has no row.
      void tenant_images.free();
    }
  }
}

/** Returns the one name of an index (L3). A tag alone names no image. */
function nameOf(bytes: Buffer): string {
  const parsed = Index.safeParse(jsonOf(bytes));
  if (!parsed.success) throw new AppError("IMAGE_INVALID", "the archive has an invalid index.json");
  const found = parsed.data.manifests.map(({ annotations }) => {
    const name = annotations?.["org.opencontainers.image.ref.name"] ?? "";
    return annotations?.["io.containerd.image.name"] ?? (/[/:]/.test(name) ? name : "");
  });
  const names = [...new Set(found)];
  const [only] = names;
  if (names.length === 1 && only !== undefined && only !== "") return only;
  if (names.every((name) => name === "")) {
    throw new AppError("INVALID_ARGUMENT", "the archive does not name its image", {
      hint: "send the query parameter reference",
    });
  }
  const shown = names.slice(0, NAMED_MAX).map((name) => name.slice(0, LIMITS.image_name_length_max));
  throw new AppError("INVALID_ARGUMENT", `the archive has several images (${names.length} names)`, {
    details: { expected: ["one image"], received: shown.join(", ") },
    hint: "write an archive for each image",
  });
}

function jsonOf(bytes: Buffer): unknown {
  try {
    checkShape(bytes, "a document");
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

function tooMany(reached: ReachedBound, max: number): AppError {
  return reached === "each_max"
    ? new AppError("CONCURRENCY_LIMIT", `too many concurrent loads of images of the tenant (limit ${max})`, {
        retry_after: 1,
      })
    : new AppError("CAPACITY_FULL", `too many concurrent loads of images (limit ${max})`, { retry_after: 1 });
}
