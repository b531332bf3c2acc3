/**
 * Functions' code: trees of files that are named by the digest of their content. A tree is on the disk once, in a subvolume
 * of its own that nothing writes to any more; each tenant that uploaded it has a row. The functions concern decides which
 * version has which code, the engine mounts it.
 *
 * D1 A tenant reaches a tree by its row alone. Every upload is read and unpacked whole, so that no tenant can notice that
 *    another has the same.
 * D2 A tree has its name before it has a row, and loses the last row before it goes. What a crash leaves is a tree without
 *    a row, or a `new-` tree: `boot` removes both.
 * D3 Work on one digest runs one piece after the other: a tree that is uploaded again while it is removed is made again.
 * D4 A tree with a hold stays on the disk, whether it has a row or not.
 * D5 The disk may lose the last seconds before a power cut, and so the content of a tree that has its name. A tree that this
 *    process has not made is read before an upload relies on it, and replaced if it is damaged.
 * D6 A row goes when no version of its tenant names it and its upload is `code_unused_seconds` old.
 */
import { closing } from "../base/answer.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { KeyedMutex, Underway } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Reservations } from "../base/reservations.ts";
import { Retries } from "../base/retries.ts";
import { type ReachedBound, Shares } from "../base/shares.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { Files, FileType, OpenFiles, Storage } from "../engine/ports.ts";
import type { Guard, Store } from "../store/store.ts";
import { CodeArchives } from "./archive.ts";
import { type Contents, compare, readContents, type TreeDifference } from "./contents.ts";
import { type CodeKey, CodeRows, noSuchCode } from "./rows.ts";
import type { CodeRecord, PutOptions } from "./schema.ts";
import { CodeTree } from "./tree.ts";
import { unpack } from "./unpack.ts";
import { digestOnDisk } from "./verify.ts";

/** Largest number of trees that one log line names. */
const LOST_NAMED_MAX = 10;
const TYPE_BITS: { readonly [Type in FileType]?: number } = { file: 0o100000, directory: 0o040000 };
/** Begins the name of a tree that is being made. */
const NEW = "new-";

export interface CodeStoreOptions {
  readonly store: Store;
  /** There when the engine has booted. */
  readonly storage: () => Storage;
  readonly files: () => Files;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Quotas;
  /** A directory of its own, for uploads. */
  readonly directory: string;
  /** Bytes of the uploads that the disk holds meanwhile. */
  readonly temporary: Reservations;
}

export class CodeStore {
  readonly #options: CodeStoreOptions;
  readonly #rows: CodeRows;
  readonly #archives: CodeArchives;
  readonly #uploads = new Shares({ each_max: LIMITS.code_uploads_per_tenant_max, all_max: LIMITS.code_uploads_max });
  /** D3. */
  readonly #turns = new KeyedMutex();
  /** D4: the number of holds of each tree that has some. */
  readonly #holds = new Map<string, number>();
  /** Trees without a row that wait for their last hold. */
  readonly #rowless = new Set<string>();
  /** Trees that have a row and are not on the disk. */
  readonly #lost = new Set<string>();
  /** Trees that this process has made or read (D5): at most those that are on the disk. */
  readonly #whole = new Set<string>();
  readonly #retries: Retries;
  readonly #background = new Underway();

  constructor(options: CodeStoreOptions) {
    const { store, quotas, clock, ids, log, files, directory, temporary } = options;
    this.#options = options;
    this.#rows = new CodeRows(store, quotas);
    this.#archives = new CodeArchives({ directory, temporary, ids, clock, files });
    this.#retries = new Retries({ clock, log, what: "code", later: (_id, attempt) => attempt() });
  }

  /** Compares disk and rows, before the first upload. Removes trees that no row names, in the background. */
  async boot(): Promise<void> {
    const { storage } = this.#options;
    await this.#archives.begin();
    const found = new Set(await storage().list("code"));
    const rowless = new Set(found);
    for await (const digests of this.#rows.digests()) {
      for (const digest of digests) {
        rowless.delete(digest);
        if (!found.has(digest)) this.#lost.add(digest);
      }
    }
    if (this.#lost.size > 0) this.#logLost([...this.#lost]);
    const clear = async () => {
      for (const id of rowless) await (id.startsWith(NEW) ? this.#sweep(id) : this.#free(id)).catch(() => {});
    };
    void this.#background.add(clear());
  }

  /** Begins no more attempts at removals. Resolves when none runs. */
  async close(): Promise<void> {
    this.#retries.close();
    await this.#background.settled();
  }

  /**
   * Unpacks an archive (tar, tar in gzip, or zip) and stores its tree for the tenant. When it resolves, a crash of the daemon
   * loses nothing of it; when it rejects, nothing is left. Rejects with INVALID_ARGUMENT that names the entry,
   * BODY_TOO_LARGE, REQUEST_TIMEOUT, QUOTA_EXCEEDED, STORAGE_FULL, CONCURRENCY_LIMIT, CAPACITY_FULL.
   */
  async put(tenant_id: string, source: AsyncIterable<Uint8Array>, options: PutOptions = {}): Promise<CodeRecord> {
    const release = this.#uploads.take(tenant_id, tooMany);
    const id = `${NEW}${this.#options.ids.random(20)}`;
    // The tree and its helper are made while the first bytes come.
    const making = this.#make(tenant_id, id);
    making.catch(() => {});
    try {
      const tree = await this.#unpack(tenant_id, making, source, options.strip_components ?? 0);
      failpoint("code.put.unpacked");
      const record: CodeRecord = {
        digest: await tree.digest(),
        size_bytes: tree.size_bytes,
        entry_count: tree.entry_count,
        created_at: this.#now(),
      };
      const isNew = await this.#turns.run(record.digest, () => this.#keep(tenant_id, id, record));
      if (!isNew) void this.#background.add(this.#sweep(id));
      return record;
    } catch (error) {
      void this.#background.add(
        making
          .then(({ close }) => close())
          .catch(() => {})
          .then(() => this.#sweep(id)),
      );
      throw error;
    } finally {
      release();
    }
  }

  /**
   * Keeps code that the tenant uploaded before for as long as an upload does. Throws NOT_FOUND if it has to be uploaded: the
   * tenant does not have it, or its files are lost or damaged (D5); CONCURRENCY_LIMIT, CAPACITY_FULL.
   */
  async renew(tenant_id: string, digest: string): Promise<CodeRecord> {
    const release = this.#uploads.take(tenant_id, tooMany);
    const letGo = this.#hold(digest);
    try {
      if (!(await this.#rows.renew({ tenant_id, digest }, this.#now()))) throw noSuchCode(digest);
      this.#checkFound(digest);
      const isWhole = await this.#turns
        .run(digest, () => this.#isWhole(tenant_id, digest))
        .catch(async (error: unknown) => {
          await this.check(digest);
          throw error;
        });
      if (!isWhole) throw noSuchCode(digest);
      this.#whole.add(digest);
      return await this.get(tenant_id, digest);
    } finally {
      letGo();
      release();
    }
  }

  async #make(tenant_id: string, id: string): Promise<OpenFiles> {
    const { storage, files } = this.#options;
    const root = await storage().create("code", id, LIMITS.code_disk_mb);
    return files().open(tenant_id, root, 0);
  }

  async #unpack(
    tenant_id: string,
    making: Promise<OpenFiles>,
    source: AsyncIterable<Uint8Array>,
    strip: number,
  ): Promise<CodeTree> {
    const tree = new CodeTree();
    const reader = await this.#archives.open(tenant_id, source);
    try {
      const { session, close } = await making;
      try {
        await unpack(session, reader, tree, strip);
      } finally {
        close();
      }
    } finally {
      await reader.close();
    }
    if (tree.entry_count === 0) {
      const what = strip === 0 ? "the archive has no entries" : "strip_components leaves no entry of the archive";
      throw new AppError("INVALID_ARGUMENT", what);
    }
    return tree;
  }

  /** D2. In the digest's turn. Resolves to false if the tree was there already. */
  async #keep(tenant_id: string, id: string, record: CodeRecord): Promise<boolean> {
    const { digest } = record;
    const storage = this.#options.storage();
    let isNew = await storage.rename("code", id, digest);
    if (!isNew && !(await this.#isWhole(tenant_id, digest))) {
      const damaged = `${id}-damaged`;
      await storage.rename("code", digest, damaged);
      isNew = await storage.rename("code", id, digest);
      void this.#background.add(this.#sweep(damaged));
    }
    this.#whole.add(digest);
    failpoint("code.put.renamed");
    this.#lost.delete(digest);
    try {
      await this.#rows.put(tenant_id, record);
    } catch (error) {
      if (isNew) void this.#background.add(this.#free(digest).catch(() => {}));
      throw error;
    }
    this.#rowless.delete(digest);
    return isNew;
  }

  /** D5. In the digest's turn. */
  async #isWhole(tenant_id: string, digest: string): Promise<boolean> {
    if (this.#whole.has(digest)) return true;
    const { storage, files, log } = this.#options;
    const { session, close } = await files().open(tenant_id, storage().subvolume("code", digest), 0);
    try {
      const found = await digestOnDisk(session).catch((error: unknown) => {
        if (error instanceof AppError && error.code === "INVALID_ARGUMENT") return error.message;
        throw error;
      });
      if (found !== digest) log.error("code on the disk is damaged: an upload replaces it", { digest, found });
      return found === digest;
    } finally {
      close();
    }
  }

  /** Returns the tenant's code. Throws NOT_FOUND. */
  async get(tenant_id: string, digest: string): Promise<CodeRecord> {
    const record = await this.#rows.find({ tenant_id, digest });
    if (record === null) throw noSuchCode(digest);
    return record;
  }

  /**
   * Returns the statement for the batch that makes a version with this code: the code stays as long as the version. Refused
   * with NOT_FOUND if the tenant does not have it.
   */
  guard(tenant_id: string, digest: string): Guard {
    return this.#rows.guard({ tenant_id, digest });
  }

  /**
   * Resolves to the type and permission bits of a path, as stat(2) has them, links followed as the function does; null if there
   * is nothing. Throws NOT_FOUND if the tenant does not have the code.
   */
  async modeOf(tenant_id: string, digest: string, path: string): Promise<number | null> {
    return this.#with(tenant_id, digest, async ({ session, close }) => {
      try {
        const { type, mode } = await session.stat(path === "" ? "/" : path, true);
        return (TYPE_BITS[type] ?? 0) | mode;
      } catch (error) {
        if (error instanceof AppError && ["NOT_FOUND", "INVALID_ARGUMENT"].includes(error.code)) return null;
        throw error;
      } finally {
        close();
      }
    });
  }

  /** Resolves to the first bytes of a regular file, links followed. Throws NOT_FOUND. */
  async headOf(tenant_id: string, digest: string, path: string, bytes_max: number): Promise<Buffer> {
    return this.#with(tenant_id, digest, async ({ session, close }) => {
      try {
        const pieces: Uint8Array[] = [];
        const { stream } = await session.read(path, { end: bytes_max });
        for await (const piece of stream) pieces.push(piece);
        return Buffer.concat(pieces);
      } finally {
        close();
      }
    });
  }

  /**
   * Compares two of the tenant's trees; null is the empty tree. Names at most `max` paths. Throws NOT_FOUND,
   * CONCURRENCY_LIMIT, CAPACITY_FULL.
   */
  async diff(tenant_id: string, from: string | null, to: string | null, max: number): Promise<TreeDifference> {
    return compare(await this.#contents(tenant_id, from), await this.#contents(tenant_id, to), max);
  }

  async #contents(tenant_id: string, digest: string | null): Promise<Contents> {
    if (digest === null) return new Map();
    return this.#with(tenant_id, digest, ({ session, close }) => readContents(session).finally(close));
  }

  /** Packs the tenant's code as tar in gzip. The same archive gives the same digest. Throws NOT_FOUND. */
  async pack(tenant_id: string, digest: string): Promise<AsyncIterable<Uint8Array>> {
    return this.#with(tenant_id, digest, async ({ session, close }) =>
      closing(session.pack("/", { isGzip: true }), close),
    );
  }

  /** Opens the tree, which stays until `close` is called. */
  async #with<Result>(tenant_id: string, digest: string, work: (tree: OpenFiles) => Promise<Result>): Promise<Result> {
    const { storage, files } = this.#options;
    // Before the look at the row: what has a row then stays until the release.
    const release = this.#hold(digest);
    try {
      await this.get(tenant_id, digest);
      this.#checkFound(digest);
      const root = storage().subvolume("code", digest);
      const { session, close } = await files()
        .open(tenant_id, root, 0)
        .catch(async (error: unknown) => {
          await this.check(digest);
          throw error;
        });
      return await work({
        session,
        close: () => {
          close();
          release();
        },
      });
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * Keeps the tree on the disk until what is returned is called, which is harmless when repeated. Throws NOT_FOUND if the
   * tree was lost with the storage pool.
   */
  hold(digest: string): () => void {
    this.#checkFound(digest);
    return this.#hold(digest);
  }

  /**
   * Looks whether the tree is on the disk, after an error that its loss would explain. Rejects with NOT_FOUND if somebody has
   * removed it: then the log names it, and an upload of the same files makes it again.
   */
  async check(digest: string): Promise<void> {
    await this.#turns.run(digest, async () => {
      if (this.#lost.has(digest) || !(await this.#rows.has(digest))) return;
      if ((await this.#options.storage().list("code")).includes(digest)) return;
      this.#lost.add(digest);
      this.#whole.delete(digest);
      this.#logLost([digest]);
    });
    this.#checkFound(digest);
  }

  #logLost(digests: readonly string[]): void {
    const fields = { count: digests.length, digests: digests.slice(0, LOST_NAMED_MAX).join(" ") };
    this.#options.log.error("the storage pool lacks code of functions: deploy it again", fields);
  }

  #hold(digest: string): () => void {
    this.#holds.set(digest, (this.#holds.get(digest) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#holds.get(digest) ?? 1) - 1;
      if (left > 0) {
        this.#holds.set(digest, left);
        return;
      }
      this.#holds.delete(digest);
      if (this.#rowless.has(digest)) void this.#background.add(this.#free(digest).catch(() => {}));
    };
  }

  #checkFound(digest: string): void {
    if (!this.#lost.has(digest)) return;
    throw new AppError("NOT_FOUND", `files of code ${digest} are lost`, { hint: "upload the files again" });
  }

  /** Removes code that no version names and whose upload is old (D6). */
  async prune(): Promise<void> {
    const uploaded_before = this.#now() - LIMITS.code_unused_seconds;
    for await (const keys of this.#rows.unused(uploaded_before)) {
      for (const key of keys) await this.#collect(key, uploaded_before);
    }
  }

  /**
   * Removes code of versions that are gone, in the background, unless another version of the tenant names it or it was uploaded
   * a moment ago. What stays has its turn in `prune`.
   */
  collectSoon(tenant_id: string, digests: Iterable<string>): void {
    const uploaded_before = this.#now() - LIMITS.code_reuse_seconds;
    const collect = async () => {
      for (const digest of new Set(digests)) await this.#collect({ tenant_id, digest }, uploaded_before);
    };
    void this.#background.add(collect().catch(() => {}));
  }

  /** Deletes all code of a tenant that is being deleted, after its functions. Safe to repeat. */
  async eraseAll(tenant_id: string): Promise<void> {
    for (;;) {
      const digests = await this.#rows.ofTenant(tenant_id);
      let gone_count = 0;
      for (const digest of digests) {
        if (await this.#collect({ tenant_id, digest }, Number.MAX_SAFE_INTEGER)) gone_count++;
      }
      if (gone_count === 0) return;
    }
  }

  async #collect(key: CodeKey, uploaded_before: number): Promise<boolean> {
    if (!(await this.#rows.delete(key, uploaded_before))) return false;
    failpoint("code.collect.deleted");
    await this.#free(key.digest).catch(() => {});
    return true;
  }

  /** Removes a tree unless it has a row or a hold (D4). A removal that fails is repeated for a while, and at the next start. */
  #free(digest: string): Promise<void> {
    return this.#retries.run(digest, () =>
      this.#turns.run(digest, async () => {
        this.#rowless.delete(digest);
        if (await this.#rows.has(digest)) return;
        if (this.#holds.has(digest)) {
          this.#rowless.add(digest);
          return;
        }
        this.#lost.delete(digest);
        this.#whole.delete(digest);
        await this.#options.storage().remove("code", digest);
      }),
    );
  }

  /** Removes what an upload did not turn into code. Resolves after the first attempt. */
  async #sweep(id: string): Promise<void> {
    await this.#retries.run(id, () => this.#options.storage().remove("code", id)).catch(() => {});
  }

  #now(): number {
    return toEpochSeconds(this.#options.clock.epochMs());
  }
}

function tooMany(reached: ReachedBound, max: number): AppError {
  return reached === "each_max"
    ? new AppError("CONCURRENCY_LIMIT", `too many concurrent uploads of code of the tenant (limit ${max})`, {
        retry_after: 1,
      })
    : new AppError("CAPACITY_FULL", `too many concurrent uploads of code (limit ${max})`, { retry_after: 1 });
}
