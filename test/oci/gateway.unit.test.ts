/** The registry gateway: what buildah gets from it, and how it asks a registry that behaves. */
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { layerKey, type PullProgress } from "../../src/oci/registry/gateway.ts";
import { GatewayTest, placeOf, pullFrom } from "../support/gateway.ts";
import {
  descriptorOf,
  jsonBytes,
  type MadeImage,
  makeImage,
  makeIndex,
  OCI_INDEX,
  OCI_LAYER,
  OCI_MANIFEST,
  sha256,
  tarOf,
} from "../support/registry.ts";

const partsOf = ({ config, layers }: MadeImage) => ({ config: sha256(config), layers: layers.map(sha256) });
const small = (text: string) => tarOf("file", Buffer.from(text));

describe("a registry gateway", () => {
  let test: GatewayTest;
  beforeEach(() => {
    test = new GatewayTest();
  });
  afterEach(() => test.close());

  it("serves the image of a tag under its digest, checked, from a path of the pull's own", async () => {
    const registry = await test.registry();
    const tars = [small("lower"), tarOf("large", randomBytes(3_000_000))];
    const image = registry.add("team/app", "1.0", makeImage({ layers: tars }));
    const reports: PullProgress[] = [];
    const onProgress = (progress: PullProgress) => void reports.push(progress);
    const source = await test.open(test.gateway(), `${registry.host}/team/app:1.0`, { onProgress });
    const digest = sha256(image.manifest);
    expect(source).toMatchObject({
      pull_reference: `${registry.host}/team/app@${digest}`,
      digest,
      manifest_digest: digest,
      image_id: sha256(image.config).slice("sha256:".length),
      failure: null,
    });
    expect(readFileSync(source.registries_conf, "utf8")).toContain(`prefix = "${registry.host}/team/app"\n`);
    expect(await pullFrom(source)).toEqual(partsOf(image));
    await source.finish(new Set());
    const total_bytes = image.layers.reduce((sum, layer) => sum + layer.length, 0);
    expect(reports.at(-1)).toEqual({ done_bytes: total_bytes, total_bytes, layers_done: 2, layers_total: 2 });
    expect(reports.map((report) => report.done_bytes)).toEqual(
      reports.map((report) => report.done_bytes).toSorted((a, b) => a - b),
    );
    expect(source.failure).toBeNull();
  });

  it("serves nothing but that image, and nothing without the secret of its path", async () => {
    const registry = await test.registry();
    registry.add("other", "latest", makeImage({ layers: [small("other")] }));
    const image = registry.add("app", "latest", makeImage({ layers: [small("own")] }));
    const source = await test.open(test.gateway(), `${registry.host}/app`);
    const place = placeOf(source);
    const { origin } = new URL(place);
    const status = async (url: string, method = "GET") => (await fetch(url, { method })).status;
    expect(await status(`${origin}/v2/`)).toBe(200);
    expect(await status(`${place}/manifests/${source.manifest_digest}`)).toBe(200);
    const missing = [
      `${origin}/`,
      `${origin}/v2/app/manifests/latest`,
      `${origin}/v2/${"0".repeat(32)}/manifests/${source.manifest_digest}`,
      `${place}/manifests/latest`,
      `${place}/manifests/${sha256(image.config)}`,
      `${place}/blobs/${sha256(Buffer.from("x"))}`,
      `${place}/blobs/${source.manifest_digest}`,
      `${place}/tags/list`,
    ];
    expect(await Promise.all(missing.map((url) => status(url)))).toEqual(missing.map(() => 404));
    for (const method of ["PUT", "POST", "DELETE", "HEAD"]) {
      expect(await status(`${place}/manifests/${source.manifest_digest}`, method)).toBe(405);
    }
    expect(registry.asked("other")).toBe(0);
  });

  it("leaves neither a listener nor a file when a pull closes, also in the middle", async () => {
    const registry = await test.registry();
    const image = registry.add("app", "latest", makeImage({ layers: [tarOf("large", randomBytes(2_000_000))] }));
    const source = await test.open(test.gateway(), `${registry.host}/app`);
    const place = placeOf(source);
    registry.behaviour = ({ url }, response) => {
      if (url?.includes("/blobs/")) response.writeHead(200, { "content-length": image.layers[0]?.length }).write("x");
      return url?.includes("/blobs/") === true;
    };
    const pulling = pullFrom(source).catch((error: unknown) => error);
    await expect.poll(() => registry.asked("/blobs/")).toBeGreaterThan(1);
    await source.close();
    expect(await pulling).toBeInstanceOf(Error);
    expect(source.failure).toBeNull();
    expect(existsSync(dirname(source.registries_conf))).toBe(false);
    await expect(fetch(place)).rejects.toThrow();
    await source.close();
  });

  it("serves a layer a bounded number of times in each attempt", async () => {
    const registry = await test.registry();
    registry.add("app", "latest", makeImage({ layers: [small("x")] }));
    const source = await test.open(test.gateway(), `${registry.host}/app`);
    const [{ digest = "" } = {}] = JSON.parse(
      await (await fetch(`${placeOf(source)}/manifests/${source.manifest_digest}`)).text(),
    ).layers;
    const ask = async () => {
      await (await fetch(`${placeOf(source)}/blobs/${digest}`)).bytes();
      return source.failure?.code;
    };
    for (let n = 0; n < 2; n++) {
      for (let i = 0; i < LIMITS.registry_layer_requests_max; i++) expect(await ask()).toBeUndefined();
      if (n === 0) source.restart();
    }
    expect(await ask()).toBe("REGISTRY_FAILED");
    await source.close();
  });

  it("removes what an earlier process left in its directory", async () => {
    const registry = await test.registry();
    registry.add("app", "latest", makeImage({ layers: [small("x")] }));
    const source = await test.open(test.gateway(), `${registry.host}/app`);
    expect(readdirSync(`${test.directory}/pulls`)).toHaveLength(1);
    test.gateway();
    expect(readdirSync(`${test.directory}/pulls`)).toEqual([]);
    await source.close();
  });

  it("chooses from an index the image of the asked platform, also from an index inside it", async () => {
    const registry = await test.registry();
    const images = ["amd64", "arm64", "s390x"].map((architecture) =>
      registry.add("app", architecture, makeImage({ layers: [small(architecture)], architecture })),
    );
    const [amd64, arm64, s390x] = images.map(({ manifest }) => manifest);
    const attestation = registry.add(
      "app",
      "attestation",
      makeImage({ layers: [small("?")], architecture: "unknown" }),
    );
    const inner = makeIndex([[s390x ?? Buffer.alloc(0), { os: "linux", architecture: "s390x" }]]);
    registry.addManifest("app", "inner", inner, OCI_INDEX);
    const index = makeIndex([
      [attestation.manifest, { os: "unknown", architecture: "unknown" }],
      [arm64 ?? Buffer.alloc(0), { os: "linux", architecture: "arm64", variant: "v8" }],
      [amd64 ?? Buffer.alloc(0), { os: "linux", architecture: "amd64" }],
      [inner, { os: "linux", architecture: "s390x" }, OCI_INDEX],
    ]);
    registry.addManifest("app", "all", index, OCI_INDEX);
    const gateway = test.gateway();
    for (const [i, platform] of ["linux/amd64", "linux/arm64", "linux/s390x"].entries()) {
      const source = await test.open(gateway, `${registry.host}/app:all`, { platform });
      const { manifest, layers, config } = images[i] ?? attestation;
      expect([source.digest, source.manifest_digest]).toEqual([sha256(index), sha256(manifest)]);
      expect(await pullFrom(source)).toEqual(partsOf({ manifest, config, layers }));
      const pinned = await test.open(gateway, `${registry.host}/app:moved@${sha256(index)}`, { platform });
      expect(pinned.pull_reference).toBe(source.pull_reference);
    }
  });

  it("names the platforms that an image has if the asked one is missing", async () => {
    const registry = await test.registry();
    const arm = registry.add("app", "arm", makeImage({ layers: [small("x")], architecture: "arm64", variant: "v8" }));
    const index = makeIndex([
      [arm.manifest, { os: "linux", architecture: "arm64", variant: "v8" }],
      [arm.manifest, { os: "windows", architecture: "amd64" }],
    ]);
    registry.addManifest("app", "index", index, OCI_INDEX);
    const gateway = test.gateway();
    const missing = { code: "NOT_FOUND", reason_code: "PLATFORM_NOT_FOUND" };
    await expect(test.open(gateway, `${registry.host}/app:index`)).rejects.toMatchObject({
      ...missing,
      message: `image ${registry.host}/app:index does not support linux/amd64 (it supports linux/arm64/v8, windows/amd64)`,
      details: { expected: ["linux/arm64/v8", "windows/amd64"], received: "linux/amd64" },
    });
    // Neither an index nor a list of platforms: the configuration alone has it.
    await expect(test.open(gateway, `${registry.host}/app:arm`)).rejects.toMatchObject({
      ...missing,
      message: expect.stringContaining("(it supports linux/arm64/v8)"),
    });
    // An index that lies about its image.
    registry.addManifest("app", "lie", makeIndex([[arm.manifest, { os: "linux", architecture: "amd64" }]]), OCI_INDEX);
    await expect(test.open(gateway, `${registry.host}/app:lie`)).rejects.toMatchObject(missing);
  });

  it("serves Docker's manifests and lists like those of OCI, and a manifest without a type as one of OCI", async () => {
    const registry = await test.registry();
    const type = "application/vnd.docker.distribution.manifest.v2+json";
    const list = "application/vnd.docker.distribution.manifest.list.v2+json";
    const image = makeImage({
      layers: [small("docker")],
      layer: { mediaType: "application/vnd.docker.image.rootfs.diff.tar.gzip" },
      manifest: { mediaType: type },
    });
    const { config } = JSON.parse(image.manifest.toString()) as { config: object };
    const docker = {
      ...image,
      manifest: Buffer.from(
        image.manifest
          .toString()
          .replace(JSON.stringify(config), () =>
            JSON.stringify({ ...config, mediaType: "application/vnd.docker.container.image.v1+json" }),
          ),
      ),
    };
    registry.add("docker", "image", docker);
    registry.addManifest("docker", "image", docker.manifest, type);
    const entry = { ...descriptorOf(type, docker.manifest), platform: { os: "linux", architecture: "amd64" } };
    const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: list, manifests: [entry] }));
    registry.addManifest("docker", "list", bytes, list);
    const gateway = test.gateway();
    const served = async (reference: string) => {
      const source = await test.open(gateway, `${registry.host}/${reference}`);
      await pullFrom(source);
      return (await fetch(`${placeOf(source)}/manifests/${source.manifest_digest}`)).headers.get("content-type");
    };
    expect(await served("docker:image")).toBe(type);
    expect(await served("docker:list")).toBe(type);
    const bare = makeImage({ layers: [small("bare")], manifest: { mediaType: undefined } });
    registry.add("bare", "latest", bare);
    registry.addManifest("bare", "latest", bare.manifest, "application/json");
    expect(await served("bare")).toBe(OCI_MANIFEST);
  });

  it("reads the layers again that the store had, unless the tenant has them, so that a digest is no key to a layer", async () => {
    const registry = await test.registry();
    const image = registry.add("app", "latest", makeImage({ layers: [small("a"), small("b"), small("b")] }));
    const [a = "", b = ""] = image.layers.map(sha256);
    const known = (digest: string, text: string) => layerKey({ digest, diff_id: sha256(small(text)) });
    const gateway = test.gateway({ insecure: [registry.host] });
    const pull = (isOperator: boolean) => test.open(gateway, `${registry.host}/app`, { isOperator });
    await (await pull(false)).finish(new Set([known(a, "a"), known(b, "b")]));
    await (await pull(true)).finish(new Set());
    expect([registry.asked(a), registry.asked(b)]).toEqual([0, 0]);
    await (await pull(false)).finish(new Set([known(a, "a"), known(b, "a")]));
    expect([registry.asked(a), registry.asked(b)]).toEqual([0, 1]);
    await (await pull(false)).finish(new Set());
    expect([registry.asked(a), registry.asked(b)]).toEqual([1, 2]);
    // A manifest that names the layer of somebody else, which its registry lacks or makes up.
    const [, made = Buffer.alloc(0)] = image.layers;
    registry.addBlob(b, Buffer.alloc(made.length));
    const thief = await pull(false);
    await expect(thief.finish(new Set([known(a, "a")]))).rejects.toMatchObject({ code: "IMAGE_INVALID" });
    expect(thief.failure).toMatchObject({ code: "IMAGE_INVALID" });
    registry.behaviour = ({ url }, response) => {
      if (url?.includes(b)) response.writeHead(404).end();
      return url?.includes(b) === true;
    };
    await expect((await pull(false)).finish(new Set([known(a, "a")]))).rejects.toMatchObject({
      code: "REGISTRY_FAILED",
      message: expect.stringContaining(`lacks layer ${b}`),
    });
  });

  it("ends a pull before a disk is full", async () => {
    const registry = await test.registry();
    registry.add("app", "latest", makeImage({ layers: [tarOf("large", randomBytes(500_000))] }));
    const limits = { image_disk_check_bytes: 1_000, image_disk_free_bytes_min: Number.MAX_SAFE_INTEGER };
    const source = await test.open(test.gateway({ limits }), `${registry.host}/app`);
    await expect(pullFrom(source)).rejects.toThrow();
    expect(source.failure).toMatchObject({ code: "CAPACITY_FULL", message: expect.stringContaining("no disk space") });
  });

  it("names the path of the pull in no argument of buildah, which anybody on the machine can read", async () => {
    const registry = await test.registry();
    registry.add("app", "latest", makeImage({ layers: [tarOf("a", Buffer.from("x"))] }));
    const source = await test.open(test.gateway(), `${registry.host}/app`);
    const [, secret = ""] = /\/v2\/([0-9a-f]{32})$/.exec(placeOf(source)) ?? [];
    expect(secret).not.toBe("");
    expect(`${source.registries_conf} ${source.pull_reference}`).not.toContain(secret);
  });

  it("bounds the unpacked size of all layers together", async () => {
    const registry = await test.registry();
    const tars = [tarOf("a", Buffer.alloc(50_000)), tarOf("b", Buffer.alloc(60_000))];
    registry.add("app", "latest", makeImage({ layers: [...tars, tars[1] ?? Buffer.alloc(0)] }));
    const bytes = tars.reduce((sum, tar) => sum + tar.length, tars[1]?.length ?? 0);
    const exact = await test.open(test.gateway(), `${registry.host}/app`, { unpacked_bytes_max: bytes });
    await pullFrom(exact);
    const less = await test.open(test.gateway(), `${registry.host}/app`, { unpacked_bytes_max: bytes - 1 });
    await expect(pullFrom(less)).rejects.toThrow();
    expect(less.failure).toMatchObject({ code: "QUOTA_EXCEEDED", message: expect.stringContaining(String(bytes - 1)) });
  });

  it("refuses compressed layers that are larger than the bound for unpacked ones, before it serves them", async () => {
    const registry = await test.registry();
    const image = makeImage({ layers: [tarOf("a", Buffer.from("x"))] });
    // Members of gzip that unpack to nothing.
    const empty = gzipSync(Buffer.alloc(0));
    const layer = Buffer.concat([...image.layers, ...Array.from({ length: 100_000 }, () => empty)]);
    const layers = [descriptorOf(OCI_LAYER, layer)];
    const manifest = jsonBytes({ ...JSON.parse(image.manifest.toString()), layers });
    registry.add("app", "latest", { ...image, manifest, layers: [layer] });
    const open = (unpacked_bytes_max: number) =>
      test.open(test.gateway(), `${registry.host}/app`, { unpacked_bytes_max });
    await pullFrom(await open(2_000_000));
    await expect(open(500_000)).rejects.toMatchObject({
      code: "QUOTA_EXCEEDED",
      message: `image too large: ${layer.length} bytes of layers (limit 500000 bytes unpacked)`,
    });
    expect(registry.asked(sha256(layer))).toBe(1);
  });
});
