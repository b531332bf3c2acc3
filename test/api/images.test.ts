/** Images through the real API, on the real store: what a tenant pulls is its own, and goes when nothing needs it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { build, MadeImages, pullLocal } from "../support/made-images.ts";
import { scrape } from "../support/metrics.ts";

const NAME = `localhost/hearth-test-images-${process.pid}`;
const REFERENCE = `${NAME}:latest`;
const SETTINGS = { HEARTH_CELLS: "0" };
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new ContainerUser(daemon);
const state = { id: "", key: "", tenant_id: "" };
type Json = Answer["body"];

const path = (verb: string, reference: string) => `/api/oci/images${verb}?reference=${encodeURIComponent(reference)}`;
const asOther = (method: string, url: string, body?: unknown) =>
  daemon.call(method, url, body, { "x-api-key": state.key });
const codeOf = ({ status, body }: Answer) => [status, body.error_code];
const isStored = (id: string) => build("images", "--quiet", "--no-trunc").includes(id);
const references = async (call: typeof asOther = (...asked) => daemon.call(...asked)) =>
  (await call("GET", "/api/oci/images")).body.images.map(({ reference }: Json) => reference);

beforeAll(async () => {
  state.id = made.make("first");
  await daemon.start(SETTINGS);
  const { body } = await daemon.call("POST", "/api/tenants", { name: "other" });
  state.tenant_id = body.tenant_id;
  state.key = (await daemon.call("POST", `/api/tenants/${body.tenant_id}/api-keys`, { name: "k" })).body.key;
});
afterAll(async () => {
  await daemon.dispose();
  made.remove();
});

describe("an image of the local store", () => {
  it("is the operator's after a pull with its key, with the fields of its configuration", async () => {
    expect(codeOf(await daemon.call("POST", "/api/containers", { name: "x", image: NAME, oci: true }))).toEqual([
      404,
      "NOT_FOUND",
    ]);
    const image = await pullLocal(daemon, NAME);
    expect(image).toMatchObject({
      ...{ id: `sha256:${state.id}`, config_digest: `sha256:${state.id}`, reference: REFERENCE, registry: "localhost" },
      ...{ repository: NAME.slice("localhost/".length), tag: "latest", tenant_id: "default", os: "linux" },
      ...{ labels: { version: "first" }, is_shared: false, ref_count: 0, last_used_at: null },
    });
    expect(image.env).toContain("VERSION=first");
    expect(image.size_bytes).toBeGreaterThan(1_000_000);
    const { body: detail } = await daemon.call("GET", path("/inspect", NAME));
    expect(detail.image).toEqual(image);
    expect(JSON.parse(detail.config_json).config.Labels.version).toBe("first");
    expect(JSON.parse(detail.manifest_json).layers).toHaveLength(detail.layers.length);
    const sizes = detail.layers.map(({ uncompressed_size }: Json) => uncompressed_size);
    expect(sizes.reduce((sum: number, size: number) => sum + size, 0)).toBe(image.size_bytes);
    const { history } = (await daemon.call("GET", path("/history", NAME))).body;
    expect(history.length).toBeGreaterThan(0);
  });

  it("cannot be named by any other key", async () => {
    const body = { reference: `containers-storage:${NAME}` };
    expect(codeOf(await asOther("POST", "/api/oci/images/pull", body))).toEqual([403, "FORBIDDEN"]);
    const { key } = (await daemon.call("POST", "/api/api-keys", { name: "own" })).body;
    const own = await daemon.call("POST", "/api/oci/images/pull", body, { "x-api-key": key });
    expect(codeOf(own)).toEqual([403, "FORBIDDEN"]);
    const missing = { reference: "containers-storage:localhost/no-such-image:1" };
    expect(codeOf(await daemon.call("POST", "/api/oci/images/pull", missing))).toEqual([404, "NOT_FOUND"]);
    for (const transport of ["dir:/etc", "docker-archive:/etc/passwd", "containers-storage:[overlay@/x]y", "-x", ""]) {
      const answer = await daemon.call("POST", "/api/oci/images/pull", { reference: transport });
      expect([transport, answer.status]).toEqual([transport, 400]);
    }
  });

  it("is pulled by an operation, whose event and record name it", async () => {
    const body = { reference: `containers-storage:${NAME}` };
    const handle = await daemon.call("POST", "/api/oci/images/pull?execution=async", body);
    expect(handle.status).toBe(202);
    const { body: ended } = await daemon.call("GET", `${handle.body.status_url}?wait_seconds=60`);
    expect(ended).toMatchObject({
      ...{ status: "succeeded", operation_type: "oci.pull", target_resource_type: "image" },
      ...{ target_resource_id: REFERENCE, result: { reference: REFERENCE }, progress_pct: 100 },
    });
  });
});

describe("the metrics", () => {
  it("count the operations that ended, and the images of all tenants", async () => {
    const metrics = await scrape(daemon);
    const ended = (status: string) => metrics.of("hearth_operations_total", { operation_type: "oci.pull", status });
    expect([ended("succeeded"), ended("failed")]).toEqual([2, 1]);
    const { image } = (await daemon.call("GET", path("/inspect", NAME))).body;
    expect([metrics.of("hearth_images"), metrics.of("hearth_images_size_bytes")]).toEqual([1, image.size_bytes]);
  });
});

describe("another tenant", () => {
  it("finds, runs, tags and deletes none of it, by reference or id, and hears nothing of it", async () => {
    expect(await references(asOther)).toEqual([]);
    for (const name of [NAME, REFERENCE, state.id, `sha256:${state.id}`, state.id.slice(0, 12)]) {
      const answers = [
        await asOther("GET", path("/inspect", name)),
        await asOther("GET", path("/history", name)),
        await asOther("DELETE", path("", name)),
        await asOther("POST", "/api/oci/images/tag", { reference: name, target: "mine:1" }),
        await asOther("POST", "/api/containers", { name: "taken", image: name, oci: true }),
      ];
      for (const answer of answers) {
        expect([name, ...codeOf(answer)]).toEqual([name, 404, "NOT_FOUND"]);
        // Word for word as of one that no tenant has.
        expect(answer.body.error).toBe(`image '${name}' not found`);
      }
    }
    expect(codeOf(await asOther("PATCH", "/api/oci/images", { reference: NAME, is_shared: true }))).toEqual([
      403,
      "FORBIDDEN",
    ]);
    const abort = new AbortController();
    const stream = await fetch(`${daemon.url}/api/events?last_event_id=0`, {
      headers: { "x-api-key": state.key },
      signal: abort.signal,
    });
    const { value } = (await stream.body?.getReader().read()) ?? {};
    abort.abort();
    expect(Buffer.from(value ?? []).toString()).not.toContain("image_update");
    expect((await asOther("GET", "/api/operations")).body.operations).toEqual([]);
    expect((await daemon.call("GET", path("/inspect", NAME))).body.image.ref_count).toBe(0);
  });

  it("does not reach the image of a profile, or names that the daemon keeps images by", async () => {
    const names = build("images", "--format", "{{.Name}}:{{.Tag}}").split("\n");
    expect(names.some((name) => name.includes("/kept:"))).toBe(true);
    for (const name of names.map((one) => one.trim()).filter((one) => !one.includes("<none>"))) {
      const answer = await asOther("POST", "/api/containers", { name: "taken", image: name, oci: true });
      expect([name, ...codeOf(answer)]).toEqual([name, 404, "NOT_FOUND"]);
    }
  });

  it("runs what the operator shares, and keeps what it made of it after that", async () => {
    const call = (method: string, url: string, body?: unknown) => asOther(method, url, body);
    expect((await daemon.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true })).status).toBe(200);
    expect(await references(asOther)).toEqual([REFERENCE]);
    const box = await call("POST", "/api/containers", { name: "box", image: NAME, oci: true });
    expect([box.status, box.body.error]).toEqual([201, undefined]);
    const { container_id } = box.body;
    const cat = () => call("POST", `/api/containers/${container_id}/exec`, { command: ["cat", "/version"] });
    expect((await cat()).body.stdout).toBe("first\n");
    expect(codeOf(await call("DELETE", path("", NAME)))).toEqual([403, "FORBIDDEN"]);
    await daemon.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: false });
    expect(codeOf(await call("POST", "/api/containers", { name: "two", image: NAME, oci: true }))).toEqual([
      404,
      "NOT_FOUND",
    ]);
    await call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    expect((await call("POST", `/api/containers/${container_id}/start?execution=sync`)).status).toBe(200);
    expect((await cat()).body.stdout).toBe("first\n");
    expect((await call("DELETE", `/api/containers/${container_id}`)).status).toBe(200);
  });
});

describe("a container of an image", () => {
  it("keeps the image: its reference cannot be deleted, and the image stays over a restart", async () => {
    const { container_id } = await user.create({ name: "keeper", image: NAME, oci: true });
    expect((await daemon.call("GET", path("/inspect", NAME))).body.image).toMatchObject({
      ref_count: 1,
      last_used_at: expect.any(Number),
    });
    const refusal = await daemon.call("DELETE", path("", NAME));
    expect(codeOf(refusal)).toEqual([409, "IN_USE"]);
    expect(refusal.body.details.received).toBe(container_id);
    // A further reference may go, and be what keeps the image.
    await daemon.call("POST", "/api/oci/images/tag", { reference: NAME, target: "base:1" });
    expect((await daemon.call("DELETE", path("", NAME))).status).toBe(200);
    expect(codeOf(await daemon.call("DELETE", path("", "base:1")))).toEqual([409, "IN_USE"]);
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect(await user.shell(container_id, "cat /version")).toBe("first\n");
    expect(await references()).toEqual(["docker.io/library/base:1"]);
    const second = await user.create({ name: "second", image: "base:1", oci: true });
    expect(await user.shell(second.container_id, "cat /version")).toBe("first\n");
    await user.delete(container_id, second.container_id);
    expect((await daemon.call("DELETE", path("", "base:1"))).status).toBe(200);
    expect(await references()).toEqual([]);
  });

  it("is made while its image is deleted, or is not: no container is left without its image", async () => {
    for (let i = 0; i < 8; i++) {
      await pullLocal(daemon, NAME);
      const [create, remove] = await Promise.all([
        daemon.call("POST", "/api/containers", { name: `race-${i}`, image: NAME, oci: true }),
        daemon.call("DELETE", path("", NAME)),
      ]);
      expect([[201, 409].join(), [404, 200].join()]).toContain([create.status, remove.status].join());
      if (create.status !== 201) continue;
      expect(await user.shell(create.body.container_id, "cat /version")).toBe("first\n");
      await user.delete(create.body.container_id);
      await daemon.call("DELETE", path("", NAME));
    }
  });
});

describe("the store", () => {
  it("loses an image that only tenants had, when the last of them deletes it, and keeps what somebody named", async () => {
    await pullLocal(daemon, NAME);
    const id = build("commit", "--quiet", "--rm", build("from", "scratch"), `${NAME}:scratch`);
    await pullLocal(daemon, `${NAME}:scratch`);
    build("rmi", `${NAME}:scratch`);
    expect(isStored(id)).toBe(true);
    expect((await daemon.call("DELETE", path("", `${NAME}:scratch`))).status).toBe(200);
    await eventually("the image is removed", () => !isStored(id));
    expect((await daemon.call("DELETE", path("", NAME))).status).toBe(200);
    expect(isStored(state.id)).toBe(true);
  });

  it("holds a pull that a tenant's limit refuses no longer than that", async () => {
    const limits = { images_max: 0 };
    await daemon.call("PATCH", "/api/tenants/default", { limits });
    try {
      const answer = await daemon.call("POST", "/api/oci/images/pull", { reference: `containers-storage:${NAME}` });
      expect(codeOf(answer)).toEqual([403, "QUOTA_EXCEEDED"]);
      await daemon.call("PATCH", "/api/tenants/default", { limits: { images_max: 10, image_mb_max: 1 } });
      const large = await daemon.call("POST", "/api/oci/images/pull", { reference: `containers-storage:${NAME}` });
      expect([codeOf(large), large.body.error]).toEqual([
        [403, "QUOTA_EXCEEDED"],
        expect.stringContaining("image_mb_max (limit 1,"),
      ]);
    } finally {
      await daemon.call("PATCH", "/api/tenants/default", {
        limits: { images_max: "default", image_mb_max: "default" },
      });
    }
    expect(await references()).toEqual([]);
    const keptNames = () => build("images", "--format", "{{.Name}}:{{.Tag}}").split("\n").filter(isOwn);
    const isOwn = (name: string) => name.includes(`/kept:hearth-${daemon.tag}-`);
    await eventually("no image is kept", () => keptNames().length === 0);
  });

  it("frees the images of a tenant that is deleted, which is not empty with them", async () => {
    await pullLocal(daemon, NAME);
    await daemon.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    await asOther("POST", "/api/oci/images/tag", { reference: NAME, target: "mine:1" });
    await daemon.call("DELETE", path("", NAME));
    expect((await asOther("GET", path("/inspect", "mine:1"))).status).toBe(200);
    expect((await asOther("GET", "/api/tenant")).body.usage).toMatchObject({ images: 1 });
    expect(codeOf(await daemon.call("DELETE", `/api/tenants/${state.tenant_id}`))).toEqual([409, "NOT_EMPTY"]);
    expect((await daemon.call("DELETE", `/api/tenants/${state.tenant_id}?force=true`)).status).toBe(200);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    await daemon.start(SETTINGS);
    expect((await daemon.call("GET", "/api/oci/health", undefined, { "x-api-key": KEY })).body).toEqual({
      ...{ status: "ok", concern: "oci", image_count: 0, reason: null },
    });
  });
});
