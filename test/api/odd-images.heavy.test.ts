/** An image of 300,000 files, pulled and run through the real API: its containers start with all of them, and deletion frees them. */
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { DockerRegistry } from "../support/docker-registry.ts";
import { compile } from "../support/helper.ts";
import { directory, entry, tar } from "../support/layer-bytes.ts";
import { build } from "../support/made-images.ts";
import { OddImages } from "../support/odd-images.ts";

const DIRECTORIES = 300;
const FILES_EACH = 1_000;
const place = mkdtempSync("/var/tmp/hearth-odd-");
const program = join(place, "look");
const daemon = new Daemon();
const user = new ContainerUser(daemon);
const registry = new DockerRegistry();
const images = new OddImages(registry, daemon, user, program);

beforeAll(async () => {
  compile(program, [join(import.meta.dirname, "../support/look.c")]);
  await registry.start();
  await daemon.start({ HEARTH_CELLS: "0" });
});
afterAll(async () => {
  await daemon.dispose();
  await registry.dispose();
  rmSync(place, { recursive: true, force: true });
});

describe("an image of 300,000 files", () => {
  it("is pulled, runs with all its files in each container, and is deleted", async () => {
    const parts = Array.from({ length: DIRECTORIES }, (_, d) => [
      directory(`all/d${d}`),
      ...Array.from({ length: FILES_EACH }, (_, f) => entry({ name: `all/d${d}/f${f}` })),
    ]);
    const reference = await images.pulled({
      layers: [tar(directory("all"), ...parts.map((part) => Buffer.concat(part)))],
    });
    const all = String(DIRECTORIES * (FILES_EACH + 1));
    for (let i = 0; i < 2; i++) {
      const id = await images.container(reference);
      expect(await images.look(id, "count:/all")).toEqual([all]);
      await user.delete(id);
    }
    const path = `/api/oci/images?reference=${encodeURIComponent(reference)}`;
    expect((await daemon.call("DELETE", path)).status).toBe(200);
    expect(build("images", "--format", "{{.Name}}:{{.Tag}}")).not.toContain(`hearth-${daemon.tag}-`);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  }, 600_000);
});
