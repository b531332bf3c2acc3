/** Archives of images as existing programs write them: which images are in them. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { zstdCompressSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { UNBOUNDED_TURN } from "../../src/base/transfer-turns.ts";
import { readTar } from "../../src/engine/files/archive.ts";
import { keepArchive } from "../../src/oci/loads/archive-files.ts";
import { imagesOf } from "../../src/oci/loads/archive-images.ts";
import { machinePlatform } from "../../src/oci/platform.ts";
import { parseReference } from "../../src/oci/reference.ts";
import { resolveImage } from "../../src/oci/registry/manifests.ts";
import { dockerArchiveOf, imageOf } from "../support/docker-archives.ts";
import { entry, sha256, tar } from "../support/layer-bytes.ts";
import { oddImage } from "../support/odd-images.ts";
import { descriptorOf, jsonBytes, OCI_INDEX, OCI_MANIFEST } from "../support/registry.ts";

const place = { directory: "" };
beforeEach(() => {
  place.directory = mkdtempSync(join(tmpdir(), "hearth-forms-"));
});
afterEach(() => rmSync(place.directory, { recursive: true, force: true }));

/** The names of the images of an archive, and the digests of their configurations on this machine. */
async function found(archive: Buffer) {
  async function* source() {
    yield Buffer.from(archive);
  }
  const bounds = { bytes_max: LIMITS.image_archive_bytes_max, entries_max: LIMITS.image_archive_entries_max };
  const reader = await readTar(source(), bounds, UNBOUNDED_TURN);
  const { signal } = new AbortController();
  const files = await keepArchive(reader, place.directory, { reserve: async () => {}, signal });
  const resolved = (await imagesOf(files)).map(async ({ names, tag, source }) => {
    const asked = { source, limits: LIMITS, reference: parseReference("x:1"), platform: machinePlatform() };
    return [names, tag, (await resolveImage(asked)).config_digest];
  });
  return Promise.all(resolved);
}

function image(config: object = {}, more: Partial<Parameters<typeof oddImage>[0]> = {}) {
  const { made } = oddImage({ program: import.meta.filename, config, ...more });
  return { ...made, id: sha256(made.config), described: descriptorOf(OCI_MANIFEST, made.manifest) };
}
const [one, two] = [image(), image({ Env: ["A=b"] })];
/** As BuildKit adds it to each image that it builds. */
const provenance = (() => {
  const statement = jsonBytes({ _type: "https://in-toto.io/Statement/v0.1" });
  const config = jsonBytes({ architecture: "unknown", os: "unknown", rootfs: { type: "layers", diff_ids: [] } });
  const layer = descriptorOf("application/vnd.in-toto+json", statement);
  const manifest = jsonBytes({
    schemaVersion: 2,
    mediaType: OCI_MANIFEST,
    config: descriptorOf("x", config),
    layers: [layer],
  });
  const annotations = { "vnd.docker.reference.type": "attestation-manifest" };
  const platform = { os: "unknown", architecture: "unknown" };
  return {
    blobs: [statement, config, manifest],
    described: { ...descriptorOf(OCI_MANIFEST, manifest), annotations, platform },
  };
})();

const named = (name: string) => ({ annotations: { "io.containerd.image.name": name } });
const tagged = (tag: string) => ({ annotations: { "org.opencontainers.image.ref.name": tag } });
const indexOf = (...manifests: object[]) => jsonBytes({ schemaVersion: 2, mediaType: OCI_INDEX, manifests });
function layout(index: Buffer, ...blobs: readonly Buffer[]): Buffer {
  const own = new Map(blobs.map((bytes) => [`blobs/${sha256(bytes).replace(":", "/")}`, bytes]));
  return tar(...[...own, ["index.json", index] as const].map(([name, content]) => entry({ name, content })));
}
const blobsOf = (...images: readonly (typeof one)[]) =>
  images.flatMap(({ manifest, config, layers }) => [manifest, config, ...layers]);

describe("an archive of images", () => {
  it("of BuildKit has no image for its attestations, wherever the index has them", async () => {
    const all = [...blobsOf(one), ...provenance.blobs];
    for (const entries of [
      [{ ...one.described, ...named("a/b:1") }, provenance.described],
      [provenance.described, { ...one.described, ...named("a/b:1"), platform: machinePlatform() }],
    ]) {
      expect(await found(layout(indexOf(...entries), ...all))).toEqual([[["a/b:1"], null, one.id]]);
    }
    const nested = indexOf(provenance.described, one.described);
    const top = indexOf({ ...descriptorOf(OCI_INDEX, nested), ...named("a/b:2") });
    expect(await found(layout(top, nested, ...all))).toEqual([[["a/b:2"], null, one.id]]);
  });

  it("of attestations alone has none", async () => {
    const archive = layout(indexOf(provenance.described), ...provenance.blobs);
    await expect(found(archive)).rejects.toMatchObject({ message: "the archive has no image" });
  });

  it("of umoci or skopeo has one for each tag, and platforms of one tag are one image", async () => {
    const index = indexOf({ ...one.described, ...tagged("latest") }, { ...two.described, ...tagged("second") });
    expect(await found(layout(index, ...blobsOf(one, two)))).toEqual([
      [[], "latest", one.id],
      [[], "second", two.id],
    ]);
    const architecture = machinePlatform().architecture === "arm64" ? "amd64" : "arm64";
    const other = image({}, { architecture });
    const both = [
      { ...other.described, ...tagged("t"), platform: { os: "linux", architecture } },
      { ...one.described, ...tagged("t"), platform: machinePlatform() },
    ];
    expect(await found(layout(indexOf(...both), ...blobsOf(one, other)))).toEqual([[[], "t", one.id]]);
  });

  it("of docker save may have a layer twice under one name, if the bytes are the same", async () => {
    const docker = image({}, { format: "docker", compressions: ["none"] });
    const [layer = Buffer.alloc(0)] = docker.layers;
    const again = (content: Buffer) => entry({ name: `${sha256(layer).slice(7)}/layer.tar`, content });
    const archive = (content: Buffer) => dockerArchiveOf([imageOf(["a:1"], docker)], [again(content)], [docker]);
    expect(await found(archive(layer))).toEqual([[["a:1"], null, docker.id]]);
    await expect(found(archive(tar()))).rejects.toMatchObject({ message: /twice, with other bytes/ });
  });

  it.each([
    ["zstd", (bytes: Buffer) => zstdCompressSync(bytes)],
    [
      "zstd",
      (bytes: Buffer) => Buffer.concat([Buffer.from("502a4d180400000001020304", "hex"), zstdCompressSync(bytes)]),
    ],
    ["xz", (bytes: Buffer) => Buffer.concat([Buffer.from("fd377a585a000004", "hex"), bytes])],
    ["bzip2", (bytes: Buffer) => Buffer.concat([Buffer.from("BZh91AY&SY"), bytes])],
  ])("in %s is refused by that name, with the way to send it", async (program, compress) => {
    const random = Buffer.from(Array.from({ length: 2_000 }, (_, i) => sha256(Buffer.from(`${i}`))).join(""));
    await expect(found(compress(tar(entry({ content: random }))))).rejects.toMatchObject({
      message: `archive compressed with ${program} (expected tar or tar.gz)`,
      hint: `send what ${program} -dc writes of it`,
    });
  });
});
