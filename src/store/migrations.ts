/**
 * The schema as an ordered list of steps, which migrate.ts applies. A step that was released is never edited, only followed
 * by another.
 *
 * Text in a column must be declared TEXT (see `Value` in store.ts). Times are epoch seconds unless the name says `_ms`.
 */
import { LATER_MIGRATIONS, type Migration } from "./later-migrations.ts";

export type { Migration };

/**
 * Bytes of a record in the store: its texts, and a fixed sum for all else. The same as in src/functions/records/byte-paging.ts.
 */
const recordBytes = (row: string): string =>
  `500 + octet_length(${row}.stdout) + octet_length(${row}.stderr) + octet_length(${row}.timings)
    + coalesce(octet_length(${row}.error_message), 0)`;

/** The same with the columns of schema 15. */
const recordBytes15 = (row: string): string => `${recordBytes(row)} + coalesce(octet_length(${row}.result), 0)`;

const versionBytes = (row: string): string =>
  `500 + octet_length(${row}.handler) + octet_length(${row}.environment) + coalesce(octet_length(${row}.description), 0)`;

const versionBytes15 = (row: string): string =>
  `${versionBytes(row)} + coalesce(octet_length(${row}.options), 0) + coalesce(octet_length(${row}.note), 0)`;

/** Triggers that keep `functions.stored_bytes`, in the order in which `storedBytesTriggers` makes them. */
const STORED_BYTES_TRIGGERS = ["invocations_counted", "invocations_gone", "versions_kept", "versions_gone"];

/** Returns the statements that create these triggers, with the expressions of a schema for the bytes of a row. */
const storedBytesTriggers = (ofRecord: typeof recordBytes, ofVersion: typeof versionBytes): string[] => [
  `CREATE TRIGGER invocations_counted AFTER INSERT ON invocations BEGIN
        UPDATE functions SET invocation_count = invocation_count + 1, last_invoked_at = NEW.started_at,
          error_count = error_count + (NEW.status <> 'success'), stored_bytes = stored_bytes + ${ofRecord("NEW")}
          WHERE seq = NEW.function_seq;
      END`,
  `CREATE TRIGGER invocations_gone AFTER DELETE ON invocations BEGIN
        UPDATE functions SET stored_bytes = stored_bytes - (${ofRecord("OLD")}) WHERE seq = OLD.function_seq;
      END`,
  `CREATE TRIGGER versions_kept AFTER INSERT ON function_versions BEGIN
        UPDATE functions SET stored_bytes = stored_bytes + ${ofVersion("NEW")} WHERE seq = NEW.function_seq;
      END`,
  `CREATE TRIGGER versions_gone AFTER DELETE ON function_versions BEGIN
        UPDATE functions SET stored_bytes = stored_bytes - (${ofVersion("OLD")}) WHERE seq = OLD.function_seq;
      END`,
];

export const MIGRATIONS: readonly Migration[] = [
  {
    version: 1,
    statements: [
      "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
      "CREATE TABLE tenants (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL)",
      // `secret_sha256` is the hex digest of the whole key text, so that a bootstrap key of any form fits.
      `CREATE TABLE api_keys (
        id TEXT PRIMARY KEY,
        tenant_id TEXT NOT NULL REFERENCES tenants (id),
        name TEXT NOT NULL,
        secret_sha256 TEXT NOT NULL UNIQUE,
        scopes TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
      )`,
      `CREATE TABLE functions (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        cluster_id TEXT,
        name TEXT NOT NULL,
        description TEXT,
        state TEXT NOT NULL,
        current_version INTEGER NOT NULL,
        min_instances INTEGER NOT NULL,
        max_instances INTEGER NOT NULL,
        cleanup_on_exit INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        last_invoked_at INTEGER,
        invocation_count INTEGER NOT NULL DEFAULT 0,
        error_count INTEGER NOT NULL DEFAULT 0,
        error_message TEXT,
        UNIQUE (tenant_id, name)
      )`,
      `CREATE TABLE function_versions (
        function_seq INTEGER NOT NULL,
        version INTEGER NOT NULL,
        id TEXT NOT NULL UNIQUE,
        handler TEXT NOT NULL,
        runtime TEXT NOT NULL,
        environment TEXT NOT NULL,
        memory_limit_mb INTEGER NOT NULL,
        cpu_limit_percent REAL,
        timeout_seconds INTEGER NOT NULL,
        working_directory TEXT,
        image TEXT,
        description TEXT,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (function_seq, version)
      )`,
      // The invocation id carries the row number, so that looking one up needs no index of ids. Rows are appended in
      // the order of their numbers; an output of a megabyte in one lies in nobody's way, as it would in a key's tree.
      `CREATE TABLE invocations (
        seq INTEGER PRIMARY KEY,
        function_seq INTEGER NOT NULL,
        suffix TEXT NOT NULL,
        version INTEGER NOT NULL,
        status TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        ended_at INTEGER NOT NULL,
        duration_ms INTEGER NOT NULL,
        exit_code INTEGER,
        stdout TEXT NOT NULL,
        stderr TEXT NOT NULL,
        error_message TEXT,
        cold_start INTEGER NOT NULL,
        flags INTEGER NOT NULL,
        instance_nonce TEXT,
        timings TEXT NOT NULL
      )`,
      "CREATE INDEX invocations_of_function ON invocations (function_seq)",
      // Counted in the transaction of the record itself: no crash can make the count and the records disagree.
      `CREATE TRIGGER invocations_counted AFTER INSERT ON invocations BEGIN
        UPDATE functions SET invocation_count = invocation_count + 1, last_invoked_at = NEW.started_at,
          error_count = error_count + (NEW.status <> 'success') WHERE seq = NEW.function_seq;
      END`,
    ],
  },
  {
    version: 2,
    statements: [
      "ALTER TABLE functions ADD COLUMN concurrency_limit INTEGER",
      "ALTER TABLE functions ADD COLUMN api_access INTEGER NOT NULL DEFAULT 0",
    ],
  },
  {
    version: 3,
    statements: [
      `UPDATE api_keys SET scopes = '["read","invoke","write","admin"]' WHERE scopes = '["*"]'`,
      "CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id)",
      "ALTER TABLE tenants ADD COLUMN state TEXT NOT NULL DEFAULT 'active'",
      // Null: no limit.
      "ALTER TABLE tenants ADD COLUMN requests_per_second REAL",
      "ALTER TABLE tenants ADD COLUMN functions_max INTEGER",
      "ALTER TABLE tenants ADD COLUMN instances_max INTEGER",
      "ALTER TABLE tenants ADD COLUMN memory_mb_max INTEGER",
      "ALTER TABLE tenants ADD COLUMN storage_mb_max INTEGER",
      // Bytes of a function's versions and records, kept in the transactions that change them.
      "ALTER TABLE functions ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0",
      `UPDATE functions SET stored_bytes =
        coalesce((SELECT sum(${recordBytes("i")}) FROM invocations i WHERE i.function_seq = functions.seq), 0)
        + coalesce((SELECT sum(${versionBytes("v")}) FROM function_versions v WHERE v.function_seq = functions.seq), 0)`,
      "DROP TRIGGER invocations_counted",
      ...storedBytesTriggers(recordBytes, versionBytes),
    ],
  },
  {
    version: 4,
    statements: [
      // A number is never given twice, whatever was deleted: readers resume by it.
      `CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        name TEXT NOT NULL,
        event_type TEXT NOT NULL,
        container_id TEXT,
        operation_id TEXT,
        snapshot_id TEXT,
        data TEXT NOT NULL
      )`,
      "CREATE INDEX events_of_tenant ON events (tenant_id, seq)",
      // Up to where a tenant's events are gone.
      "CREATE TABLE event_horizons (tenant_id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID",
      `CREATE TABLE operations (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        id TEXT NOT NULL UNIQUE,
        operation_type TEXT NOT NULL,
        target_resource_type TEXT,
        target_resource_id TEXT,
        status TEXT NOT NULL,
        idempotency_key TEXT,
        request_sha256 TEXT,
        input TEXT NOT NULL,
        journal TEXT NOT NULL,
        progress_pct REAL,
        message TEXT,
        result TEXT,
        items TEXT,
        warnings TEXT,
        capability_downgrades TEXT,
        failure TEXT,
        container_id TEXT,
        snapshot_id TEXT,
        result_container_id TEXT,
        is_attached INTEGER NOT NULL,
        is_cancel_asked INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        started_at INTEGER,
        updated_at INTEGER NOT NULL,
        completed_at INTEGER,
        deadline_ms INTEGER NOT NULL
      )`,
      "CREATE INDEX operations_of_tenant ON operations (tenant_id, seq)",
      "CREATE INDEX operations_of_target ON operations (tenant_id, target_resource_id, seq)",
      "CREATE INDEX operations_open ON operations (seq) WHERE completed_at IS NULL",
      "CREATE INDEX operations_ended ON operations (completed_at) WHERE completed_at IS NOT NULL",
      "CREATE UNIQUE INDEX operations_once ON operations (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
    ],
  },
  {
    version: 5,
    statements: [
      // `make` is what a container was made with and keeps, as JSON. Times in milliseconds, as its record shows them.
      `CREATE TABLE containers (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        is_wanted INTEGER NOT NULL,
        is_removing INTEGER NOT NULL,
        make TEXT NOT NULL,
        memory_limit_mb INTEGER NOT NULL,
        cpu_limit_percent REAL,
        labels TEXT NOT NULL,
        environment TEXT NOT NULL,
        exit_code INTEGER,
        oom_killed INTEGER NOT NULL,
        error_message TEXT,
        restart_count INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        started_at_ms INTEGER,
        exited_at_ms INTEGER,
        UNIQUE (tenant_id, name)
      )`,
      `CREATE TABLE exec_jobs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        container_id TEXT NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
        command TEXT NOT NULL,
        status TEXT NOT NULL,
        exit_code INTEGER,
        pid INTEGER,
        started_at INTEGER NOT NULL,
        completed_at INTEGER,
        duration_ms INTEGER,
        timed_out INTEGER NOT NULL DEFAULT 0,
        error_message TEXT,
        stdout_truncated INTEGER NOT NULL DEFAULT 0,
        stderr_truncated INTEGER NOT NULL DEFAULT 0,
        stdout TEXT NOT NULL DEFAULT '',
        stderr TEXT NOT NULL DEFAULT ''
      )`,
      "CREATE INDEX exec_jobs_of_container ON exec_jobs (container_id, seq)",
      `CREATE TABLE volumes (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        name TEXT NOT NULL,
        labels TEXT NOT NULL,
        quota_mb INTEGER,
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        UNIQUE (tenant_id, name)
      )`,
      // What a container has: neither of the two is deleted without the other's knowing.
      `CREATE TABLE container_volumes (
        container_id TEXT NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
        volume_id TEXT NOT NULL REFERENCES volumes (id),
        target TEXT NOT NULL,
        PRIMARY KEY (container_id, target)
      ) WITHOUT ROWID`,
      "CREATE INDEX container_volumes_of_volume ON container_volumes (volume_id)",
    ],
  },
  {
    version: 6,
    statements: [
      // Limits that the operator set, as JSON by the names of src/base/tenant-limits.ts. Absent: the default; null: no limit.
      "ALTER TABLE tenants ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'",
      // A merge patch leaves out what is null.
      `UPDATE tenants SET limits = json_patch('{}', json_object('requests_per_second', requests_per_second, 'functions_max',
        functions_max, 'instances_max', instances_max, 'memory_mb_max', memory_mb_max, 'storage_mb_max', storage_mb_max))`,
      ...["requests_per_second", "functions_max", "instances_max", "memory_mb_max", "storage_mb_max"].map(
        (column) => `ALTER TABLE tenants DROP COLUMN ${column}`,
      ),
    ],
  },
  {
    version: 7,
    statements: [
      // Containers that strict made with a read-only root keep it.
      `UPDATE containers SET make = json_set(make, '$.read_only_root',
        json(CASE WHEN json_extract(make, '$.strict') THEN 'true' ELSE 'false' END))`,
    ],
  },
  {
    version: 8,
    statements: [
      // Readers see numbers of their tenant alone, which tell nothing of others. Those given before stay as they are.
      "ALTER TABLE events ADD COLUMN number INTEGER NOT NULL DEFAULT 0",
      "UPDATE events SET number = seq",
      "DROP INDEX events_of_tenant",
      "CREATE UNIQUE INDEX events_of_tenant ON events (tenant_id, number)",
      "ALTER TABLE event_horizons RENAME COLUMN seq TO number",
    ],
  },
  {
    version: 9,
    statements: [
      // `tenant_id` is empty where no credential was accepted.
      `CREATE TABLE audit (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        tenant_id TEXT NOT NULL,
        credential TEXT,
        key_id TEXT,
        address TEXT,
        method TEXT NOT NULL,
        route TEXT NOT NULL,
        operation TEXT NOT NULL,
        target TEXT,
        status INTEGER NOT NULL,
        error_code TEXT,
        request_id TEXT NOT NULL,
        is_refusal INTEGER NOT NULL,
        suppressed_count INTEGER NOT NULL
      )`,
      "CREATE INDEX audit_of_tenant ON audit (tenant_id, seq)",
      "CREATE INDEX audit_of_kind ON audit (tenant_id, is_refusal, seq)",
      "CREATE INDEX audit_by_time ON audit (at_ms)",
    ],
  },
  {
    version: 10,
    statements: [
      "DROP INDEX operations_once",
      "ALTER TABLE operations DROP COLUMN idempotency_key",
      "ALTER TABLE operations DROP COLUMN request_sha256",
      // Answers of requests that carried an Idempotency-Key. `route` is the name of the operation in the API.
      `CREATE TABLE idempotency_keys (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        route TEXT NOT NULL,
        key TEXT NOT NULL,
        request_sha256 TEXT NOT NULL,
        status INTEGER NOT NULL,
        body TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (tenant_id, route, key)
      )`,
      "CREATE INDEX idempotency_keys_of_tenant ON idempotency_keys (tenant_id, seq)",
      "CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at)",
    ],
  },
  {
    version: 11,
    statements: [
      // At startup the daemon reads the jobs that an earlier process left running: few of many.
      "CREATE INDEX exec_jobs_running ON exec_jobs (container_id) WHERE status = 'running'",
    ],
  },
  {
    version: 12,
    statements: [
      // An operation names by type and id the resource that it changes and the one that it made beside it.
      "ALTER TABLE operations ADD COLUMN made_resource_type TEXT",
      "ALTER TABLE operations ADD COLUMN made_resource_id TEXT",
      `UPDATE operations SET target_resource_type = 'container', target_resource_id = container_id
        WHERE target_resource_id IS NULL AND container_id IS NOT NULL`,
      `UPDATE operations SET made_resource_type = 'container', made_resource_id = result_container_id
        WHERE result_container_id IS NOT NULL`,
      `UPDATE operations SET made_resource_type = 'snapshot', made_resource_id = snapshot_id
        WHERE snapshot_id IS NOT NULL AND made_resource_id IS NULL`,
      ...["container_id", "snapshot_id", "result_container_id"].map(
        (column) => `ALTER TABLE operations DROP COLUMN ${column}`,
      ),
    ],
  },
  {
    version: 13,
    statements: [
      // Rows name their node by number: the default costs existing rows nothing and new ones no byte.
      "CREATE TABLE nodes (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE)",
      "INSERT INTO nodes (seq, id) SELECT 1, value FROM meta WHERE key = 'node_id'",
      ...["functions", "invocations", "containers", "volumes"].map(
        (table) => `ALTER TABLE ${table} ADD COLUMN node_seq INTEGER NOT NULL DEFAULT 1`,
      ),
    ],
  },
  {
    version: 14,
    statements: ["CREATE INDEX versions_of_image ON function_versions (image) WHERE image IS NOT NULL"],
  },
  {
    version: 15,
    statements: [
      // Trees of files that versions have at /function, by the digest of their content; each tenant has a row of its own.
      `CREATE TABLE code (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        digest TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        entry_count INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (tenant_id, digest)
      )`,
      "CREATE INDEX code_by_digest ON code (digest)",
      // `kind` is a namespace. `key_id` names the key that encrypts `value`, which is last: other columns are read without it.
      `CREATE TABLE secrets (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        key_id TEXT NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (tenant_id, kind, name)
      )`,
      "CREATE INDEX secrets_in_order ON secrets (tenant_id, kind)",
      "CREATE INDEX secrets_by_key ON secrets (key_id)",
      "ALTER TABLE function_versions ADD COLUMN code TEXT",
      // JSON of the settings that a version may leave out; null: none is set.
      "ALTER TABLE function_versions ADD COLUMN options TEXT",
      "ALTER TABLE function_versions ADD COLUMN made_by TEXT",
      "ALTER TABLE function_versions ADD COLUMN note TEXT",
      "CREATE INDEX versions_of_code ON function_versions (code) WHERE code IS NOT NULL",
      // JSON that the handler returned.
      "ALTER TABLE invocations ADD COLUMN result TEXT",
      ...STORED_BYTES_TRIGGERS.map((trigger) => `DROP TRIGGER ${trigger}`),
      ...storedBytesTriggers(recordBytes15, versionBytes15),
    ],
  },
  ...LATER_MIGRATIONS,
];
