/** Operations in the store: the SQL of this concern, and rows turned into records. */
import type { EpochSeconds } from "../base/clock.ts";
import type { ErrorDetails } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { isListed } from "../base/sql-dialect.ts";
import { numberOrNull, type Row, type Statement, type Store, textOrNull, type Value } from "../store/store.ts";
import { type OperationFilter, type OperationRecord, type Resource, resourceFields, statusUrl } from "./schema.ts";
import type { OperationStatus } from "./states.ts";

/** The reason of a failed operation, in the fields of a refusal. */
export interface Failure {
  readonly code: string;
  /** Present if it is more precise than the code. */
  readonly reason_code?: string;
  readonly message: string;
  readonly hint?: string | null;
  readonly details?: ErrorDetails | null;
  readonly retry_after?: number | null;
  readonly retryable?: boolean;
}

export interface OperationRow {
  readonly tenant_id: string;
  readonly record: OperationRecord;
  readonly failure: Failure | null;
}

/** What a run needs of its row. */
export interface Work {
  readonly input: unknown;
  readonly journal: Record<string, unknown>;
}

/** An operation that has not ended, as a new process finds it. */
export interface OpenOperation {
  readonly seq: number;
  readonly tenant_id: string;
  readonly id: string;
  readonly type: string;
  readonly status: OperationStatus;
  readonly deadline_ms: number;
  readonly is_attached: boolean;
  readonly is_cancel_asked: boolean;
  readonly target: Resource | null;
  readonly made: Resource | null;
}

export interface NewRow {
  readonly tenant_id: string;
  readonly id: string;
  readonly operation_type: string;
  readonly target: Resource | null;
  readonly made: Resource | null;
  readonly input: string;
  readonly is_attached: 0 | 1;
  /** Since the epoch. */
  readonly deadline_ms: number;
}

const RESOURCES = "target_resource_type, target_resource_id, made_resource_type, made_resource_id";
const SHORT = `seq, tenant_id, id, operation_type, ${RESOURCES}, status, progress_pct, message, warnings,
  capability_downgrades, failure, created_at, started_at, updated_at, completed_at`;

/** The condition of each filter of a list. */
const CONDITIONS: Readonly<Record<keyof OperationFilter, string>> = {
  status: "status = ?",
  operation_type: "operation_type = ?",
  target_resource_id: "target_resource_id = ?",
  container_id: "target_resource_type = 'container' AND target_resource_id = ?",
  container_ids: `target_resource_type = 'container' AND ${isListed("target_resource_id")}`,
};

export class OperationRows {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  async byId(tenant_id: string, id: string): Promise<OperationRow | null> {
    const sql = `SELECT ${SHORT}, result, items FROM operations WHERE tenant_id = ? AND id = ?`;
    const row = await this.#store.readOne(sql, [tenant_id, id]);
    return row === null ? null : operationRow(row);
  }

  /** Newest first, without results and items. */
  list(tenant_id: string, filter: OperationFilter, place: Place): Promise<Listed<OperationRecord>> {
    const names = Object.keys(CONDITIONS) as (keyof OperationFilter)[];
    const given = names.flatMap((name) => {
      const value = filter[name];
      if (value === undefined) return [];
      return [{ name, value: typeof value === "string" ? value : JSON.stringify([...value]) }];
    });
    const conditions = ["tenant_id = ?", ...given.map(({ name }) => CONDITIONS[name])].join(" AND ");
    const select = `SELECT ${SHORT} FROM operations WHERE ${conditions}`;
    const args = [tenant_id, ...given.map(({ value }) => value)];
    return readPage(this.#store, select, args, place, (row) => operationRow(row).record);
  }

  async work(id: string): Promise<Work | null> {
    const row = await this.#store.readOne("SELECT input, journal FROM operations WHERE id = ?", [id]);
    return row === null ? null : { input: JSON.parse(String(row.input)), journal: JSON.parse(String(row.journal)) };
  }

  /** Over all tenants, in pages: for the daemon's own start. */
  async *open(): AsyncGenerator<OpenOperation> {
    const sql = `SELECT seq, tenant_id, id, operation_type, status, deadline_ms, is_attached, is_cancel_asked, ${RESOURCES}
      FROM operations WHERE completed_at IS NULL AND seq > ? ORDER BY seq LIMIT ?`;
    for (let after = 0; ; ) {
      const rows = await this.#store.read(sql, [after, LIMITS.list_limit_max]);
      for (const row of rows) yield openOperation(row);
      if (rows.length < LIMITS.list_limit_max) return;
      after = Number(rows.at(-1)?.seq);
    }
  }

  /** Behind a guard that the tenant is there. */
  insert({ target, made, ...row }: NewRow, now: EpochSeconds): readonly [Statement, Statement] {
    const resources = { ...columns("target", target), ...columns("made", made) };
    const fields = { ...row, ...resources, status: "accepted", journal: "{}", created_at: now, updated_at: now };
    return [
      // Changes nothing: what counts is whether there is such a row.
      {
        sql: "UPDATE tenants SET state = state WHERE id = ? AND state = 'active'",
        args: [row.tenant_id],
        expect_changes: 1,
      },
      {
        sql: `INSERT INTO operations (${Object.keys(fields).join(", ")})
          VALUES (${Object.keys(fields)
            .map(() => "?")
            .join(", ")})`,
        args: Object.values(fields),
      },
    ];
  }

  /** Moves an operation from one state to another, with what else is to be known then; none when it is in a third. */
  move(
    id: string,
    from: OperationStatus,
    to: OperationStatus,
    fields: Readonly<Record<string, Value>>,
    now: EpochSeconds,
  ): Statement {
    const all = { ...fields, status: to, updated_at: now };
    return {
      sql: `UPDATE operations SET ${assignments(all)} WHERE id = ? AND status = ?`,
      args: [...Object.values(all), id, from],
      expect_changes: 1,
    };
  }

  /** Changes what is known of one that runs. */
  note(id: string, fields: Readonly<Record<string, Value>>, now: EpochSeconds): Statement {
    const all = { ...fields, updated_at: now };
    return {
      sql: `UPDATE operations SET ${assignments(all)} WHERE id = ? AND status = 'running'`,
      args: [...Object.values(all), id],
      expect_changes: 1,
    };
  }

  /** Deletes what has ended long ago. */
  async prune(ended_before: EpochSeconds): Promise<void> {
    await this.#deleteAll("SELECT seq FROM operations WHERE completed_at < ? LIMIT ?", [ended_before]);
  }

  /** Deletes what has ended of a tenant beyond its newest operations. */
  async trim(tenant_id: string): Promise<void> {
    const sql = "SELECT seq FROM operations WHERE tenant_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?";
    const row = await this.#store.readOne(sql, [tenant_id, LIMITS.operations_kept_per_tenant]);
    if (row === null) return;
    const ended = "SELECT seq FROM operations WHERE tenant_id = ? AND seq <= ? AND completed_at IS NOT NULL LIMIT ?";
    await this.#deleteAll(ended, [tenant_id, Number(row.seq)]);
  }

  async erase(tenant_id: string): Promise<void> {
    await this.#deleteAll("SELECT seq FROM operations WHERE tenant_id = ? LIMIT ?", [tenant_id]);
  }

  async #deleteAll(select: string, args: readonly Value[]): Promise<void> {
    const rows_max = LIMITS.delete_rows_per_pass;
    for (let is_more = true; is_more; ) {
      const sql = `DELETE FROM operations WHERE seq IN (${select})`;
      const { changes } = await this.#store.write([{ sql, args: [...args, rows_max] }]);
      is_more = changes[0] === rows_max;
    }
  }
}

const assignments = (fields: object): string =>
  Object.keys(fields)
    .map((name) => `${name} = ?`)
    .join(", ");

/** The two columns that name a resource. */
export function columns(role: "target" | "made", resource: Resource | null): Readonly<Record<string, string | null>> {
  return { [`${role}_resource_type`]: resource?.type ?? null, [`${role}_resource_id`]: resource?.id ?? null };
}

/** Absent in a row that was read without it. */
const jsonOrNull = (value: unknown) => (value === null || value === undefined ? null : JSON.parse(String(value)));

function operationRow(row: Row): OperationRow {
  const failure = jsonOrNull(row.failure) as Failure | null;
  const operation_id = String(row.id);
  const record: OperationRecord = {
    operation_id,
    operation_type: String(row.operation_type),
    status: row.status as OperationStatus,
    ...resourceFields(resourceOf(row, "target"), resourceOf(row, "made")),
    progress_pct: numberOrNull(row.progress_pct),
    message: textOrNull(row.message),
    result: jsonOrNull(row.result),
    items: jsonOrNull(row.items),
    error: failure?.message ?? null,
    reason_code: failure?.reason_code ?? failure?.code ?? null,
    reason_message: failure?.message ?? null,
    warnings: jsonOrNull(row.warnings) ?? [],
    capability_downgrades: jsonOrNull(row.capability_downgrades) ?? [],
    status_url: statusUrl(operation_id),
    created_at: Number(row.created_at),
    started_at: numberOrNull(row.started_at),
    updated_at: Number(row.updated_at),
    completed_at: numberOrNull(row.completed_at),
  };
  return { tenant_id: String(row.tenant_id), record, failure };
}

function resourceOf(row: Row, role: "target" | "made"): Resource | null {
  const type = textOrNull(row[`${role}_resource_type`]);
  return type === null ? null : { type, id: textOrNull(row[`${role}_resource_id`]) };
}

function openOperation(row: Row): OpenOperation {
  return {
    seq: Number(row.seq),
    tenant_id: String(row.tenant_id),
    id: String(row.id),
    type: String(row.operation_type),
    status: row.status as OperationStatus,
    deadline_ms: Number(row.deadline_ms),
    is_attached: row.is_attached === 1,
    is_cancel_asked: row.is_cancel_asked === 1,
    target: resourceOf(row, "target"),
    made: resourceOf(row, "made"),
  };
}
