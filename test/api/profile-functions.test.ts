/** Functions on releases of profiles: first use, what a version keeps, dry runs, failures and kills. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { type Answer, Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { build, mountsOf } from "../support/made-images.ts";
import { buildTraces, Recipes } from "../support/recipes.ts";

const recipes = new Recipes();
const which = (text: string) => ({ scripts: { "/usr/local/bin/which-release": ["#!/bin/sh", `echo ${text}`] } });
const SAYS = { ...which("first"), tools: ["sh", "which-release"], environment: { GREETING: "hello" } };
const FIRST = recipes.add("first", SAYS);
const SHARED = recipes.add("shared", { ...SAYS, verify: ["sleep 2"] });
const LATE = recipes.add("late", { ...SAYS, verify: ["sleep 8"] });
const SLOW = recipes.add("slow", { ...SAYS, verify: ["sleep 20"] });
const BROKEN = recipes.add("broken", { verify: ["echo lacks-a-thing >&2; false"] });
const DRY = recipes.add("dry", SAYS);
const ONE = recipes.add("one", SAYS);
const TWO = recipes.add("two", SAYS);
const MOVED = recipes.add("moved", SAYS);
const LEFT = recipes.add("left", { ...SAYS, verify: ["sleep 2"] });

const daemon = new Daemon();
const settings = { HEARTH_PROFILES_DIR: recipes.directory, HEARTH_CELLS: "0" };
let user: CodeUser;
let other: CodeUser;
type Json = Answer["body"];

beforeAll(async () => {
  await daemon.start(settings);
  user = await CodeUser.ofTenant(daemon, "user", { limits: { images_max: 0 } });
  other = await CodeUser.ofTenant(daemon, "other");
});

afterAll(async () => {
  await daemon.dispose();
  recipes.remove();
});

const create = (fields: object, of = user) =>
  of.call("POST", "/api/functions", { handler: "which-release", ...fields });
const put = (id: string, fields: object) => user.call("PUT", `/api/functions/${id}`, fields);
const remove = async (id: string, of = user) => {
  expect((await of.call("DELETE", `/api/functions/${id}`)).status).toBeLessThan(300);
};
const byName = (name: string, of = user) => of.call("GET", `/api/functions/by-name/${name}`);
const profile = async (name: string): Promise<Json> => (await daemon.call("GET", `/api/nightly/profiles/${name}`)).body;
const releases = async (name: string): Promise<Json[]> =>
  (await daemon.call("GET", `/api/nightly/profiles/${name}/releases`)).body.releases;
/** The release that `latest` names. */
const latest = async (name: string): Promise<Json> =>
  (await releases(name)).find(({ channels }: Json) => channels.includes("latest"));
const said = async (name: string): Promise<string> => (await user.invoke(name)).stdout;

/** Names by which daemons keep an image in the store. */
function keptNames(image_id: string): string[] {
  const names = build("images", "--format", "{{.Name}}:{{.Tag}}").split("\n");
  return names.filter((one) => one.includes("/kept:") && one.includes(image_id.slice(7, 39)));
}

/** Deploys a function that exists. */
async function deployed(id: string): Promise<Json> {
  const { status, body } = await user.call("POST", `/api/functions/${id}/deploy`, {});
  expect([status, body.state]).toEqual([200, "active"]);
  return body;
}

/** Builds the release of a recipe. */
async function built(name: string): Promise<Json> {
  const { body: handle } = await daemon.call("POST", `/api/nightly/profiles/${name}/build`, {});
  await eventually(
    "the build has ended",
    async () => (await daemon.call("GET", `/api/operations/${handle.operation_id}`)).body.completed_at !== null,
    60_000,
  );
  return latest(name);
}

/** Takes up a changed recipe, as an upgrade does, and builds it. */
async function upgraded(name: string, revision: number): Promise<Json> {
  recipes.change(name, { revision, ...which(`release ${revision}`) });
  expect(await daemon.stop()).toBe(0);
  await daemon.start(settings);
  return built(name);
}

describe("a native selector as image of a function", () => {
  it("builds the release by its first use, and stays as it was written; the tenant gets no image by it", async () => {
    expect((await profile(FIRST)).state).toBe("absent");
    const { status, body } = await create({ name: "first", image: FIRST, handler: 'which-release; echo "$GREETING"' });
    const { image_id, version } = await latest(FIRST);
    expect([status, body]).toMatchObject([201, { image: FIRST, oci: false, image_id }]);
    expect(keptNames(image_id)).toHaveLength(1);
    expect(await deployed(body.id)).toMatchObject({ image: FIRST, image_id, version: 1 });
    expect(await said("first")).toBe("first\nhello\n");
    expect((await user.call("GET", "/api/oci/images")).body.images).toEqual([]);
    for (const image of [`${FIRST}:latest`, `${FIRST}@${version}`]) {
      const { body: next } = await put(body.id, { image });
      expect(next).toMatchObject({ image, image_id, state: "active" });
      expect(await said("first")).toBe("first\nhello\n");
    }
    const { body: diff } = await user.call("GET", `/api/functions/${body.id}/versions/1/diff/2`);
    expect(diff.changes).toEqual([{ field: "image", from: FIRST, to: `${FIRST}:latest` }]);
    const { body: shared } = await put(body.id, { image: null, handler: "echo $GREETING; which-release" });
    expect(shared).toMatchObject({ image: "prod" });
    expect(await user.invoke("first")).toMatchObject({ stdout: "\n", exit_code: 127 });
    await remove(body.id);
    await eventually("the image is free", () => mountsOf(daemon.leftovers(), image_id.slice(7)).length === 0);
  }, 120_000);

  it("is that of all runtimes, and of prod's own releases", async () => {
    const js = "export const handler = () => [process.version, process.env.GREETING];";
    const py = "import os\ndef handler(payload, context):\n    return [payload, os.environ['GREETING']]\n";
    const node = await user.deploy("node", { "index.mjs": js }, { ...NODEJS, image: FIRST });
    const python = await user.deploy("python", { "main.py": py }, { ...PYTHON3, image: FIRST });
    expect((await user.invoke("node")).result).toEqual([process.version, "hello"]);
    expect((await user.invoke("python", 7)).result).toEqual([7, "hello"]);
    const { version, image_id } = await latest("prod");
    const { body } = await put(node, { image: `prod@${version}`, handler: "index.mjs#handler" });
    expect(body).toMatchObject({ image: `prod@${version}`, image_id });
    expect((await user.invoke("node")).result).toEqual([process.version, null]);
    for (const id of [node, python]) await remove(id);
  }, 120_000);

  it("is refused if it names no profile or a release that is not here, and changes nothing", async () => {
    const { body: base } = await create({ name: "base", handler: "true" });
    const refused = async ({ status, body }: Answer) => [status, body.error_code, body.error];
    const cases = [
      ["nope", 400, "INVALID_ARGUMENT", "image: unknown profile 'nope' on this node"],
      [`${FIRST}:newest`, 400, "INVALID_ARGUMENT", `image: unknown profile '${FIRST}:newest' on this node`],
      [`${ONE}:stable`, 404, "NOT_FOUND", `channel stable of profile '${ONE}' not found on this node`],
      [
        `${ONE}@000000000000-00000000`,
        ...[404, "NOT_FOUND", `release '000000000000-00000000' of profile '${ONE}' not found on this node`],
      ],
    ];
    for (const [image, ...answer] of cases) {
      expect(await refused(await create({ name: "refused", image }))).toEqual(answer);
      expect(await refused(await put(base.id, { image }))).toEqual(answer);
      for (const dry_run of [false, true]) {
        const deployment = await user.deployments([{ name: "refused", handler: "true", image }], { dry_run });
        expect(await refused(deployment)).toEqual([answer[0], answer[1], `function 'refused': ${answer[2]}`]);
      }
    }
    expect((await byName("refused")).status).toBe(404);
    expect((await byName("base")).body).toMatchObject({ version: 1, image: "prod" });
    expect((await profile(ONE)).state).toBe("absent");
    await remove(base.id);
  });
});

describe("a reference of a profile as image of a function", () => {
  it("needs an image of the tenant, which a version of the same release by its selector does not hold", async () => {
    const reference = `profiles.hearth.internal/${FIRST}:latest`;
    const fields = { image: reference, oci: true };
    expect((await create({ name: "pulled", ...fields }, other)).status).toBe(404);
    expect((await other.call("POST", "/api/oci/images/pull", { reference })).body.success).toBe(true);
    const { body: pulled } = await create({ name: "pulled", ...fields }, other);
    const { body: native } = await create({ name: "native", image: FIRST }, other);
    expect(pulled).toMatchObject({ ...fields, image_id: native.image_id });
    const rmi = () => other.call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`);
    expect((await rmi()).body).toMatchObject({ error_code: "IN_USE" });
    await remove(pulled.id, other);
    expect((await rmi()).status).toBe(200);
    const deployment = await other.call("POST", `/api/functions/${native.id}/deploy`, {});
    expect([deployment.status, (await other.invoke("native")).stdout]).toEqual([200, "first\n"]);
    // From one way to the other.
    expect((await other.call("POST", "/api/oci/images/pull", { reference })).body.success).toBe(true);
    const change = (more: object) => other.call("PUT", `/api/functions/${native.id}`, more);
    expect((await change(fields)).body).toMatchObject(fields);
    expect((await change({ image: FIRST })).body).toMatchObject({
      ...{ error_code: "NOT_FOUND", error: `image '${FIRST}' not found` },
      hint: "for the profile of this name, send oci: false",
    });
    expect((await change({ image: FIRST, oci: false })).body).toMatchObject({ image: FIRST, oci: false });
    await remove(native.id, other);
  }, 120_000);
});

describe("a dry run", () => {
  it("names what would change, and builds, keeps and mounts nothing", async () => {
    const before = buildTraces(daemon.data_dir);
    const { body: made } = await create({ name: "dry-old", handler: "true" });
    const functions = [
      { name: "dry-new", handler: "which-release", image: DRY },
      { name: "dry-old", handler: "true", image: `${DRY}:latest` },
    ];
    const { status, body } = await user.deployments(functions, { dry_run: true });
    expect([status, body.functions]).toMatchObject([
      200,
      [
        { name: "dry-new", action: "created", version: 1 },
        { name: "dry-old", action: "updated", version: 2 },
      ],
    ]);
    expect(body.functions[1].changes).toEqual([
      { field: "image", from: "prod", to: `${DRY}:latest` },
      { field: "image_id", from: made.image_id, to: null },
    ]);
    expect(await profile(DRY)).toMatchObject({ state: "absent", message: null });
    expect(buildTraces(daemon.data_dir)).toEqual(before);
    // With the release, the handler is checked too.
    const { image_id } = await built(DRY);
    const checked = await user.deployments([{ ...functions[0], handler: "no-such-program" }], { dry_run: true });
    expect([checked.status, checked.body.error]).toEqual([
      400,
      "function 'dry-new': handler: command not found: no-such-program",
    ]);
    expect((await user.deployments(functions, { dry_run: true })).body.functions[1].changes[1].to).toBe(image_id);
    expect((await byName("dry-new")).status).toBe(404);
    expect((await byName("dry-old")).body).toMatchObject({ version: 1, image: "prod" });
    expect(keptNames(image_id)).toEqual([]);
    await remove(made.id);
  }, 120_000);
});

describe("a build for functions", () => {
  it("serves two tenants and a container at once, and a deployment of several profiles", async () => {
    const body = { name: "box", image: SHARED, memory_limit_mb: 256 };
    const [mine, theirs, box] = await Promise.all([
      create({ name: "shared", image: SHARED }),
      create({ name: "shared", image: SHARED }, other),
      other.call("POST", "/api/containers", body),
    ]);
    expect([mine.status, theirs.status, box.status]).toEqual([201, 201, 201]);
    expect(mine.body.image_id).toBe(theirs.body.image_id);
    expect((await profile(SHARED)).release_count).toBe(1);
    await other.call("DELETE", `/api/containers/${box.body.container_id}`);
    await remove(theirs.body.id, other);
    // What one tenant deletes takes nothing from the other.
    await deployed(mine.body.id);
    expect(await said("shared")).toBe("first\n");
    const { status, body: answer } = await user.deployments([
      { name: "one", handler: "which-release", image: ONE },
      { name: "two", handler: "which-release", image: TWO },
    ]);
    expect([status, answer.functions?.map(({ action }: Json) => action)]).toEqual([200, ["created", "created"]]);
    expect([await said("one"), await said("two")]).toEqual(["first\n", "first\n"]);
    for (const name of ["shared", "one", "two"]) await remove((await byName(name)).body.id);
  }, 120_000);

  it("keeps no other change of the function waiting", async () => {
    const { body } = await create({ name: "late", handler: "true" });
    const late = put(body.id, { image: LATE, handler: "which-release" });
    await eventually("the build runs", async () => (await profile(LATE)).state === "building");
    expect((await put(body.id, { timeout_seconds: 7 })).body).toMatchObject({ version: 2, image: "prod" });
    expect((await profile(LATE)).state).toBe("building");
    expect((await late).body).toMatchObject({ version: 3, image: LATE, timeout_seconds: 7 });
    await remove(body.id);
  }, 120_000);

  it("that fails refuses the function, shows its log to the operator alone, and leaves nothing", async () => {
    const { status, body } = await create({ name: "broken", image: BROKEN });
    expect([status, body]).toMatchObject([
      503,
      { error_code: "START_FAILED", reason_code: "PROFILE_BUILD_FAILED", retry_after: expect.any(Number) },
    ]);
    expect(JSON.stringify(body)).not.toContain("lacks-a-thing");
    expect((await byName("broken")).status).toBe(404);
    const again = await user.deployments([{ name: "broken", handler: "true", image: BROKEN }]);
    expect([again.status, again.body.reason_code]).toEqual([503, "PROFILE_BUILD_FAILED"]);
    expect((await byName("broken")).status).toBe(404);
  }, 120_000);

  it("continues after its client has gone, and then no function is made", async () => {
    const left = new AbortController();
    const asked = fetch(`${daemon.url}/api/functions`, {
      method: "POST",
      headers: { "x-api-key": user.key, "content-type": "application/json" },
      body: JSON.stringify({ name: "left", handler: "which-release", image: LEFT }),
      signal: left.signal,
    });
    await eventually("the build runs", async () => (await profile(LEFT)).state === "building");
    left.abort();
    await expect(asked).rejects.toThrow();
    await eventually("the release is there", async () => (await profile(LEFT)).state === "ready");
    expect((await byName("left")).status).toBe(404);
    expect(keptNames((await latest(LEFT)).image_id)).toEqual([]);
  }, 120_000);

  it("that is killed with the daemon leaves no half of a function", async () => {
    const before = buildTraces(daemon.data_dir);
    const { body } = await create({ name: "stays", handler: "true" });
    const made = create({ name: "slow", image: SLOW }).catch(() => null);
    const changed = put(body.id, { image: SLOW }).catch(() => null);
    await eventually("the build has a root", () => buildTraces(daemon.data_dir).layers[0], 30_000);
    await daemon.stop("SIGKILL");
    expect(await Promise.all([made, changed])).toEqual([null, null]);
    await eventually("the build is gone", () => buildTraces(daemon.data_dir).layers.length === 0, 30_000);
    await daemon.start(settings);
    expect((await byName("slow")).status).toBe(404);
    expect((await byName("stays")).body).toMatchObject({ version: 1, image: "prod", state: "pending" });
    await eventually("nothing is left", () => {
      expect(buildTraces(daemon.data_dir)).toEqual(before);
      return true;
    });
    await remove(body.id);
  }, 120_000);
});

describe("the release of a version", () => {
  it("is let go of if no function was made with it", async () => {
    const { image_id } = await latest(LEFT);
    const { body } = await create({ name: "taken", handler: "true" });
    const refusals = await Promise.all([
      create({ name: "taken", image: LEFT }),
      create({ name: "bad", image: LEFT, working_directory: "/none" }),
      put(body.id, { image: LEFT, runtime: "nodejs" }),
      user.deployments([{ name: "bad", image: LEFT, handler: "no-such-program" }]),
    ]);
    expect(refusals.map(({ status }) => status)).toEqual([409, 400, 400, 400]);
    await eventually("the image store keeps it for nobody", () => keptNames(image_id).length === 0);
    expect(mountsOf(daemon.leftovers(), image_id.slice(7))).toEqual([]);
    await remove(body.id);
  }, 120_000);

  it("stays if the node loses the recipe of its profile", async () => {
    const { body } = await create({ name: "orphan", image: FIRST });
    await deployed(body.id);
    expect(await daemon.stop()).toBe(0);
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(await said("orphan")).toBe("first\n");
    expect((await put(body.id, { timeout_seconds: 9 })).body).toMatchObject({ version: 2, image: FIRST });
    expect(await said("orphan")).toBe("first\n");
    expect((await put(body.id, { image: FIRST })).body.error).toBe(`image: unknown profile '${FIRST}' on this node`);
    await remove(body.id);
    expect(await daemon.stop()).toBe(0);
    await daemon.start(settings);
  }, 120_000);

  it("stays through rebuilds, promotions, prunings and kills, until it is named again, and a rollback returns to it", async () => {
    const first = await built(MOVED);
    const { body } = await create({ name: "moved", image: MOVED });
    await deployed(body.id);
    await daemon.call("POST", `/api/nightly/profiles/${MOVED}/promote`, { channel: "stable", version: first.version });
    const { body: stable } = await create({ name: "stable", image: `${MOVED}:stable` });
    await deployed(stable.id);
    const second = await upgraded(MOVED, 2);
    expect(second.image_id).not.toBe(first.image_id);
    await daemon.call("POST", `/api/nightly/profiles/${MOVED}/promote`, { channel: "stable", version: second.version });
    expect([await said("moved"), await said("stable")]).toEqual(["first\n", "first\n"]);
    expect((await put(body.id, { timeout_seconds: 20 })).body).toMatchObject({ version: 2, image_id: first.image_id });
    expect(await said("moved")).toBe("first\n");
    // A deployment names it again.
    const again = { name: "moved", handler: "which-release", image: MOVED, timeout_seconds: 20 };
    const { body: plan } = await user.deployments([again], { dry_run: true });
    expect(plan.functions[0]).toMatchObject({
      action: "updated",
      changes: [{ field: "image_id", from: first.image_id, to: second.image_id }],
    });
    expect((await user.deployments([again])).body.functions[0]).toMatchObject({ action: "updated", version: 3 });
    expect(await said("moved")).toBe("release 2\n");
    expect((await user.deployments([again])).body.functions[0]).toMatchObject({ action: "unchanged", version: 3 });
    expect((await put(stable.id, { image: `${MOVED}:stable` })).body).toMatchObject({ image_id: second.image_id });
    expect(await said("stable")).toBe("release 2\n");
    // Three newer releases are kept, and older ones that nothing uses are removed.
    for (const revision of [3, 4, 5, 6]) await upgraded(MOVED, revision);
    const kept = (await releases(MOVED)).map(({ image_id }) => image_id);
    expect(kept).toEqual(expect.arrayContaining([first.image_id, second.image_id]));
    expect(kept).toHaveLength(5);
    for (const [version, stdout] of [
      [1, "first\n"],
      [3, "release 2\n"],
      [1, "first\n"],
    ] as const) {
      expect((await user.call("POST", `/api/functions/${body.id}/rollback`, { version })).status).toBe(200);
      expect(await said("moved")).toBe(stdout);
    }
    await daemon.stop("SIGKILL");
    await daemon.start(settings);
    expect(await user.invoke("moved")).toMatchObject({ stdout: "first\n", cold_start: false });
    expect((await byName("moved")).body).toMatchObject({ image: MOVED, image_id: first.image_id, version: 1 });
    for (const id of [body.id, stable.id]) await remove(id);
    // Without versions, the releases go with the next ones.
    await upgraded(MOVED, 7);
    await eventually("the daemon lets go of them", () => keptNames(first.image_id).length === 0);
    await upgraded(MOVED, 8);
    expect((await releases(MOVED)).map(({ image_id }) => image_id)).not.toContain(first.image_id);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  }, 300_000);
});
