/** What a daemon has in its store, read from the outside while it runs. */
import { createHash } from "node:crypto";
import { LIMITS } from "../../src/base/limits.ts";
import { Connection } from "../../src/store/connection.ts";
import type { Row } from "../../src/store/store.ts";
import type { Daemon } from "./daemon.ts";

/** What requests change. */
const TABLES = {
  tenants: "SELECT * FROM tenants ORDER BY id",
  // Uses of keys are written behind requests, whatever these do.
  api_keys:
    "SELECT id, tenant_id, name, secret_sha256, scopes, scope_type, created_at, expires_at FROM api_keys ORDER BY id",
  api_key_containers: "SELECT * FROM api_key_containers ORDER BY key_id, container_id",
  users: "SELECT * FROM users ORDER BY seq",
  user_logins: "SELECT * FROM user_logins ORDER BY seq",
  functions: "SELECT * FROM functions ORDER BY seq",
  function_versions: "SELECT * FROM function_versions ORDER BY function_seq, version",
  invocations: "SELECT * FROM invocations ORDER BY seq",
  operations: "SELECT * FROM operations ORDER BY seq",
  build_cache: "SELECT * FROM build_cache ORDER BY seq",
  build_contexts: "SELECT * FROM build_contexts ORDER BY seq",
  containers: "SELECT * FROM containers ORDER BY seq",
  exec_jobs: "SELECT * FROM exec_jobs ORDER BY seq",
  oci_images: "SELECT * FROM oci_images ORDER BY seq",
  snapshots: "SELECT * FROM snapshots ORDER BY seq",
  snapshot_schedules: "SELECT * FROM snapshot_schedules ORDER BY seq",
  secrets: "SELECT * FROM secrets ORDER BY seq",
  services: "SELECT * FROM services ORDER BY seq",
  volumes: "SELECT * FROM volumes ORDER BY seq",
};

export type Table = keyof typeof TABLES;

export class StoreRows {
  readonly #connection: Connection;

  constructor({ data_dir }: Daemon) {
    this.#connection = new Connection(`${data_dir}/hearth.db`, LIMITS);
    this.#connection.exec("PRAGMA query_only=1");
  }

  read(sql: string, args: readonly string[] = []): Row[] {
    return this.#connection.rows(sql, args);
  }

  /** All rows but those of one tenant. */
  allBut(tenant_id: string): Record<string, Row[]> {
    const own = (row: Row) => row.tenant_id === tenant_id || row.id === tenant_id;
    const seqs = new Set(
      this.read("SELECT seq FROM functions WHERE tenant_id = ?", [tenant_id]).map(({ seq }) => Number(seq)),
    );
    return Object.fromEntries(
      Object.entries(TABLES).map(([table, sql]) => [
        table,
        this.read(sql).filter((row) => !own(row) && !seqs.has(Number(row.function_seq))),
      ]),
    );
  }

  /** One text for all that is in some tables, but the last use of keys, which is written some time later. */
  digest(tables: readonly Table[]): string {
    const hash = createHash("sha256");
    const shown = (name: string, value: unknown) => (name === "last_used_at" ? null : value);
    for (const table of tables) hash.update(JSON.stringify([table, this.read(TABLES[table])], shown));
    return hash.digest("hex");
  }

  close(): void {
    this.#connection.close();
  }
}
