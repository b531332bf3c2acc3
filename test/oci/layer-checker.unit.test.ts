/** Checks of layers in worker threads: order, bounds, aborts. What a layer may hold is tested without threads. */
import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import { afterAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { LayerChecks } from "../../src/oci/layers/checker.ts";
import type { LayerCheck } from "../../src/oci/layers/contract.ts";
import { quietLog } from "../store/scratch.ts";
import { entry, sha256, symlink, tar } from "../support/layer-bytes.ts";

const GZIP = "application/vnd.oci.image.layer.v1.tar+gzip";
const checker = new LayerChecks(quietLog);
afterAll(() => checker.close());

const open = (layer: Buffer, more = {}) =>
  checker.open({
    digest: sha256(layer),
    size_bytes: layer.length,
    media_type: GZIP,
    unpacked_bytes_max: 2 ** 30,
    take: null,
    ...more,
  });

async function send(check: LayerCheck, layer: Buffer): Promise<void> {
  for (let at = 0; at < layer.length; at += 65_536) await check.write(layer.subarray(at, at + 65_536));
}

const LAYER = tar(entry({ name: "random", content: randomBytes(3_000_000) }), symlink("a", "b"));
const RESULT = { diff_id: sha256(LAYER), unpacked_bytes: LAYER.length, skipped_devices: 0 };

describe("a layer that streams to a thread", () => {
  it("passes with its digest, and the caller's bytes stay as they were", async () => {
    const layer = gzipSync(LAYER);
    const before = Buffer.from(layer);
    const check = open(layer);
    await send(check, layer);
    expect(await check.end()).toEqual(RESULT);
    expect(layer.equals(before)).toBe(true);
    check.abort();
  });

  it("fails at the write after the entry that is refused, and at the end", async () => {
    const layer = gzipSync(tar(entry({ name: "../x" }), entry({ name: "large", content: randomBytes(8_000_000) })));
    const check = open(layer);
    const refused = { code: "IMAGE_INVALID", message: "layer entry ../x leads out of the layer: ../x" };
    await expect(send(check, layer)).rejects.toMatchObject(refused);
    await expect(check.write(layer)).rejects.toMatchObject(refused);
    await expect(check.end()).rejects.toMatchObject(refused);
  });

  it("waits while the window of bytes is on its way", async () => {
    const check = open(Buffer.alloc(0), { size_bytes: 2 ** 30 });
    let isPending = true;
    const writing = check.write(Buffer.alloc(LIMITS.layer_window_bytes + 1)).catch(() => {});
    void writing.then(() => {
      isPending = false;
    });
    await new Promise(setImmediate);
    expect(isPending).toBe(true);
    await writing;
    check.abort();
  });

  it("ends when it is aborted, at any time", async () => {
    const layer = gzipSync(LAYER);
    for (const pieces of [0, 1, 10]) {
      const check = open(layer);
      for (let i = 0; i < pieces; i++) await check.write(layer.subarray(i * 1_000, i * 1_000 + 1_000));
      check.abort();
      check.abort();
      await expect(check.end()).rejects.toMatchObject({ code: "INTERNAL", message: /aborted/ });
      await expect(check.write(layer)).rejects.toMatchObject({ message: /aborted/ });
    }
  });
});

describe("many layers at once", () => {
  it("are checked side by side, up to the bound", async () => {
    const layer = gzipSync(LAYER);
    const checks = Array.from({ length: LIMITS.layer_checks_max }, () => open(layer));
    expect(() => open(layer)).toThrow(/too many layers at once/);
    await Promise.all(checks.map((check) => send(check, layer)));
    expect(await Promise.all(checks.map((check) => check.end()))).toEqual(checks.map(() => RESULT));
    const again = open(layer);
    again.abort();
  });

  it("give their places back however they end", async () => {
    const layer = gzipSync(LAYER);
    for (let round = 0; round < 3; round++) {
      const checks = Array.from({ length: LIMITS.layer_checks_max }, () => open(layer));
      const ends = checks.map(async (check, i) => {
        if (i % 3 === 0) return check.abort();
        await send(check, i % 3 === 1 ? layer : Buffer.from(layer).fill(7, 100)).catch(() => {});
        await check.end().catch(() => {});
      });
      await Promise.all(ends);
    }
    const check = open(layer);
    await send(check, layer);
    expect(await check.end()).toEqual(RESULT);
  });
});

describe("something that is no layer", () => {
  it.each([
    ["media type", { media_type: "application/vnd.cncf.helm.chart.content.v1.tar+gzip" }],
    ["media type", { media_type: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" }],
    ["media type", { media_type: "application/vnd.oci.image.layer.v1.tar+gzip+encrypted" }],
    ["digest", { digest: `sha512:${"0".repeat(128)}` }],
    ["digest", { digest: "sha256:0" }],
  ])("is refused by its %s", (what, more) => {
    expect(() => open(LAYER, more)).toThrow(new RegExp(`^${what} of a layer not supported: `));
  });

  it("has one of the media types of layers", () => {
    for (const suffix of ["", "+gzip", "+zstd"]) {
      open(LAYER, { media_type: `application/vnd.oci.image.layer.v1.tar${suffix}` }).abort();
    }
    for (const suffix of ["", ".gzip", ".zstd"]) {
      open(LAYER, { media_type: `application/vnd.docker.image.rootfs.diff.tar${suffix}` }).abort();
    }
  });
});
