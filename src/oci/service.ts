/**
 * Images of tenants: which tenant has which image, under which references. The content is the engine's, in one store for all
 * tenants; pulls are pulls.ts's.
 *
 * W1. A tenant reaches an image by a row alone: its own, or one that the operator shares. For all else an image does not
 *     exist, also if the store has it.
 * W2. An image is not deleted while a container or version of the tenant needs it, unless another reference of the tenant
 *     names it. Both sides are held in SQL beside the change itself.
 * W3. Changes of the images of one tenant take turns.
 */
import { unknownCredential } from "../base/caller.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { KeyedMutex } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import { counted } from "../base/plurals.ts";
import { type Reservation, Reservations } from "../base/reservations.ts";
import { type Quotas, quotaExceeded, tenantGuard } from "../base/tenant-limits.ts";
import type { Images } from "../engine/ports.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import type { Guard, Statement, Store } from "../store/store.ts";
import { historyOf } from "./image-config.ts";
import { Intake } from "./intake.ts";
import { KeptImages } from "./kept-images.ts";
import { fitOf, machinePlatform, platformText } from "./platform.ts";
import { parseOwnReference, parseReference, referenceText } from "./reference.ts";
import { layerKey } from "./registry/gateway.ts";
import { type ImageContent, type ImageRow, ImageRows, type RowLayer } from "./rows.ts";
import type { HistoryEntry, ImageRecord, Layer } from "./schema.ts";
import { type Disk, UnusedImages } from "./unused-images.ts";

const MEGABYTE = 1024 * 1024;
/** The id of an image, or its beginning. */
const IMAGE_ID = /^(?:sha256:)?([0-9a-f]{12,64})$/;
/** Largest number of containers or references that one message names. */
const NAMED_MAX = 10;

export interface TenantImagesOptions {
  readonly store: Store;
  readonly events: Events;
  readonly clock: Clock;
  readonly log: Log;
  readonly quotas: Quotas;
  /** There when the engine has booted. */
  readonly images: () => Images;
  /** Ids of images that containers and function versions need. */
  readonly used: () => Promise<readonly string[]>;
  /** The disk of the image store, and the share of it above which unused images are evicted. */
  readonly readDisk: () => Disk;
  readonly disk_percent_max: number;
  /** Bytes that stay free on that disk; `image_disk_free_bytes_min` unless given. */
  readonly disk_free_bytes_min?: number;
  /** Temporary files of tenants on the data disk. */
  readonly temporary: Reservations;
}

/** An image for a container that is being made. */
export interface UsableImage {
  readonly reference: string;
  readonly image_id: string;
  /** For the batch that makes the container: the tenant still has the image then. */
  readonly use: Guard;
}

/** An image as far as its export needs it. */
export interface ExportableImage {
  readonly reference: string;
  readonly image_id: string;
  /** Of the unpacked layers. */
  readonly size_bytes: number;
  readonly os: string;
  readonly architecture: string;
}

export class TenantImages {
  readonly #options: TenantImagesOptions;
  readonly #rows: ImageRows;
  readonly #kept: KeptImages;
  readonly #unused: UnusedImages;
  /** Unpacked bytes of images that are on their way. */
  readonly #arriving: Reservations;
  /** W3. */
  readonly #turns = new KeyedMutex();

  constructor(options: TenantImagesOptions) {
    this.#options = options;
    this.#rows = new ImageRows(options.store);
    const { images, used, log } = options;
    const needed = async () => new Set([...(await this.#rows.ids()), ...(await used())]);
    this.#kept = new KeptImages({ images, needed, log });
    this.#unused = new UnusedImages({
      ...options,
      rows: this.#rows,
      now: () => this.#now(),
      inTurn: (tenant_id, work) => this.#turns.run(tenant_id, work),
      free: () => this.#kept.keep(),
      disk_free_bytes_min: options.disk_free_bytes_min ?? LIMITS.image_disk_free_bytes_min,
    });
    this.#arriving = new Reservations({
      max: (tenant_id) => {
        const { image_mb_max } = options.quotas.of(tenant_id);
        return image_mb_max === null ? null : image_mb_max * MEGABYTE;
      },
      used: async (tenant_id) => (await this.#rows.megabytes(tenant_id)) * MEGABYTE,
      refusal: (max_bytes) => quotaExceeded("image_mb_max", max_bytes / MEGABYTE, 1),
    });
  }

  /** Frees what a crash or set-up left. Never rejects. */
  async boot(): Promise<void> {
    this.#options.images().onIdle(() => void this.#kept.keep());
    await this.#kept.keep();
  }

  /** Frees images of containers and versions that are gone, and evicts images while the disk is nearly full. */
  async prune(): Promise<void> {
    await this.#kept.check();
    await this.#unused.evict();
  }

  /** Deletes the tenant's images that nothing uses and that were last used at least so long ago. */
  async deleteUnused(tenant_id: string, age_seconds: number) {
    const { rows, freed_bytes } = await this.#unused.prune(tenant_id, age_seconds);
    const images = rows.map(({ reference, image_id, size_bytes }) => {
      return { reference, id: digestOf(image_id), size_bytes };
    });
    return { success: true as const, images, freed_bytes };
  }

  /** True if the image store answers. */
  async readiness(tenant_id: string) {
    const { pinned } = this.#options.images();
    const isAnswering = await this.#options
      .images()
      .isRelease(pinned.id, null)
      .catch(() => null);
    return {
      status: isAnswering === null ? ("degraded" as const) : ("ok" as const),
      concern: "oci" as const,
      image_count: await this.#rows.count(tenant_id),
      reason: isAnswering === null ? "the image store does not answer" : null,
    };
  }

  /** Newest first, shared ones among them. */
  async list(
    tenant_id: string,
    { filter = "", include_digests }: { readonly filter?: string | undefined; readonly include_digests: boolean },
    place: Place,
  ): Promise<Listed<ImageRecord>> {
    const [{ items, last }, uses] = await Promise.all([
      this.#rows.list(tenant_id, filter, place),
      this.#rows.uses(tenant_id),
    ]);
    const hidden = include_digests ? {} : { manifest_digest: null, config_digest: null };
    return { items: items.map((row) => ({ ...recordOf(row, uses, tenant_id), ...hidden })), last };
  }

  /** By reference or id. Throws NOT_FOUND, INVALID_ARGUMENT. */
  async get(tenant_id: string, text: string): Promise<ImageRecord> {
    return recordOf(await this.#find(tenant_id, text), await this.#rows.uses(tenant_id), tenant_id);
  }

  async inspect(tenant_id: string, text: string) {
    const row = await this.#find(tenant_id, text);
    const { layers, manifest_json, config_json } = await this.#content(row, text);
    return {
      image: recordOf(row, await this.#rows.uses(tenant_id), tenant_id),
      layers: layers.map(({ diff_id: _, ...layer }): Layer => layer),
      manifest_json,
      config_json,
    };
  }

  /** Describes an image for its export: an own one, or one that the operator shares. Throws NOT_FOUND, INVALID_ARGUMENT. */
  async exportable(tenant_id: string, text: string): Promise<ExportableImage> {
    const { reference, image_id, size_bytes, details } = await this.#find(tenant_id, text);
    return { reference, image_id, size_bytes, os: details.os, architecture: details.architecture };
  }

  async history(tenant_id: string, text: string): Promise<HistoryEntry[]> {
    const { config_json, layers } = await this.#content(await this.#find(tenant_id, text), text);
    return historyOf(config_json, layers);
  }

  /**
   * Resolves the image of a new container. Throws NOT_FOUND, and INVALID_ARGUMENT for a malformed reference or an image that
   * this machine cannot run.
   */
  async resolve(tenant_id: string, text: string): Promise<UsableImage> {
    const row = await this.#find(tenant_id, text);
    const found = { os: row.details.os, architecture: row.details.architecture, variant: null };
    const machine = machinePlatform();
    if (fitOf(machine, found) === null) {
      const [own, needed] = [platformText(machine), platformText(found)];
      throw new AppError("INVALID_ARGUMENT", `image: wrong platform: ${needed} (this node runs ${own})`, {
        details: { expected: [own], received: needed },
        hint: `pull the image with platform ${own}`,
      });
    }
    const statement = this.#rows.use(tenant_id, row, this.#now());
    const { reference, image_id } = row;
    return { reference, image_id, use: { statement, refusal: () => notFound(text) } };
  }

  /** True if the tenant has the image of a complete reference itself. */
  async has(tenant_id: string, reference: string): Promise<boolean> {
    return (await this.#rows.own(tenant_id, reference)) !== null;
  }

  /** Layers of all images that the tenant has, each by its digest and its diff_id (`layerKey`). */
  async layerKeys(tenant_id: string): Promise<ReadonlySet<string>> {
    const rows = await this.#rows.layers(tenant_id, { isShared: false });
    const known = rows.flatMap(({ layers }) =>
      layers.flatMap(({ digest, diff_id }) => (diff_id ? [{ digest, diff_id }] : [])),
    );
    return new Set(known.map(layerKey));
  }

  /** Returns those of the diff_ids that no image has which the tenant may use. */
  async lackingLayers(tenant_id: string, diff_ids: readonly string[]): Promise<readonly string[]> {
    const lacking = new Set(diff_ids);
    const rows = lacking.size === 0 ? [] : await this.#rows.layers(tenant_id, { isShared: true });
    for (const { image_id, layers } of rows) {
      // Rows of an earlier release have no diff_ids.
      const isKnown = layers.every(({ diff_id }) => diff_id != null);
      const found = isKnown ? layers : await this.#storedLayers(image_id);
      for (const { diff_id } of found) if (diff_id != null) lacking.delete(diff_id);
      if (lacking.size === 0) break;
    }
    return [...lacking];
  }

  async #storedLayers(image_id: string): Promise<readonly RowLayer[]> {
    const description = await this.#options
      .images()
      .describe(image_id)
      .catch(() => null);
    return description?.layers ?? [];
  }

  /**
   * Throws QUOTA_EXCEEDED where the tenant may have no further image. Returns the bytes that those that do not arrive yet may have.
   */
  async room(tenant_id: string, reference: string): Promise<number> {
    const { store, quotas } = this.#options;
    const isNew = !(await this.has(tenant_id, reference));
    const guards = quotas.guards(tenant_id, { images_max: isNew ? 1 : 0 });
    if (guards.length > 0) {
      const { conflict } = await store.write(guards.map(({ statement }) => statement));
      if (conflict !== null) throw guards[conflict]?.refusal();
    }
    return this.#arriving.roomBytes(tenant_id);
  }

  /**
   * Begins the arrival of an image: nothing of it is written but what this reserves. A nearly full disk first loses unused images of
   * the tenant. `reference`: null while it is not known. Throws QUOTA_EXCEEDED, CAPACITY_FULL.
   */
  async intake(tenant_id: string, reference: string | null, base_image_id: string | null = null): Promise<Intake> {
    if (reference !== null) await this.room(tenant_id, reference);
    await this.#unused.makeRoom(tenant_id, base_image_id);
    return Intake.open(tenant_id, { images: this.#arriving, files: this.#options.temporary });
  }

  /** Reserves the files of an export, which the caller releases with them. Throws QUOTA_EXCEEDED. */
  async reserveExport(tenant_id: string, size_bytes: number): Promise<Reservation> {
    const reservation = await this.#options.temporary.open(tenant_id);
    try {
      await reservation.reach(size_bytes);
      return reservation;
    } catch (error) {
      reservation.release();
      throw error;
    }
  }

  /**
   * Gives a tenant's reference an image that the engine keeps meanwhile, or that the row `source` has until then. Throws
   * QUOTA_EXCEEDED; then the image is freed unless something else needs it.
   */
  async put(
    tenant_id: string,
    reference: string,
    content: ImageContent,
    event_type: "pulled" | "tagged" | "built" | "committed" | "loaded",
    { source = null, intake = null }: { readonly source?: ImageRow | null; readonly intake?: Intake | null } = {},
  ): Promise<void> {
    const { quotas } = this.#options;
    const put = async (): Promise<void> => {
      const before = await this.#rows.own(tenant_id, reference);
      const isHeld = await this.#rows.hasImage(tenant_id, content.image_id);
      const adds = {
        images_max: before === null ? 1 : 0,
        image_mb_max: isHeld ? 0 : Math.ceil(content.size_bytes / MEGABYTE),
      };
      const now = this.#now();
      const statement =
        before === null
          ? this.#rows.insert(tenant_id, reference, content, now)
          : this.#rows.replace(tenant_id, reference, content, now);
      const checks: readonly Guard[] = [
        { statement: tenantGuard(tenant_id, "state = 'active'"), refusal: unknownCredential },
        // K1 of kept-images.ts.
        ...(source === null
          ? []
          : [{ statement: this.#rows.hold(tenant_id, source), refusal: () => notFound(source.reference) }]),
        ...quotas.guards(tenant_id, adds),
        { statement, refusal: () => changed(reference) },
      ];
      const statements = checks.map(({ statement }) => statement);
      const conflict = await this.#write(statements, { tenant_id, reference, image_id: content.image_id }, event_type);
      if (conflict !== null) throw checks[conflict]?.refusal();
    };
    await this.#turns.run(tenant_id, () => (intake === null ? put() : intake.commit(put)));
  }

  /** Frees what no row, container or version needs any more. Never rejects. */
  free(): Promise<void> {
    return this.#kept.keep();
  }

  /** Gives an image a further reference of the tenant. Throws NOT_FOUND, INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async tag(tenant_id: string, text: string, target: string): Promise<ImageRecord> {
    const parsed = parseOwnReference(target);
    if (parsed.digest !== null) {
      throw new AppError("INVALID_ARGUMENT", `target: must not have a digest: '${target}'`, {
        hint: "send a reference with a tag",
      });
    }
    const row = await this.#find(tenant_id, text);
    const reference = referenceText(parsed);
    await this.put(tenant_id, reference, await this.#content(row, text), "tagged", { source: row });
    // The target may have named another image.
    void this.free();
    return this.get(tenant_id, reference);
  }

  /** Shows an image of the operator to all tenants, or hides it again; what they made of it stays. Throws NOT_FOUND. */
  async share(tenant_id: string, text: string, is_shared: boolean): Promise<ImageRecord> {
    const row = await this.#owned(tenant_id, text);
    const conflict = await this.#write([this.#rows.share(row, is_shared)], row, is_shared ? "shared" : "unshared");
    if (conflict !== null) throw notFound(text);
    return this.get(tenant_id, row.reference);
  }

  /** Deletes a reference, and the image with its layers unless something else needs them. Throws NOT_FOUND, FORBIDDEN, IN_USE. */
  async delete(tenant_id: string, text: string, prune_layers: boolean): Promise<string> {
    const row = await this.#owned(tenant_id, text);
    await this.#checkSingle(row, text);
    const conflict = await this.#turns.run(tenant_id, () => this.#write([this.#rows.delete(row)], row, "removed"));
    if (conflict !== null) throw await this.#undeletable(row, text);
    failpoint("oci.delete.stored");
    const freeing = this.#kept.keep();
    if (prune_layers) await freeing;
    return row.reference;
  }

  /** Deletes all images of a tenant that is being deleted, after its containers and functions. */
  async eraseAll(tenant_id: string): Promise<void> {
    for (let isMore = true; isMore; ) isMore = await this.#rows.eraseSome(tenant_id);
    await this.#kept.keep();
  }

  async #undeletable(row: ImageRow, text: string): Promise<AppError> {
    const users = await this.#rows.containersOf(row, NAMED_MAX);
    const isUsed = users.length > 0 || (await this.#rows.uses(row.tenant_id)).has(row.image_id);
    if (!isUsed) return notFound(text);
    const snapshots_count = users.length === 0 ? await this.#rows.snapshotCount(row) : 0;
    const other = snapshots_count === 0 ? "a function version" : counted(snapshots_count, "snapshot");
    const by = users.length === 0 ? other : counted(users.length, "container");
    return new AppError("IN_USE", `image '${row.reference}' is in use by ${by}`, {
      ...(users.length === 0 ? {} : { details: { received: users.join(", ") } }),
      hint: "delete the containers, functions and snapshots first",
    });
  }

  /** An id may stand for several references; then it says not which of them goes. */
  async #checkSingle(row: ImageRow, text: string): Promise<void> {
    if (isReference(text, row)) return;
    const references = await this.#rows.references(row, NAMED_MAX);
    if (references.length <= 1) return;
    throw new AppError("INVALID_ARGUMENT", `reference: image has ${references.length} references: '${text}'`, {
      details: { expected: references, received: text },
      hint: "send one of the references",
    });
  }

  async #find(tenant_id: string, text: string): Promise<ImageRow> {
    const id = IMAGE_ID.exec(text)?.[1];
    // The beginning of an id may be a repository's name too, which then counts.
    const isOnlyId = id !== undefined && (id.length === 64 || text.startsWith("sha256:"));
    const named = isOnlyId ? null : await this.#rows.byReference(tenant_id, referenceText(parseReference(text)));
    const row = named ?? (id === undefined ? null : await this.#rows.byId(tenant_id, id));
    if (row === null) throw notFound(text);
    return row;
  }

  /** An image of the tenant's own. */
  async #owned(tenant_id: string, text: string): Promise<ImageRow> {
    const row = await this.#find(tenant_id, text);
    if (row.tenant_id === tenant_id) return row;
    throw new AppError("FORBIDDEN", `image '${row.reference}' belongs to the operator, who shares it`);
  }

  async #content(row: ImageRow, text: string): Promise<ImageContent> {
    const content = await this.#rows.content(row);
    if (content === null) throw notFound(text);
    return content;
  }

  async #write(
    statements: readonly Statement[],
    { tenant_id, reference, image_id }: Pick<ImageRow, "tenant_id" | "reference" | "image_id">,
    event_type: string,
  ): Promise<number | null> {
    const data = { reference, image_id: digestOf(image_id) };
    const event: NewEvent = { name: "image_update", event_type, data };
    return (await this.#options.events.write(statements, tenant_id, [event], { durable: true })).conflict;
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

const digestOf = (image_id: string): string => `sha256:${image_id}`;

function isReference(text: string, { reference }: ImageRow): boolean {
  try {
    return referenceText(parseReference(text)) === reference;
  } catch {
    return false;
  }
}

/** `tenant_id`: who asks. A shared image does not tell when other tenants use it. */
function recordOf(row: ImageRow, uses: ReadonlyMap<string, number>, tenant_id: string): ImageRecord {
  const { registry, repository, tag } = parseReference(row.reference);
  const { details } = row;
  return {
    id: digestOf(row.image_id),
    tenant_id: row.tenant_id,
    reference: row.reference,
    registry,
    repository,
    tag,
    manifest_digest: row.manifest_digest,
    config_digest: digestOf(row.image_id),
    size_bytes: row.size_bytes,
    ...details,
    pulled_at: row.pulled_at,
    last_used_at: row.tenant_id === tenant_id ? row.last_used_at : null,
    ref_count: uses.get(row.image_id) ?? 0,
    is_shared: row.is_shared,
  };
}

/** The same for an image that another tenant has and one that does not exist. */
function notFound(text: string): AppError {
  return new AppError("NOT_FOUND", `image '${text}' not found`, {
    hint: "pull it first: POST /api/oci/images/pull",
  });
}

function changed(reference: string): AppError {
  return new AppError("WRONG_STATE", `image '${reference}' changed at the same time`, {
    hint: "send the request again",
  });
}
