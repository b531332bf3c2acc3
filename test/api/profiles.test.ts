/** Profiles through the API: first use, channels, references, failures, kills, and what a tenant may not do. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { buildTraces, hasLayer, Recipes } from "../support/recipes.ts";

const recipes = new Recipes();
const HELLO = { scripts: { "/usr/local/bin/hello": ["#!/bin/sh", "echo hello"] }, tools: ["sh", "hello"] };
const FIRST = recipes.add("first", HELLO);
const ASYNC = recipes.add("async", HELLO);
const MANY = recipes.add("many", { ...HELLO, verify: ["sleep 15"] });
const BROKEN = recipes.add("broken", { verify: ["echo lacks-a-thing >&2; false"] });
const SLOW = recipes.add("slow", { verify: ["sleep 20"] });
const WAITED = recipes.add("waited", { verify: ["sleep 25"] });
const MOVED = recipes.add("moved", HELLO);
const PULLED = recipes.add("pulled", HELLO);
const BACK = recipes.add("back", HELLO);
const LIAR = recipes.add("liar", HELLO);
const REFUSED = recipes.add("refused", HELLO);

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const settings = { HEARTH_PROFILES_DIR: recipes.directory };

beforeAll(async () => {
  await daemon.start(settings);
});

afterAll(async () => {
  await daemon.dispose();
  recipes.remove();
});

/** Makes a tenant with a key. */
async function newTenant(of: Daemon, name: string): Promise<{ readonly key: string }> {
  const { tenant_id } = (await of.call("POST", "/api/tenants", { name })).body;
  return (await of.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name })).body;
}

// biome-ignore lint/suspicious/noExplicitAny: the record as it came.
const get = async (path: string): Promise<any> => (await daemon.call("GET", `/api/nightly/profiles${path}`)).body;
const post = (path: string, body: object = {}) => daemon.call("POST", `/api/nightly/profiles${path}`, body);

/** Waits for an operation. */
async function ended(operation_id: string) {
  return eventually(
    `the end of ${operation_id}`,
    async () => {
      const { body } = await daemon.call("GET", `/api/operations/${operation_id}`);
      return body.completed_at === null ? null : body;
    },
    60_000,
  );
}

const run = (container_id: string, ...command: string[]) => {
  return daemon.call("POST", `/api/containers/${container_id}/exec`, { command });
};

/** Processes of builds, of any daemon that uses the recipes of this test. */
function children(): string[] {
  const lines = execFileSync("ps", ["-eo", "pid,args"]).toString().split("\n");
  return lines.filter((line) => line.includes(recipes.directory) && line.includes(" profile "));
}

describe("profiles", () => {
  it("are listed with their states: prod has a release, a further one is absent", async () => {
    const { profiles } = await get("");
    const names = profiles.map(({ profile }: { profile: string }) => profile);
    expect(names).toEqual(expect.arrayContaining(["prod", "prod-gui", "rlm", "aegis", "amp", "cc", "codex", FIRST]));
    expect(await get("/prod")).toMatchObject({ state: "ready", from: null, last_failure: null });
    expect(await get(`/${FIRST}`)).toMatchObject({ state: "absent", from: "prod", channels: { latest: null } });
    expect((await daemon.call("GET", "/api/nightly/profiles/none")).status).toBe(404);
  });

  it("are built by their first use, which waits, and keep their contract", async () => {
    const record = await user.create({ name: "first", image: FIRST });
    expect(record).toMatchObject({ exec_ready: true, checks: { managed_image_valid: true } });
    expect((await run(record.container_id, "hello")).body).toMatchObject({ stdout: "hello\n", exit_code: 0 });
    const profile = await get(`/${FIRST}`);
    expect(profile).toMatchObject({ state: "ready", progress_pct: null, release_count: 1, tools: ["sh", "hello"] });
    const { releases } = await get(`/${FIRST}/releases`);
    expect(releases).toMatchObject([
      { version: profile.channels.latest, channels: ["latest"], platform: "linux/amd64" },
    ]);
    const detail = await get(`/${FIRST}/releases/${profile.channels.latest}`);
    expect(detail.packages).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: "bash", licences: expect.arrayContaining([expect.stringMatching(/^GPL/)]) }),
      ]),
    );
    expect(detail.packages).toContainEqual(expect.objectContaining({ name: "npm", kind: "npm" }));
    const again = await user.create({ name: "second", image: `${FIRST}@${profile.channels.latest}` });
    expect(again.exec_ready).toBe(true);
  }, 120_000);

  it("are not built for requests that are refused anyway, of containers and functions", async () => {
    const { container_id } = await user.create({ name: "held", ports: [{ container_port: 80 }] });
    const [{ host_port }] = (await daemon.call("GET", `/api/containers/${container_id}`)).body.ports;
    const handler = "hello";
    const { body: fn } = await daemon.call("POST", "/api/functions", { name: "held", handler: "true" });
    for (const [refused, status, error_code] of [
      [{ name: "held" }, 409, "NAME_TAKEN"],
      [{ name: "x", volumes: ["none:/data"] }, 404, "NOT_FOUND"],
      [{ name: "x", gpu_count: 1 }, 503, "CAPACITY_FULL"],
      [{ name: "x", ports: [{ container_port: 80, host_port }] }, 409, "PORT_TAKEN"],
      [{ name: "x", network: "a.b", dns: true }, 400, "INVALID_ARGUMENT"],
    ] as const) {
      const body = { image: REFUSED, ...refused };
      for (const query of ["", "?execution=sync"]) {
        // The second one is an operation, which has a key.
        const keyed = { "x-api-key": KEY, "idempotency-key": `refused ${JSON.stringify(refused)}` };
        const headers = query === "" ? undefined : keyed;
        const answer = await daemon.call("POST", `/api/containers${query}`, body, headers);
        expect([refused, answer.status, answer.body.error_code]).toEqual([refused, status, error_code]);
      }
      if (status === 400) continue;
      const batch = await daemon.call("POST", "/api/containers/batch", { items: [body] });
      expect(await ended(batch.body.operation_id)).toMatchObject({ status: "failed", items: [{ error_code }] });
    }
    const code_sha256 = "0".repeat(64);
    for (const [method, path, body, status] of [
      ["POST", "/api/functions", { name: "held", handler, image: REFUSED }, 409],
      ["POST", "/api/functions", { name: "y", handler, image: REFUSED, code_sha256 }, 400],
      ["PUT", `/api/functions/${fn.id}`, { image: REFUSED, code_sha256 }, 400],
      ["POST", "/api/functions/deployments", { functions: [{ name: "y", handler, image: REFUSED, code_sha256 }] }, 400],
    ] as const) {
      expect([path, (await daemon.call(method, path, body)).status]).toEqual([path, status]);
    }
    expect(await get(`/${REFUSED}`)).toMatchObject({ state: "absent", release_count: 0, last_failure: null });
    // The refusals held nothing: the port is whose it was, and the name is free.
    await user.delete(container_id);
    const made = await user.create({ name: "held", image: REFUSED, ports: [{ container_port: 80, host_port }] });
    expect(made.exec_ready).toBe(true);
    await user.delete(made.container_id);
    await daemon.call("DELETE", `/api/functions/${fn.id}`);
  }, 120_000);

  it("show their progress in the operation of a create with execution=async", async () => {
    const body = { name: "async", image: ASYNC };
    const { body: handle } = await daemon.call("POST", "/api/containers?execution=async", body);
    const messages = new Set<string>();
    await eventually(
      "the end",
      async () => {
        const { body } = await daemon.call("GET", `/api/operations/${handle.operation_id}`);
        if (body.message) messages.add(body.message);
        return body.completed_at !== null;
      },
      60_000,
    );
    expect(await ended(handle.operation_id)).toMatchObject({ status: "succeeded" });
    expect([...messages].some((message) => message.includes(ASYNC))).toBe(true);
  }, 120_000);

  it("are resolved by a wait for their first build, which goes on when a client gives up, without a fault in the log", async () => {
    const path = `/api/nightly/profiles/${WAITED}/resolve?channel=latest`;
    const from = daemon.output.length;
    const leaving = new AbortController();
    const left = fetch(daemon.url + path, { headers: { "x-api-key": KEY }, signal: leaving.signal });
    await eventually("the build begins", async () => (await get(`/${WAITED}`)).state === "building", 30_000);
    const created = new AbortController();
    const body = JSON.stringify({ name: "given-up", image: WAITED });
    const creating = fetch(`${daemon.url}/api/containers`, {
      ...{ method: "POST", headers: { "x-api-key": KEY, "content-type": "application/json" }, body },
      signal: created.signal,
    });
    const { status, body: resolved } = await (async () => {
      const waiting = daemon.call("GET", path);
      leaving.abort();
      created.abort();
      await expect(left).rejects.toThrow();
      await expect(creating).rejects.toThrow();
      return waiting;
    })();
    expect([status, resolved.profile]).toEqual([200, WAITED]);
    expect((await get(`/${WAITED}`)).release_count).toBe(1);
    const lines = daemon.output.slice(from).split("\n");
    expect(lines.filter((line) => /"level":"(error|fatal)"|AbortError|INTERNAL/.test(line))).toEqual([]);
  }, 120_000);

  it("are built once for all who ask at the same time, however many of a tenant wait", async () => {
    const { key } = await newTenant(daemon, "hammer");
    const asks = Array.from({ length: 20 }, (_, i) =>
      i < 4
        ? daemon.call("POST", "/api/containers", { name: `m${i}`, image: MANY }, { "x-api-key": key })
        : daemon.call("GET", `/api/nightly/profiles/${MANY}/resolve`, undefined, { "x-api-key": key }),
    );
    // Operations that wait for it leave the places of operations to others.
    const creates = Array.from({ length: 70 }, (_, i) =>
      daemon.call("POST", "/api/containers?execution=async", { name: `n${i}`, image: MANY }, { "x-api-key": key }),
    );
    const handles = await Promise.all(creates);
    expect((await get(`/${MANY}`)).state).toBe("building");
    const other = await daemon.call("POST", "/api/containers?execution=async", { name: "beside" });
    expect(await ended(other.body.operation_id)).toMatchObject({ status: "succeeded" });
    expect((await get(`/${MANY}`)).state).toBe("building");
    for (const { body } of handles) {
      await daemon.call("POST", `/api/operations/${body.operation_id}/cancel`, undefined, { "x-api-key": key });
    }
    const answers = await Promise.all(asks);
    expect(answers.map(({ status }) => status)).toEqual(asks.map((_, i) => (i < 4 ? 201 : 200)));
    expect((await get(`/${MANY}`)).release_count).toBe(1);
    const metrics = (await daemon.call("GET", "/metrics")).body as string;
    expect(metrics).toContain(`hearth_profile_builds_total{profile="${MANY}",outcome="succeeded"} 1`);
  }, 120_000);

  it("that cannot be built refuse their users for a while, and show the operator the log", async () => {
    const { key } = await newTenant(daemon, "curious");
    const asked = () => daemon.call("POST", "/api/containers", { name: "b", image: BROKEN }, { "x-api-key": key });
    const first = await asked();
    expect(first).toMatchObject({
      status: 503,
      body: { error_code: "START_FAILED", reason_code: "PROFILE_BUILD_FAILED" },
    });
    expect(JSON.stringify(first.body)).not.toContain("lacks-a-thing");
    const begun = performance.now();
    const second = await asked();
    expect(second.body).toMatchObject({ reason_code: "PROFILE_BUILD_FAILED", retry_after: expect.any(Number) });
    expect(performance.now() - begun).toBeLessThan(1_000);
    const profile = await get(`/${BROKEN}`);
    expect(profile).toMatchObject({ state: "failed", last_failure: { failures_count: 1 } });
    expect(profile.last_failure.log).toContain("lacks-a-thing");
    expect(profile.last_failure.error).toContain("lacks-a-thing");
    expect(profile.last_failure.log).not.toContain("@ {");
    const theirs = await daemon.call("GET", `/api/nightly/profiles/${BROKEN}`, undefined, { "x-api-key": key });
    expect(theirs.body.last_failure).toMatchObject({ error: null, hint: null, log: null });
    const { body: handle } = await post(`/${BROKEN}/build`);
    const operation = await ended(handle.operation_id);
    expect(operation).toMatchObject({ status: "failed", reason_code: "PROFILE_BUILD_FAILED" });
    expect(operation.error).toContain("lacks-a-thing");
    expect(buildTraces(daemon.data_dir)).toMatchObject({ layers: [], temporary: [] });
  }, 120_000);

  it("leave nothing of a build that is killed with the daemon, and the next use succeeds", async () => {
    const before = buildTraces(daemon.data_dir);
    const layers: string[] = [];
    await post(`/${SLOW}/build`);
    layers.push(await eventually("the build has a root", () => buildTraces(daemon.data_dir).layers[0], 30_000));
    await daemon.stop("SIGKILL");
    await eventually("no child is left", () => children().length === 0, 30_000);
    // The child has noticed that its parent is gone, and cleared up.
    expect(buildTraces(daemon.data_dir)).toEqual(before);
    await daemon.start(settings);
    // The operation is open, and is carried out again: kill the child itself this time.
    const pid = await eventually("the build begins again", () => children()[0]?.trim().split(" ")[0], 30_000);
    layers.push(await eventually("the build has a root", () => buildTraces(daemon.data_dir).layers[0], 30_000));
    process.kill(Number(pid), "SIGKILL");
    await eventually("the daemon clears up", () => buildTraces(daemon.data_dir).layers.length === 0, 30_000);
    await eventually("no child is left", () => children().length === 0, 30_000);
    expect(buildTraces(daemon.data_dir)).toEqual(before);
    expect(layers.filter(hasLayer)).toEqual([]);
    expect(await get(`/${SLOW}`)).toMatchObject({ state: "failed" });
    expect((await user.create({ name: "later", image: MOVED })).exec_ready).toBe(true);
  }, 180_000);
});

describe("channels", () => {
  it("move by promotion and back, for the operator alone", async () => {
    const { channels } = await get(`/${MOVED}`);
    const version = channels.latest;
    expect((await daemon.call("GET", `/api/nightly/profiles/${MOVED}/resolve?channel=stable`)).status).toBe(404);
    expect((await daemon.call("POST", "/api/containers", { name: "s", image: `${MOVED}:stable` })).status).toBe(404);
    const { key } = await newTenant(daemon, "climber");
    for (const [path, body] of [
      ["promote", { channel: "stable", version }],
      ["rollback", { channel: "stable" }],
      ["build", {}],
    ] as const) {
      const answer = await daemon.call("POST", `/api/nightly/profiles/${MOVED}/${path}`, body, { "x-api-key": key });
      expect([path, answer.status]).toEqual([path, 403]);
    }
    const promoted = await post(`/${MOVED}/promote`, { channel: "stable", version });
    expect(promoted).toMatchObject({ status: 200, body: { version, previous_version: null } });
    expect((await get(`/${MOVED}`)).channels).toEqual({ latest: version, stable: version });
    const resolved = await get(`/${MOVED}/resolve?channel=stable&platform=linux/amd64`);
    expect(resolved).toMatchObject({ profile: MOVED, channel: "stable", platform: "linux/amd64", version });
    expect(resolved.oci_reference).toBe(`profiles.hearth.internal/${MOVED}@${resolved.oci_digest}`);
    const record = await user.create({ name: "stable", image: `${MOVED}:stable` });
    expect(record.exec_ready).toBe(true);
    expect((await post(`/${MOVED}/rollback`, { channel: "stable" })).status).toBe(409);
    expect((await post(`/${MOVED}/promote`, { channel: "stable", version: "aaaaaaaaaaaa-bbbbbbbb" })).status).toBe(404);
    expect((await daemon.call("GET", `/api/nightly/profiles/${MOVED}/resolve?platform=linux/arm64`)).status).toBe(400);
    const diff = await get(`/${MOVED}/releases/${version}/diff/${version}`);
    expect(diff).toMatchObject({ added: [], removed: [], changed: [], size_delta_bytes: 0 });
  }, 120_000);

  it("keep a version whose packages are the same through a rebuild", async () => {
    const before = await get(`/${MOVED}`);
    const { body } = await daemon.call("POST", `/api/nightly/profiles/${MOVED}/build`, { rebuild: false });
    expect(await ended(body.operation_id)).toMatchObject({
      status: "succeeded",
      result: { profile: MOVED, version: before.channels.latest },
    });
    expect((await get(`/${MOVED}`)).release_count).toBe(1);
  }, 120_000);

  it("return to the release before, which containers of the channel get then", async () => {
    const build = async () => {
      const { body: handle } = await post(`/${BACK}/build`);
      expect(await ended(handle.operation_id)).toMatchObject({ status: "succeeded" });
      return (await get(`/${BACK}`)).channels.latest as string;
    };
    const says = async (name: string) => {
      const record = await user.create({ name, image: `${BACK}:stable` });
      expect(record).toMatchObject({ exec_ready: true, checks: { managed_image_valid: true } });
      return (await run(record.container_id, "hello")).body.stdout;
    };
    const first = await build();
    await post(`/${BACK}/promote`, { channel: "stable", version: first });
    // Another recipe of the same name, as after an upgrade.
    recipes.change(BACK, { revision: 2, scripts: { "/usr/local/bin/hello": ["#!/bin/sh", "echo second"] } });
    await daemon.stop();
    await daemon.start(settings);
    expect((await get(`/${BACK}`)).channels).toEqual({ latest: null, stable: first });
    const second = await build();
    expect(second).not.toBe(first);
    expect(await post(`/${BACK}/promote`, { channel: "stable", version: second })).toMatchObject({
      body: { version: second, previous_version: first },
    });
    expect(await says("forth")).toBe("second\n");
    expect(await post(`/${BACK}/promote`, { channel: "latest", version: first })).toMatchObject({
      ...{ status: 400, body: { error_code: "INVALID_ARGUMENT" } },
    });
    expect(await post(`/${BACK}/rollback`, { channel: "stable" })).toMatchObject({
      ...{ status: 200, body: { success: true, channel: "stable", version: first, previous_version: second } },
    });
    expect((await get(`/${BACK}/resolve?channel=stable`)).version).toBe(first);
    expect((await get(`/${BACK}`)).channels).toEqual({ latest: second, stable: first });
    expect(await says("back")).toBe("hello\n");
    // The container that was made before keeps its release.
    const { container_id } = (await daemon.call("GET", "/api/containers/by-name/forth")).body;
    expect((await run(container_id, "hello")).body.stdout).toBe("second\n");
    expect((await post(`/${BACK}/rollback`, { channel: "stable" })).status).toBe(409);
    expect(await post(`/${BACK}/promote`, { channel: "stable", version: second })).toMatchObject({
      body: { version: second, previous_version: first },
    });
    expect((await post(`/${BACK}/rollback`, { channel: "stable" })).body.version).toBe(first);
  }, 180_000);

  it("answer which packages have updates, and only the operator asks again", async () => {
    const { key } = await newTenant(daemon, "reader");
    const path = `/api/nightly/profiles/${MOVED}/updates`;
    expect((await daemon.call("GET", `${path}?refresh=true`, undefined, { "x-api-key": key })).status).toBe(403);
    const updates = await get(`/${MOVED}/updates`);
    expect(updates).toMatchObject({ profile: MOVED, updates: expect.any(Array) });
    expect((await get(`/${MOVED}`)).updates).toMatchObject({ count: updates.updates.length });
  }, 120_000);
});

describe("an image that lies about its contract", () => {
  it("makes managed_image_valid false, and the log names what is missing", async () => {
    const { body: handle } = await post(`/${LIAR}/build`);
    const { result } = await ended(handle.operation_id);
    // The release promises a tool that its image does not have.
    recipes.changeRelease(LIAR, result.version, { tools: { sh: "/bin/sh", hello: "/usr/local/bin/gone" } });
    const { status, body } = await daemon.call("POST", "/api/containers", { name: "liar", image: LIAR });
    expect(status).toBe(201);
    for (const path of ["", "/ready"]) {
      const { body: record } = await daemon.call("GET", `/api/containers/${body.container_id}${path}`);
      expect(record).toMatchObject({ state: "running", exec_ready: false, checks: { managed_image_valid: false } });
    }
    const listed = async () => (await daemon.call("GET", "/api/containers?limit=1")).body.containers[0];
    expect(await listed()).toMatchObject({ name: "liar", exec_ready: false, checks: { managed_image_valid: false } });
    await daemon.call("POST", `/api/containers/${body.container_id}/kill`);
    expect(await listed()).toMatchObject({ state: "exited", checks: { managed_image_valid: false }, checks_age_ms: 0 });
    expect(daemon.output).toContain("image breaks the contract of its profile");
    expect(daemon.output).toContain("hello is missing or not executable: /usr/local/bin/gone");
    await user.delete(body.container_id);
  }, 120_000);
});

describe("references of profiles", () => {
  it("are resolved, pulled and run as existing clients do, and built on the way", async () => {
    const { key } = await newTenant(daemon, "client");
    const call = (method: string, path: string, body?: object) => daemon.call(method, path, body, { "x-api-key": key });
    const { body: resolved } = await call(
      "GET",
      `/api/nightly/profiles/${PULLED}/resolve?channel=latest&platform=linux/amd64`,
    );
    expect(resolved.oci_digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    const { oci_reference: reference } = resolved;
    const { body: pulled } = await call("POST", "/api/oci/images/pull", { reference });
    expect(pulled).toMatchObject({ success: true, image: { reference, manifest_digest: resolved.oci_digest } });
    const { body: record } = await call("POST", "/api/containers", {
      name: "c",
      image: reference,
      oci: true,
      memory_limit_mb: 256,
    });
    expect(record).toMatchObject({ exec_ready: true });
    const deleted = await call("DELETE", `/api/containers/${record.container_id}`);
    expect(deleted.status).toBe(200);
    // The tenant's reference goes, the release stays.
    expect((await call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`)).status).toBe(200);
    expect((await get(`/${PULLED}`)).release_count).toBe(1);
    expect((await call("POST", "/api/oci/images/pull", { reference })).body.success).toBe(true);
  }, 120_000);

  it("lead to no registry, and nobody gives another image a name under the reserved host", async () => {
    const refused = async (method: string, path: string, body: object) => {
      const answer = await daemon.call(method, path, body);
      return [answer.status, answer.body.error_code ?? answer.body.error_message];
    };
    const pull = (reference: string) => refused("POST", "/api/oci/images/pull", { reference });
    const digest = `sha256:${"0".repeat(64)}`;
    expect(await pull(`profiles.hearth.internal/rlm@${digest}`)).toEqual([404, "NOT_FOUND"]);
    expect(await pull("profiles.hearth.internal/none:latest")).toEqual([400, "INVALID_ARGUMENT"]);
    for (const host of [
      "profiles.hearth.internal:443",
      "evil.profiles.hearth.internal",
      "hearth.internal",
      "PROFILES.hearth.internal:80",
    ]) {
      expect([host, ...(await pull(`${host}/rlm:latest`))]).toEqual([host, 400, "INVALID_ARGUMENT"]);
    }
    const { oci_reference: reference } = await get(`/${PULLED}/resolve`);
    await daemon.call("POST", "/api/oci/images/pull", { reference });
    const target = "profiles.hearth.internal/rlm:mine";
    expect(await refused("POST", "/api/oci/images/tag", { reference, target })).toEqual([400, "INVALID_ARGUMENT"]);
    expect(await refused("POST", "/api/oci/images/push", { reference, target })).toEqual([400, "INVALID_ARGUMENT"]);
  }, 60_000);

  it("of another platform are refused", async () => {
    const { oci_reference: reference } = await get(`/${PULLED}/resolve`);
    const answer = await daemon.call("POST", "/api/oci/images/pull", {
      reference,
      platform: "linux/arm64",
      force: true,
    });
    expect(answer.status).toBe(400);
  });
});

describe("the daemon", () => {
  it("runs no apt or dpkg itself: its children are set-up's", () => {
    expect(readFileSync("src/profiles.ts", "utf8")).not.toMatch(/"(apt-get|dpkg)"/);
  });
});
