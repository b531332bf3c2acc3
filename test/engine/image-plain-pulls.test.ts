/** Pulls whose layers reach buildah uncompressed and named by their diff_ids, which the author of an image chooses. */
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { Outgoing } from "../../src/base/outgoing-requests.ts";
import { ImageArrivals } from "../../src/oci/arrivals.ts";
import { LayerChecks } from "../../src/oci/layers/checker.ts";
import { parsePlatform } from "../../src/oci/platform.ts";
import { parseReference } from "../../src/oci/reference.ts";
import { RegistryGateway } from "../../src/oci/registry/gateway.ts";
import { makeImages } from "../oci/tenant-images.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/native.ts";
import { type MadeImage, makeImage, sha256, TestRegistry, tarOf } from "../support/registry.ts";
import { ImageGround } from "./image-ground.ts";

const SECRET = tarOf("secret", randomBytes(2_000_000));
const OTHER = tarOf("other", Buffer.from("other"));

describe("a pull of uncompressed layers", () => {
  const scratch = scratchStores();
  const ground = new ImageGround();
  const registry = new TestRegistry();
  const checker = new LayerChecks(quietLog);
  beforeAll(async () => {
    await ground.start();
    await registry.start();
  });
  afterAll(async () => {
    registry.close();
    await checker.close();
    await ground.stop();
  });

  async function made() {
    const store = scratch().open();
    const { images: tenant_images, quotas } = await makeImages(store, ground.images);
    const root = `${ground.ground.root}/plain`;
    mkdirSync(root, { recursive: true });
    const policy_file = `${root}/policy.json`;
    writeFileSync(policy_file, JSON.stringify({ default: [{ type: "insecureAcceptAnything" }] }));
    const gateway = new RegistryGateway({
      ...{ clock: systemClock, ids: randomIds(), checker, directory: `${root}/registry`, disks: [root] },
      outgoing: new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed: [registry.host] }),
      ...{ mirrors: new Map(), insecure: [registry.host] },
    });
    const arrivals = new ImageArrivals({ tenant_images, images: () => ground.images, log: quietLog });
    const pull = async (tenant_id: string, name: string, isOperator = false) => {
      const reference = parseReference(`${registry.host}/${name}:1`);
      const { signal } = new AbortController();
      const platform = parsePlatform("linux/amd64");
      const intake = await tenant_images.intake(tenant_id, `${registry.host}/${name}:1`);
      const source = await gateway.open({
        ...{ reference, platform, credentials: null, isOperator, policy_file, signal, onProgress: () => {} },
        unpacked_bytes_max: intake.bytes_max,
        onUnpacked: (bytes) => intake.layers(bytes),
      });
      const known_layers = new Set<string>();
      const destination = { tenant_id, reference: `${registry.host}/${name}:1`, event_type: "pulled" as const };
      try {
        await arrivals.take({ ...destination, source, platform, policy_file, known_layers, intake, signal });
      } finally {
        intake.release();
      }
    };
    const add = (name: string, image: MadeImage) => registry.add(name, "1", image);
    const inspect = (tenant_id: string, name: string) => tenant_images.inspect(tenant_id, `${registry.host}/${name}:1`);
    const has = (tenant_id: string, name: string) => tenant_images.has(tenant_id, `${registry.host}/${name}:1`);
    const gone = async () => {
      await tenant_images.free();
      await ground.images.keep(async () => new Set());
      await eventually("nothing is left", async () => (await ground.stored()).layers === 0);
      expect([ground.notes(), readdirSync(`${root}/registry`)]).toEqual([[], []]);
    };
    return { pull, add, inspect, has, gone, quotas };
  }

  it("keeps the registry's own manifest and the digests of its layers", async () => {
    const { pull, add, inspect, gone } = await made();
    const image = add("a/own", makeImage({ layers: [SECRET, OTHER, OTHER] }));
    await pull("a", "a/own");
    const found = await inspect("a", "a/own");
    expect(found.manifest_json).toBe(image.manifest.toString());
    expect(found.image).toMatchObject({ id: sha256(image.config), manifest_digest: sha256(image.manifest) });
    expect(found.layers.map(({ digest, uncompressed_size }) => [digest, uncompressed_size])).toEqual(
      [SECRET, OTHER, OTHER].map((tar, i) => [sha256(image.layers[i] ?? tar), tar.length]),
    );
    await gone();
  });

  it("asks the registry for no layer that the tenant has, and for each that another tenant has", async () => {
    const { pull, add, has, gone } = await made();
    const image = add("a/shared", makeImage({ layers: [SECRET] }));
    add("a/next", makeImage({ layers: [SECRET, OTHER] }));
    const asked = () => registry.asked(sha256(image.layers[0] ?? SECRET));
    const before = asked();
    await pull("a", "a/shared");
    await pull("a", "a/next");
    expect(asked() - before).toBe(1);
    await pull("b", "a/shared");
    expect([asked() - before, await has("b", "a/shared")]).toEqual([2, true]);
    await gone();
  });

  it("gives nobody another tenant's layer whose diff_id an image names", async () => {
    const { pull, add, has, gone } = await made();
    add("a/secret", makeImage({ layers: [SECRET] }));
    await pull("a", "a/secret");
    // The registry of B serves B's own bytes under a digest of its own; the configuration names A's layer.
    const rootfs = { type: "layers", diff_ids: [sha256(SECRET)] };
    add("b/thief", makeImage({ layers: [OTHER], config: { rootfs } }));
    const refused = { code: "IMAGE_INVALID", message: expect.stringContaining("differs from its diff_id") };
    await expect(pull("b", "b/thief")).rejects.toMatchObject(refused);
    await expect(pull("default", "b/thief", true)).rejects.toMatchObject(refused);
    // One layer of the two that name it is B's.
    add(
      "b/pair",
      makeImage({
        layers: [SECRET, OTHER],
        config: { rootfs: { type: "layers", diff_ids: [sha256(SECRET), sha256(SECRET)] } },
      }),
    );
    await expect(pull("b", "b/pair")).rejects.toMatchObject(refused);
    expect([await has("b", "b/thief"), await has("b", "b/pair"), await has("a", "a/secret")]).toEqual([
      false,
      false,
      true,
    ]);
    await gone();
  });

  it("refuses one digest under two diff_ids", async () => {
    const { pull, add, gone } = await made();
    const rootfs = { type: "layers", diff_ids: [sha256(OTHER), sha256(SECRET)] };
    add("b/two", makeImage({ layers: [OTHER, OTHER], config: { rootfs } }));
    await expect(pull("b", "b/two")).rejects.toMatchObject({
      code: "IMAGE_INVALID",
      message: expect.stringContaining("has a layer of two diff_ids"),
    });
    await gone();
  });

  it("counts each occurrence of a layer against the limit, also if the store has it", async () => {
    const { pull, add, has, quotas, gone } = await made();
    add("a/many", makeImage({ layers: [SECRET] }));
    await pull("a", "a/many");
    quotas.set("b", { image_mb_max: 5 });
    add("b/many", makeImage({ layers: [SECRET, SECRET, SECRET] }));
    await expect(pull("b", "b/many")).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    expect(await has("b", "b/many")).toBe(false);
    await gone();
  });
});
