/** Build contexts through the real API: uploaded, counted, expired, and gone after a crash at any point. */
import { execFileSync } from "node:child_process";
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { type ClientRequest, request } from "node:http";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { type TarEntry, tarHeader } from "../../src/engine/files/tar.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { archive, ENTRY } from "../support/file-helper.ts";
import { plant } from "../support/planted.ts";

const MIB = 1024 * 1024;
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_BUILDS: "0" };
const daemon = new Daemon();
beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

type Entry = Partial<TarEntry> & { readonly content?: string };

async function post(body: Uint8Array | string, headers: Record<string, string> = {}) {
  const type = typeof body === "string" ? "application/json" : "application/x-tar";
  const response = await fetch(`${daemon.url}/api/build-contexts`, {
    method: "POST",
    headers: { "x-api-key": KEY, "content-type": type, ...headers },
    body: typeof body === "string" ? body : new Uint8Array(body),
  });
  // biome-ignore lint/suspicious/noExplicitAny: a record or a refusal.
  return { status: response.status, body: (await response.json()) as any };
}
const json = (bytes: Uint8Array) => JSON.stringify({ content: Buffer.from(bytes).toString("base64") });
const listed = async (key = KEY): Promise<string[]> =>
  (await daemon.call("GET", "/api/build-contexts", undefined, { "x-api-key": key })).body.build_contexts.map(
    ({ context_id }: { context_id: string }) => context_id,
  );
const remove = (id: string, key = KEY) =>
  daemon.call("DELETE", `/api/build-contexts/${id}`, undefined, { "x-api-key": key });

/** Where the launcher sees build contexts. */
function place(): string {
  const line = daemon.processes().find((one) => one.includes(" launcher ")) ?? "";
  return `/proc/${line.split(" ", 1)[0]}/root${daemon.data_dir}/area/contexts`;
}
const stored = () => (existsSync(place()) ? readdirSync(place()).toSorted() : []);
const nothingStored = () => eventually("no files are left", () => stored().length === 0);

async function makeTenant(name: string, limits: object = {}) {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name, limits })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name })).body;
  return { tenant_id, key, headers: { "x-api-key": key } };
}

/** Begins an upload as raw bytes and leaves it open. */
async function begin(bytes: Uint8Array, key = KEY): Promise<{ sent: ClientRequest; answered: Promise<number> }> {
  const sent = request(`${daemon.url}/api/build-contexts`, {
    method: "POST",
    headers: { "x-api-key": key, "content-type": "application/x-tar" },
  });
  const answered = new Promise<number>((resolve) => {
    sent.once("response", (response) => resolve(response.resume().statusCode ?? 0)).once("error", () => resolve(0));
  });
  await new Promise((resolve) => sent.write(bytes, resolve));
  return { sent, answered };
}
const begun = (mib = 100) => tarHeader({ ...ENTRY, name: "large", size: mib * MIB });

describe("a node without builds", () => {
  it("refuses them, whatever they ask for", async () => {
    const { context_id } = (await post(archive({ name: "Dockerfile", content: "FROM scratch\n" }))).body;
    for (const id of [context_id, "ctx_missing"]) {
      const body = { context_id: id, image_reference: "app:1" };
      const answer = await daemon.call("POST", "/api/oci/images/build", body);
      expect([answer.status, answer.body.error_code, answer.body.error]).toEqual([
        ...[403, "FORBIDDEN", "this node builds no images"],
      ]);
    }
    expect((await remove(context_id)).status).toBe(200);
    await nothingStored();
  });
});

describe("a build context", () => {
  it("is uploaded as tar or tar.gz, raw or in base64, and listed until it is deleted", async () => {
    const tree = archive(
      { name: "./", type: "directory", mode: 0o755 },
      { name: "./Dockerfile", content: "FROM alpine\n" },
      { name: "./src/run", content: "#!/bin/sh\n", mode: 0o755 },
      { name: "./src/link", type: "symlink", link: "../Dockerfile" },
      { name: "./src/same", type: "link", link: "./src/run" },
    );
    const made: string[] = [];
    for (const body of [tree, gzipSync(tree), json(tree), json(gzipSync(tree))]) {
      const answer = await post(body);
      expect(answer).toMatchObject({ status: 201, body: { size_bytes: 22 } });
      const { context_id, created_at, expires_at } = answer.body;
      expect(expires_at - created_at).toBe(LIMITS.context_seconds);
      const root = `${place()}/${context_id}`;
      expect(readdirSync(root)).toEqual(["Dockerfile", "src"]);
      expect(readFileSync(`${root}/src/run`, "utf8")).toBe("#!/bin/sh\n");
      expect(lstatSync(`${root}/src/run`)).toMatchObject({ mode: 0o100755, uid: 0, gid: 0, nlink: 2 });
      expect(readlinkSync(`${root}/src/link`)).toBe("../Dockerfile");
      made.unshift(context_id);
    }
    expect(await listed()).toEqual(made);
    for (const id of made) expect((await remove(id)).status).toBe(200);
    expect((await remove(made[0] ?? "")).status).toBe(404);
    expect([await listed(), stored()]).toEqual([[], []]);
  });

  it("belongs to its tenant, which may have as many and as large ones as its limits say", async () => {
    const { tenant_id, key, headers } = await makeTenant("limited", { build_contexts_max: 2, build_context_mb_max: 2 });
    const small = archive({ name: "f", content: "x" });
    const first = await post(small, headers);
    expect(first.status).toBe(201);
    expect([await listed(), await listed(key)]).toEqual([[], [first.body.context_id]]);
    expect(await remove(first.body.context_id)).toMatchObject({ status: 404, body: { error_code: "NOT_FOUND" } });
    const large = archive({ name: "f", content: "x".repeat(1_100_000) });
    for (const body of [large, gzipSync(large), json(large)]) {
      expect(await post(body, headers)).toMatchObject({
        status: 403,
        body: { error_code: "QUOTA_EXCEEDED", error: expect.stringContaining("build_context_mb_max (limit 2") },
      });
    }
    await eventually("the refused ones are gone", () => stored().length === 1);
    expect((await post(small, headers)).status).toBe(201);
    expect((await daemon.call("GET", `/api/tenants/${tenant_id}`)).body.usage).toMatchObject({
      build_contexts: 2,
      build_context_mb: 2,
    });
    expect(await post(small, headers)).toMatchObject({
      status: 403,
      body: { error: expect.stringContaining("build_contexts_max (limit 2)") },
    });
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
    await nothingStored();
  });

  it.each<[string, readonly Entry[] | Uint8Array, RegExp]>([
    ["a device", [{ name: "d", type: "character" as never }], /./],
    ["a path that leaves it", [{ name: "../f", content: "x" }], /\.\./],
    ["a hard link to nothing", [{ name: "l", type: "link", link: "etc/passwd" }], /l/],
    ["no entry", [], /no entries/],
    ["no tar", Buffer.from("FROM alpine\n".repeat(100)), /tar/],
    ["a cut gzip", gzipSync(archive({ name: "f", content: "x".repeat(5_000) })).subarray(0, 60), /gzip/],
  ])("with %s is refused, and nothing of it is left", async (what, entries, error) => {
    const bytes = what === "a device" ? device() : entries instanceof Uint8Array ? entries : archive(...entries);
    expect(await post(bytes)).toMatchObject({
      status: 400,
      body: { error_code: "INVALID_ARGUMENT", error: expect.stringMatching(error) },
    });
    await nothingStored();
  });

  it("follows no link out of itself, and keeps the last of several entries of one name", async () => {
    const { body } = await post(
      archive(
        { name: "out", type: "symlink", link: "/var/tmp" },
        { name: "out/hearth-escaped", content: "x" },
        { name: "twice", content: "first" },
        { name: "twice", content: "second" },
      ),
    );
    const root = `${place()}/${body.context_id}`;
    expect(existsSync("/var/tmp/hearth-escaped")).toBe(false);
    expect(readFileSync(`${root}/out/hearth-escaped`, "utf8")).toBe("x");
    expect(readFileSync(`${root}/twice`, "utf8")).toBe("second");
    await remove(body.context_id);
  });

  it("of ten thousand small files is counted with what these take on the disk", async () => {
    const { tenant_id, headers } = await makeTenant("many", { build_context_mb_max: 21 });
    const files = Array.from({ length: 10_000 }, (_, i) => ({ name: `d${i % 100}/f${i}`, content: "x" }));
    const { status, body } = await post(gzipSync(archive(...files)), headers);
    expect([status, body.size_bytes]).toEqual([201, 10_000]);
    const { usage } = (await daemon.call("GET", `/api/tenants/${tenant_id}`)).body;
    expect(usage.build_context_mb).toBe(Math.ceil((10_000 * (LIMITS.context_entry_bytes + 1)) / MIB));
    expect((await post(gzipSync(archive(...files)), headers)).status).toBe(403);
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
    await nothingStored();
  });

  it("that unpacks to more than its tenant may have ends the upload there, whatever its size as sent", async () => {
    const { tenant_id, headers } = await makeTenant("bomb", { build_context_mb_max: 16 });
    const zeros = execFileSync("sh", ["-c", "head -c 300000000 /dev/zero | gzip -1"], { maxBuffer: 16 * MIB });
    const head = gzipSync(tarHeader({ ...ENTRY, name: "zeros", size: 300_000_000 }));
    const bomb = Buffer.concat([head, zeros]);
    expect(bomb.length).toBeLessThan(2 * MIB);
    expect(await post(bomb, headers)).toMatchObject({ status: 403, body: { error_code: "QUOTA_EXCEEDED" } });
    await nothingStored();
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
  });

  it("has no more room beside another upload of the tenant than that leaves", async () => {
    const { tenant_id, key, headers } = await makeTenant("both", { build_context_mb_max: 16 });
    const whole = archive({ name: "whole", content: "x".repeat(10 * MIB) }).subarray(0, -1024);
    const first = await begin(Buffer.concat([whole, begun(1)]), key);
    await eventually("the first is written", () => stored().some((id) => existsSync(`${place()}/${id}/whole`)));
    const other = archive({ name: "f", content: "x".repeat(8 * MIB) });
    for (const body of [other, gzipSync(other, { level: 1 })]) {
      expect(await post(body, headers)).toMatchObject({ status: 403, body: { error_code: "QUOTA_EXCEEDED" } });
    }
    first.sent.destroy();
    await nothingStored();
    expect((await post(other, headers)).status).toBe(201);
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
    await nothingStored();
  });

  it("whose client disconnects leaves nothing, and a tenant sends as many at once as it may", async () => {
    const uploads = [await begin(begun()), await begin(begun())];
    await eventually("both are unpacked", () => stored().length === 2);
    expect(await post(archive({ name: "f" }))).toMatchObject({
      status: 429,
      body: { error_code: "CONCURRENCY_LIMIT" },
    });
    const { headers } = await makeTenant("other");
    const other = await post(archive({ name: "f" }), headers);
    expect(other.status).toBe(201);
    for (const { sent } of uploads) sent.destroy();
    await eventually("theirs are gone", () => stored().length === 1);
    expect(stored()).toEqual([other.body.context_id]);
    await remove(other.body.context_id, headers["x-api-key"]);
    expect((await post(archive({ name: "f" }))).status).toBe(201);
    for (const id of await listed()) await remove(id);
  });

  it("above 192 MiB is refused before it is read", async () => {
    const sent = request(`${daemon.url}/api/build-contexts`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/gzip", "content-length": 192 * MIB + 1 },
    });
    const status = new Promise((resolve) => sent.once("response", (response) => resolve(response.statusCode)));
    sent.once("error", () => {}).flushHeaders();
    expect(await status).toBe(413);
    sent.destroy();
  });
});

describe("a daemon that starts", () => {
  const small = archive({ name: "f", content: "x" });
  const restart = (failpoint = "") => daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: failpoint });
  const killed = () => eventually("the daemon is dead", () => !daemon.isAlive);

  it("removes what uploads and deletions left that a kill cut short", async () => {
    const kept = (await post(small)).body.context_id;
    const { sent, answered } = await begin(begun());
    await eventually("it is unpacked", () => stored().length === 2);
    await daemon.stop("SIGKILL");
    expect(await answered).toBe(0);
    sent.destroy();
    await restart("oci.context.unpacked=kill");
    await eventually("the unfinished one is gone", () => stored().length === 1);
    await expect(post(small)).rejects.toThrow();
    await killed();
    await restart("oci.context.deleted=kill");
    await eventually("that one too", () => stored().length === 1);
    expect(await listed()).toEqual([kept]);
    await expect(remove(kept)).rejects.toThrow();
    await killed();
    await restart();
    await nothingStored();
    expect(await listed()).toEqual([]);
  });

  it("removes contexts that have expired, and shows none of them before", async () => {
    const [old, fresh] = [(await post(small)).body.context_id, (await post(small)).body.context_id];
    plant(daemon, { sql: "UPDATE build_contexts SET expires_at = 1 WHERE id = ?", args: [old] });
    expect([await listed(), (await remove(old)).status]).toEqual([[fresh], 404]);
    await daemon.stop("SIGKILL");
    await restart();
    await eventually("its files are gone", () => stored().length === 1);
    expect(stored()).toEqual([fresh]);
    plant(daemon, { sql: "UPDATE build_contexts SET expires_at = 1 WHERE id = ?", args: [fresh] });
    await daemon.stop("SIGKILL");
    await restart();
    await nothingStored();
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

/** A tar of a character device. */
function device(): Buffer {
  const script = "cd $(mktemp -d) && mknod null c 1 3 && tar c null && rm -rf $PWD";
  return execFileSync("sh", ["-c", script]);
}
