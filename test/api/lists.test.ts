/** Lists through the real API: whole up to a thousand entries, then page after page, whatever comes and goes meanwhile. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { Daemon, KEY } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { plant, plantCopies, plantImage } from "../support/planted.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const COUNT = 1_005;
/** The tenant of the credential, which the routes of snapshots want to be named. */
const OWN = { "x-tenant-id": "default" };

interface Kind {
  readonly path: string;
  /** The list in the answer. */
  readonly field: string;
  readonly table: string;
  /** A condition that finds the row that is copied. */
  readonly original: string;
  /** Columns of a copy, as SQL. */
  readonly changed: Readonly<Record<string, string>>;
  /** The column that `keyOf` tells; `id` unless given. */
  readonly column?: string;
  /** Key of an entry in its table. */
  readonly keyOf: (entry: Record<string, string>) => string;
}

const daemon = new Daemon();
let kinds: Readonly<Record<string, Kind>>;
/** Another tenant's. */
let other_key = "";
let function_id = "";
let version_id = "";

/** Every second copy is another tenant's. */
const owner = (tenant_id: string) => `iif(n.i % 2, 'default', '${tenant_id}')`;
const named = (prefix: string) => ({ id: `'${prefix}_' || n.i`, name: `'copy-' || n.i` });

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  const tenant = await daemon.call("POST", "/api/tenants", { name: "other" });
  const tenant_id = owner(tenant.body.tenant_id);
  other_key = (await daemon.call("POST", `/api/tenants/${tenant.body.tenant_id}/api-keys`, { name: "first" })).body.key;
  function_id = (await daemon.deploy({ name: "origin", handler: "cat" })).id;
  version_id = (await daemon.call("GET", `/api/functions/${function_id}/versions`)).body.versions[0].id;
  await daemon.invoke("origin");
  await daemon.call("POST", "/api/containers", { name: "shells" });
  const { body: container } = await daemon.call("POST", "/api/containers", { name: "origin" });
  await daemon.call("POST", `/api/containers/${container.container_id}/exec`, { command: ["true"] });
  const [job] = (await daemon.call("GET", `/api/containers/${container.container_id}/jobs`)).body.jobs;
  const stopped = await daemon.call("POST", `/api/containers/${container.container_id}/stop?execution=async`, {});
  const { operation_id } = stopped.body;
  const { snapshot_id } = await new SnapshotUser(daemon).take("shells");
  await daemon.call("POST", "/api/volumes", { name: "origin" });
  const content = archive({ name: "f", content: "x" }).toString("base64");
  const { body: context } = await daemon.call("POST", "/api/build-contexts", { content });
  plantImage(daemon, "default", "docker.io/library/origin:1");
  const of_function = `function_seq = (SELECT seq FROM functions WHERE id = '${function_id}')`;
  const byId = ({ id = "" }: Record<string, string>) => id;
  const first = { original: "name = 'origin'", keyOf: byId };
  kinds = {
    functions: {
      ...{ ...first, path: "/api/functions", field: "functions", table: "functions" },
      changed: { ...named("fn"), tenant_id, state: "'pending'" },
    },
    versions: {
      ...{ path: `/api/functions/${function_id}/versions`, field: "versions", table: "function_versions", keyOf: byId },
      ...{ original: `${of_function} AND version = 1`, changed: { id: "'fv_' || n.i", version: "n.i + 1" } },
    },
    invocations: {
      ...{ path: `/api/functions/${function_id}/invocations`, field: "invocations", table: "invocations" },
      ...{ original: of_function, changed: { suffix: "'x' || n.i" }, column: "suffix" },
      keyOf: ({ invocation_id = "" }) => invocation_id.split("_")[2] ?? "",
    },
    containers: {
      ...{ path: "/api/containers", field: "containers", table: "containers", original: "name = 'origin'" },
      ...{ changed: { ...named("ctr"), tenant_id, state: "'exited'" }, keyOf: ({ container_id = "" }) => container_id },
    },
    jobs: {
      ...{ path: `/api/containers/${container.container_id}/jobs`, field: "jobs", table: "exec_jobs" },
      ...{ original: `id = '${job.job_id}'`, changed: { id: "'job_' || n.i" } },
      keyOf: ({ job_id = "" }) => job_id,
    },
    volumes: {
      ...{ ...first, path: "/api/volumes", field: "volumes", table: "volumes" },
      changed: { ...named("vol"), tenant_id },
    },
    images: {
      ...{ path: "/api/oci/images", field: "images", table: "oci_images", column: "reference" },
      original: "reference = 'docker.io/library/origin:1'",
      changed: { reference: "'docker.io/copy/n' || n.i || ':' || n.i", tenant_id },
      keyOf: ({ reference = "" }) => reference,
    },
    contexts: {
      ...{ path: "/api/build-contexts", field: "build_contexts", table: "build_contexts" },
      ...{ original: `id = '${context.context_id}'`, changed: { id: "'ctx_' || n.i", tenant_id } },
      keyOf: ({ context_id = "" }) => context_id,
    },
    operations: {
      ...{ path: "/api/operations", field: "operations", table: "operations", original: `id = '${operation_id}'` },
      changed: { id: "'op_' || n.i", tenant_id, status: "'succeeded'", completed_at: "o.created_at" },
      keyOf: ({ operation_id = "" }) => operation_id,
    },
    snapshots: {
      ...{ path: "/api/snapshots", field: "snapshots", table: "snapshots", original: `id = '${snapshot_id}'` },
      changed: { id: "'snp_' || n.i", tenant_id },
      keyOf: ({ id = "" }) => id,
    },
    tenants: {
      ...{ path: "/api/tenants", field: "tenants", table: "tenants", original: "name = 'other'" },
      ...{ changed: named("ten"), keyOf: ({ tenant_id: id = "" }) => id },
    },
    keys: {
      ...{ path: "/api/api-keys", field: "api_keys", table: "api_keys", original: "id = 'bootstrap'", keyOf: byId },
      changed: { id: "'key_' || n.i", secret_sha256: "'x' || n.i", tenant_id },
    },
  };
});
afterAll(() => daemon.dispose());

/** Copies of which `count` are the operator's. */
function fill({ table, original, changed }: Kind, count: number, from: number): void {
  const all_count = "tenant_id" in changed ? 2 * count : count;
  plantCopies(daemon, table, original, changed, all_count, from);
  if (table !== "functions") return;
  const seq = "(SELECT seq FROM functions WHERE id = 'fn_' || n.i)";
  const version = { id: "'fv_of_' || n.i", function_seq: seq };
  plantCopies(daemon, "function_versions", `id = '${version_id}'`, version, all_count, from);
}

const KINDS =
  "functions versions invocations containers jobs volumes images contexts operations snapshots tenants keys".split(" ");

describe("a list", () => {
  const get = (path: string) => daemon.call("GET", path, undefined, OWN);

  it.each(KINDS)("of %s is whole up to 1,000 entries, then goes on behind next_cursor", async (name) => {
    const kind = kinds[name] as Kind;
    fill(kind, COUNT, 1);
    const { body } = await get(kind.path);
    expect(body[kind.field]).toHaveLength(1_000);
    const rest = await get(`${kind.path}?cursor=${body.next_cursor}`);
    expect(rest.body[kind.field].length).toBeGreaterThanOrEqual(COUNT - 1_000);
    expect(rest.body.next_cursor).toBe(null);
    const whole = await get(`${kind.path}?limit=1000&cursor=${body.next_cursor}`);
    // A key is in use while the list is read, and what was measured ages.
    const moving = ["last_used_at", "checks_age_ms"];
    const still = (answer: unknown) => JSON.stringify(answer, (field, value) => (moving.includes(field) ? 0 : value));
    expect(still(whole.body)).toBe(still(rest.body));
    const keys = [...body[kind.field], ...rest.body[kind.field]].map(kind.keyOf);
    expect(new Set(keys).size).toBe(keys.length);
    expect(keys.filter((key) => /\d$/.test(key)).length).toBeGreaterThanOrEqual(COUNT);
  });

  it.each(KINDS)("of %s gives each entry once while others come and go", async (name) => {
    const kind = kinds[name] as Kind;
    const { path, field, table, column = "id", keyOf } = kind;
    const first = await get(path);
    const second = await get(`${path}?cursor=${first.body.next_cursor}`);
    const before: string[] = [...first.body[field], ...second.body[field]].map(keyOf);
    const unseen = new Set(before);
    const seen: string[] = [];
    const drop = (key: string) => plant(daemon, { sql: `DELETE FROM ${table} WHERE ${column} = ?`, args: [key] });
    for (let cursor: string | null = "", added = 10_000; cursor !== null; added += 2) {
      const { body } = await get(`${path}?limit=211${cursor === "" ? "" : `&cursor=${cursor}`}`);
      const page: string[] = body[field].map(keyOf);
      seen.push(...page);
      for (const key of page) unseen.delete(key);
      cursor = body.next_cursor;
      if (cursor === null) break;
      // The row that the cursor was made of, one that was not seen yet, and one in front.
      drop(page.at(-1) ?? "");
      const gone = [...unseen][5] ?? "";
      drop(gone);
      unseen.delete(gone);
      fill(kind, 1, added);
    }
    expect([...unseen]).toEqual([]);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen.filter((key) => !before.includes(key))).toEqual([]);
  });

  it("rejects the cursor of another list", async () => {
    const cursorOf = async (path: string, key = KEY): Promise<string> =>
      (await daemon.call("GET", path, undefined, { "x-api-key": key })).body.next_cursor;
    const own = await cursorOf("/api/volumes?limit=1");
    const foreign = await cursorOf("/api/volumes?limit=1", other_key);
    const changed = own.replace(/^./, (letter) => (letter === "A" ? "B" : "A"));
    for (const [path, cursor] of [
      ["/api/volumes", foreign],
      ["/api/containers", own],
      ["/api/containers?state=exited", await cursorOf("/api/containers?limit=1")],
      [`/api/functions/${function_id}/versions`, await cursorOf("/api/functions?limit=1")],
      ...[changed, own.slice(1), `${own}A`, `${own.slice(0, -1)}.`, "0", "10", "", "x".repeat(48)].map((text) => [
        "/api/volumes",
        text,
      ]),
    ]) {
      const sent = `${path}${path?.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor ?? "")}`;
      expect([sent, await daemon.call("GET", sent)]).toMatchObject([
        sent,
        { status: 400, body: { error_code: "INVALID_ARGUMENT" } },
      ]);
    }
    expect((await daemon.call("GET", `/api/volumes?cursor=${own}&limit=3`)).body.volumes).toHaveLength(3);
  });

  it("of a tenant's own key tells nothing of other tenants' rows", async () => {
    const { body } = await daemon.call("GET", "/api/volumes", undefined, { "x-api-key": other_key });
    expect(new Set(body.volumes.map(({ tenant_id }: { tenant_id: string }) => tenant_id)).size).toBe(1);
    // A number of a row would show: the same place gives another cursor each time.
    const again = await daemon.call("GET", "/api/volumes", undefined, { "x-api-key": other_key });
    expect(again.body.next_cursor).not.toBe(body.next_cursor);
  });

  it("of terminal sessions has pages too", async () => {
    const made = [];
    for (let i = 0; i < 3; i++) {
      const { body } = await daemon.call("POST", "/api/terminal/sessions", { container_id: "shells" });
      made.unshift(body.id);
    }
    const first = await daemon.call("GET", "/api/terminal/sessions?limit=2");
    await daemon.call("DELETE", `/api/terminal/sessions/${made[1]}`);
    const rest = await daemon.call("GET", `/api/terminal/sessions?cursor=${first.body.next_cursor}`);
    expect([...first.body.sessions, ...rest.body.sessions].map(({ id }) => id)).toEqual(made);
    expect(rest.body.next_cursor).toBe(null);
  });

  it("keeps its cursor over another token-signing key and a restart of the daemon", async () => {
    const { body } = await daemon.call("GET", "/api/volumes?limit=2");
    const next = `/api/volumes?limit=2&cursor=${body.next_cursor}`;
    const before = (await daemon.call("GET", next)).body.volumes;
    expect((await daemon.call("POST", "/api/operator/token-key/rotate", {})).status).toBe(200);
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "0" });
    expect((await daemon.call("GET", next)).body.volumes).toEqual(before);
  });

  it("is shown whole by the command line", async () => {
    const commands = new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: KEY });
    try {
      const { volumes, next_cursor } = JSON.parse((await commands.run("volumes list --json".split(" "))).out);
      expect([volumes.length > 1_000, next_cursor]).toEqual([true, null]);
      const some = await commands.run("volumes list --limit 1002 --json".split(" "));
      expect(JSON.parse(some.out).volumes).toEqual(volumes.slice(0, 1_002));
      expect((await commands.run("volumes list --limit 2".split(" "))).err).toContain(
        "showing the newest 2; --limit shows more",
      );
    } finally {
      commands.dispose();
    }
  });
});
