/** Images of tenants in the store: the SQL of this concern, and rows turned into what the service works with. */
import { LIMITS } from "../base/limits.ts";
import type { Listed, Place } from "../base/paging.ts";
import { contains, jsonField } from "../base/sql-dialect.ts";
import { IMAGE_MEGABYTES } from "../base/tenant-limits.ts";
import { numberOrNull, type Row, type Statement, type Store } from "../store/store.ts";
import type { ImageDetails } from "./image-config.ts";
import type { Layer } from "./schema.ts";

/** An image of a tenant under one reference. */
export interface ImageRow {
  readonly seq: number;
  readonly tenant_id: string;
  /** Complete: with registry, and tag or digest. */
  readonly reference: string;
  /** 64 hexadecimal digits: SHA-256 of the configuration. */
  readonly image_id: string;
  readonly manifest_digest: string;
  /** Of the unpacked layers. */
  readonly size_bytes: number;
  readonly is_shared: boolean;
  readonly pulled_at: number;
  readonly last_used_at: number | null;
  readonly details: ImageDetails;
}

/** A layer of a row. */
export interface RowLayer extends Layer {
  /** Of the layer in the store, by its content; null, and absent in rows of earlier releases: unknown. */
  readonly diff_id?: string | null;
}

/** The content of an image, which is the same for every tenant. */
export interface ImageContent extends Pick<ImageRow, "image_id" | "manifest_digest" | "size_bytes" | "details"> {
  readonly layers: readonly RowLayer[];
  readonly manifest_json: string;
  readonly config_json: string;
}

const COLUMNS =
  "seq, tenant_id, reference, image_id, manifest_digest, size_bytes, is_shared, pulled_at, last_used_at, details";
const SELECT = `SELECT ${COLUMNS} FROM oci_images`;
/** Of a tenant, and what the operator shares. */
const VISIBLE = "(tenant_id = ? OR is_shared = 1)";
/** A tenant's own image comes before a shared one. */
const OWN_FIRST = "ORDER BY tenant_id = ? DESC, seq DESC LIMIT 1";

/** Containers of a tenant that were made from the image itself, not from a profile. */
const CONTAINERS = `SELECT 1 FROM containers
  WHERE tenant_id = ? AND ${jsonField("make", "image_id")} = ? AND ${jsonField("make", "release")} IS NULL`;
/** Versions of a tenant that were made with one of its images, not with a profile. */
const OF_VERSION = `${jsonField("v.options", "oci")} IS NOT NULL`;
const VERSIONS = `SELECT 1 FROM function_versions AS v JOIN functions AS f ON f.seq = v.function_seq
  WHERE f.tenant_id = ? AND v.image = ? AND ${OF_VERSION}`;
/** Snapshots of a tenant over one of its images, not over a profile. */
const SNAPSHOTS = "SELECT 1 FROM snapshots WHERE tenant_id = ? AND image_id = ? AND image_release IS NULL";
/** Another reference of the tenant's keeps the image. */
const OTHERS = "SELECT 1 FROM oci_images AS o WHERE o.tenant_id = ? AND o.image_id = ? AND o.reference <> ?";

/** Users of the image of a row `i`: its own tenant, or any, because tenants may use what was shared once. */
const USERS = { tenant: "AND tenant_id = i.tenant_id", anybody: "" } as const;
type Users = keyof typeof USERS;
const isUsed = (by: Users): string => `(EXISTS (SELECT 1 FROM containers
    WHERE ${jsonField("make", "image_id")} = i.image_id AND ${jsonField("make", "release")} IS NULL ${USERS[by]})
  OR EXISTS (SELECT 1 FROM function_versions AS v JOIN functions AS f ON f.seq = v.function_seq
    WHERE v.image = i.image_id AND ${OF_VERSION} ${USERS[by]})
  OR EXISTS (SELECT 1 FROM snapshots WHERE image_id = i.image_id AND image_release IS NULL ${USERS[by]}))`;
/** Time of the last pull or use of a row `i`. */
const LAST_USE = "max(i.pulled_at, coalesce(i.last_used_at, 0))";
/** Nothing needs a row `i`, and its last use was not after a time. */
const isUnused = (by: Users): string => `i.is_shared = 0 AND ${LAST_USE} <= ? AND NOT ${isUsed(by)}`;

export class ImageRows {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Reads the tenant's image of this reference. */
  own(tenant_id: string, reference: string): Promise<ImageRow | null> {
    return this.#one(`${SELECT} WHERE tenant_id = ? AND reference = ?`, [tenant_id, reference]);
  }

  /** Reads the image of this reference that the tenant may use: its own one before a shared one. */
  byReference(tenant_id: string, reference: string): Promise<ImageRow | null> {
    const sql = `${SELECT} WHERE ${VISIBLE} AND reference = ? ${OWN_FIRST}`;
    return this.#one(sql, [tenant_id, reference, tenant_id]);
  }

  /** The same by id, or by the beginning of one. */
  byId(tenant_id: string, id: string): Promise<ImageRow | null> {
    const sql = `${SELECT} WHERE ${VISIBLE} AND image_id >= ? AND image_id < ? ${OWN_FIRST}`;
    return this.#one(sql, [tenant_id, id, `${id}g`, tenant_id]);
  }

  /** References of the tenant's that name an image, some of many. */
  async references({ tenant_id, image_id }: ImageRow, count_max: number): Promise<readonly string[]> {
    const sql = "SELECT reference FROM oci_images WHERE tenant_id = ? AND image_id = ? ORDER BY seq LIMIT ?";
    return (await this.#store.read(sql, [tenant_id, image_id, count_max])).map(({ reference }) => String(reference));
  }

  async content({ seq }: Pick<ImageRow, "seq">): Promise<ImageContent | null> {
    const row = await this.#store.readOne(`SELECT ${COLUMNS}, layers, manifest, config FROM oci_images WHERE seq = ?`, [
      seq,
    ]);
    if (row === null) return null;
    const { image_id, manifest_digest, size_bytes, details } = rowOf(row);
    return {
      ...{ image_id, manifest_digest, size_bytes, details },
      layers: JSON.parse(String(row.layers)),
      manifest_json: String(row.manifest),
      config_json: String(row.config),
    };
  }

  /** Newest first; fewer than `limit` when they are too large for one answer. `filter`: a part of the reference. */
  async list(tenant_id: string, filter: string, { limit, below }: Place): Promise<Listed<ImageRow>> {
    const where = `${VISIBLE} AND ${contains("reference")} AND seq < ?`;
    const args = [tenant_id, filter, below];
    const lengths = await this.#store.read(
      `SELECT seq, length(details) AS bytes FROM oci_images WHERE ${where} ORDER BY seq DESC LIMIT ?`,
      [...args, limit + 1],
    );
    let [count, bytes] = [0, 0];
    for (const row of lengths.slice(0, limit)) {
      bytes += Number(row.bytes);
      if (count > 0 && bytes > LIMITS.list_bytes_max) break;
      count += 1;
    }
    if (count === 0) return { items: [], last: null };
    const last = Number(lengths[count - 1]?.seq);
    const rows = await this.#store.read(`${SELECT} WHERE ${where} AND seq >= ? ORDER BY seq DESC LIMIT ?`, [
      ...args,
      last,
      count,
    ]);
    return { items: rows.map(rowOf), last: lengths.length > count ? last : null };
  }

  async count(tenant_id: string): Promise<number> {
    const row = await this.#store.readOne("SELECT count(*) AS count FROM oci_images WHERE tenant_id = ?", [tenant_id]);
    return Number(row?.count);
  }

  /** Size of the unpacked images of a tenant, in MiB, as its limit counts them. */
  async megabytes(tenant_id: string): Promise<number> {
    const sql = `SELECT ${IMAGE_MEGABYTES} AS used FROM tenants WHERE id = ?`;
    return Number((await this.#store.readOne(sql, [tenant_id]))?.used ?? 0);
  }

  /** Counts the tenant's containers, versions and snapshots by image. */
  async uses(tenant_id: string): Promise<ReadonlyMap<string, number>> {
    const image_id = jsonField("make", "image_id");
    const rows = await this.#store.read(
      `SELECT image, count(*) AS count FROM (
        SELECT ${image_id} AS image FROM containers WHERE tenant_id = ? AND ${jsonField("make", "release")} IS NULL
        UNION ALL SELECT v.image FROM function_versions AS v JOIN functions AS f ON f.seq = v.function_seq
          WHERE f.tenant_id = ? AND v.image IN (SELECT image_id FROM oci_images) AND ${OF_VERSION}
        UNION ALL SELECT image_id FROM snapshots WHERE tenant_id = ? AND image_release IS NULL
      ) AS used WHERE image IS NOT NULL GROUP BY image LIMIT ?`,
      [tenant_id, tenant_id, tenant_id, LIMITS.store_read_rows_max],
    );
    return new Map(rows.map(({ image, count }) => [String(image), Number(count)]));
  }

  /** Ids of the images that tenants have. */
  async ids(): Promise<readonly string[]> {
    return (await this.#store.read("SELECT DISTINCT image_id FROM oci_images")).map(({ image_id }) => String(image_id));
  }

  /** The layers of each image that the tenant has, or with `isShared` may use. */
  async layers(
    tenant_id: string,
    { isShared }: { readonly isShared: boolean },
  ): Promise<readonly { readonly image_id: string; readonly layers: readonly RowLayer[] }[]> {
    const where = isShared ? VISIBLE : "tenant_id = ?";
    const rows = await this.#store.read(`SELECT image_id, layers FROM oci_images WHERE ${where}`, [tenant_id]);
    return rows.map(({ image_id, layers }) => ({
      image_id: String(image_id),
      layers: JSON.parse(String(layers)) as RowLayer[],
    }));
  }

  async hasImage(tenant_id: string, image_id: string): Promise<boolean> {
    const sql = "SELECT 1 AS found FROM oci_images WHERE tenant_id = ? AND image_id = ? LIMIT 1";
    return (await this.#store.readOne(sql, [tenant_id, image_id])) !== null;
  }

  /** Conflict: the reference is taken. */
  insert(tenant_id: string, reference: string, content: ImageContent, now: number): Statement {
    const sql = `INSERT INTO oci_images (tenant_id, reference, image_id, manifest_digest, size_bytes, pulled_at,
      details, layers, manifest, config) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`;
    return { sql, args: [tenant_id, reference, ...valuesOf(content, now)], expect_changes: 1 };
  }

  /** Gives a reference another image, or the same one again. Conflict: it is gone. */
  replace(tenant_id: string, reference: string, content: ImageContent, now: number): Statement {
    const sql = `UPDATE oci_images SET image_id = ?, manifest_digest = ?, size_bytes = ?, pulled_at = ?, details = ?,
      layers = ?, manifest = ?, config = ? WHERE tenant_id = ? AND reference = ?`;
    return { sql, args: [...valuesOf(content, now), tenant_id, reference], expect_changes: 1 };
  }

  /** Conflict: the reference is gone or names another image, or a container, version or snapshot of the tenant needs its image. */
  delete({ tenant_id, reference, image_id }: ImageRow): Statement {
    const sql = `DELETE FROM oci_images WHERE tenant_id = ? AND reference = ? AND image_id = ?
      AND (EXISTS (${OTHERS}) OR NOT (EXISTS (${CONTAINERS}) OR EXISTS (${VERSIONS}) OR EXISTS (${SNAPSHOTS})))`;
    const used = [tenant_id, image_id];
    const args = [tenant_id, reference, image_id, ...used, reference, ...used, ...used, ...used];
    return { sql, args, expect_changes: 1 };
  }

  /** Images of the tenant that nothing uses and that were last used before a time, the oldest rows first. */
  async unused(tenant_id: string, before: number, after: number): Promise<readonly ImageRow[]> {
    const sql = `SELECT ${COLUMNS} FROM oci_images AS i WHERE tenant_id = ? AND seq > ? AND ${isUnused("tenant")}
      ORDER BY seq LIMIT ?`;
    return (await this.#store.read(sql, [tenant_id, after, before, LIMITS.list_limit_max])).map(rowOf);
  }

  /**
   * Rows of the least recently used image that this tenant alone has, at most `image_evictions_per_pass`; none if the last use of each
   * was later than `before`. `kept_id`: an image that stays.
   */
  async leastRecentlyUsed(tenant_id: string, before: number, kept_id: string | null): Promise<readonly ImageRow[]> {
    const oldest = `SELECT i.image_id FROM oci_images AS i WHERE i.tenant_id = ? AND i.image_id <> ?
      AND NOT EXISTS (SELECT 1 FROM oci_images AS o WHERE o.image_id = i.image_id AND o.tenant_id <> i.tenant_id)
      GROUP BY i.image_id HAVING max(i.is_shared) = 0 AND max(${LAST_USE}) <= ? AND NOT max(${isUsed("anybody")})
      ORDER BY max(${LAST_USE}), min(i.seq) LIMIT 1`;
    const sql = `${SELECT} WHERE image_id = (${oldest}) ORDER BY seq LIMIT ?`;
    const args = [tenant_id, kept_id ?? "", before, LIMITS.image_evictions_per_pass];
    return (await this.#store.read(sql, args)).map(rowOf);
  }

  /** Conflict: the reference is gone, names another image, or its image is in use, shared, or was used after `before`. */
  deleteUnused({ seq, image_id }: ImageRow, before: number, by: Users): Statement {
    const sql = `DELETE FROM oci_images AS i WHERE i.seq = ? AND i.image_id = ? AND ${isUnused(by)}`;
    return { sql, args: [seq, image_id, before], expect_changes: 1 };
  }

  share({ tenant_id, reference }: ImageRow, is_shared: boolean): Statement {
    const sql = "UPDATE oci_images SET is_shared = ? WHERE tenant_id = ? AND reference = ?";
    return { sql, args: [is_shared ? 1 : 0, tenant_id, reference], expect_changes: 1 };
  }

  /** Notes a use. Conflict: the tenant may not use the image any more. Stands in the batch that makes what needs the image. */
  use(tenant_id: string, { seq, image_id }: ImageRow, now: number): Statement {
    const sql = `UPDATE oci_images SET last_used_at = ? WHERE seq = ? AND image_id = ? AND ${VISIBLE}`;
    return { sql, args: [now, seq, image_id, tenant_id], expect_changes: 1 };
  }

  /** Changes nothing. Conflict: the tenant may not use the image any more, or the row names another one. */
  hold(tenant_id: string, { seq, image_id }: ImageRow): Statement {
    const sql = `UPDATE oci_images SET image_id = image_id WHERE seq = ? AND image_id = ? AND ${VISIBLE}`;
    return { sql, args: [seq, image_id, tenant_id], expect_changes: 1 };
  }

  /** Ids of the tenant's containers that need an image, some of many. */
  async containersOf({ tenant_id, image_id }: ImageRow, count_max: number): Promise<readonly string[]> {
    const sql = `SELECT id FROM containers WHERE tenant_id = ? AND ${jsonField("make", "image_id")} = ?
      AND ${jsonField("make", "release")} IS NULL ORDER BY seq LIMIT ?`;
    return (await this.#store.read(sql, [tenant_id, image_id, count_max])).map(({ id }) => String(id));
  }

  /** Number of the tenant's snapshots over an image. */
  async snapshotCount({ tenant_id, image_id }: ImageRow): Promise<number> {
    const row = await this.#store.readOne(`SELECT count(*) AS count FROM (${SNAPSHOTS})`, [tenant_id, image_id]);
    return Number(row?.count ?? 0);
  }

  /** Deletes some of the tenant's images; true if more may be left. */
  async eraseSome(tenant_id: string): Promise<boolean> {
    const rows_max = LIMITS.delete_rows_per_pass;
    const sql = "DELETE FROM oci_images WHERE seq IN (SELECT seq FROM oci_images WHERE tenant_id = ? LIMIT ?)";
    const { changes } = await this.#store.write([{ sql, args: [tenant_id, rows_max] }], { durable: true });
    return changes[0] === rows_max;
  }

  async #one(sql: string, args: readonly string[]): Promise<ImageRow | null> {
    const row = await this.#store.readOne(sql, args);
    return row === null ? null : rowOf(row);
  }
}

function valuesOf(content: ImageContent, now: number) {
  const { image_id, manifest_digest, size_bytes, details, layers, manifest_json, config_json } = content;
  const json = [JSON.stringify(details), JSON.stringify(layers), manifest_json, config_json];
  return [image_id, manifest_digest, size_bytes, now, ...json];
}

function rowOf(row: Row): ImageRow {
  return {
    seq: Number(row.seq),
    tenant_id: String(row.tenant_id),
    reference: String(row.reference),
    image_id: String(row.image_id),
    manifest_digest: String(row.manifest_digest),
    size_bytes: Number(row.size_bytes),
    is_shared: row.is_shared === 1,
    pulled_at: Number(row.pulled_at),
    last_used_at: numberOrNull(row.last_used_at),
    details: JSON.parse(String(row.details)),
  };
}

/** Counts the references of all tenants, and the unpacked bytes of their images, each image once. */
export async function imageCounts(store: Store): Promise<{ readonly count: number; readonly size_bytes: number }> {
  const row = await store.readOne(
    `SELECT coalesce(sum(count), 0) AS count, coalesce(sum(size_bytes), 0) AS size_bytes
     FROM (SELECT count(*) AS count, max(size_bytes) AS size_bytes FROM oci_images GROUP BY image_id)`,
    [],
  );
  return { count: Number(row?.count ?? 0), size_bytes: Number(row?.size_bytes ?? 0) };
}
