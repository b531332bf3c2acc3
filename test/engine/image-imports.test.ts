/** Imports of files into a store of containers/storage, through the real check of layers and the real buildah. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { Outgoing } from "../../src/base/outgoing-requests.ts";
import { ImageArrivals } from "../../src/oci/arrivals.ts";
import { ImageImports, type LocalImage, type LocalLayer } from "../../src/oci/imports.ts";
import { LayerChecks } from "../../src/oci/layers/checker.ts";
import { RegistryGateway } from "../../src/oci/registry/gateway.ts";
import type { Store } from "../../src/store/store.ts";
import { makeImages } from "../oci/tenant-images.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { directory, entry, sha256, tar } from "../support/layer-bytes.ts";
import { eventually } from "../support/native.ts";
import { ImageGround } from "./image-ground.ts";

const EMPTY = { images: {}, layers: 0, directories: 0 };
const REFERENCE = "docker.io/acme/app:1";
const layer = (name: string) => tar(directory("etc"), entry({ name: `etc/${name}`, content: name.repeat(1_000) }));
const [BASE, TOP] = ["base", "top"].map(layer) as [Buffer, Buffer];

describe("an import of local files", () => {
  const scratch = scratchStores();
  const held: { ground: ImageGround; checker: LayerChecks } = {} as never;
  beforeEach(async () => {
    held.ground = new ImageGround();
    await held.ground.start();
    held.checker = new LayerChecks(quietLog);
  });
  afterEach(async () => {
    await held.checker.close();
    await held.ground.stop();
  });

  async function made(store: Store = scratch().open()) {
    const { ground, checker } = held;
    const images = () => ground.images;
    const { images: tenant_images, quotas } = await makeImages(store, ground.images);
    const root = `${ground.ground.root}/local`;
    mkdirSync(root, { recursive: true });
    const gateway = new RegistryGateway({
      ...{ clock: systemClock, ids: randomIds(), checker, directory: `${root}/registry`, disks: [root] },
      outgoing: new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed: [] }),
      ...{ mirrors: new Map(), insecure: [] },
    });
    const arrivals = new ImageArrivals({ tenant_images, images, log: quietLog });
    const made = new ImageImports({ tenant_images, arrivals, gateway });
    const imports = {
      import: async (local: Omit<LocalImage, "intake">) => {
        const intake = await tenant_images.intake(local.tenant_id, local.reference);
        return made.import({ ...local, intake }).finally(() => intake.release());
      },
    };
    const file = (bytes: Buffer, claimed: Buffer = bytes): LocalLayer => {
      const path = `${root}/${sha256(bytes).slice(7, 30)}.tar`;
      writeFileSync(path, bytes);
      return { diff_id: sha256(claimed), size_bytes: claimed.length, path };
    };
    const image = (layers: readonly LocalLayer[], more: Partial<LocalImage> = {}): Omit<LocalImage, "intake"> => ({
      tenant_id: "a",
      reference: REFERENCE,
      config_json: Buffer.from(
        JSON.stringify({
          ...{ architecture: "amd64", os: "linux", config: { Cmd: ["/bin/sh"] } },
          rootfs: { type: "layers", diff_ids: layers.map(({ diff_id }) => diff_id) },
        }),
      ),
      layers,
      event_type: "built",
      signal: new AbortController().signal,
      ...more,
    });
    const left = () => readdirSync(`${root}/registry`);
    return { imports, tenant_images, quotas, file, image, left, store };
  }

  it("gives the tenant the image, with a manifest of its uncompressed layers", async () => {
    const { imports, tenant_images, file, image, left, store } = await made();
    const local = image([file(BASE), file(TOP)]);
    const id = sha256(local.config_json);
    expect(await imports.import(local)).toEqual({ reference: REFERENCE, image_id: id.slice(7) });
    expect(await tenant_images.get("a", REFERENCE)).toMatchObject({ id, size_bytes: BASE.length + TOP.length });
    const { layers, manifest_json, config_json } = await tenant_images.inspect("a", REFERENCE);
    expect(config_json).toBe(local.config_json.toString());
    const layersOf = [BASE, TOP].map((bytes) => ({ digest: sha256(bytes), size: bytes.length }));
    expect(JSON.parse(manifest_json)).toMatchObject({ config: { digest: id }, layers: layersOf });
    expect(layers).toEqual(
      layersOf.map(({ digest, size }) => ({
        ...{ digest, size_bytes: size, uncompressed_size: size },
        media_type: "application/vnd.oci.image.layer.v1.tar",
      })),
    );
    const [event] = await store.read("SELECT * FROM events");
    expect(JSON.stringify(event)).toContain("built");
    expect([left(), held.ground.notes()]).toEqual([[], []]);
    expect(await held.ground.stored()).toMatchObject({ layers: 2 });
  });

  it("takes layers without a file from images of the tenant, and no others", async () => {
    const { imports, tenant_images, file, image } = await made();
    await imports.import(image([file(BASE)]));
    const named = { ...file(BASE), path: null };
    const next = image([named, file(TOP)], { reference: "docker.io/acme/next:1" });
    await imports.import(next);
    expect(await held.ground.stored()).toMatchObject({ layers: 2 });
    // Whoever has no such image learns nothing of the store.
    await expect(imports.import({ ...next, tenant_id: "b" })).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect(await tenant_images.has("b", next.reference)).toBe(false);
    // Whoever has the bytes needs no image with them.
    await imports.import({ ...image([file(BASE), file(TOP)], { reference: next.reference }), tenant_id: "b" });
    expect(await tenant_images.has("b", next.reference)).toBe(true);
    expect(await held.ground.stored()).toMatchObject({ layers: 2 });
  });

  it("takes layers without a file from an image of an earlier release by what the store has", async () => {
    const { imports, file, image, store } = await made();
    await imports.import(image([file(BASE)]));
    const lying = JSON.stringify([{ digest: sha256(TOP), size_bytes: 1, uncompressed_size: 1, media_type: "x" }]);
    await store.write([{ sql: "UPDATE oci_images SET layers = ?", args: [lying] }]);
    await imports.import(image([{ ...file(BASE), path: null }], { reference: "docker.io/acme/next:1" }));
    const other = image([{ ...file(TOP), path: null }], { reference: "docker.io/acme/other:1" });
    await expect(imports.import(other)).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  it("fails precisely, and can be repeated, if a layer without a file leaves the store meanwhile", async () => {
    const { imports, file, image, left } = await made();
    await imports.import(image([file(BASE)]));
    await held.ground.images.keep(async () => new Set());
    const next = image([{ ...file(BASE), path: null }, file(TOP)], { reference: "docker.io/acme/next:1" });
    await expect(imports.import(next)).rejects.toMatchObject({
      code: "WRONG_STATE",
      message: `layer ${sha256(BASE)} not in the image store any more`,
    });
    await eventually("nothing is left", async () => (await held.ground.stored()).layers === 0);
    expect([left(), held.ground.notes()]).toEqual([[], []]);
    await imports.import(image([file(BASE), file(TOP)], { reference: "docker.io/acme/next:1" }));
  });

  it("refuses what lies or is too large, and leaves nothing", async () => {
    const { imports, tenant_images, quotas, file, image, left } = await made();
    const gzip = Buffer.concat([Buffer.from("1f8b08", "hex"), Buffer.alloc(2_000)]);
    const device = tar(entry({ name: "etc/x/../../y", content: "x" }));
    const refused = [
      [image([file(BASE), file(TOP, layer("other"))]), "IMAGE_INVALID"],
      [image([file(gzip)]), "IMAGE_INVALID"],
      [image([file(device)]), "IMAGE_INVALID"],
      [image([file(BASE)], { config_json: Buffer.from("{}") }), "IMAGE_INVALID"],
      [image([file(BASE)], { config_json: image([file(TOP)]).config_json }), "IMAGE_INVALID"],
    ] as const;
    for (const [local, code] of refused) await expect(imports.import(local)).rejects.toMatchObject({ code });
    quotas.set("a", { image_mb_max: 1 });
    const large = tar(entry({ name: "large", content: Buffer.alloc(2_000_000) }));
    await expect(imports.import(image([file(large)]))).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    expect(await tenant_images.has("a", REFERENCE)).toBe(false);
    await eventually("nothing is left", async () => (await held.ground.stored()).layers === 0);
    expect(await held.ground.stored()).toEqual(EMPTY);
    expect([left(), held.ground.notes()]).toEqual([[], []]);
  });

  it("ends when it is cancelled, and leaves nothing", async () => {
    const { imports, file, image, left } = await made();
    const cancel = new AbortController();
    const importing = imports.import(image([file(BASE)], { signal: cancel.signal }));
    importing.catch(() => {});
    await eventually("it runs", () => held.ground.notes().length === 1);
    cancel.abort(new Error("cancelled"));
    await expect(importing).rejects.toThrow("cancelled");
    await eventually("nothing is left", async () => (await held.ground.stored()).layers === 0);
    expect([left(), held.ground.notes(), held.ground.processes()]).toEqual([[], [], []]);
  });
});
