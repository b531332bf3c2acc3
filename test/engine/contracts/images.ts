/** The promises of the `Images` port. */
import { expect, it } from "vitest";
import { profileImage } from "../../../src/installation/profiles.js";
import type { BootedEngine } from "./booted-engine.ts";

export function imagesContract({ engine: { images } }: BootedEngine): void {
  const { reference } = profileImage();

  it("finds an image by its reference and by its id", async () => {
    const found = await images.find(reference);
    expect(found).toMatchObject({ reference, id: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(found.release).not.toBe("");
    expect(await images.find(found.id)).toEqual({ ...found, reference: found.id });
  });

  it.each(["hearth/none:1", "", "--help", "a b", "../x"])(
    "rejects the reference '%s' with NOT_FOUND",
    async (missing) => {
      await expect(images.find(missing)).rejects.toMatchObject({ code: "NOT_FOUND" });
    },
  );

  it("tells whether an image is in the store, and of which release", async () => {
    const { release } = await images.find(reference);
    expect(await images.isRelease(reference, null)).toBe(true);
    expect(await images.isRelease(reference, release)).toBe(true);
    expect(await images.isRelease(reference, `${release}x`)).toBe(false);
    expect(await images.isRelease("hearth/none:1", null)).toBe(false);
  });
}
