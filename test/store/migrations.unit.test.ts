/** A store that an earlier program wrote, brought up to date with what is in it. */
import { describe, expect, it } from "vitest";
import { ContainerRows } from "../../src/containers/rows.ts";
import { ImageRows } from "../../src/oci/rows.ts";
import { OperationRows } from "../../src/operations/rows.ts";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { NODE_ID, type Store } from "../../src/store/store.ts";
import { scratchStores } from "./scratch.ts";

/** Two-byte characters: what counts is bytes. */
const HANDLER = "echo é";
const ENVIRONMENT = '{"A":"ü"}';

async function writeFunction(store: Store, seq: number, versions: number): Promise<void> {
  await store.write([
    {
      sql: `INSERT INTO functions (seq, id, tenant_id, name, state, current_version, min_instances, max_instances,
        cleanup_on_exit, created_at, updated_at) VALUES (?, ?, 'default', ?, 'active', 1, 0, 1, 1, 0, 0)`,
      args: [seq, `fn_${seq}`, `f${seq}`],
    },
    ...Array.from({ length: versions }, (_, n) => ({
      sql: `INSERT INTO function_versions (function_seq, version, id, handler, runtime, environment, memory_limit_mb,
        timeout_seconds, description, created_at) VALUES (?, ?, ?, ?, 'shell', ?, 256, 30, ?, 0)`,
      args: [seq, n + 1, `fv_${seq}_${n}`, HANDLER, ENVIRONMENT, n === 0 ? null : "described"],
    })),
  ]);
}

async function writeRecord(store: Store, seq: number, function_seq: number, stdout: string, error: string | null) {
  await store.write([
    {
      sql: `INSERT INTO invocations (seq, function_seq, suffix, version, status, started_at, ended_at, duration_ms,
        stdout, stderr, error_message, cold_start, flags, timings)
        VALUES (?, ?, 'x', 1, ?, 5, 5, 1, ?, 'err', ?, 0, 0, '{}')`,
      args: [seq, function_seq, error === null ? "success" : "failed", stdout, error],
    },
  ]);
}

const versionBytes = (description: string | null) =>
  500 + Buffer.byteLength(HANDLER) + Buffer.byteLength(ENVIRONMENT) + (description ?? "").length;
const recordBytes = (stdout: string, error: string | null) =>
  500 + Buffer.byteLength(stdout) + "err".length + "{}".length + (error ?? "").length;

const stored = async (store: Store) =>
  Object.fromEntries(
    (await store.read("SELECT id, stored_bytes, invocation_count, error_count FROM functions ORDER BY seq")).map(
      ({ id, ...rest }) => [id, rest],
    ),
  );

describe("a store of schema 2", () => {
  const scratch = scratchStores();
  /** Three functions: with records, without, and without anything but its version. */
  const written = async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.slice(0, 2) });
    await old.write([
      { sql: "INSERT INTO tenants (id, name, created_at) VALUES ('default', 'default', 1)" },
      {
        sql: `INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at)
          VALUES ('bootstrap', 'default', 'bootstrap', 'x', '["*"]', 1), ('other', 'default', 'o', 'y', '["read"]', 1)`,
      },
    ]);
    await writeFunction(old, 1, 2);
    await writeFunction(old, 2, 1);
    await writeRecord(old, 10, 1, "é".repeat(1_000), null);
    await writeRecord(old, 11, 1, "", "boom");
    await old.close();
    return open();
  };
  const bytes1 =
    versionBytes(null) + versionBytes("described") + recordBytes("é".repeat(1_000), null) + recordBytes("", "boom");

  it("knows afterwards what each function takes, and the counts that it knew before", async () => {
    const store = await written();
    expect(await stored(store)).toEqual({
      fn_1: { stored_bytes: bytes1, invocation_count: 2, error_count: 1 },
      fn_2: { stored_bytes: versionBytes(null), invocation_count: 0, error_count: 0 },
    });
  });

  it("keeps count of what comes and goes from then on, down to nothing", async () => {
    const store = await written();
    await writeRecord(store, 12, 1, "more", null);
    await writeRecord(store, 13, 2, "first", "bad");
    expect(await stored(store)).toEqual({
      fn_1: { stored_bytes: bytes1 + recordBytes("more", null), invocation_count: 3, error_count: 1 },
      fn_2: { stored_bytes: versionBytes(null) + recordBytes("first", "bad"), invocation_count: 1, error_count: 1 },
    });
    await store.write([
      { sql: "DELETE FROM invocations WHERE seq IN (10, 13)" },
      { sql: "DELETE FROM function_versions WHERE function_seq = 1 AND version = 2" },
    ]);
    expect((await stored(store)).fn_1?.stored_bytes).toBe(
      versionBytes(null) + recordBytes("", "boom") + recordBytes("more", null),
    );
    expect((await stored(store)).fn_2?.stored_bytes).toBe(versionBytes(null));
    await store.write([{ sql: "DELETE FROM invocations" }, { sql: "DELETE FROM function_versions" }]);
    expect(await store.read("SELECT DISTINCT stored_bytes FROM functions")).toEqual([{ stored_bytes: 0 }]);
  });

  it("has its keys with the scopes of today and its tenants without limits", async () => {
    const store = await written();
    expect(await store.read("SELECT id, scopes FROM api_keys ORDER BY id")).toEqual([
      { id: "bootstrap", scopes: '["read","invoke","write","admin"]' },
      { id: "other", scopes: '["read"]' },
    ]);
    expect(await store.readOne("SELECT * FROM tenants")).toEqual({
      id: "default",
      name: "default",
      created_at: 1,
      state: "active",
      limits: "{}",
      service_hostnames: "[]",
    });
  });
});

describe("a store of schema 5", () => {
  const scratch = scratchStores();

  it("keeps the limits that its tenants have, and no others", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.slice(0, 5) });
    await old.write([
      {
        sql: `INSERT INTO tenants (id, name, created_at, requests_per_second, functions_max, storage_mb_max)
          VALUES ('a', 'a', 1, 0.5, 7, NULL), ('b', 'b', 1, NULL, NULL, NULL)`,
      },
    ]);
    await old.close();
    const store = open();
    expect(await store.read("SELECT id, limits FROM tenants ORDER BY id")).toEqual([
      { id: "a", limits: '{"requests_per_second":0.5,"functions_max":7}' },
      { id: "b", limits: "{}" },
    ]);
  });
});

describe("a store with containers that strict made with a read-only root", () => {
  const scratch = scratchStores();

  it("keeps that root read-only, and the others' writable", async () => {
    const { open } = scratch();
    const at = MIGRATIONS.findIndex(({ statements }) => statements.some((sql) => sql.includes("read_only_root")));
    const old = open({ migrations: MIGRATIONS.slice(0, at) });
    await old.write([{ sql: "INSERT INTO tenants (id, name, created_at) VALUES ('a', 'a', 1)" }]);
    for (const strict of [true, false]) {
      await old.write([
        {
          sql: `INSERT INTO containers (id, tenant_id, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
            environment, oom_killed, restart_count, created_at_ms) VALUES (?, 'a', ?, 'exited', 1, 0, ?, 512, '{}', '{}', 0, 0, 0)`,
          args: [`ctr_${strict}`, `${strict}`, JSON.stringify({ image: "x", strict })],
        },
      ]);
    }
    await old.close();
    const made = (await open().read("SELECT make FROM containers ORDER BY seq")).map(({ make }) =>
      JSON.parse(String(make)),
    );
    expect(made).toEqual([
      { image: "x", strict: true, read_only_root: true },
      { image: "x", strict: false, read_only_root: false },
    ]);
  });
});

describe("a store whose operations have one column per resource", () => {
  const scratch = scratchStores();

  it("reads each operation's target and what it made by type and id", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.slice(0, 11) });
    const ended = async (fields: Readonly<Record<string, string>>) => {
      const all = { ...fields, tenant_id: "a", input: "{}", journal: "{}", status: "succeeded" };
      await old.write([
        {
          sql: `INSERT INTO operations (${Object.keys(all).join(", ")}, is_attached, created_at, updated_at, deadline_ms)
            VALUES (${Object.keys(all).map(() => "?")}, 0, 1, 1, 1)`,
          args: Object.values(all),
        },
      ]);
    };
    const container = { target_resource_type: "container", target_resource_id: "ctr_1", container_id: "ctr_1" };
    await ended({ id: "start", operation_type: "container.start", ...container, result_container_id: "ctr_1" });
    await ended({ id: "snap", operation_type: "container.snapshot", ...container, snapshot_id: "snap_1" });
    await ended({ id: "bare", operation_type: "container.stop", container_id: "ctr_2" });
    await ended({ id: "none", operation_type: "container.batch", target_resource_type: "container" });
    await old.close();
    const rows = new OperationRows(open());
    const fieldsOf = async (id: string) => {
      const record = (await rows.byId("a", id))?.record;
      return [record?.target_resource_type, record?.container_id, record?.snapshot_id, record?.result_container_id];
    };
    expect(await fieldsOf("start")).toEqual(["container", "ctr_1", null, "ctr_1"]);
    expect(await fieldsOf("snap")).toEqual(["container", "ctr_1", "snap_1", null]);
    expect(await fieldsOf("bare")).toEqual(["container", "ctr_2", null, null]);
    expect(await fieldsOf("none")).toEqual(["container", null, null, null]);
  });
});

describe("a store without nodes", () => {
  const scratch = scratchStores();

  it("says that its own node ran and holds all that it has", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.slice(0, 12) });
    await writeFunction(old, 1, 1);
    await writeRecord(old, 1, 1, "out", null);
    await old.write([
      { sql: "INSERT INTO meta (key, value) VALUES ('node_id', 'node_old')" },
      {
        sql: `INSERT INTO containers (id, tenant_id, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
          environment, oom_killed, restart_count, created_at_ms)
          VALUES ('ctr_1', 'a', 'c', 'exited', 1, 0, '{}', 1, '{}', '{}', 0, 0, 1)`,
      },
      {
        sql: `INSERT INTO volumes (id, tenant_id, name, labels, status, created_at, updated_at)
          VALUES ('vol_1', 'a', 'v', '{}', 'active', 1, 1)`,
      },
    ]);
    await old.close();
    const store = open();
    for (const table of ["functions", "invocations", "containers", "volumes"]) {
      expect(await store.read(`SELECT ${NODE_ID} FROM ${table}`)).toEqual([{ node_id: "node_old" }]);
    }
  });
});

describe("a store of schema 19", () => {
  const scratch = scratchStores();

  it("has keys of the whole tenant and no users; keys of a container end with it", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.slice(0, 19) });
    const insertKey = (id: string) => ({
      sql: `INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at) VALUES (?, 'a', ?, ?, '["read"]', 1)`,
      args: [id, id, id],
    });
    await old.write([
      { sql: "INSERT INTO tenants (id, name, created_at) VALUES ('a', 'a', 1)" },
      insertKey("key_1"),
      ...["ctr_1", "ctr_2"].map((id) => ({
        sql: `INSERT INTO containers (id, tenant_id, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
          environment, oom_killed, restart_count, created_at_ms, node_seq)
          VALUES (?, 'a', ?, 'exited', 1, 0, '{}', 1, '{}', '{}', 0, 0, 1, 1)`,
        args: [id, id],
      })),
    ]);
    await old.close();
    const store = open();
    expect(await store.read("SELECT scope_type, last_used_at FROM api_keys")).toEqual([
      { scope_type: "full", last_used_at: null },
    ]);
    expect(await store.read("SELECT * FROM users")).toEqual([]);
    const bind = (key_id: string, container_id: string) => ({
      sql: "INSERT INTO api_key_containers (key_id, container_id) VALUES (?, ?)",
      args: [key_id, container_id],
    });
    const both = [bind("key_3", "ctr_1"), bind("key_3", "ctr_2")];
    await store.write([insertKey("key_2"), insertKey("key_3"), bind("key_2", "ctr_1"), ...both]);
    const rows = new ContainerRows(store, { id: "n", seq: 1 });
    const left = async () => (await store.read("SELECT id FROM api_keys ORDER BY id")).map(({ id }) => id);
    expect((await store.write([rows.hide("ctr_1")])).conflict).toBe(null);
    expect(await left()).toEqual(["key_1", "key_3"]);
    await store.write([rows.hide("ctr_2")]);
    expect(await left()).toEqual(["key_1"]);
    expect(await store.read("SELECT * FROM api_key_containers")).toEqual([]);
  });
});

describe("a store of schema 15", () => {
  const scratch = scratchStores();

  it("has no image of a tenant, and its containers keep theirs", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.slice(0, 15) });
    await old.write([
      { sql: "INSERT INTO tenants (id, name, created_at) VALUES ('a', 'a', 1)" },
      {
        sql: `INSERT INTO containers (id, tenant_id, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
          environment, oom_killed, restart_count, created_at_ms, node_seq)
          VALUES ('ctr_1', 'a', 'c', 'exited', 1, 0, '{"image":"x:1","image_id":"aa","release":null}', 1, '{}', '{}', 0, 0,
          1, 1)`,
      },
    ]);
    await old.close();
    const store = open();
    expect(await store.read("SELECT * FROM oci_images")).toEqual([]);
    expect(await new ContainerRows(store, { id: "n", seq: 1 }).images()).toEqual(["aa"]);
    expect(await store.read("SELECT * FROM build_contexts")).toEqual([]);
    expect(await store.read("SELECT * FROM build_cache")).toEqual([]);
    const images = new ImageRows(store);
    expect([await images.ids(), await images.megabytes("a"), await images.count("a")]).toEqual([[], 0, 0]);
    expect(await images.uses("a")).toEqual(new Map([["aa", 1]]));
  });
});

describe("a store of schema 20", () => {
  const scratch = scratchStores();

  it("gets services that end with their container, and take their tokens along", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.filter(({ version }) => version <= 20) });
    await old.write([
      { sql: "INSERT INTO tenants (id, name, created_at) VALUES ('ten_a', 'a', 1)" },
      ...["ctr_a", "ctr_b"].map((id) => ({
        sql: `INSERT INTO containers (id, tenant_id, node_seq, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
          environment, oom_killed, restart_count, created_at_ms)
          VALUES (?, 'ten_a', 1, ?, 'running', 1, 0, '{}', 256, '{}', '{}', 0, 0, 1)`,
        args: [id, id],
      })),
    ]);
    await old.close();
    const store = open();
    const service = (id: string, container_id: string) => [
      {
        sql: `INSERT INTO services (id, tenant_id, node_seq, container_id, name, target_port, auth_mode, enable_websockets,
          label, created_at) VALUES (?, 'ten_a', 1, ?, 'web', 80, 'service_token', 0, ?, 1)`,
        args: [id, container_id, id],
      },
      {
        sql: `INSERT INTO secrets (tenant_id, kind, name, size_bytes, created_at, updated_at, key_id, value)
          VALUES ('ten_a', 'service', ?, 1, 1, 1, 'k', x'00')`,
        args: [id],
      },
    ];
    await store.write([...service("svc_a", "ctr_a"), ...service("svc_b", "ctr_b")]);
    await store.write([{ sql: "UPDATE containers SET is_removing = 1 WHERE id = 'ctr_a'" }]);
    expect(await store.read("SELECT id FROM services")).toEqual([{ id: "svc_b" }]);
    expect(await store.read("SELECT name FROM secrets")).toEqual([{ name: "svc_b" }]);
    await store.write([{ sql: "DELETE FROM services WHERE id = 'svc_b'" }]);
    expect(await store.read("SELECT name FROM secrets")).toEqual([]);
  });
});

describe("a store of schema 23", () => {
  const scratch = scratchStores();

  it("gives the calls of earlier versions what each key of their maker's name has", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.filter(({ version }) => version <= 23) });
    const key = (id: string, tenant_id: string, name: string, scopes: readonly string[]) => ({
      sql: `INSERT INTO api_keys (id, tenant_id, name, secret_sha256, scopes, created_at) VALUES (?, ?, ?, ?, ?, 1)`,
      args: [id, tenant_id, name, id, JSON.stringify(scopes)],
    });
    const madeBy = (name: string | null, i: number) => ({
      sql: "UPDATE function_versions SET made_by = ? WHERE function_seq = 1 AND version = ?",
      args: [name, i + 1],
    });
    await writeFunction(old, 1, 5);
    await writeFunction(old, 2, 1);
    await old.write([
      ...["a", "b"].map((id) => ({
        sql: "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 1)",
        args: [id, id],
      })),
      { sql: "UPDATE functions SET api_access = 1, tenant_id = 'a' WHERE seq = 1" },
      key("key_1", "a", "full", ["read", "invoke", "write", "admin"]),
      key("key_2", "a", "ci", ["write"]),
      key("key_3", "a", "two", ["invoke", "write"]),
      key("key_4", "a", "two", ["read", "write"]),
      key("key_5", "b", "gone", ["write"]),
      ...["full", "ci", "two", "gone", null].map(madeBy),
    ]);
    await old.close();
    const rows = await open().read(
      "SELECT function_seq, api_scopes FROM function_versions ORDER BY function_seq, version",
    );
    expect(rows.map(({ function_seq, api_scopes }) => [function_seq, JSON.parse(String(api_scopes))])).toEqual([
      [1, ["read", "invoke", "write"]],
      [1, ["write"]],
      [1, ["write"]],
      [1, ["read", "invoke", "write"]],
      [1, ["read", "invoke", "write"]],
      [2, []],
    ]);
  });
});

describe("a store of schema 24", () => {
  const scratch = scratchStores();

  it("resets the resident processes of earlier versions after each call, where it did", async () => {
    const { open } = scratch();
    const old = open({ migrations: MIGRATIONS.filter(({ version }) => version <= 24) });
    await writeFunction(old, 1, 4);
    await writeFunction(old, 2, 1);
    await old.write([
      { sql: "UPDATE functions SET cleanup_on_exit = 0 WHERE seq = 2" },
      ...[
        [1, 1, "nodejs", null],
        [1, 2, "python3", '{"egress":"off"}'],
        [1, 3, "custom", null],
        [1, 4, "shell", null],
        [2, 1, "nodejs", null],
      ].map(([seq = null, version = null, runtime = null, options = null]) => ({
        sql: "UPDATE function_versions SET runtime = ?, options = ? WHERE function_seq = ? AND version = ?",
        args: [runtime, options, seq, version],
      })),
      // As if the options had come with the version.
      { sql: "UPDATE functions SET stored_bytes = stored_bytes + 16 WHERE seq = 1" },
    ]);
    await old.close();
    const store = open();
    const rows = await store.read("SELECT options FROM function_versions ORDER BY function_seq, version");
    const reset = { reset_between_calls: true };
    expect(rows.map(({ options }) => JSON.parse(String(options)))).toEqual([
      reset,
      { egress: "off", ...reset },
      reset,
      null,
      null,
    ]);
    // Versions that go take along what they count, to the byte.
    await store.write([{ sql: "DELETE FROM function_versions" }]);
    expect(await store.read("SELECT stored_bytes FROM functions")).toEqual([{ stored_bytes: 0 }, { stored_bytes: 0 }]);
  });
});
