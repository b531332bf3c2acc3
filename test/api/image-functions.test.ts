/** Functions on images of their tenants: which image a version has, what runs in it, and what holds the image. */
import { copyFileSync, mkdtempSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PROJECT_DIR } from "../../src/installation/paths.js";
import { type Alpine, shellImage, startAlpine } from "../support/alpine.ts";
import { CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { type Answer, Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { compile } from "../support/helper.ts";
import { build, MadeImages, mountsOf, pullLocal, type Recipe } from "../support/made-images.ts";
import { tarOf } from "../support/registry.ts";

const ALPINE = "alpine:3.20";
const COMPLETE = "docker.io/library/alpine:3.20";
const daemon = new Daemon();
const directory = mkdtempSync("/var/tmp/hearth-facts-");
const program = join(directory, "facts");
const made: MadeImages[] = [];
let alpine: Alpine;
let user: CodeUser;
let other: CodeUser;
let settings: Record<string, string>;
type Json = Answer["body"];

/** Makes an image of a name of its own, which the operator's tenant has then. Returns the name. */
async function image(label: string, recipe: Recipe): Promise<string> {
  const name = `localhost/hearth-test-functions-${label}-${process.pid}`;
  const images = new MadeImages(name);
  made.push(images);
  images.makeOf(recipe);
  await pullLocal(daemon, name);
  return name;
}

const static_only = (label: string, edit: (root: string) => void = () => {}, config: readonly string[] = []) =>
  image(label, {
    edit: (root) => {
      copyFileSync(program, join(root, "facts"));
      edit(root);
    },
    config: config.length === 0 ? [] : [config],
  });
/** The system of the profile without Node. */
const system = (label: string, edit: (root: string) => void = () => {}) =>
  image(label, {
    base: "prod",
    edit: (root) => {
      rmSync(join(root, "usr/local/bin/node"));
      edit(root);
    },
  });

/** A layer of one file. */
const layerOf = (name: string, content: string): Buffer => tarOf(name, Buffer.from(content));
const create = (fields: object) => daemon.call("POST", "/api/functions", { oci: true, ...fields });
const refusal = async (fields: object) => {
  const { status, body } = await create({ name: "refused", handler: "true", ...fields });
  return [status, body.error_code, body.error];
};
const put = (id: string, fields: object) => daemon.call("PUT", `/api/functions/${id}`, fields);
const deploy = (fields: object): Promise<Json> => daemon.deploy({ oci: true, ...fields });
const get = async (id: string): Promise<Json> => (await daemon.call("GET", `/api/functions/${id}`)).body;
const remove = async (id: string) => {
  expect((await daemon.call("DELETE", `/api/functions/${id}`)).status).toBeLessThan(300);
};
const pull = async (reference: string): Promise<Json> => {
  const { status, body } = await daemon.call("POST", "/api/oci/images/pull", { reference, force: true });
  expect([status, body.success]).toEqual([200, true]);
  return body.image;
};
const rmi = (reference: string) => daemon.call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`);
const isMounted = (image_id: string) => mountsOf(daemon.leftovers(), image_id.slice("sha256:".length)).length > 0;

beforeAll(async () => {
  compile(program, [join(import.meta.dirname, "../support/facts.c")]);
  alpine = await startAlpine();
  settings = { ...alpine.settings, HEARTH_CELLS: "4" };
  await daemon.start(settings);
  user = new CodeUser(daemon);
  other = await CodeUser.ofTenant(daemon, "other");
  await pull(ALPINE);
});

afterAll(async () => {
  await daemon.dispose();
  alpine.registry.close();
  for (const images of made) images.remove();
  rmSync(directory, { recursive: true, force: true });
});

/** Cells of each class. */
const cellsOf = async (): Promise<Record<string, number>> => {
  const { classes } = (await daemon.call("GET", "/api/functions/pool/stats")).body;
  return Object.fromEntries(classes.map(({ class: key, cells }: Json) => [key, cells]));
};

describe("a function of the runtime shell on an image", () => {
  it("is isolated as in a profile, finds cells by demand, and lets go of them when it is deleted", async () => {
    const [standard = ""] = Object.keys(await cellsOf());
    const record = await deploy({
      name: "sh",
      handler: "cat /proc/self/status; echo x > /x || echo no",
      image: ALPINE,
    });
    expect(record).toMatchObject({
      image: COMPLETE,
      oci: true,
      image_id: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
    });
    const first = await daemon.invoke("sh");
    expect(first).toMatchObject({ status: "success", cold_start: true });
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
      expect(first.stdout).toContain(`${set}:\t0000000000000000`);
    }
    expect(first.stdout).toMatch(/NoNewPrivs:\t1\n[\s\S]*Seccomp:\t2\n/);
    expect(Number(/Uid:\t(\d+)/.exec(first.stdout)?.[1])).toBeGreaterThan(1_000);
    expect(first.stdout.endsWith("no\n")).toBe(true);
    expect(first.stderr).toMatch(/cannot create \/x: (Read-only file system|Permission denied)/);
    await eventually("a cell of the image is ready", async () => {
      return Object.entries(await cellsOf()).some(([key, cells]) => key !== standard && cells > 0);
    });
    expect(isMounted(record.image_id)).toBe(true);
    await remove(record.id);
    await eventually("the image is free", () => !isMounted(record.image_id));
    expect(Object.keys(await cellsOf())).toEqual([standard]);
  });

  it("has the environment of the image below its own, its directory, code, secrets and /tmp", async () => {
    await daemon.call("PUT", "/api/secrets/TOKEN", { value: "hush" });
    const config = {
      config: { Env: ["A=image", "B=image", "HOME=/root", "PATH=/bin:/opt/tool"], WorkingDir: "/etc/", User: "nobody" },
    };
    alpine.registry.add("library/env", "1", shellImage([], config));
    await pull("env:1");
    const handler = 'echo "$A $B $HOME $PATH $PWD"; cat /run/secrets/TOKEN; echo 1 > /tmp/x && cat /tmp/x';
    const { id } = await deploy({
      name: "env",
      handler,
      image: "env:1",
      environment: { B: "own" },
      secrets: ["TOKEN"],
    });
    expect((await daemon.invoke("env")).stdout).toBe("image own /tmp /bin:/opt/tool /etc\nhush1\n");
    const code_sha256 = await user.upload({ "run.sh": "#!/bin/sh\necho $PWD $PATH" });
    await put(id, { handler: "run.sh", code_sha256, secrets: [] });
    expect(await daemon.invoke("env")).toMatchObject({ stdout: "/function /bin:/opt/tool:/function\n" });
    expect((await get(id)).image).toBe("docker.io/library/env:1");
    await remove(id);
    expect((await rmi("env:1")).status).toBe(200);
  });

  it("runs a command directly where the image has no shell, and says what is missing otherwise", async () => {
    const name = await static_only("static");
    const { id } = await deploy({ name: "static", handler: "/facts one two", image: name });
    expect((await daemon.invoke("static")).stdout).toContain("args one two\n");
    await put(id, { handler: "/facts $HOME" });
    expect(await daemon.invoke("static")).toMatchObject({
      status: "failed",
      exit_code: 127,
      error_message: "cannot run the handler: minit: /bin/sh: No such file or directory",
    });
    await remove(id);
  });
});

describe("runtimes on an image", () => {
  it("nodejs gets the node of the profile, and needs glibc", async () => {
    const glibc = await system("glibc");
    const code = "export const handler = () => [process.version, process.execPath, process.getuid() > 1000];";
    const id = await user.deploy("node", { "index.mjs": code }, { ...NODEJS, image: glibc, oci: true });
    expect((await daemon.invoke("node")).result).toEqual([process.version, "/dev/node", true]);
    const dry = await user.deployments([
      { name: "node", code_sha256: (await get(id)).code_sha256, ...NODEJS, image: glibc, oci: true },
    ]);
    expect(dry.body.functions[0]).toMatchObject({ action: "unchanged", version: 1 });
    await remove(id);
    const musl = await static_only("musl");
    expect(await refusal({ ...NODEJS, image: musl })).toEqual([
      400,
      "INVALID_ARGUMENT",
      `image: '${musl}:latest' has no glibc, which Node needs (musl images, such as alpine, have none)`,
    ]);
  });

  it("python3 and custom run with the interpreter of the image, and python3 is refused without one", async () => {
    const python = await system("python", (root) => {
      // A link to the interpreter, whose name has its version.
      const interpreter = readlinkSync(join(root, "usr/bin/python3"));
      rmSync(join(root, "usr/bin/python3"));
      symlinkSync(`../../bin/${interpreter}`, join(root, "usr/local/bin/python3"));
    });
    const code = "import sys\ndef handler(payload, context):\n    return [sys.executable, payload]\n";
    const id = await user.deploy("python", { "main.py": code }, { ...PYTHON3, image: python, oci: true });
    expect((await user.invoke("python", 7)).result).toEqual(["/usr/local/bin/python3", 7]);
    await remove(id);
    const server = { runtime: "custom", handler: "python3 server.py", image: python, oci: true };
    const custom = await user.deploy("custom", join(PROJECT_DIR, "runtimes/custom/example"), server);
    expect(await user.invoke("custom", { a: 1 })).toMatchObject({ status: "success" });
    await remove(custom);
    expect(await refusal({ ...PYTHON3, image: ALPINE })).toEqual([
      400,
      "INVALID_ARGUMENT",
      `image: '${COMPLETE}' has no Python: neither /usr/local/bin/python3 nor /usr/bin/python3`,
    ]);
  });
});

describe("the image of a version", () => {
  it("stays when the tag moves, until it is named again, and a rollback goes back to it", async () => {
    const { id, image_id } = await deploy({ name: "pinned", handler: "cat /which", image: ALPINE });
    expect(await daemon.invoke("pinned")).toMatchObject({ status: "failed" });
    alpine.registry.add("library/alpine", "3.20", shellImage([layerOf("which", "second\n")]));
    const moved = await pull(ALPINE);
    expect(moved.id).not.toBe(image_id);
    expect((await put(id, { timeout_seconds: 20 })).body).toMatchObject({ version: 2, image_id });
    const { body } = await put(id, { image: ALPINE });
    expect(body).toMatchObject({ version: 3, image: COMPLETE, image_id: moved.id });
    expect((await daemon.invoke("pinned")).stdout).toBe("second\n");
    const onProfile = (await put(id, { image: null, handler: "node --version" })).body;
    expect(onProfile).toMatchObject({ version: 4, image: "prod", oci: false });
    expect((await daemon.invoke("pinned")).stdout).toBe(`${process.version}\n`);
    const { body: diff } = await daemon.call("GET", `/api/functions/${id}/versions/3/diff/4`);
    expect(diff.changes.map(({ field }: Json) => field)).toEqual(["handler", "image", "oci", "image_id"]);
    for (const [version, stdout] of [
      [3, "second\n"],
      [4, `${process.version}\n`],
      [3, "second\n"],
    ] as const) {
      await daemon.call("POST", `/api/functions/${id}/rollback`, { version });
      expect((await daemon.invoke("pinned")).stdout).toBe(stdout);
    }
    const { body: of } = await daemon.call("GET", `/api/functions/${id}/versions/1`);
    expect(of).toMatchObject({ image: COMPLETE, oci: true, image_id });
    // hearth deploy names it again, too.
    alpine.registry.add("library/alpine", "3.20", shellImage());
    await pull(ALPINE);
    const again = { name: "pinned", handler: "cat /which", image: ALPINE, oci: true, timeout_seconds: 20 };
    const { body: plan } = await user.deployments([again], { dry_run: true });
    expect(plan.functions[0].changes).toEqual([{ field: "image_id", from: moved.id, to: image_id }]);
    await remove(id);
  });

  it("cannot be deleted while a version has it, also a superseded one", async () => {
    const { id, image_id } = await deploy({ name: "holds", handler: "cat", image: ALPINE });
    await put(id, { image: null });
    expect((await rmi(ALPINE)).body).toMatchObject({
      error_code: "IN_USE",
      error: `image '${COMPLETE}' is in use by a function version`,
    });
    await remove(id);
    expect((await rmi(ALPINE)).status).toBe(200);
    const id_in_store = image_id.slice("sha256:".length);
    await eventually("it is gone", () => !build("images", "--quiet", "--no-trunc").includes(id_in_store));
    expect(isMounted(image_id)).toBe(false);
    await pull(ALPINE);
  });

  it("is one that the tenant has: another tenant's and a missing one answer the same 404", async () => {
    const body = { name: "theirs", handler: "cat", image: ALPINE, oci: true };
    const { body: theirs } = await daemon.call("GET", `/api/oci/images/inspect?reference=${ALPINE}`);
    for (const image of [ALPINE, theirs.image.id]) {
      const { status, body: refused } = await other.call("POST", "/api/functions", { ...body, image });
      expect([status, refused.error]).toEqual([404, `image '${image}' not found`]);
      expect((await other.deployments([{ ...body, image }])).body).toMatchObject({ error_code: "NOT_FOUND" });
    }
    expect(await refusal({ image: "no-such-image" })).toEqual([404, "NOT_FOUND", "image 'no-such-image' not found"]);
    expect(await refusal({ image: "alpine", oci: false })).toEqual([
      400,
      "INVALID_ARGUMENT",
      "image: unknown profile 'alpine' on this node",
    ]);
    expect(await refusal({})).toEqual([400, "INVALID_ARGUMENT", "image: missing, and oci is true, received nothing"]);
  });

  it.each(["etc", "function"])("starts nothing if /%s is a link in it", async (folder) => {
    const name = await static_only(`link-${folder}`, (root) => symlinkSync("/root", join(root, folder)));
    const { id } = (await create({ name: `link-${folder}`, handler: "/facts", image: name })).body;
    const { status, body } = await daemon.call("POST", `/api/functions/${id}/deploy`, {});
    const called =
      status < 300 ? await daemon.call("POST", `/api/functions/invoke/link-${folder}`, {}) : { status, body };
    expect([called.status, called.body.error]).toEqual([
      503,
      expect.stringMatching(`not a directory in the image: /${folder}$`),
    ]);
    await remove(id);
  });
});

describe("kill -9 of the daemon", () => {
  it("leaves the instances of an image serving, and cells ready", async () => {
    const { id } = await deploy({ name: "lives", handler: "cat", image: ALPINE });
    const before = await daemon.invoke("lives", { payload: "1" });
    await daemon.stop("SIGKILL");
    await daemon.start(settings);
    const after = await daemon.invoke("lives", { payload: "2" });
    expect(after).toMatchObject({ status: "success", stdout: "2", cold_start: false });
    expect(after.instance_nonce).toBe(before.instance_nonce);
    expect(await get(id)).toMatchObject({ state: "active", image: COMPLETE, oci: true });
  });

  it("leaves nothing after a stop, and a later start runs the version on its image", async () => {
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    await daemon.start(settings);
    expect(await daemon.invoke("lives", { payload: "3" })).toMatchObject({ stdout: "3", cold_start: true });
  });
});
