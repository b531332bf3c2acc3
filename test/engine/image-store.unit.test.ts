/** Images that the store lacks, and a store that does not answer: only the first says anything of an image. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { MountedImages } from "../../src/engine/images/mounted-images.ts";
import type { LauncherClient } from "../../src/engine/launcher/launcher.ts";
import { imageParts } from "../support/image-parts.ts";

const directory = mkdtempSync(join(tmpdir(), "hearth-image-store-"));
mkdirSync(join(directory, "storage/overlay-images"), { recursive: true });
writeFileSync(join(directory, "storage/overlay-images/images.json"), "[]");
afterAll(() => rmSync(directory, { recursive: true }));

/** A store whose buildah fails with this text. */
function failing(text: string) {
  const launcher = {
    run: async () => {
      throw new AppError("INTERNAL", text);
    },
  } as unknown as LauncherClient;
  return new MountedImages({ ...imageParts(directory, () => launcher), references_max: 10 });
}

describe("a lookup of an image", () => {
  const why = "exited with 125: Error: importing settings:";

  it.each([`${why} a:1: image not known`, `${why} invalid reference format`, `${why} unsupported transport "dir"`])(
    "rejects with NOT_FOUND if buildah %s",
    async (text) => {
      await expect(failing(text).find("a:1")).rejects.toMatchObject({ code: "NOT_FOUND" });
      expect(await failing(text).isRelease("a:1", null)).toBe(false);
    },
  );

  it.each(["did not end within 30000 ms: ", `${why} input/output error`, "exited with null: "])(
    "rejects with INTERNAL if buildah %s, and says nothing of the image",
    async (text) => {
      await expect(failing(text).find("a:1")).rejects.toMatchObject({ code: "INTERNAL" });
      await expect(failing(text).isRelease("a:1", null)).rejects.toMatchObject({ code: "INTERNAL" });
    },
  );

  it("waits while four others run", async () => {
    let [running, most] = [0, 0];
    const launcher = {
      run: async () => {
        most = Math.max(most, ++running);
        await new Promise(setImmediate);
        running--;
        return "id release";
      },
    } as unknown as LauncherClient;
    const mounted = new MountedImages({ ...imageParts(directory, () => launcher), references_max: 100 });
    await Promise.all(Array.from({ length: 50 }, (_, n) => mounted.find(`a:${n}`)));
    expect(most).toBe(4);
  });
});
