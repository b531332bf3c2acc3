/**
 * Build contexts: archives of a tenant, unpacked into a subvolume each, from which builds copy files. They live for an hour.
 * The bytes are the engine's, written by a helper that is jailed in the subvolume; a build reads them the same way.
 *
 * B1. A tenant reaches a context by its row alone. The row is made when all files are there, and goes before they go: what
 *     a crash leaves is a subvolume without a row, which `boot` removes.
 * B2. A context with a hold keeps its files. It does not expire; if its row is deleted, the files go with the last hold.
 * B3. The limits count files and entries. The subvolume has a limit of its own, which is what the tenant may still use.
 */
import { unknownCredential } from "../../base/caller.ts";
import { type Clock, toEpochSeconds } from "../../base/clock.ts";
import { Underway } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Listed, Place } from "../../base/paging.ts";
import { type Reservation, Reservations } from "../../base/reservations.ts";
import { Retries } from "../../base/retries.ts";
import { type ReachedBound, Shares } from "../../base/shares.ts";
import { type Quotas, quotaExceeded, tenantGuard } from "../../base/tenant-limits.ts";
import { paced } from "../../base/upload-pace.ts";
import type { Extracted, Files, Storage } from "../../engine/ports.ts";
import type { Guard, Store, StoredNode } from "../../store/store.ts";
import { ContextRows } from "./rows.ts";
import type { ContextRecord } from "./schema.ts";

const MEGABYTE = 1024 * 1024;

export interface BuildContextsOptions {
  readonly store: Store;
  readonly node: StoredNode;
  /** There when the engine has booted. */
  readonly storage: () => Storage;
  readonly files: () => Files;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Quotas;
}

/** The files of a context, for one build. */
export interface OpenContext {
  /** Root of the tree, for `Files.with`. The owner 0 inside is 0. */
  readonly root: string;
  readonly size_bytes: number;
  /** Every caller must call it; harmless when repeated. */
  release(): void;
}

/** Limits of an upload, in MiB. */
interface Room {
  readonly disk_mb: number;
  /** Refuses an upload that needs more. */
  readonly refusal: () => AppError;
  readonly node_mb_max: number;
  readonly reservation: Reservation;
}

export class BuildContexts {
  readonly #options: BuildContextsOptions;
  readonly #rows: ContextRows;
  /** Uploads that are being unpacked, against `build_context_mb_max` (B3). */
  readonly #reserved: Reservations;
  readonly #uploads = new Shares({
    each_max: LIMITS.context_uploads_per_tenant_max,
    all_max: LIMITS.context_uploads_max,
  });
  /** B2: the number of holds of each context that has some. */
  readonly #holds = new Map<string, number>();
  /** Contexts without a row that wait for their last hold. */
  readonly #rowless = new Set<string>();
  readonly #retries: Retries;
  readonly #background = new Underway();

  constructor(options: BuildContextsOptions) {
    const { store, node, clock, log } = options;
    this.#options = options;
    this.#rows = new ContextRows(store, node);
    this.#reserved = new Reservations({
      max: (tenant_id) => {
        const { build_context_mb_max } = options.quotas.of(tenant_id);
        return build_context_mb_max === null ? null : build_context_mb_max * MEGABYTE;
      },
      used: async (tenant_id) => (await this.#rows.megabytes(tenant_id)).tenant * MEGABYTE,
      refusal: (max_bytes) => quotaExceeded("build_context_mb_max", max_bytes / MEGABYTE, 1),
    });
    this.#retries = new Retries({ clock, log, what: "build context", later: (_id, attempt) => attempt() });
  }

  /** Compares disk and rows, before the first upload. Removes what has expired or has no row, in the background. */
  async boot(): Promise<void> {
    const { log } = this.#options;
    const found = new Set(await this.#options.storage().list("contexts"));
    const known = new Set(await this.#rows.ids());
    for (const id of known) if (!found.has(id)) await this.#rows.drop(id);
    const clear = async () => {
      for (const id of found) if (!known.has(id)) await this.#free(id);
      await this.prune();
    };
    void this.#background.add(
      clear().catch((error) => log.warn("old build contexts not removed", { error: errorText(error) })),
    );
  }

  /** Begins no more attempts at removals. Resolves when none runs. */
  async close(): Promise<void> {
    this.#retries.close();
    await this.#background.settled();
  }

  /**
   * Unpacks an archive (tar, or tar in gzip). When it rejects, nothing is left. Rejects with INVALID_ARGUMENT that names
   * the entry, BODY_TOO_LARGE, REQUEST_TIMEOUT, QUOTA_EXCEEDED, STORAGE_FULL, CONCURRENCY_LIMIT, CAPACITY_FULL.
   */
  async create(tenant_id: string, source: AsyncIterable<Uint8Array>): Promise<ContextRecord> {
    const { ids, clock, storage } = this.#options;
    const release = this.#uploads.take(tenant_id, tooMany);
    const context_id = ids.next("ctx");
    let reservation: Reservation | null = null;
    try {
      reservation = await this.#reserved.open(tenant_id);
      const room = await this.#room(tenant_id, reservation);
      const root = await storage().create("contexts", context_id, room.disk_mb);
      const bytes = paced(source, { clock, bytes_max: LIMITS.context_archive_bytes_max, what: "build context" });
      const { entry_count, byte_count } = await this.#unpack(tenant_id, root, bytes, room);
      failpoint("oci.context.unpacked");
      const created_at = this.#now();
      const record = {
        context_id,
        size_bytes: byte_count,
        created_at,
        expires_at: created_at + LIMITS.context_seconds,
      };
      const disk_mb = megabytes({ entry_count, byte_count });
      await reservation.reach(disk_mb * MEGABYTE);
      await reservation.commit(() => this.#insert({ ...record, tenant_id, disk_mb }, room.node_mb_max));
      return record;
    } catch (error) {
      void this.#background.add(this.#sweep(tenant_id, context_id));
      throw error;
    } finally {
      reservation?.release();
      release();
    }
  }

  /** B3. Throws QUOTA_EXCEEDED, CAPACITY_FULL. */
  async #room(tenant_id: string, reservation: Reservation): Promise<Room> {
    const { store, quotas, storage } = this.#options;
    const guards = quotas.guards(tenant_id, { build_contexts_max: 1, build_context_mb_max: 1 });
    if (guards.length > 0) {
      const { conflict } = await store.write(guards.map(({ statement }) => statement));
      if (conflict !== null) throw guards[conflict]?.refusal();
    }
    const used = await this.#rows.megabytes(tenant_id);
    const node_mb_max = Math.floor((await storage().statistics()).size_mb * LIMITS.context_disk_ratio);
    const reserved_mb = (of?: string) => Math.ceil(this.#reserved.reservedBytes(of) / MEGABYTE);
    const node_mb = node_mb_max - used.node - reserved_mb();
    if (node_mb < 1) throw noRoom(node_mb_max);
    const tenant_mb =
      (quotas.of(tenant_id).build_context_mb_max ?? Number.MAX_SAFE_INTEGER) - used.tenant - reserved_mb(tenant_id);
    if (tenant_mb < 1) throw reservation.refusal();
    const disk_mb = Math.min(LIMITS.context_disk_mb, tenant_mb, node_mb);
    const [over] = quotas.guards(tenant_id, { build_context_mb_max: disk_mb + 1 });
    const refusal = () => {
      if (disk_mb === LIMITS.context_disk_mb) return tooLarge(`limit ${disk_mb} MiB on the disk`);
      return disk_mb === tenant_mb && over !== undefined ? over.refusal() : noRoom(node_mb_max);
    };
    return { disk_mb, refusal, node_mb_max, reservation };
  }

  async #unpack(
    tenant_id: string,
    root: string,
    source: AsyncGenerator<Uint8Array, void, undefined>,
    room: Room,
  ): Promise<Extracted> {
    const onProgress = (done: Extracted) => {
      if (done.entry_count > LIMITS.context_entries_max) throw tooLarge(`limit ${LIMITS.context_entries_max} entries`);
      if (done.byte_count > LIMITS.context_bytes_max)
        throw tooLarge(`limit ${LIMITS.context_bytes_max} bytes unpacked`);
      if (megabytes(done) > room.disk_mb) throw room.refusal();
      if (!room.reservation.tryReach(megabytes(done) * MEGABYTE)) throw room.reservation.refusal();
    };
    const { files } = this.#options;
    try {
      const done = await files().with(tenant_id, root, 0, (session) => {
        return session.extract(source, { path: "/", onProgress });
      });
      if (done.entry_count === 0)
        throw new AppError("INVALID_ARGUMENT", "the archive has no entries", { hint: "send a tar or tar.gz" });
      return done;
    } catch (error) {
      // Only the limit of the subvolume and the space of the whole pool end a write like this.
      throw error instanceof AppError && error.code === "STORAGE_FULL" ? room.refusal() : error;
    } finally {
      // A session that does not open reads nothing.
      await source.return();
    }
  }

  async #insert(context: Parameters<ContextRows["insert"]>[0], node_mb_max: number): Promise<void> {
    const { store, quotas } = this.#options;
    const { tenant_id, disk_mb } = context;
    const checks: readonly Guard[] = [
      { statement: tenantGuard(tenant_id, "state = 'active'"), refusal: unknownCredential },
      ...quotas.guards(tenant_id, { build_contexts_max: 1, build_context_mb_max: disk_mb }),
      { statement: this.#rows.insert(context, node_mb_max), refusal: () => noRoom(node_mb_max) },
    ];
    const { conflict } = await store.write(checks.map(({ statement }) => statement));
    if (conflict !== null) throw checks[conflict]?.refusal();
  }

  /** Newest first. */
  list(tenant_id: string, place: Place): Promise<Listed<ContextRecord>> {
    return this.#rows.list(tenant_id, place, this.#now());
  }

  /** Opens a context for a build, which keeps its files until `release`. Rejects with NOT_FOUND. */
  async open(tenant_id: string, context_id: string): Promise<OpenContext> {
    // Before the look at the row: what has a row then stays until the release.
    const release = this.#hold(context_id);
    try {
      const record = await this.#rows.find(tenant_id, context_id, this.#now());
      if (record === null) throw notFound(context_id);
      const root = this.#options.storage().subvolume("contexts", context_id);
      return { root, size_bytes: record.size_bytes, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Deletes a context; a build that has it open keeps its files until it ends. Throws NOT_FOUND. */
  async delete(tenant_id: string, context_id: string): Promise<void> {
    const isThere = (await this.#rows.find(tenant_id, context_id, this.#now())) !== null;
    if (!isThere || !(await this.#rows.delete(tenant_id, context_id))) throw notFound(context_id);
    failpoint("oci.context.deleted");
    await this.#free(context_id);
  }

  /** Deletes contexts that have expired, unless a build has them open (B2). */
  async prune(): Promise<void> {
    for (const id of await this.#rows.expired(this.#now())) {
      if (this.#holds.has(id)) continue;
      await this.#rows.drop(id);
      await this.#free(id);
    }
  }

  /** Deletes all contexts of a tenant that is being deleted, after its builds have ended. Safe to repeat. */
  async eraseAll(tenant_id: string): Promise<void> {
    for (let ids = await this.#rows.ofTenant(tenant_id); ids.length > 0; ids = await this.#rows.ofTenant(tenant_id)) {
      for (const id of ids) {
        await this.#rows.drop(id);
        await this.#free(id);
      }
    }
  }

  #hold(id: string): () => void {
    this.#holds.set(id, (this.#holds.get(id) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#holds.get(id) ?? 1) - 1;
      if (left > 0) {
        this.#holds.set(id, left);
        return;
      }
      this.#holds.delete(id);
      if (this.#rowless.delete(id)) void this.#background.add(this.#free(id));
    };
  }

  /** Removes the files of a context without a row (B2). A removal that fails is repeated, and at the next start. */
  async #free(id: string): Promise<void> {
    const removing = this.#retries.run(id, async () => {
      if (this.#holds.has(id)) {
        this.#rowless.add(id);
        return;
      }
      await this.#options.storage().remove("contexts", id);
    });
    await removing.catch(() => {});
  }

  /** Removes what an upload did not turn into a context. A write that was refused may have been carried out. */
  async #sweep(tenant_id: string, id: string): Promise<void> {
    await this.#rows.delete(tenant_id, id).catch(() => {});
    await this.#free(id);
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

/** B3. */
function megabytes({ entry_count, byte_count }: Extracted): number {
  return Math.ceil((byte_count + entry_count * LIMITS.context_entry_bytes) / MEGABYTE);
}

/** The same for a context that has expired, one of another tenant, and one that never was. */
function notFound(context_id: string): AppError {
  return new AppError("NOT_FOUND", `build context '${context_id}' not found`, {
    hint: "upload the files again by POST /api/build-contexts",
  });
}

function tooLarge(limit: string): AppError {
  return new AppError("BODY_TOO_LARGE", `build context too large (${limit})`, {
    hint: "leave out files that the build does not need, as by .dockerignore",
  });
}

function noRoom(node_mb_max: number): AppError {
  return new AppError("CAPACITY_FULL", `no space for build contexts on this node (limit ${node_mb_max} MiB)`, {
    retry_after: 60,
  });
}

function tooMany(reached: ReachedBound, max: number): AppError {
  return reached === "each_max"
    ? new AppError("CONCURRENCY_LIMIT", `too many concurrent uploads of build contexts of the tenant (limit ${max})`, {
        retry_after: 1,
      })
    : new AppError("CAPACITY_FULL", `too many concurrent uploads of build contexts (limit ${max})`, { retry_after: 1 });
}
