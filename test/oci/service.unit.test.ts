/** Images of tenants on a store: who has which, under which references, and what the image store keeps. */
import { describe, expect, it } from "vitest";
import { firstPage } from "../../src/base/paging.ts";
import { scratchStores } from "../store/scratch.ts";
import { container, content, idOf, MEGABYTE, makeImages } from "./tenant-images.ts";

const ALPINE = "docker.io/library/alpine:3.20";
const refused = (code: string, message?: unknown) =>
  expect.objectContaining(message === undefined ? { code } : { code, message });

describe("images of tenants", () => {
  const scratch = scratchStores();
  const made = () => makeImages(scratch().open());
  const listed = async ({ images }: Awaited<ReturnType<typeof made>>, tenant_id: string, filter = "") =>
    (await images.list(tenant_id, { filter, include_digests: true }, firstPage())).items.map(
      ({ reference }) => reference,
    );

  it("are found by every spelling of the reference, by id and by the beginning of one", async () => {
    const { images } = await made();
    await images.put("a", ALPINE, content({ mark: "abcdef123456" }), "pulled");
    const id = idOf("abcdef123456");
    for (const text of [ALPINE, "alpine:3.20", "index.docker.io/alpine:3.20", id, `sha256:${id}`, "abcdef123456"]) {
      expect([text, (await images.get("a", text)).reference]).toEqual([text, ALPINE]);
    }
    for (const text of ["alpine", "alpine:3.2", "abcdef123457", "sha256:abcdef123457", idOf("abcdef123457")]) {
      await expect(images.get("a", text)).rejects.toEqual(refused("NOT_FOUND", `image '${text}' not found`));
    }
    await expect(images.get("a", "-x")).rejects.toEqual(refused("INVALID_ARGUMENT"));
  });

  it("get no further reference from a row that is deleted meanwhile", async () => {
    const store = scratch().open();
    const { images, state } = await makeImages(store);
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    const readOne = store.readOne.bind(store) as (...asked: readonly unknown[]) => Promise<never>;
    store.readOne = (async (sql: string, args: unknown) => {
      const row = await readOne(sql, args);
      if (sql.includes("layers, manifest")) await images.delete("a", ALPINE, true);
      return row;
    }) as unknown as typeof store.readOne;
    await expect(images.tag("a", ALPINE, "other:1")).rejects.toEqual(refused("NOT_FOUND"));
    expect(state.kept.at(-1)).toEqual([]);
    expect((await images.list("a", { include_digests: false }, firstPage())).items).toEqual([]);
  });

  it("that are shared do not tell when other tenants use them", async () => {
    const { store, images } = await made();
    await images.put("default", ALPINE, content({ mark: "aa" }), "pulled");
    await images.share("default", ALPINE, true);
    const { use } = await images.resolve("a", ALPINE);
    await store.write([use.statement]);
    expect((await images.get("default", ALPINE)).last_used_at).not.toBeNull();
    expect((await images.get("b", ALPINE)).last_used_at).toBeNull();
    expect((await images.inspect("b", ALPINE)).image.last_used_at).toBeNull();
    const { items } = await images.list("b", { include_digests: false }, firstPage());
    expect(items.map(({ last_used_at }) => last_used_at)).toEqual([null]);
  });

  it("show the fields of the configuration, its history with sizes, and the stored texts", async () => {
    const { images } = await made();
    await images.put("a", ALPINE, content({ mark: "aa", size_mb: 3 }), "pulled");
    expect(await images.get("a", ALPINE)).toMatchObject({
      ...{
        id: `sha256:${idOf("aa")}`,
        tenant_id: "a",
        registry: "docker.io",
        repository: "library/alpine",
        tag: "3.20",
      },
      ...{ size_bytes: 3 * MEGABYTE, os: "linux", default_cmd: ["/bin/sh"], entrypoint: null, env: ["A=1"] },
      ...{ exposed_ports: ["80/tcp"], volumes: [], labels: {}, user_spec: null, working_dir: null },
      ...{ created_at: 1_767_323_045, last_used_at: null, ref_count: 0, is_shared: false },
    });
    const detail = await images.inspect("a", ALPINE);
    expect(JSON.parse(detail.manifest_json)).toEqual({ schemaVersion: 2 });
    expect(JSON.parse(detail.config_json).config.Env).toEqual(["A=1"]);
    expect(detail.layers).toHaveLength(1);
    const steps = (await images.history("a", ALPINE)).map(({ created_by, size_bytes }) => [created_by, size_bytes]);
    expect(steps).toEqual([
      ["COPY a", 3 * MEGABYTE],
      ["ENV A=1", 0],
    ]);
  });

  it("of one tenant are missing to another by every way, also where both have the same content", async () => {
    const { images } = await made();
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    await images.put("b", "docker.io/library/other:1", content({ mark: "aa" }), "pulled");
    for (const text of [ALPINE, "alpine:3.20"]) {
      const ways = [
        images.get("b", text),
        images.inspect("b", text),
        images.history("b", text),
        images.resolve("b", text),
        images.delete("b", text, true),
        images.tag("b", text, "mine:1"),
        images.share("b", text, true),
      ];
      for (const way of ways) await expect(way).rejects.toEqual(refused("NOT_FOUND", `image '${text}' not found`));
    }
    expect((await images.get("b", idOf("aa"))).reference).toBe("docker.io/library/other:1");
    expect((await images.get("a", ALPINE)).tenant_id).toBe("a");
  });

  it("are listed in pages, by a part of the reference, without digests unless asked", async () => {
    const all = await made();
    const { images } = all;
    for (const mark of ["a1", "a2", "a3"]) await images.put("a", `docker.io/x/${mark}:1`, content({ mark }), "pulled");
    await images.put("b", "docker.io/x/b1:1", content({ mark: "b1" }), "pulled");
    expect(await listed(all, "a")).toEqual(["docker.io/x/a3:1", "docker.io/x/a2:1", "docker.io/x/a1:1"]);
    expect(await listed(all, "a", "a2")).toEqual(["docker.io/x/a2:1"]);
    expect(await listed(all, "a", "%")).toEqual([]);
    const first = await images.list("a", { include_digests: false }, firstPage(2));
    expect(first.items.map(({ manifest_digest, config_digest }) => [manifest_digest, config_digest])).toEqual([
      [null, null],
      [null, null],
    ]);
    const rest = await images.list("a", { include_digests: true }, { limit: 2, below: first.last ?? 0 });
    expect([rest.items.length, rest.items[0]?.manifest_digest, rest.last]).toEqual([1, `sha256:${idOf("fa1")}`, null]);
  });

  it("give a reference a later image, which frees the one before", async () => {
    const { images, state } = await made();
    await images.put("a", ALPINE, content({ mark: "a1" }), "pulled");
    await images.put("a", ALPINE, content({ mark: "a2" }), "pulled");
    await images.free();
    expect(state.kept.at(-1)).toEqual([idOf("a2")]);
    await expect(images.get("a", idOf("a1"))).rejects.toEqual(refused("NOT_FOUND"));
  });

  it("get further references, none with a digest, and are deleted with the last one", async () => {
    const { images, state } = await made();
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    expect((await images.tag("a", "alpine:3.20", "base")).reference).toBe("docker.io/library/base:latest");
    await expect(images.tag("a", "base", `base@sha256:${idOf("aa")}`)).rejects.toEqual(refused("INVALID_ARGUMENT"));
    await expect(images.delete("a", idOf("aa"), true)).rejects.toEqual(
      refused("INVALID_ARGUMENT", expect.stringContaining("2 references")),
    );
    expect(await images.delete("a", "alpine:3.20", true)).toBe(ALPINE);
    expect(state.kept.at(-1)).toEqual([idOf("aa")]);
    await images.delete("a", idOf("aa"), true);
    expect(state.kept.at(-1)).toEqual([]);
  });
});

describe("an image in use", () => {
  const scratch = scratchStores();
  const made = () => makeImages(scratch().open());

  it("is not deleted with its last reference, and its uses are counted", async () => {
    const { store, images } = await made();
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    await images.tag("a", ALPINE, "second:1");
    await store.write([container("ctr_1", "a", idOf("aa")), container("ctr_2", "b", idOf("aa"))]);
    expect((await images.get("a", ALPINE)).ref_count).toBe(1);
    await images.delete("a", "second:1", true);
    await expect(images.delete("a", ALPINE, true)).rejects.toMatchObject({
      code: "IN_USE",
      message: `image '${ALPINE}' is in use by 1 container`,
      details: { received: "ctr_1" },
    });
    await store.write([{ sql: "DELETE FROM containers WHERE id = 'ctr_1'" }]);
    // The other tenant's container is none of its business.
    expect(await images.delete("a", ALPINE, true)).toBe(ALPINE);
  });

  it("counts no container of a profile", async () => {
    const { store, images } = await made();
    await images.put("default", "localhost/hearth/prod:1", content({ mark: "aa" }), "pulled");
    await store.write([container("ctr_1", "default", idOf("aa"), "release")]);
    expect((await images.get("default", idOf("aa"))).ref_count).toBe(0);
    await images.delete("default", idOf("aa"), true);
  });

  it("cannot be taken for a container once it is deleted, whichever comes first", async () => {
    const { store, images } = await made();
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    const { use } = await images.resolve("a", ALPINE);
    await images.delete("a", ALPINE, true);
    const late = await store.write([use.statement, container("ctr_1", "a", idOf("aa"))]);
    expect([late.conflict, use.refusal().code]).toEqual([0, "NOT_FOUND"]);
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    const again = await images.resolve("a", ALPINE);
    const early = await store.write([again.use.statement, container("ctr_1", "a", idOf("aa"))]);
    expect(early.conflict).toBe(null);
    expect((await images.get("a", ALPINE)).last_used_at).toEqual(expect.any(Number));
    await expect(images.delete("a", ALPINE, true)).rejects.toEqual(refused("IN_USE"));
  });

  it("is kept with what containers and versions need, and freed when nothing does", async () => {
    const { images, state } = await made();
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    state.used = [idOf("bb")];
    await images.prune();
    expect(state.kept).toEqual([[idOf("aa"), idOf("bb")]]);
    // Once more: an image that is mounted stays at first.
    for (let i = 0; i < 5; i++) await images.prune();
    expect(state.kept).toHaveLength(2);
    state.used = [];
    await images.prune();
    expect(state.kept.at(-1)).toEqual([idOf("aa")]);
    await images.eraseAll("a");
    expect(state.kept.at(-1)).toEqual([]);
  });

  it("is freed later if the image store fails", async () => {
    const { images, state } = await made();
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    state.failure = new Error("down");
    await images.delete("a", ALPINE, true);
    state.failure = null;
    await images.prune();
    expect(state.kept).toEqual([[]]);
  });

  it("does not start on a machine of another architecture", async () => {
    const { images } = await made();
    await images.put("a", ALPINE, content({ mark: "aa", architecture: "s390x" }), "pulled");
    await expect(images.resolve("a", ALPINE)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(/^image: wrong platform: linux\/s390x \(this node runs linux\/\w+\)$/),
    });
  });
});

describe("an image that the operator shares", () => {
  const scratch = scratchStores();

  it("is every tenant's to run and nobody else's to change, until the sharing ends", async () => {
    const { store, images } = await makeImages(scratch().open());
    await images.put("default", ALPINE, content({ mark: "aa" }), "pulled");
    await expect(images.get("b", ALPINE)).rejects.toEqual(refused("NOT_FOUND"));
    expect((await images.share("default", ALPINE, true)).is_shared).toBe(true);
    expect((await images.get("b", ALPINE)).tenant_id).toBe("default");
    expect((await images.list("b", { include_digests: true }, firstPage())).items).toHaveLength(1);
    const { use } = await images.resolve("b", ALPINE);
    await expect(images.delete("b", ALPINE, true)).rejects.toEqual(refused("FORBIDDEN"));
    await expect(images.share("b", ALPINE, false)).rejects.toEqual(refused("FORBIDDEN"));
    // Its own one of the same name comes first.
    await images.put("b", ALPINE, content({ mark: "bb" }), "pulled");
    expect((await images.resolve("b", ALPINE)).image_id).toBe(idOf("bb"));
    await images.delete("b", ALPINE, true);
    await images.share("default", ALPINE, false);
    await expect(images.resolve("b", ALPINE)).rejects.toEqual(refused("NOT_FOUND"));
    expect((await store.write([use.statement])).conflict).toBe(0);
  });
});

describe("the limits of a tenant", () => {
  const scratch = scratchStores();

  it("bound the number of references and the size of its images, each image once", async () => {
    const { images, quotas } = await makeImages(scratch().open());
    quotas.set("a", { images_max: 3, image_mb_max: 12 });
    expect(await images.room("a", ALPINE)).toBe(12 * MEGABYTE);
    await images.put("a", ALPINE, content({ mark: "a1", size_mb: 6 }), "pulled");
    expect(await images.room("a", ALPINE)).toBe(6 * MEGABYTE);
    const large = images.put("a", "docker.io/x/large:1", content({ mark: "a2", size_mb: 7 }), "pulled");
    await expect(large).rejects.toEqual(refused("QUOTA_EXCEEDED", expect.stringContaining("image_mb_max (limit 12")));
    await images.tag("a", ALPINE, "x/second:1");
    await images.put("a", "docker.io/x/third:1", content({ mark: "a3", size_mb: 6 }), "pulled");
    await expect(images.tag("a", ALPINE, "x/fourth:1")).rejects.toEqual(
      refused("QUOTA_EXCEEDED", expect.stringContaining("images_max (limit 3")),
    );
    await expect(images.room("a", "docker.io/x/fourth:1")).rejects.toEqual(refused("QUOTA_EXCEEDED"));
    expect(await images.room("a", ALPINE)).toBe(0);
    // Nothing of it counts for another tenant.
    await images.put("b", ALPINE, content({ mark: "a1", size_mb: 6 }), "pulled");
  });

  it("holds at many changes at once", async () => {
    const { images, quotas } = await makeImages(scratch().open());
    quotas.set("a", { images_max: 5 });
    const puts = Array.from({ length: 20 }, (_, n) =>
      images.put("a", `docker.io/x/n${n}:1`, content({ mark: `a${n}` }), "pulled"),
    );
    const settled = await Promise.allSettled(puts);
    expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(5);
  });

  it("refuses an image for a tenant that is being deleted", async () => {
    const { store, images } = await makeImages(scratch().open());
    await store.write([{ sql: "UPDATE tenants SET state = 'deleting' WHERE id = 'a'" }]);
    const late = images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    await expect(late).rejects.toEqual(refused("UNAUTHORIZED"));
  });
});

describe("events of images", () => {
  const scratch = scratchStores();

  it("name reference and id to the tenant whose image it is, and to no other", async () => {
    const { store, images } = await makeImages(scratch().open());
    await images.put("a", ALPINE, content({ mark: "aa" }), "pulled");
    await images.tag("a", ALPINE, "base:1");
    await images.delete("a", "base:1", true);
    const rows = await store.read("SELECT tenant_id, event_type, data FROM events ORDER BY seq");
    expect(rows.map(({ tenant_id, event_type }) => [tenant_id, event_type])).toEqual([
      ["a", "pulled"],
      ["a", "tagged"],
      ["a", "removed"],
    ]);
    expect(JSON.parse(String(rows[1]?.data))).toMatchObject({
      reference: "docker.io/library/base:1",
      image_id: `sha256:${idOf("aa")}`,
    });
  });
});
