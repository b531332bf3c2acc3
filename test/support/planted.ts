/** What a test writes into a daemon's store from the outside, where no route makes it in the form that is needed. */
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Connection } from "../../src/store/connection.ts";
import type { Statement } from "../../src/store/store.ts";
import type { Daemon } from "./daemon.ts";

export interface Planted {
  readonly tenant_id: string;
  readonly status?: string;
  readonly message?: string;
}

/** An operation that has ended. Returns its id. */
export function plantOperation(
  { data_dir }: Pick<Daemon, "data_dir">,
  { tenant_id, status = "succeeded", message = "done" }: Planted,
): string {
  const id = randomIds().next("op");
  const now = Math.floor(Date.now() / 1000);
  const row = {
    ...{ tenant_id, id, operation_type: "container.start", target_resource_type: "container" },
    ...{ target_resource_id: "ctr_planted", status, message, progress_pct: 100 },
    ...{
      input: "{}",
      journal: "{}",
      result: '{"container_id":"ctr_planted"}',
      is_attached: 0,
      deadline_ms: now * 1000,
    },
    ...{ created_at: now, started_at: now, updated_at: now, completed_at: now },
  };
  const connection = new Connection(`${data_dir}/hearth.db`, LIMITS);
  connection.run(
    `INSERT INTO operations (${Object.keys(row).join(", ")}) VALUES (${Object.keys(row).map(() => "?")})`,
    Object.values(row),
  );
  connection.close();
  return id;
}

/** Events of the operator's tenant, each with so many characters of data. */
export function plantEvents({ data_dir }: Pick<Daemon, "data_dir">, count: number, length: number): void {
  const connection = new Connection(`${data_dir}/hearth.db`, LIMITS);
  connection.run(
    `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      INSERT INTO events (tenant_id, number, at_ms, name, event_type, data)
      SELECT 'default', i + (SELECT coalesce(max(number), 0) FROM events WHERE tenant_id = 'default'), ?, 'container_update', 'planted', json_object('n', i, 'text', ?) FROM n`,
    [count, Date.now(), "x".repeat(length)],
  );
  connection.close();
}

/** A tenant's image that the image store does not have. */
export function plantImage(daemon: Pick<Daemon, "data_dir">, tenant_id: string, reference: string): void {
  const details = {
    ...{ architecture: "amd64", os: "linux", entrypoint: null, default_cmd: null, env: [], working_dir: null },
    ...{ exposed_ports: [], volumes: [], labels: {}, user_spec: null, created_at: null },
  };
  const layer = { digest: "sha256:1", size_bytes: 1, uncompressed_size: 1, media_type: "application/x" };
  const config = { architecture: "amd64", os: "linux" };
  const row = {
    ...{ tenant_id, reference, image_id: "0".repeat(64), manifest_digest: `sha256:${"0".repeat(64)}`, size_bytes: 1 },
    ...{ pulled_at: 1, details: JSON.stringify(details), layers: JSON.stringify([layer]), manifest: "{}" },
    config: JSON.stringify(config),
  };
  const marks = Object.keys(row).map(() => "?");
  plant(daemon, {
    sql: `INSERT INTO oci_images (${Object.keys(row).join(", ")}) VALUES (${marks})`,
    args: Object.values(row),
  });
}

/** Runs statements on a daemon's store beside the daemon. */
export function plant({ data_dir }: Pick<Daemon, "data_dir">, ...statements: readonly Statement[]): void {
  const connection = new Connection(`${data_dir}/hearth.db`, LIMITS);
  for (const { sql, args = [] } of statements) connection.run(sql, args);
  connection.close();
}

/** Copies a row of a table so often; `changed` are SQL expressions by column, in which `n.i` counts from `from`. */
export function plantCopies(
  { data_dir }: Pick<Daemon, "data_dir">,
  table: string,
  original: string,
  changed: Readonly<Record<string, string>>,
  count: number,
  from = 1,
): void {
  const connection = new Connection(`${data_dir}/hearth.db`, LIMITS);
  const columns = connection
    .rows(`SELECT name FROM pragma_table_info('${table}') WHERE name <> 'seq'`, [])
    .map(({ name }) => String(name));
  connection.run(
    `WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      INSERT INTO ${table} (${columns.join(", ")})
      SELECT ${columns.map((name) => changed[name] ?? `o.${name}`).join(", ")} FROM n, ${table} o WHERE o.${original}`,
    [from, from + count - 1],
  );
  connection.close();
}
