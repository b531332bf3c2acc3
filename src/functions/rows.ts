/** Functions and their versions in the store: the SQL of this concern, and rows turned into records. */
import type { Scope } from "../base/caller.ts";
import type { EpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Listed, Place } from "../base/paging.ts";
import { isListed } from "../base/sql-dialect.ts";
import {
  heldElsewhere,
  NODE_ID,
  numberOrNull,
  type Row,
  type Statement,
  type Store,
  type StoredNode,
  textOrNull,
} from "../store/store.ts";
import { nextBytePage } from "./records/byte-paging.ts";
import {
  type CreateFunction,
  type FunctionRecord,
  PROFILE,
  type VersionedFields,
  type VersionRecord,
} from "./schema.ts";
import type { FunctionState } from "./states.ts";
import type { ImageSettings } from "./target.ts";

export interface FunctionRow {
  readonly function_seq: number;
  readonly record: FunctionRecord;
  /** Id of the image that the current version was made with; null: an earlier program made it. */
  readonly image: string | null;
  /** What an image of the tenant gives to calls; null: the version is of a profile. */
  readonly settings: ImageSettings | null;
}

/** A version, with what its record does not say. */
export interface VersionRow extends Pick<FunctionRow, "image" | "settings"> {
  readonly record: VersionRecord;
}

export interface NewVersion {
  /** Id of the function. */
  readonly id: string;
  readonly version_id: string;
  /** Id of the image that the version's instances are made from, for good. */
  readonly image: string;
  readonly settings: ImageSettings | null;
  /** Scopes that its calls have in the API. */
  readonly api_scopes: readonly Scope[];
  /** Credential of who makes it (`Caller.key_id`), and a note. */
  readonly by: string;
  readonly note: string | null;
  readonly now: EpochSeconds;
}

const FROM = "FROM functions f JOIN function_versions v ON v.function_seq = f.seq AND v.version = f.current_version";

const SELECT = `SELECT f.seq, f.id, f.tenant_id, f.cluster_id, f.name, f.description, f.state, f.current_version,
  f.min_instances, f.max_instances, f.cleanup_on_exit, f.created_at, f.updated_at, f.last_invoked_at,
  f.invocation_count, f.error_count, f.error_message, f.concurrency_limit, f.api_access, ${NODE_ID}, v.handler, v.runtime,
  v.environment, v.memory_limit_mb, v.cpu_limit_percent, v.timeout_seconds, v.working_directory, v.image, v.code,
  v.options, v.api_scopes, (SELECT size_bytes FROM code WHERE tenant_id = f.tenant_id AND digest = v.code) AS code_size_bytes ${FROM}`;

const SELECT_VERSION = `SELECT v.version, v.id, v.handler, v.runtime, v.environment, v.memory_limit_mb,
  v.cpu_limit_percent, v.timeout_seconds, v.working_directory, v.image, v.code, v.options, v.api_scopes, v.description, v.created_at,
  v.made_by, v.note, (SELECT size_bytes FROM code WHERE tenant_id = ? AND digest = v.code) AS code_size_bytes
  FROM function_versions v WHERE v.function_seq = ?`;

const VERSION_LENGTHS = `SELECT v.version AS seq, 500 + octet_length(v.handler) + octet_length(v.environment)
  + coalesce(octet_length(v.description), 0) + coalesce(octet_length(v.working_directory), 0)
  + coalesce(octet_length(v.options), 0) + coalesce(octet_length(v.note), 0) AS bytes FROM function_versions v`;

/** The texts of a record that may be long, and a fixed sum for all else. */
const LENGTHS = `SELECT f.seq, 1000 + octet_length(v.handler) + octet_length(v.environment)
  + coalesce(octet_length(f.description), 0) + coalesce(octet_length(f.error_message), 0)
  + coalesce(octet_length(v.working_directory), 0) + coalesce(octet_length(v.options), 0) AS bytes ${FROM}`;

export class FunctionRows {
  readonly #store: Store;
  readonly #node: StoredNode;

  /** `node`: this node, which owns the functions that are created here. */
  constructor(store: Store, node: StoredNode) {
    this.#store = store;
    this.#node = node;
  }

  /** This node. */
  get node_id(): string {
    return this.#node.id;
  }

  async byId(tenant_id: string, id: string): Promise<FunctionRow | null> {
    return this.#one(`${SELECT} WHERE f.tenant_id = ? AND f.id = ?`, [tenant_id, id]);
  }

  /** Throws NOT_FOUND, whose hint has the id of a function that has the text as its name. */
  async found(tenant_id: string, id: string): Promise<FunctionRow> {
    const row = await this.byId(tenant_id, id);
    if (row !== null) return row;
    const named = await this.byName(tenant_id, id);
    return orNotFound(id, null, named === null ? undefined : `the path takes the function's id: ${named.record.id}`);
  }

  /** Like `found`, for work that needs its instances. Throws WRONG_STATE if another node owns the function. */
  async held(tenant_id: string, id: string): Promise<FunctionRow> {
    const row = await this.found(tenant_id, id);
    this.checkHeld(row);
    return row;
  }

  /** Throws WRONG_STATE if another node owns the function. */
  checkHeld(row: FunctionRow): void {
    if (!this.isHeld(row)) throw heldElsewhere(`function '${row.record.id}'`);
  }

  /** True if this node owns the function. */
  isHeld({ record }: Pick<FunctionRow, "record">): boolean {
    return record.owner_node_id === this.#node.id;
  }

  /** Throws NOT_FOUND. */
  async foundByName(tenant_id: string, name: string): Promise<FunctionRow> {
    return orNotFound(name, await this.byName(tenant_id, name));
  }

  async byName(tenant_id: string, name: string): Promise<FunctionRow | null> {
    return this.#one(`${SELECT} WHERE f.tenant_id = ? AND f.name = ?`, [tenant_id, name]);
  }

  /** The current versions of those of the tenant's functions that exist. */
  async currentVersions(tenant_id: string, ids: readonly string[]): Promise<{ id: string; version: number }[]> {
    const sql = `SELECT id, current_version FROM functions
      WHERE tenant_id = ? AND ${isListed("id")} ORDER BY seq DESC`;
    const rows = await this.#store.read(sql, [tenant_id, JSON.stringify(ids)]);
    return rows.map(({ id, current_version }) => ({ id: String(id), version: Number(current_version) }));
  }

  /** Newest first; fewer than `limit` when they are too large for one answer. */
  async list(tenant_id: string, { limit, below }: Place): Promise<Listed<FunctionRecord>> {
    const lengths = `${LENGTHS} WHERE f.tenant_id = ? AND f.seq < ? ORDER BY f.seq DESC LIMIT ?`;
    const { row_count, last_seq, is_cut } = await nextBytePage(
      (after, count) => this.#store.read(lengths, [tenant_id, after ?? below, count]),
      limit,
      LIMITS.list_bytes_max,
    );
    const sql = `${SELECT} WHERE f.tenant_id = ? AND f.seq >= ? AND f.seq < ? ORDER BY f.seq DESC LIMIT ?`;
    const rows = await this.#store.read(sql, [tenant_id, last_seq, below, row_count]);
    return { items: rows.map((row) => this.#row(row).record), last: is_cut ? last_seq : null };
  }

  /** Reads the functions of this node, of all tenants, in pages: for the start of the daemon, never for an answer. */
  async *inStates(states: readonly FunctionState[]): AsyncGenerator<FunctionRow> {
    const marks = states.map(() => "?").join(", ");
    const sql = `${SELECT} WHERE f.seq > ? AND f.node_seq = ? AND f.state IN (${marks}) ORDER BY f.seq LIMIT ?`;
    for (let after = 0; ; ) {
      const rows = await this.#store.read(sql, [after, this.#node.seq, ...states, LIMITS.list_limit_max]);
      for (const row of rows) yield this.#row(row);
      if (rows.length < LIMITS.list_limit_max) return;
      after = Number(rows.at(-1)?.seq);
    }
  }

  /** The statements that make a function with its first version, behind the guards; the first one's conflict: the name is taken. */
  insert(tenant_id: string, made: NewVersion, input: CreateFunction): Statement[] {
    const { id, now } = made;
    return [
      {
        sql: `INSERT INTO functions (id, tenant_id, node_seq, name, description, state, current_version, min_instances,
          max_instances, concurrency_limit, api_access, cleanup_on_exit, created_at, updated_at)
          VALUES (?, ?, ?, ?, ?, 'pending', 1, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
        expect_changes: 1,
        args: [
          id,
          tenant_id,
          this.#node.seq,
          input.name,
          input.description ?? null,
          input.min_instances,
          input.max_instances,
          input.concurrency_limit ?? null,
          input.api_access ? 1 : 0,
          input.cleanup_on_exit ? 1 : 0,
          now,
          now,
        ],
      },
      insertVersion({ ...made, version: 1 }, input),
    ];
  }

  /** The statements that make the next version of a function and point to it, with what else of the record changes. */
  update(from: FunctionRecord, to: FunctionRecord, made: Omit<NewVersion, "id">): Statement[] {
    const { id, version, description } = to;
    const { now } = made;
    return [
      insertVersion({ ...made, id, version }, to),
      {
        sql: `UPDATE functions SET current_version = ?, description = ?, min_instances = ?, max_instances = ?,
          concurrency_limit = ?, api_access = ?, cleanup_on_exit = ?, updated_at = ?
          WHERE id = ? AND state = ? AND current_version = ?`,
        args: [
          version,
          description,
          to.min_instances,
          to.max_instances,
          to.concurrency_limit,
          to.api_access ? 1 : 0,
          to.cleanup_on_exit ? 1 : 0,
          now,
          id,
          from.state,
          from.version,
        ],
        expect_changes: 1,
      },
      {
        sql: `DELETE FROM function_versions WHERE function_seq = (SELECT seq FROM functions WHERE id = ?)
          AND version <= ? AND version <> ?`,
        args: [id, version - LIMITS.versions_kept_max, from.version],
      },
    ];
  }

  /** Points to another version; changes no row when state or version are others by now. */
  movePointer(from: FunctionRecord, version: number, now: EpochSeconds): Statement {
    return {
      sql: `UPDATE functions SET current_version = ?, updated_at = ?
        WHERE id = ? AND state = ? AND current_version = ?`,
      args: [version, now, from.id, from.state, from.version],
      expect_changes: 1,
    };
  }

  /** The number of the last version that was made. */
  async newestVersion(function_seq: number): Promise<number> {
    const sql = "SELECT max(version) AS version FROM function_versions WHERE function_seq = ?";
    return Number((await this.#store.readOne(sql, [function_seq]))?.version ?? 0);
  }

  /** Ids of all images that versions were made with. */
  async images(): Promise<readonly string[]> {
    const sql = "SELECT DISTINCT image FROM function_versions WHERE image IS NOT NULL";
    return (await this.#store.read(sql)).map(({ image }) => String(image));
  }

  /** Digests of the code of a function's versions. */
  async codeOf(function_seq: number): Promise<readonly string[]> {
    const sql = "SELECT DISTINCT code FROM function_versions WHERE function_seq = ? AND code IS NOT NULL";
    return (await this.#store.read(sql, [function_seq])).map(({ code }) => String(code));
  }

  async version({ function_seq, record }: FunctionRow, version: number): Promise<VersionRow | null> {
    const row = await this.#store.readOne(`${SELECT_VERSION} AND v.version = ?`, [
      record.tenant_id,
      function_seq,
      version,
    ]);
    if (row === null) return null;
    return { record: toVersionRecord(row, record), image: textOrNull(row.image), settings: settingsOf(row) };
  }

  /** Newest first; fewer than `limit` when they are too large for one answer. */
  async versions({ function_seq, record }: FunctionRow, { limit, below }: Place): Promise<Listed<VersionRecord>> {
    const lengths = `${VERSION_LENGTHS} WHERE v.function_seq = ? AND v.version < ? ORDER BY v.version DESC LIMIT ?`;
    const { row_count, last_seq, is_cut } = await nextBytePage(
      (after, count) => this.#store.read(lengths, [function_seq, after ?? below, count]),
      limit,
      LIMITS.list_bytes_max,
    );
    const sql = `${SELECT_VERSION} AND v.version >= ? AND v.version < ? ORDER BY v.version DESC LIMIT ?`;
    const rows = await this.#store.read(sql, [record.tenant_id, function_seq, last_seq, below, row_count]);
    return { items: rows.map((row) => toVersionRecord(row, record)), last: is_cut ? last_seq : null };
  }

  /** Moves a function from one state to another; changes no row when it is in a third one by now. */
  moveState(id: string, from: FunctionState, to: FunctionState, error: string | null, now: EpochSeconds): Statement {
    return {
      sql: "UPDATE functions SET state = ?, error_message = ?, updated_at = ? WHERE id = ? AND state = ?",
      args: [to, error, now, id, from],
      expect_changes: 1,
    };
  }

  /**
   * The statements that delete a function and its versions, and the records that the paged deletion before did not see.
   */
  delete(function_seq: number): Statement[] {
    return [
      { sql: "DELETE FROM invocations WHERE function_seq = ?", args: [function_seq] },
      { sql: "DELETE FROM function_versions WHERE function_seq = ?", args: [function_seq] },
      { sql: "DELETE FROM functions WHERE seq = ?", args: [function_seq] },
    ];
  }

  async #one(sql: string, args: readonly string[]): Promise<FunctionRow | null> {
    const row = await this.#store.readOne(sql, args);
    return row === null ? null : this.#row(row);
  }

  #row(row: Row): FunctionRow {
    const record: FunctionRecord = {
      id: String(row.id),
      function_id: String(row.id),
      tenant_id: String(row.tenant_id),
      cluster_id: textOrNull(row.cluster_id),
      owner_node_id: String(row.node_id),
      name: String(row.name),
      description: textOrNull(row.description),
      ...versionedOf(row),
      state: row.state as FunctionState,
      current_version: Number(row.current_version),
      version: Number(row.current_version),
      min_instances: Number(row.min_instances),
      max_instances: Number(row.max_instances),
      concurrency_limit: numberOrNull(row.concurrency_limit),
      api_access: row.api_access === 1,
      cleanup_on_exit: row.cleanup_on_exit === 1,
      created_at: Number(row.created_at),
      updated_at: Number(row.updated_at),
      last_invoked_at: numberOrNull(row.last_invoked_at),
      invocation_count: Number(row.invocation_count),
      error_count: Number(row.error_count),
      error_message: textOrNull(row.error_message),
    };
    return { function_seq: Number(row.seq), record, image: textOrNull(row.image), settings: settingsOf(row) };
  }
}

/** Settings of a version that most versions leave at their default; the store has those that differ. */
const OPTIONS = {
  secrets: [],
  egress: "on",
  instance_concurrency: 1,
  gpu_count: 0,
  instance_calls_max: null,
  reset_between_calls: false,
  protocol: null,
  image: PROFILE,
  oci: false,
} as const;
type Options = Pick<VersionedFields, keyof typeof OPTIONS>;
/** Settings that an image gives to calls. Stored with the options, absent from records. */
type Stored = Partial<Options> & { readonly image_settings?: ImageSettings };

/** The options that differ from the default, as JSON; null if none does. */
function optionsText(fields: Options, settings: ImageSettings | null): string | null {
  const names = Object.keys(OPTIONS) as (keyof Options)[];
  const set = names.filter((name) => JSON.stringify(fields[name]) !== JSON.stringify(OPTIONS[name]));
  const stored: Stored = {
    ...Object.fromEntries(set.map((name) => [name, fields[name]])),
    ...(settings === null ? {} : { image_settings: settings }),
  };
  return Object.keys(stored).length === 0 ? null : JSON.stringify(stored);
}

const storedOf = (row: Row): Stored => JSON.parse(String(row.options ?? "{}"));

function settingsOf(row: Row): ImageSettings | null {
  return storedOf(row).image_settings ?? null;
}

/** The id of an image as the records of images have it. */
export const imageIdOf = (image: string | null): string | null => (image === null ? null : `sha256:${image}`);

function versionedOf(row: Row): VersionedFields {
  const { image_settings: _, ...given } = storedOf(row);
  const options: Options = { ...OPTIONS, secrets: [], ...given };
  return {
    handler: String(row.handler),
    runtime: String(row.runtime),
    environment: JSON.parse(String(row.environment)) as VersionedFields["environment"],
    memory_limit_mb: Number(row.memory_limit_mb),
    cpu_limit_percent: numberOrNull(row.cpu_limit_percent),
    timeout_seconds: Number(row.timeout_seconds),
    working_directory: textOrNull(row.working_directory),
    ...options,
    image_id: imageIdOf(textOrNull(row.image)),
    code_sha256: textOrNull(row.code),
    code_size_bytes: numberOrNull(row.code_size_bytes),
    api_scopes: JSON.parse(String(row.api_scopes)) as Scope[],
  };
}

function toVersionRecord(row: Row, { id, current_version }: FunctionRecord): VersionRecord {
  const version = Number(row.version);
  return {
    id: String(row.id),
    function_id: id,
    version,
    ...versionedOf(row),
    description: textOrNull(row.description),
    is_active: version === current_version,
    made_by: textOrNull(row.made_by),
    note: textOrNull(row.note),
    created_at: Number(row.created_at),
  };
}

/** The versioned part of a request or a record. */
export function versioned(from: CreateFunction | FunctionRecord | VersionRecord): VersionedFields {
  return {
    handler: from.handler,
    runtime: from.runtime,
    image: from.image ?? PROFILE,
    oci: from.oci,
    image_id: "image_id" in from ? from.image_id : null,
    environment: from.environment,
    memory_limit_mb: from.memory_limit_mb,
    cpu_limit_percent: from.cpu_limit_percent ?? null,
    timeout_seconds: from.timeout_seconds,
    working_directory: from.working_directory ?? null,
    secrets: from.secrets,
    egress: from.egress,
    instance_concurrency: from.instance_concurrency,
    instance_calls_max: from.instance_calls_max ?? null,
    reset_between_calls: from.reset_between_calls,
    gpu_count: from.gpu_count,
    protocol: from.protocol ?? null,
    code_sha256: from.code_sha256 ?? null,
    code_size_bytes: "code_size_bytes" in from ? from.code_size_bytes : null,
    api_scopes: "api_scopes" in from ? from.api_scopes : [],
  };
}

function insertVersion(
  of: NewVersion & { readonly version: number },
  from: CreateFunction | FunctionRecord,
): Statement {
  const fields = versioned(from);
  return {
    sql: `INSERT INTO function_versions (function_seq, version, id, handler, runtime, environment, memory_limit_mb,
      cpu_limit_percent, timeout_seconds, working_directory, image, code, options, api_scopes, note, made_by, description,
      created_at)
      SELECT seq, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        coalesce((SELECT k.name FROM api_keys k WHERE k.id = ? AND k.tenant_id = functions.tenant_id), ?), ?, ?
      FROM functions WHERE id = ?`,
    args: [
      of.version,
      of.version_id,
      fields.handler,
      fields.runtime,
      JSON.stringify(fields.environment),
      fields.memory_limit_mb,
      fields.cpu_limit_percent,
      fields.timeout_seconds,
      fields.working_directory,
      of.image,
      fields.code_sha256,
      optionsText(fields, of.settings),
      JSON.stringify(of.api_scopes),
      of.note,
      of.by,
      of.by,
      from.description ?? null,
      of.now,
      of.id,
    ],
  };
}

function orNotFound(id_or_name: string, row: FunctionRow | null, hint?: string): FunctionRow {
  if (row === null) throw new AppError("NOT_FOUND", `function '${id_or_name}' not found`, { hint });
  return row;
}
