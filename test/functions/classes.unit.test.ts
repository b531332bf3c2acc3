/** Classes of instances: by runtime, and by the image that a version was made with. */
import { describe, expect, it } from "vitest";
import { RUNTIME_DEFAULT } from "../../runtimes/index.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Classes } from "../../src/functions/classes.ts";
import { hasOwnImage } from "../../src/functions/schema.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { quietLog } from "../store/scratch.ts";
import { BARE_RUNTIMES } from "./no-parts.ts";

const version = { runtime: RUNTIME_DEFAULT, image: "prod", oci: false, tenant_id: "ten_a" };

function classes(images: readonly string[]) {
  const asked: string[] = [];
  const store = { images, isAnswering: true, state: 1 };
  const port = {
    state: () => String(store.state),
    isRelease: async (id: string) => {
      asked.push(id);
      if (!store.isAnswering) throw new AppError("INTERNAL", "buildah did not end within 30000 ms");
      return store.images.includes(id);
    },
  };
  const clock = new HandClock();
  const options = {
    runtimes: BARE_RUNTIMES,
    runtimes_directory: "",
    compiled: new Map(),
    imageOf: () => "present",
    images: port,
    clock,
    log: quietLog,
  };
  return { asked, store, clock, classes: new Classes(options) };
}

describe("the class of a version", () => {
  it("is that of the present image if the version has none, or that one", () => {
    const { classes: known } = classes([]);
    expect(known.of(version)).toMatchObject({ image: "present" });
    expect(known.register(version, "present")).toBe(known.of(version));
  });

  it("is another one for an earlier image, and found by its key once it is registered", () => {
    const { classes: known } = classes(["earlier"]);
    const { key } = known.register(version, "earlier");
    expect(key).not.toBe(known.of(version).key);
    expect(known.find(key)).toMatchObject({ key, image: "earlier" });
    expect(classes([]).classes.find(key)).toBeNull();
  });

  it("of an own image is the tenant's, and no other image stands in for that one", async () => {
    const { classes: known, asked } = classes([]);
    const release = { ...version, image: "rlm:stable" };
    const { key, image } = known.register(release, "present");
    expect(image).toBe("present");
    expect(key).not.toBe(known.of(version).key);
    expect(known.made({ ...release, image: "rlm" }, "present").key).toBe(key);
    expect(known.made({ ...release, tenant_id: "ten_b" }, "present").key).not.toBe(key);
    expect(await known.available("gone", hasOwnImage(release))).toBe("gone");
    expect(await known.startable(key)).toMatchObject({ image: "present" });
    expect(asked).toEqual([]);
    expect(known.release(key)).toBe(true);
    expect(known.find(key)).toBeNull();
    expect([hasOwnImage(version), hasOwnImage({ ...version, oci: true })]).toEqual([false, true]);
  });

  it("is looked up in the store once for each earlier image while the store stays as it is, for the present one never", async () => {
    const { classes: known, asked } = classes(["earlier"]);
    const images = ["earlier", "gone", "earlier", "gone", "present", null];
    expect(await Promise.all(images.map((image) => known.available(image)))).toEqual([
      ...["earlier", null, "earlier", null],
      ...["present", null],
    ]);
    expect(asked).toEqual(["earlier", "gone"]);
  });

  it("follows the store: an image that vanishes gives way to the present one, and comes back", async () => {
    const { classes: known, store } = classes(["earlier"]);
    const { key } = known.register(version, "earlier");
    expect(await known.startable(key)).toMatchObject({ key, image: "earlier" });
    Object.assign(store, { images: [], state: 2 });
    expect(await known.available("earlier")).toBeNull();
    expect(await known.startable(key)).toMatchObject({ key, image: "present" });
    Object.assign(store, { images: ["earlier"], state: 3 });
    expect(await known.available("earlier")).toBe("earlier");
    expect(await known.startable(key)).toMatchObject({ key, image: "earlier" });
  });

  it("stays that of its image if the store does not answer, and asks again later", async () => {
    const { asked, classes: known, clock, store } = classes(["other"]);
    store.isAnswering = false;
    expect(await known.available("gone")).toBe("gone");
    expect(await known.available("earlier")).toBe("earlier");
    expect(asked).toEqual(["gone"]);
    store.isAnswering = true;
    await clock.pass(60_000);
    expect(await known.available("gone")).toBeNull();
    Object.assign(store, { isAnswering: false, state: 2 });
    expect(await known.available("gone")).toBeNull();
  });

  it("counts no image against the bound that the store lacks", async () => {
    const gone = Array.from({ length: LIMITS.function_images_max }, (_, i) => `gone-${i}`);
    const { classes: known } = classes(["earlier"]);
    for (const image of gone) expect(await known.available(image)).toBeNull();
    expect(await known.available("earlier")).toBe("earlier");
  });

  it("is that of the present image above the bound on earlier ones", async () => {
    const stored = Array.from({ length: LIMITS.function_images_max + 1 }, (_, i) => `image-${i}`);
    const { classes: known } = classes(stored);
    const available: (string | null)[] = [];
    for (const image of stored) available.push(await known.available(image));
    expect(available).toEqual([...stored.slice(0, -1), null]);
  });
});
