/** Migrations from version 16 on, which migrations.ts appends to the earlier ones. */
export interface Migration {
  readonly version: number;
  readonly statements: readonly string[];
}

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
];
