/** Containers in the store: the SQL of this concern, and rows turned into what the service works with. */
import type { EpochMs, EpochSeconds } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { isListed, jsonChanged, jsonField } from "../base/sql-dialect.ts";
import { tenantGuard } from "../base/tenant-limits.ts";
import type { ContainerSpec } from "../engine/ports.ts";
import { numberOrNull, type Row, type Statement, type Store, type StoredNode, textOrNull } from "../store/store.ts";
import { type ImageSettings, PROFILE_SETTINGS } from "./image-settings.ts";
import type { Reservation } from "./network/addresses.ts";
import type { WantedPort } from "./network/schema.ts";
import type { CreateContainer } from "./schema.ts";
import { CONTAINER_STATES, type ContainerState } from "./states.ts";

/** A container as the store has it. */
export interface ContainerRow extends ContainerSpec, ImageSettings {
  /** The node that holds the container. */
  readonly node_seq: number;
  /** Reference that the image was asked for by. */
  readonly image: string;
  /** The release that a profile promises; null: the image is nobody's profile. */
  readonly release: string | null;
  readonly restart: CreateContainer["restart"];
  readonly ttl_seconds: number | null;
  readonly idle_seconds: number | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly state: ContainerState;
  /** Whether its owner wants it to run: a restart policy starts only such a one again. */
  readonly is_wanted: boolean;
  readonly exit_code: number | null;
  readonly oom_killed: boolean;
  readonly error_message: string | null;
  readonly restart_count: number;
  readonly created_at_ms: EpochMs;
  readonly started_at_ms: EpochMs | null;
  readonly exited_at_ms: EpochMs | null;
  /** Null: its files are those of its image alone at first. */
  readonly origin: ContainerOrigin | null;
  /** The snapshot that its files are nearest to: its newest one, or the one that they came from. */
  readonly head_snapshot_id: string | null;
  /** Address that it has at each start; null: any. */
  readonly reserved_address: string | null;
  readonly reserved_at: EpochSeconds | null;
}

/** The source of a container that is a copy. */
export interface ContainerOrigin {
  readonly kind: "clone" | "fork";
  /** The snapshot; null for a fork. */
  readonly snapshot_id: string | null;
  /** The container that was forked, or that the snapshot is of. */
  readonly container_id: string;
}

/** Settings of a container that a copy of it has, too. JSON. */
export type ContainerSettings = Pick<
  ContainerRow,
  | Exclude<keyof Make, "origin" | "ports" | "volumes">
  | "name"
  | "environment"
  | "labels"
  | "memory_limit_mb"
  | "cpu_limit_percent"
> & { readonly ports: readonly WantedPort[]; readonly volumes: ContainerRow["volumes"] };

/** A copy of a container, before it is noted. */
export type ContainerCopy = ContainerSettings & Pick<ContainerRow, "origin" | "head_snapshot_id">;

/** Returns the settings of a container for its copies. */
export function settingsOf(row: ContainerRow): ContainerSettings {
  const { name, environment, labels, memory_limit_mb, cpu_limit_percent } = row;
  const { origin: _, ...make } = Object.fromEntries(MAKE.map((field) => [field, row[field]])) as unknown as Make;
  return { ...make, name, environment, labels, memory_limit_mb, cpu_limit_percent };
}

/** Fields that a container keeps for good: one JSON object in the column `make`. */
const MAKE = [
  "image",
  "image_id",
  "release",
  "command",
  "image_environment",
  "working_directory",
  "user",
  "stop_signal",
  "exposed_ports",
  "declared_volumes",
  "writable_paths",
  "health",
  "strict",
  "read_only_root",
  "restart",
  "ttl_seconds",
  "idle_seconds",
  "disk_limit_mb",
  "gpu_count",
  "gpu_ids",
  "ports",
  "egress",
  "network",
  "dns",
  "volumes",
  "origin",
] as const satisfies readonly (keyof ContainerRow)[];

type Make = Pick<ContainerRow, (typeof MAKE)[number]>;

const COLUMNS = `seq, id, tenant_id, node_seq, name, state, is_wanted, make, memory_limit_mb, cpu_limit_percent, labels, environment,
  exit_code, oom_killed, error_message, restart_count, created_at_ms, started_at_ms, exited_at_ms, head_snapshot_id, reserved_address, reserved_at`;
const SELECT = `SELECT ${COLUMNS} FROM containers WHERE is_removing = 0`;

/** Containers of a list; absent fields let all pass. */
export interface ContainerFilter {
  readonly state?: ContainerState | undefined;
  readonly container_ids?: ReadonlySet<string> | undefined;
}

export class ContainerRows {
  readonly #store: Store;
  readonly #node: StoredNode;

  /** `node`: this node, whose bounds count and whose containers change here. */
  constructor(store: Store, node: StoredNode) {
    this.#store = store;
    this.#node = node;
  }

  /** True if this node holds the container. */
  isHeld({ node_seq }: Pick<ContainerRow, "node_seq">): boolean {
    return node_seq === this.#node.seq;
  }

  byId(tenant_id: string, id: string): Promise<ContainerRow | null> {
    return this.#one(`${SELECT} AND tenant_id = ? AND id = ?`, [tenant_id, id]);
  }

  byName(tenant_id: string, name: string): Promise<ContainerRow | null> {
    return this.#one(`${SELECT} AND tenant_id = ? AND name = ?`, [tenant_id, name]);
  }

  /** Those of the names that containers of the tenant have. */
  async taken(tenant_id: string, names: readonly string[]): Promise<ReadonlySet<string>> {
    const sql = `SELECT name FROM containers WHERE tenant_id = ? AND ${isListed("name")}`;
    const rows = await this.#store.read(sql, [tenant_id, JSON.stringify(names)]);
    return new Set(rows.map(({ name }) => String(name)));
  }

  /** For the daemon's own work, over all tenants. */
  byIdAlone(id: string): Promise<ContainerRow | null> {
    return this.#one(`${SELECT} AND id = ?`, [id]);
  }

  /** Newest first. */
  list<Item>(
    tenant_id: string,
    { state, container_ids }: ContainerFilter,
    place: Place,
    toItem: (row: ContainerRow) => Item,
  ): Promise<Listed<Item>> {
    const where = [
      ...(state === undefined ? [] : [{ sql: "state = ?", value: state }]),
      ...(container_ids === undefined ? [] : [{ sql: isListed("id"), value: JSON.stringify([...container_ids]) }]),
    ];
    const select = [`${SELECT} AND tenant_id = ?`, ...where.map(({ sql }) => sql)].join(" AND ");
    const args = [tenant_id, ...where.map(({ value }) => value)];
    return readPage(this.#store, select, args, place, (row) => toItem(rowOf(row)));
  }

  /** Reads the containers of all tenants and nodes in pages, for the start of the daemon. */
  async *all(): AsyncGenerator<ContainerRow> {
    for (let after = 0; ; ) {
      const rows = await this.#store.read(`${SELECT} AND seq > ? ORDER BY seq LIMIT ?`, [after, LIMITS.list_limit_max]);
      for (const row of rows) yield rowOf(row);
      if (rows.length < LIMITS.list_limit_max) return;
      after = Number(rows.at(-1)?.seq);
    }
  }

  /** Those whose removal was begun. */
  async removing(): Promise<readonly ContainerRow[]> {
    return (await this.#store.read(`SELECT ${COLUMNS} FROM containers WHERE is_removing = 1`)).map(rowOf);
  }

  /** Reads the containers of a tenant on all nodes. */
  async ofTenant(tenant_id: string): Promise<readonly { readonly id: string; readonly isHeld: boolean }[]> {
    const rows = await this.#store.read("SELECT id, node_seq FROM containers WHERE tenant_id = ?", [tenant_id]);
    return rows.map(({ id, node_seq }) => ({ id: String(id), isHeld: node_seq === this.#node.seq }));
  }

  /** Conflict: the tenant is being deleted. Stands before what makes something for it. */
  guard(tenant_id: string): Statement {
    return tenantGuard(tenant_id, "state = 'active'");
  }

  /** Conflict: there are as many on this node as may be, those that are being removed among them. */
  room(tenant_id: string, containers_max: number): Statement {
    const held = "SELECT count(*) FROM containers WHERE node_seq = ?";
    return tenantGuard(tenant_id, `(${held}) < ?`, [this.#node.seq, containers_max]);
  }

  /** Conflict: the containers of this node that run or start have all the memory that they may have. */
  memory({ tenant_id, memory_limit_mb }: ContainerRow, container_memory_mb: number): Statement {
    const used = `SELECT coalesce(sum(memory_limit_mb), 0) FROM containers
      WHERE node_seq = ? AND state IN ('starting', 'running')`;
    return tenantGuard(tenant_id, `(${used}) + ? <= ?`, [this.#node.seq, memory_limit_mb, container_memory_mb]);
  }

  /** Reads the containers of this node without a disk limit. `tenant_id`: null for all tenants. */
  async withoutDiskLimit(
    tenant_id: string | null,
  ): Promise<readonly { readonly id: string; readonly tenant_id: string }[]> {
    const sql = `SELECT id, tenant_id FROM containers
      WHERE node_seq = ? AND ${jsonField("make", "disk_limit_mb")} IS NULL AND tenant_id = coalesce(?, tenant_id)`;
    const rows = await this.#store.read(sql, [this.#node.seq, tenant_id]);
    return rows.map(({ id, tenant_id }) => ({ id: String(id), tenant_id: String(tenant_id) }));
  }

  async runningCount(tenant_id: string): Promise<number> {
    const sql =
      "SELECT count(*) AS count FROM containers WHERE tenant_id = ? AND state = 'running' AND is_removing = 0";
    return Number((await this.#store.readOne(sql, [tenant_id]))?.count);
  }

  /** Ids of all images that containers of this node were made from. */
  async images(): Promise<readonly string[]> {
    const image_id = jsonField("make", "image_id");
    const sql = `SELECT DISTINCT ${image_id} AS image FROM containers WHERE node_seq = ? AND ${image_id} IS NOT NULL`;
    return (await this.#store.read(sql, [this.#node.seq])).map(({ image }) => String(image));
  }

  /** References of containers of this node that an earlier version made without noting the image. */
  async withoutImage(): Promise<readonly string[]> {
    const sql = `SELECT DISTINCT ${jsonField("make", "image")} AS image FROM containers
      WHERE node_seq = ? AND ${jsonField("make", "image_id")} IS NULL LIMIT ?`;
    const rows = await this.#store.read(sql, [this.#node.seq, LIMITS.image_references_max]);
    return rows.map(({ image }) => String(image));
  }

  /** Notes the image in every container of this node that has the reference alone. */
  setImage(image: string, image_id: string): Statement {
    const sql = `UPDATE containers SET make = ${jsonChanged("make", ["image_id"])}
      WHERE node_seq = ? AND ${jsonField("make", "image_id")} IS NULL AND ${jsonField("make", "image")} = ?`;
    return { sql, args: [JSON.stringify(image_id), this.#node.seq, image] };
  }

  setDiskLimit(id: string, disk_limit_mb: number): Statement {
    const sql = `UPDATE containers SET make = ${jsonChanged("make", ["disk_limit_mb"])} WHERE id = ?`;
    return { sql, args: [JSON.stringify(disk_limit_mb), id] };
  }

  /** Conflict: the name is taken. */
  insert(row: ContainerRow): Statement {
    return {
      sql: `INSERT INTO containers (id, tenant_id, node_seq, name, state, is_wanted, is_removing, make, memory_limit_mb,
        cpu_limit_percent, labels, environment, oom_killed, restart_count, created_at_ms, head_snapshot_id)
        VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 0, 0, ?, ?) ON CONFLICT DO NOTHING`,
      expect_changes: 1,
      args: [
        row.id,
        row.tenant_id,
        row.node_seq,
        row.name,
        row.state,
        row.is_wanted ? 1 : 0,
        JSON.stringify(Object.fromEntries(MAKE.map((name) => [name, row[name]]))),
        row.memory_limit_mb,
        row.cpu_limit_percent,
        JSON.stringify(row.labels),
        JSON.stringify(row.environment),
        row.created_at_ms,
        row.head_snapshot_id,
      ],
    };
  }

  /** Conflict: the volume is not there any more, or not on this node. */
  mount(tenant_id: string, id: string, volume_id: string, target: string): Statement {
    return {
      sql: `INSERT INTO container_volumes (container_id, volume_id, target)
        SELECT ?, id, ? FROM volumes WHERE tenant_id = ? AND id = ? AND node_seq = ? AND status = 'active'`,
      args: [id, target, tenant_id, volume_id, this.#node.seq],
      expect_changes: 1,
    };
  }

  /** Compare-and-set: conflict where somebody else moved it meanwhile. */
  move(id: string, from: ContainerState, to: ContainerState, more: MoveFields): Statement {
    const fields = Object.entries(more).filter(([, value]) => value !== undefined);
    const set = fields.map(([name]) => `, ${name} = ?`).join("");
    return {
      sql: `UPDATE containers SET state = ?${set} WHERE id = ? AND state = ? AND is_removing = 0`,
      expect_changes: 1,
      args: [
        to,
        ...fields.map(([, value]) => (typeof value === "boolean" ? Number(value) : (value ?? null))),
        id,
        from,
      ],
    };
  }

  /** Notes why a container that runs is about to be stopped; null: it is not. */
  setStopReason(id: string, error_message: string | null): Statement {
    return {
      sql: "UPDATE containers SET error_message = ? WHERE id = ? AND state = 'running'",
      args: [error_message, id],
    };
  }

  setWanted(id: string, is_wanted: boolean): Statement {
    return { sql: "UPDATE containers SET is_wanted = ? WHERE id = ?", args: [is_wanted ? 1 : 0, id] };
  }

  /** Conflict: another has the name. */
  rename(tenant_id: string, id: string, new_name: string): Statement {
    return {
      sql: `UPDATE containers SET name = ? WHERE id = ? AND is_removing = 0
        AND NOT EXISTS (SELECT 1 FROM containers WHERE tenant_id = ? AND name = ? AND id <> ?)`,
      expect_changes: 1,
      args: [new_name, id, tenant_id, new_name, id],
    };
  }

  /** Containers of the tenant that were started at least once, newest first. */
  listStarted<Item>(tenant_id: string, place: Place, toItem: (row: ContainerRow) => Item): Promise<Listed<Item>> {
    const select = `${SELECT} AND tenant_id = ? AND state <> 'created'`;
    return readPage(this.#store, select, [tenant_id], place, (row) => toItem(rowOf(row)));
  }

  /** Counts the containers of a tenant that were started at least once, by how they run or ended. */
  async endCounts(tenant_id: string) {
    const ends = `SELECT state, is_wanted, coalesce(exit_code, -1) = 0 AS is_zero, error_message IS NULL AS is_silent
      FROM containers WHERE is_removing = 0 AND tenant_id = ? AND state <> 'created'`;
    const sql = `SELECT state, is_wanted, is_zero, is_silent, count(*) AS count FROM (${ends})
      GROUP BY state, is_wanted, is_zero, is_silent`;
    return (await this.#store.read(sql, [tenant_id])).map((row) => ({
      state: row.state as ContainerState,
      is_wanted: row.is_wanted === 1,
      exit_code: row.is_zero === 1 ? 0 : 1,
      error_message: row.is_silent === 1 ? null : "",
      count: Number(row.count),
    }));
  }

  /** Containers of the tenant with a link or a reserved address, newest first. */
  listAddressed<Item>(tenant_id: string, place: Place, toItem: (row: ContainerRow) => Item): Promise<Listed<Item>> {
    const where = "(state IN ('starting', 'running') OR reserved_address IS NOT NULL)";
    return readPage(this.#store, `${SELECT} AND tenant_id = ? AND ${where}`, [tenant_id], place, (row) =>
      toItem(rowOf(row)),
    );
  }

  /** Addresses that containers of this node reserved, those that are being removed among them. */
  async reservedAddresses(): Promise<readonly Reservation[]> {
    const sql = "SELECT id, reserved_address FROM containers WHERE node_seq = ? AND reserved_address IS NOT NULL";
    const rows = await this.#store.read(sql, [this.#node.seq]);
    return rows.map(({ id, reserved_address }) => ({ id: String(id), address: String(reserved_address) }));
  }

  /** Conflict: containers of the tenant, or of all, have reserved as many addresses as may be. `id` does not count. */
  addressRoom(tenant_id: string, id: string, tenant_max: number, all_max: number): Statement {
    const count = "SELECT count(*) FROM containers WHERE node_seq = ? AND reserved_address IS NOT NULL AND id <> ?";
    const held = [this.#node.seq, id];
    const condition = `(${count} AND tenant_id = ?) < ? AND (${count}) < ?`;
    return tenantGuard(tenant_id, condition, [...held, tenant_id, tenant_max, ...held, all_max]);
  }

  /** Conflict: another container has reserved the address, or this one is gone. Null: none from now on. */
  setAddress(id: string, address: string | null, reserved_at: EpochSeconds | null): Statement {
    return {
      sql: `UPDATE containers SET reserved_address = ?, reserved_at = ? WHERE id = ? AND is_removing = 0
        AND NOT EXISTS (SELECT 1 FROM containers WHERE node_seq = ? AND reserved_address = ? AND id <> ?)`,
      expect_changes: 1,
      args: [address, reserved_at, id, this.#node.seq, address, id],
    };
  }

  /** Conflict: it is gone. */
  setEgress(id: string, egress: readonly string[]): Statement {
    const sql = `UPDATE containers SET make = ${jsonChanged("make", ["egress"])} WHERE id = ? AND is_removing = 0`;
    return { sql, args: [JSON.stringify(egress), id], expect_changes: 1 };
  }

  /** Tenant of a container, one that is being removed too; null: there is none. */
  async ownerOf(id: string): Promise<string | null> {
    return textOrNull((await this.#store.readOne("SELECT tenant_id FROM containers WHERE id = ?", [id]))?.tenant_id);
  }

  setEnvironment(id: string, environment: Readonly<Record<string, string>>): Statement {
    return {
      sql: "UPDATE containers SET environment = ? WHERE id = ? AND is_removing = 0",
      expect_changes: 1,
      args: [JSON.stringify(environment), id],
    };
  }

  /** From here on nobody sees it, and its name is free. The one it gets instead nobody can have given: of a '/'. */
  hide(id: string): Statement {
    return {
      sql: "UPDATE containers SET is_removing = 1, name = '/' || id WHERE id = ? AND is_removing = 0",
      expect_changes: 1,
      args: [id],
    };
  }

  delete(id: string): Statement {
    return { sql: "DELETE FROM containers WHERE id = ?", args: [id] };
  }

  async #one(sql: string, args: readonly string[]): Promise<ContainerRow | null> {
    const row = await this.#store.readOne(sql, args);
    return row === null ? null : rowOf(row);
  }
}

export interface MoveFields {
  readonly is_wanted?: boolean;
  readonly exit_code?: number | null;
  readonly oom_killed?: boolean;
  readonly error_message?: string | null;
  readonly restart_count?: number;
  readonly started_at_ms?: EpochMs;
  readonly exited_at_ms?: EpochMs | null;
}

/** Fields of a new container. */
export const NEVER_STARTED = {
  ...{ exit_code: null, oom_killed: false, error_message: null },
  ...{ restart_count: 0, started_at_ms: null, exited_at_ms: null },
  ...{ reserved_address: null, reserved_at: null },
} as const;

/** Fields of a container that is made and started. */
export const STARTING = {
  ...NEVER_STARTED,
  ...({ state: "starting", is_wanted: true, origin: null, head_snapshot_id: null } as const),
} as const;

/** Returns the fields of a request that may be left out, as they are stored. */
export const optionalFields = (input: CreateContainer) => ({
  cpu_limit_percent: input.cpu_limit_percent ?? null,
  network: input.network ?? null,
  ttl_seconds: input.ttl_seconds ?? null,
  idle_seconds: input.idle_seconds ?? null,
});

/** Fields of a container that begins to run. */
export const BEGUN: MoveFields = { exit_code: null, oom_killed: false, exited_at_ms: null };

function rowOf(row: Row): ContainerRow {
  const make: Make = JSON.parse(String(row.make));
  return {
    // An earlier version stored none of these.
    ...PROFILE_SETTINGS,
    ...{ network: null, dns: false },
    ...make,
    // An earlier version stored the reference alone; `noteImages` has not found its image yet.
    image_id: make.image_id ?? make.image,
    id: String(row.id),
    tenant_id: String(row.tenant_id),
    node_seq: Number(row.node_seq),
    name: String(row.name),
    state: row.state as ContainerState,
    is_wanted: row.is_wanted === 1,
    memory_limit_mb: Number(row.memory_limit_mb),
    cpu_limit_percent: numberOrNull(row.cpu_limit_percent),
    labels: JSON.parse(String(row.labels)),
    environment: JSON.parse(String(row.environment)),
    exit_code: numberOrNull(row.exit_code),
    oom_killed: row.oom_killed === 1,
    error_message: textOrNull(row.error_message),
    restart_count: Number(row.restart_count),
    created_at_ms: Number(row.created_at_ms),
    started_at_ms: numberOrNull(row.started_at_ms),
    exited_at_ms: numberOrNull(row.exited_at_ms),
    origin: make.origin ?? null,
    head_snapshot_id: textOrNull(row.head_snapshot_id),
    reserved_address: textOrNull(row.reserved_address),
    reserved_at: numberOrNull(row.reserved_at),
  };
}

/** Counts the containers of a node by state; a state without containers has 0. */
export async function containerCounts(store: Store, { seq }: StoredNode): Promise<ReadonlyMap<ContainerState, number>> {
  const sql = "SELECT state, count(*) AS count FROM containers WHERE node_seq = ? GROUP BY state";
  const rows = await store.read(sql, [seq]);
  const found = new Map(rows.map(({ state, count }) => [String(state), Number(count)]));
  return new Map(CONTAINER_STATES.map((state) => [state, found.get(state) ?? 0]));
}
