/** Migrations from version 16 on, which migrations.ts appends to the earlier ones. */
export interface Migration {
  readonly version: number;
  readonly statements: readonly string[];
}

/** True for a version of schema 24 whose resident process ended what calls left behind. */
const IS_RESET = `runtime IN ('nodejs', 'python3', 'custom')
          AND function_seq IN (SELECT seq FROM functions WHERE cleanup_on_exit = 1)`;
const RESET_OPTIONS_BYTES = `coalesce((SELECT sum(coalesce(octet_length(options), 0)) FROM function_versions
        WHERE function_seq = functions.seq AND ${IS_RESET}), 0)`;

export const LATER_MIGRATIONS: readonly Migration[] = [
  {
    version: 16,
    statements: [
      // Images of tenants. Other columns are read without the last four, which are JSON; `details` are fields of the record.
      `CREATE TABLE oci_images (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        reference TEXT NOT NULL,
        image_id TEXT NOT NULL,
        manifest_digest TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        is_shared INTEGER NOT NULL DEFAULT 0,
        pulled_at INTEGER NOT NULL,
        last_used_at INTEGER,
        details TEXT NOT NULL,
        layers TEXT NOT NULL,
        manifest TEXT NOT NULL,
        config TEXT NOT NULL,
        UNIQUE (tenant_id, reference)
      )`,
      "CREATE INDEX oci_images_in_order ON oci_images (tenant_id, seq)",
      "CREATE INDEX oci_images_by_image ON oci_images (image_id)",
      "CREATE INDEX oci_images_shared ON oci_images (seq) WHERE is_shared = 1",
    ],
  },
  {
    version: 17,
    statements: [
      // `disk_mb` is what the limits count.
      `CREATE TABLE build_contexts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        node_seq INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        disk_mb INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
      )`,
      "CREATE INDEX build_contexts_in_order ON build_contexts (tenant_id, seq)",
      "CREATE INDEX build_contexts_by_expiry ON build_contexts (node_seq, expires_at)",
    ],
  },
  {
    version: 18,
    statements: [
      // What builds keep for later ones: `subvolume` has files, `image_id` is a result.
      `CREATE TABLE build_cache (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL, key TEXT NOT NULL, node_seq INTEGER NOT NULL,
        subvolume TEXT, image_id TEXT,
        size_bytes INTEGER NOT NULL, used_at INTEGER NOT NULL,
        UNIQUE (tenant_id, key, node_seq)
      )`,
      "CREATE INDEX build_cache_by_use ON build_cache (node_seq, used_at)",
    ],
  },
  {
    version: 19,
    statements: [
      // Snapshots of containers, and of volumes alone (`volume_id`). `details` is JSON and last: other columns are read without it.
      `CREATE TABLE snapshots (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        node_seq INTEGER NOT NULL,
        state TEXT NOT NULL,
        name TEXT,
        container_id TEXT,
        volume_id TEXT,
        source_name TEXT NOT NULL,
        parent_id TEXT,
        image_id TEXT,
        image_release TEXT,
        is_pinned INTEGER NOT NULL DEFAULT 0,
        is_scheduled INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        ttl_seconds INTEGER,
        expires_at INTEGER,
        size_bytes INTEGER,
        disk_mb INTEGER NOT NULL DEFAULT 0,
        labels TEXT NOT NULL,
        details TEXT NOT NULL
      )`,
      "CREATE INDEX snapshots_in_order ON snapshots (tenant_id, seq)",
      "CREATE INDEX snapshots_of_container ON snapshots (container_id, seq)",
      "CREATE INDEX snapshots_of_volume ON snapshots (volume_id, seq) WHERE volume_id IS NOT NULL",
      "CREATE INDEX snapshots_by_parent ON snapshots (parent_id) WHERE parent_id IS NOT NULL",
      "CREATE INDEX snapshots_by_image ON snapshots (image_id) WHERE image_id IS NOT NULL",
      "CREATE INDEX snapshots_by_expiry ON snapshots (node_seq, expires_at) WHERE expires_at IS NOT NULL",
      // When snapshots of a container or volume are taken by themselves. `due_at`: of the next one.
      `CREATE TABLE snapshot_schedules (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL,
        node_seq INTEGER NOT NULL,
        source_kind TEXT NOT NULL,
        source_id TEXT NOT NULL UNIQUE,
        every_seconds INTEGER NOT NULL,
        keep INTEGER NOT NULL,
        settings TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        last_snapshot_id TEXT,
        last_error TEXT
      )`,
      "CREATE INDEX snapshot_schedules_due ON snapshot_schedules (node_seq, due_at)",
      "CREATE INDEX snapshot_schedules_of_tenant ON snapshot_schedules (tenant_id)",
      "ALTER TABLE containers ADD COLUMN head_snapshot_id TEXT",
      "CREATE INDEX containers_by_head ON containers (head_snapshot_id) WHERE head_snapshot_id IS NOT NULL",
    ],
  },
  {
    version: 20,
    statements: [
      // `email` is lower case and NFC. `password` is a PHC string with the parameters of its hash.
      `CREATE TABLE users (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        email TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        password TEXT NOT NULL,
        created_at INTEGER NOT NULL
      )`,
      "CREATE INDEX users_of_tenant ON users (tenant_id)",
      // `secret_sha256` is the digest of the refresh token, `spent_sha256` JSON of those of used ones, `source` where it began.
      `CREATE TABLE user_logins (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        user_id TEXT NOT NULL,
        tenant_id TEXT NOT NULL,
        source TEXT NOT NULL,
        secret_sha256 TEXT NOT NULL,
        spent_sha256 TEXT NOT NULL DEFAULT '[]',
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
      )`,
      "CREATE INDEX user_logins_of_user ON user_logins (user_id, seq)",
      "CREATE INDEX user_logins_of_tenant ON user_logins (tenant_id)",
      "CREATE INDEX user_logins_by_expiry ON user_logins (expires_at)",
      "ALTER TABLE api_keys ADD COLUMN scope_type TEXT NOT NULL DEFAULT 'full'",
      "ALTER TABLE api_keys ADD COLUMN last_used_at INTEGER",
      // The containers of keys whose `scope_type` is container. Such a key ends with the last of them.
      `CREATE TABLE api_key_containers (
        key_id TEXT NOT NULL,
        container_id TEXT NOT NULL,
        PRIMARY KEY (key_id, container_id)
      ) WITHOUT ROWID`,
      "CREATE INDEX api_key_containers_by_container ON api_key_containers (container_id)",
      `CREATE TRIGGER api_keys_gone AFTER DELETE ON api_keys BEGIN
        DELETE FROM api_key_containers WHERE key_id = OLD.id;
      END`,
      `CREATE TRIGGER containers_keys_gone AFTER UPDATE OF is_removing ON containers WHEN NEW.is_removing = 1 BEGIN
        DELETE FROM api_keys WHERE id IN (SELECT key_id FROM api_key_containers AS own WHERE container_id = OLD.id
          AND NOT EXISTS (SELECT 1 FROM api_key_containers WHERE key_id = own.key_id AND container_id <> OLD.id));
        DELETE FROM api_key_containers WHERE container_id = OLD.id;
      END`,
    ],
  },
  {
    version: 21,
    statements: [
      // Published services; the token of each is a secret of the kind `service` under its id. `address`: null while a domain is set.
      `CREATE TABLE services (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tenant_id TEXT NOT NULL,
        node_seq INTEGER NOT NULL,
        container_id TEXT NOT NULL,
        name TEXT NOT NULL,
        target_port INTEGER NOT NULL,
        auth_mode TEXT NOT NULL,
        enable_websockets INTEGER NOT NULL,
        label TEXT NOT NULL UNIQUE,
        address TEXT,
        hostname TEXT UNIQUE,
        created_at INTEGER NOT NULL,
        rotated_at INTEGER,
        expires_at INTEGER,
        UNIQUE (container_id, name),
        UNIQUE (node_seq, address)
      )`,
      "CREATE INDEX services_in_order ON services (tenant_id, seq)",
      "CREATE INDEX services_of_node ON services (node_seq, seq)",
      "CREATE INDEX services_by_expiry ON services (expires_at) WHERE expires_at IS NOT NULL",
      // Services end with their container, in the batch that hides it.
      `CREATE TRIGGER services_end AFTER UPDATE OF is_removing ON containers WHEN NEW.is_removing = 1 BEGIN
        DELETE FROM services WHERE container_id = NEW.id;
      END`,
      `CREATE TRIGGER service_tokens_end AFTER DELETE ON services BEGIN
        DELETE FROM secrets WHERE tenant_id = OLD.tenant_id AND kind = 'service' AND name = OLD.id;
      END`,
      // JSON: host names that services of the tenant may have.
      "ALTER TABLE tenants ADD COLUMN service_hostnames TEXT NOT NULL DEFAULT '[]'",
    ],
  },
  {
    version: 22,
    statements: [
      // An address that a container keeps while it does not run, and when it was reserved.
      "ALTER TABLE containers ADD COLUMN reserved_address TEXT",
      "ALTER TABLE containers ADD COLUMN reserved_at INTEGER",
      `CREATE UNIQUE INDEX containers_by_address ON containers (node_seq, reserved_address)
        WHERE reserved_address IS NOT NULL`,
    ],
  },
  {
    version: 23,
    statements: [
      // Messages. Entries of an inbox have the row numbers inbox_no * 2^32 + stream_seq, dead letters those of their tenant.
      `CREATE TABLE icc_tenants (
        tenant_no INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_id TEXT NOT NULL UNIQUE,
        dead_last_seq INTEGER NOT NULL DEFAULT 0,
        dead_bytes INTEGER NOT NULL DEFAULT 0,
        state_count INTEGER NOT NULL DEFAULT 0,
        state_bytes INTEGER NOT NULL DEFAULT 0,
        state_floor INTEGER NOT NULL DEFAULT 0
      )`,
      // `entries` and `bytes` count all rows that are kept.
      `CREATE TABLE icc_inboxes (
        inbox_no INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant_no INTEGER NOT NULL,
        name TEXT NOT NULL,
        last_seq INTEGER NOT NULL DEFAULT 0,
        entries INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        state_version INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant_no, name)
      )`,
      // `due_ms`: when an unread entry is delivered next. `lease`: the number of the delivery that is held; 0: none.
      // `carried_seq`: where a server behind the bus keeps the envelope, which is then null.
      `CREATE TABLE icc_entries (
        id INTEGER PRIMARY KEY,
        inbox_no INTEGER NOT NULL,
        tenant_no INTEGER NOT NULL,
        state INTEGER NOT NULL,
        due_ms INTEGER NOT NULL DEFAULT 0,
        deliveries INTEGER NOT NULL DEFAULT 0,
        lease INTEGER NOT NULL DEFAULT 0,
        is_action INTEGER NOT NULL DEFAULT 0,
        created_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        carried_seq INTEGER,
        msg_id TEXT NOT NULL,
        envelope BLOB
      )`,
      "CREATE UNIQUE INDEX icc_entries_by_message ON icc_entries (tenant_no, msg_id, inbox_no)",
      // With the columns that counts of unread and held entries read: rows lie on pages beside their envelopes.
      "CREATE INDEX icc_entries_unread ON icc_entries (inbox_no, id, expires_ms, due_ms, lease) WHERE state = 0",
      "CREATE INDEX icc_entries_actions ON icc_entries (inbox_no) WHERE state = 0 AND is_action = 1",
      "CREATE INDEX icc_entries_ended ON icc_entries (inbox_no, state, id) WHERE state > 1",
      "CREATE INDEX icc_entries_carried ON icc_entries (carried_seq) WHERE carried_seq IS NOT NULL",
      `CREATE TABLE icc_keys (
        inbox_no INTEGER NOT NULL,
        idempotency_key TEXT NOT NULL,
        msg_id TEXT NOT NULL,
        stream_seq INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        PRIMARY KEY (inbox_no, idempotency_key)
      ) WITHOUT ROWID`,
      "CREATE INDEX icc_keys_by_expiry ON icc_keys (expires_ms)",
      "CREATE INDEX icc_keys_by_entry ON icc_keys (inbox_no, stream_seq)",
      `CREATE TABLE icc_dead (
        id INTEGER PRIMARY KEY,
        inbox TEXT NOT NULL,
        stream_seq INTEGER NOT NULL,
        msg_id TEXT NOT NULL,
        reason TEXT NOT NULL,
        deliveries INTEGER NOT NULL,
        created_ms INTEGER NOT NULL,
        replayed_ms INTEGER,
        envelope BLOB NOT NULL
      )`,
      "CREATE INDEX icc_dead_by_age ON icc_dead (created_ms)",
      `CREATE TRIGGER icc_dead_counted AFTER INSERT ON icc_dead BEGIN
        UPDATE icc_tenants SET dead_bytes = dead_bytes + length(NEW.envelope) WHERE tenant_no = NEW.id >> 32;
      END`,
      `CREATE TRIGGER icc_dead_uncounted AFTER DELETE ON icc_dead BEGIN
        UPDATE icc_tenants SET dead_bytes = dead_bytes - length(OLD.envelope) WHERE tenant_no = OLD.id >> 32;
      END`,
      // Inboxes that are gone, until their entries are deleted.
      "CREATE TABLE icc_gone (inbox_no INTEGER PRIMARY KEY)",
      `CREATE TRIGGER icc_inboxes_gone AFTER DELETE ON icc_inboxes BEGIN
        INSERT INTO icc_gone (inbox_no) VALUES (OLD.inbox_no);
      END`,
      // The highest permission level that messages of a container itself may have; none: READ_ONLY.
      "CREATE TABLE icc_grants (container_id TEXT PRIMARY KEY, permission_level TEXT NOT NULL) WITHOUT ROWID",
      // Inboxes that get a copy of what is published to a topic.
      `CREATE TABLE icc_subscriptions (
        tenant_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        inbox TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (tenant_id, topic, inbox)
      ) WITHOUT ROWID`,
      "CREATE INDEX icc_subscriptions_by_inbox ON icc_subscriptions (tenant_id, inbox)",
      // Functions that the daemon calls for messages. `subject` and `message_type`: null means any.
      `CREATE TABLE icc_bindings (
        id TEXT PRIMARY KEY,
        tenant_id TEXT NOT NULL,
        function_id TEXT NOT NULL,
        subject TEXT,
        message_type TEXT,
        is_ordered INTEGER NOT NULL,
        replies INTEGER NOT NULL,
        max_deliver INTEGER NOT NULL,
        backoff_ms INTEGER NOT NULL,
        concurrency INTEGER NOT NULL,
        created_at INTEGER NOT NULL
      ) WITHOUT ROWID`,
      "CREATE INDEX icc_bindings_by_tenant ON icc_bindings (tenant_id, id)",
      "CREATE INDEX icc_bindings_by_function ON icc_bindings (function_id)",
      // A binding ends with its function, and its inbox with it.
      `CREATE TRIGGER functions_bindings_end AFTER DELETE ON functions BEGIN
        DELETE FROM icc_bindings WHERE function_id = OLD.id;
      END`,
      `CREATE TRIGGER icc_bindings_end AFTER DELETE ON icc_bindings BEGIN
        DELETE FROM icc_inboxes WHERE name = 'binding:' || OLD.id
          AND tenant_no = (SELECT tenant_no FROM icc_tenants WHERE tenant_id = OLD.tenant_id);
      END`,
      // Keys and values of tenants. `state_floor`: the highest version of a key that was deleted.
      `CREATE TABLE icc_states (
        id INTEGER PRIMARY KEY,
        tenant_id TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        content_type TEXT NOT NULL,
        set_by TEXT NOT NULL,
        msg_id TEXT,
        data BLOB NOT NULL,
        UNIQUE (tenant_id, key)
      )`,
      `CREATE TRIGGER icc_states_end AFTER DELETE ON icc_states BEGIN
        UPDATE icc_tenants SET state_count = state_count - 1, state_bytes = state_bytes - OLD.bytes,
          state_floor = max(state_floor, OLD.version) WHERE tenant_id = OLD.tenant_id;
      END`,
      `CREATE TRIGGER tenants_inboxes_end AFTER DELETE ON tenants BEGIN
        DELETE FROM icc_bindings WHERE tenant_id = OLD.id;
        DELETE FROM icc_subscriptions WHERE tenant_id = OLD.id;
        DELETE FROM icc_inboxes WHERE tenant_no = (SELECT tenant_no FROM icc_tenants WHERE tenant_id = OLD.id);
        DELETE FROM icc_dead WHERE id >> 32 = (SELECT tenant_no FROM icc_tenants WHERE tenant_id = OLD.id);
        DELETE FROM icc_states WHERE tenant_id = OLD.id;
        DELETE FROM icc_tenants WHERE tenant_id = OLD.id;
      END`,
      // The inbox of a container ends with it, in the batch that hides it.
      `CREATE TRIGGER containers_inbox_ends AFTER UPDATE OF is_removing ON containers WHEN NEW.is_removing = 1 BEGIN
        DELETE FROM icc_inboxes WHERE name = NEW.id
          AND tenant_no = (SELECT tenant_no FROM icc_tenants WHERE tenant_id = NEW.tenant_id);
        DELETE FROM icc_grants WHERE container_id = NEW.id;
        DELETE FROM icc_subscriptions WHERE tenant_id = NEW.tenant_id AND inbox = NEW.id;
        DELETE FROM icc_bindings WHERE tenant_id = NEW.tenant_id AND subject = NEW.id;
        DELETE FROM icc_states WHERE tenant_id = NEW.tenant_id AND key = NEW.id;
      END`,
    ],
  },
  {
    version: 24,
    statements: [
      // Scopes that the calls of a version have in the API, as JSON.
      "ALTER TABLE function_versions ADD COLUMN api_scopes TEXT NOT NULL DEFAULT '[]'",
      // Earlier versions have what each key of their maker's name has; all that code may have if no such key is left.
      `UPDATE function_versions SET api_scopes = (
        SELECT json_group_array(code.value) FROM json_each('["read","invoke","write"]') AS code WHERE NOT EXISTS (
          SELECT 1 FROM api_keys WHERE api_keys.name = function_versions.made_by
            AND tenant_id = (SELECT tenant_id FROM functions WHERE seq = function_versions.function_seq)
            AND NOT EXISTS (SELECT 1 FROM json_each(api_keys.scopes) AS held WHERE held.value = code.value)))
        WHERE function_seq IN (SELECT seq FROM functions WHERE api_access = 1)`,
    ],
  },
  {
    version: 25,
    statements: [
      // Versions whose process was cleaned up after each call keep that. The texts of versions count in `stored_bytes`.
      `UPDATE functions SET stored_bytes = stored_bytes - ${RESET_OPTIONS_BYTES}`,
      `UPDATE function_versions SET options = json_set(coalesce(options, '{}'), '$.reset_between_calls', json('true'))
        WHERE ${IS_RESET}`,
      `UPDATE functions SET stored_bytes = stored_bytes + ${RESET_OPTIONS_BYTES}`,
    ],
  },
];
