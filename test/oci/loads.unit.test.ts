/** Loads of archives on a clock that the test moves: one that does not end gives its place back. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { UNBOUNDED_TURN } from "../../src/base/transfer-turns.ts";
import { readTar } from "../../src/engine/files/archive.ts";
import type { ArchiveBounds, Files } from "../../src/engine/ports.ts";
import { ImageLoads, type LoadsOptions } from "../../src/oci/loads/service.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { scratchStores } from "../store/scratch.ts";
import { dockerArchiveOf, imageOf } from "../support/docker-archives.ts";
import { entry } from "../support/layer-bytes.ts";
import { oddImage } from "../support/odd-images.ts";
import { makeImages } from "./tenant-images.ts";

const directory = mkdtempSync(join(tmpdir(), "hearth-loads-"));
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe("a load", () => {
  const scratch = scratchStores();
  const none = () => new AbortController().signal;

  async function made(played: Pick<LoadsOptions, "gateway" | "arrivals"> | object = {}) {
    const clock = new HandClock();
    const { images: tenant_images } = await makeImages(scratch().open());
    const read = (_tenant: string, source: AsyncIterable<Uint8Array>, bounds: ArchiveBounds) =>
      readTar(source, bounds, UNBOUNDED_TURN);
    const loads = new ImageLoads({
      ...{ tenant_images, clock, directory, ids: randomIds() },
      engine: { files: { readTar: read } as unknown as Files },
      ...(played as Pick<LoadsOptions, "gateway" | "arrivals">),
    });
    const load = (archive: AsyncIterable<Uint8Array>) =>
      loads.load({ tenant_id: "a", reference: null, archive, signal: none() });
    return { clock, load };
  }

  /** An archive that comes just fast enough, for days: a file that no image needs. */
  async function* endless(clock: HandClock) {
    yield entry({ name: "repositories", size: 2 ** 32 }).subarray(0, 512);
    for (;;) {
      await clock.pass(LIMITS.upload_stall_ms);
      yield Buffer.alloc(LIMITS.spool_bytes_min);
    }
  }

  it("whose archive comes for ever ends at its deadline, and gives its place to others", async () => {
    const { clock, load } = await made();
    const begun_ms = clock.now_ms;
    const late = { code: "TIMEOUT", message: `images of an archive not taken within ${LIMITS.image_pull_ms} ms` };
    const all = Array.from({ length: LIMITS.image_loads_per_tenant_max }, () => load(endless(clock)));
    await expect(load(endless(clock))).rejects.toMatchObject({ code: "CONCURRENCY_LIMIT" });
    for (const one of all) await expect(one).rejects.toMatchObject(late);
    expect(clock.now_ms - begun_ms).toBeLessThanOrEqual(LIMITS.image_pull_ms + 2 * LIMITS.upload_stall_ms);
    expect([readdirSync(directory), clock.timer_count]).toEqual([[], 0]);
    await expect(load(endless(clock))).rejects.toMatchObject(late);
  });

  it("has one deadline for all its images", async () => {
    const state = { taken: 0 };
    const { clock, load } = await made({
      gateway: { openLocal: async () => ({ accepting_policy: null }) },
      arrivals: {
        // Each arrival alone is within the deadline.
        take: async ({ signal }: { readonly signal: AbortSignal }) => {
          state.taken++;
          await clock.pass(LIMITS.image_pull_ms * 0.6);
          signal.throwIfAborted();
        },
      },
    });
    const image = oddImage({ program: import.meta.filename, format: "docker", compressions: ["none"] }).made;
    const bytes = dockerArchiveOf([imageOf(["x:1"], image), imageOf(["x:2"], image)], [], [image]);
    await expect(load(one(bytes))).rejects.toMatchObject({ code: "TIMEOUT" });
    expect([state.taken, readdirSync(directory), clock.timer_count]).toEqual([2, [], 0]);
  });
});

async function* one(bytes: Buffer) {
  yield bytes;
}
