/** Classes of instances: by runtime, and by the image that a version was made with. */
import { describe, expect, it } from "vitest";
import { RUNTIME_DEFAULT, RUNTIMES } from "../../runtimes/index.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Classes } from "../../src/functions/classes.ts";
import { quietLog } from "../store/scratch.ts";

const version = { runtime: RUNTIME_DEFAULT };

function classes(stored: readonly string[]) {
  const asked: string[] = [];
  const hasImage = async (id: string) => {
    asked.push(id);
    return stored.includes(id);
  };
  return { asked, classes: new Classes({ runtimes: RUNTIMES, imageOf: () => "present", hasImage, log: quietLog }) };
}

describe("the class of a version", () => {
  it("is that of the present image if the version has none, or that one", () => {
    const { classes: known } = classes([]);
    expect(known.of(version)).toMatchObject({ image: "present" });
    expect(known.of(version, "present")).toBe(known.of(version));
  });

  it("is another one for an earlier image, and found by its key once it was asked for", () => {
    const { classes: known } = classes(["earlier"]);
    const { key } = known.of(version, "earlier");
    expect(key).not.toBe(known.of(version).key);
    expect(known.find(key)).toMatchObject({ key, image: "earlier" });
    expect(classes([]).classes.find(key)).toBeNull();
  });

  it("is looked up in the store of images once for each earlier image, and for the present one never", async () => {
    const { classes: known, asked } = classes(["earlier"]);
    const images = ["earlier", "gone", "earlier", "gone", "present", null];
    expect(await Promise.all(images.map((image) => known.available(image)))).toEqual([
      ...["earlier", null, "earlier", null],
      ...["present", null],
    ]);
    expect(asked).toEqual(["earlier", "gone"]);
  });

  it("is that of the present image above the bound on earlier ones", async () => {
    const stored = Array.from({ length: LIMITS.function_images_max + 1 }, (_, i) => `image-${i}`);
    const { classes: known } = classes(stored);
    const available: (string | null)[] = [];
    for (const image of stored) available.push(await known.available(image));
    expect(available).toEqual([...stored.slice(0, -1), null]);
  });
});
