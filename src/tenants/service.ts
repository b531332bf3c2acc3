/**
 * Tenants: made, limited and deleted by the operator. A tenant owns functions and keys; everything that is looked up is
 * looked up by tenant, so that deleting one is deleting what carries its id.
 *
 * N1. From the moment a tenant is `deleting` none of its keys and tokens is good and nothing new can be made in it: keys
 *     and functions are inserted only beside an active tenant, in the same batch. What its running calls were given
 *     ends with them, within `group_close_wait_ms`.
 * N2. What a limit means is told to those who hold it (rates, pool) after it is committed, and at the start.
 */
import type { Clock } from "../base/clock.ts";
import { toEpochSeconds } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { firstPage, type Listed, type Place, readPage } from "../base/paging.ts";
import { jsonChanged, ROW_NUMBER, updateUnlessTaken } from "../base/sql-dialect.ts";
import type { TenantClass } from "../base/tenant-classes.ts";
import {
  DEFAULT_TENANT_ID,
  eachLimit,
  type Quotas,
  TENANT_USES,
  type TenantLimits,
  type UseName,
} from "../base/tenant-limits.ts";
import { isCounted, type TenantShares } from "../base/tenant-shares.ts";
import type { CodeStore } from "../code/service.ts";
import type { Containers } from "../containers/service.ts";
import type { Events } from "../events/service.ts";
import type { Functions } from "../functions/service.ts";
import type { TenantImages } from "../oci/service.ts";
import type { Operations } from "../operations/service.ts";
import type { Secrets } from "../secrets/service.ts";
import type { Snapshots } from "../snapshots/service.ts";
import type { Guard, Row, Statement, Store } from "../store/store.ts";
import type { Volumes } from "../volumes/service.ts";
import type { Keys } from "./keys.ts";
import {
  type CreateTenant,
  type GivenLimits,
  NODE_DEFAULT,
  type TenantDetail,
  type TenantRecord,
  type UpdateTenant,
} from "./schema.ts";

const COLUMNS = `${ROW_NUMBER} AS seq, id, name, state, created_at, limits, service_hostnames,
  EXISTS (SELECT 1 FROM users WHERE tenant_id = tenants.id) AS is_users`;
const SELECT = `SELECT ${COLUMNS} FROM tenants`;
/** With what is in use of each limit, as far as the store knows it. */
const SELECT_USES = `SELECT ${[
  COLUMNS,
  "(SELECT count(*) FROM api_keys WHERE tenant_id = tenants.id) AS api_keys",
  ...TENANT_USES.flatMap(({ name, sql }) => (sql === null ? [] : [`${sql} AS ${name}`])),
].join(", ")} FROM tenants`;

export interface TenantsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly keys: Keys;
  readonly functions: Functions;
  readonly operations: Operations;
  readonly events: Events;
  readonly code: CodeStore;
  readonly containers: Containers;
  readonly volumes: Volumes;
  readonly snapshots: Snapshots;
  /** Ends the schedules of a tenant's snapshots. */
  readonly schedules: { eraseAll(tenant_id: string): Promise<void> };
  readonly tenant_images: TenantImages;
  /** Removes the files that a tenant uploaded for builds. */
  readonly build_contexts: { eraseAll(tenant_id: string): Promise<void> };
  /** Forgets what is kept of a tenant's builds. */
  readonly builds: { eraseAll(tenant_id: string): Promise<void> };
  readonly secrets: Secrets;
  /** Bounds the requests of a tenant at every listener; null: no bound. */
  readonly rates: { set(tenant_id: string, per_second: number | null): void };
  /** Forgets the answers that were recorded for a tenant's Idempotency-Keys. */
  readonly idempotency: { erase(tenant_id: string): Promise<void> };
  readonly quotas: Quotas;
  readonly shares: TenantShares;
  /** Limits what all files of a tenant take on the disk as its limits say. */
  readonly limitFiles: (tenant_id: string) => Promise<void>;
  /** Processes and threads of a tenant's containers. */
  readonly processCount: (tenant_id: string) => number;
  readonly gpuCount: (tenant_id: string) => number;
}

interface InsertOptions {
  readonly service_hostnames: readonly string[] | undefined;
  readonly tenant_class: TenantClass;
}

export class Tenants {
  readonly #options: TenantsOptions;

  constructor(options: TenantsOptions) {
    this.#options = options;
  }

  /** Limits hold when this resolves. Call before functions take up their instances. */
  async boot(): Promise<void> {
    for await (const row of this.#each(SELECT)) this.#apply(String(row.id), ownLimits(row), classOf(row));
  }

  /**
   * Warns of tenants above their limits, and finishes deletions that a crash cut short. Call when functions and
   * containers have taken up their work; never rejects.
   */
  async resume(): Promise<void> {
    const { store, log } = this.#options;
    await this.#warnOfExcess().catch((error) =>
      log.warn("cannot compare the tenants' limits", { error: errorText(error) }),
    );
    const failed = (error: unknown) => log.error("cannot delete a tenant", { error: errorText(error) });
    const read = () => store.read("SELECT id FROM tenants WHERE state = 'deleting' LIMIT ?", [LIMITS.list_limit_max]);
    const left = await read().catch((error) => {
      failed(error);
      return [];
    });
    for (const { id } of left) await this.#erase(String(id)).catch(failed);
  }

  /** All tenants in the order of their ids, a bounded number in memory. */
  async *#each(select: string): AsyncGenerator<Row> {
    for (let after = ""; ; ) {
      const rows = await this.#options.store.read(`${select} WHERE id > ? ORDER BY id LIMIT ?`, [
        after,
        LIMITS.list_limit_max,
      ]);
      yield* rows;
      if (rows.length < LIMITS.list_limit_max) return;
      after = String(rows.at(-1)?.id);
    }
  }

  /** An upgrade, a setting or the operator may bring limits below what is in use: one line for each, bounded in number. */
  async #warnOfExcess(): Promise<void> {
    const { log, quotas } = this.#options;
    let count = 0;
    for await (const row of this.#each(SELECT_USES)) {
      if (row.state !== "active") continue;
      const tenant_id = String(row.id);
      const limits = quotas.of(tenant_id);
      for (const { name, limit } of TENANT_USES) {
        const value = this.#useOf(row, name);
        const [used, max] = [name === "storage_bytes" ? Math.ceil(value / 2 ** 20) : value, limits[limit]];
        if (max === null || used <= max) continue;
        count += 1;
        if (count <= LIMITS.tenant_excess_lines_max)
          log.warn("tenant exceeds a limit", { tenant_id, limit, max, used });
      }
    }
    const more_count = count - LIMITS.tenant_excess_lines_max;
    if (more_count > 0) log.warn("tenants exceed more limits", { count: more_count });
  }

  /** Throws NAME_TAKEN. */
  async create({ name, limits, service_hostnames }: CreateTenant): Promise<TenantRecord> {
    const tenant_id = this.#options.ids.next("ten");
    await this.#insert(tenant_id, name, split(limits).own, [], { service_hostnames, tenant_class: "tenant" });
    return this.#get(tenant_id);
  }

  /** Makes the tenant of a user, with the defaults of these, in one batch with `guards`. Throws NAME_TAKEN, and the refusal of a guard. */
  createWith(tenant_id: string, name: string, guards: readonly Guard[]): Promise<void> {
    return this.#insert(tenant_id, name, {}, guards, { service_hostnames: [], tenant_class: "user" });
  }

  async #insert(
    tenant_id: string,
    name: string,
    own: Partial<TenantLimits>,
    guards: readonly Guard[],
    { service_hostnames, tenant_class }: InsertOptions,
  ): Promise<void> {
    const { events, clock } = this.#options;
    const insert: Statement = {
      sql: `INSERT INTO tenants (id, name, created_at, limits, service_hostnames) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT DO NOTHING`,
      args: [
        ...[tenant_id, name, toEpochSeconds(clock.epochMs())],
        ...[JSON.stringify(own), JSON.stringify(service_hostnames ?? [])],
      ],
      expect_changes: 1,
    };
    const statements = [insert, ...guards.map(({ statement }) => statement)];
    const data = { tenant_id, tenant_name: name };
    const { conflict } = await events.write(
      statements,
      tenant_id,
      [{ name: "tenant_update", event_type: "created", data }],
      { durable: true },
    );
    if (conflict === 0) throw nameTaken(name);
    if (conflict !== null) throw guards[conflict - 1]?.refusal() ?? nameTaken(name);
    this.#apply(tenant_id, own, tenant_class);
  }

  list(place: Place): Promise<Listed<TenantRecord>> {
    const { store } = this.#options;
    return readPage(store, `${SELECT} WHERE true`, [], place, (row) => this.#record(row), ROW_NUMBER);
  }

  /** With what it owns; one that is being deleted too. Throws NOT_FOUND. */
  async get(tenant_id: string): Promise<TenantDetail> {
    const row = await this.#options.store.readOne(`${SELECT_USES} WHERE id = ?`, [tenant_id]);
    if (row === null) throw notFound(tenant_id);
    const entries = TENANT_USES.map(({ name }) => [name, this.#useOf(row, name)]);
    const uses = Object.fromEntries(entries) as Record<UseName, number>;
    return { ...this.#record(row), usage: { api_keys: Number(row.api_keys), ...uses } };
  }

  /** Of a row of SELECT_USES; the daemon or the kernel counts what the store does not. */
  #useOf(row: Row, use: UseName): number {
    const { functions, shares, processCount, gpuCount } = this.#options;
    const tenant_id = String(row.id);
    if (use === "processes") return processCount(tenant_id);
    if (use === "gpus") return gpuCount(tenant_id);
    if (use === "instances" || use === "memory_mb") return functions.instancesOf(tenant_id)[use];
    return isCounted(use) ? shares.countOf(use, tenant_id) : Number(row[use]);
  }

  /** Changes what is given. A limit below what is in use stops what is new, not what is there. Throws NOT_FOUND, NAME_TAKEN. */
  async update(tenant_id: string, { name, limits, service_hostnames }: UpdateTenant): Promise<TenantRecord> {
    const { limitFiles } = this.#options;
    const record = await this.#get(tenant_id);
    const fields = Object.entries(given({ ...limits, name, service_hostnames }));
    if (fields.length === 0) return record;
    const { own: set, cleared } = split(limits);
    const own = Object.entries(set);
    // The names of the limits are the schema's, not the caller's.
    const changed = jsonChanged(
      "limits",
      own.map(([limit]) => limit),
      cleared,
    );
    const statement: Statement = {
      sql: `${updateUnlessTaken("tenants")} SET name = coalesce(?, name),
        service_hostnames = coalesce(?, service_hostnames), limits = ${changed} WHERE id = ? AND state = 'active'`,
      args: [
        name ?? null,
        service_hostnames === undefined ? null : JSON.stringify(service_hostnames),
        ...own.map(([, value]) => JSON.stringify(value)),
        tenant_id,
      ],
      expect_changes: 1,
    };
    const data = { tenant_id, ...Object.fromEntries(fields.map(([field, value]) => [toldAs(field), value])) };
    const { conflict } = await this.#options.events
      .write([statement], tenant_id, [{ name: "tenant_update", event_type: "updated", data }], { durable: true })
      // After a failure too: it may be committed and not be synced; the limits of the store hold (N2).
      .finally(() => this.#reapply(tenant_id));
    if (conflict !== null) {
      await this.#get(tenant_id);
      throw nameTaken(name ?? "");
    }
    if (limits.disk_mb_max !== undefined) await this.#limitDisks(tenant_id);
    if (limits.disk_mb_max !== undefined || limits.snapshot_mb_max !== undefined) await limitFiles(tenant_id);
    return this.#get(tenant_id);
  }

  /**
   * Deletes a tenant, its keys and users, and with `force` what it owns. Throws NOT_FOUND, NOT_EMPTY, and WRONG_STATE for the
   * operator's own. What failed half-way goes on when it is asked for again.
   */
  async delete(tenant_id: string, force: boolean): Promise<void> {
    const { store, keys, functions } = this.#options;
    if (tenant_id === DEFAULT_TENANT_ID) {
      throw new AppError("WRONG_STATE", "cannot delete the tenant 'default': it is the operator's");
    }
    const row = await store.readOne("SELECT state FROM tenants WHERE id = ?", [tenant_id]);
    if (row === null) throw notFound(tenant_id);
    if (row.state === "deleting") return this.#erase(tenant_id);
    const isOwner = (table: string) => `EXISTS (SELECT 1 FROM ${table} WHERE tenant_id = tenants.id)`;
    const owns = force
      ? ""
      : ` AND NOT (${["functions", "containers", "volumes", "snapshots", "oci_images", "secrets"].map(isOwner).join(" OR ")})`;
    const { conflict } = await store
      .write(
        [
          {
            sql: `UPDATE tenants SET state = 'deleting' WHERE id = ?${owns}`,
            args: [tenant_id],
            expect_changes: 1,
          },
          ...["api_keys", "users", "user_logins"].map((table) => ({
            sql: `DELETE FROM ${table} WHERE tenant_id = ?`,
            args: [tenant_id],
          })),
        ],
        { durable: true },
      )
      .finally(() => keys.forget((caller) => caller.tenant_id === tenant_id));
    if (conflict !== null) {
      await this.#get(tenant_id);
      throw new AppError(
        "NOT_EMPTY",
        `tenant '${tenant_id}' owns functions, containers, volumes, snapshots, images or secrets`,
        {
          hint: "delete its resources first, or send force=true",
        },
      );
    }
    functions.endTokens(tenant_id);
    failpoint("tenants.delete.moved");
    await this.#erase(tenant_id);
  }

  /** What is left of a tenant that is `deleting`. */
  async #erase(tenant_id: string): Promise<void> {
    const { store, functions, code, containers, volumes, tenant_images, build_contexts, builds } = this.#options;
    const { secrets, operations, events, idempotency, snapshots, schedules } = this.#options;
    await schedules.eraseAll(tenant_id);
    await containers.eraseAll(tenant_id);
    await volumes.eraseAll(tenant_id);
    for (;;) {
      const { items } = await functions.list(tenant_id, firstPage());
      if (items.length === 0) break;
      await Promise.all(items.map(({ id }) => functions.erase(tenant_id, id)));
    }
    await secrets.eraseAll(tenant_id);
    await code.eraseAll(tenant_id);
    await operations.erase(tenant_id);
    // After its pulls, builds and snapshots have ended.
    await snapshots.eraseAll(tenant_id);
    await build_contexts.eraseAll(tenant_id);
    await builds.eraseAll(tenant_id);
    await tenant_images.eraseAll(tenant_id);
    failpoint("tenants.delete.emptied");
    await events.erase(tenant_id);
    await idempotency.erase(tenant_id);
    await store.write([{ sql: "DELETE FROM tenants WHERE id = ?", args: [tenant_id] }], { durable: true });
    this.#options.quotas.forget(tenant_id);
    this.#tell(
      tenant_id,
      eachLimit(() => null),
    );
  }

  async #get(tenant_id: string): Promise<TenantRecord> {
    const row = await this.#options.store.readOne(`${SELECT} WHERE id = ? AND state = 'active'`, [tenant_id]);
    if (row === null) throw notFound(tenant_id);
    return this.#record(row);
  }

  async #reapply(tenant_id: string): Promise<void> {
    const row = await this.#options.store.readOne(`${SELECT} WHERE id = ? AND state = 'active'`, [tenant_id]);
    if (row !== null) this.#apply(tenant_id, ownLimits(row), classOf(row));
  }

  /** Nothing that a tenant without a limit made stays unlimited. */
  async #limitDisks(tenant_id: string): Promise<void> {
    const { containers, volumes, quotas } = this.#options;
    if (quotas.of(tenant_id).disk_mb_max === null) return;
    await Promise.all([containers.limitDisks(tenant_id), volumes.limitDisks(tenant_id)]);
  }

  #apply(tenant_id: string, own: Partial<TenantLimits>, tenant_class: TenantClass): void {
    this.#options.quotas.set(tenant_id, own, tenant_class);
    this.#tell(tenant_id, this.#options.quotas.of(tenant_id));
  }

  /** N2. */
  #tell(tenant_id: string, limits: TenantLimits): void {
    const { rates, functions } = this.#options;
    rates.set(tenant_id, limits.requests_per_second);
    functions.limitTenant(tenant_id, limits);
  }

  #record(row: Row): TenantRecord {
    const tenant_id = String(row.id);
    return {
      tenant_id,
      name: String(row.name),
      state: row.state === "deleting" ? "deleting" : "active",
      limits: this.#options.quotas.effective(tenant_id, ownLimits(row), classOf(row)),
      service_hostnames: JSON.parse(String(row.service_hostnames)) as string[],
      created_at: Number(row.created_at),
    };
  }
}

function notFound(tenant_id: string): AppError {
  return new AppError("NOT_FOUND", `tenant '${tenant_id}' not found`);
}

function nameTaken(name: string): AppError {
  return new AppError("NAME_TAKEN", `a tenant named '${name}' exists`);
}

/** Without what is undefined. */
function given<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}

/** The limits that the operator sets, and the names of those that are the node's defaults again. */
function split(limits: GivenLimits): { readonly own: Partial<TenantLimits>; readonly cleared: readonly string[] } {
  const all = Object.entries(given(limits));
  return {
    own: Object.fromEntries(all.filter(([, value]) => value !== NODE_DEFAULT)) as Partial<TenantLimits>,
    cleared: all.flatMap(([name, value]) => (value === NODE_DEFAULT ? [name] : [])),
  };
}

/** In an event `name` is the event's own. */
const toldAs = (field: string): string => (field === "name" ? "tenant_name" : field);

/** A user and the tenant are made together, and end together. */
function classOf(row: Row): TenantClass {
  return row.is_users === 1 ? "user" : "tenant";
}

/** Limits that the operator set. */
function ownLimits(row: Row): Partial<TenantLimits> {
  return JSON.parse(String(row.limits)) as Partial<TenantLimits>;
}
