/** Published services in the store: the SQL of this concern. */
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import { tenantGuard } from "../base/tenant-limits.ts";
import { numberOrNull, type Row, type Statement, type Store, type StoredNode, textOrNull } from "../store/store.ts";
import type { CreateService } from "./schema.ts";

export interface ServiceRow {
  readonly id: string;
  readonly tenant_id: string;
  /** The node that serves it. */
  readonly node_seq: number;
  readonly container_id: string;
  readonly name: string;
  readonly target_port: number;
  readonly auth_mode: CreateService["auth_mode"];
  readonly enable_websockets: boolean;
  /** Its name below the domain of services. */
  readonly label: string;
  /** Its loopback address; null: it has none. */
  readonly address: string | null;
  readonly hostname: string | null;
  readonly created_at: number;
  readonly rotated_at: number | null;
  readonly expires_at: number | null;
}

const SELECT = `SELECT seq, id, tenant_id, node_seq, container_id, name, target_port, auth_mode, enable_websockets, label,
  address, hostname, created_at, rotated_at, expires_at FROM services`;

export class ServiceRows {
  readonly #store: Store;
  readonly #node: StoredNode;

  constructor(store: Store, node: StoredNode) {
    this.#store = store;
    this.#node = node;
  }

  async byId(tenant_id: string, id: string): Promise<ServiceRow | null> {
    const row = await this.#store.readOne(`${SELECT} WHERE tenant_id = ? AND id = ?`, [tenant_id, id]);
    return row === null ? null : rowOf(row);
  }

  /** Newest first; `container_id`: null for all of the tenant. */
  list(tenant_id: string, container_id: string | null, place: Place): Promise<Listed<ServiceRow>> {
    const where = `${SELECT} WHERE tenant_id = ? AND container_id = coalesce(?, container_id)`;
    return readPage(this.#store, where, [tenant_id, container_id], place, rowOf);
  }

  /** Reads the services of this node, in the order of their creation. */
  async held(): Promise<readonly ServiceRow[]> {
    const sql = `${SELECT} WHERE node_seq = ? ORDER BY seq LIMIT ?`;
    return (await this.#store.read(sql, [this.#node.seq, LIMITS.services_max])).map(rowOf);
  }

  /** Conflict: the node has `services_max` services. */
  room(tenant_id: string): Statement {
    const held = "SELECT count(*) FROM services WHERE node_seq = ?";
    return tenantGuard(tenant_id, `(${held}) < ?`, [this.#node.seq, LIMITS.services_max]);
  }

  /** Deletes expired services that have the name, the host name or the address of a new one. */
  replaceExpired({ container_id, name, hostname, address }: ServiceRow, now: number): Statement {
    return {
      sql: `DELETE FROM services WHERE expires_at <= ?
        AND ((container_id = ? AND name = ?) OR hostname = ? OR (node_seq = ? AND address = ?))`,
      args: [now, container_id, name, hostname, this.#node.seq, address],
    };
  }

  /** Conflict: the container is gone, or the name, address or host name is taken. */
  insert(row: ServiceRow): Statement {
    return {
      sql: `INSERT INTO services (id, tenant_id, node_seq, container_id, name, target_port, auth_mode, enable_websockets,
        label, address, hostname, created_at, expires_at)
        SELECT ?, tenant_id, ?, id, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM containers
        WHERE id = ? AND tenant_id = ? AND is_removing = 0 ON CONFLICT DO NOTHING`,
      args: [
        ...[row.id, this.#node.seq, row.name, row.target_port, row.auth_mode, row.enable_websockets ? 1 : 0],
        ...[row.label, row.address, row.hostname, row.created_at, row.expires_at, row.container_id, row.tenant_id],
      ],
      expect_changes: 1,
    };
  }

  /** Reads which of the names of a service that was not inserted another one has. */
  async taken(row: ServiceRow): Promise<"name" | "hostname" | "address" | null> {
    const sql = `SELECT container_id = ? AND name = ? AS name, hostname = ? AS hostname, address = ? AS address FROM services
      WHERE (container_id = ? AND name = ?) OR hostname = ? OR (node_seq = ? AND address = ?)`;
    const { container_id, name, hostname, address } = row;
    const own = [container_id, name, hostname];
    const rows = await this.#store.read(sql, [...own, address, ...own, this.#node.seq, address]);
    return (["name", "hostname", "address"] as const).find((field) => rows.some((one) => one[field] === 1)) ?? null;
  }

  /** Conflict: another service has the address, or the service is gone. */
  setAddress(id: string, address: string): Statement {
    return {
      sql: `UPDATE services SET address = ? WHERE id = ?
        AND NOT EXISTS (SELECT 1 FROM services WHERE node_seq = ? AND address = ?)`,
      args: [address, id, this.#node.seq, address],
      expect_changes: 1,
    };
  }

  /** Conflict: it is gone. */
  setRotated(id: string, now: number): Statement {
    return { sql: "UPDATE services SET rotated_at = ? WHERE id = ?", args: [now, id], expect_changes: 1 };
  }

  /** Conflict: it is gone already. */
  delete(id: string): Statement {
    return { sql: "DELETE FROM services WHERE id = ?", args: [id], expect_changes: 1 };
  }

  /** Deletes services of all nodes that expired before a time; they are served no more. */
  deleteExpired(before: number): Statement {
    const some = "SELECT id FROM services WHERE expires_at <= ? LIMIT ?";
    return { sql: `DELETE FROM services WHERE id IN (${some})`, args: [before, LIMITS.delete_rows_per_pass] };
  }

  /** Reads the host names that the operator granted to a tenant. */
  async grants(tenant_id: string): Promise<readonly string[]> {
    const row = await this.#store.readOne("SELECT service_hostnames FROM tenants WHERE id = ?", [tenant_id]);
    return row === null ? [] : (JSON.parse(String(row.service_hostnames)) as string[]);
  }
}

function rowOf(row: Row): ServiceRow {
  return {
    id: String(row.id),
    tenant_id: String(row.tenant_id),
    node_seq: Number(row.node_seq),
    container_id: String(row.container_id),
    name: String(row.name),
    target_port: Number(row.target_port),
    auth_mode: row.auth_mode as ServiceRow["auth_mode"],
    enable_websockets: row.enable_websockets === 1,
    label: String(row.label),
    address: textOrNull(row.address),
    hostname: textOrNull(row.hostname),
    created_at: Number(row.created_at),
    rotated_at: numberOrNull(row.rotated_at),
    expires_at: numberOrNull(row.expires_at),
  };
}
